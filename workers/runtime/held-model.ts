/** What one model holds in this process: the engine’s model and its open contexts, moved and measured. No wire, no lease. */
import { LeaseholdError, type LeasePart, type ModelSpec } from '../../protocol/index.js';
import { cardBytes, cpuDevice, droppedContexts, evenShare, measuredParts } from './budget.js';
import type { FirstContext } from './door-types.js';
import type { EngineWatch } from './engine-watch.js';
import type { Engine, LoadedContext, LoadedModel } from './engine.js';

/** An embedding model runs on no context of ours; its calls still take turns, on this slot. */
const embeddingSlot: FirstContext = { name: 'embedding', tokens: Number.MAX_SAFE_INTEGER };

export class HeldModel {
  readonly #engine: Engine;
  readonly #devices: readonly string[];
  readonly #watch: EngineWatch;
  #model: LoadedModel | null = null;
  #embedding = false;
  readonly #contexts = new Map<string, LoadedContext>();
  /** A copy is being dropped: moves wait for the end of that. */
  #dropping: Promise<void> = Promise.resolve();
  /** Contexts that the lease may still count and that are not there (any more). */
  readonly #gone = new Set<string>();

  /** `devices`: the cards that the process sees, in their order; a model is on all of them. */
  constructor(engine: Engine, devices: readonly string[], watch: EngineWatch) {
    this.#engine = engine;
    this.#devices = devices;
    this.#watch = watch;
  }

