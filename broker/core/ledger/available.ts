/** What a card could give right now: the two terms, and whether they may be believed. */
import { mustLease } from '../must.js';
import type { AdmissionNumbers, Card, Core, Seat } from '../state.js';

export interface Available {
  /** Both terms' minimum before holds; negative after an overshoot; null: unknown, nothing may rely on it. */
  readonly freeBytes: number | null;
  /** No measurement stands behind it. */
  readonly unverified: boolean;
}

/** The ledger's own term: total - reserve - charges. */
export function ledgerTermBytes(card: Card): number {
  return card.totalBytes - card.reserveBytes - card.chargedBytes;
}

/** The sample's term: sampled free - reserve - what is charged and was not yet resident; null without a usable sample. */
export function sampleTermBytes(core: Core, card: Card): number | null {
  const sample = card.sample;
  if (sample === null || core.nowUs - sample.takenAtUs > core.options.limits.sampleMaxAgeMs * 1_000) return null;
  // Taken while it was not known whose bytes are whose.
  if (sample.takenAtUs < card.openedAtUs) return null;
  return Math.min(card.totalBytes, sample.totalBytes) - sample.usedBytes - card.reserveBytes - card.pendingBytes;
}

/** True while the card is judged by the ledger alone: its probe does not answer and the operator allows it. */
export function isLedgerOnly(core: Core, card: Card): boolean {
  if (card.kind === 'cpu') return true;
  const allowed = card.kind === 'host' ? core.options.allowHostUnknown === true : core.options.allowLedgerOnly;
  return allowed && card.missing !== null && sampleTermBytes(core, card) === null;
}

/** Nothing shows bytes leave there: what is said to be given back is. */
export function isUnwatched(core: Core, card: Card): boolean {
  return card.confirms === 'none' || isLedgerOnly(core, card);
}

/** available = min of both terms; holds are not taken off here. */
export function available(core: Core, card: Card): Available {
  const ledgerBytes = ledgerTermBytes(card);
  if (card.kind === 'cpu') return { freeBytes: ledgerBytes, unverified: false };
  const sampleBytes = sampleTermBytes(core, card);
  if (sampleBytes !== null) return { freeBytes: Math.min(ledgerBytes, sampleBytes), unverified: false };
  if (isLedgerOnly(core, card)) return { freeBytes: ledgerBytes, unverified: true };
  return { freeBytes: null, unverified: true };
}

/** Bytes on their way back: released or exited and not yet seen gone, and commanded evictions that do not wait for a door. */
export function leavingBytes(core: Core, card: Card): { readonly firmBytes: number; readonly drainingBytes: number } {
  let firmBytes = 0;
  let drainingBytes = 0;
  for (const id of card.releasing) {
    const lease = mustLease(core, id);
    if (!card.ending.has(lease.generation)) firmBytes += Math.max(0, lease.charge.chargedBytes - (lease.release?.toChargedBytes ?? 0));
  }
  for (const id of card.jobs) {
    const lease = mustLease(core, id);
    if (lease.job === null || lease.release !== null || card.ending.has(lease.generation)) continue;
    const bytes = Math.min(lease.job.bytes ?? Infinity, lease.charge.chargedBytes);
    if (lease.job.phase === 'cancelling') continue;
    if (lease.job.when === 'drained' && lease.job.phase !== 'moving') drainingBytes += bytes;
    else firmBytes += bytes;
  }
  for (const returning of card.returning.values()) firmBytes += returning.charge.chargedBytes;
  for (const generation of card.ending) firmBytes += card.seats.get(generation)?.chargedBytes ?? 0;
  return { firmBytes, drainingBytes };
}

/** What processes that are not ours take: by the driver's figures where it has them, else what none of ours explains. */
export function strangersBytes(card: Card): number {
  return card.strangersBytes ?? card.foreignBytes ?? 0;
}

/** The floor that a process would add to the card: 0 once one is charged there. */
export function floorNeededBytes(core: Core, card: Card, generation: string, engine: string | null): number {
  const seat: Seat | undefined = card.seats.get(generation);
  if (seat !== undefined && seat.floorSource !== 'unknown') return 0;
  return Math.max(0, knownFloorBytes(core, card, engine) - (seat?.floor.chargedBytes ?? 0));
}

/** What one process of this engine costs on this kind of card until it is up: the most that was seen there or is stated of the card or the engine, since a start may take more for a moment than it leaves. */
export function knownFloorBytes(core: Core, card: Card, engine: string | null): number {
  if (card.kind === 'cpu') return 0;
  // What another program holds besides its leases says nothing about the next one.
  if (engine === null) return card.floorBytes ?? 0;
  const learnedBytes = core.learnedFloors.get(floorKey(card, engine)) ?? 0;
  return Math.max(learnedBytes, card.floorBytes ?? assumedFloorBytes(core, card, engine));
}

/** A process is on a real card before anybody can have measured it; simulated cards state what it costs there. */
function assumedFloorBytes(core: Core, card: Card, engine: string): number {
  if (card.kind !== 'gpu') return 0;
  return core.options.engines.find(({ name }) => name === engine)?.floorBytes ?? 0;
}

export function floorKey(card: Card, engine: string): string {
  return `${engine} ${card.kind} ${card.name}`;
}

/** Every number of a decision, as it stands. */
export function numbersOf(core: Core, card: Card, request: { readonly requestedBytes: number; readonly needBytes: number; readonly floorBytes: number; readonly ownHoldBytes: number }): AdmissionNumbers {
  const now = available(core, card);
  const freeBytes = now.freeBytes ?? 0;
  return {
    requestedBytes: request.requestedBytes,
    needBytes: request.needBytes,
    floorBytes: request.floorBytes,
    totalBytes: card.totalBytes,
    reserveBytes: card.reserveBytes,
    chargedBytes: card.chargedBytes,
    holdBytes: card.holdBytes - request.ownHoldBytes,
    foreignBytes: card.foreignBytes,
    sampledUsedBytes: card.sample?.usedBytes ?? null,
    sampleAgeMs: card.sample === null ? null : Math.floor((core.nowUs - card.sample.takenAtUs) / 1_000),
    availableBytes: Math.max(0, freeBytes - card.holdBytes + request.ownHoldBytes),
    evictableBytes: card.idleBytes,
    truth: now.unverified || card.sample === null ? 'ledger' : card.sample.truth,
  };
}

const namesShown = 4;

/** Whom a closed card waits for, for a person. */
export function closedText(card: Card): string {
  const names = [...card.closedBy];
  const others = names.length > namesShown ? ` and ${String(names.length - namesShown)} others` : '';
  return `${card.device} is closed to grants until ${names.slice(0, namesShown).join(', ')}${others}, of an earlier broker, ${names.length === 1 ? 'has' : 'have'} come back or ended`;
}
