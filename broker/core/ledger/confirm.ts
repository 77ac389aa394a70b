/**
 * Seeing bytes gone. By the process's own figure where that works; else by the
 * card's total, in a quiet moment in which nothing else there loads or leaves
 * (D16). What a sample shows to be there stays charged, to the byte; what it
 * shows gone is free. Used bytes that nobody explains are taken for what is
 * still on its way back, never for room.
 */
import { dropCharge, leasedSeenBytes, setAttributed, setCharged, setMeasured } from './ledger.js';
import { mustLease } from '../must.js';
import { finishRelease } from './release.js';
import { publish } from '../report.js';
import type { Card, Core, Lease, Returning, Seat } from '../state.js';

/** Judges everything unconfirmed on a card by the sample just taken. */
export function confirmReleases(core: Core, card: Card, takenAtUs: number, usedBytes: number): void {
  if (card.confirms === 'process') {
    confirmBySeats(core, card, takenAtUs);
    confirmReturning(core, card, takenAtUs, usedBytes);
  } else if (isQuiet(core, card, takenAtUs)) {
    card.quietWantedUs = core.attendedUs;
    confirmByTotal(core, card, takenAtUs, usedBytes);
  }
  if (card.releasing.size === 0 && card.returning.size === 0) card.quietWantedUs = null;
}

/** Nothing loads, is being put away, starts or ends there, and the last that did came to rest before the sample. */
export function isQuiet(core: Core, card: Card, takenAtUs: number): boolean {
  if (card.closedBy.size > 0 || card.loading.size > 0 || card.spawning > 0 || card.ending.size > 0 || card.lastMotionAtUs > takenAtUs) return false;
  for (const id of card.jobs) if (mustLease(core, id).job?.phase !== 'draining') return false;
  return true;
}

function confirmBySeats(core: Core, card: Card, takenAtUs: number): void {
  const bySeat = new Map<string, Lease[]>();
  for (const id of card.releasing) {
    const lease = mustLease(core, id);
    if (lease.release === null || lease.release.reportedAtUs > takenAtUs) continue;
    bySeat.set(lease.generation, [...(bySeat.get(lease.generation) ?? []), lease]);
  }
  for (const [generation, leases] of bySeat) {
    const seat = card.seats.get(generation);
    if (seat === undefined || seat.readingBytes === null || hasLeft(core, seat)) continue;
    shareOut(core, card, leases, seat.readingBytes - expectedOf(seat, leases), 'by the figure of its process');
  }
}

/**
 * It is no longer listed, and its session has ended or it was told to end: most
 * likely it is gone, and its bytes may still be on their way back. Its exit is
 * what confirms then, not a figure of 0.
 */
export function hasLeft(core: Core, seat: Seat): boolean {
  const process = core.processes.get(seat.generation);
  return seat.readingBytes === 0 && (process?.sessionOpen !== true || process.state === 'ending');
}

/** What the process had at the sample without what these releases are to free: as it was told by then, for a younger report says nothing of that figure. */
function expectedOf(seat: Seat, leases: readonly Lease[]): number {
  let bytes = Math.max(seat.baselineBytes, seat.floor.seenBytes) + seat.residue.chargedBytes + leasedSeenBytes(seat);
  for (const lease of leases) bytes -= lease.charge.seenBytes - Math.min(lease.charge.seenBytes, lease.release?.leftBytes ?? 0);
  return bytes;
}

