/** The secret of a state folder: one private file of 64 hex digits, whole or not there. */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, fsyncSync, linkSync, readSync, renameSync, rmSync, writeSync } from 'node:fs';
import { createSecret } from '../../protocol/node/index.js';
import { openPrivate, readPrivate, unreadable, withPrivate, writing } from './private-file.js';

/** 64 digits and the end of a line, whichever. */
const secretBytesMax = 66;

/** Null when there is none. Throws `config_unreadable` for anything that is no secret. */
export function readSecret(path: string): string | null {
  const text = readPrivate(path, secretBytesMax);
  if (text === null) return null;
  const secret = text.trim();
  if (/^[0-9a-f]{64}$/.test(secret)) return secret;
  throw unreadable(path, 'it does not hold 64 hex digits; remove it while no broker runs, and a new one is made');
}

/**
 * The secret that is there, else a new one. It is written whole to a file of its own and then linked into place:
 * of two first starts at once exactly one link succeeds and both read the same.
 */
export function openSecret(path: string): string {
  for (let attempt = 0; attempt < 3; attempt++) {
    const secret = readSecret(path);
    if (secret !== null) return secret;
    writing(path, () => { placeSecret(path, createSecret(), linkUnlessThere); });
  }
  throw unreadable(path, 'it vanishes as soon as it is written');
}

/**
 * For who holds the lock: its secret is what the file says, and where it does not it is written there again. True when it had
 * to be. Throws `config_unreadable` for anything but a file of ours, which is left as it is, and `state_unwritable`.
 */
export function keepSecret(path: string, secret: string): boolean {
  const found = firstBytes(path, secretBytesMax + 1);
  if (found?.trimEnd() === secret) return false;
  writing(path, () => { placeSecret(path, secret, found === null ? linkUnlessThere : renameSync); });
  return true;
}

/** Null when there is none. */
function firstBytes(path: string, bytes: number): string | null {
  return withPrivate(path, (file) => {
    const text = Buffer.alloc(bytes);
    return text.toString('latin1', 0, readSync(file, text, 0, bytes, 0));
  });
}

function placeSecret(path: string, secret: string, place: (from: string, to: string) => void): void {
  const fresh = `${path}.${randomBytes(8).toString('hex')}`;
  const file = openPrivate(fresh, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL);
  try {
    fill(file, `${secret}\n`);
    place(fresh, path);
  } finally {
    rmSync(fresh, { force: true });
  }
}

/** Whoever was faster has made it. */
function linkUnlessThere(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function fill(file: number, text: string): void {
  try {
    if (writeSync(file, text) !== text.length) throw new Error('the disk took only a part of it');
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
