/** A log for who watches a terminal: one readable line an entry, above whatever is drawn there. Files and pipes get JSON. */
import type { Log } from '../../orchestrator/index.js';
import type { Palette } from './colour.js';
import type { Output } from './output.js';
import { writeAbove } from './standing.js';
import { displayWidth, pad, truncate, withoutControls } from './width.js';

type Level = keyof Log;

/** Columns of the time and the level before the words. */
const textBegins = 15;

const levels: readonly Level[] = ['debug', 'info', 'warn', 'error'];
/** Longer values are cut: whoever needs them whole logs to a file. */
const valueColumnsMax = 100;
/** Of ids of processes and leases only the end differs. */
const longIds = /\b[0-9a-f]{12}-([wslx]\d+)\b/g;
/** What never reaches a log, at any depth. */
const secretNames: readonly string[] = ['proof', 'key', 'secret', 'ticket', 'env'];

/** Entries of `level` and above, as `14:03:59 info  worker started generation=b-w1`. */
export function createTerminalLog(level: Level, output: Output, palette: Palette, now: () => Date = () => new Date()): Log {
  const write = (own: Level) => (fields: Readonly<Record<string, unknown>>, message: string): void => {
    if (levels.indexOf(own) < levels.indexOf(level)) return;
    writeAbove(output, renderEntry(own, fields, message, palette, now()), textBegins);
  };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

function renderEntry(level: Level, fields: Readonly<Record<string, unknown>>, message: string, palette: Palette, at: Date): string {
  const paint = level === 'error' ? palette.red : level === 'warn' ? palette.yellow : palette.dim;
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
  const values = Object.entries(fields).flatMap(([name, value]) => assignments(name, value)).map(palette.dim);
  return [palette.dim(time), paint(pad(level, 5)), oneLine(message), ...values].join(' ');
}

/** `name=value`; what an object holds stands beside the rest. */
function assignments(name: string, value: unknown): string[] {
  if (secretNames.includes(name)) return [`${oneLine(name)}=[redacted]`];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [`${oneLine(name)}=${shown(value)}`];
  return Object.entries(value).map(([inner, held]) => `${oneLine(inner)}=${secretNames.includes(inner) ? '[redacted]' : shown(held)}`);
}

/** A value as one word; with quotes where its end could not be seen without them. */
function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value, (name, inner: unknown) => (secretNames.includes(name) ? '[redacted]' : inner)) as string | undefined;
  const line = oneLine(text ?? String(value)).replace(longIds, '$1');
  const cut = displayWidth(line) > valueColumnsMax ? truncate(line, valueColumnsMax) : line;
  return typeof value === 'string' && /^$|[\s"=]/.test(cut) ? JSON.stringify(cut) : cut;
}

function oneLine(text: string): string {
  return withoutControls(text.replace(/\s+/g, ' '));
}
