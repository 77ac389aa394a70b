/** A bystander on real cards: reads each twenty times a second and holds every reading against the ledger of that moment. */
import { createNvmlRung, type Reading as CardReading } from '../../broker/devices/index.js';
import type { LedgerState } from '../../src/orchestrator/index.js';

const readEveryMs = 50;
/** The driver's own granule of accounting between a process's figure and the card's (measured: 9,240,576). */
const granuleBytes = 32 * 1024 * 1024;
const examplesMax = 8;

export interface Watched {
  readonly readings: number;
  readonly peakUsedBytes: number;
  readonly peakChargedBytes: number;
  /** The broker's own pid was among the card's processes. */
  readonly brokerHeldContext: boolean;
  /** Readings in which all that is charged is more than the total less the reserve. */
  readonly overcommittedReadings: number;
  /** A process of ours above its leases and floor, and in how many readings it was. */
  readonly over: Readonly<Record<string, number>>;
  /** The first of these readings, with what the ledger said of that process before and after. */
  readonly overExamples: readonly OverExample[];
  /** The most that was used on the card since the watch began, workers and all their children, beyond what was charged; and in how many readings it was more than a granule. */
  readonly maxUnchargedBytes: number;
  readonly unchargedReadings: number;
}

interface OverExample {
  readonly generation: string;
  readonly usedBytes: number;
  readonly before: Standing;
  readonly after: Standing;
}

/** A process in the ledger at one moment. */
interface Standing {
  /** Null: the ledger does not know it. */
  readonly state: string | null;
  readonly floorBytes: number;
  readonly leases: readonly string[];
}

export interface CardWatch {
  /** Ends the watch; what was seen of each card, in the ledger's order. */
  stop(): Promise<readonly Watched[]>;
}

/** Watches every card of the ledger until it is stopped. */
export async function watchCards(ledgerNow: () => Promise<LedgerState>): Promise<CardWatch> {
  const rung = createNvmlRung({});
  await rung.discover();
  const seen = new Map((await ledgerNow()).cards.map(({ device }) => [device, new Sightings(device)]));
  const stopping = new AbortController();
  const watching = (async () => {
    while (!stopping.signal.aborted) {
      // Before and after: what was charged at either moment may be there.
      for (const [device, sightings] of seen) {
        const before = await ledgerNow();
        const reading = await rung.read(device);
        if (reading.kind === 'read') sightings.take(before, await ledgerNow(), reading);
      }
      await new Promise((resolve) => setTimeout(resolve, readEveryMs));
    }
  })();
  return {
    stop: async () => {
      stopping.abort();
      await watching;
      await rung.close();
      return [...seen.values()].map((sightings) => sightings.summary());
    },
  };
}

type Read = Extract<CardReading, { kind: 'read' }>;

class Sightings {
  private readings = 0;
  private peakUsedBytes = 0;
  private peakChargedBytes = 0;
  private brokerHeldContext = false;
  private overcommittedReadings = 0;
  private readonly over = new Map<string, number>();
  private readonly overExamples: OverExample[] = [];
  private strangersBytes: number | null = null;
  private maxUnchargedBytes = 0;
  private unchargedReadings = 0;

  constructor(private readonly device: string) {}

  take(before: LedgerState, after: LedgerState, reading: Read): void {
    this.readings++;
    this.peakUsedBytes = Math.max(this.peakUsedBytes, reading.usedBytes);
    const card = this.cardOf(after);
    if (card === undefined) return;
    const chargedBytes = chargedOn(card);
    this.judgeTotal(before, chargedBytes, reading.usedBytes);
    this.peakChargedBytes = Math.max(this.peakChargedBytes, chargedBytes);
    if (chargedBytes > card.totalBytes - card.reserveBytes) this.overcommittedReadings++;
    const byPid = new Map((reading.processes ?? []).map(({ pid, usedBytes }) => [pid, usedBytes]));
    if (byPid.has(process.pid)) this.brokerHeldContext = true;
    for (const { generation, pid } of before.workers) {
      const usedBytes = byPid.get(pid ?? -1) ?? 0;
      const mayBytes = Math.max(chargedTo(before, generation, this.device), chargedTo(after, generation, this.device));
      if (usedBytes <= mayBytes + granuleBytes || !after.workers.some((worker) => worker.generation === generation)) continue;
      this.over.set(generation, (this.over.get(generation) ?? 0) + 1);
      if (this.overExamples.length < examplesMax) this.overExamples.push({ generation, usedBytes, before: standingOf(before, generation), after: standingOf(after, generation) });
    }
  }

  /** What was there before the first of ours is somebody else's. */
  private judgeTotal(before: LedgerState, chargedBytes: number, usedBytes: number): void {
    this.strangersBytes ??= usedBytes;
    const earlier = this.cardOf(before);
    const mayBytes = Math.max(chargedBytes, earlier === undefined ? 0 : chargedOn(earlier));
    const unchargedBytes = usedBytes - this.strangersBytes - mayBytes;
    this.maxUnchargedBytes = Math.max(this.maxUnchargedBytes, unchargedBytes);
    if (unchargedBytes > granuleBytes) this.unchargedReadings++;
  }

  private cardOf(ledger: LedgerState): LedgerState['cards'][number] | undefined {
    return ledger.cards.find(({ device }) => device === this.device);
  }

  summary(): Watched {
    const { readings, peakUsedBytes, peakChargedBytes, brokerHeldContext, overcommittedReadings, overExamples, maxUnchargedBytes, unchargedReadings } = this;
    return { readings, peakUsedBytes, peakChargedBytes, brokerHeldContext, overcommittedReadings, over: Object.fromEntries(this.over), overExamples, maxUnchargedBytes, unchargedReadings };
  }
}

function standingOf(ledger: LedgerState, generation: string): Standing {
  const process = ledger.processes.find((candidate) => candidate.generation === generation);
  const leases = ledger.leases.filter((lease) => lease.generation === generation).map(({ lease, state, chargedBytes, residentBytes }) => `${lease} ${state} ${String(chargedBytes)} ${String(residentBytes)}`);
  return { state: process?.state ?? null, floorBytes: process?.floorBytes ?? 0, leases };
}

function chargedOn(card: LedgerState['cards'][number]): number {
  return card.leasedBytes + card.floorBytes + card.residueBytes + card.returningBytes;
}

function chargedTo(ledger: LedgerState, generation: string, device: string): number {
  const floorBytes = ledger.processes.find((process) => process.generation === generation)?.floorBytes ?? 0;
  return ledger.leases.filter((lease) => lease.generation === generation && lease.device === device).reduce((sum, lease) => sum + lease.chargedBytes, floorBytes);
}

export function spread(values: readonly number[]): { readonly p50: number; readonly p95: number } | null {
  const sorted = [...values].sort((left, right) => left - right);
  if (sorted.length === 0) return null;
  const at = (fraction: number): number => sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? NaN;
  return { p50: at(0.5), p95: at(0.95) };
}
