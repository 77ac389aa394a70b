/**
 * The one queue in front of the core. Events are taken in order, one to its
 * end; effects are handed on after the step that made them. An effect that
 * makes an event at once joins the queue: the core is never re-entered.
 */
import { LeaseholdError } from '../../protocol/index.js';
import { step, type Core } from '../core/index.js';
import type { CoreEvent } from '../core/events.js';
import type { Effect } from '../core/effects.js';
import { monotonicUs } from '../../protocol/node/clock.js';

/** An event without its time: the loop stamps it when it takes it in. */
export type UntimedEvent = CoreEvent extends infer E ? (E extends CoreEvent ? Omit<E, 'atUs'> : never) : never;

export interface LoopOptions {
  readonly core: Core;
  readonly tickIntervalMs: number;
  /** Each tick, after its event: how late this process's loop was for it. */
  readonly onTick: (lateMs: number) => void;
  readonly carryOut: (effect: Effect) => void;
  /** The core found its own ledger broken, or a bug threw: nothing may be granted after that. */
  readonly onBroken: (error: LeaseholdError) => void;
}

export class Loop {
  readonly #options: LoopOptions;
  readonly #queue: UntimedEvent[] = [];
  #running = false;
  #stopped = false;
  #timer: NodeJS.Timeout | null = null;
  /** When the next tick should come. */
  #dueUs = 0;

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  start(): void {
    this.#dueUs = monotonicUs() + this.#options.tickIntervalMs * 1_000;
    this.#wait();
  }

  #wait(): void {
    this.#timer = setTimeout(() => { this.#tickAfterPoll(); }, this.#options.tickIntervalMs);
  }

  stop(): void {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  feed(event: UntimedEvent): void {
    if (this.#stopped) return;
    this.#queue.push(event);
    if (!this.#running) this.#drain();
  }

  /**
   * Deadlines are judged on ticks alone, and a tick comes after the sockets
   * were polled: what had arrived while we were late is taken in first.
   */
  #tickAfterPoll(): void {
    setImmediate(() => {
      if (this.#stopped) return;
      const nowUs = monotonicUs();
      const lateMs = Math.max(0, Math.floor((nowUs - this.#dueUs) / 1_000));
      // From here, not from the end of this one: what it takes itself is lateness, too.
      this.#dueUs = nowUs + this.#options.tickIntervalMs * 1_000;
      this.feed({ type: 'ticked' });
      this.#options.onTick(lateMs);
      this.#wait();
    });
  }

  #drain(): void {
    this.#running = true;
    try {
      for (let event = this.#queue.shift(); event !== undefined && !this.#stopped; event = this.#queue.shift()) {
        const effects = step(this.#options.core, stamped(event));
        for (const effect of effects) this.#options.carryOut(effect);
      }
    } catch (error) {
      this.stop();
      this.#options.onBroken(LeaseholdError.from(error));
    } finally {
      this.#running = false;
    }
  }
}

/** Stamps the event itself: each is made for the loop and seen by nobody else, and a copy would cost every message one. */
function stamped(event: UntimedEvent): CoreEvent {
  return Object.assign(event, { atUs: monotonicUs() });
}
