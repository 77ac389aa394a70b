/** The threads that hash, copy and fetch: at most so many at once, none while there is nothing to do. */
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { Control, type StagingTask, type TransferOutcome } from './task.js';

export type ThreadLimits = Pick<Limits, 'hubReadsMax' | 'modelThreadMs' | 'modelThreadBytesMax'>;

type Piscina = import('piscina').Piscina<StagingTask, TransferOutcome>;

type WithoutControl<T> = T extends StagingTask ? Omit<T, 'control'> : never;
export type StagingWork = WithoutControl<StagingTask>;

/** Waiting for bytes takes no core: a few more threads than cores. */
const threadsAtLeast = 4;
const idleMs = 1_000;
/** A thread that was told to stop looks at it with every piece; one that does not is stuck in the system. */
const stopMs = 2_000;

export class StagingThreads {
  readonly #limits: ThreadLimits;
  readonly atOnce: number;
  #pool: Promise<Piscina> | null = null;

  constructor(limits: ThreadLimits) {
    this.#limits = limits;
    this.atOnce = Math.min(limits.hubReadsMax, Math.max(threadsAtLeast, availableParallelism()));
  }

  /** Runs one task. `onBytes` hears how far it is, from time to time. Rejects with the signal's reason; with `store_unusable` when reading a file takes too long. */
  async run(work: StagingWork, signal: AbortSignal, onBytes: (control: Control) => void = () => undefined): Promise<TransferOutcome> {
    signal.throwIfAborted();
    const pool = await (this.#pool ??= this.#start());
    const control = new Control();
    onBytes(control);
    const end = new AbortController();
    const timers: NodeJS.Timeout[] = [];
    // A transfer ends by its own silence; reading a file has nothing that could end it.
    if (work.kind !== 'transfer') timers.push(setTimeout(() => { end.abort(); }, this.#limits.modelThreadMs));
    const stop = (): void => {
      control.stop();
      timers.push(setTimeout(() => { end.abort(); }, stopMs));
    };
    signal.addEventListener('abort', stop, { once: true });
    try {
      const outcome = await pool.run({ ...work, control: control.shared }, { signal: end.signal });
      signal.throwIfAborted();
      return outcome;
    } catch (error) {
      signal.throwIfAborted();
      if (end.signal.aborted) throw new LeaseholdError('store_unusable', { path: work.path, reason: `reading it took longer than ${String(this.#limits.modelThreadMs)} ms` }, { cause: error });
      throw LeaseholdError.from(error);
    } finally {
      timers.forEach(clearTimeout);
      signal.removeEventListener('abort', stop);
    }
  }

  async close(): Promise<void> {
    const pool = await this.#pool;
    this.#pool = null;
    await pool?.destroy();
  }

  async #start(): Promise<Piscina> {
    const { Piscina } = await import('piscina');
    return new Piscina({
      filename: fileURLToPath(new URL('./thread.js', import.meta.url)),
      minThreads: 0,
      maxThreads: this.atOnce,
      idleTimeout: idleMs,
      atomics: 'disabled',
      recordTiming: false,
      resourceLimits: { maxOldGenerationSizeMb: Math.ceil(this.#limits.modelThreadBytesMax / 1024 ** 2), maxYoungGenerationSizeMb: 32 },
    });
  }
}
