/** The last lines of a terminal, drawn again and again, while finished lines scroll away above them. */
import type { Output } from './output.js';
import { leave, stand, type Standing } from './standing.js';
import { displayWidth, wrap } from './width.js';

const hideCursor = '\u001B[?25l';
const showCursor = '\u001B[?25h';
/** Terminals that know it show everything between at once; others ignore it. */
const beginFrame = '\u001B[?2026h';
const endFrame = '\u001B[?2026l';
const eraseBelow = '\u001B[J';
/** What goes on in a further line is indented by. */
const hanging = 2;

export class LiveArea implements Standing {
  readonly #output: Output;
  readonly #streams: readonly Output[];
  #lines: readonly string[] = [];
  #begun = false;

  /** Draws on `output`; `besides` are the other streams that lead to the same terminal. */
  constructor(output: Output, besides: readonly Output[] = []) {
    this.#output = output;
    this.#streams = [output, ...besides];
  }

  /** Draws `live` below `finished`, both broken at the terminal's columns; `finished` scrolls up and is never touched again. */
  draw(live: readonly string[], finished: readonly string[] = []): void {
    const fitted = live.flatMap((line) => wrap(line, this.#output.columns, hanging));
    const same = finished.length === 0 && this.#begun && fitted.length === this.#lines.length && fitted.every((line, index) => line === this.#lines[index]);
    if (same) return;
    // A block taller than the terminal could not be drawn over: its top goes without.
    const shown = fitted.slice(Math.max(0, fitted.length - (this.#output.rows - 1)));
    const text = [...finished.flatMap((line) => wrap(line, this.#output.columns, hanging)), ...shown].join('\n');
    this.#output.write(beginFrame + (this.#begun ? '' : hideCursor) + this.#home() + eraseBelow + text + endFrame);
    if (!this.#begun) stand(this, this.#streams);
    this.#begun = true;
    this.#lines = shown;
  }

  writeAbove(lines: string): void {
    this.draw(this.#lines, lines.replace(/\n$/, '').split('\n'));
  }

  /** Leaves the last picture where it is and gives the cursor back below it. */
  end(): void {
    if (!this.#begun) return;
    leave(this, this.#streams);
    this.#output.write(`\n${showCursor}`);
    this.#begun = false;
    this.#lines = [];
  }

  #home(): string {
    // In a terminal that was made narrower meanwhile each line may take several rows.
    const { columns } = this.#output;
    const up = this.#lines.reduce((rows, line) => rows + Math.max(1, Math.ceil(displayWidth(line) / columns)), 0) - 1;
    return up > 0 ? `\r\u001B[${up}A` : '\r';
  }
}
