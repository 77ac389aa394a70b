/** Where the bytes of a model file come from: a local file, memory, or ranges of something far away. */
import { open, stat } from 'node:fs/promises';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { unusableFile } from './fault.js';

/** Bytes that can be read anywhere. `sizeBytes` is fixed when it is made: what is announced inside is compared with it. */
export interface ByteSource {
  /** What messages call it: a path, or repository, revision and file. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Resolves to exactly `length` bytes from `offset`, which the caller keeps within `sizeBytes`; rejects otherwise. */
  read(offset: number, length: number): Promise<Uint8Array>;
  close?(): Promise<void>;
}

/** A regular file, opened. Rejects with `model_invalid` when there is none that can be read. */
export async function fileSource(path: string): Promise<ByteSource> {
  // Looked at before it is opened: opening a pipe would wait for somebody to write.
  const kind = await stat(path).catch((error: unknown) => unopened(path, error));
  if (!kind.isFile()) throw unusableFile(path, kind.isDirectory() ? 'it is a directory' : 'it is not a regular file');
  const file = await open(path, 'r').catch((error: unknown) => unopened(path, error));
  const { size: sizeBytes } = await file.stat().catch(async (error: unknown) => {
    await file.close();
    return unopened(path, error);
  });
  return {
    name: path,
    sizeBytes,
    async read(offset, length) {
      const bytes = Buffer.allocUnsafe(length);
      for (let filledBytes = 0; filledBytes < length;) {
        const { bytesRead } = await file.read(bytes, filledBytes, length - filledBytes, offset + filledBytes);
        if (bytesRead === 0) throw unusableFile(path, 'it shrank while it was read');
        filledBytes += bytesRead;
      }
      return bytes;
    },
    close: () => file.close(),
  };
}

/** Bytes in memory. */
export function bytesSource(name: string, bytes: Uint8Array): ByteSource {
  return {
    name,
    sizeBytes: bytes.length,
    async read(offset, length) {
      // Others have their turn, as they would while a file is read.
      await nextTurn();
      if (offset + length > bytes.length) throw unusableFile(name, 'it shrank while it was read');
      return bytes.subarray(offset, offset + length);
    },
  };
}

/** Reads a file at `path` by `reader`, and closes it however that ends. */
export async function withFile<T>(path: string, reader: (source: ByteSource) => Promise<T>): Promise<T> {
  const source = await fileSource(path);
  try {
    return await reader(source);
  } finally {
    await source.close?.();
  }
}

function unopened(path: string, error: unknown): never {
  throw unusableFile(path, openReason(error), error);
}

function openReason(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code === 'ENOENT') return 'there is no such file';
  if (code === 'EACCES' || code === 'EPERM') return 'it may not be read by this user';
  return error instanceof Error ? error.message : String(error);
}