/** Of the bytes that are still there too much, the oldest releases have the most; the rest are confirmed. */
function shareOut(core: Core, card: Card, leases: readonly Lease[], excessBytes: number, how: string): number {
  let rest = excessBytes <= core.options.limits.measureToleranceBytes ? 0 : excessBytes;
  const oldestFirst = [...leases].sort((a, b) => (a.release?.reportedAtUs ?? 0) - (b.release?.reportedAtUs ?? 0) || a.order - b.order);
  for (const lease of oldestFirst) {
    const { release } = lease;
    if (release === null) continue;
    const share = Math.max(0, Math.min(rest, release.fromChargedBytes - release.toChargedBytes));
    rest -= share;
    if (share === 0) {
      finishRelease(core, lease, how);
      continue;
    }
    release.measuredAtUs = card.sample?.takenAtUs ?? core.nowUs;
    const bytes = Math.min(lease.charge.chargedBytes, release.toChargedBytes + share);
    setCharged(core, lease.charge, bytes);
    setMeasured(core, lease.charge, bytes);
    setAttributed(card, lease.charge, bytes);
    card.planEpoch++;
  }
  return rest;
}

function confirmReturning(core: Core, card: Card, takenAtUs: number, usedBytes: number): void {
  if (card.returning.size === 0) return;
  // Another rung answers, without figures for processes: then as by the total, in a quiet moment.
  if (card.strangersBytes === null && !isQuiet(core, card, takenAtUs)) return;
  const due = dueReturning(card, takenAtUs);
  for (const { charge, listedBytes } of due) if (listedBytes > charge.chargedBytes) setCharged(core, charge, listedBytes);
  const attributed = due.reduce((sum, returning) => sum + returning.charge.attributedBytes, 0);
  const listed = due.reduce((sum, returning) => sum + returning.listedBytes, 0);
  // By the driver's figures for the living where it has them: what loads is attributed in full and would hide what is still to return.
  const unexplained = card.strangersBytes === null ? usedBytes - (card.attributedBytes - attributed) : card.strangersBytes + listed;
  shareReturning(core, card, due, Math.max(listed, unexplained - card.foreignBaseBytes));
}

function confirmByTotal(core: Core, card: Card, takenAtUs: number, usedBytes: number): void {
  const leases = [...card.releasing].map((id) => mustLease(core, id)).filter((lease) => lease.release !== null && lease.release.reportedAtUs <= takenAtUs);
  const due = dueReturning(card, takenAtUs);
  let others = card.attributedBytes;
  for (const lease of leases) others += Math.min(lease.release?.leftBytes ?? 0, lease.release?.toChargedBytes ?? 0) - lease.charge.attributedBytes;
  for (const returning of due) others -= returning.charge.attributedBytes;
  const rest = shareOut(core, card, leases, usedBytes - card.foreignBaseBytes - others, 'by the total of the card');
  shareReturning(core, card, due, rest);
}

function dueReturning(card: Card, takenAtUs: number): Returning[] {
  return [...card.returning.values()].filter((returning) => returning.exitedAtUs <= takenAtUs).sort((a, b) => a.exitedAtUs - b.exitedAtUs);
}

function shareReturning(core: Core, card: Card, due: readonly Returning[], excessBytes: number): void {
  let rest = excessBytes <= core.options.limits.measureToleranceBytes ? 0 : excessBytes;
  for (const returning of due) {
    const share = Math.min(rest, returning.charge.chargedBytes);
    rest -= share;
    if (share === 0) {
      dropReturning(core, card, returning, 'seen gone');
      continue;
    }
    returning.measured = true;
    setCharged(core, returning.charge, share);
    setMeasured(core, returning.charge, share);
    setAttributed(card, returning.charge, share);
    card.planEpoch++;
  }
}

/** The bytes of an ended process are free. */
export function dropReturning(core: Core, card: Card, returning: Returning, how: string): void {
  const bytes = returning.charge.chargedBytes;
  dropCharge(core, returning.charge);
  card.returning.delete(returning.generation);
  core.timers.drop('returning', returningKey(card, returning.generation));
  card.planEpoch++;
  core.dirty.add(card.device);
  publish(core, 'released', { lease: null, model: null, generation: returning.generation, device: card.device, freedBytes: bytes, how });
}

export function returningKey(card: Card, generation: string): string {
  return `${card.device} ${generation}`;
}
