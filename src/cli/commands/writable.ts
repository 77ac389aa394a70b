/** A file that a command will write at its end: looked at before the work, so that none is done in vain. */
import { open, rm, stat, writeFile } from 'node:fs/promises';
import { LeaseholdError } from '../../../protocol/index.js';
import { requireReader, writeReason } from '../../orchestrator/index.js';

/** Rejects with `input_invalid`, naming the option, where the file could not be written now. What lies there stays as it is. Call what it resolves to when it has been written. */
export async function requireWritable(path: string, option: string): Promise<() => void> {
  const wasThere = await stat(path).then(() => true, () => false);
  return told(path, option, async () => {
    const release = requireReader(path);
    await (await open(path, 'a')).close();
    if (!wasThere) await rm(path, { force: true });
    return release;
  });
}

/** Rejects as `requireWritable` does: a disk may have filled since. */
export async function writeOutput(path: string, option: string, text: string): Promise<void> {
  await told(path, option, () => writeFile(path, text));
}

async function told<T>(path: string, option: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    throw new LeaseholdError('input_invalid', { field: option, reason: `${path} cannot be written: ${writeReason(error)}` }, { cause: error, help: 'Name a file in a folder that is there and that this user may write to.' });
  }
}
