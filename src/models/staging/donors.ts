/**
 * Folders of other programs that may hold the same bytes already: Hugging Face's cache, llama.cpp's, Ollama's. They are
 * read, never written; what is found there is checked like a download.
 */
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import type { RepositoryFile } from '../hub/repository.js';
import { fileWithin, type RealFile } from '../store/files.js';
import type { Snapshot } from '../store/layout.js';

export interface DonorFolders {
  /** Hugging Face's: `models--owner--name/{blobs,snapshots}`. */
  readonly hub: readonly string[];
  /** llama.cpp's: `owner_name_file.gguf`. */
  readonly llama: readonly string[];
  /** Ollama's: `blobs/sha256-…`. */
  readonly ollama: readonly string[];
}

/** Where these programs keep what they download, by their own variables. */
export function donorFolders(env: NodeJS.ProcessEnv, home: string = homedir()): DonorFolders {
  const said = (name: string): string | null => (env[name]?.trim() ?? '') || null;
  const cache = said('XDG_CACHE_HOME') ?? join(home, '.cache');
  return {
    hub: [resolve(said('HF_HUB_CACHE') ?? join(said('HF_HOME') ?? join(cache, 'huggingface'), 'hub'))],
    llama: [resolve(said('LLAMA_CACHE') ?? join(cache, 'llama.cpp'))],
    ollama: [resolve(said('OLLAMA_MODELS') ?? join(home, '.ollama', 'models'))],
  };
}

export interface Donor extends RealFile {
  /** The program whose folder it lies in. */
  readonly program: string;
}

/** Files that could be this one: of its size, and by their place of its content. Links that leave a cache are told to `onRefused` and not followed. */
export async function donorsOf(folders: DonorFolders, { repository, commit }: Snapshot, file: RepositoryFile, onRefused: (error: unknown) => void): Promise<readonly Donor[]> {
  const hash = file.sha256 ?? file.gitSha1 ?? '';
  const hubName = `models--${repository.replace('/', '--')}`;
  const places: (readonly [program: string, root: string, path: string])[] = [
    ...folders.hub.flatMap((root) => [['Hugging Face', root, join(root, hubName, 'blobs', hash)], ['Hugging Face', root, join(root, hubName, 'snapshots', commit, file.path)]] as const),
    ...folders.llama.map((root) => ['llama.cpp', root, join(root, `${repository}/${file.path}`.replaceAll('/', '_'))] as const),
    ...file.sha256 === null ? [] : folders.ollama.map((root) => ['Ollama', root, join(root, 'blobs', `sha256-${file.sha256 ?? ''}`)] as const),
  ];
  const found: Donor[] = [];
  for (const [program, root, path] of places) {
    const real = await fileWithin(root, path).catch((error: unknown) => {
      onRefused(error);
      return null;
    });
    if (real !== null && real.sizeBytes === file.sizeBytes && !found.some((donor) => donor.path === real.path)) found.push({ ...real, program });
  }
  return found;
}
