/**
 * The tries of one call, each before a token was sent: a worker that is lost is replaced, once, and so is a card that can
 * never hold the model. A way that is lost, to a worker or to a broker that ends, is sought again within the deadline.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError } from '../../protocol/index.js';
import type { Log } from '../../broker/shell/index.js';
import { Patience } from '../client/patience.js';
import type { WorkerCaller } from '../client/index.js';
import type { Served } from './catalogue.js';
import type { Link } from './link.js';
import type { CallOptions } from './types.js';

/** A call may lose so many workers less one: each may have cost a load, and it may be the call that ends them. */
const workersMax = 2;
/** So often a way to a worker or a broker is sought that was lost without a word. */
const waysMax = 8;
const firstPauseMs = 50;
const lastPauseMs = 1_000;

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
  #workersLeft = workersMax;
  #waysLeft = waysMax;
  #pauseMs = firstPauseMs;
  #link: Link | null = null;
  #generation: string | null = null;
  /** Why the try before this one failed. */
  #lost: LeaseholdError | null = null;
  #wasMisplaced = false;

  constructor(parts: AttemptsParts, served: Served, options: CallOptions) {
    this.#parts = parts;
    this.#served = served;
    this.#options = { ...options, class: options.class ?? served.class };
    this.#deadlineMs = options.deadlineMs ?? parts.requestDeadlineMs;
  }

  /** Finds a worker. Every try keeps the age and the deadline of the first. */
  async next(): Promise<Attempt> {
    this.#generation = null;
    this.#link = null;
    this.#link = await this.#wayToBroker();
    const { ageMs } = this;
    const { callers } = this.#link;
    const placement = await callers.place(this.#served, this.#withTimeLeft(), ageMs);
    this.#generation = placement.generation;
    const caller = await this.#within(callers.open(placement), 'reaching its worker', this.#leftText());
    return { caller, options: this.#withTimeLeft() };
  }

  /** Resolves when another try is worth it; else throws why the call failed, with how its worker ended when it did. */
  async failed(error: unknown): Promise<void> {
    if (this.#isMisplaced(error)) {
      this.#wasMisplaced = true;
      return;
    }
    const { signal } = this.#options;
    // Our own reason says more than that the call was cancelled: the orchestrator was closed, or its reader has left.
    if (signal?.aborted === true) throw signal.reason instanceof LeaseholdError ? signal.reason : LeaseholdError.from(error);
    const wasLost = isLostWorker(error);
    // By then the broker knows of the end, too, and does not send the next try to the same worker.
    const explained = wasLost && !isRefusal(error) && this.#link !== null ? await this.#link.obituaries.explain(error, this.#generation) : LeaseholdError.from(error);
    // Without a broker within reach there is nobody to ask again; whoever looked for one has looked long enough.
    if (!wasLost || this.#link === null || tokensReceived(error) > 0 || !this.#mayGoOn(explained)) throw this.#told(this.#asAsked(explained));
    this.#lost = explained;
    this.#parts.log.warn({ model: this.#served.name, generation: this.#generation, reason: explained.message }, 'lost before its first token; placing the call anew');
    // A crowd that was cut off together does not come back together.
    const thisPauseMs = this.#pauseMs * (1 + Math.random());
    this.#pauseMs = Math.min(lastPauseMs, 2 * this.#pauseMs);
    // Whoever aborts meanwhile is told by the next try, as everywhere.
    await pause(thisPauseMs, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
  }

  /**
   * Counts what was lost. A broker that says that it ends is followed by another, or by none: that is the deadline's to
   * judge. A worker that does is one that we were sent to.
   */
  #mayGoOn({ code }: LeaseholdError): boolean {
    if (code === 'worker_exited' || code === 'worker_silent') this.#workersLeft -= 1;
    else if (code !== 'shutting_down' || this.#generation !== null) this.#waysLeft -= 1;
    return this.#workersLeft > 0 && this.#waysLeft > 0 && this.#timeLeftMs > this.#pauseMs;
  }

  /** Another's broker that ends, or one that starts in its place, takes its time. */
  #wayToBroker(): Promise<Link> {
    return this.#within(this.#parts.link(), 'reaching a broker', 'the last one is gone, and no other has answered yet');
  }

  /** What others wait for, too, and for longer than this call may. */
  #within<T>(promise: Promise<T>, what: string, reason: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const patience = new Patience(() => { reject(new LeaseholdError('deadline_passed', { what, deadlineMs: this.#deadlineMs, reason })); });
      patience.wait(this.#timeLeftMs);
      unlessAborted(promise, this.#options.signal).then(resolve, reject).finally(() => { patience.end(); });
    });
  }

  /** It was placed by no more than its name, on a card that can never hold it; from now on the broker knows its size. */
  #isMisplaced(error: unknown): boolean {
    const { code, details } = LeaseholdError.from(error);
    // No other card is large enough: it says so, and that stands.
    if (details['elsewhere'] === '') return false;
    return code === 'never_fits' && this.#generation !== null && this.#served.device === null && !this.#wasMisplaced && this.#options.signal?.aborted !== true;
  }

  /** The model backs off because its worker was lost in the load: the caller is told of the worker, and when to come again. */
  #told(error: LeaseholdError): LeaseholdError {
    if (this.#lost === null || error.code !== 'backing_off') return error;
    const { code, details } = this.#lost;
    return new LeaseholdError(code, { ...details, retryAfterMs: error.details['retryAfterMs'] ?? null }, { cause: error });
  }

  /** What was left of the time when it was asked is nobody's business: the deadline is told as it was given. Another's patience is not ours. */
  #asAsked(error: LeaseholdError): LeaseholdError {
    if (error.code !== 'deadline_passed' || error.details['waitedMs'] !== undefined) return error;
    return new LeaseholdError(error.code, { ...error.details, deadlineMs: this.#deadlineMs }, { cause: error });
  }

  /** So little time says nothing of the worker. */
  #leftText(): string {
    const leftMs = Math.floor(this.#timeLeftMs);
    return leftMs === 0 ? 'none of that was left when it was found' : `it had not answered within the ${String(leftMs)} ms that were left`;
  }

  #withTimeLeft(): CallOptions & { readonly deadlineMs: number } {
    return { ...this.#options, deadlineMs: Math.round(this.#timeLeftMs) };
  }

  /** Since it was first asked. */
  get ageMs(): number {
    return Math.round(performance.now() - this.#startedMs);
  }

  get #timeLeftMs(): number {
    return Math.max(0, this.#deadlineMs - (performance.now() - this.#startedMs));
  }
}

const lostCodes: ReadonlySet<string> = new Set(['connection_lost', 'connect_failed', 'worker_exited', 'generation_stale', 'ticket_refused', 'shutting_down', 'broker_lost']);

/** The worker was lost, or the way to it or to the broker. A refusal of the broker or the engine stands. */
function isLostWorker(error: unknown): boolean {
  return lostCodes.has(LeaseholdError.from(error).code);
}

/** Said by a worker that ends, which its broker knows by then: there is nothing to wait for. */
function isRefusal(error: unknown): boolean {
  return LeaseholdError.from(error).code === 'shutting_down' && tokensReceived(error) === 0;
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
