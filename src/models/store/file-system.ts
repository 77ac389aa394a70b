/** What staging rests on is tried before anything is staged: a name is made once, and a rename replaces what has the name (R179). */
import { randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { codeOf } from './files.js';

/** Makes `root`. Rejects with `store_unusable` where it cannot be written, or its file system does not keep these promises. */
export async function requireFileSystem(root: string): Promise<void> {
  const fault = (reason: string, cause?: unknown): LeaseholdError => new LeaseholdError('store_unusable', { path: root, reason }, cause === undefined ? {} : { cause });
  const text = `${String(process.pid)}-${randomBytes(6).toString('hex')}`;
  const [probe, target] = [join(root, `.probe-${text}`), join(root, `.probe-${text}.renamed`)];
  try {
    await mkdir(root, { recursive: true });
    await writeFile(probe, text, { flag: 'wx' });
    if (await isMade(probe)) throw fault('its file system makes a file that exists already');
    await writeFile(target, 'before', { flag: 'wx' });
    await rename(probe, target);
    if (await readFile(target, 'utf8') !== text) throw fault('its file system does not replace a file by renaming another');
    if (!await isMade(probe)) throw fault('its file system leaves a file under the name that it had before');
  } catch (error) {
    throw error instanceof LeaseholdError ? error : fault((error as Error).message, error);
  } finally {
    // What cannot be removed is in nobody's way, and the fault above says more.
    for (const path of [probe, target]) await rm(path, { force: true }).catch(() => undefined);
  }
}

/** Whether a file is made under that name, which it must not be where there is one. */
async function isMade(path: string): Promise<boolean> {
  try {
    await (await open(path, 'wx')).close();
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}
