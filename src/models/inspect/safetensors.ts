/** Which safetensors files a repository's model is made of, and whether they hold what they are said to. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { SafetensorsIndex } from '../formats/safetensors-index.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import type { Reading } from '../reading/reading.js';
import { asLayoutFault, type OpenFile } from './open-file.js';
import { namedDifferences } from './tensor-differences.js';

const indexName = /^[^/]+\.safetensors\.index\.json$/;
const rootWeights = /^[^/]+\.safetensors$/;

export interface WeightsLayout {
  readonly files: readonly RepositoryFile[];
  readonly index: RepositoryFile | null;
  /** What the index says of each file; null without one. */
  readonly stated: SafetensorsIndex | null;
}

/** R134: refuses what has no safetensors at all. */
export function requireSafetensors({ name, files }: Repository): void {
  const bytes = files.filter(({ path }) => path.endsWith('.safetensors')).reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0);
  if (bytes > 0) return;
  const others = files.filter(({ path }) => /\.(bin|pt|pth|ckpt|pkl|h5|msgpack|dat|gguf|safetensors)$/i.test(path)).map(({ path }) => path);
  throw new LeaseholdError('weights_missing', { repository: name, found: others.length === 0 ? 'it has no weights at all' : `it has ${others.slice(0, 5).join(', ')}` });
}

/** R141: the files that its index names; without one, the only safetensors file in its root. */
export async function weightsLayout(open: OpenFile, reading: Reading, repository: Repository): Promise<WeightsLayout> {
  const { name, files } = repository;
  const indices = files.filter(({ path }) => indexName.test(path));
  const index = indices.find(({ path }) => path === 'model.safetensors.index.json') ?? indices[0];
  const fault = (file: string, reason: string): LeaseholdError => new LeaseholdError('weights_layout_invalid', { repository: name, file, reason });
  if (index === undefined || (indices.length > 1 && index.path !== 'model.safetensors.index.json')) {
    if (indices.length > 1) throw fault(indices.map(({ path }) => path).join(', '), 'it has several indices, and none is called model.safetensors.index.json');
    const root = files.filter(({ path }) => rootWeights.test(path));
    const chosen = root.find(({ path }) => path === 'model.safetensors') ?? (root.length === 1 ? root[0] : undefined);
    if (chosen === undefined) throw fault('*.safetensors', root.length === 0 ? 'none lies in its root' : `${String(root.length)} lie in its root, and no index says which belong together`);
    return { files: [chosen], index: null, stated: null };
  }
  const stated = await asLayoutFault(repository, index.path, () => reading.safetensorsIndex(open(index)));
  const byName = new Map(files.map((file) => [file.path, file]));
  const shards = stated.shards.map(({ name: shard }) => byName.get(shard) ?? (() => { throw fault(index.path, `it names ${JSON.stringify(shard)}, which the repository does not have`); })());
  return { files: shards, index, stated };
}

/** R135. Unknown sizes cannot be held against a budget: nothing of them is fetched. */
export function weightBytesWithin({ name }: Repository, files: readonly RepositoryFile[], limitBytes: number): number {
  const unknown = files.find(({ sizeBytes }) => sizeBytes === null);
  if (unknown !== undefined) throw new LeaseholdError('hub_answer_invalid', { repository: name, reason: `it does not say how large ${unknown.path} is` });
  const bytes = files.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0);
  if (bytes > limitBytes) throw new LeaseholdError('weights_over_budget', { repository: name, neededGib: gib(bytes), limitGib: gib(limitBytes) });
  return bytes;
}

/** B157, B170: reads each file's header; it must be safetensors, and hold exactly the tensors that the index puts there. */
export async function checkHeaders(open: OpenFile, reading: Reading, repository: Repository, { files, index, stated }: WeightsLayout): Promise<void> {
  const headers = await Promise.all(files.map(async (file) => ({ file, header: await asLayoutFault(repository, file.path, () => reading.safetensorsHeader(open(file))) })));
  if (stated === null || index === null) return;
  const promised = new Map(stated.shards.map((shard) => [shard.name, shard]));
  const differing = headers.filter(({ file, header }) => promised.get(file.path)?.tensors !== header.tensors || promised.get(file.path)?.namesMark !== header.namesMark);
  if (differing.length === 0) return;
  const reason = await namedDifferences({ open, reading, repository, index, stated }, differing);
  throw new LeaseholdError('weights_layout_invalid', { repository: repository.name, file: index.path, reason });
}

function gib(bytes: number): string {
  return (bytes / 1024 ** 3).toFixed(1);
}
