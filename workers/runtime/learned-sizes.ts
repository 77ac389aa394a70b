/** What this worker has measured, and others before it: asked for in the next request, and kept for the next worker. */
import { readFileSync } from 'node:fs';
import type { ModelSpec } from '../../protocol/index.js';
import { adjusted, learn, type LearnedKey, type LearnedSize } from '../../src/models/learned/learned-size.js';
import { readLearned, writeLearned } from '../../src/models/learned/learned-store.js';
import { cpuDevice } from './budget.js';
import type { Engine, EngineContext, Estimate, VisibleCard } from './engine.js';
import type { HeldModel } from './held-model.js';

export interface LearnedSizesOptions {
  /** Null: nothing is kept beyond this process. */
  readonly folder: string | null;
  readonly engine: Engine;
  /** Null: there is none, or a model is spread over several. */
  readonly card: VisibleCard | null;
  readonly log: EngineContext['log'];
}

interface Known {
  readonly estimate: Estimate;
  size: LearnedSize | null;
}

export class LearnedSizes {
  readonly #options: LearnedSizesOptions;
  readonly #known = new Map<string, Known>();
  #saving: Promise<void> = Promise.resolve();

  constructor(options: LearnedSizesOptions) {
    this.#options = options;
  }

  /** The engine's estimate with what has been learned. A declared size is the operator's word, and stays. */
  async applied(model: string, estimate: Estimate): Promise<Estimate> {
    const key = this.#key(model);
    if (key === null || estimate.source === 'declared') return estimate;
    const { folder } = this.#options;
    const size = this.#known.get(model)?.size ?? (folder === null ? null : await readLearned(folder, key));
    this.#known.set(model, { estimate, size });
    if (size === null) return estimate;
    // Half known is still an estimate: what is learned may be charged without the headroom, where the operator says so.
    const whole = estimate.parts.every(({ name, bytes }) => bytes === 0 || size.parts.some((part) => part.name === name));
    return { ...estimate, ...adjusted(estimate, size), source: whole ? 'learned' : estimate.source };
  }

  /** What a model holds beyond its parts before it is moved: it was taken on first use. */
  observeGrowth(model: string, spec: ModelSpec, held: HeldModel): void {
    if (held.residentBytesOn(0) > held.partsOn(0).reduce((sum, { bytes }) => sum + bytes, 0)) this.observe(model, spec, held, false);
  }

  /** A resident model, seen whole. */
  observe(model: string, { source }: ModelSpec, held: HeldModel, freshLoad: boolean): void {
    const key = this.#key(model);
    const known = this.#known.get(model);
    const parts = held.partsOn(0).filter(({ bytes }) => bytes > 0);
    if (key === null || known === undefined || parts.length === 0) return;
    const size = learn(known.size, { key, source, estimate: known.estimate, parts, contexts: held.slots.filter(({ tokens }) => tokens < Number.MAX_SAFE_INTEGER), residentBytes: held.residentBytesOn(0), freshLoad, at: new Date().toISOString() });
    const before = known.size;
    known.size = size;
    if (before === null || !sameBytes(before, size) || freshLoad) this.#save(size);
  }

  /** Resolves when everything that was learned is kept. */
  async saved(): Promise<void> {
    await this.#saving;
  }

  #save(size: LearnedSize): void {
    const { folder, log } = this.#options;
    if (folder === null) return;
    this.#saving = this.#saving.then(() => writeLearned(folder, size)).catch((error: unknown) => {
      log('warn', `a learned size was not kept, so it will be measured again: ${String(error)}`, { folder });
    });
  }

  /** Null where no card's bytes are held (D18). */
  #key(model: string): LearnedKey | null {
    const { engine, card } = this.#options;
    if (card === null || card.device === cpuDevice) return null;
    return { model, engine: engine.name, versions: engine.versions, card: card.name, cardBytes: card.totalBytes, driver: card.simulated ? null : driverVersion() };
  }
}

function sameBytes(one: LearnedSize, other: LearnedSize): boolean {
  return JSON.stringify([one.parts, one.contexts, one.grownBytes]) === JSON.stringify([other.parts, other.contexts, other.grownBytes]);
}

/** Of NVIDIA's kernel module, where there is one. */
function driverVersion(): string | null {
  try {
    return readFileSync('/sys/module/nvidia/version', 'utf8').trim();
  } catch {
    // Another vendor's card or another system: then the kind of card stands for it.
    return null;
  }
}
