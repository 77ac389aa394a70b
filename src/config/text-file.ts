/** A file that a person wrote: regular, of bounded size, UTF-8; anything else is refused by name. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { LeaseholdError } from '../../protocol/index.js';
import { configBytesMax } from './document.js';

/** The text of a regular file of bounded size; null when it is absent and may be. */
export async function readTextFile(path: string, mayBeAbsent: boolean): Promise<string | null> {
  try {
    // Not blocking: opening a pipe that nobody writes would wait for ever.
    const file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK as number | undefined ?? 0));
    try {
      const stat = await file.stat();
      if (!stat.isFile()) throw new LeaseholdError('config_unreadable', { path, reason: 'it is not a regular file' });
      if (stat.size > configBytesMax) throw new LeaseholdError('config_unreadable', { path, reason: `it has ${stat.size} bytes; at most ${configBytesMax} are read` });
      return decode(path, await file.readFile());
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof LeaseholdError) throw error;
    const { code, message } = error as NodeJS.ErrnoException;
    if (mayBeAbsent && (code === 'ENOENT' || code === 'ENOTDIR')) return null;
    const reason = code === 'ENOENT' ? 'there is no such file' : code === 'EACCES' ? 'its permissions forbid it' : message;
    throw new LeaseholdError('config_unreadable', { path, reason }, { cause: error });
  }
}

function decode(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new LeaseholdError('config_unreadable', { path, reason: 'it is not UTF-8 text' }, { cause: error });
  }
}
