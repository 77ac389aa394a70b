/**
 * Reads cards: each at its interval, and at once when a decision waits for it.
 * One read of a card at a time; a read that began before the moment a decision
 * needs is followed by another. A card that its driver says is gone is told as
 * lost, and as there again when it is read again, however it is numbered then.
 */
import type { CardDescription, Reading } from '../devices/index.js';
import type { UntimedEvent } from './loop.js';
import { monotonicUs } from '../../protocol/node/clock.js';

interface PidReading {
  readonly pid: number;
  readonly usedBytes: number;
}

export interface Owners {
  /** Whose the bytes of a pid there are: of which of our generations, and how much of each; none: foreign. */
  of(reading: PidReading, device: string): readonly { readonly generation: string; readonly usedBytes: number }[];
  /** The pids of all of ours, with their children. */
  pids(): readonly number[];
}

/** Reads a card now; never rejects by contract, and if it does the reading is missing. */
export interface CardReader {
  /** `ours` are our processes, for the machine's memory: there only who is asked for is told of. */
  read(device: string, ours: () => readonly number[]): Promise<Reading>;
  close(): Promise<void>;
}

/** What the core is told of a card that is there. */
export function cardAdded({ device, name, kind, totalBytes, confirms, floorBytes, unified = false }: CardDescription, { reserveBytes, yieldFreeBytes = null }: KeptFree): UntimedEvent {
  return { type: 'card_added', device, name, kind, totalBytes, reserveBytes, confirms, floorBytes, unified, yieldFreeBytes };
}

/** What the operator keeps free on a card: always, and for programs that are not ours when they take more. */
export interface KeptFree {
  readonly reserveBytes: number;
  /** The reserve of a size, where the operator has set none; only the machine's memory changes its size. */
  readonly reserveOf?: (totalBytes: number) => number;
  /** Made free for other programs, beside the reserve, when they take more; null or left out: nothing is given up for them. */
  readonly yieldFreeBytes?: number | null;
}

/** Of processes that are not ours the largest are told by their pids. */
const strangersTold = 4;

interface Watch {
  card: CardDescription;
  readonly reader: CardReader;
  kept: KeptFree;
  lost: boolean;
  reading: boolean;
  /** A reading taken not before this is still wanted; 0: none. */
  wantedFromUs: number;
  timer: NodeJS.Timeout | null;
}

export class Sampler {
  readonly #watches = new Map<string, Watch>();
  readonly #intervalMs: number;
  readonly #feed: (event: UntimedEvent) => void;
  readonly #owners: Owners;
  #stopped = false;

  constructor(intervalMs: number, owners: Owners, feed: (event: UntimedEvent) => void) {
    this.#intervalMs = intervalMs;
    this.#owners = owners;
    this.#feed = feed;
  }

  watch(card: CardDescription, reader: CardReader, kept: KeptFree): void {
    const watch: Watch = { card, reader, kept, lost: false, reading: false, wantedFromUs: 0, timer: null };
    this.#watches.set(card.device, watch);
    this.#read(watch);
  }

  /** A reading of `device` taken not before `notBeforeUs`, as soon as can be. */
  want(device: string, notBeforeUs: number): void {
    const watch = this.#watches.get(device);
    if (watch === undefined) return;
    watch.wantedFromUs = Math.max(watch.wantedFromUs, notBeforeUs);
    if (!watch.reading) this.#read(watch);
  }

  stop(): void {
    this.#stopped = true;
    for (const watch of this.#watches.values()) if (watch.timer !== null) clearTimeout(watch.timer);
  }

  #read(watch: Watch): void {
    if (this.#stopped) return;
    if (watch.timer !== null) clearTimeout(watch.timer);
    watch.timer = null;
    watch.reading = true;
    const beganUs = monotonicUs();
    // Wanted by a clock that has been set back since: else nothing read before it has caught up would do.
    watch.wantedFromUs = Math.min(watch.wantedFromUs, beganUs);
    const missed = (error: unknown): Reading => ({
      kind: 'missing', device: watch.card.device, takenAtUs: beganUs, reading: 'failed', reason: String(error),
    });
    void this.#look(watch).catch(missed).then((reading) => {
      watch.reading = false;
      if (this.#stopped) return;
      this.#schedule(watch, reading);
      this.#tell(watch, reading);
    });
  }

