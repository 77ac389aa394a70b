/** Broker, workers and models as one object. */
import { LeaseholdError, explainId, type ModelSpec } from '../../protocol/index.js';
import type { ExplainRecord } from '../../broker/core/explain.js';
import { silentLog, type Log } from '../../broker/shell/index.js';
import { connectBroker, type BrokerSession, type CallEvent, type HeldLease, type Sampling, type WorkerCaller } from '../client/index.js';
import { Attempts } from './attempts.js';
import { Callers } from './callers.js';
import { Catalogue, type Served } from './catalogue.js';
import { reachBroker, type Reach } from './connection.js';
import { RunningGeneration, type GenerationEnd } from './generation.js';
import { toWireInput, toWireSampling, type WireInput } from './inputs.js';
import { Obituaries } from './obituaries.js';
import type { OrchestratorOptions } from './options.js';
import type {
  CallOptions, GenerateInput, GenerateOptions, Generation, HostLeaseRequest, LeaseholdEvent, LedgerState, Orchestrator, ServedModel, Token,
} from './types.js';

/**
 * Starts, or attaches to, the broker of this machine and serves the models.
 * Rejects with a LeaseholdError: `broker_running`, `broker_lost`,
 * `config_invalid`, `model_invalid`, `device_unknown`, `limit_relation`.
 * Nothing is loaded before it is asked for, except models with `preload`.
 */
export async function createOrchestrator(options: OrchestratorOptions = {}): Promise<Orchestrator> {
  const catalogue = new Catalogue(options.models ?? {});
  const expectedWorkers = Object.keys(options.models ?? {}).length;
  const reach = await reachBroker(options, expectedWorkers, () => ({ catalogue: catalogue.models }));
  try {
    const session = await connectBroker({ stream: await reach.dial(), secret: reach.secret, role: 'client', name: 'orchestrator', limits: reach.limits });
    if (reach.owned === null) {
      const { catalogue: theirs } = await session.ledger<{ readonly catalogue?: readonly Served[] }>();
      catalogue.adopt(theirs ?? []);
    }
    return new RunningOrchestrator(reach, session, catalogue, options.log ?? silentLog);
  } catch (error) {
    await reach.owned?.close();
    throw error;
  }
}

class RunningOrchestrator implements Orchestrator {
  readonly ownsBroker: boolean;
  readonly socketPath: string;
  readonly #reach: Reach;
  readonly #session: BrokerSession;
  readonly #catalogue: Catalogue;
  readonly #callers: Callers;
  readonly #obituaries = new Obituaries();
  readonly #log: Log;
  readonly #closing = new AbortController();
  #holder: Promise<BrokerSession> | null = null;
  #closed: Promise<void> | null = null;

  constructor(reach: Reach, session: BrokerSession, catalogue: Catalogue, log: Log) {
    this.#reach = reach;
    this.#session = session;
    this.#catalogue = catalogue;
    this.#log = log;
    this.#callers = new Callers(session, reach.limits);
    this.ownsBroker = reach.owned !== null;
    this.socketPath = reach.socketPath;
    this.#obituaries.listen(session).catch((error: unknown) => { this.#log.debug({ reason: String(error) }, 'no more news of workers'); });
    for (const { name, preload } of catalogue.models) if (preload && this.ownsBroker) this.#preload(name);
  }

