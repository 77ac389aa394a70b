/** The auditor's ledger of the machine's memory, built from the log like the other: what each lease was promised there, says it has, and is told to give back. */
import type { HostNeed, ModelState } from '../../../protocol/index.js';
import type { AuditedLease } from './records.js';

/** What a lease has there. */
export interface LeaseMemory {
  readonly lease: string;
  readonly generation: string;
  asked: HostNeed;
  keepCopy: boolean;
  loaded: boolean;
  /** Of its copy, as reported last. */
  copyBytes: number;
  /** Promised for a park under way; 0: none is. */
  parkBytes: number;
  /** When its grant, or its park, was promised. */
  promisedAtUs: number;
  /** A `trim_host` that has not been answered. */
  trim: number | null;
  /** It was asked and did not give its copy back. */
  refusedTrim: boolean;
}

export class MemoryBook {
  readonly leases = new Map<string, LeaseMemory>();
  /** Of leases that are over by the book: should one turn out to be there after all, what it said since counts. */
  readonly ended = new Map<string, LeaseMemory>();
  /** What each process had before its first lease, as read, and since when that was known; while it was starting it need not be all that it costs. */
  readonly floors = new Map<string, { readonly bytes: number; readonly sinceUs: number; readonly isWhole: boolean }>();
  readonly hadLease = new Set<string>();
  /** Since when a worker has had more there than it may, and whether it has been asked for that. */
  readonly grown = new Map<string, { readonly sinceUs: number; asked: boolean }>();
  /** Something since the last look may have made charges fall: a reading, an exit, or that there is none. */
  mayFall = true;
  lastChargedBytes = 0;

  constructor(readonly device: string, readonly allowUnknown: boolean) {}

  restart(): void {
    for (const kept of [this.leases, this.ended, this.floors, this.hadLease, this.grown]) kept.clear();
    this.mayFall = true;
    this.lastChargedBytes = 0;
  }

  /** What a lease may truly take there now, its headroom left out. */
  promiseOf(memory: LeaseMemory): number {
    const { neededBytes, copyBytes, peakBytes } = memory.asked;
    const loading = Math.max(neededBytes + (memory.keepCopy ? copyBytes : 0), peakBytes);
    return Math.max(memory.loaded ? neededBytes + memory.copyBytes : loading, memory.parkBytes);
  }

  /** What a lease has there, also of one that is over by the book. */
  of(lease: string): LeaseMemory | undefined {
    return this.leases.get(lease) ?? this.ended.get(lease);
  }

  leasesOf(generation: string): LeaseMemory[] {
    return [...this.leases.values()].filter((memory) => memory.generation === generation);
  }
}

/** As its owner tells a broker that did not grant it. */
export function takeInMemory(memory: MemoryBook, lease: AuditedLease, state: ModelState, nowUs: number): void {
  const asked = state.terms?.host ?? { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null };
  const has: LeaseMemory = {
    lease: lease.lease, generation: lease.generation, asked, keepCopy: asked.copyBytes > 0, loaded: state.state !== 'loading', copyBytes: state.hostBytes,
    parkBytes: 0, promisedAtUs: nowUs, trim: null, refusedTrim: false,
  };
  if (state.state === 'parking' && state.hostBytes === 0) has.parkBytes = parkNeedBytes(has, lease);
  memory.leases.set(lease.lease, has);
  memory.hadLease.add(lease.generation);
}

/** The most that a park without a copy may take: as stated, else twice the weights. */
export function parkNeedBytes(memory: LeaseMemory, lease: AuditedLease): number {
  const weightsBytes = lease.parts.reduce((sum, part) => sum + (part.kind === 'weights' ? part.bytes : 0), 0);
  return memory.asked.neededBytes + (memory.asked.parkPeakBytes ?? 2 * Math.min(weightsBytes, lease.residentBytes));
}
