/** One context of a loaded model: one sequence, kept for the context's whole life, that runs one call at a time. */
import type { LlamaContext, LlamaContextSequence } from 'node-llama-cpp';
import { LeaseholdError } from '../../protocol/index.js';
import type { GenerateCall, GenerateEvent, LoadedContext } from '../runtime/engine.js';
import { generate, prepare, type History } from './generation.js';
import type { Vocabulary } from './vocabulary.js';

export interface ContextParts {
  readonly name: string;
  readonly model: string;
  readonly context: LlamaContext;
  readonly measuredBytes: number;
  readonly measuredBytesByCard: LoadedContext['measuredBytesByCard'];
  readonly pieceTokens: number;
  readonly vocabulary: Vocabulary;
  /** Told before more is computed at once than before; null where nobody measures. */
  readonly beginCompute: History['beginCompute'] | null;
  /** Gives the context's bytes back, after it has been disposed. */
  readonly release: () => Promise<void>;
}

export class LlamaLoadedContext implements LoadedContext {
  readonly name: string;
  readonly tokens: number;
  readonly measuredBytes: number;
  readonly measuredBytesByCard: LoadedContext['measuredBytesByCard'];
  readonly #parts: ContextParts;
  readonly #history: History;
  #busy = false;
  /** The evaluation under way; settles without an error. */
  #step: Promise<unknown> = Promise.resolve();
  #closing: Promise<void> | null = null;
  #stop: AbortController | null = null;

  constructor(parts: ContextParts) {
    this.#parts = parts;
    this.name = parts.name;
    this.tokens = parts.context.contextSize;
    this.measuredBytes = parts.measuredBytes;
    this.measuredBytesByCard = parts.measuredBytesByCard;
    const { context, pieceTokens, beginCompute } = parts;
    this.#history = {
      sequence: firstSequence(context), contextTokens: context.contextSize, pieceTokens, exactTokens: 0,
      beginCompute: beginCompute ?? (async () => () => undefined),
    };
  }

  async* generate(call: GenerateCall, signal: AbortSignal): AsyncGenerator<GenerateEvent, void> {
    signal.throwIfAborted();
    if (this.#closing !== null) throw new LeaseholdError('closed', { what: `Context ${this.name} of ${this.#parts.model}` });
    if (this.#busy) throw new LeaseholdError('busy', { model: this.#parts.model, inFlight: 1 });
    this.#busy = true;
    const stop = this.#stop = new AbortController();
    const events = this.#guarded(call, AbortSignal.any([signal, stop.signal]));
    try {
      for (;;) {
        const next = events.next();
        this.#step = next.catch(() => undefined);
        const { done, value } = await next;
        if (done === true) return;
        yield value;
      }
    } finally {
      await events.return();
      this.#stop = null;
      this.#busy = false;
    }
  }

  /**
   * Stops a call that still runs, waits until nothing is being evaluated, then frees. Never the other way round: freed
   * under an evaluation, the engine throws where nobody can catch it and the process ends.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#stop?.abort(new LeaseholdError('request_cancelled', { what: `The call on context ${this.name}` }));
    await this.#step;
    await this.#parts.context.dispose();
    await this.#parts.release();
  }

  /** Whatever goes wrong that is neither an abort nor a refusal leaves an empty sequence behind, never a doubtful one. */
  async* #guarded(call: GenerateCall, signal: AbortSignal): AsyncGenerator<GenerateEvent, void> {
    const { vocabulary, model } = this.#parts;
    const prepared = await prepare(vocabulary, this.tokens, call);
    signal.throwIfAborted();
    try {
      yield* generate(this.#history, vocabulary, prepared, call, signal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      this.#history.exactTokens = 0;
      // Where the context itself is gone, that must not hide why.
      if (!this.#parts.context.disposed) await this.#history.sequence.clearHistory();
      throw LeaseholdError.from(error, 'generation_failed', { model });
    }
  }
}

/** The only one it has. It keeps no checkpoints: they are host memory that nobody leased. */
function firstSequence(context: LlamaContext): LlamaContextSequence {
  return context.getSequence({ checkpoints: { max: 1, interval: false } });
}
