/** Models as one object: resolve, stage, find, list, check, remove. */
import { LeaseholdError, defaultLimits, type Limits } from '../../protocol/index.js';
import { HubClient } from './hub/client.js';
import { FileGone } from './hub/refusal.js';
import type { RepositoryFile } from './hub/repository.js';
import { realPauses, type Pauses } from './hub/patience.js';
import { hubSettings } from './hub/settings.js';
import { inspectReference, type Inspection, type InspectOptions } from './inspect/inspect.js';
import { inspectLocal } from './inspect/local.js';
import { currentPolicy } from './policy/policy.js';
import { curatedProfiles } from './profile/curated.js';
import type { Profile, ProfileManifest } from './profile/profile.js';
import { createReading, type Reading } from './reading/reading.js';
import { parseReference, referenceText, type HubReference, type ModelReference } from './reference.js';
import { donorFolders, type DonorFolders } from './staging/donors.js';
import { stage, type StageOptions, type StageResult } from './staging/stage.js';
import { StagingThreads } from './staging/threads.js';
import { storeRoot } from './store/layout.js';
import { ModelStore, type StoredModel } from './store/store.js';
import { notStaged, removeModel, verifyModel, type Verdict } from './store/upkeep.js';

export interface ModelsOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** Default: `storeRoot(env)`. */
  readonly root?: string;
  readonly limits?: Partial<Limits>;
  readonly pauses?: Pauses;
  /** Default: the user's own folders of other programs. */
  readonly donors?: DonorFolders;
}

export interface PullOptions extends StageOptions, InspectOptions {
  /** Told what will be brought, before a byte of it is. What it throws ends the pull. */
  readonly onInspected?: (inspection: Inspection) => void;
}

export interface Pulled extends StageResult {
  readonly reference: string;
  readonly profile: Profile;
  readonly manifestPath: string;
  readonly manifestCreated: boolean;
  readonly securityScanComplete: boolean;
  /** What was brought with a GGUF to see images or hear sound; null: none. */
  readonly projector: RepositoryFile | null;
  readonly resolveMs: number;
  readonly elapsedMs: number;
}

/** A model that can be loaded from here. */
export interface RunnableModel {
  readonly profile: Profile;
  /** What the engine is given: the (first) GGUF, else the folder of the snapshot. */
  readonly source: string;
}

export class Models {
  readonly store: ModelStore;
  readonly #env: NodeJS.ProcessEnv;
  readonly #cwd: string;
  readonly #limits: Limits;
  readonly #pauses: Pauses;
  readonly #donors: DonorFolders;
  readonly #threads: StagingThreads;
  readonly #reading: Reading;

  constructor({ env = process.env, cwd = process.cwd(), root, limits = {}, pauses = realPauses, donors }: ModelsOptions = {}) {
    this.#env = env;
    this.#cwd = cwd;
    this.#limits = { ...defaultLimits, ...limits };
    this.#pauses = pauses;
    this.#donors = donors ?? donorFolders(env);
    this.#threads = new StagingThreads(this.#limits);
    this.#reading = createReading();
    this.store = new ModelStore(root ?? storeRoot(env, cwd), currentPolicy());
  }

