/** An orchestrator without processes: one card, models that take turns by least recent use, answers from a list. */
import { LeaseholdError, parseBytes } from '../../protocol/index.js';
import type { BrokerChange, BrokerLoss, OrchestratorOptions } from '../../src/orchestrator/options.js';
import type { EvictedModel, ExplainRecord, LeaseView, WaiterView } from '../../src/orchestrator/index.js';
import type { CloseOptions,
  CallOptions, GenerateInput, GenerateOptions, Generation, GenerationResult, LeaseholdEvent, LedgerState, NamedRecord, Orchestrator, ServedModel, Token,
} from '../../src/orchestrator/types.js';

const mebibyte = 1024 ** 2;

export interface FakeSettings {
  /** What a question is answered with, word by word; `<think>…</think>` is thought. Default: an echo. */
  readonly answer?: (model: string, question: string) => string;
  /** Rejects the call before its first token. */
  readonly failure?: LeaseholdError;
  /** Never ends until it is cancelled. */
  readonly endless?: boolean;
  readonly leaseBytes?: number;
  /** How long a load takes. */
  readonly loadMs?: number;
  /** What becomes of each model when all are evicted. */
  readonly evictedAll?: readonly EvictedModel[];
  /** How long an eviction takes. */
  readonly evictMs?: number;
  /** Between two words, for looking at it. */
  readonly wordMs?: number;
  readonly served?: readonly string[];
  /** Replaces parts of the ledger. */
  readonly ledger?: Partial<Omit<LedgerState, 'leases' | 'waiting'>> & { readonly leases?: readonly LeaseView[]; readonly waiting?: readonly WaiterView[] };
  readonly records?: readonly ExplainRecord[];
  /** Told of before the first token, or after so many. */
  readonly lost?: BrokerLoss;
  readonly lostAfterTokens?: number;
  readonly change?: BrokerChange;
  /** Told before the answer, as a broker with other cards would be. */
  readonly ignored?: LeaseholdError;
  /** Happened by the time that anybody listens. */
  readonly events?: readonly LeaseholdEvent[];
  /** A call that never ends is inside: it is closed only when it is hurried. */
  readonly busy?: boolean;
}

export class FakeOrchestrator implements Orchestrator {
  readonly socketPath = '/run/leasehold/broker.sock';
  readonly ownsBroker: boolean;
  readonly models: readonly ServedModel[];
  readonly calls: { readonly method: string; readonly args: readonly unknown[] }[] = [];
  closed = false;
  readonly #settings: FakeSettings;
  readonly #totalBytes: number;
  readonly #resident: string[] = [];
  readonly #counters: Record<string, number> = { maxOverReserveBytes: -1 };
  readonly #pinned = new Set<string>();
  #peakBytes = 0;
  #queue: LeaseholdEvent[] = [];
  #wake: () => void = () => undefined;
  #atUs = 1_000_000;

  constructor(readonly options: OrchestratorOptions, settings: FakeSettings = {}) {
    this.#settings = settings;
    this.ownsBroker = options.broker === 'own';
    const card = options.devices?.find((device) => device.startsWith('sim:')) ?? 'sim:26MiB';
    this.#totalBytes = parseBytes(card.slice('sim:'.length), 'card');
    const served = settings.served ?? ['tiny-tales', 'tiny-sums', 'tiny-facts'];
    this.models = served.map((name) => ({ name, aliases: [], key: `${name}@llama#0`, engine: 'llama', source: name, contextTokens: 2048, preload: false }));
    this.#counters['maxOverReserveBytes'] = -this.#totalBytes;
    this.#queue = [...settings.events ?? []];
  }

  generate(model: string, input: GenerateInput, options: GenerateOptions = {}): Generation {
    this.calls.push({ method: 'generate', args: [model, input, withoutFunctions(options)] });
    const result = resolvers<GenerationResult>();
    result.promise.catch(() => undefined);
    const run = () => this.#run(model, input, options, result);
    return { [Symbol.asyncIterator]: run, result: () => result.promise };
  }

