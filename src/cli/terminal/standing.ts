/** What stands at the bottom of a terminal and is drawn over: the lines that others write there meanwhile go above it. */
import { fitted, type Output } from './output.js';

export interface Standing {
  /** Writes whole lines where it stood, and draws it again below them. */
  writeAbove(lines: string): void;
}

/** What stands now, by each of the streams that lead to its terminal. */
const standing = new WeakMap<Output, Standing>();

export function stand(what: Standing, outputs: readonly Output[]): void {
  for (const output of outputs) standing.set(output, what);
}

export function leave(what: Standing, outputs: readonly Output[]): void {
  for (const output of outputs) if (standing.get(output) === what) standing.delete(output);
}

/** Writes a text as whole lines to a stream, above whatever stands on its terminal; what has no room in a line goes on in the next, indented by `hanging`. */
export function writeAbove(output: Output, text: string, hanging = 2): void {
  const lines = `${fitted(output, text, hanging)}\n`;
  const below = standing.get(output);
  if (below === undefined) output.write(lines);
  else below.writeAbove(lines);
}
