/**
 * Files that were found to be wrong: out of every engine's way, to be looked at. Of a repository one is kept, the last; it
 * goes when its room is needed, or with the model (B148).
 */
import { rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isFolderWithin, makeFolder, plainFileBytes } from './files.js';
import type { Layout, Snapshot } from './layout.js';
import { isFull } from './volume.js';

/** Takes what stands in the place of a file away. Resolves to where it is kept; null where nothing was, or nothing worth keeping: a link, a pipe, a folder. */
export async function setAside(layout: Layout, { repository, commit }: Snapshot, path: string): Promise<string | null> {
  if (await plainFileBytes(path) === null) {
    // A link goes alone, and nothing behind it.
    await rm(path, { recursive: true, force: true });
    return null;
  }
  await emptyQuarantine(layout, repository);
  const folder = layout.quarantine(repository);
  // The beginning of a name is the most that any file system takes beside the rest.
  const kept = join(folder, `${commit.slice(0, 8)}-${basename(path).slice(0, 60)}`);
  try {
    await makeFolder(layout.root, folder);
    await rename(path, kept);
    return kept;
  } catch (error) {
    if (!isFull(error)) throw error;
    await rm(path);
    return null;
  }
}

/** Rejects with `link_refused` where a link stands on the way. */
export async function emptyQuarantine(layout: Layout, repository: string): Promise<void> {
  if (await isFolderWithin(layout.root, layout.quarantine(repository))) await rm(layout.quarantine(repository), { recursive: true, force: true });
}
