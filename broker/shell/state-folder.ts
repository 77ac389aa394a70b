/**
 * One 0700 folder holds what a broker needs on disk: its socket, its secret,
 * its lock. It lives in the runtime directory, short enough for socket paths.
 */
import { createHash } from 'node:crypto';
import { chmodSync, lstatSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';
import { checkSocketPath } from '../../protocol/node/index.js';
import { isMissing, unreadable, writing } from './private-file.js';
import { openSecret, readSecret } from './secret-file.js';

export interface StateFolder {
  readonly path: string;
  readonly socketPath: string;
  readonly lockPath: string;
  readonly secretPath: string;
  /** 64 hex digits, made once; the HMAC key of every proof. Never logged, never in an environment. */
  readonly secret: string;
  /** Short and stable for this folder; part of simulated cards' ids, so that two folders' cards never clash (D9). */
  readonly id: string;
}

/** Where the state lives when nobody says: $LEASEHOLD_STATE, else the user's runtime directory. */
export function defaultStatePath(): string {
  const named = process.env['LEASEHOLD_STATE'];
  if (named !== undefined && named !== '') return resolve(named);
  return join(perUserFolder(), 'state');
}

/** The per-user folder of card locks, whatever the state folder (D9): two brokers with two states still share the cards. */
export function cardLocksPath(): string {
  return join(perUserFolder(), 'cards');
}

/** As long as the name of a worker's socket gets: `<boot id>-w<n>.sock`. */
const longestSocketName = `${'0'.repeat(12)}-w${'0'.repeat(9)}.sock`;

/**
 * Opens (and on first use makes) the folder, then calls `lock` with the paths in it, then opens (or makes) its secret: who is
 * refused the lock leaves no secret that the one who has it does not know. Throws `config_unreadable` for a folder or a secret
 * that is not ours or not what it should be, `state_unwritable` where none can be made, `socket_path_too_long` for one in which
 * not every socket could have its name: before anything is made (B181).
 */
export function openStateFolder(given: string, lock: (paths: StatePaths) => void = () => undefined): StateFolder {
  // Workers are told paths in it, and outlive whoever's working folder it was relative to.
  const { longestSocketPath, ...paths } = stateNames(resolve(given));
  checkSocketPath(longestSocketPath);
  makePrivateFolder(paths.path);
  lock(paths);
  return { ...paths, secret: openSecret(paths.secretPath) };
}

/** A running broker's folder as it is; null when there is none, or none with a secret. Makes nothing. */
export function readStateFolder(path: string): StateFolder | null {
  const { longestSocketPath, ...paths } = stateNames(path);
  checkSocketPath(longestSocketPath);
  try {
    checkPrivate(path);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
  const secret = readSecret(paths.secretPath);
  return secret === null ? null : { ...paths, secret };
}

export type StatePaths = Omit<StateFolder, 'secret'>;

/** What is called what in a state folder; looks at nothing. */
export function stateNames(path: string): StatePaths & { readonly longestSocketPath: string } {
  return {
    path,
    socketPath: process.platform === 'win32' ? `\\\\.\\pipe\\leasehold-${folderId(path)}` : join(path, 'broker.sock'),
    lockPath: join(path, 'broker.lock'),
    secretPath: join(path, 'secret'),
    longestSocketPath: join(path, longestSocketName),
    id: folderId(path),
  };
}

export function makePrivateFolder(path: string): void {
  // What is there already is judged by checkPrivate, which says what it is.
  if (!isThere(path)) writing(path, () => { makeFolders(resolve(path)); });
  checkPrivate(path);
}

/** Not `recursive`: where nothing can be made although the parent is there (as in /proc), Node then tries for ever. */
function makeFolders(path: string): void {
  if (!isThere(dirname(path))) makeFolders(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
    // Whatever umask we were given: what is in it is ours to read and write.
    chmodSync(path, 0o700);
  } catch (error) {
    // Somebody else was faster, which is as good.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

function isThere(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    throw LeaseholdError.from(error, 'config_unreadable', { path });
  }
}

/** Ours, a real folder, and closed to everybody else; a folder of ours that is too open is closed. ENOENT as the system threw it. */
function checkPrivate(path: string): void {
  try {
    const stat = lstatSync(path);
    if (stat.isSymbolicLink()) throw unreadable(path, 'it is a symbolic link; give the folder itself');
    if (!stat.isDirectory()) throw unreadable(path, 'it is not a folder; give another path or remove it');
    if (process.getuid === undefined) return;
    if (stat.uid !== process.getuid()) throw unreadable(path, `it belongs to uid ${String(stat.uid)}; give a folder of your own`);
    if ((stat.mode & 0o077) !== 0) chmodSync(path, 0o700);
  } catch (error) {
    if (isMissing(error)) throw error;
    throw LeaseholdError.from(error, 'config_unreadable', { path });
  }
}

/** The data plane's socket of one worker. */
export function dataSocketPath(folder: string, generation: string): string {
  return join(folder, `${generation}.sock`);
}

/**
 * Removes what workers that were killed have left; for who holds the lock. A worker has the path no longer than it lives.
 * What somebody laid there instead (a folder), or what cannot be removed now, stays: it is in nobody's way, for no two
 * workers ever have the same path, and the next start sweeps again.
 */
export function removeDataSocket(path: string): void {
  if (process.platform === 'win32') return;
  try {
    if (lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === false) rmSync(path, { force: true });
  } catch (error) {
    if (!(error instanceof Error && 'code' in error)) throw error;
  }
}

/** Removes the sockets of workers of earlier brokers but those that live on (ADR 0017). Throws `config_unreadable`. */
export function removeStaleDataSockets(folder: string, living: ReadonlySet<string>): void {
  for (const name of names(folder)) {
    const generation = /^([0-9a-f]{12}-w\d+)\.sock$/.exec(name)?.[1];
    if (generation !== undefined && !living.has(generation)) removeDataSocket(join(folder, name));
  }
}

function names(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    throw LeaseholdError.from(error, 'config_unreadable', { path: folder });
  }
}

function perUserFolder(): string {
  const uid = process.getuid?.();
  const runtime = process.env['XDG_RUNTIME_DIR'];
  if (runtime !== undefined && runtime !== '') return join(runtime, 'leasehold');
  if (process.platform === 'win32') return join(homedir(), '.leasehold');
  return join(tmpdir(), `leasehold-${String(uid ?? 'user')}`);
}

function folderId(path: string): string {
  return createHash('sha256').update(resolve(path)).digest('hex').slice(0, 8);
}
