/** A simulated model over several cards: one a card, each with its share of the script’s bytes, that come and go together. */
import type { LeasePart } from '../../protocol/index.js';
import type { GenerateCall, GenerateEvent, LoadedContext, LoadedModel } from '../runtime/engine.js';
import { readShares, splitBytes } from '../runtime/shares.js';
import type { SimulatedModel } from './model.js';
import type { ModelScript } from './script.js';
import type { Input } from './text.js';

/** What is left of the script for each card. */
export function shareScript(script: ModelScript, cards: number): readonly ModelScript[] {
  const shares = readShares(script.tensorSplit, cards, 'tensorSplit');
  const all = shares.reduce((sum, share) => sum + share, 0);
  const split = (bytes: number): readonly number[] => splitBytes(bytes, shares);
  const [weights, compute, peak, over] = [script.weightsBytes, script.computeBytes, script.loadPeakBytes, script.overAllocateBytes].map(split);
  const [host, hostPeak] = [script.hostBytes, script.hostPeakBytes].map(split);
  const parkPeak = script.parkPeakBytes === null ? null : split(script.parkPeakBytes);
  const actual = script.actualWeightsBytes === null ? null : split(script.actualWeightsBytes);
  return shares.map((share, index) => ({
    ...script,
    weightsBytes: weights?.[index] ?? 0, computeBytes: compute?.[index] ?? 0, loadPeakBytes: peak?.[index] ?? 0, overAllocateBytes: over?.[index] ?? 0,
    actualWeightsBytes: actual?.[index] ?? null, hostBytes: host?.[index] ?? 0, hostPeakBytes: hostPeak?.[index] ?? 0, parkPeakBytes: parkPeak?.[index] ?? null,
    contextBytesPerToken: script.contextBytesPerToken * (share / all),
    actualContextBytesPerToken: script.actualContextBytesPerToken === null ? null : script.actualContextBytesPerToken * (share / all),
  }));
}

export class SpreadModel implements LoadedModel {
  readonly cards: readonly [SimulatedModel, ...SimulatedModel[]];

  constructor(cards: readonly [SimulatedModel, ...SimulatedModel[]]) {
    this.cards = cards;
  }

  /** On all of its cards at the same time; on abort or failure of one, on none. */
  async load(ms: number, progress: (fraction: number) => void, signal: AbortSignal): Promise<void> {
    await this.#together(signal, (card, stop) => card.load(ms, 'load', card === this.cards[0] ? progress : () => undefined, stop), (card) => card.unload());
  }

  get measuredParts(): readonly LeasePart[] {
    return this.cards.flatMap((card) => card.measuredParts);
  }

  residentBytes(): number {
    return this.cards.reduce((sum, card) => sum + card.residentBytes(), 0);
  }

  hostBytes(): number {
    return this.cards.reduce((sum, card) => sum + card.hostBytes(), 0);
  }

  async openContext(name: string, tokens: number, signal: AbortSignal): Promise<LoadedContext> {
    const open: LoadedContext[] = [];
    try {
      for (const card of this.cards) open.push(await card.openContext(name, tokens, signal));
    } catch (error) {
      for (const context of open) await context.close();
      throw error;
    }
    return new SpreadContext(name, tokens, open);
  }

  countTokens(input: Input): Promise<number> {
    return this.cards[0].countTokens(input);
  }

  readonly embed = (inputs: readonly string[], signal: AbortSignal): Promise<{ vectors: number[][]; promptTokens: number }> => this.cards[0].embed(inputs, signal);

  get dropCopy(): (() => Promise<void>) | null {
    if (this.cards.some((card) => card.dropCopy === null)) return null;
    return () => settleAll(this.cards, (card) => card.dropCopy?.() ?? Promise.resolve());
  }

  get park(): (() => Promise<void>) | null {
    return this.cards[0].park === null ? null : () => settleAll(this.cards, (card) => card.park?.() ?? Promise.resolve());
  }

  get resume(): ((signal: AbortSignal) => Promise<void>) | null {
    if (this.cards[0].resume === null) return null;
    return (signal) => this.#together(signal, (card, stop) => card.resume?.(stop) ?? Promise.resolve(), (card) => card.park?.() ?? Promise.resolve());
  }

  readonly freePart = null;

  unload(): Promise<void> {
    return settleAll(this.cards, (card) => card.unload());
  }

  /** Where one fails the others are told to stop, and those that are there already are taken back. */
  async #together(signal: AbortSignal, work: (card: SimulatedModel, stop: AbortSignal) => Promise<void>, undo: (card: SimulatedModel) => Promise<void>): Promise<void> {
    const failed = new AbortController();
    const stop = AbortSignal.any([signal, failed.signal]);
    const done: SimulatedModel[] = [];
    const results = await Promise.allSettled(this.cards.map((card) => work(card, stop).then(() => { done.push(card); }, (error: unknown) => {
      failed.abort(error);
      throw error;
    })));
    if (results.every(({ status }) => status === 'fulfilled')) return;
    await settleAll(done, undo);
    throw signal.aborted ? signal.reason : failed.signal.reason;
  }
}

class SpreadContext implements LoadedContext {
  readonly #cards: readonly LoadedContext[];

  constructor(readonly name: string, readonly tokens: number, cards: readonly LoadedContext[]) {
    this.#cards = cards;
  }

  get measuredBytesByCard(): readonly number[] {
    return this.#cards.map(({ measuredBytes }) => measuredBytes);
  }

  get measuredBytes(): number {
    return this.measuredBytesByCard.reduce((sum, bytes) => sum + bytes, 0);
  }

  async *generate(call: GenerateCall, signal: AbortSignal): AsyncIterable<GenerateEvent> {
    const [first] = this.#cards;
    if (first !== undefined) yield* first.generate(call, signal);
  }

  close(): Promise<void> {
    return settleAll(this.#cards, (card) => card.close());
  }
}

/** All of it is tried, then the first refusal is thrown. */
async function settleAll<T>(all: readonly T[], work: (each: T) => Promise<void>): Promise<void> {
  const results = await Promise.allSettled(all.map(work));
  const refused = results.find((result) => result.status === 'rejected');
  if (refused !== undefined) throw refused.reason;
}
