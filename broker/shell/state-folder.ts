/**
 * One 0700 folder holds what a broker needs on disk: its socket, its secret,
 * its lock. It lives in the runtime directory, short enough for socket paths.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, closeSync, fchmodSync, fsyncSync, linkSync, lstatSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, unlinkSync, writeSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';
import { checkSocketPath, createSecret } from '../../protocol/node/index.js';

export interface StateFolder {
  readonly path: string;
  readonly socketPath: string;
  readonly lockPath: string;
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
 * Opens (and on first use makes) the folder and its secret. Throws `config_unreadable` for a folder that is not ours,
 * `socket_path_too_long` for one in which not every socket could have its name: before anything is made (B181).
 */
export function openStateFolder(path: string): StateFolder {
  checkSocketPath(join(path, longestSocketName));
  makePrivateFolder(path);
  return {
    path,
    socketPath: process.platform === 'win32' ? `\\\\.\\pipe\\leasehold-${folderId(path)}` : join(path, 'broker.sock'),
    lockPath: join(path, 'broker.lock'),
    secret: openSecret(join(path, 'secret')),
    id: folderId(path),
  };
}

/** Reads the secret of a running broker's folder; never makes one. */
export function readStateFolder(path: string): StateFolder | null {
  try {
    checkPrivate(path);
    readFileSync(join(path, 'secret'));
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
  return openStateFolder(path);
}

export function makePrivateFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw LeaseholdError.from(error, 'config_unreadable', { path });
  }
  checkPrivate(path);
}

/** Ours, a real folder, and closed to everybody else; a folder of ours that is too open is closed. */
function checkPrivate(path: string): void {
  const stat = lstatSync(path);
  if (!stat.isDirectory()) throw new LeaseholdError('config_unreadable', { path, reason: 'it is not a folder' });
  if (process.getuid === undefined) return;
  if (stat.uid !== process.getuid()) {
    throw new LeaseholdError('config_unreadable', { path, reason: `it belongs to uid ${String(stat.uid)}` });
  }
  if ((stat.mode & 0o077) !== 0) chmodSync(path, 0o700);
}

/**
 * The secret is written whole to a file of its own and then linked into place:
 * of two first starts at once exactly one link succeeds and both read the same.
 */
function openSecret(path: string): string {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      const secret = readFileSync(path, 'utf8').trim();
      if (/^[0-9a-f]{64}$/.test(secret)) return secret;
      throw new LeaseholdError('config_unreadable', { path, reason: 'it does not hold 64 hex digits' });
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    writeSecret(path);
  }
  throw new LeaseholdError('config_unreadable', { path, reason: 'it vanishes as soon as it is written' });
}

function writeSecret(path: string): void {
  const fresh = `${path}.${randomBytes(8).toString('hex')}`;
  const file = openSync(fresh, 'wx', 0o600);
  try {
    fchmodSync(file, 0o600);
    writeSync(file, `${createSecret()}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  try {
    linkSync(fresh, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(fresh);
  }
}

/** The data plane's socket of one worker. */
export function dataSocketPath(folder: string, generation: string): string {
  return join(folder, `${generation}.sock`);
}

/** Removes what workers that were killed have left; for who holds the lock. A worker has the path no longer than it lives. */
export function removeDataSocket(path: string): void {
  if (process.platform !== 'win32') rmSync(path, { force: true });
}

/** Removes the sockets of workers of earlier brokers, none of which outlives its own (ADR 0013). */
export function removeStaleDataSockets(folder: string): void {
  for (const name of readdirSync(folder)) if (/^[0-9a-f]{12}-w\d+\.sock$/.test(name)) removeDataSocket(join(folder, name));
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

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
