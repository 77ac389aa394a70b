/** The end of a process's output, as much of it as an event's frame holds whatever is in it. */
import { LeaseholdError, descriptorShortage, errorEnd } from '../../protocol/index.js';

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
  const typed = typedEnd(lines);
  if (typed !== null) return `${how}; it said last: ${typed.message.slice(0, 500)}`;
  const newestFirst = [...lines].reverse().filter((line) => line.trim() !== '' && !traceLine.test(line));
  const last = newestFirst.find((line) => errorLine.test(line)) ?? newestFirst[0];
  return last === undefined ? how : `${how}; it said last: ${last.slice(0, 500)}`;
}

/** The error that a process said it ended of, in the line that is meant for this; null when it said none that says more than that it failed. */
export function typedEnd(lines: readonly string[]): LeaseholdError | null {
  const line = lines.filter((each) => each.startsWith(errorEnd)).at(-1);
  if (line === undefined) return outOfDescriptors(lines);
  const said = parsed(line.slice(errorEnd.length));
  if (said === null) return null;
  const error = LeaseholdError.fromWire({ code: said.code, message: '', details: said.details });
  return error.code === 'internal' ? null : error;
}

/** Before it could load what says so in our way. */
function outOfDescriptors(lines: readonly string[]): LeaseholdError | null {
  const last = lines.filter((each) => errorLine.test(each) && !traceLine.test(each)).at(-1) ?? '';
  const shortage = descriptorShortage(last);
  return shortage === null ? null : new LeaseholdError('too_many_open_files', { ...shortage, reason: last.slice(0, 500) });
}

/** Whoever wrote the line: what does not fit counts as not said. */
function parsed(json: string): { readonly code: string; readonly details: Readonly<Record<string, string>> } | null {
  try {
    const { code, details = {} } = JSON.parse(json) as { readonly code?: unknown; readonly details?: unknown };
    if (typeof code !== 'string' || typeof details !== 'object' || details === null) return null;
    return { code, details: Object.fromEntries(Object.entries(details).map(([name, value]) => [name, String(value).slice(0, 500)])) };
  } catch {
    // Cut short, or not JSON at all.
    return null;
  }
}
