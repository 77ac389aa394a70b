/**
 * From a reference to a profile and the files that it needs: metadata, config.json, index and headers are read, no byte
 * of a weight, and nothing is created on disk. The checks keep the order of the requirements (R133 to R142), but that
 * names come first, since nothing of a hostile listing is used, and the index before the budget, which it decides.
 */
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { unusableReason } from '../formats/fault.js';
import type { ByteSource } from '../formats/source.js';
import type { HubClient } from '../hub/client.js';
import { HubFileSource } from '../hub/file-source.js';
import { FileGone } from '../hub/refusal.js';
import type { Repository, RepositoryFile } from '../hub/repository.js';
import { rowFor, type Backend, type Policy } from '../policy/policy.js';
import { generateProfile } from '../profile/generate.js';
import type { Profile } from '../profile/profile.js';
import type { Reading } from '../reading/reading.js';
import { isCommit, type HubReference } from '../reference.js';
import { architectureOf, contextTokensOf, dtypeOf, quantizationOf, remoteCodeIn, type Config } from './facts.js';
import { chooseGguf, ggufChoices, inspectGguf, inspectProjector, projectorFor } from './gguf.js';
import { assetsOf, checkListing, isAsset } from './listing.js';
import type { OpenFile } from './open-file.js';
import { checkHeaders, requireSafetensors, weightBytesWithin, weightsLayout } from './safetensors.js';

export interface InspectTools {
  readonly client: HubClient;
  readonly reading: Reading;
  readonly policy: Policy;
  readonly limits: Limits;
}

export interface InspectOptions {
  /** Null: the policy's first choice. */
  readonly backend?: Backend | null;
  /** False: what sees images or hears beside a GGUF is left out. Default: it is brought, as llama.cpp's `-hf` does. */
  readonly projector?: boolean;
}

export interface Inspection {
  readonly reference: HubReference;
  readonly repository: Repository;
  readonly profile: Profile;
  /** Everything to be there before it can run, each with a size and a hash. */
  readonly files: readonly RepositoryFile[];
  /** Of `files`, the one that sees images or hears beside a GGUF. The engine here reads text alone; others are given it. */
  readonly projector: RepositoryFile | null;
}

/** What may name code, besides config.json: every JSON file that would be brought, but for tables of tokens. What is not brought names nothing. */
function mayNameCode(path: string): boolean {
  return path.endsWith('.json') && isAsset(path) && path !== 'config.json' && !/^(tokenizer|vocab[^/]*)\.json$/.test(path);
}

/** Rejects with the code of the first rule that the repository breaks. Of a commit that vanishes meanwhile, one more is asked for. */
export async function inspectReference(tools: InspectTools, reference: HubReference, options: InspectOptions = {}): Promise<Inspection> {
  const repository = await tools.client.resolve(reference.repository, reference.revision);
  const inspect = (found: Repository): Promise<Inspection> => inspectRepository(tools, (file) => new HubFileSource(tools.client, found, file), reference, found, options);
  try {
    return await inspect(repository);
  } catch (error) {
    if (!(error instanceof FileGone)) throw error;
    return inspect(await resolveAgain(tools.client, repository, error));
  }
}

/** A commit whose files are not there is asked for once more, by the name that it was found under; never read under that name. */
export async function resolveAgain(client: HubClient, { name, commit, requestedRevision }: Repository, gone: FileGone): Promise<Repository> {
  const again = await client.resolve(name, requestedRevision);
  if (again.commit !== commit && !(requestedRevision !== null && isCommit(requestedRevision))) return again;
  throw new LeaseholdError('commit_gone', { ...gone.details, again: 'the same commit' }, { cause: gone });
}

/** A repository at its commit, from a hub or from a folder here: the same rules. */
export async function inspectRepository(tools: Omit<InspectTools, 'client'>, open: OpenFile, reference: HubReference, repository: Repository, options: InspectOptions): Promise<Inspection> {
  checkListing(repository, tools.limits);
  const asGguf = reference.selection !== null || (ggufChoices(repository).length > 0 && (options.backend === 'llama_cpp' || !repository.files.some(({ path }) => path.endsWith('.safetensors'))));
  const found = asGguf ? await inspectAsGguf(tools, open, reference, repository, options.projector ?? true) : await inspectAsSafetensors(tools, open, repository, options.backend ?? null);
  requireHashes(repository, found.files);
  return { reference, repository, ...found };
}

type Found = Pick<Inspection, 'profile' | 'files' | 'projector'>;

