/** Small files of others, read with care. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

const textBytesMax = 16 * 1024;

/** The text of a small file that is one, read without following a link or waiting for a FIFO; null when there is none to read. */
export async function readSmall(path: string): Promise<string | null> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants as { readonly O_RDONLY: number; readonly O_NOFOLLOW?: number; readonly O_NONBLOCK?: number };
  const file = await open(path, O_RDONLY | (O_NOFOLLOW ?? 0) | (O_NONBLOCK ?? 0)).catch(() => null);
  if (file === null) return null;
  try {
    if (!(await file.stat()).isFile()) return null;
    const { buffer, bytesRead } = await file.read(Buffer.alloc(textBytesMax), 0, textBytesMax, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } catch {
    // Gone or refused between the opening and the reading: there is nothing to read.
    return null;
  } finally {
    await file.close();
  }
}
