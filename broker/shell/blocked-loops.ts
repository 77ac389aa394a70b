/**
 * Loops that were blocked, our own and those of our peers: who is late with its
 * signs of life is told from who has gone silent (R293). Told at once, then
 * once in `loopBlockedRetoldMs` a process, and shown for as long.
 */
import type { Limits } from '../../protocol/index.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import type { Log } from './log.js';

export interface LoopOwner {
  readonly role: 'worker' | 'holder' | 'client' | 'broker';
  /** null: the broker. */
  readonly generation: string | null;
}

export interface BlockedLoopsOptions {
  readonly limits: Pick<Limits, 'stallToleranceMs' | 'loopBlockedRetoldMs'>;
  readonly log: Log;
  readonly publish: (name: string, data: Readonly<Record<string, string | number | null>>) => void;
  readonly nowUs?: () => number;
}

/** As the ledger shows it: the longest since it was last told of, and when that was. */
export interface LoopBlocked {
  readonly blockedMs: number;
  readonly agoMs: number;
}

interface Blocked {
  readonly owner: LoopOwner;
  toldAtUs: number;
  /** Not told of yet. */
  untold: number;
  longestMs: number;
  longestAtUs: number;
}

export class BlockedLoops {
  readonly #options: BlockedLoopsOptions;
  readonly #nowUs: () => number;
  /** By generation; the broker's own under null. Only those blocked within the last `loopBlockedRetoldMs`. */
  readonly #blocked = new Map<string | null, Blocked>();

  constructor(options: BlockedLoopsOptions) {
    this.#options = options;
    this.#nowUs = options.nowUs ?? monotonicUs;
  }

  /** A loop came so late to what it had set itself. Lateness up to `stallToleranceMs` is nothing to tell. */
  note(owner: LoopOwner, lateMs: number): void {
    if (lateMs <= this.#options.limits.stallToleranceMs) return;
    const nowUs = this.#nowUs();
    const known = this.#blocked.get(owner.generation);
    if (known === undefined) {
      const blocked = { owner, toldAtUs: nowUs, untold: 1, longestMs: lateMs, longestAtUs: nowUs };
      this.#blocked.set(owner.generation, blocked);
      this.#tell(blocked, nowUs);
      return;
    }
    if (known.untold === 0 || lateMs > known.longestMs) Object.assign(known, { longestMs: lateMs, longestAtUs: nowUs });
    known.untold += 1;
  }

  /** To be called on every tick: what was put off is told when its time has come, of those too that have ended since. */
  look(): void {
    const nowUs = this.#nowUs();
    for (const [generation, blocked] of this.#blocked) {
      if (nowUs - blocked.toldAtUs < this.#options.limits.loopBlockedRetoldMs * 1_000) continue;
      if (blocked.untold === 0) this.#blocked.delete(generation);
      else this.#tell(blocked, nowUs);
    }
  }

  /** null: not within the last `loopBlockedRetoldMs`. */
  shown(generation: string | null): LoopBlocked | null {
    const blocked = this.#blocked.get(generation);
    return blocked === undefined ? null : { blockedMs: blocked.longestMs, agoMs: Math.floor((this.#nowUs() - blocked.longestAtUs) / 1_000) };
  }

  #tell(blocked: Blocked, nowUs: number): void {
    const { owner: { role, generation }, longestMs: blockedMs, untold: times } = blocked;
    Object.assign(blocked, { toldAtUs: nowUs, untold: 0 });
    this.#options.log.warn({ role, generation, blockedMs, times }, `the loop of ${generation === null ? 'the broker itself' : `${role} ${generation}`} was blocked for ${seconds(blockedMs)}${times > 1 ? `, and ${String(times - 1)} more times for less` : ''}`);
    this.#options.publish('loop_blocked', { role, generation, blockedMs, times });
  }
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
