/** What of a card is in use by programs that are not ours, and how far a reading can tell. */
import { isQuiet } from '../ledger/confirm.js';
import { mustLease } from '../must.js';
import { publish } from '../report.js';
import type { Card, Core } from '../state.js';

/** Used bytes that none of ours explain (D15). The base against which releases are judged moves only while nothing is leaving. */
export function judgeForeign(core: Core, card: Card, takenAtUs: number, usedBytes: number): void {
  const foreignBytes = Math.max(0, usedBytes - card.attributedBytes);
  const before = card.foreignBytes ?? 0;
  card.foreignBytes = foreignBytes;
  const still = card.closedBy.size === 0 && card.releasing.size === 0 && card.returning.size === 0 && card.ending.size === 0;
  if (card.strangersBytes !== null) {
    card.foreignBaseBytes = areStrangers(core, card) ? card.strangersBytes : Math.min(card.foreignBaseBytes, card.strangersBytes);
  } else if (still && isQuiet(core, card, takenAtUs)) card.foreignBaseBytes = foreignBytes;
  else card.foreignBaseBytes = Math.min(card.foreignBaseBytes, Math.max(0, usedBytes - settledAttributed(core, card)));
  // A machine's memory is never at rest: there only what matters is told.
  const toldFromBytes = card === core.host ? Math.floor(card.totalBytes / 64) : core.options.limits.measureToleranceBytes;
  if (Math.abs(foreignBytes - before) > toldFromBytes) publish(core, 'foreign_changed', { device: card.device, foreignBytes, beforeBytes: before });
}

/** What no process of ours is listed with is strangers': bytes of one that has just died, its exit not yet heard of, look like theirs. */
export function areStrangers(core: Core, card: Card): boolean {
  return card.returning.size === 0 && card.ending.size === 0 && !hasVanished(core, card);
}

/** A process that should take bytes here is no longer listed. One that starts or loads has not told of all that it takes: there what was listed counts. */
function hasVanished(core: Core, card: Card): boolean {
  const { measureToleranceBytes } = core.options.limits;
  for (const seat of card.seats.values()) {
    if (seat.readingBytes !== 0) continue;
    if (seat.leasedBytes + seat.floor.residentBytes + seat.residue.residentBytes > measureToleranceBytes) return true;
    const isUntold = seat.unsettled > 0 || core.processes.get(seat.generation)?.state === 'spawning';
    if (isUntold && seat.vanishedBytes > measureToleranceBytes) return true;
  }
  return false;
}

/** Attributed bytes without what is on its way back. */
function settledAttributed(core: Core, card: Card): number {
  let bytes = card.attributedBytes;
  for (const id of card.releasing) bytes -= mustLease(core, id).charge.attributedBytes;
  for (const returning of card.returning.values()) bytes -= returning.charge.attributedBytes;
  return bytes;
}
