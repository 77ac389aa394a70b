/** How a command tells its result: text for people, one JSON object a line for programs. */
import { LeaseholdError, plainJson } from '../../protocol/index.js';
import type { Io } from './io.js';
import type { Palette } from './terminal/colour.js';
import { fitted } from './terminal/output.js';
import { withoutControls } from './terminal/width.js';

/** One line of JSON on stdout. */
export function writeJson(io: Io, value: Readonly<Record<string, unknown>>): void {
  io.stdout.write(`${plainJson(JSON.stringify(value))}\n`);
}

/** One line of text on stdout. What has no room in it on a terminal goes on below, indented by two more than the line itself, or by `hanging`. */
export function writeLine(io: Io, line = '', hanging = line.length - line.trimStart().length + 2): void {
  io.stdout.write(`${fitted(io.stdout, line, hanging)}\n`);
}

/** With --json an object on stdout, with a list of all of them (`errors`) where there are several; else what is wrong and what to do, a line each, on stderr. */
export function reportError(io: Io, palette: Palette, error: LeaseholdError, json: boolean): void {
  if (json) {
    const several = error.cause instanceof AggregateError ? (error.cause.errors as unknown[]).filter((each) => each instanceof LeaseholdError) : [];
    const all = several.length === 0 ? {} : { errors: several.map(({ code, message, details }) => ({ code, message, details })) };
    writeJson(io, { error: { code: error.code, message: error.message, help: error.help, retryable: error.retryable, retryAfterMs: error.retryAfterMs, details: error.details, ...all } });
    return;
  }
  const more = (error.details['more'] ?? '').split('\n').filter((line) => line !== '');
  const lines = [fitted(io.stderr, `${palette.red('error:')} ${quoted(error.message)}`, errorIndent), ...more.map((line) => fitted(io.stderr, `${' '.repeat(errorIndent)}${quoted(line)}`, errorIndent + 2))];
  io.stderr.write(`${[...lines, fitted(io.stderr, `  ${palette.dim('help:')} ${quoted(error.help)}`, errorIndent + 1)].join('\n')}\n`);
}

/** As wide as `error: `. */
const errorIndent = 7;

/** What may quote a stranger: nothing of it changes the terminal, and a further line of it does not begin where ours do. */
function quoted(text: string): string {
  return withoutControls(text).replaceAll('\n', `\n${' '.repeat(errorIndent)}`);
}
