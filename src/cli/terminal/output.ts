/** A stream that text is written to, as much of it as the renderers need to know. */
export interface Output {
  write(text: string): void;
  readonly isTerminal: boolean;
  /** What stands there can be written over: a terminal, unless TERM=dumb says that it knows no more than lines. */
  readonly canRedraw: boolean;
  /** Columns of the terminal; 80 where there is none. */
  readonly columns: number;
  /** Rows of the terminal; 24 where there is none. */
  readonly rows: number;
}