  /** The loaded model; a call only runs while there is one. */
  get model(): LoadedModel {
    if (this.#model === null) throw new LeaseholdError('internal', { reason: 'a call ran without its model' });
    return this.#model;
  }

  get loaded(): boolean {
    return this.#model !== null;
  }

  get parkable(): boolean {
    return this.#model !== null && this.#model.park !== null && this.#model.resume !== null;
  }

  get partial(): boolean {
    // What a part of a model on several cards would free on one of them is nobody’s to say.
    return this.#model !== null && this.#model.freePart !== null && this.#devices.length === 1;
  }

  /** On the card of that place among its devices. */
  residentBytesOn(index: number): number {
    return cardBytes(this.#model, this.#devices, index);
  }

  get residentBytes(): number {
    return this.#devices.reduce((sum, _, index) => sum + this.residentBytesOn(index), 0);
  }

  get hostBytes(): number {
    return this.#model?.hostBytes() ?? 0;
  }

  /** The share of the host copy that counts with a card’s lease: the sum of all is the copy. */
  hostBytesOn(index: number): number {
    const count = this.#devices.length;
    return evenShare(this.hostBytes, count, index);
  }

  /** What is held there, measured; contexts that are gone as parts of 0 bytes, so that the lease drops them. */
  partsOn(index: number): LeasePart[] {
    return this.#model === null ? [] : [...measuredParts(this.#model, this.#contexts.values(), this.#devices, index), ...this.goneParts];
  }

  get goneParts(): LeasePart[] {
    return droppedContexts(this.#gone);
  }

  /** A context that was granted and never opened. */
  neverOpened(name: string): void {
    if (!this.#contexts.has(name)) this.#gone.add(name);
  }

  /** The lease has been told of those that are gone. */
  toldGone(): void {
    this.#gone.clear();
  }

  context(name: string | null): LoadedContext | null {
    return name === null ? null : this.#contexts.get(name) ?? null;
  }

  get slots(): readonly FirstContext[] {
    if (this.#embedding) return [embeddingSlot];
    return [...this.#contexts.values()].map(({ name, tokens }) => ({ name, tokens }));
  }

  /**
   * Loads with its first context. When the abort comes too late the model is
   * here, without a context, and has to be unloaded. On failure nothing is
   * left; should that not be certain, the rejection is `HeldBytesError`.
   */
  async load(spec: ModelSpec, context: FirstContext, progress: (fraction: number | null) => void, signal: AbortSignal, keepCopy: boolean | null): Promise<void> {
    this.#gone.clear();
    const model = await this.#watch.stoppable(`Loading ${spec.key}`, signal, this.#engine.load(spec, this.#lead, progress, signal, keepCopy));
    const count = this.#devices.length;
    if (count > 1 && model.cards?.length !== count) {
      await this.#watch.bounded(`Unloading ${spec.key}`, model.unload());
      throw new LeaseholdError('gang_unsupported', { model: spec.key, size: count, reason: 'the engine does not say what it has on each card' });
    }
    this.#embedding = spec.embedding;
    this.#model = model;
    if (signal.aborted) return;
    try {
      await this.#watch.bounded(`Opening a context of ${spec.key}`, this.openContext(context, signal));
      this.#assertMeasured();
    } catch (error) {
      await this.#watch.bounded(`Unloading ${spec.key}`, this.unload()).catch((cause: unknown) => { throw new HeldBytesError(error, cause); });
      throw error;
    }
  }

  async openContext(context: FirstContext, signal: AbortSignal): Promise<void> {
    if (this.#embedding) return;
    this.#contexts.set(context.name, await this.model.openContext(context.name, context.tokens, signal));
    this.#gone.delete(context.name);
  }

  async closeContext(name: string): Promise<void> {
    await this.#contexts.get(name)?.close();
    if (this.#contexts.delete(name)) this.#gone.add(name);
  }

  /** Null: its copy cannot go by itself, or there is none. */
  get dropCopy(): (() => Promise<void>) | null {
    const drop = this.#model?.dropCopy ?? null;
    if (drop === null || this.hostBytes === 0) return null;
    return () => {
      const dropping = this.#dropping.then(() => drop.call(this.#model));
      this.#dropping = dropping.catch(() => undefined);
      return dropping;
    };
  }

  async park(): Promise<void> {
    await this.#dropping;
    await this.#closeContexts();
    if (this.model.park === null) throw new LeaseholdError('unsupported', { model: 'It', target: 'host', reason: 'the engine cannot park' });
    await this.model.park();
  }

  async resume(context: FirstContext, signal: AbortSignal): Promise<void> {
    await this.#dropping;
    if (this.model.resume === null) throw new LeaseholdError('unsupported', { model: 'It', target: this.#lead, reason: 'the engine cannot resume' });
    await this.model.resume(signal);
    try {
      await this.openContext(context, signal);
    } catch (error) {
      // Without a context it serves nobody: back to where it came from.
      await this.park();
      throw error;
    }
  }

  async freePart(bytes: number): Promise<void> {
    if (this.model.freePart === null) throw new LeaseholdError('unsupported', { model: 'It', target: 'host', reason: 'it cannot be freed in part' });
    await this.model.freePart(bytes);
  }

  async unload(): Promise<void> {
    await this.#dropping;
    await this.#closeContexts();
    await this.#model?.unload();
    this.#model = null;
  }

  /** Figures that are no byte counts end a load; they would break the ledger's sums later. */
  #assertMeasured(): void {
    const stated = [this.hostBytes, ...this.#devices.flatMap((_, index) => [this.residentBytesOn(index), ...this.partsOn(index).map((part) => part.bytes)])];
    if (!stated.every((bytes) => Number.isSafeInteger(bytes) && bytes >= 0)) throw new LeaseholdError('bytes_invalid', { field: 'hostBytes', value: this.hostBytes, minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
  }

  get #lead(): string {
    return this.#devices[0] ?? cpuDevice;
  }

  async #closeContexts(): Promise<void> {
    for (const name of [...this.#contexts.keys()]) await this.closeContext(name);
  }
}

/** A failed load could not be taken back: only the end of the process frees what it holds. */
export class HeldBytesError extends Error {
  override readonly name = 'HeldBytesError';

  constructor(loadError: unknown, unloadError: unknown) {
    super(`a failed load could not be undone: ${String(unloadError)}`, { cause: loadError });
  }
}
