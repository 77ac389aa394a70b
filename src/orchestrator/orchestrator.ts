/** Broker, workers and models as one object. */
import { LeaseholdError, explainId, modelKey, type ModelSpec } from '../../protocol/index.js';
import type { ExplainRecord } from '../../broker/core/explain.js';
import { normaliseDevice } from '../../broker/devices/uuid.js';
import { silentLog, steadyLog, type Log } from '../../broker/shell/index.js';
import { connectBroker, type BrokerSession, type CallEvent, type EvictedModel, type HeldLease, type Sampling, type WorkerCaller } from '../client/index.js';
import { warn } from '../client/warn.js';
import { Attempts } from './attempts.js';
import { Catalogue, unknownModel, type Served } from './catalogue.js';
import { reachBroker, type Owning, type Reach } from './connection.js';
import { checkEngines } from './engines.js';
import { RunningGeneration, type GenerationEnd } from './generation.js';
import { Leaving } from './leaving.js';
import { Naming } from './naming.js';
import { LinkedAbort } from './linked-abort.js';
import { Links, wayBack, type Link } from './link.js';
import { toWireInput, toWireSampling, type WireInput } from './inputs.js';
import { otherCards } from './other-cards.js';
import type { OrchestratorOptions } from './options.js';
import { withStagedSources } from './staged-sources.js';
import { sparing } from './stages.js';
import { version } from '../version.js';
import { checkOptions, checked } from './tables.js';
import type {
  CloseOptions, CallOptions, EvictOptions, GenerateInput, GenerateOptions, Generation, HostLeaseRequest, LeaseholdEvent, LedgerState, NamedRecord, Orchestrator, ServedModel, Token,
} from './types.js';

/**
 * Starts, or attaches to, the broker of this machine and serves the models.
 * Rejects with a LeaseholdError: `broker_running`, `broker_missing`, `broker_lost`,
 * `config_invalid`, `model_invalid`, `profile_unknown`, `not_staged`, `engine_unknown`, `device_unknown`, `limit_relation`.
 * Nothing is loaded before it is asked for, except models with `preload`.
 */
export async function createOrchestrator(options: OrchestratorOptions = {}): Promise<Orchestrator> {
  return openOrchestrator(options);
}

/** The same, for who plays with simulated cards: he is given those of an owned broker before it starts. */
export async function openOrchestrator(options: OrchestratorOptions, onSimulatedCards?: Owning['onSimulatedCards']): Promise<Orchestrator> {
  checkOptions(options);
  const catalogue = await catalogueOf(options);
  const expectedWorkers = Object.keys(options.models ?? {}).length;
  const log = steadyLog(options.log ?? silentLog);
  // A broker of our own has no engines but these. One that we take over later served others, too, and their models fail alone.
  const beforeOwning = once(() => { checkEngines(options); });
  const links = await Links.open({
    log,
    onlyLiving: options.broker === 'attach',
    find: () => reachBroker({ ...options, log }, { expectedWorkers, facts: () => ({ catalogue: catalogue.models, version: version() }), names: new Naming(catalogue), onSimulatedCards, beforeOwning }),
    greet: async ({ owned, socketPath }, session) => {
      if (owned !== null) return null;
      const { catalogue: theirs, broker, cards } = await session.ledger<Pick<LedgerState, 'broker' | 'cards'> & { readonly catalogue?: readonly Served[] }>();
      catalogue.adopt(theirs ?? []);
      const ignored = options.broker === 'attach' ? null : otherCards(options.devices ?? [], cards, socketPath);
      if (ignored !== null) (options.onIgnored ?? warn)(ignored);
      return broker.pid;
    },
    onLost: (loss) => { options.onBrokerLost?.(loss); },
    onChange: (change) => { options.onBrokerChange?.(change); },
  });
  return new RunningOrchestrator(links, catalogue, log);
}

/** What makes models a configuration that no orchestrator takes: the first name that means two of them, and each engine that there is none of. */
export function modelFaults({ models = {}, engines = [] }: Pick<OrchestratorOptions, 'models' | 'engines'>): readonly LeaseholdError[] {
  const checks = [
    () => { new Catalogue(models, { tell: () => undefined, unstaged: new Map() }); },
    ...Object.entries(models).map(([name, model]) => () => { checkEngines({ models: { [name]: model }, engines }); }),
  ];
  return checks.flatMap((check) => {
    try {
      check();
      return [];
    } catch (error) {
      return [LeaseholdError.from(error)];
    }
  });
}

