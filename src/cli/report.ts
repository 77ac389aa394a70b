/** How a command tells its result: text for people, one JSON object a line for programs. */
import type { LeaseholdError } from '../../protocol/index.js';
import type { Io } from './io.js';
import type { Palette } from './terminal/colour.js';
import { withoutControls } from './terminal/width.js';

/** One line of JSON on stdout. */
export function writeJson(io: Io, value: Readonly<Record<string, unknown>>): void {
  io.stdout.write(`${JSON.stringify(value)}\n`);
}

/** One line of text on stdout. */
export function writeLine(io: Io, line = ''): void {
  io.stdout.write(`${line}\n`);
}

/** With --json an object on stdout; else what is wrong and what to do, a line each, on stderr. */
export function reportError(io: Io, palette: Palette, error: LeaseholdError, json: boolean): void {
  if (json) {
    writeJson(io, { error: { code: error.code, message: error.message, help: error.help, details: error.details } });
    return;
  }
  const more = (error.details['more'] ?? '').split('\n').filter((line) => line !== '');
  const lines = [`${palette.red('error:')} ${error.message}`, ...more.map((line) => `       ${line}`), `  ${palette.dim('help:')} ${error.help}`];
  io.stderr.write(`${lines.map(withoutControlsButColour).join('\n')}\n`);
}

/** Messages quote what strangers sent; our own colours stay. */
function withoutControlsButColour(line: string): string {
  return line.split(/(\u001B\[[\d;]*m)/).map((part, index) => (index % 2 === 1 ? part : withoutControls(part))).join('');
}
