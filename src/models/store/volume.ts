/** The volume that a path lies on: where it is mounted, what is free there, and what it means when a write fails. */
import { statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';

/** `disk_full` for what does not fit below `path`, which need not exist yet. */
export function diskFull(path: string, neededBytes: number, cause?: unknown): LeaseholdError {
  const there = existing(path);
  const details = { path, volume: mountOf(there), freeBytes: freeBytesAt(there), neededBytes };
  return new LeaseholdError('disk_full', details, cause === undefined ? {} : { cause });
}

/** What failed while `path` was written: `disk_full` where the volume, or the user's share of it, has no room for `neededBytes` more; else `store_unusable`. */
export function writeFault(error: unknown, path: string, neededBytes: number): LeaseholdError {
  if (error instanceof LeaseholdError) return error;
  return isFull(error) ? diskFull(path, neededBytes, error) : LeaseholdError.from(error, 'store_unusable', { path });
}

export function isFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && ['ENOSPC', 'EDQUOT', 'disk_full'].includes(String(error.code));
}

/** For a user without privileges. */
export function freeBytesAt(path: string): number {
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize;
}

function existing(path: string): string {
  let there = path;
  while (deviceOf(there) === null && dirname(there) !== there) there = dirname(there);
  return there;
}

/** The highest folder on the way up that is of the same device. */
function mountOf(path: string): string {
  const device = deviceOf(path);
  let at = path;
  while (dirname(at) !== at && deviceOf(dirname(at)) === device) at = dirname(at);
  return at;
}

function deviceOf(path: string): number | null {
  return statSync(path, { throwIfNoEntry: false })?.dev ?? null;
}
