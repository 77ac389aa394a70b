/** Vectors for texts, on a context of their own that an embedding model opens when it is loaded. */
import type { LlamaContext, LlamaContextSequence, LlamaEmbeddingContext, LlamaModel, Token } from 'node-llama-cpp';
import { LeaseholdError } from '../../protocol/index.js';
import { createOn } from './dispose-guard.js';
import type { FloorMeter } from './floor-meter.js';
import { orAbort } from './or-abort.js';
import { piecesOf } from './prefill.js';
import type { Vocabulary } from './vocabulary.js';

export interface Embeddings {
  readonly vectors: readonly (readonly number[])[];
  readonly promptTokens: number;
}

export interface EmbedderOptions {
  readonly model: LlamaModel;
  readonly name: string;
  readonly contextTokens: number;
  readonly batchTokens: number;
  /** Tokens evaluated between two looks at the signal; as many as the context holds where an input must be taken whole. */
  readonly pieceTokens: number;
  readonly threads: number;
  readonly meter: FloorMeter | null;
  readonly vocabulary: Pick<Vocabulary, 'fewestTokens' | 'textTokens'>;
}

/** What the bindings keep to themselves: they evaluate an input in one go, and that cannot be stopped. */
interface Inside {
  readonly _sequence: LlamaContextSequence;
  readonly _llamaContext: LlamaContext & { readonly _ctx: { getEmbedding(tokens: number): Float64Array } };
  /** Adds the tokens that the model wants at both ends. */
  _prepareInput(tokens: Token[]): void;
}

export class Embedder {
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;
  readonly #inside: Inside;

  private constructor(private readonly context: LlamaEmbeddingContext, private readonly options: EmbedderOptions) {
    this.#inside = context as unknown as Inside;
  }

  static async open(options: EmbedderOptions, signal: AbortSignal): Promise<Embedder> {
    const { model, contextTokens, batchTokens, threads } = options;
    const sizes = { contextSize: contextTokens, batchSize: batchTokens };
    const context = await createOn(model, () => model.createEmbeddingContext({ ...sizes, threads, createSignal: signal, ignoreMemorySafetyChecks: true }));
    return new Embedder(context, options);
  }

  /**
   * One call at a time; rejects with `context_too_small` before anything is evaluated. An abort rejects at once, also
   * while it waits for its turn. What is being evaluated then goes on to the end of its piece, and the next turn comes
   * after it: a piece is short, but for models that take an input whole it is the whole input, at most the context.
   */
  embed(inputs: readonly string[], signal: AbortSignal): Promise<Embeddings> {
    const work = this.#turn.then(() => this.#embed(inputs, signal));
    this.#turn = work.catch(() => undefined);
    return orAbort(work, signal);
  }

  async #embed(inputs: readonly string[], signal: AbortSignal): Promise<Embeddings> {
    if (this.#closed) throw new LeaseholdError('closed', { what: this.options.name });
    signal.throwIfAborted();
    const tokens = inputs.map((input) => this.#tokensOf(input));
    const vectors: (readonly number[])[] = [];
    for (const each of tokens) vectors.push(await this.#vector(each, signal));
    return { vectors, promptTokens: tokens.reduce((sum, each) => sum + each.length, 0) };
  }

  async #vector(tokens: readonly Token[], signal: AbortSignal): Promise<readonly number[]> {
    const { _sequence: sequence, _llamaContext: context } = this.#inside;
    const { pieceTokens, meter, name } = this.options;
    const computed = await meter?.begin(name, Math.min(pieceTokens, tokens.length));
    try {
      await sequence.clearHistory();
      for (const { from, to } of piecesOf(0, tokens.length, pieceTokens)) {
        signal.throwIfAborted();
        await sequence.evaluateWithoutGeneratingNewTokens(tokens.slice(from, to));
      }
      computed?.();
      return Array.from(context._ctx.getEmbedding(tokens.length));
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw LeaseholdError.from(error, 'generation_failed', { model: name });
    }
  }

  #tokensOf(input: string): readonly Token[] {
    const { vocabulary, contextTokens } = this.options;
    const fewest = vocabulary.fewestTokens(input);
    if (fewest >= contextTokens) throw new LeaseholdError('context_too_small', { promptTokens: `at least ${String(fewest)}`, contextTokens });
    const tokens = vocabulary.textTokens(input);
    if (tokens.length > 0) this.#inside._prepareInput(tokens);
    if (tokens.length === 0) throw new LeaseholdError('input_invalid', { field: 'inputs', reason: 'one of them is empty' });
    if (tokens.length >= contextTokens) throw new LeaseholdError('context_too_small', { promptTokens: tokens.length, contextTokens });
    return tokens;
  }

  /** Waits for what is being evaluated, then frees. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn;
    await this.context.dispose();
    this.options.meter?.forget(this.options.name);
  }
}
