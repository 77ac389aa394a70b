/** Simulated cards' counter: the frames by which a worker takes and frees bytes as an engine would through a driver (D26). */
import { LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import type { SimulatedCard } from '../devices/index.js';
import type { Session } from './session.js';

type Frame = Extract<ControlMessage, { type: 'card_allocate' | 'card_free' }>;

export class CardDesk {
  readonly #cards: ReadonlyMap<string, SimulatedCard>;

  constructor(cards: ReadonlyMap<string, SimulatedCard>) {
    this.#cards = cards;
  }

  /** A worker process has come up: it costs its floor on every simulated card it sees. */
  attach(session: Session, devices: readonly string[]): void {
    for (const device of devices) this.#cards.get(device)?.attach(session.identity.pid);
  }

  gone(pid: number): void {
    for (const card of this.#cards.values()) card.processGone(pid);
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
      return { type: 'ok', id: frame.id };
    }
    const taken = card.allocate(session.identity.pid, frame.bytes);
    return taken.kind === 'oom'
      ? { type: 'card_oom', id: frame.id, wantedBytes: frame.bytes, freeBytes: taken.freeBytes }
      : { type: 'card_allocated', id: frame.id, allocation: taken.allocation };
  }

  /** What each card read and refused, for the ledger and the demo's closing table. */
  facts(): readonly Readonly<Record<string, unknown>>[] {
    return [...this.#cards.values()].map((card) => card.facts());
  }
}