/** What an orchestrator with these options would serve. Throws as `createOrchestrator` does for models that are none. */
export async function servedModels(options: Pick<OrchestratorOptions, 'models' | 'onUnusable'>): Promise<readonly ServedModel[]> {
  return shown(await catalogueOf(options));
}

async function catalogueOf({ models = {}, onUnusable }: Pick<OrchestratorOptions, 'models' | 'onUnusable'>): Promise<Catalogue> {
  if (onUnusable === undefined) return new Catalogue(await withStagedSources(models));
  const unstaged = new Map<string, LeaseholdError>();
  return new Catalogue(await withStagedSources(models, unstaged), { tell: onUnusable, unstaged });
}

function shown({ models }: Catalogue): readonly ServedModel[] {
  return models.map(({ name, aliases, spec, preload }) => ({
    name, aliases, key: spec.key, engine: spec.engine, source: spec.source, contextTokens: spec.contextTokens, preload,
  }));
}

function once(act: () => void): () => void {
  let left = 1;
  return () => { if (left-- > 0) act(); };
}

class RunningOrchestrator implements Orchestrator {
  readonly #links: Links;
  readonly #catalogue: Catalogue;
  readonly #log: Log;
  readonly #closing = new AbortController();
  readonly #naming: Naming;
  readonly #leaving: Leaving;
  /** The link that models with `preload` have been asked for on. */
  #preloadedOn: Link | null = null;
  #holder: Promise<BrokerSession> | null = null;
  #closed: Promise<void> | null = null;

  constructor(links: Links, catalogue: Catalogue, log: Log) {
    this.#links = links;
    this.#catalogue = catalogue;
    this.#log = log;
    this.#naming = new Naming(catalogue);
    this.#leaving = new Leaving(this.#naming, this.#closing.signal);
    this.#preload(links.current);
  }

  get ownsBroker(): boolean {
    return this.#links.current.reach.owned !== null;
  }

  get socketPath(): string {
    return this.#links.current.reach.socketPath;
  }

  get models(): readonly ServedModel[] {
    return shown(this.#catalogue);
  }

  generate(model: string, input: GenerateInput, options: GenerateOptions = {}): Generation {
    const served = this.#find(model);
    const wireInput = toWireInput(input);
    const sampling = toWireSampling(options);
    return new RunningGeneration((cancelled) => this.#generate(served, wireInput, sampling, options, cancelled), this.#closing.signal);
  }

  embed(model: string, inputs: readonly string[], options: CallOptions = {}): Promise<{ readonly vectors: readonly (readonly number[])[]; readonly promptTokens: number }> {
    return this.#call(model, options, (caller, spec, bounded) => caller.embed(spec, inputs, bounded), () => { checked.texts(inputs); });
  }

  async countTokens(model: string, input: GenerateInput, options: CallOptions = {}): Promise<number> {
    const wireInput = toWireInput(input);
    return this.#call(model, options, (caller, spec, bounded) => caller.countTokens(spec, given(wireInput), bounded));
  }

  async load(model: string, options: CallOptions = {}): Promise<void> {
    await this.#call(model, options, (caller, spec, bounded) => caller.load(spec, bounded));
  }

  async evict(model: string, options: EvictOptions = {}): Promise<number> {
    checked.evict(options);
    return this.#leaving.out(async () => (await (await this.#link()).session.evict(await this.#keyOf(model, options), options)).freedBytes);
  }

  async evictAll(options: EvictOptions = {}): Promise<readonly EvictedModel[]> {
    checked.evict(options);
    return this.#leaving.out(async () => (await (await this.#link()).session.evictAll(options)).map(({ model, freedBytes, stayed }) => (
      { model: this.#naming.name(model), freedBytes, stayed: stayed === null ? null : this.#leaving.told(stayed) }
    )));
  }

  async pin(model: string, pinned = true): Promise<void> {
    checked.pinned(pinned);
    await this.#leaving.out(async () => (await this.#link()).session.pin(await this.#keyOf(model), pinned));
  }

