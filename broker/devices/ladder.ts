/**
 * The truth ladder: for each card the highest rung that works. When one fails the next answers, in the same reading,
 * and the jump between their figures is told, for it is no change on the card (R29). The failed rung rests, is tried
 * again beside the readings, and takes over when it answers. A card once found is never lost: its readings say what
 * is wrong with it.
 */
import type { TruthSource } from '../../protocol/index.js';
import { cpuCard, cpuDevice, cpuReading } from './cpu-card.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import { silentLog, type DeviceLog } from './device-log.js';
import { unifiedCard, unifiedRung, type MachineReader } from './host/unified.js';
import { LadderCard } from './ladder-card.js';
import type { CardDescription, Discovery, Reading, Rung, UnmeasuredCard } from './types.js';
import { normaliseDevice } from './uuid.js';

/** A card on the operator's word: its total, where no rung can tell it (B191, unified memory) or no rung works at all. */
export interface DeclaredCard {
  readonly device: string;
  readonly totalBytes: number;
  readonly name?: string;
}

export interface LadderOptions {
  /** Highest first. */
  readonly rungs: readonly Rung[];
  readonly declared?: readonly DeclaredCard[];
  /** Reads the cards that have no memory of their own, whose drivers therefore tell no figures. */
  readonly memory?: MachineReader;
  /** A failed rung rests this long before it is tried again: first, doubled each time, up to the last. */
  readonly restFirstMs?: number;
  readonly restLastMs?: number;
  readonly nowUs?: () => number;
  readonly log?: DeviceLog;
  /** A rung that did not work at first works now and shows a card that nobody had found. */
  readonly onCardFound?: (card: CardDescription) => void;
}

export interface Inventory {
  /** At least one: the pseudo-card `CPU-0` when nothing else exists. */
  readonly cards: readonly CardDescription[];
  readonly drivers: readonly { readonly truth: TruthSource; readonly driver: string }[];
  /** Found, and of no use without a declared size. */
  readonly unmeasured: readonly UnmeasuredCard[];
  /** Why each rung that does not work does not, and which cards were found and cannot be used; for people. */
  readonly notes: readonly string[];
}

/** A rung that has never worked most often never will: a driver that is not installed. */
const neverWorkedRestLastMs = 300_000;

interface RungState {
  readonly rung: Rung;
  /** Null until it has worked. */
  driver: string | null;
  unavailable: string;
  retryAtUs: number;
  restMs: number;
  asking: Promise<readonly CardDescription[]> | null;
}

export class DeviceLadder {
  readonly #options: LadderOptions;
  readonly #nowUs: () => number;
  readonly #log: DeviceLog;
  readonly #rungs: readonly RungState[];
  readonly #cards = new Map<string, LadderCard>();
  readonly #unmeasured = new Map<string, UnmeasuredCard>();
  readonly #restFirstMs: number;
  readonly #restLastMs: number;
  #closed = false;

  constructor(options: LadderOptions) {
    this.#options = options;
    this.#nowUs = options.nowUs ?? monotonicUs;
    this.#log = options.log ?? silentLog;
    this.#restFirstMs = options.restFirstMs ?? 1_000;
    this.#restLastMs = options.restLastMs ?? 30_000;
    this.#rungs = options.rungs.map((rung) => ({ rung, driver: null, unavailable: 'not asked yet', retryAtUs: 0, restMs: this.#restFirstMs, asking: null }));
  }