async function inspectAsSafetensors({ reading, policy, limits }: Omit<InspectTools, 'client'>, open: OpenFile, repository: Repository, backend: Backend | null): Promise<Found> {
  const { name, commit, files } = repository;
  if (!files.some(({ path }) => path === 'config.json')) throw new LeaseholdError('config_json_missing', { repository: name });
  requireSafetensors(repository);
  const layout = await weightsLayout(open, reading, repository);
  const artifactBytes = weightBytesWithin(repository, layout.files, limits.modelWeightsBytesMax);
  requireUnflagged(repository);
  const config = await readJson(repository, 'config.json', open, (source) => reading.configJson(source));
  const architecture = architectureOf(config, name);
  const facts = { advertisedContextTokens: contextTokensOf(config, name), dtype: dtypeOf(config, name), quantization: quantizationOf(config) };
  const assets = assetsOf(repository, limits);
  await refuseRemoteCode(open, reading, repository, config);
  const row = rowFor(policy, { repository: name, architecture, quantization: facts.quantization, backend });
  await checkHeaders(open, reading, repository, layout);
  const profile = generateProfile({ repository: name, commit, architecture, artifactBytes, ...facts, weightFiles: [], projectorFile: '' }, row, policy);
  return { profile, projector: null, files: unique([...layout.files, ...layout.index === null ? [] : [layout.index], ...assets]) };
}

async function inspectAsGguf({ reading, policy, limits }: Omit<InspectTools, 'client'>, open: OpenFile, { selection }: HubReference, repository: Repository, withProjector: boolean): Promise<Found> {
  const choice = chooseGguf(repository, selection);
  const projector = withProjector ? projectorFor(repository, choice) : null;
  const files = projector === null ? choice.files : [...choice.files, projector];
  const artifactBytes = weightBytesWithin(repository, files, limits.modelWeightsBytesMax);
  requireUnflagged(repository);
  const { architecture, contextTokens } = await inspectGguf(open, reading, repository, choice);
  if (projector !== null) await inspectProjector(open, reading, repository, projector);
  const profile = generateProfile({
    repository: repository.name, commit: repository.commit, architecture, artifactBytes, quantization: (choice.quantization ?? 'unknown').toLowerCase(),
    // What llama.cpp computes and keeps its context in.
    dtype: 'float16', advertisedContextTokens: contextTokens, weightFiles: choice.files.map(({ path }) => path), projectorFile: projector?.path ?? '',
  }, policy.gguf, policy);
  return { profile, files, projector };
}

/** R136: a finding refuses, a scan that has not finished does not. */
function requireUnflagged({ name, security: { flagged } }: Repository): void {
  if (flagged.length > 0) throw new LeaseholdError('security_flagged', { repository: name, count: flagged.length, files: flagged.slice(0, 5).join(', ') });
}

async function refuseRemoteCode(open: OpenFile, reading: Reading, repository: Repository, config: Config): Promise<void> {
  const { name, files } = repository;
  const namers = files.filter(({ path }) => mayNameCode(path));
  const read = await Promise.all(namers.map(async ({ path }) => [path, await readJson(repository, path, open, (source) => reading.codeNames(source))] as const));
  for (const [path, found] of [['config.json', remoteCodeIn(config)] as const, ...read]) {
    if (found !== null) throw new LeaseholdError('remote_code_refused', { repository: name, found: `${found} in ${path}` });
  }
}

async function readJson<T>(repository: Repository, path: string, open: OpenFile, read: (source: ByteSource) => Promise<T>): Promise<T> {
  const file = repository.files.find((each) => each.path === path);
  try {
    return await read(open(file ?? { path, sizeBytes: null, sha256: null, gitSha1: null }));
  } catch (error) {
    const reason = unusableReason(error);
    if (reason === null) throw error;
    throw new LeaseholdError('model_config_invalid', { repository: repository.name, file: path, reason }, { cause: error });
  }
}

/** What could not be checked after its download is not downloaded. */
function requireHashes({ name }: Repository, files: readonly RepositoryFile[]): void {
  const unknown = files.find(({ sizeBytes, sha256, gitSha1 }) => sizeBytes === null || (sha256 ?? gitSha1) === null);
  if (unknown !== undefined) throw new LeaseholdError('hub_answer_invalid', { repository: name, reason: `it gives ${unknown.path} no ${unknown.sizeBytes === null ? 'size' : 'hash'}` });
}

function unique(files: readonly RepositoryFile[]): readonly RepositoryFile[] {
  return [...new Map(files.map((file) => [file.path, file])).values()];
}
