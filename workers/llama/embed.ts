/** Vectors for texts, on a context of their own that an embedding model opens when it is loaded. */
import type { LlamaEmbeddingContext, LlamaModel } from 'node-llama-cpp';
import { LeaseholdError } from '../../protocol/index.js';
import { createOn } from './dispose-guard.js';

export interface Embeddings {
  readonly vectors: readonly (readonly number[])[];
  readonly promptTokens: number;
}

export interface EmbedderOptions {
  readonly model: LlamaModel;
  readonly name: string;
  readonly contextTokens: number;
  readonly threads: number;
}

export class Embedder {
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  private constructor(private readonly context: LlamaEmbeddingContext, private readonly options: EmbedderOptions) {}

  static async open(options: EmbedderOptions, signal: AbortSignal): Promise<Embedder> {
    const { model, contextTokens, threads } = options;
    // The whole input in one batch: pooling sees one batch at a time, and an encoder asserts it.
    const sizes = { contextSize: contextTokens, batchSize: contextTokens };
    const context = await createOn(model, () => model.createEmbeddingContext({ ...sizes, threads, createSignal: signal, ignoreMemorySafetyChecks: true }));
    return new Embedder(context, options);
  }

  /** One call at a time. An abort is seen between two inputs. Rejects with `context_too_small` before any is evaluated. */
  embed(inputs: readonly string[], signal: AbortSignal): Promise<Embeddings> {
    const result = this.#turn.then(() => this.#embed(inputs, signal));
    this.#turn = result.catch(() => undefined);
    return result;
  }

  async #embed(inputs: readonly string[], signal: AbortSignal): Promise<Embeddings> {
    if (this.#closed) throw new LeaseholdError('closed', { what: this.options.name });
    const promptTokens = inputs.reduce((sum, input) => sum + this.#tokensOf(input), 0);
    const vectors: (readonly number[])[] = [];
    for (const input of inputs) {
      signal.throwIfAborted();
      vectors.push(await this.#vector(input));
    }
    return { vectors, promptTokens };
  }

  async #vector(input: string): Promise<readonly number[]> {
    try {
      return (await this.context.getEmbeddingFor(input)).vector;
    } catch (error) {
      throw LeaseholdError.from(error, 'generation_failed', { model: this.options.name });
    }
  }

  #tokensOf(input: string): number {
    const tokens = this.context.calculateInputLength(input);
    const { contextTokens } = this.options;
    if (tokens === 0) throw new LeaseholdError('input_invalid', { field: 'inputs', reason: 'one of them is empty' });
    if (tokens >= contextTokens) throw new LeaseholdError('context_too_small', { promptTokens: tokens, contextTokens });
    return tokens;
  }

  /** Waits for the call that runs, then frees. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn;
    await this.context.dispose();
  }
}