  /** Asks every rung, all at once, and tells what is there. May be asked again; cards found before stay. */
  async discover(): Promise<Inventory> {
    await Promise.all(this.#rungs.map((state) => this.#ask(state)));
    for (const declared of this.#options.declared ?? []) this.#declare(declared);
    this.#addUnified();
    if (this.#cards.size === 0) this.#log('warn', 'no card found; going on with the CPU alone', { notes: this.#notes().join('; ') });
    return {
      cards: this.#cards.size === 0 ? [cpuCard()] : this.#ordered().map((card) => card.description),
      drivers: this.#rungs.flatMap(({ rung, driver }) => (driver === null ? [] : [{ truth: rung.truth, driver }])),
      unmeasured: this.#unusable(),
      notes: this.#notes(),
    };
  }

  /** One reading, by any spelling of the card's name. Takes at most the probe deadline of each rung that fails on the way. */
  async read(device: string): Promise<Reading> {
    this.#climb();
    if (device === cpuDevice) return cpuReading(this.#nowUs());
    const card = this.#cards.get(normaliseDevice(device) ?? device);
    if (card === undefined) return { kind: 'missing', device, takenAtUs: this.#nowUs(), reading: 'unknown', reason: 'no rung has shown such a card' };
    return card.read();
  }

  /** Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all(this.#rungs.map(({ rung }) => rung.close()));
  }

  /** Rungs that have never worked are asked again beside the readings, each after its rest. */
  #climb(): void {
    for (const state of this.#rungs) {
      if (state.driver !== null || state.asking !== null || this.#closed || this.#nowUs() < state.retryAtUs) continue;
      void this.#ask(state).then((fresh) => {
        for (const card of fresh) this.#options.onCardFound?.(card);
      });
    }
  }

  /** Resolves to the cards that nobody had shown before. */
  #ask(state: RungState): Promise<readonly CardDescription[]> {
    state.asking ??= state.rung.discover().then((found) => this.#take(state, found)).finally(() => {
      state.asking = null;
    });
    return state.asking;
  }

  #take(state: RungState, found: Discovery): readonly CardDescription[] {
    if ('unavailable' in found) {
      state.unavailable = found.unavailable;
      state.retryAtUs = this.#nowUs() + state.restMs * 1_000;
      state.restMs = Math.min(neverWorkedRestLastMs, state.restMs * 2);
      return [];
    }
    if (state.driver === null) this.#log('info', 'a rung of the truth ladder works', { truth: state.rung.truth, driver: found.driver, cards: found.cards.length });
    state.driver = found.driver;
    for (const card of found.unmeasured ?? []) this.#unmeasured.set(card.device, card);
    return found.cards.filter((card) => this.#add(card, state.rung));
  }

  /** True when the card is new. */
  #add(described: CardDescription, rung: Rung): boolean {
    const device = normaliseDevice(described.device) ?? described.device;
    const order = this.#options.rungs.indexOf(rung);
    this.#unmeasured.delete(device);
    const known = this.#cards.get(device);
    if (known !== undefined) {
      known.addRung(rung, order, described);
      return false;
    }
    this.#cards.set(device, new LadderCard({ ...described, device }, rung, order, {
      nowUs: this.#nowUs, log: this.#log, restFirstMs: this.#restFirstMs, restLastMs: this.#restLastMs,
    }));
    return true;
  }

  #declare(declared: DeclaredCard): void {
    const device = normaliseDevice(declared.device) ?? declared.device;
    if (this.#cards.has(device)) return;
    const found = this.#unmeasured.get(device);
    this.#add({
      device, name: declared.name ?? found?.name ?? device, kind: 'gpu', totalBytes: declared.totalBytes, confirms: 'none', display: false,
      floorBytes: null, visibility: found?.visibility ?? {},
    }, declaredRung(found?.reason ?? 'declared by the operator; no probe reads it', this.#nowUs));
  }

  #addUnified(): void {
    const { memory } = this.#options;
    if (memory === undefined) return;
    const rung = unifiedRung(memory, this.#nowUs);
    for (const found of [...this.#unmeasured.values()]) {
      const card = unifiedCard(found, memory);
      if (card !== null) this.#add(card, rung);
    }
  }

  #ordered(): readonly LadderCard[] {
    return [...this.#cards.values()].sort((a, b) => (a.description.device < b.description.device ? -1 : 1));
  }

  #unusable(): readonly UnmeasuredCard[] {
    return [...this.#unmeasured.values()].filter(({ device }) => !this.#cards.has(device));
  }

  #notes(): readonly string[] {
    return [
      ...this.#rungs.flatMap(({ rung, driver, unavailable }) => (driver === null ? [`${rung.truth}: ${unavailable}`] : [])),
      ...this.#unusable().map(({ device, name, reason }) => `${device} (${name}) needs a declared size: ${reason}`),
    ];
  }
}

/** Reads nothing: what is declared is a size, never a use. */
function declaredRung(reason: string, nowUs: () => number): Rung {
  return {
    truth: 'ledger',
    discover: async () => ({ unavailable: reason }),
    read: async (device) => ({ kind: 'missing', device, takenAtUs: nowUs(), reading: 'unsupported', reason }),
    close: async () => undefined,
  };
}
