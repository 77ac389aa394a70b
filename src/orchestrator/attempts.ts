/** The tries of one call: a worker that is lost before it sent a token is replaced, once. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Log } from '../../broker/shell/index.js';
import type { WorkerCaller } from '../client/index.js';
import type { Callers } from './callers.js';
import type { Served } from './catalogue.js';
import type { Obituaries } from './obituaries.js';
import type { CallOptions } from './types.js';

/** A call is placed at most so often; each time without a token having been sent. */
const attemptsMax = 2;

export interface AttemptsParts {
  readonly callers: Callers;
  readonly obituaries: Obituaries;
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
  #generation: string | null = null;
  /** Why the first try failed, when there is a second. */
  #lost: LeaseholdError | null = null;

  constructor(parts: AttemptsParts, served: Served, options: CallOptions) {
    this.#parts = parts;
    this.#served = served;
    this.#options = { ...options, class: options.class ?? served.class };
    this.#deadlineMs = options.deadlineMs ?? parts.requestDeadlineMs;
  }

  /** Finds a worker. The second try keeps the age and the deadline of the first. */
  async next(): Promise<Attempt> {
    this.#generation = null;
    const ageMs = Math.round(performance.now() - this.#startedMs);
    const caller = await this.#parts.callers.find(this.#served, this.#withTimeLeft(), ageMs);
    this.#generation = caller.generation;
    return { caller, options: this.#withTimeLeft() };
  }

  /** Resolves when another try is worth it; else throws why the call failed, with how its worker ended when it did. */
  async failed(error: unknown): Promise<void> {
    this.#left -= 1;
    const aborted = this.#options.signal?.aborted === true;
    const wasLost = !aborted && isLostWorker(error);
    // By then the broker knows of the end, too, and does not send the next try to the same worker.
    const explained = wasLost ? await this.#parts.obituaries.explain(error, this.#generation) : LeaseholdError.from(error);
    if (this.#left === 0 || !wasLost || tokensReceived(error) > 0) throw this.#told(explained);
    this.#lost = explained;
    this.#parts.log.warn({ model: this.#served.name, generation: this.#generation, reason: explained.message }, 'the worker was lost before its first token; placing the call anew');
  }

  /** The model backs off because its worker was lost in the load: the caller is told of the worker, and when to come again. */
  #told(error: LeaseholdError): LeaseholdError {
    if (this.#lost === null || error.code !== 'backing_off') return error;
    const { code, details } = this.#lost;
    return new LeaseholdError(code, { ...details, retryAfterMs: error.details['retryAfterMs'] ?? null }, { cause: error });
  }

  #withTimeLeft(): CallOptions & { readonly deadlineMs: number } {
    const passedMs = performance.now() - this.#startedMs;
    return { ...this.#options, deadlineMs: Math.max(0, Math.round(this.#deadlineMs - passedMs)) };
  }
}

const lostCodes: ReadonlySet<string> = new Set(['connection_lost', 'connect_failed', 'worker_exited', 'generation_stale', 'ticket_refused', 'shutting_down']);

/** The worker was lost, or the way to it. A refusal of the broker or the engine stands. */
function isLostWorker(error: unknown): boolean {
  return lostCodes.has(LeaseholdError.from(error).code);
}

function tokensReceived(error: unknown): number {
  return Number(LeaseholdError.from(error).details['tokensReceived'] ?? 0);
}