  /** Whatever a reader throws, and whenever, is a rejection. */
  async #look(watch: Watch): Promise<Reading> {
    return watch.reader.read(watch.card.device, () => this.#owners.pids());
  }

  #tell(watch: Watch, reading: Reading): void {
    if (reading.kind === 'missing' && (watch.lost || reading.lost === true)) {
      if (!watch.lost) this.#feed({ type: 'card_lost', device: reading.device, reason: reading.reason });
      watch.lost = true;
      return;
    }
    if (watch.lost) this.#feed(cardAdded(watch.card, watch.kept));
    watch.lost = false;
    if (reading.kind === 'read') this.#resize(watch, reading.totalBytes);
    this.#feed(this.#eventOf(reading));
  }

  /** A reserve that is a share of the size goes with it. */
  #resize(watch: Watch, totalBytes: number): void {
    const { card, kept } = watch;
    if (kept.reserveOf === undefined || card.totalBytes === totalBytes) return;
    watch.card = { ...card, totalBytes };
    watch.kept = { ...kept, reserveBytes: kept.reserveOf(totalBytes) };
    this.#feed(cardAdded(watch.card, watch.kept));
  }

  /** Figures that cannot be told apart by owner (out of descriptors, say) are no reading: none of them may pass for foreign. */
  #eventOf(reading: Reading): UntimedEvent {
    try {
      return this.#toEvent(reading);
    } catch (error) {
      return { type: 'sample_failed', device: reading.device, reading: 'failed', reason: String(error) };
    }
  }

  /** The next look: at once when this one was too early for a decision that waits, else at the interval. */
  #schedule(watch: Watch, reading: Reading): void {
    const tooEarly = reading.takenAtUs < watch.wantedFromUs;
    if (!tooEarly && reading.kind === 'read') watch.wantedFromUs = 0;
    // A missing reading is retried soon while a decision waits, but never in a busy loop.
    const delayMs = tooEarly && reading.kind === 'read' ? 0 : watch.wantedFromUs > 0 ? this.#intervalMs / 4 : this.#intervalMs;
    watch.timer = setTimeout(() => { this.#read(watch); }, delayMs);
  }

  #toEvent(reading: Reading): UntimedEvent {
    if (reading.kind === 'missing') {
      return { type: 'sample_failed', device: reading.device, reading: reading.reading, reason: reading.reason };
    }
    const split = reading.processes === null ? null : this.#split(reading.device, reading.processes);
    return {
      type: 'sampled',
      device: reading.device,
      takenAtUs: reading.takenAtUs,
      usedBytes: reading.usedBytes,
      totalBytes: reading.totalBytes,
      truth: reading.truth,
      processes: split === null ? null : split.ours,
      ...(split === null ? {} : { strangers: split.strangers }),
      ...(reading.spilled === undefined ? {} : { spilled: this.#spilledOf(reading.device, reading.spilled) }),
    };
  }

  /** Sums pids by the generation that owns them; what nobody owns is foreign, and the largest of those are told. */
  #split(device: string, processes: readonly PidReading[]): { ours: { generation: string; usedBytes: number }[]; strangers: PidReading[] } {
    const sums = new Map<string, number>();
    const strangers: PidReading[] = [];
    for (const process of processes) {
      const owners = this.#owners.of(process, device);
      for (const { generation, usedBytes } of owners) sums.set(generation, (sums.get(generation) ?? 0) + usedBytes);
      if (owners.length === 0 && process.usedBytes > 0) strangers.push({ pid: process.pid, usedBytes: process.usedBytes });
    }
    strangers.sort((a, b) => b.usedBytes - a.usedBytes || a.pid - b.pid);
    return { ours: [...sums].map(([generation, usedBytes]) => ({ generation, usedBytes })), strangers: strangers.slice(0, strangersTold) };
  }

  #spilledOf(device: string, spilled: readonly { readonly pid: number; readonly spilledBytes: number }[]): { generation: string; spilledBytes: number }[] {
    const { ours } = this.#split(device, spilled.map(({ pid, spilledBytes }) => ({ pid, usedBytes: spilledBytes })));
    return ours.map(({ generation, usedBytes }) => ({ generation, spilledBytes: usedBytes }));
  }
}
