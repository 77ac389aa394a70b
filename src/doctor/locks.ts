/** Who holds which file lock, by /proc/locks: looked at from outside, so that nobody who wants the lock is in the way of us. */
import { stat } from 'node:fs/promises';
import type { Machine } from './machine/machine.js';

export interface HeldLock {
  /** 0: a process of a pid namespace that cannot be seen from here. */
  readonly pid: number;
  readonly inode: string;
}

/** Locks by flock(2) that are held, not those that are waited for; null where the system does not show them. */
export async function readHeldLocks(machine: Pick<Machine, 'readText'>): Promise<readonly HeldLock[] | null> {
  const text = await machine.readText('/proc/locks');
  return text === null ? null : parseHeldLocks(text);
}

/** `1: FLOCK  ADVISORY  WRITE 17967 fe:00:11019938 0 EOF`; who waits stands there with an arrow. */
export function parseHeldLocks(text: string): readonly HeldLock[] {
  return [...text.matchAll(/^\d+: FLOCK +\w+ +WRITE +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) /gm)].map(([, pid, inode]) => ({ pid: Math.max(0, Number(pid)), inode: String(inode) }));
}

/**
 * Who holds the lock on the file at `path`: null when nobody does, 'unknown' when that cannot be seen. By inode alone:
 * the device's number differs between what a file says and what a lock says on some file systems (overlays).
 */
export async function lockHolder(locks: readonly HeldLock[] | null, path: string): Promise<number | null | 'unknown'> {
  if (locks === null) return 'unknown';
  const file = await stat(path, { bigint: true }).catch(() => null);
  return file === null ? null : locks.find(({ inode }) => inode === String(file.ino))?.pid ?? null;
}
