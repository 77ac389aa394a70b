/** Simulated cards' counter: the frames by which a worker takes and frees bytes as an engine would through a driver (D26). */
import { LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import type { SimulatedCard } from '../devices/index.js';
import type { Session } from './session.js';

type Frame = Extract<ControlMessage, { type: 'card_allocate' | 'card_free' }>;

/** What one session has taken: allocations by card. */
interface Taker {
  readonly pid: number;
  readonly taken: Map<string, Set<number>>;
}

export class CardDesk {
  readonly #cards: ReadonlyMap<string, SimulatedCard>;
  readonly #memory: string | null;
  /** Sessions that have a context on a card, by generation. */
  readonly #takers = new Map<string, Taker>();

  /** `memory`: the simulated card, if one of them is that, which stands for the machine's memory, where every process is. */
  constructor(cards: ReadonlyMap<string, SimulatedCard>, memory: string | null = null) {
    this.#cards = cards;
    this.#memory = memory;
  }

  /** A process has come up, or is back: a worker costs its floor on every simulated card it sees. What it took before is its own. */
  attach(session: Session, devices: readonly string[]): void {
    this.#taker(session);
    const { pid, startTime } = session.identity;
    const attached = this.#memory === null ? devices : [...devices, this.#memory];
    for (const device of attached) this.#cards.get(device)?.attach(pid, startTime);
  }

  /** The process has ended: what it had on any card comes back, as the card does that. */
  gone(pid: number): void {
    for (const [generation, taker] of this.#takers) if (taker.pid === pid) this.#takers.delete(generation);
    for (const card of this.#cards.values()) card.processGone(pid);
  }

  /** The session has ended and its process lives on: what was taken in it comes back, with the last one the process's context, too. */
  closed(generation: string): void {
    const taker = this.#takers.get(generation);
    if (taker === undefined) return;
    this.#takers.delete(generation);
    if (![...this.#takers.values()].some(({ pid }) => pid === taker.pid)) {
      this.gone(taker.pid);
      return;
    }
    for (const [device, allocations] of taker.taken) {
      for (const allocation of allocations) this.#cards.get(device)?.free(taker.pid, allocation);
    }
  }

  /** True while a session's process may have something on a card that only its end gives back. */
  holds(generation: string): boolean {
    return this.#takers.has(generation);
  }

  answer(session: Session, frame: Frame): ControlMessage {
    const card = this.#cards.get(frame.device);
    if (card === undefined) {
      throw new LeaseholdError('device_unknown', { device: frame.device, known: [...this.#cards.keys()].join(', ') });
    }
    if (frame.type === 'card_free') {
      if (!card.free(session.identity.pid, frame.allocation)) {
        throw new LeaseholdError('input_invalid', { field: 'allocation', reason: `process ${String(session.identity.pid)} holds no allocation ${String(frame.allocation)} on ${frame.device}` });
      }
      // A process may free in one session what it took in another.
      for (const { pid, taken } of this.#takers.values()) if (pid === session.identity.pid) taken.get(frame.device)?.delete(frame.allocation);
      return { type: 'ok', id: frame.id };
    }
    const { pid, startTime } = session.identity;
    const taken = card.allocate(pid, frame.bytes, { startTime, ...(frame.name === undefined ? {} : { name: frame.name }) });
    if (taken.kind === 'oom') return { type: 'card_oom', id: frame.id, wantedBytes: frame.bytes, freeBytes: taken.freeBytes };
    const allocations = this.#taker(session).taken;
    allocations.set(frame.device, (allocations.get(frame.device) ?? new Set()).add(taken.allocation));
    return { type: 'card_allocated', id: frame.id, allocation: taken.allocation };
  }

  #taker({ generation, identity }: Session): Taker {
    const known = this.#takers.get(generation);
    if (known !== undefined) return known;
    const taker: Taker = { pid: identity.pid, taken: new Map() };
    this.#takers.set(generation, taker);
    return taker;
  }

  /** What each card read and refused, for the ledger and the demo's closing table. */
  facts(): readonly Readonly<Record<string, unknown>>[] {
    return [...this.#cards.values()].map((card) => card.facts());
  }
}