  async lease(request: HostLeaseRequest): Promise<HeldLease> {
    checked.lease(request);
    const { loading = false, ...asked } = request;
    const device = request.device === undefined ? null : normaliseDevice(request.device);
    const abort = new LinkedAbort([request.signal]);
    const startedMs = performance.now();
    /** Of the deadline that was given, if one was. */
    const left = (): { readonly deadlineMs?: number } => (asked.deadlineMs === undefined ? {} : { deadlineMs: Math.max(0, asked.deadlineMs - Math.round(performance.now() - startedMs)) });
    try {
      return await this.#leaving.out(async () => {
        const holder = await this.#asHolder();
        const tell = (text: string): string => this.#naming.inText(text);
        const chosen = device ?? await this.#roomiestCard(left());
        const lease = await holder.holdLease({ ...asked, ...left(), device: chosen, signal: abort.signal, tell });
        // Whoever says nothing more of it than that it wants it must not hold it for ever.
        if (!loading) await lease.loaded({ residentBytes: Math.min(lease.chargedBytes, bytesOf(request)), hostBytes: lease.keepCopy === true ? request.host?.copyBytes ?? 0 : 0 });
        return lease;
      });
    } finally {
      abort.release();
    }
  }

  async ledger(): Promise<LedgerState> {
    return this.#leaving.out(async () => this.#naming.ledger(await (await this.#link()).session.ledger<LedgerState>()));
  }

  async explain(about?: string, count = about === undefined ? 20 : 5): Promise<readonly NamedRecord[]> {
    checked.count(count);
    return this.#leaving.out(async () => (await this.#records(about, count)).map((record) => this.#naming.record(record)));
  }

  events(): AsyncIterable<LeaseholdEvent> {
    return { [Symbol.asyncIterator]: () => this.#listen() };
  }

  async *#listen(): AsyncGenerator<LeaseholdEvent, void, undefined> {
    const abort = new LinkedAbort([this.#closing.signal]);
    let letGo = (): void => undefined;
    try {
      const { session } = await this.#link();
      letGo = session.hold();
      for await (const event of session.subscribe({ signal: abort.signal })) {
        yield { name: event.name, atUs: event.atUs, data: this.#naming.data(event), dropped: event.dropped };
      }
    } finally {
      letGo();
      abort.release();
    }
  }

  close({ hurry }: CloseOptions = {}): Promise<void> {
    this.#closed ??= this.#shutDown(hurry);
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #shutDown(hurry: AbortSignal | undefined): Promise<void> {
    this.#closing.abort(new LeaseholdError('closed', { what: 'The orchestrator' }));
    if (this.#holder !== null) await this.#holder.then((holder) => holder.close(), () => undefined);
    await this.#links.close(hurry);
  }

  async *#generate(served: Served, input: WireInput, sampling: Sampling, options: GenerateOptions, cancelled: AbortSignal): AsyncGenerator<Token, GenerationEnd, undefined> {
    // `cancelled` aborts at the end of every generation, however it ends: nothing stays followed.
    const { signal } = new LinkedAbort([options.signal, cancelled, this.#closing.signal]);
    const attempts = this.#attempts(served, { ...options, signal });
    for (;;) {
      try {
        const { caller, options: left } = await attempts.next();
        const placingMs = attempts.ageMs;
        return yield* tokensOf(caller.generate({ ...left, model: served.spec, ...given(input), sampling }), left, placingMs);
      } catch (error) {
        await this.#leaving.out(() => attempts.failed(error), served);
      }
    }
  }

  /** Calls without tokens: may be repeated as a whole. */
  async #call<T>(model: string, options: CallOptions, run: (caller: WorkerCaller, spec: ModelSpec, options: CallOptions) => Promise<T>, check: () => void = () => undefined): Promise<T> {
    const served = this.#find(model);
    checked.call(options);
    check();
    const abort = new LinkedAbort([options.signal, this.#closing.signal]);
    const attempts = this.#attempts(served, { ...options, signal: abort.signal });
    try {
      for (;;) {
        try {
          const { caller, options: left } = await attempts.next();
          return await run(caller, served.spec, left);
        } catch (error) {
          await this.#leaving.out(() => attempts.failed(error), served);
        }
      }
    } finally {
      abort.release();
    }
  }

  #attempts(served: Served, options: CallOptions): Attempts {
    const { requestDeadlineMs } = this.#links.current.reach.limits;
    const { onStage } = options;
    const told = onStage === undefined ? options : { ...options, onStage: sparing(onStage, (text) => this.#naming.inText(text, served)) };
    return new Attempts({ link: () => this.#link(), log: this.#log, requestDeadlineMs }, served, told);
  }

  #find(model: string): Served {
    checked.name(model);
    return this.#catalogue.find(model);
  }

  /** The way to the broker; to another one when it was lost. */
  async #link(): Promise<Link> {
    this.#closing.signal.throwIfAborted();
    const link = await this.#links.get();
    this.#preload(link);
    return link;
  }

  /** Asks, once on each link to a broker of our own, for the models that are to be there without being asked for. */
  #preload(link: Link): void {
    if (link === this.#preloadedOn) return;
    this.#preloadedOn = link;
    if (link.reach.owned === null) return;
    for (const { name } of this.#catalogue.models.filter(({ preload }) => preload)) {
      this.load(name).then(
        () => { this.#log.info({ model: name }, 'preloaded'); },
        (error: unknown) => { this.#log.warn({ model: name, reason: LeaseholdError.from(error).message }, 'could not be preloaded'); },
      );
    }
  }

  async #records(about: string | undefined, count: number): Promise<readonly ExplainRecord[]> {
    const { session } = await this.#link();
    if (about === undefined) return session.explain<ExplainRecord>({ count });
    if (explainId().check(about, '') === null) return session.explain<ExplainRecord>({ explain: about, count: 1 });
    const ours = this.#catalogue.keyOf(about);
    const records = modelKey().check(ours ?? about, '') === null ? await session.explain<ExplainRecord>({ model: ours ?? about, count }) : [];
    // What has records is known by them, though it is in the ledger no more.
    if (records.length === 0 && ours === null) await this.#keyOf(about);
    return records;
  }

  /** The key that a name of the catalogue, or the key itself of anything in the ledger, means. */
  async #keyOf(model: string, { deadlineMs }: Pick<EvictOptions, 'deadlineMs'> = {}): Promise<string> {
    checked.name(model);
    const ours = this.#catalogue.keyOf(model);
    if (ours !== null) return ours;
    const { leases, waiting } = await (await this.#link()).session.ledger<LedgerState>(deadlineMs === undefined ? {} : { deadlineMs });
    const held = [...new Set([...leases, ...waiting].map((each) => each.model))].filter((key) => this.#catalogue.keyOf(key) === null);
    if (held.includes(model)) return model;
    throw unknownModel(model, this.#catalogue.names, held.length === 0 ? '' : `in the ledger: ${held.join(', ')}`);
  }

  async #asHolder(): Promise<BrokerSession> {
    const { reach } = await this.#link();
    this.#holder ??= this.#openHolder(reach);
    return this.#holder;
  }

  /** One session for all leases of this process; a new one when that could not be opened, or has ended. */
  #openHolder(reach: Reach): Promise<BrokerSession> {
    const { secret, limits } = reach;
    const opening = reach.dial().then((stream) => connectBroker({ stream, ...wayBack(reach), secret, role: 'holder', name: 'host process', limits }));
    const forget = (): void => { if (this.#holder === opening) this.#holder = null; };
    opening.then((holder) => {
      holder.relax();
      void holder.closed.then(forget);
    }, forget);
    return opening;
  }

  async #roomiestCard(options: { readonly deadlineMs?: number }): Promise<string> {
    const { cards } = await (await this.#link()).session.ledger<LedgerState>(options);
    const [best] = [...cards].sort((left, right) => (right.availableBytes ?? 0) - (left.availableBytes ?? 0));
    if (best === undefined) throw new LeaseholdError('device_unknown', { device: 'any', known: 'none' });
    return best.device;
  }
}

function bytesOf({ parts, bytes = 0 }: HostLeaseRequest): number {
  return parts === undefined ? bytes : parts.reduce((sum, part) => sum + part.bytes, 0);
}

/** Exactly one of the two, as calls take it. */
function given({ messages, prompt }: WireInput): { readonly messages: NonNullable<WireInput['messages']> } | { readonly prompt: string } {
  return messages === null ? { prompt: prompt ?? '' } : { messages };
}

async function* tokensOf(events: AsyncIterable<CallEvent>, options: CallOptions, placingMs: number): AsyncGenerator<Token, GenerationEnd, undefined> {
  for await (const event of events) {
    if (event.type === 'stage') {
      options.onStage?.({ stage: event.stage, progress: event.progress, text: event.text, explain: event.explain });
    } else if (event.type === 'token') {
      yield { text: event.text, ids: event.ids, thought: event.thought };
    } else if (event.reason === 'cancelled') {
      throw new LeaseholdError('request_cancelled', { what: 'The generation' });
    } else {
      return { reason: event.reason, usage: event.usage, timings: { placingMs, ...event.timings }, explain: event.explain };
    }
  }
  throw new LeaseholdError('connection_lost', { peer: 'the worker', reason: 'the stream ended without an end' });
}
