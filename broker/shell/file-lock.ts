/**
 * A lock on a file that the system itself frees when its holder dies: flock(2)
 * by FFI, so no stale lock is ever taken over by guessing. The file says who
 * holds it, for the one who is refused.
 */
import { closeSync, constants, fstatSync, ftruncateSync, futimesSync, lstatSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { LeaseholdError } from '../../protocol/index.js';
import { openPrivate, readPrivate, writing } from './private-file.js';

export interface FileLock {
  readonly path: string;
  /**
   * The lock is on a file, and whoever comes looks for it by its path: where the file is there no longer it is made and locked
   * again, and true returned. Throws `broker_running` when another holds what is there by now, or as `lockFile` does.
   */
  keep(): boolean;
  release(): void;
}

const LOCK_EX = 2;
const LOCK_NB = 4;

/** More than is ever written; a longer file is somebody else's text. */
const textBytesMax = 16 * 1024;

/** Takes the lock or throws: `broker_running`, naming the holder; `config_unreadable` for anything but a file of ours; `state_unwritable`. `about` is written into it. */
export function lockFile(path: string, about: Readonly<Record<string, string>> = {}): FileLock {
  const text = JSON.stringify({ pid: process.pid, started: new Date().toISOString(), ...about }) + '\n';
  return new HeldLock(path, text, locked(path, text));
}

/** The descriptor of the locked file, which says `text` of its holder. */
function locked(path: string, text: string): number {
  for (;;) {
    const file = openPrivate(path, constants.O_RDWR | constants.O_CREAT);
    if (!tryLock(file)) {
      const holder = readHolder(path);
      closeSync(file);
      throw new LeaseholdError('broker_running', { path, ...holder });
    }
    // Between open and lock the last holder may have removed the path: then we locked a ghost.
    if (!isSameFile(file, path)) {
      closeSync(file);
      continue;
    }
    sign(file, path, text);
    return file;
  }
}

class HeldLock implements FileLock {
  readonly path: string;
  readonly #text: string;
  #file: number;

  constructor(path: string, text: string, file: number) {
    this.path = path;
    this.#text = text;
    this.#file = file;
  }

  keep(): boolean {
    if (isSameFile(this.#file, this.path)) {
      // What sweeps temporary folders goes by age.
      futimesSync(this.#file, new Date(), new Date());
      return false;
    }
    const file = locked(this.path, this.#text);
    closeSync(this.#file);
    this.#file = file;
    return true;
  }

  release(): void {
    closeSync(this.#file);
  }
}

function sign(file: number, path: string, text: string): void {
  try {
    writing(path, () => {
      ftruncateSync(file);
      writeSync(file, text, 0);
    });
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** Who wrote the lock last; for messages alone. */
export function readHolder(path: string): { readonly pid: string; readonly started: string } {
  try {
    const parsed: unknown = JSON.parse(readPrivate(path, textBytesMax) ?? '');
    const { pid, started } = parsed as { pid?: unknown; started?: unknown };
    return { pid: String(pid), started: String(started) };
  } catch {
    // A holder that has not written yet: it is still locked, only nameless.
    return { pid: 'unknown', started: 'just now' };
  }
}

function tryLock(file: number): boolean {
  const flock = loadFlock();
  // Without flock(2) (Windows) the broker's pipe name is the lock: only one can listen on it.
  if (flock === null) return true;
  return flock(file, LOCK_EX | LOCK_NB) === 0;
}

type Flock = (file: number, operation: number) => number;
let loaded: Flock | null | undefined;

function loadFlock(): Flock | null {
  if (loaded !== undefined) return loaded;
  if (process.platform === 'win32') return (loaded = null);
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
  const libc = koffi.load(process.platform === 'darwin' ? 'libSystem.B.dylib' : 'libc.so.6');
  loaded = libc.func('int flock(int fd, int operation)') as Flock;
  return loaded;
}

function isSameFile(file: number, path: string): boolean {
  try {
    const [held, named] = [fstatSync(file), lstatSync(path)];
    return held.ino === named.ino && held.dev === named.dev;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}
