/** A stream that text is written to, as much of it as the renderers need to know. */
import { wrap } from './width.js';

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

/** Text as it goes to `output`: on a terminal broken between words, what follows the first line indented by `hanging`; whole for a file or a program. */
export function fitted(output: Output, text: string, hanging: number): string {
  return output.isTerminal ? wrap(text, output.columns, hanging).join('\n') : text;
}
