/** A file of a repository as bytes, and what a reader finds wrong with one. */
import { LeaseholdError } from '../../../protocol/index.js';
import { unusableReason } from '../formats/fault.js';
import type { ByteSource } from '../formats/source.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';

/** Bytes of a file of a repository, wherever it lies. */
export type OpenFile = (file: RepositoryFile) => ByteSource;

/** What a reader finds wrong with a file, as a fault of this repository. */
export async function asLayoutFault<T>({ name }: Repository, file: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const reason = unusableReason(error);
    if (reason === null) throw error;
    throw new LeaseholdError('weights_layout_invalid', { repository: name, file, reason }, { cause: error });
  }
}
