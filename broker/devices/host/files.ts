/** Files of /proc and /sys/fs/cgroup: not there, not readable and not understood are three different things. */
import { readFileSync } from 'node:fs';
import type { MissingReading } from '../../core/events.js';

/** A figure that there should be cannot be had: why, in the words of a reading. */
export class Unreadable extends Error {
  override readonly name = 'Unreadable';

  constructor(readonly reading: MissingReading, reason: string) {
    super(reason);
  }
}

/** The text of a file; null when there is none. Throws `Unreadable` (`failed`) when it is there and cannot be read. */
export function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    // ESRCH: a process that ended between the opening of its file and the reading.
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ESRCH') return null;
    throw new Unreadable('failed', String(error));
  }
}

/** A whole number in a file of one figure. Throws `Unreadable` (`unknown`) for anything else, and for no file. */
export function figureIn(path: string): number {
  const text = textOf(path)?.trim();
  if (text === undefined || !/^\d{1,20}$/.test(text)) throw new Unreadable('unknown', `${path} has no figure: ${JSON.stringify(text?.slice(0, 64) ?? null)}`);
  return Number(text);
}

/** The figure called `name` in a table of names and figures. Throws `Unreadable` (`unknown`) when the table lacks it. */
export function figureNamed(table: string, name: string, where: string): number {
  for (const line of table.split('\n')) {
    const [key, value] = line.split(' ');
    if (key === name && value !== undefined && /^\d{1,20}$/.test(value)) return Number(value);
  }
  throw new Unreadable('unknown', `${where} has no ${name}`);
}
