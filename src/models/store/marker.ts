/** The file that says what of a snapshot is there, whole and checked. */
import type { RepositoryFile } from '../hub/repository.js';
import { fileNameFault } from '../formats/file-name.js';
import { readTextIfThere, writeJsonDurably } from './files.js';
import type { Snapshot } from './layout.js';

export interface StagedFile {
  readonly path: string;
  readonly size_bytes: number;
  /** One of the two hashes is there. */
  readonly sha256: string | null;
  readonly git_sha1: string | null;
}

export interface Marker {
  readonly marker_version: 2;
  readonly repository: string;
  readonly revision: string;
  readonly completed_at_unix: number;
  readonly files: readonly StagedFile[];
  /** By profile, the files that it needs. */
  readonly profiles: Readonly<Record<string, readonly string[]>>;
}

export function stagedFile({ path, sizeBytes, sha256, gitSha1 }: RepositoryFile): StagedFile {
  return { path, size_bytes: sizeBytes ?? 0, sha256, git_sha1: gitSha1 };
}

/** Null where there is none, or one that is of something else or not readable: then nothing is known to be there. */
export async function readMarker(path: string, { repository, commit }: Snapshot): Promise<Marker | null> {
  const text = await readTextIfThere(path);
  const json = text === null ? null : parse(text);
  if (json === null || json.repository !== repository || json.revision !== commit) return null;
  return Array.isArray(json.files) && json.files.every(isStagedFile) && typeof json.profiles === 'object' ? json : null;
}

export async function writeMarker(path: string, marker: Marker): Promise<void> {
  await writeJsonDurably(path, marker);
}

function parse(text: string): Marker | null {
  try {
    const json = JSON.parse(text) as Omit<Marker, 'marker_version'> & { readonly marker_version: number };
    return json.marker_version === 2 ? { ...json, marker_version: 2 } : null;
  } catch {
    // Torn by something other than us: as good as none.
    return null;
  }
}

/** One whose path leads elsewhere is of no marker of ours. */
function isStagedFile(value: unknown): value is StagedFile {
  const { path, size_bytes: bytes } = value as Partial<StagedFile>;
  return typeof path === 'string' && fileNameFault(path) === null && Number.isSafeInteger(bytes);
}
