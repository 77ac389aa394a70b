/**
 * Threads that are there while there is work for them: made with the first task, gone soon after the last. Each seat is a
 * pool of one thread that is given one task at a time, so nothing ever waits inside a pool for a thread that died: a
 * death is the answer of the task that was running, and the next one has a thread of its own.
 */
import { fileURLToPath } from 'node:url';
import type { Transferable } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { bareThread } from './bare-thread.js';
import { Turns } from './turns.js';

export interface ThreadPoolOptions {
  /** What runs in each thread. */
  readonly script: URL;
  readonly threadsMax: number;
  /** Of one thread's heap; one that takes more ends alone, and its task with it. */
  readonly heapBytesMax: number;
  /** A thread that nobody needed for so long ends; a second where nothing is said. */
  readonly idleMs?: number;
}

export interface RunOptions {
  /** Longest that the task may take once it has a thread. Null: it ends by itself. */
  readonly limitMs: number | null;
  /** Ends the waiting for a thread at once, and a thread that is still at it after `graceMs` (0). */
  readonly signal?: AbortSignal;
  readonly graceMs?: number;
  readonly transferList?: readonly Transferable[];
}

/** A task that has no outcome since its thread has ended: over time, out of memory, or by itself. */
export class ThreadEnded extends Error {
  constructor(readonly how: 'time' | 'memory' | 'itself', cause: unknown) {
    super(`the thread ended (${how})`, { cause });
  }
}

const usualIdleMs = 1_000;
const youngHeapMiB = 32;

type Seat<Task, Outcome> = Promise<Piscina<Task, Outcome>>;

export class ThreadPool<Task, Outcome> {
  readonly #options: ThreadPoolOptions;
  readonly #turns: Turns;
  readonly #free: Seat<Task, Outcome>[] = [];
  readonly #all = new Set<Seat<Task, Outcome>>();

  constructor(options: ThreadPoolOptions) {
    this.#options = options;
    this.#turns = new Turns(options.threadsMax);
  }

  /** Rejects with what the task threw, with `ThreadEnded`, or with the signal's reason. */
  run(task: Task, options: RunOptions): Promise<Outcome> {
    return this.#turns.take(async () => {
      const seat = this.#free.pop() ?? this.#newSeat();
      try {
        return await this.#runIn(await seat, task, options);
      } finally {
        if (this.#all.has(seat)) this.#free.push(seat);
      }
    }, options.signal);
  }

  /** Ends the threads; what runs is rejected. */
  async close(): Promise<void> {
    const seats = [...this.#all];
    this.#all.clear();
    this.#free.length = 0;
    await Promise.all(seats.map(async (seat) => (await seat).destroy()));
  }

  async #runIn(pool: Piscina<Task, Outcome>, task: Task, { limitMs, signal, graceMs = 0, transferList = [] }: RunOptions): Promise<Outcome> {
    signal?.throwIfAborted();
    const end = new AbortController();
    const timers: NodeJS.Timeout[] = [];
    const endIn = (ms: number): void => { timers.push(setTimeout(() => { end.abort(); }, ms)); };
    const stop = (): void => { endIn(graceMs); };
    if (limitMs !== null) endIn(limitMs);
    signal?.addEventListener('abort', stop, { once: true });
    const watch = watchFor(pool);
    try {
      return await Promise.race([pool.run(task, { transferList: [...transferList], signal: end.signal }), watch.death]);
    } catch (error) {
      signal?.throwIfAborted();
      if (end.signal.aborted) throw new ThreadEnded('time', error);
      if (!watch.isGone()) throw error;
      throw new ThreadEnded(codeOf(error) === 'ERR_WORKER_OUT_OF_MEMORY' ? 'memory' : 'itself', error);
    } finally {
      watch.end();
      timers.forEach(clearTimeout);
      signal?.removeEventListener('abort', stop);
    }
  }

  #newSeat(): Seat<Task, Outcome> {
    const seat = this.#start();
    this.#all.add(seat);
    return seat;
  }

  async #start(): Promise<Piscina<Task, Outcome>> {
    const { script, heapBytesMax, idleMs = usualIdleMs } = this.#options;
    const { Piscina } = await import('piscina');
    const pool = new Piscina<Task, Outcome>({
      filename: fileURLToPath(script),
      minThreads: 0,
      maxThreads: 1,
      idleTimeout: idleMs,
      // Synchronous waiting would keep a thread from hearing its port.
      atomics: 'disabled',
      recordTiming: false,
      // The bounds of its heap are for its tasks.
      ...bareThread(),
      resourceLimits: { maxOldGenerationSizeMb: Math.ceil(heapBytesMax / 1024 ** 2), maxYoungGenerationSizeMb: youngHeapMiB },
    });
    // Of a thread without a task: given up in time, it may run out of memory later. Whoever has a task watches as well.
    pool.on('error', () => undefined);
    return pool;
  }
}

interface Watch {
  /** Rejects a little after the thread of the task has gone. */
  readonly death: Promise<never>;
  isGone(): boolean;
  end(): void;
}

/**
 * What a pool does not tell a task that waits for a thread: that the thread died while it started. One that dies later is
 * told by the pool first. Errors of a thread that was given up before are not this task's.
 */
function watchFor<Task, Outcome>(pool: Piscina<Task, Outcome>): Watch {
  let isGone = false;
  let end = (): void => undefined;
  const death = new Promise<never>((_, reject) => {
    let cause: unknown = null;
    const gone = (): void => {
      isGone = true;
      setImmediate(() => { reject(cause instanceof Error ? cause : new Error('it left')); });
    };
    const failed = (error: unknown): void => { if (isGone) cause ??= error; };
    pool.on('workerDestroy', gone).on('error', failed);
    end = () => { pool.off('workerDestroy', gone).off('error', failed); };
  });
  return { death, isGone: () => isGone, end };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
