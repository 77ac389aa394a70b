/**
 * Cards through the broker's ledger. A process that reads a card through its driver is on it itself, with a context of
 * hundreds of megabytes; the broker is not.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Limits } from '../../protocol/index.js';
import type { ControlChannel } from './control.js';
import type { CardWatch } from './engine.js';

/** The parts of `ledger_state` that are looked at. */
interface Ledger {
  readonly cards: readonly { readonly device: string; readonly sampledUsedBytes: number | null; readonly sampleAgeMs: number | null; readonly returningBytes: number; readonly closed?: object | null }[];
  readonly leases: readonly { readonly device: string; readonly generation: string; readonly lease: string; readonly state: string; readonly residentBytes: number }[];
  readonly processes: readonly { readonly generation: string; readonly state: string; readonly devices: readonly string[] }[];
  readonly omitted: { readonly leases: number; readonly processes: number };
}

const askAgainMs = 50;
const restingLeases = new Set(['resident', 'parked', 'quarantined']);

export class LedgerWatch implements CardWatch {
  constructor(
    private readonly channel: ControlChannel,
    private readonly generation: string,
    private readonly limits: Pick<Limits, 'sampleMaxAgeMs' | 'commandAnswerMs'>,
  ) {}

  /** Waits for a reading at most as long as one may be old. */
  async usedBytes(device: string): Promise<number | null> {
    const askedAtMs = performance.now();
    while (performance.now() - askedAtMs <= this.limits.sampleMaxAgeMs) {
      const sentAtMs = performance.now();
      const card = (await this.#ledger())?.cards.find((each) => each.device === device);
      if (card === undefined) return null;
      // The age is counted in whole milliseconds, and not before the question was sent.
      const takenAtMs = card.sampleAgeMs === null ? -Infinity : sentAtMs - card.sampleAgeMs - 1;
      if (takenAtMs >= askedAtMs) return card.sampledUsedBytes;
      await sleep(askAgainMs);
    }
    return null;
  }

  async neighbours(device: string): Promise<string | null> {
    const ledger = await this.#ledger();
    const card = ledger?.cards.find((each) => each.device === device);
    if (ledger === null || card === undefined || card.returningBytes > 0 || (card.closed ?? null) !== null || ledger.omitted.leases + ledger.omitted.processes > 0) return null;
    const leases = ledger.leases.filter((lease) => lease.device === device && lease.generation !== this.generation);
    const processes = ledger.processes.filter((process) => process.devices.includes(device) && process.generation !== this.generation);
    if (leases.some(({ state }) => !restingLeases.has(state)) || processes.some(({ state }) => state === 'spawning' || state === 'ending')) return null;
    return JSON.stringify([leases.map(({ lease, state, residentBytes }) => [lease, state, residentBytes]), processes.map((process) => process.generation)]);
  }

  /** Null from a broker that is gone or slow: it tells nothing of a card, and what follows from its end is decided elsewhere. */
  async #ledger(): Promise<Ledger | null> {
    try {
      const answer = await this.channel.request({ type: 'ledger' }, { timeoutMs: this.limits.commandAnswerMs });
      return answer.type === 'ledger_state' ? JSON.parse(answer.json) as Ledger : null;
    } catch {
      return null;
    }
  }
}
