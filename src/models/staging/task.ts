/** What goes into a staging thread and comes back. */
import type { ErrorCode } from '../../../protocol/index.js';

/** The hash that a file must have: sha256, or git's own of a blob. */
export interface WantedHash {
  readonly algorithm: 'sha256' | 'git';
  /** Lower case. */
  readonly hex: string;
}

export interface TransferTask {
  readonly kind: 'transfer';
  readonly url: string;
  /** Value of an Authorization header. */
  readonly authorization: string | null;
  /** Exists; what is in it is the beginning of the file, or is found out to be none. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly hash: WantedHash;
  readonly answerMs: number;
  readonly silentMs: number;
  readonly control: SharedArrayBuffer;
}

export interface HashTask {
  readonly kind: 'hash';
  readonly path: string;
  readonly sizeBytes: number;
  readonly algorithm: WantedHash['algorithm'];
  readonly control: SharedArrayBuffer;
}

export interface CopyTask {
  readonly kind: 'copy';
  readonly from: string;
  /** Exists and is empty. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly algorithm: WantedHash['algorithm'];
  readonly control: SharedArrayBuffer;
}

export type StagingTask = TransferTask | HashTask | CopyTask;

export type TransferOutcome =
  | { readonly kind: 'done'; readonly hex: string }
  /** The bytes are others than were announced. Nothing of them is kept, but of a `short` one, which may be a beginning. */
  | { readonly kind: 'wrong'; readonly what: 'short' | 'long' | 'hash'; readonly actual: string; readonly expected: string }
  /** A hub that does not deliver: an answer to be judged by the side that knows what was asked. */
  | { readonly kind: 'refused'; readonly status: number; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'failed'; readonly code: ErrorCode; readonly details: Readonly<Record<string, string>> };

/** Two counters that both sides see: bytes done, and whether to stop. */
export class Control {
  readonly shared: SharedArrayBuffer;
  readonly #counters: BigInt64Array;

  constructor(shared: SharedArrayBuffer = new SharedArrayBuffer(16)) {
    this.shared = shared;
    this.#counters = new BigInt64Array(shared);
  }

  get doneBytes(): number {
    return Number(Atomics.load(this.#counters, 0));
  }

  set doneBytes(bytes: number) {
    Atomics.store(this.#counters, 0, BigInt(bytes));
  }

  get stopped(): boolean {
    return Atomics.load(this.#counters, 1) !== 0n;
  }

  stop(): void {
    Atomics.store(this.#counters, 1, 1n);
  }
}
