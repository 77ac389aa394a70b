/** Readings of the cards: single flight a card, periodic and on demand, and all the ways in which a probe can fail. */
import type { MissingReading, StrangerReading } from '../../../broker/core/events.js';
import type { SimCard } from './card.js';
import type { WorldContext } from './context.js';
import { msToUs, type Timer } from './scheduler.js';
import { WildReadings, hiddenBytes } from './wild-readings.js';

/** What was true on the card when a reading was taken; the auditor's, never the broker's. */
export interface TruthAtSample {
  readonly takenAtUs: number;
  readonly foreignBytes: number;
  readonly usedBytes: number;
  readonly byProcess: ReadonlyMap<string, number>;
  /** What the reading keeps of that from whoever reads it. */
  readonly hiddenBytes: number;
}

/** More than a broker finds waiting for it after its longest stall. */
const truthsKept = 64;

/** A good reading, a full card, or none and why. */
export type ProbeEnd = 'ok' | 'full' | { readonly reading: MissingReading; readonly reason: string; readonly afterMs: number };

/** Whoever has the foreign bytes is one process here, of a pid that is nobody's. */
function strangersOf(foreignBytes: number): StrangerReading[] {
  return foreignBytes === 0 ? [] : [{ pid: 2 ** 22, usedBytes: foreignBytes }];
}

export class Prober {
  /** The truth behind each reading under way or delivered last, by card. */
  readonly truths = new Map<string, TruthAtSample[]>();
  /** Scripted by scenarios: how the next probe of a card ends; null leaves it to the faults. */
  script: ((device: string) => ProbeEnd | null) | null = null;
  private readonly outageUntilUs = new Map<string, number>();
  private readonly lowerRungUntilUs = new Map<string, number>();
  private readonly inFlight = new Set<string>();
  private readonly wanted = new Map<string, number>();
  private readonly timers = new Map<string, Timer>();
  /** Readings asked for by a broker that is gone reach nobody. */
  private boot = 0;
  private readonly wild: WildReadings;

  constructor(private readonly world: WorldContext) {
    this.wild = new WildReadings(world.knobs.seed);
  }

  start(): void {
    for (const card of this.world.cards) this.repeat(card);
    if (this.world.memory !== null) this.repeat(this.world.memory);
  }

  /** The broker is gone, and with it whatever was under way. */
  forget(): void {
    this.boot++;
    this.inFlight.clear();
    this.wanted.clear();
    for (const timer of this.timers.values()) this.world.scheduler.cancel(timer);
    this.timers.clear();
  }

  /** A reading not older than that moment (core clock) is waited for. */
  request(device: string, notBeforeUs: number): void {
    const card = this.world.card(device);
    this.wanted.set(device, Math.max(this.wanted.get(device) ?? 0, notBeforeUs));
    if (this.inFlight.has(device) || card.isLost) return;
    const { scheduler } = this.world;
    if (notBeforeUs <= scheduler.coreUs) {
      this.probe(card);
      return;
    }
    if (this.timers.has(device)) return;
    this.timers.set(device, scheduler.after(notBeforeUs - scheduler.coreUs, () => {
      this.timers.delete(device);
      if (!this.inFlight.has(device)) this.probe(card);
    }));
  }

  private repeat(card: SimCard): void {
    if (this.world.brokerIsUp && !card.isLost && !this.inFlight.has(card.about.device)) this.probe(card);
    this.world.scheduler.after(msToUs(this.world.knobs.limits.sampleIntervalMs), () => this.repeat(card));
  }

