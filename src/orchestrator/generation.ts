/** A running generation as its caller holds it: an iterator of tokens, and the whole when it is done. */
import { LeaseholdError } from '../../protocol/index.js';
import { LinkedAbort } from './linked-abort.js';
import type { Generation, GenerationResult, Token } from './types.js';

/** How a call ended, without the text: that is gathered here. */
export type GenerationEnd = Omit<GenerationResult, 'text' | 'thought'>;

/** Runs the call: yields tokens as the reader asks for them, returns how it ended, stops when `signal` aborts. */
export type RunGeneration = (signal: AbortSignal) => AsyncGenerator<Token, GenerationEnd, undefined>;

/** Brokers that end one after the other under one answer. */
const repeatsMax = 2;

export class RunningGeneration implements Generation {
  readonly #run: RunGeneration;
  /** Aborts, with the reason, when the orchestrator is closed. */
  readonly #closing: AbortSignal;
  readonly #abort = new AbortController();
  readonly #result: Promise<GenerationResult>;
  #settle: { resolve(result: GenerationResult): void; reject(error: unknown): void } | null = null;
  #taken = false;
  #awaited = false;

  constructor(run: RunGeneration, closing: AbortSignal) {
    this.#run = run;
    this.#closing = closing;
    this.#result = new Promise((resolve, reject) => { this.#settle = { resolve, reject }; });
    // Whoever iterates learns of a failure there; the promise alone must not end the process.
    this.#result.catch(() => undefined);
  }

  [Symbol.asyncIterator](): AsyncIterator<Token, void, undefined> {
    if (this.#taken) throw new LeaseholdError('closed', { what: 'this generation (its tokens can be read once)' });
    this.#taken = true;
    const reader = this.#read(0);
    return {
      next: () => reader.next(),
      // Leaving does not wait for a token that is still awaited.
      return: () => {
        this.#cancel();
        // A reader that was never stepped has nothing in it that would say so.
        this.#settle?.reject(cancelled());
        return reader.return();
      },
    };
  }

  result(): Promise<GenerationResult> {
    if (!this.#taken) void this.#drain();
    if (!this.#awaited) this.#endWithOrchestrator();
    return this.#result;
  }

  /** Whoever waits for the whole would else wait for ever for a reader that steps no further. */
  #endWithOrchestrator(): void {
    this.#awaited = true;
    const end = new LinkedAbort([this.#closing]);
    const reject = (): void => this.#settle?.reject(end.signal.reason);
    if (end.signal.aborted) reject();
    else end.signal.addEventListener('abort', reject, { once: true });
    void this.#result.catch(() => undefined).finally(() => { end.release(); });
  }

  async #drain(): Promise<void> {
    this.#taken = true;
    try {
      for await (const _ of this.#read(repeatsMax)) continue;
    } catch {
      // `result()` has been rejected with it.
    }
  }

  /** `repeats`: so often an answer that its broker cut is asked for again; only where nobody has seen the beginning. */
  async *#read(repeats: number): AsyncGenerator<Token, void, undefined> {
    try {
      const said = { text: '', thought: '' };
      const end = yield* this.#once(said);
      this.#settle?.resolve({ ...end, ...said });
    } catch (error) {
      if (repeats > 0 && !this.#abort.signal.aborted && LeaseholdError.from(error).code === 'answer_cut') {
        yield* this.#read(repeats - 1);
        return;
      }
      // A text that outgrows what a string holds is told like everything else.
      const typed = LeaseholdError.from(error);
      this.#settle?.reject(typed);
      throw typed;
    } finally {
      // Reached when the reader leaves early too: the call is cancelled at every stage it may be in.
      this.#cancel();
      this.#settle?.reject(cancelled());
    }
  }

  async *#once(said: { text: string; thought: string }): AsyncGenerator<Token, GenerationEnd, undefined> {
    const tokens = this.#run(this.#abort.signal);
    for (;;) {
      const next = await tokens.next();
      if (next.done === true) return next.value;
      const token = afterThought(next.value, said);
      said[token.thought ? 'thought' : 'text'] += token.text;
      yield token;
    }
  }

  #cancel(): void {
    this.#abort.abort(cancelled());
  }
}

function cancelled(): LeaseholdError {
  return new LeaseholdError('request_cancelled', { what: 'The generation' });
}

/** The blank lines with which templates part a thought from the answer belong to neither. */
function afterThought(token: Token, said: { readonly text: string; readonly thought: string }): Token {
  const parts = !token.thought && said.thought !== '' && said.text === '';
  return parts ? { ...token, text: token.text.trimStart() } : token;
}
