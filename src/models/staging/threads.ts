/** The threads that hash, copy and fetch: at most so many at once, none while there is nothing to do. */
import { availableParallelism } from 'node:os';
import { LeaseholdError, durationText, type Limits } from '../../../protocol/index.js';
import { ThreadEnded, ThreadPool } from '../threads/thread-pool.js';
import { Control, type StagingTask, type TransferOutcome } from './task.js';

export type ThreadLimits = Pick<Limits, 'hubReadsMax' | 'modelThreadMs' | 'modelThreadBytesMax'>;

type WithoutControl<T> = T extends StagingTask ? Omit<T, 'control'> : never;
export type StagingWork = WithoutControl<StagingTask>;

/** Waiting for bytes takes no core: a few more threads than cores. */
const threadsAtLeast = 4;
/** A thread that was told to stop looks at it with every piece; one that does not is stuck in the system. */
const stopMs = 2_000;

const endings: Readonly<Record<ThreadEnded['how'], (limits: ThreadLimits) => string>> = {
  time: ({ modelThreadMs }) => `reading it took longer than ${durationText(modelThreadMs)}`,
  memory: ({ modelThreadBytesMax }) => `its thread took more than ${String(modelThreadBytesMax)} bytes of memory`,
  itself: () => 'its thread ended',
};

export class StagingThreads {
  readonly #limits: ThreadLimits;
  readonly atOnce: number;
  readonly #pool: ThreadPool<StagingTask, TransferOutcome>;

  constructor(limits: ThreadLimits) {
    this.#limits = limits;
    this.atOnce = Math.min(limits.hubReadsMax, Math.max(threadsAtLeast, availableParallelism()));
    this.#pool = new ThreadPool({ script: new URL('./thread.js', import.meta.url), threadsMax: this.atOnce, heapBytesMax: limits.modelThreadBytesMax });
  }

  /** Runs one task. `onBytes` hears how far it is, from time to time. Rejects with the signal's reason; with `store_unusable` when reading a file takes too long, or the thread ends. */
  async run(work: StagingWork, signal: AbortSignal, onBytes: (control: Control) => void = () => undefined): Promise<TransferOutcome> {
    signal.throwIfAborted();
    const control = new Control();
    onBytes(control);
    const stop = (): void => { control.stop(); };
    // A transfer ends by its own silence; reading a file has nothing that could end it.
    const limitMs = work.kind === 'transfer' ? null : this.#limits.modelThreadMs;
    signal.addEventListener('abort', stop, { once: true });
    try {
      const outcome = await this.#pool.run({ ...work, control: control.shared }, { limitMs, signal, graceMs: stopMs });
      signal.throwIfAborted();
      return outcome;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ThreadEnded)) throw LeaseholdError.from(error);
      throw new LeaseholdError('store_unusable', { path: work.path, reason: endings[error.how](this.#limits) }, { cause: error });
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}
