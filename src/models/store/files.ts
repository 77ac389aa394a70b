/** Writing that survives: what has its name is whole, and lies where it should. */
import { randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import { lstat, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { writeFault } from './volume.js';

/** A file of JSON, replaced as a whole: readers see the old one or the new one, a crash leaves one of them. Rejects with `disk_full` or `store_unusable`. */
export async function writeJsonDurably(path: string, value: unknown): Promise<void> {
  const text = `${JSON.stringify(value, null, 1)}\n`;
  const temporary = join(dirname(path), `.${basename(path)}.${String(process.pid)}.${randomBytes(6).toString('hex')}.tmp`);
  try {
    const file = await open(temporary, 'wx', 0o644);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await renameDurably(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw writeFault(error, path, text.length);
  }
}

/** After it the name is on the disk, too. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to);
  await syncFolder(dirname(to));
}

const { O_NOFOLLOW, O_NONBLOCK } = constants as { readonly O_NOFOLLOW?: number; readonly O_NONBLOCK?: number };

/** A plain file's text; null where there is nothing. Throws `link_refused` for a link, `store_unusable` for a pipe, a folder, or what cannot be read: none is waited for. */
export async function readTextIfThere(path: string): Promise<string | null> {
  try {
    const file = await open(path, constants.O_RDONLY | (O_NOFOLLOW ?? 0) | (O_NONBLOCK ?? 0));
    try {
      if (!(await file.stat()).isFile()) throw new LeaseholdError('store_unusable', { path, reason: 'it stands where the model store has a file' });
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isNothing(error)) return null;
    if (codeOf(error) === 'ELOOP') throw new LeaseholdError('link_refused', { path, reason: 'stands where the model store has a file' }, { cause: error });
    throw unusable(error, path);
  }
}

/** What is called so, links not followed; null where there is nothing. */
async function found(path: string): Promise<Stats | null> {
  try {
    return await lstat(path);
  } catch (error) {
    if (isNothing(error)) return null;
    throw unusable(error, path);
  }
}

/**
 * Whether `folder` is there, `root` or below it. Throws `link_refused` where a link, or a file, stands in its place or on the
 * way to it: what lies behind one is not the store's, and is neither read, written nor removed.
 */
export async function isFolderWithin(root: string, folder: string): Promise<boolean> {
  let path = root;
  for (const step of relative(root, folder).split(sep).filter((each) => each !== '')) {
    path = join(path, step);
    const there = await found(path);
    if (there === null) return false;
    if (!there.isDirectory()) throw inTheWay(path);
  }
  return true;
}

/** Makes `folder` below `root`, step by step. Throws `link_refused` where a link, or a file, stands on the way: nothing is written through one. */
export async function makeFolder(root: string, folder: string): Promise<void> {
  let path = root;
  for (const step of relative(root, folder).split(sep)) {
    path = join(path, step);
    await mkdir(path).catch((error: unknown) => { if (codeOf(error) !== 'EEXIST') throw error; });
    if (!(await lstat(path)).isDirectory()) throw inTheWay(path);
  }
}

function inTheWay(path: string): LeaseholdError {
  return new LeaseholdError('link_refused', { path, reason: 'stands where the model store has a folder' });
}

export interface RealFile {
  /** With all links followed. */
  readonly path: string;
  readonly sizeBytes: number;
}

/**
 * The regular file behind a path, links followed as far as they stay within `root`; null where there is none, or only a
 * link to nothing. Throws `link_refused` for one that leads out.
 */
export async function fileWithin(root: string, path: string): Promise<RealFile | null> {
  try {
    const real = await realpath(path);
    const base = await realpath(root);
    if (real !== base && !real.startsWith(base + sep)) throw new LeaseholdError('link_refused', { path, reason: `leads out of ${root}` });
    const { size } = await stat(real).then((found) => (found.isFile() ? found : { size: null }));
    return size === null ? null : { path: real, sizeBytes: size };
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) return null;
    throw error;
  }
}

/** Size of a regular file that is no link; null where there is none. */
export async function plainFileBytes(path: string): Promise<number | null> {
  const there = await found(path);
  return there?.isFile() === true ? there.size : null;
}

/** Not every system lets a folder be opened to be flushed; those order names themselves. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const folder = await open(path, constants.O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** A folder of the store that cannot be read, as what it is. */
export function unusable(error: unknown, path: string): LeaseholdError {
  return error instanceof LeaseholdError ? error : LeaseholdError.from(error, 'store_unusable', { path });
}

function isNothing(error: unknown): boolean {
  return codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR';
}

export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
