/**
 * Bounds on what an engine does. A process whose loop turns looks alive from
 * outside whatever its engine does; that the engine itself has stopped
 * answering is only seen here. A step that has to end and does not is a broken
 * engine: nothing in this process can free what it holds, so the process ends.
 */
import { LeaseholdError, type Limits } from '../../protocol/index.js';
import { elapsedMs, nowUs } from './clock.js';

export type HungLimit = 'stopTimeoutMs' | 'moveTimeoutMs';

/** An engine that goes on by itself and says nothing for this long is to be stopped. */
type WatchLimit = HungLimit | 'silentStreamMs';

export interface EngineWatchOptions {
  readonly limits: Pick<Limits, WatchLimit | 'stallToleranceMs'>;
  /** Called for each step that did not end in its time. */
  readonly onHung: (error: LeaseholdError) => void;
}

export class EngineWatch {
  readonly #options: EngineWatchOptions;

  constructor(options: EngineWatchOptions) {
    this.#options = options;
  }

  /** Work that ends by itself: moves, contexts, estimates. Settles as `work` does. */
  async bounded<T>(what: string, work: Promise<T>): Promise<T> {
    const stop = this.#hungAfter('moveTimeoutMs', what);
    try {
      return await work;
    } finally {
      stop();
    }
  }

  /** Work that may take as long as it likes until it is told to stop: loads. Settles as `work` does. */
  async stoppable<T>(what: string, signal: AbortSignal, work: Promise<T>): Promise<T> {
    let stop: () => void = () => undefined;
    const aborted = (): void => { stop = this.#hungAfter('stopTimeoutMs', what); };
    if (signal.aborted) aborted();
    else signal.addEventListener('abort', aborted, { once: true });
    try {
      return await work;
    } finally {
      signal.removeEventListener('abort', aborted);
      stop();
    }
  }

  /** Work that was told to stop just now; the returned function says that it has. */
  stopping(what: string): () => void {
    return this.#hungAfter('stopTimeoutMs', what);
  }

  /** The engine owes the next token; the returned function says that it came. `onSilent` is called, once, when it does not. */
  owing(onSilent: (limitMs: number) => void): () => void {
    const limitMs = this.#options.limits.silentStreamMs;
    return this.#after(limitMs, () => { onSilent(limitMs); });
  }

  #hungAfter(limit: HungLimit, what: string): () => void {
    const { limits, onHung } = this.#options;
    const limitMs = limits[limit];
    return this.#after(limitMs, () => { onHung(new LeaseholdError('engine_hung', { what, limit, limitMs })); });
  }

  /** A timer that comes far too late says that this process itself stood still, and the engine with it: the time begins anew. */
  #after(limitMs: number, onOver: () => void): () => void {
    const { stallToleranceMs } = this.#options.limits;
    let timer: NodeJS.Timeout;
    const start = (): void => {
      const startedUs = nowUs();
      timer = setTimeout(() => {
        if (elapsedMs(startedUs, nowUs()) > limitMs + stallToleranceMs) start();
        else onOver();
      }, limitMs);
      timer.unref();
    };
    start();
    return () => { clearTimeout(timer); };
  }
}
