/** A loaded simulated model: bytes taken and given back on the card as scripted, lies included. */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { LeaseholdError, type LeasePart } from '../../protocol/index.js';
import type { CardAllocation, GenerateCall, GenerateEvent, LoadedContext, LoadedModel } from '../runtime/engine.js';
import type { Faults } from './faults.js';
import type { ModelScript } from './script.js';
import { embedding, lastText, pieces, rendered, tokenId, type Input } from './text.js';

/** Takes bytes on the card; null where it is no simulated one, and nothing is taken anywhere. */
export type Take = (bytes: number) => Promise<CardAllocation | null>;

export interface SimulatedParts {
  readonly key: string;
  readonly device: string;
  readonly script: ModelScript;
  readonly faults: Faults;
  readonly take: Take;
  readonly log: (message: string) => void;
  /** Whether a copy stays in the machine's memory beside the card. */
  readonly keepCopy: boolean;
  /** Takes bytes of the machine's memory; null where it is not leased. */
  readonly takeMemory: Take;
  readonly onUnloaded: () => Promise<void>;
}

/** Waits, unless told to stop; then it throws the signal's reason. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  if (ms <= 0) return;
  await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch((error: unknown) => {
    signal?.throwIfAborted();
    throw error;
  });
}

export class SimulatedModel implements LoadedModel {
  readonly #parts: SimulatedParts;
  readonly #script: ModelScript;
  /** On the card: weights and compute, in chunks. */
  #taken: CardAllocation[] = [];
  #takenBytes = 0;
  #hostBytes = 0;
  /** The copy, as it is counted; and what the model needs there as long as it is loaded. */
  #copy: CardAllocation | null = null;
  #needed: CardAllocation | null = null;
  readonly #contexts = new Set<SimulatedContext>();

  constructor(parts: SimulatedParts) {
    this.#parts = parts;
    this.#script = parts.script;
  }

  get #weightsBytes(): number {
    return this.#script.actualWeightsBytes ?? this.#script.weightsBytes;
  }

  get measuredParts(): readonly LeasePart[] {
    const { computeBytes } = this.#script;
    const weights: LeasePart = { name: 'weights', kind: 'weights', bytes: Math.max(0, this.#takenBytes - computeBytes), upFront: true };
    return computeBytes === 0 ? [weights] : [weights, { name: 'compute', kind: 'compute', bytes: Math.min(this.#takenBytes, computeBytes), upFront: true }];
  }

  residentBytes(): number {
    return [...this.#contexts].reduce((sum, context) => sum + context.measuredBytes, this.#takenBytes);
  }

  hostBytes(): number {
    return this.#hostBytes;
  }

  /** Takes the card bytes step by step. On abort or failure everything is given back before it rejects. */
  async load(ms: number, at: 'load' | 'resume', progress: (fraction: number) => void, signal: AbortSignal): Promise<void> {
    const steps = Math.max(1, Math.floor(this.#script.loadSteps));
    const heeded = this.#script.loadIgnoresAbort ? undefined : signal;
    let peak: CardAllocation | null = null;
    let hostPeak: CardAllocation | null = null;
    try {
      peak = at === 'load' ? await this.#takePeak() : null;
      if (at === 'load') hostPeak = await this.#takeMemory();
      for (let step = 1; step <= steps; step++) {
        heeded?.throwIfAborted();
        await this.#parts.faults.strike(at, (step - 1) / steps, this.#parts.device);
        await this.#take(Math.floor((this.#weightsBytes * step) / steps) - Math.floor((this.#weightsBytes * (step - 1)) / steps));
        await pause(ms / steps, heeded);
        progress(step / steps);
      }
      await this.#take(this.#script.computeBytes);
      if (at === 'load' && this.#script.overAllocateBytes > 0) await this.#parts.take(this.#script.overAllocateBytes);
    } catch (error) {
      await this.#free(this.#script.failKeepsFraction);
      if (at === 'load') await this.#freeMemory();
      throw error;
    } finally {
      await peak?.free();
      await hostPeak?.free();
    }
  }

  /** What it needs there, its copy where it keeps one, and what the load takes beyond both: the result. */
  async #takeMemory(): Promise<CardAllocation | null> {
    const { hostBytes, hostPeakBytes } = this.#script;
    this.#needed = await this.#parts.takeMemory(hostBytes);
    if (this.#parts.keepCopy) await this.#takeCopy();
    return this.#parts.takeMemory(Math.max(0, hostPeakBytes - hostBytes - this.#hostBytes));
  }

  async #takeCopy(): Promise<void> {
    this.#copy = await this.#parts.takeMemory(this.#weightsBytes);
    this.#hostBytes = this.#weightsBytes;
  }

  async #freeCopy(): Promise<void> {
    const copy = this.#copy;
    this.#copy = null;
    this.#hostBytes = 0;
    await copy?.free();
  }

  async #freeMemory(): Promise<void> {
    await this.#freeCopy();
    const needed = this.#needed;
    this.#needed = null;
    await needed?.free();
  }

  get dropCopy(): (() => Promise<void>) | null {
    if (this.#script.copyIsFixed) return null;
    return async () => {
      await this.#parts.faults.strike('trim');
      await this.#freeCopy();
    };
  }

  async openContext(name: string, tokens: number, signal: AbortSignal): Promise<LoadedContext> {
    await this.#parts.faults.strike('context', 0, this.#parts.device);
    signal.throwIfAborted();
    const bytes = Math.ceil((this.#script.actualContextBytesPerToken ?? this.#script.contextBytesPerToken) * tokens);
    const allocation = bytes > 0 ? await this.#parts.take(bytes) : null;
    const context = new SimulatedContext(this.#parts, name, tokens, bytes, async () => {
      this.#contexts.delete(context);
      await allocation?.free();
    });
    this.#contexts.add(context);
    return context;
  }

  async countTokens(input: Input): Promise<number> {
    await this.#parts.faults.strike('count');
    return pieces(rendered(input), this.#script.tokenCharacters).length;
  }

  readonly embed = async (inputs: readonly string[], signal: AbortSignal): Promise<{ vectors: number[][]; promptTokens: number }> => {
    await this.#parts.faults.strike('embed');
    await pause(this.#script.prefillMs, signal);
    const { embeddingDimensions, tokenCharacters } = this.#script;
    return {
      vectors: inputs.map((text) => embedding(text, embeddingDimensions)),
      promptTokens: inputs.reduce((sum, text) => sum + pieces(text, tokenCharacters).length, 0),
    };
  };

  get park(): (() => Promise<void>) | null {
    if (!this.#script.parkable) return null;
    return async () => {
      await this.#parts.faults.strike('park');
      if (this.#hostBytes === 0) await this.#makeCopy();
      await pause(this.#script.parkMs);
      await this.#moveOff(this.#script.parkKeepsFraction);
      await pause(this.#script.answersLateMs);
    };
  }

  /** Off the card, which takes more than the copy at its height. */
  async #makeCopy(): Promise<void> {
    await this.#takeCopy();
    const { parkPeakBytes } = this.#script;
    const peak = await this.#parts.takeMemory(Math.max(0, (parkPeakBytes ?? 0) - this.#weightsBytes));
    await pause(this.#script.parkMs / 2);
    await peak?.free();
  }

  get resume(): ((signal: AbortSignal) => Promise<void>) | null {
    if (!this.#script.parkable) return null;
    return (signal) => this.load(this.#script.resumeMs, 'resume', () => undefined, signal);
  }

  get freePart(): ((bytes: number) => Promise<number>) | null {
    if (!this.#script.partial) return null;
    return async (bytes) => {
      await this.#parts.faults.strike('part');
      const before = this.#takenBytes;
      const target = Math.max(0, before - Math.floor(bytes * this.#script.partFreesFraction));
      await this.#free();
      await this.#take(target);
      return before - target;
    };
  }

  async unload(): Promise<void> {
    await this.#parts.faults.strike('unload');
    await pause(this.#script.unloadMs);
    await this.#moveOff(this.#script.unloadKeepsFraction);
    await this.#freeMemory();
    await this.#parts.onUnloaded();
    await pause(this.#script.answersLateMs);
  }

  async #takePeak(): Promise<CardAllocation | null> {
    const extra = this.#script.loadPeakBytes - this.#weightsBytes - this.#script.computeBytes;
    return extra > 0 ? this.#parts.take(extra) : null;
  }

  async #take(bytes: number): Promise<void> {
    if (bytes <= 0) return;
    const allocation = await this.#parts.take(bytes);
    if (allocation !== null) this.#taken.push(allocation);
    this.#takenBytes += bytes;
  }

  /** As told to: at once, or later than it says. */
  async #moveOff(keepsFraction: number): Promise<void> {
    const { freesLateMs } = this.#script;
    const free = this.#letGo(keepsFraction);
    if (freesLateMs === 0) await free();
    // A card that is gone by then has nothing to give back.
    else setTimeout(() => { free().catch((error: unknown) => { this.#parts.log(`freed too late: ${String(error)}`); }); }, freesLateMs);
  }

  /** Gives the card bytes back, save a part that is kept and denied. */
  #free(keepsFraction = 0): Promise<void> {
    return this.#letGo(keepsFraction)();
  }

  /** What it has there counts as given back from now on; how to do it. */
  #letGo(keepsFraction: number): () => Promise<void> {
    const keptBytes = Math.floor(this.#takenBytes * keepsFraction);
    const taken = this.#taken;
    this.#taken = [];
    this.#takenBytes = 0;
    return async () => {
      for (const allocation of taken) await allocation.free();
      if (keptBytes > 0) await this.#parts.take(keptBytes);
    };
  }
}

class SimulatedContext implements LoadedContext {
  readonly name: string;
  readonly tokens: number;
  readonly measuredBytes: number;
  readonly #parts: SimulatedParts;
  readonly #close: () => Promise<void>;

  constructor(parts: SimulatedParts, name: string, tokens: number, bytes: number, close: () => Promise<void>) {
    this.#parts = parts;
    this.name = name;
    this.tokens = tokens;
    this.measuredBytes = bytes;
    this.#close = close;
  }

  close(): Promise<void> {
    return this.#close();
  }

  async *generate(call: GenerateCall, signal: AbortSignal): AsyncIterable<GenerateEvent> {
    const { script, faults, key } = this.#parts;
    const promptTokens = pieces(rendered(call), script.tokenCharacters).length;
    if (promptTokens >= this.tokens) throw new LeaseholdError('context_too_small', { model: key, promptTokens, contextTokens: this.tokens });
    yield { type: 'prefill', doneTokens: 0, totalTokens: promptTokens };
    await this.#prefill(signal);
    yield { type: 'prefill', doneTokens: promptTokens, totalTokens: promptTokens };
    const thought = call.sampling.thinking === false ? [] : pieces(script.thought, script.tokenCharacters);
    const answer = pieces(untilStop((script.text ?? lastText(call)).repeat(script.textTimes), call.sampling.stop ?? []), script.tokenCharacters);
    const room = Math.min(call.sampling.maxTokens, this.tokens - promptTokens);
    const all = [...thought, ...answer];
    for (const [index, piece] of all.slice(0, room).entries()) {
      await faults.strike('generate', index);
      if (script.tokensPerSecond > 0) await pause(1000 / script.tokensPerSecond, signal);
      else await nextTurn();
      signal.throwIfAborted();
      yield { type: 'token', ids: [tokenId(piece)], text: piece, thought: index < thought.length };
    }
    await faults.strike('generate', all.length);
    yield {
      type: 'end', reason: all.length > room ? 'length' : 'stop', promptTokens, cachedTokens: 0,
      completionTokens: Math.min(all.length, room), thoughtTokens: Math.min(thought.length, room),
    };
  }

  async #prefill(signal: AbortSignal): Promise<void> {
    const { prefillMs, prefillLogLines } = this.#parts.script;
    for (let line = 1; line <= prefillLogLines; line++) {
      await pause(prefillMs / prefillLogLines, signal);
      this.#parts.log(`prefill ${String(line)} of ${String(prefillLogLines)}`);
    }
    if (prefillLogLines === 0) await pause(prefillMs, signal);
  }
}

function untilStop(text: string, stops: readonly string[]): string {
  const ends = stops.map((stop) => text.indexOf(stop)).filter((index) => index >= 0);
  return ends.length === 0 ? text : text.slice(0, Math.min(...ends));
}
