/** A file that a command will write at its end: looked at before the work, so that none is done in vain. */
import { open, rm, stat, writeFile } from 'node:fs/promises';
import { LeaseholdError } from '../../../protocol/index.js';
import { writeReason } from '../../orchestrator/index.js';

/** Rejects with `input_invalid`, naming the option, where the file could not be written now. What lies there stays as it is. */
export async function requireWritable(path: string, option: string): Promise<void> {
  const wasThere = await stat(path).then(() => true, () => false);
  await told(path, option, async () => { await (await open(path, 'a')).close(); });
  if (!wasThere) await rm(path, { force: true });
}

/** Rejects as `requireWritable` does: a disk may have filled since. */
export async function writeOutput(path: string, option: string, text: string): Promise<void> {
  await told(path, option, () => writeFile(path, text));
}

async function told(path: string, option: string, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (error) {
    throw new LeaseholdError('input_invalid', { field: option, reason: `${path} cannot be written: ${writeReason(error)}` }, { cause: error, help: 'Name a file in a folder that is there and that this user may write to.' });
  }
}
