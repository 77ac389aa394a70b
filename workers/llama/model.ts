/** A model that is loaded: its contexts come and go one at a time, and with it everything goes. */
import type { FileHandle } from 'node:fs/promises';
import type { LlamaContext, LlamaContextOptions, LlamaModel } from 'node-llama-cpp';
import { LeaseholdError, type LeasePart, type ModelSpec } from '../../protocol/index.js';
import type { LoadedContext, LoadedModel } from '../runtime/engine.js';
import type { CardBytes } from './card-bytes.js';
import { paddedTokens } from './context-curve.js';
import { LlamaLoadedContext } from './context.js';
import { createOn } from './dispose-guard.js';
import type { Embedder } from './embed.js';
import { failureOf } from './failures.js';
import type { FloorMeter } from './floor-meter.js';
import type { Shape } from './inspect.js';
import type { StartedLlama } from './started.js';
import type { Vocabulary } from './vocabulary.js';

export interface ModelParts {
  readonly started: StartedLlama;
  readonly spec: ModelSpec;
  readonly shape: Shape;
  readonly device: string;
  readonly model: LlamaModel;
  readonly vocabulary: Vocabulary;
  readonly bytes: CardBytes;
  readonly measuredParts: readonly LeasePart[];
  readonly embedder: Embedder | null;
  /** Open for as long as the model is loaded. */
  readonly file: FileHandle;
  /** Called when everything has been given back. */
  readonly onUnloaded: (model: LlamaLoadedModel) => void;
}

export class LlamaLoadedModel implements LoadedModel {
  readonly measuredParts: readonly LeasePart[];
  readonly cards: LoadedModel['cards'];
  readonly embed: LoadedModel['embed'];
  // llama.cpp cannot move a model that it has loaded, whole or in part.
  readonly park = null;
  readonly resume = null;
  readonly freePart = null;
  readonly #parts: ModelParts;
  readonly #contexts = new Map<string, LlamaLoadedContext>();
  /** Opening and unloading take turns: nothing is opened on a model that goes (B194). */
  #turn: Promise<unknown> = Promise.resolve();
  #unloading: Promise<void> | null = null;

  constructor(parts: ModelParts) {
    const { embedder } = parts;
    this.#parts = parts;
    this.measuredParts = parts.measuredParts;
    this.cards = parts.bytes.figures(parts.measuredParts);
    this.embed = embedder === null ? null : (inputs, signal) => embedder.embed(inputs, signal);
  }

  residentBytes(): number {
    return this.#parts.bytes.totalBytes;
  }

  hostBytes(): number {
    return 0;
  }

  openContext(name: string, tokens: number, signal: AbortSignal): Promise<LoadedContext> {
    return this.#inTurn(() => this.#open(name, tokens, signal));
  }

  async countTokens(input: Parameters<LoadedModel['countTokens']>[0]): Promise<number> {
    this.#assertLoaded();
    const texts = await this.#parts.vocabulary.promptTexts(input, undefined);
    // It may have gone while its template was rendered.
    this.#assertLoaded();
    return this.#parts.vocabulary.promptTokens(texts).length;
  }

  unload(): Promise<void> {
    this.#unloading ??= this.#inTurn(() => this.#unload());
    return this.#unloading;
  }

  async #open(name: string, tokens: number, signal: AbortSignal): Promise<LoadedContext> {
    this.#assertLoaded();
    signal.throwIfAborted();
    const { started, spec, shape, model, device, bytes } = this.#parts;
    if (shape.embedding) throw new LeaseholdError('input_invalid', { field: 'model', reason: `${spec.key} makes embeddings, no text` });
    if (this.#contexts.has(name)) throw new LeaseholdError('internal', { reason: `${spec.key} already has a context ${name}` });
    return started.log.during(async (lines) => {
      let context: LlamaContext | null = null;
      try {
        context = await createOn(model, () => model.createContext(this.#contextOptions(tokens, signal)));
        const measuredBytes = await bytes.take(name, context.memoryUsage);
        signal.throwIfAborted();
        return this.#keep(name, context, measuredBytes);
      } catch (error) {
        await context?.dispose();
        await bytes.give(name);
        if (signal.aborted) throw signal.reason;
        throw await failureOf(started, { model: spec.key, device }, await lines(), error);
      }
    });
  }

  /** As it was estimated; no second try with less when it fails. */
  #contextOptions(tokens: number, createSignal: AbortSignal): LlamaContextOptions {
    const { started, shape } = this.#parts;
    const contextSize = paddedTokens(tokens);
    return {
      contextSize,
      batchSize: shape.batchTokens(contextSize),
      sequences: 1,
      flashAttention: shape.flashAttention,
      threads: started.threads,
      ignoreMemorySafetyChecks: true,
      failedCreationRemedy: false,
      createSignal,
    };
  }

  #keep(name: string, context: LlamaContext, measuredBytes: number): LlamaLoadedContext {
    const { started, spec, shape, vocabulary, bytes } = this.#parts;
    const pieceTokens = shape.pieceTokens(context.contextSize);
    const { meter } = started;
    const place = `${spec.key} ${name}`;
    const beginCompute = meter === null ? null : (tokens: number): ReturnType<FloorMeter['begin']> => meter.begin(place, tokens);
    const release = async (): Promise<void> => {
      this.#contexts.delete(name);
      meter?.forget(place);
      await bytes.give(name);
    };
    const kept = new LlamaLoadedContext({ name, model: spec.key, context, measuredBytes, measuredBytesByCard: bytes.byCard(name), pieceTokens, vocabulary, beginCompute, release });
    this.#contexts.set(name, kept);
    return kept;
  }

  /**
   * All of it is tried, then the first refusal (a card that does not answer) is thrown. About a mebibyte of the process's
   * own memory stays after each load and unload; it is the allocator's, not the card's.
   */
  async #unload(): Promise<void> {
    const { started, spec, model, bytes, embedder, file, onUnloaded } = this.#parts;
    const contexts = await Promise.allSettled([...this.#contexts.values()].map((context) => context.close()));
    await embedder?.close();
    await model.dispose();
    await file.close();
    onUnloaded(this);
    started.context.log('debug', `unloaded ${spec.key}`, { rssBytes: String(process.memoryUsage.rss()) });
    await bytes.giveAll();
    const refused = contexts.find((result) => result.status === 'rejected');
    if (refused !== undefined) throw refused.reason;
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => undefined);
    return result;
  }

  #assertLoaded(): void {
    if (this.#unloading !== null) throw new LeaseholdError('closed', { what: this.#parts.spec.key });
  }
}
