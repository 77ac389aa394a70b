/** Threads that are there while there is work for them: made with the first task, gone soon after the last. */
import { fileURLToPath } from 'node:url';
import type { Piscina } from 'piscina';

export interface ThreadPoolOptions {
  /** What runs in each thread. */
  readonly script: URL;
  readonly threadsMax: number;
  /** Of one thread's heap; one that takes more ends alone, and its task with `ERR_WORKER_OUT_OF_MEMORY`. */
  readonly heapBytesMax: number;
}

/** A thread that nobody needed for so long ends. */
const idleMs = 1_000;
const youngHeapMiB = 32;

export class ThreadPool<Task, Outcome> {
  readonly #options: ThreadPoolOptions;
  #pool: Promise<Piscina<Task, Outcome>> | null = null;

  constructor(options: ThreadPoolOptions) {
    this.#options = options;
  }

  /** The pool itself, so that deadlines of tasks are counted from when it is there. */
  ready(): Promise<Piscina<Task, Outcome>> {
    return this.#pool ??= this.#start();
  }

  /** Ends the threads; what runs is rejected. */
  async close(): Promise<void> {
    const pool = await this.#pool;
    this.#pool = null;
    await pool?.destroy();
  }

  async #start(): Promise<Piscina<Task, Outcome>> {
    const { script, threadsMax, heapBytesMax } = this.#options;
    const { Piscina } = await import('piscina');
    const pool = new Piscina<Task, Outcome>({
      filename: fileURLToPath(script),
      minThreads: 0,
      maxThreads: threadsMax,
      idleTimeout: idleMs,
      // Synchronous waiting would keep a thread from hearing its port.
      atomics: 'disabled',
      recordTiming: false,
      resourceLimits: { maxOldGenerationSizeMb: Math.ceil(heapBytesMax / 1024 ** 2), maxYoungGenerationSizeMb: youngHeapMiB },
    });
    // Only of a thread that nobody waits for: what was given up in time may run out of memory later. The next task starts another.
    pool.on('error', () => undefined);
    return pool;
  }
}
