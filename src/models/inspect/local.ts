/** A folder or a GGUF file on this machine, held to the rules of a repository. Its commit is the digest of what is in it. */
import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { fileSource, type ByteSource } from '../formats/source.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import type { StagingThreads } from '../staging/threads.js';
import { codeOf, fileWithin } from '../store/files.js';
import { inspectRepository, type Inspection, type InspectOptions, type InspectTools } from './inspect.js';

export interface LocalTools extends Omit<InspectTools, 'client'> {
  readonly threads: StagingThreads;
}

/** Rejects with the code of the rule that is broken, `model_invalid` where nothing is there, `link_refused` for a link that leaves the folder. */
export async function inspectLocal(tools: LocalTools, reference: { readonly kind: 'folder' | 'gguf'; readonly path: string }, signal: AbortSignal, options: InspectOptions = {}): Promise<Inspection> {
  const { kind, path } = reference;
  const folder = kind === 'folder' ? path : dirname(path);
  const selection = kind === 'gguf' ? basename(path) : null;
  const names = (await entriesOf(folder)).filter((name) => selection === null || isPartOf(name, selection));
  const files: RepositoryFile[] = [];
  for (const name of names) files.push(...await fileAt(tools.threads, folder, name, signal));
  const repository: Repository = {
    name: `local/${basename(path).replace(/^[^A-Za-z0-9]+/, '').replace(/[^A-Za-z0-9._-]+/g, '-') || 'model'}`,
    requestedRevision: null, commit: digestOf(files), files, gated: false, security: { complete: true, flagged: [] },
  };
  const open = (file: RepositoryFile): ByteSource => localSource(folder, file);
  return inspectRepository(tools, open, { kind: 'hub', repository: repository.name, revision: null, selection }, repository, options);
}

async function entriesOf(folder: string): Promise<readonly string[]> {
  try {
    return (await readdir(folder)).filter((name) => !name.startsWith('.')).sort();
  } catch (error) {
    throw new LeaseholdError('model_invalid', { source: folder, reason: codeOf(error) === 'ENOENT' ? 'there is no such folder' : (error as Error).message }, { cause: error });
  }
}

/** A split GGUF comes with all its parts. */
function isPartOf(name: string, wanted: string): boolean {
  const stem = (text: string): string => text.replace(/-\d{5}-of-\d{5}\.gguf$/i, '');
  return name === wanted || (/-\d{5}-of-\d{5}\.gguf$/i.test(name) && stem(name) === stem(wanted));
}

/** Nothing for what is no regular file. */
async function fileAt(threads: StagingThreads, folder: string, name: string, signal: AbortSignal): Promise<readonly RepositoryFile[]> {
  const real = await fileWithin(folder, join(folder, name));
  if (real === null) return [];
  const outcome = await threads.run({ kind: 'hash', path: real.path, sizeBytes: real.sizeBytes, algorithm: 'sha256' }, signal);
  if (outcome.kind === 'failed') throw new LeaseholdError(outcome.code, outcome.details);
  return outcome.kind === 'done' ? [{ path: name, sizeBytes: real.sizeBytes, sha256: outcome.hex, gitSha1: null }] : [];
}

/** 40 hex digits: a change of any file is another commit. */
function digestOf(files: readonly RepositoryFile[]): string {
  return createHash('sha256').update(JSON.stringify(files.map(({ path, sizeBytes, sha256 }) => [path, sizeBytes, sha256]))).digest('hex').slice(0, 40);
}

/** Opened for each read: nobody closes what an inspection opens. */
function localSource(folder: string, { path, sizeBytes }: RepositoryFile): ByteSource {
  return {
    name: join(folder, path),
    sizeBytes: sizeBytes ?? 0,
    async read(offset, length) {
      const source = await fileSource(join(folder, path));
      try {
        return await source.read(offset, length);
      } finally {
        await source.close?.();
      }
    },
  };
}