  parse(text: string): ModelReference {
    return parseReference(text, { cwd: this.#cwd, curatedIds: new Set(curatedProfiles().keys()) });
  }

  /** Resolves a reference now, and brings everything that it needs here. The branch is asked for each time; what is here already costs that one question. */
  async pull(text: string, options: PullOptions = {}): Promise<Pulled> {
    const startMs = performance.now();
    const reference = this.#hubReference(this.parse(text), text);
    const client = this.#client(options.signal);
    const inspection = await this.#inspect(client, reference, options);
    const resolveMs = performance.now() - startMs;
    options.onInspected?.(inspection);
    const { inspection: staged, result } = await this.#stage(client, inspection, options);
    const { manifest, path, created } = await this.#remember(staged);
    return {
      ...result, reference: referenceText(reference), profile: manifest.profile, manifestPath: path, manifestCreated: created,
      securityScanComplete: manifest.security_scan_complete, projector: staged.projector, resolveMs, elapsedMs: performance.now() - startMs,
    };
  }

  /** What a reference means, without bringing anything here: a repository on the hub, a folder or a GGUF file. */
  async inspect(text: string, options: InspectOptions & { readonly signal?: AbortSignal } = {}): Promise<Inspection> {
    const reference = this.parse(text);
    if (reference.kind === 'folder' || reference.kind === 'gguf') {
      const tools = { reading: this.#reading, policy: this.store.policy, limits: this.#limits, threads: this.#threads };
      return inspectLocal(tools, reference, options.signal ?? new AbortController().signal, options);
    }
    return this.#inspect(this.#client(options.signal), this.#hubReference(reference, text), options);
  }

  /** The model behind a reference, from what is here alone. Rejects with `profile_unknown` or `not_staged`. */
  async runnable(reference: HubReference): Promise<RunnableModel> {
    const model = await this.store.findReference(reference);
    if (model.missing !== null) throw notStaged(model, model.missing);
    return { profile: model.manifest.profile, source: await this.store.sourceOf(model) };
  }

  list(onFault?: (error: LeaseholdError) => void): Promise<readonly StoredModel[]> {
    return this.store.list(onFault);
  }

  /** By reference, or by the id of a profile. */
  async find(text: string): Promise<StoredModel> {
    const reference = this.parse(text);
    if (reference.kind === 'generated') return this.store.find(reference.id);
    return this.store.findReference(this.#hubReference(reference, text));
  }

  async verify(model: StoredModel, signal: AbortSignal, onFile?: (path: string) => void): Promise<readonly Verdict[]> {
    return verifyModel({ store: this.store, threads: this.#threads, limits: this.#limits }, model, signal, onFile);
  }

  /** `users`: who has it loaded, as far as the caller knows; the kernel is asked besides. */
  async remove(model: StoredModel, users: readonly string[], signal: AbortSignal): Promise<number> {
    return removeModel({ store: this.store, threads: this.#threads, limits: this.#limits }, model, users, signal);
  }

  /** Ends the threads. */
  async close(): Promise<void> {
    await Promise.all([this.#threads.close(), this.#reading.close()]);
  }

  #client(signal: AbortSignal | undefined): HubClient {
    return new HubClient({ settings: hubSettings(this.#env), limits: this.#limits, pauses: this.#pauses, ...signal === undefined ? {} : { signal } });
  }

  #inspect(client: HubClient, reference: HubReference, options: InspectOptions): Promise<Inspection> {
    return inspectReference({ client, reading: this.#reading, policy: this.store.policy, limits: this.#limits }, reference, options);
  }

  /** A commit that goes away while it is downloaded is resolved once more, and what that gives is inspected like any other. */
  async #stage(client: HubClient, inspection: Inspection, options: PullOptions): Promise<{ readonly inspection: Inspection; readonly result: StageResult }> {
    const tools = { client, store: this.store, threads: this.#threads, limits: this.#limits, donors: this.#donors };
    try {
      return { inspection, result: await stage(tools, inspection, options) };
    } catch (error) {
      if (!(error instanceof FileGone)) throw error;
      const again = await this.#inspect(client, inspection.reference, options);
      if (again.repository.commit === inspection.repository.commit) throw new LeaseholdError('commit_gone', { ...error.details, again: 'the same commit' }, { cause: error });
      return { inspection: again, result: await stage(tools, again, options) };
    }
  }

  async #remember({ profile, reference, repository }: Inspection): Promise<{ readonly manifest: ProfileManifest; readonly path: string; readonly created: boolean }> {
    const atUnix = Math.floor(Date.now() / 1_000);
    const manifest: ProfileManifest = {
      schema_version: profile.schema_version, compatibility_policy_version: profile.compatibility_policy_version, requested_reference: referenceText(reference),
      resolved_at_unix: atUnix, security_scan_complete: repository.security.complete, profile,
    };
    const saved = await this.store.saveProfile(manifest);
    await this.store.saveReference(reference, profile, atUnix);
    return { manifest, ...saved };
  }

  #hubReference(reference: ModelReference, text: string): HubReference {
    if (reference.kind === 'hub') return reference;
    const curated = reference.kind === 'curated' ? curatedProfiles().get(reference.id) : undefined;
    if (curated !== undefined) return { kind: 'hub', repository: curated.repository, revision: curated.revision, selection: null };
    throw new LeaseholdError('reference_invalid', { reference: JSON.stringify(text), reason: reference.kind === 'generated' ? 'a profile was resolved already; name its repository' : 'it is on this machine, and nothing was pulled' }, reference.kind === 'generated' ? {} : { help: 'It is used where it lies: leasehold run PATH, or as a `source` in leasehold.yaml.' });
  }
}
