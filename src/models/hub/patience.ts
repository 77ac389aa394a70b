/** When a request to a hub is tried again, and after how long. */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';

/** The clock and the chance that pauses are made of. Tests bring their own. */
export interface Pauses {
  /** Rejects with the signal's reason. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  /** 0 to 1. */
  readonly random: () => number;
}

export const realPauses: Pauses = {
  sleep: async (ms, signal) => {
    await pause(ms, undefined, signal === undefined ? {} : { signal }).catch((error: unknown) => {
      signal?.throwIfAborted();
      throw error;
    });
  },
  random: Math.random,
};

/** The hub asks for less: 429, 5xx. `askedMs` is what its Retry-After says, or null. */
export class BusyHub extends LeaseholdError {
  readonly askedMs: number | null;

  constructor(endpoint: string, status: number, askedMs: number | null) {
    super('hub_unreachable', { endpoint, reason: status === 429 ? 'it has had too many requests from here (429)' : `it has trouble of its own (${String(status)})` });
    this.askedMs = askedMs;
  }
}

/** A hub that is not there is not there soon after either: a person waits. */
const unreachableAttemptsMax = 3;
const firstPauseMs = 500;

/**
 * Retries what the network or a busy hub did to `attempt`; everything else (401, 403, 404, a wrong answer) is final. All
 * requests of one `Patience` keep the pause that one of them was asked for.
 */
export class Patience {
  readonly #limits: Pick<Limits, 'hubAttemptsMax' | 'hubPauseMaxMs'>;
  readonly #pauses: Pauses;
  /** A pause that all keep, as long as it lasts. */
  #quiet: Promise<void> | null = null;

  constructor(limits: Pick<Limits, 'hubAttemptsMax' | 'hubPauseMaxMs'>, pauses: Pauses) {
    this.#limits = limits;
    this.#pauses = pauses;
  }

  async run<T>(attempt: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let tries = 1; ; tries++) {
      await this.#quiet;
      signal?.throwIfAborted();
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof LeaseholdError) || error.code !== 'hub_unreachable' || signal?.aborted === true) throw error;
        const most = error instanceof BusyHub ? this.#limits.hubAttemptsMax : Math.min(unreachableAttemptsMax, this.#limits.hubAttemptsMax);
        const asked = error instanceof BusyHub ? error.askedMs : null;
        if (tries >= most || (asked !== null && asked > this.#limits.hubPauseMaxMs)) throw error;
        await this.#rest(tries, asked, signal);
      }
    }
  }

  /** The pause before another try of what came wrong, though nobody asked for one. */
  async pause(tries: number, signal?: AbortSignal): Promise<void> {
    await this.#rest(tries, null, signal);
  }

  /** Never shorter than what was asked for; a little longer, so that those who wait do not come back as one. */
  async #rest(tries: number, askedMs: number | null, signal: AbortSignal | undefined): Promise<void> {
    const jitter = this.#pauses.random();
    const own = Math.min(this.#limits.hubPauseMaxMs, firstPauseMs * 2 ** (tries - 1)) * (0.5 + jitter / 2);
    const resting = this.#pauses.sleep(askedMs === null ? own : askedMs * (1 + jitter / 10), signal);
    if (askedMs === null) return resting;
    // One who gives up his rest wakes nobody with an error that is not theirs.
    const quiet = resting.catch(() => undefined).finally(() => { if (this.#quiet === quiet) this.#quiet = null; });
    this.#quiet = quiet;
    await resting;
  }
}

/** Milliseconds of a Retry-After, a number of seconds or a date; null without one that can be read. */
export function retryAfterMs(header: string | undefined, nowMs: number): number | null {
  if (header === undefined) return null;
  if (/^\d{1,9}$/.test(header.trim())) return Number(header) * 1_000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs);
}
