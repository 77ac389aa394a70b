/** A hub, a store and the models between them: what the tests of staging begin with. */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { Models, type PullOptions, type Pulled } from '../../../src/models/models.js';
import type { DonorFolders } from '../../../src/models/staging/donors.js';
import { newHolder } from '../../../src/models/staging/identity.js';
import { gguf } from './models.js';
import { large, sha256, startHub, type HubFile, type TestHub } from './server.js';

export const noDonors: DonorFolders = { hub: [], llama: [], ollama: [] };
export const stagerPath = fileURLToPath(new URL('./stager.js', import.meta.url));

export interface Scene {
  readonly hub: TestHub;
  readonly models: Models;
  readonly root: string;
  readonly slept: number[];
  readonly pull: (reference: string, options?: PullOptions) => Promise<Pulled>;
  readonly refused: (reference: string, options?: PullOptions) => Promise<LeaseholdError>;
  /** The folder of the snapshot of a repository's main branch. */
  readonly folder: (name: string) => string;
  /** Paths of the weights and other files that were asked for since the last call; inspection left out. */
  readonly fetched: () => readonly string[];
}

export interface SceneOptions {
  readonly limits?: Partial<Limits>;
  readonly donors?: DonorFolders;
  /** Where the store is made; default: where temporary files are. */
  readonly volume?: string;
}

export function temporary(t: Test, volume = tmpdir()): string {
  const folder = mkdtempSync(join(volume, 'leasehold-stage-'));
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }); });
  return folder;
}

export async function scene(t: Test, { limits = {}, donors = noDonors, volume = tmpdir() }: SceneOptions = {}): Promise<Scene> {
  const hub = await startHub();
  const root = join(temporary(t, volume), 'store');
  const slept: number[] = [];
  const models = new Models({ env: { HF_ENDPOINT: hub.endpoint }, root, donors, limits, pauses: { sleep: async (ms) => { slept.push(ms); }, random: () => 0.5 } });
  t.teardown(async () => {
    await models.close();
    await hub.close();
  });
  const pull = (reference: string, options: PullOptions = {}) => models.pull(reference, options);
  return {
    hub, models, root, slept, pull,
    refused: (reference, options) => pull(reference, options).then(() => { throw new Error('it was not refused'); }, (error: unknown) => {
      if (error instanceof LeaseholdError) return error;
      throw error;
    }),
    folder: (name) => models.store.layout.snapshotFolder({ repository: name, commit: hub.repositories.get(name)?.refs.get('main') ?? '' }),
    fetched: () => hub.requests.splice(0).filter(({ storage, range }) => storage && (range === null || range.endsWith('-'))).map(({ path, range }) => `${path.slice(7, 15)}${range === null ? '' : ` ${range}`}`),
  };
}

/** One GGUF of a kilobyte or so: the smallest thing that is staged. */
export const oneFile = (bytes = 3_000): { readonly files: readonly HubFile[]; readonly content: Buffer; readonly hash: string } => {
  const head = gguf();
  const content = Buffer.concat([head, Buffer.alloc(bytes - head.length, 7)]);
  return { files: [large('x-Q8_0.gguf', content)], content, hash: sha256(content) };
};

/** As if a process that is dead now had written the beginning of a file. */
export function leavePartial(root: string, models: Models, repository: string, hash: string, beginning: Buffer): void {
  const folder = models.store.layout.partials(repository);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${hash}.${newHolder().machine}.0.x.${'0'.repeat(16)}.part`), beginning);
  if (!folder.startsWith(root)) throw new Error('elsewhere');
}

export function partialsOf({ models }: Scene, repository: string): readonly string[] {
  const folder = models.store.layout.partials(repository);
  return existsSync(folder) ? readdirSync(folder) : [];
}
