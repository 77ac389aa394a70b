/** The end of a process's output, as much of it as an event's frame holds whatever is in it. */

const linesMax = 20;
/** Escaped as JSON a character may take six; an event carries 64 KiB. */
const charactersMax = 8_000;

/** The last lines, oldest first; the oldest of them may be cut. */
export function lastWords(lines: readonly string[]): readonly string[] {
  const kept: string[] = [];
  let left = charactersMax;
  for (const line of lines.slice(-linesMax).reverse()) {
    if (left <= 0) break;
    kept.unshift(line.slice(0, left));
    left -= line.length;
  }
  return kept;
}

/** Where an error arose says nothing to who only started the program. */
const traceLine = /^\s+at |^Node\.js v/;

/** An exception says its name and its reason in one line, and then much else. */
const errorLine = /(^|\s)\w*(Error|Exception)\b/;

/** How a process ended before it was of use: with the last error it told of, else the last thing it said, which most often is why. */
export function endOf(how: string, lines: readonly string[]): string {
  const newestFirst = [...lines].reverse().filter((line) => line.trim() !== '' && !traceLine.test(line));
  const last = newestFirst.find((line) => errorLine.test(line)) ?? newestFirst[0];
  return last === undefined ? how : `${how}; it said last: ${last.slice(0, 500)}`;
}
