/** What long work is doing: one line that is written over on a terminal, a line for each change elsewhere. */
import type { Output } from './output.js';
import { renderProgress } from './bars.js';
import type { Palette } from './colour.js';
import { leave, stand, type Standing } from './standing.js';
import { displayWidth, pad, truncate, withoutControls } from './width.js';

const eraseLine = '\r\u001B[K';
const barColumns = 16;

export interface StatusLine {
  /** `fraction` 0 to 1, or null when it cannot be known. */
  show(text: string, fraction: number | null): void;
  /** Takes the line away before anything else is written to the terminal. */
  clear(): void;
}

/** `besides`: other streams to the same terminal, whose lines are to go above the status. */
export function createStatusLine(output: Output, palette: Palette, besides: readonly Output[] = []): StatusLine {
  return output.canRedraw ? new RewrittenLine(output, palette, besides) : new PlainLines(output);
}

/** Says nothing, for `--quiet` and `--json`. */
export const noStatusLine: StatusLine = {
  show: () => undefined,
  clear: () => undefined,
};

class RewrittenLine implements StatusLine, Standing {
  readonly #output: Output;
  readonly #palette: Palette;
  readonly #streams: readonly Output[];
  #shown = '';

  constructor(output: Output, palette: Palette, besides: readonly Output[]) {
    this.#output = output;
    this.#palette = palette;
    this.#streams = [output, ...besides];
  }

  show(text: string, fraction: number | null): void {
    const bar = fraction === null ? '' : ` ${renderProgress(fraction, barColumns)} ${pad(String(Math.floor(fraction * 100)), 3, 'right')} %`;
    const room = this.#output.columns - displayWidth(bar) - 1;
    const line = this.#palette.dim(truncate(withoutControls(text).replaceAll('\n', ' '), room)) + bar;
    if (line === this.#shown) return;
    this.#shown = line;
    stand(this, this.#streams);
    this.#output.write(eraseLine + line);
  }

  clear(): void {
    if (this.#shown === '') return;
    this.#shown = '';
    leave(this, this.#streams);
    this.#output.write(eraseLine);
  }

  writeAbove(lines: string): void {
    this.#output.write(eraseLine + lines + this.#shown);
  }
}

/** Percentages would fill a log: only a new text is a new line. */
class PlainLines implements StatusLine {
  readonly #output: Output;
  #last = '';

  constructor(output: Output) {
    this.#output = output;
  }

  show(text: string): void {
    const line = withoutControls(text).replaceAll('\n', ' ');
    if (line === this.#last) return;
    this.#last = line;
    this.#output.write(`${line}\n`);
  }

  clear(): void {
    this.#last = '';
  }
}