  get models(): readonly ServedModel[] {
    return this.#catalogue.models.map(({ name, aliases, spec, preload }) => ({
      name, aliases, key: spec.key, engine: spec.engine, source: spec.source, contextTokens: spec.contextTokens, preload,
    }));
  }

  generate(model: string, input: GenerateInput, options: GenerateOptions = {}): Generation {
    const served = this.#catalogue.find(model);
    const wireInput = toWireInput(input);
    const sampling = toWireSampling(options);
    return new RunningGeneration((cancelled) => this.#generate(served, wireInput, sampling, this.#bounded(options, cancelled)));
  }

  embed(model: string, inputs: readonly string[], options: CallOptions = {}): Promise<{ readonly vectors: readonly (readonly number[])[]; readonly promptTokens: number }> {
    return this.#call(model, options, (caller, spec, bounded) => caller.embed(spec, inputs, bounded));
  }

  async countTokens(model: string, input: GenerateInput, options: CallOptions = {}): Promise<number> {
    const wireInput = toWireInput(input);
    return this.#call(model, options, (caller, spec, bounded) => caller.countTokens(spec, given(wireInput), bounded));
  }

  async load(model: string, options: CallOptions = {}): Promise<void> {
    await this.#call(model, options, (caller, spec, bounded) => caller.load(spec, bounded));
  }

  async evict(model: string, options: { readonly target?: 'host' | 'none'; readonly deadlineMs?: number } = {}): Promise<number> {
    return (await this.#session.evict(this.#keyOf(model), options)).freedBytes;
  }

  async pin(model: string, pinned = true): Promise<void> {
    await this.#session.pin(this.#keyOf(model), pinned);
  }

  async lease(request: HostLeaseRequest): Promise<HeldLease> {
    const holder = await this.#asHolder();
    return holder.holdLease({ ...request, device: request.device ?? await this.#roomiestCard() });
  }

  ledger(): Promise<LedgerState> {
    return this.#session.ledger<LedgerState>();
  }

  async explain(about?: string, count = about === undefined ? 20 : 5): Promise<readonly ExplainRecord[]> {
    if (about === undefined) return this.#session.explain<ExplainRecord>({ count });
    if (explainId().check(about, '') === null) return this.#session.explain<ExplainRecord>({ explain: about, count: 1 });
    return this.#session.explain<ExplainRecord>({ model: this.#keyOf(about), count });
  }

  async *events(): AsyncGenerator<LeaseholdEvent, void, undefined> {
    for await (const event of this.#session.subscribe({ signal: this.#closing.signal })) {
      yield { name: event.name, atUs: event.atUs, data: event.data, dropped: event.dropped };
    }
  }

  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    this.#closing.abort(new LeaseholdError('closed', { what: 'The orchestrator' }));
    this.#callers.close();
    if (this.#holder !== null) await this.#holder.then((holder) => holder.close(), () => undefined);
    await this.#session.close();
    await this.#reach.owned?.close();
  }

  async *#generate(served: Served, input: WireInput, sampling: Sampling, options: CallOptions): AsyncGenerator<Token, GenerationEnd, undefined> {
    const attempts = this.#attempts(served, options);
    for (;;) {
      try {
        const { caller, options: left } = await attempts.next();
        return yield* tokensOf(caller.generate({ ...left, model: served.spec, ...given(input), sampling }), options);
      } catch (error) {
        await attempts.failed(error);
      }
    }
  }

  /** Calls without tokens: may be repeated as a whole. */
  async #call<T>(model: string, options: CallOptions, run: (caller: WorkerCaller, spec: ModelSpec, options: CallOptions) => Promise<T>): Promise<T> {
    const served = this.#catalogue.find(model);
    const attempts = this.#attempts(served, this.#bounded(options, null));
    for (;;) {
      try {
        const { caller, options: left } = await attempts.next();
        return await run(caller, served.spec, left);
      } catch (error) {
        await attempts.failed(error);
      }
    }
  }

  #attempts(served: Served, options: CallOptions): Attempts {
    const { requestDeadlineMs } = this.#reach.limits;
    return new Attempts({ callers: this.#callers, obituaries: this.#obituaries, log: this.#log, requestDeadlineMs }, served, options);
  }

  /** The caller's signal, the generation's own and close(), in one. */
  #bounded<O extends CallOptions>(options: O, cancelled: AbortSignal | null): O {
    const signals = [options.signal, cancelled, this.#closing.signal].filter((signal) => signal !== undefined && signal !== null);
    return { ...options, signal: AbortSignal.any(signals) };
  }

  #preload(name: string): void {
    this.load(name).then(
      () => { this.#log.info({ model: name }, 'preloaded'); },
      (error: unknown) => { this.#log.warn({ model: name, reason: LeaseholdError.from(error).message }, 'could not be preloaded'); },
    );
  }

  #keyOf(model: string): string {
    return this.#catalogue.find(model).spec.key;
  }

  #asHolder(): Promise<BrokerSession> {
    this.#holder ??= this.#openHolder();
    return this.#holder;
  }

  /** One session for all leases of this process; a new one when that could not be opened, or has ended. */
  #openHolder(): Promise<BrokerSession> {
    const { secret, limits } = this.#reach;
    const opening = this.#reach.dial().then((stream) => connectBroker({ stream, secret, role: 'holder', name: 'host process', limits }));
    const forget = (): void => { if (this.#holder === opening) this.#holder = null; };
    opening.then((holder) => { void holder.closed.then(forget); }, forget);
    return opening;
  }

  async #roomiestCard(): Promise<string> {
    const { cards } = await this.ledger();
    const [best] = [...cards].sort((left, right) => (right.availableBytes ?? 0) - (left.availableBytes ?? 0));
    if (best === undefined) throw new LeaseholdError('device_unknown', { device: 'any', known: 'none' });
    return best.device;
  }
}

/** Exactly one of the two, as calls take it. */
function given({ messages, prompt }: WireInput): { readonly messages: NonNullable<WireInput['messages']> } | { readonly prompt: string } {
  return messages === null ? { prompt: prompt ?? '' } : { messages };
}

async function* tokensOf(events: AsyncIterable<CallEvent>, options: CallOptions): AsyncGenerator<Token, GenerationEnd, undefined> {
  for await (const event of events) {
    if (event.type === 'stage') {
      options.onStage?.({ stage: event.stage, progress: event.progress, text: event.text, explain: event.explain });
    } else if (event.type === 'token') {
      yield { text: event.text, ids: event.ids, thought: event.thought };
    } else if (event.reason === 'cancelled') {
      throw new LeaseholdError('request_cancelled', { what: 'The generation' });
    } else {
      return { reason: event.reason, usage: event.usage, timings: event.timings, explain: event.explain };
    }
  }
  throw new LeaseholdError('connection_lost', { peer: 'the worker', reason: 'the stream ended without an end' });
}
