/** The tries of one call: a worker that is lost before it sent a token is replaced, once; so is a card that can never hold the model. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Log } from '../../broker/shell/index.js';
import type { WorkerCaller } from '../client/index.js';
import type { Served } from './catalogue.js';
import type { Link } from './link.js';
import type { CallOptions } from './types.js';

/** A call is placed at most so often for a worker that was lost; each time without a token having been sent. */
const attemptsMax = 2;

export interface AttemptsParts {
  readonly link: () => Promise<Link>;
  readonly log: Log;
  /** For calls that name no deadline. */
  readonly requestDeadlineMs: number;
}

/** One try: the worker, and what is left of the call's time there. */
export interface Attempt {
  readonly caller: WorkerCaller;
  readonly options: CallOptions & { readonly deadlineMs: number };
}

export class Attempts {
  readonly #parts: AttemptsParts;
  readonly #served: Served;
  readonly #options: CallOptions;
  readonly #startedMs = performance.now();
  readonly #deadlineMs: number;
  #left = attemptsMax;
  #link: Link | null = null;
  #generation: string | null = null;
  /** Why the first try failed, when there is a second. */
  #lost: LeaseholdError | null = null;
  #wasMisplaced = false;

  constructor(parts: AttemptsParts, served: Served, options: CallOptions) {
    this.#parts = parts;
    this.#served = served;
    this.#options = { ...options, class: options.class ?? served.class };
    this.#deadlineMs = options.deadlineMs ?? parts.requestDeadlineMs;
  }

  /** Finds a worker. The second try keeps the age and the deadline of the first. */
  async next(): Promise<Attempt> {
    this.#generation = null;
    this.#link = await unlessAborted(this.#parts.link(), this.#options.signal);
    const ageMs = Math.round(performance.now() - this.#startedMs);
    const { callers } = this.#link;
    const placement = await callers.place(this.#served, this.#withTimeLeft(), ageMs);
    this.#generation = placement.generation;
    const caller = await unlessAborted(callers.open(placement), this.#options.signal);
    return { caller, options: this.#withTimeLeft() };
  }

  /** Resolves when another try is worth it; else throws why the call failed, with how its worker ended when it did. */
  async failed(error: unknown): Promise<void> {
    if (this.#isMisplaced(error)) {
      this.#wasMisplaced = true;
      return;
    }
    this.#left -= 1;
    const { signal } = this.#options;
    // Our own reason says more than that the call was cancelled: the orchestrator was closed, or its reader has left.
    if (signal?.aborted === true) throw signal.reason instanceof LeaseholdError ? signal.reason : LeaseholdError.from(error);
    const wasLost = isLostWorker(error);
    // By then the broker knows of the end, too, and does not send the next try to the same worker.
    const explained = wasLost && this.#link !== null ? await this.#link.obituaries.explain(error, this.#generation) : LeaseholdError.from(error);
    if (this.#left === 0 || !wasLost || tokensReceived(error) > 0) throw this.#told(this.#asAsked(explained));
    this.#lost = explained;
    this.#parts.log.warn({ model: this.#served.name, generation: this.#generation, reason: explained.message }, 'the worker was lost before its first token; placing the call anew');
  }

  /** It was placed by no more than its name, on a card that can never hold it; from now on the broker knows its size. */
  #isMisplaced(error: unknown): boolean {
    const { code } = LeaseholdError.from(error);
    return code === 'never_fits' && this.#generation !== null && this.#served.device === null && !this.#wasMisplaced && this.#options.signal?.aborted !== true;
  }

  /** The model backs off because its worker was lost in the load: the caller is told of the worker, and when to come again. */
  #told(error: LeaseholdError): LeaseholdError {
    if (this.#lost === null || error.code !== 'backing_off') return error;
    const { code, details } = this.#lost;
    return new LeaseholdError(code, { ...details, retryAfterMs: error.details['retryAfterMs'] ?? null }, { cause: error });
  }

  /** What was left of the time when it was asked is nobody's business: the deadline is told as it was given. */
  #asAsked(error: LeaseholdError): LeaseholdError {
    if (error.code !== 'deadline_passed') return error;
    return new LeaseholdError(error.code, { ...error.details, deadlineMs: this.#deadlineMs }, { cause: error });
  }

  #withTimeLeft(): CallOptions & { readonly deadlineMs: number } {
    const passedMs = performance.now() - this.#startedMs;
    return { ...this.#options, deadlineMs: Math.max(0, Math.round(this.#deadlineMs - passedMs)) };
  }
}

const lostCodes: ReadonlySet<string> = new Set(['connection_lost', 'connect_failed', 'worker_exited', 'generation_stale', 'ticket_refused', 'shutting_down', 'broker_lost']);

/** The worker was lost, or the way to it or to the broker. A refusal of the broker or the engine stands. */
function isLostWorker(error: unknown): boolean {
  return lostCodes.has(LeaseholdError.from(error).code);
}

function tokensReceived(error: unknown): number {
  return Number(LeaseholdError.from(error).details['tokensReceived'] ?? 0);
}

/** The promise, unless the signal aborts first; what it brings after that is nobody's. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => { reject(new LeaseholdError('request_cancelled', { what: 'The call' }, { cause: signal.reason })); };
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => { signal.removeEventListener('abort', abort); });
  });
}