  private probe(card: SimCard): void {
    const { device } = card.about;
    const { random, faults, scheduler, knobs } = this.world;
    this.inFlight.add(device);
    this.maybeOutage(device);
    const away = scheduler.nowUs < (this.outageUntilUs.get(device) ?? -1);
    const delayMs = random.chance(0.2) && faults.probeLateMsMax > 0 ? random.int(1, faults.probeLateMsMax) : random.int(0, 3);
    const scripted = this.script?.(device) ?? null;
    if (scripted === 'ok' || scripted === 'full') {
      this.read(card, 1, scripted === 'full');
      return;
    }
    if (scripted !== null) {
      this.missing(device, scripted.afterMs, scripted.reading, scripted.reason);
      return;
    }
    if (card.about.confirms === 'none' && card !== this.world.memory) {
      this.missing(device, 2, 'unsupported', 'N/A');
      return;
    }
    if (random.chance(faults.probeHangs)) {
      this.missing(device, knobs.limits.probeTimeoutMs, 'timed_out', 'no answer');
      return;
    }
    if (away || random.chance(faults.probeFails)) {
      this.missing(device, delayMs, random.pick(['unknown', 'failed']), random.pick(['null', 'exit code 9', 'empty output', '[N/A]']));
      return;
    }
    this.read(card, delayMs, false);
  }

  private maybeOutage(device: string): void {
    const { faults } = this.world;
    this.maybeUntil(this.outageUntilUs, device, faults.probeOutageMs);
    this.maybeUntil(this.lowerRungUntilUs, device, faults.lowerRungMs);
  }

  /** With this mean time between such periods, one may begin now; none goes on when the faults have stopped. */
  private maybeUntil(untilUs: Map<string, number>, device: string, meanMs: number): void {
    const { random, scheduler, knobs } = this.world;
    if (meanMs === 0) untilUs.delete(device);
    else if (random.chance(knobs.limits.sampleIntervalMs / meanMs)) untilUs.set(device, scheduler.nowUs + msToUs(random.int(500, 10_000)));
  }

  private read(card: SimCard, delayMs: number, isFull: boolean): void {
    const { device, confirms, totalBytes } = card.about;
    const { scheduler } = this.world;
    const byProcess = new Map([...card.processes(), ...card.ghosts()].map((generation) => [generation, card.bytesOf(generation)]));
    const isMemory = card === this.world.memory;
    const living = card.processes().map((generation) => ({ generation, usedBytes: card.bytesOf(generation) }));
    const isLower = !isMemory && scheduler.nowUs < (this.lowerRungUntilUs.get(device) ?? -1);
    const usedBytes = isFull ? totalBytes : card.usedBytes();
    const shown = this.wild.shown({ usedBytes, processes: confirms === 'process' && !isLower ? living : null }, totalBytes, this.world.faults.probeWild, isMemory);
    const truth: TruthAtSample = { takenAtUs: scheduler.coreUs, foreignBytes: card.foreignBytes, usedBytes, byProcess, hiddenBytes: hiddenBytes(usedBytes, shown) };
    const truths = this.truths.get(device) ?? [];
    truths.push(truth);
    if (truths.length > truthsKept) truths.shift();
    this.truths.set(device, truths);
    const { processes } = shown;
    const spilled = card.spilled();
    this.afterwards(delayMs, () => {
      this.world.tell({ type: 'sampled', device, takenAtUs: truth.takenAtUs, usedBytes: shown.usedBytes, totalBytes, truth: isLower ? 'nvidia-smi' : isMemory ? 'system' : 'simulated', processes, ...(processes === null ? {} : { strangers: strangersOf(truth.foreignBytes) }), ...(spilled === undefined ? {} : { spilled }) });
      this.landed(device, truth.takenAtUs);
    });
  }

  private missing(device: string, delayMs: number, reading: MissingReading, reason: string): void {
    this.afterwards(delayMs, () => {
      this.world.tell({ type: 'sample_failed', device, reading, reason });
      this.landed(device, 0);
    });
  }

  private afterwards(delayMs: number, land: () => void): void {
    const { boot } = this;
    this.world.scheduler.after(msToUs(delayMs) + 100, () => { if (this.boot === boot) land(); });
  }

  /** Asks again when somebody waits for a newer reading; after a failure only in the next round. */
  private landed(device: string, takenAtUs: number): void {
    this.inFlight.delete(device);
    const wanted = this.wanted.get(device);
    if (wanted === undefined) return;
    if (takenAtUs >= wanted) this.wanted.delete(device);
    else if (takenAtUs > 0) this.request(device, wanted);
  }
}