  async load(model: string, options: CallOptions = {}): Promise<void> {
    this.calls.push({ method: 'load', args: [model] });
    if (this.#settings.failure !== undefined) throw this.#settings.failure;
    options.onStage?.({ stage: 'loading', progress: 0.5, text: 'loading', explain: null });
    const { loadMs } = this.#settings;
    if (loadMs !== undefined) await new Promise((resolve) => setTimeout(resolve, loadMs));
    this.#take(this.#key(model));
  }

  async embed(): Promise<never> {
    throw new LeaseholdError('embedding_unsupported', { model: 'fake' });
  }

  async countTokens(): Promise<number> {
    return 1;
  }

  async lease(): Promise<never> {
    throw new LeaseholdError('closed', { what: 'the fake' });
  }

  async evict(model: string, options: object = {}): Promise<number> {
    this.calls.push({ method: 'evict', args: [model, options] });
    const index = this.#resident.indexOf(this.#key(model));
    const { evictMs } = this.#settings;
    if (evictMs !== undefined) await new Promise((resolve) => setTimeout(resolve, evictMs));
    if (index >= 0) this.#resident.splice(index, 1);
    return index >= 0 ? this.#leaseBytes : 0;
  }

  async evictAll(options: object = {}): Promise<readonly EvictedModel[]> {
    this.calls.push({ method: 'evictAll', args: [options] });
    return this.#settings.evictedAll ?? [];
  }

  async pin(model: string, pinned = true): Promise<void> {
    this.calls.push({ method: 'pin', args: [model, pinned] });
    this.#pinned[pinned ? 'add' : 'delete'](this.#key(model));
  }

  async explain(about?: string, count?: number): Promise<readonly NamedRecord[]> {
    this.calls.push({ method: 'explain', args: [about, count] });
    const name = (key: string | null) => (key === null ? null : this.#name(key));
    return (this.#settings.records ?? []).map((record) => ({ ...record, name: name(record.model), victims: record.victims.map((victim) => ({ ...victim, name: name(victim.model) })) }));
  }

  #name(key: string): string {
    return this.models.find((model) => model.key === key)?.name ?? key;
  }

  async ledger(): Promise<LedgerState> {
    const leasedBytes = this.#resident.length * this.#leaseBytes;
    const device = 'SIM-0a1b2c3d-0';
    const { leases, waiting, ...others } = this.#settings.ledger ?? {};
    const named = <T extends { readonly model: string }>(items: readonly T[]) => items.map((item) => ({ ...item, name: this.#name(item.model) }));
    return {
      bootId: 'boot',
      host: null,
      cards: [{
        device, name: 'simulated', kind: 'simulated', totalBytes: this.#totalBytes, reserveBytes: 0, leasedBytes, floorBytes: 0, residueBytes: 0,
        returningBytes: 0, holdBytes: 0, foreignBytes: 0, sampledUsedBytes: leasedBytes, sampleAgeMs: 100, truth: 'simulated', missing: null,
        availableBytes: this.#totalBytes - leasedBytes, loadToken: null, forming: null, lost: null, yields: null, closed: null, thrashing: null,
      }],
      leases: named(leases ?? this.#resident.map((model, index) => this.#leaseView(model, index, device))),
      waiting: named(waiting ?? []),
      processes: [{ generation: 'boot-w1', role: 'worker', engine: 'llama', state: 'ready', devices: [device], floorBytes: 0, memoryBytes: null }],
      counters: { ...this.#counters },
      broker: { pid: 4711, socket: this.socketPath, startedMsAgo: 90_000 },
      workers: [{ generation: 'boot-w1', engine: 'llama', pid: 4712, threads: 1 }],
      holders: [],
      simulatedCards: [{ device, totalBytes: this.#totalBytes, usedBytes: leasedBytes, peakUsedBytes: this.#peakBytes, oomRefusals: 0 }],
      ...others,
    };
  }

  async *events(): AsyncGenerator<LeaseholdEvent, void, undefined> {
    while (!this.closed || this.#queue.length > 0) {
      const [next, ...rest] = this.#queue;
      this.#queue = rest;
      if (next !== undefined) yield next;
      else await new Promise<void>((resolve) => { this.#wake = resolve; });
    }
  }

  async close({ hurry }: CloseOptions = {}): Promise<void> {
    if (this.#settings.busy === true && hurry?.aborted !== true) await new Promise((resolve) => { hurry?.addEventListener('abort', resolve, { once: true }); });
    this.closed = true;
    this.#wake();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** As if the broker had ended by itself. */
  die(): void {
    this.closed = true;
    this.#wake();
  }

  get #leaseBytes(): number {
    return this.#settings.leaseBytes ?? 11 * mebibyte;
  }

  #key(model: string): string {
    const served = this.models.find(({ name }) => name === model);
    if (served === undefined) throw new LeaseholdError('model_unknown', { model, known: this.models.map(({ name }) => name).join(', ') });
    return served.key;
  }

  async *#run(model: string, input: GenerateInput, options: GenerateOptions, result: { resolve(value: GenerationResult): void; reject(error: unknown): void }): AsyncGenerator<Token> {
    try {
      if (this.#settings.failure !== undefined) throw this.#settings.failure;
      const { lost, lostAfterTokens = 0 } = this.#settings;
      const tellLost = (after: number): void => { if (lost !== undefined && after === lostAfterTokens) this.options.onBrokerLost?.(lost); };
      tellLost(0);
      if (this.#settings.change !== undefined) this.options.onBrokerChange?.(this.#settings.change);
      if (this.#settings.ignored !== undefined) this.options.onIgnored?.(this.#settings.ignored);
      const wasResident = this.#resident.includes(this.#key(model));
      options.onStage?.({ stage: 'placing', progress: null, text: '', explain: null });
      if (!wasResident) {
        options.onStage?.({ stage: 'waiting', progress: null, text: '1st in the queue; tiny-sums is being put away', explain: 'boot-x7' });
        await this.#pause();
        options.onStage?.({ stage: 'loading', progress: 0.25, text: 'loading', explain: null });
        await this.#pause();
      }
      this.#take(this.#key(model));
      options.onStage?.({ stage: 'generating', progress: null, text: '', explain: null });
      const said = { text: '', thought: '' };
      let count = 0;
      for (const token of tokensOf(this.#settings.answer?.(model, questionOf(input)) ?? `You said: ${questionOf(input)}`)) {
        await this.#pause();
        options.signal?.throwIfAborted();
        said[token.thought ? 'thought' : 'text'] += token.text;
        count++;
        yield token;
        tellLost(count);
      }
      if (this.#settings.endless === true) await aborted(options.signal);
      result.resolve({
        reason: 'stop', ...said, usage: { promptTokens: 5, cachedTokens: 0, completionTokens: count, thoughtTokens: 0 },
        timings: { placingMs: 0, queuedMs: 0, loadMs: wasResident ? 0 : 120, prefillMs: 3, generateMs: 40 }, explain: wasResident ? null : 'boot-x9',
      });
    } catch (error) {
      result.reject(error);
      throw error;
    }
  }

  async #pause(): Promise<void> {
    const { wordMs } = this.#settings;
    if (wordMs !== undefined) await new Promise((resolve) => setTimeout(resolve, wordMs));
    else await Promise.resolve();
  }

  /** Makes it resident, putting away whoever was used longest ago. */
  #take(key: string): void {
    const index = this.#resident.indexOf(key);
    if (index >= 0) this.#resident.splice(index, 1);
    while (index < 0 && (this.#resident.length + 1) * this.#leaseBytes > this.#totalBytes) {
      const victim = this.#resident.shift() ?? '';
      this.#publish('evicting', victim);
      this.#count('evictions');
      this.#publish('evicted', victim);
    }
    this.#resident.push(key);
    const usedBytes = this.#resident.length * this.#leaseBytes;
    this.#peakBytes = Math.max(this.#peakBytes, usedBytes);
    this.#counters['maxOverReserveBytes'] = Math.max(this.#counters['maxOverReserveBytes'] ?? 0, usedBytes - this.#totalBytes);
    if (index >= 0) return;
    this.#count('grants');
    this.#publish('granted', key);
  }

  #count(counter: string): void {
    this.#counters[counter] = (this.#counters[counter] ?? 0) + 1;
  }

  #publish(name: string, model: string): void {
    this.#atUs += 25_000;
    this.#queue.push({ name, atUs: this.#atUs, data: { model, name: this.#name(model), device: 'SIM-0a1b2c3d-0', ...(name === 'evicted' ? { freedBytes: this.#leaseBytes, reason: 'room for another' } : {}) }, dropped: 0 });
    this.#wake();
  }

  #leaseView(model: string, index: number, device: string): LeaseView {
    const last = index === this.#resident.length - 1;
    return {
      lease: `boot-l${index}`, model, generation: 'boot-w1', device, gang: null, state: 'resident', chargedBytes: this.#leaseBytes,
      residentBytes: Math.floor(this.#leaseBytes / 1.1), hostBytes: 0, hostChargedBytes: null, parts: [], layers: null, inFlight: last ? 1 : 0, pinned: this.#pinned.has(model), misplacedOn: null, leavingMs: null, idleMs: last ? 0 : 4_200,
    };
  }
}

function* tokensOf(answer: string): Generator<Token> {
  let thought = false;
  for (const piece of answer.split(/(<think>|<\/think>|(?<=\s))/)) {
    if (piece === '<think>' || piece === '</think>') thought = piece === '<think>';
    else if (piece !== '') yield { text: piece, ids: [1], thought };
  }
}

function questionOf(input: GenerateInput): string {
  if (typeof input === 'string') return input;
  return 'prompt' in input ? input.prompt : input.messages.at(-1)?.content ?? '';
}

function withoutFunctions(options: object): object {
  return Object.fromEntries(Object.entries(options).filter(([name, value]) => typeof value !== 'function' && name !== 'signal'));
}

function resolvers<T>(): { promise: Promise<T>; resolve(value: T): void; reject(error: unknown): void } {
  let resolve: (value: T) => void = () => undefined;
  let reject: (error: unknown) => void = () => undefined;
  const promise = new Promise<T>((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
}

function aborted(signal: AbortSignal | undefined): Promise<never> {
  return new Promise((_, reject) => {
    signal?.addEventListener('abort', () => { reject(signal.reason as Error); });
    if (signal?.aborted === true) reject(signal.reason as Error);
  });
}
