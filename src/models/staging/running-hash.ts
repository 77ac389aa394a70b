/**
 * The hash of a file while it is being written. A small one is hashed as it comes. A large one is hashed by a second
 * thread, from what the file holds already, so that hashing and receiving take two cores; reading back what was just
 * written costs a tenth of hashing it.
 */
import type { Hash } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { bareThread } from '../threads/bare-thread.js';
import { newHash } from './hashing.js';
import type { WantedHash } from './task.js';

/** Under it, a thread costs more than it saves. */
const behindFromBytes = 32 * 1024 * 1024;

export interface RunningHash {
  /** `piece` is in the file now, which holds `doneBytes` of the whole with it. */
  take(piece: Uint8Array, doneBytes: number): void;
  /** Of all that was taken. Once. Rejects with the signal's reason, and when the file cannot be read. */
  digest(signal: AbortSignal): Promise<string>;
  /** Ends it, whatever it has done. */
  close(): void;
}

export function runningHash(path: string, algorithm: WantedHash['algorithm'], sizeBytes: number): RunningHash {
  return sizeBytes < behindFromBytes ? new HashAsItComes(newHash(algorithm, sizeBytes)) : new HashBehind({ path, algorithm, sizeBytes });
}

class HashAsItComes implements RunningHash {
  constructor(private readonly hash: Hash) {}

  take(piece: Uint8Array): void {
    this.hash.update(piece);
  }

  digest(): Promise<string> {
    return Promise.resolve(this.hash.digest('hex'));
  }

  close(): void {
    // Nothing runs.
  }
}

/** What the thread is given: `written` holds the bytes it may read so far; ~bytes (negative) once they are all. */
export interface HashBehindTask {
  readonly path: string;
  readonly algorithm: WantedHash['algorithm'];
  readonly sizeBytes: number;
  readonly written: BigInt64Array;
}

class HashBehind implements RunningHash {
  readonly #written = new BigInt64Array(new SharedArrayBuffer(8));
  readonly #thread: Worker;
  readonly #result: Promise<string>;
  #doneBytes = 0;

  constructor(task: Omit<HashBehindTask, 'written'>) {
    this.#thread = new Worker(new URL('./running-hash-thread.js', import.meta.url), {
      workerData: { ...task, written: this.#written } satisfies HashBehindTask,
      ...bareThread(),
    });
    this.#result = resultOf(this.#thread);
    // Who asks for it hears of a failure; who closes it first need not.
    this.#result.catch(() => undefined);
  }

  take(_piece: Uint8Array, doneBytes: number): void {
    this.#doneBytes = doneBytes;
    this.#tell(BigInt(doneBytes));
  }

  async digest(signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    this.#tell(~BigInt(this.#doneBytes));
    const gaveUp = new AbortController();
    try {
      const aborted = once(signal, 'abort', { signal: gaveUp.signal }).then(() => { throw signal.reason; });
      return await Promise.race([this.#result, aborted]);
    } finally {
      gaveUp.abort();
      this.close();
    }
  }

  close(): void {
    void this.#thread.terminate();
  }

  #tell(written: bigint): void {
    Atomics.store(this.#written, 0, written);
    Atomics.notify(this.#written, 0);
  }
}

function resultOf(thread: Worker): Promise<string> {
  return new Promise((resolve, reject) => {
    thread.once('message', resolve);
    thread.once('error', reject);
    thread.once('exit', () => { reject(new Error('the thread that hashes ended')); });
  });
}
