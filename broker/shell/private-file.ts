/**
 * Files of the state folder are opened so that nothing which somebody laid in
 * their place is followed, waited for or trusted: no symbolic link, no FIFO, no
 * device, nothing of another user; and they are closed to everybody else.
 */
import { closeSync, constants, fchmodSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { LeaseholdError } from '../../protocol/index.js';

const { O_NOFOLLOW, O_NONBLOCK } = constants as { readonly O_NOFOLLOW?: number; readonly O_NONBLOCK?: number };

/** Windows has neither, and no FIFOs either. */
const cautious = (O_NOFOLLOW ?? 0) | (O_NONBLOCK ?? 0);

const linkReason = 'it is a symbolic link, which is not followed; remove it';
const reasons: Readonly<Record<string, string>> = {
  ELOOP: linkReason, EMLINK: linkReason,
  EISDIR: 'it is a folder, not a file; remove it',
  ENXIO: 'it is a socket or a FIFO, not a file; remove it',
  ENOTDIR: 'a part of its path is no folder; correct the path',
  EACCES: 'this user may not open it; correct its owner or its mode',
  EPERM: 'this user may not open it; correct its owner or its mode',
};

/** The descriptor of a file of ours of mode 0600. Throws `config_unreadable`, or `state_unwritable` where it was to be made; ENOENT as the system threw it. */
export function openPrivate(path: string, flags: number): number {
  const file = opened(path, flags);
  try {
    const stat = fstatSync(file);
    if (!stat.isFile()) throw unreadable(path, `it is ${stat.isDirectory() ? 'a folder' : stat.isFIFO() ? 'a FIFO' : 'a device'}, not a file; remove it`);
    const ours = process.getuid?.();
    if (ours !== undefined && stat.uid !== ours) throw unreadable(path, `it belongs to uid ${String(stat.uid)}, not to uid ${String(ours)}; remove it`);
    if (ours !== undefined && (stat.mode & 0o777) !== 0o600) fchmodSync(file, 0o600);
    return file;
  } catch (error) {
    closeSync(file);
    throw LeaseholdError.from(error, 'config_unreadable', { path });
  }
}

/** The whole text of a private file of at most `bytesMax`; null when there is none. */
export function readPrivate(path: string, bytesMax: number): string | null {
  return withPrivate(path, (file) => readText(file, path, bytesMax));
}

/** What `read` makes of a private file, which is closed after it; null when there is none. */
export function withPrivate<T>(path: string, read: (file: number) => T): T | null {
  let file: number;
  try {
    file = openPrivate(path, constants.O_RDONLY);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
  try {
    return read(file);
  } finally {
    closeSync(file);
  }
}

function readText(file: number, path: string, bytesMax: number): string {
  try {
    const text = Buffer.alloc(bytesMax + 1);
    const length = readSync(file, text, 0, text.length, 0);
    if (length > bytesMax) throw unreadable(path, `it is longer than ${String(bytesMax)} bytes; remove it`);
    return text.toString('utf8', 0, length);
  } catch (error) {
    throw LeaseholdError.from(error, 'config_unreadable', { path });
  }
}

/** Runs what writes at `path`; whatever the system refuses is `state_unwritable`. */
export function writing<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (error) {
    throw LeaseholdError.from(error, 'state_unwritable', { path, reason: writeReason(error) });
  }
}

export function unreadable(path: string, reason: string): LeaseholdError {
  return new LeaseholdError('config_unreadable', { path, reason });
}

export function isMissing(error: unknown): boolean {
  return errorCode(error) === 'ENOENT';
}

function opened(path: string, flags: number): number {
  const makes = (flags & constants.O_CREAT) !== 0;
  try {
    return openSync(path, flags | cautious, 0o600);
  } catch (error) {
    if (!makes && isMissing(error)) throw error;
    const reason = reasons[errorCode(error)];
    if (reason !== undefined && !(makes && /^(EACCES|EPERM|ENOTDIR)$/.test(errorCode(error)))) throw new LeaseholdError('config_unreadable', { path, reason }, { cause: error });
    if (!makes) throw LeaseholdError.from(error, 'config_unreadable', { path });
    throw LeaseholdError.from(error, 'state_unwritable', { path, reason: writeReason(error) });
  }
}

/** Why something could not be written, for people. */
export function writeReason(error: unknown): string {
  const said: Readonly<Record<string, string>> = {
    ENOSPC: 'the disk is full', EDQUOT: 'the quota is used up', EROFS: 'the file system is read-only', EFBIG: 'files may not grow (ulimit -f)',
    EACCES: 'this user may not write there', EPERM: 'this user may not write there', ENOENT: 'its folder is not there', ENOTDIR: 'a part of its path is no folder', EISDIR: 'it is a folder', EMFILE: 'this process has no file descriptor left', ENFILE: 'the system has no file descriptor left',
  };
  const code = errorCode(error);
  const text = said[code];
  return text === undefined ? (error instanceof Error ? error.message : String(error)) : `${text} (${code})`;
}

/**
 * To open a FIFO waits for whoever reads it, with all that the process has: one that nobody reads fails here instead. Until
 * the function that is returned is called its reader sees no end of it.
 */
export function requireReader(path: string): () => void {
  if (statSync(path, { throwIfNoEntry: false })?.isFIFO() !== true) return () => undefined;
  try {
    const pipe = openSync(path, constants.O_WRONLY | (O_NONBLOCK ?? 0));
    return () => { closeSync(pipe); };
  } catch (error) {
    throw errorCode(error) === 'ENXIO' ? new Error('it is a FIFO that nobody reads', { cause: error }) : error;
  }
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
