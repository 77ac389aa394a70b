/**
 * Charges and their sums. Every change goes through here and costs O(1): sums
 * by card and by seat are kept, never recomputed (../invariants.ts recomputes them
 * to check).
 */
import { bounded, cardSumBytesMax } from './bounds.js';
import { must, mustCard } from '../must.js';
import type { Card, Charge, ChargeKind, Core, Seat } from '../state.js';

export function newCharge(kind: ChargeKind, id: string, device: string, generation: string): Charge {
  return {
    id, kind, device, generation,
    chargedBytes: 0, wantedBytes: 0, residentBytes: 0, wantedResidentBytes: 0, seenBytes: 0, attributedBytes: 0,
    flux: null, fluxSinceAtUs: 0, loadings: [], coming: false, givenBackBytes: 0, changes: [],
  };
}

/** The seat of a process on a card, made when it first needs one. */
export function seatOf(core: Core, card: Card, generation: string): Seat {
  const known = card.seats.get(generation);
  if (known !== undefined) return known;
  const seat: Seat = {
    generation,
    device: card.device,
    floor: newCharge('floor', `floor ${generation}`, card.device, generation),
    residue: newCharge('residue', `residue ${generation}`, card.device, generation),
    leases: new Set(),
    chargedBytes: 0, unseenBytes: 0, seenBytes: 0, coming: { chargedBytes: 0, unseenBytes: 0, seenBytes: 0 }, pendingBytes: 0, leasedBytes: 0, unsettled: 0,
    readingBytes: null, vanishedBytes: 0, spilledBytes: 0, baselineBytes: 0, floorSource: 'unknown', hadLease: false, leasedSinceAtUs: 0, cut: { charged: new Set(), resident: new Set() }, remeasure: new Set(), loweredAtUs: 0,
  };
  card.seats.set(generation, seat);
  core.dirty.add(card.device);
  return seat;
}

/** Sets what a charge counts against its card; never more than one process, headroom included, can cost there. */
export function setCharged(core: Core, charge: Charge, wantedBytes: number): void {
  must(Number.isSafeInteger(wantedBytes) && wantedBytes >= 0, `charge ${charge.id} is a byte count, not ${String(wantedBytes)}`);
  const card = mustCard(core, charge.device);
  const seat = charge.kind === 'returning' ? undefined : card.seats.get(charge.generation);
  const bytes = bounded(card, wantedBytes, charge.chargedBytes, seat?.chargedBytes ?? charge.chargedBytes, card.chargedBytes);
  charge.wantedBytes = wantedBytes;
  if (seat !== undefined) noteCut(seat.cut.charged, charge.id, bytes < wantedBytes);
  const grownBytes = bytes - charge.chargedBytes;
  if (grownBytes === 0) return;
  if (grownBytes < 0) relieve(core, card, seat, card.chargedBytes);
  const before = unseen(charge);
  charge.chargedBytes = bytes;
  card.charged[charge.kind] += grownBytes;
  card.chargedBytes += grownBytes;
  shift(card, charge, grownBytes, unseen(charge) - before, 0);
  core.dirty.add(card.device);
}

function noteCut(cut: Set<string>, id: string, isCut: boolean): void {
  if (isCut) cut.add(id);
  else if (cut.size > 0) cut.delete(id);
}

/** A figure falls: what was cut off for it is looked at again in this step. */
function relieve(core: Core, card: Card, seat: Seat | undefined, cardBytes: number): void {
  // It was the card as a whole that had no more room.
  if (cardBytes >= cardSumBytesMax) for (const other of card.seats.values()) core.relieved.add(other);
  else if (seat !== undefined && seat.cut.charged.size + seat.cut.resident.size > 0) core.relieved.add(seat);
}

/** Sets what is believed resident. A sample taken later sees it; one taken before does not. */
export function setResident(core: Core, charge: Charge, wantedBytes: number): void {
  if (wantedBytes === charge.residentBytes && wantedBytes === charge.wantedResidentBytes) return;
  const bytes = moveResident(core, charge, wantedBytes);
  charge.changes.push({ atUs: core.nowUs, residentBytes: bytes });
  if (charge.changes.length > changesMax) charge.changes.shift();
  mustCard(core, charge.device).unsampled.set(charge.id, charge);
}

/** Marks a charge as loading or releasing, or as settled. */
export function setFlux(core: Core, charge: Charge, flux: Charge['flux']): void {
  if (flux === charge.flux) return;
  const card = mustCard(core, charge.device);
  noteLoading(core, charge, flux === 'loading');
  charge.flux = flux;
  charge.fluxSinceAtUs = core.nowUs;
  card.lastMotionAtUs = core.nowUs;
  card.unsampled.set(charge.id, charge);
}

/** Loadings of one charge remembered: more between two samples are taken for one. */
const loadingsMax = 8;
/** Reports of one charge remembered, on a card that is not read for long. */
const changesMax = 64;

function noteLoading(core: Core, charge: Charge, begins: boolean): void {
  const { loadings } = charge;
  const last = loadings.at(-1);
  if (begins) loadings.push({ sinceAtUs: core.nowUs, untilAtUs: null, chargedBytes: 0 });
  else if (last?.untilAtUs === null) {
    last.untilAtUs = core.nowUs;
    last.chargedBytes = charge.chargedBytes;
  }
  const [first, second] = loadings;
  if (loadings.length <= loadingsMax || first === undefined || second === undefined) return;
  loadings.splice(0, 2, { sinceAtUs: first.sinceAtUs, untilAtUs: second.untilAtUs, chargedBytes: Math.max(first.chargedBytes, second.chargedBytes) });
}

/** What was resident at the last sample, as that sample (or a measurement of it) tells. */
export function setSeen(core: Core, charge: Charge, bytes: number): void {
  if (bytes === charge.seenBytes) return;
  const card = mustCard(core, charge.device);
  const before = unseen(charge);
  const grownBytes = bytes - charge.seenBytes;
  charge.seenBytes = bytes;
  shift(card, charge, 0, unseen(charge) - before, grownBytes);
}

/** A measurement says what is there now: resident, seen and no longer in doubt. */
export function setMeasured(core: Core, charge: Charge, wantedBytes: number): void {
  const bytes = moveResident(core, charge, wantedBytes);
  charge.changes.length = 0;
  setSeen(core, charge, bytes);
}

export function setAttributed(card: Card, charge: Charge, bytes: number): void {
  card.attributedBytes += bytes - charge.attributedBytes;
  charge.attributedBytes = bytes;
}

/** Lets a sample taken at `takenAtUs` judge one charge; true when nothing younger is left to judge. */
export function judge(core: Core, card: Card, charge: Charge, takenAtUs: number): boolean {
  let judged = 0;
  for (const change of charge.changes) {
    if (change.atUs > takenAtUs) break;
    setSeen(core, charge, change.residentBytes);
    judged++;
  }
  charge.changes.splice(0, judged);
  const inFlux = charge.flux !== null && charge.fluxSinceAtUs <= takenAtUs;
  // Those that had ended when it was taken say nothing of it, nor of any that comes after it.
  while (charge.loadings[0] !== undefined && (charge.loadings[0].untilAtUs ?? Infinity) <= takenAtUs) charge.loadings.shift();
  const [first] = charge.loadings;
  const wasLoading = first !== undefined && first.sinceAtUs <= takenAtUs;
  charge.givenBackBytes = wasLoading ? Math.max(0, first.chargedBytes - charge.chargedBytes) : 0;
  setComing(card, charge, wasLoading);
  setAttributed(card, charge, inFlux || wasLoading ? charge.chargedBytes + charge.givenBackBytes : charge.seenBytes);
  return charge.changes.length === 0 && charge.flux === null && charge.loadings.length === 0;
}

/** What the leases of a process had at the last sample, as was reported by then. Only this can be compared with its figure in that sample. */
export function leasedSeenBytes(seat: Seat): number {
  return seat.seenBytes - seat.floor.seenBytes - seat.residue.seenBytes;
}

/** Takes a charge out of every sum. */
export function dropCharge(core: Core, charge: Charge): void {
  const card = mustCard(core, charge.device);
  setCharged(core, charge, 0);
  setMeasured(core, charge, 0);
  setAttributed(card, charge, 0);
  setComing(card, charge, false);
  card.unsampled.delete(charge.id);
}

/** Sets the driver's figure for a process; null: there is none. */
export function setReading(card: Card, seat: Seat, bytes: number | null): void {
  if (bytes !== null && bytes > 0) seat.vanishedBytes = 0;
  else if (seat.readingBytes !== null && seat.readingBytes > 0) seat.vanishedBytes = seat.readingBytes;
  seat.readingBytes = bytes;
  refreshPending(card, seat);
}

function moveResident(core: Core, charge: Charge, wantedBytes: number): number {
  const card = mustCard(core, charge.device);
  const seat = charge.kind === 'lease' ? card.seats.get(charge.generation) : undefined;
  const bytes = bounded(card, wantedBytes, charge.residentBytes, seat?.leasedBytes ?? charge.residentBytes, card.residentBytes);
  const grownBytes = bytes - charge.residentBytes;
  charge.wantedResidentBytes = wantedBytes;
  if (seat !== undefined) noteCut(seat.cut.resident, charge.id, bytes < wantedBytes);
  if (grownBytes < 0) relieve(core, card, seat, card.residentBytes);
  charge.residentBytes = bytes;
  card.residentBytes += grownBytes;
  if (seat !== undefined) seat.leasedBytes += grownBytes;
  return bytes;
}

function unseen(charge: Charge): number {
  return Math.max(0, charge.chargedBytes - charge.seenBytes);
}

/** Takes a charge into, or out of, the sums of what was loading at the last sample. */
function setComing(card: Card, charge: Charge, coming: boolean): void {
  if (coming === charge.coming) return;
  charge.coming = coming;
  const seat = card.seats.get(charge.generation);
  if (seat === undefined) return;
  const sign = coming ? 1 : -1;
  seat.coming.chargedBytes += sign * charge.chargedBytes;
  seat.coming.unseenBytes += sign * unseen(charge);
  seat.coming.seenBytes += sign * charge.seenBytes;
  refreshPending(card, seat);
}

function shift(card: Card, charge: Charge, chargedBytes: number, unseenBytes: number, seenBytes: number): void {
  const seat = charge.kind === 'returning' ? undefined : card.seats.get(charge.generation);
  if (seat === undefined) {
    card.pendingBytes += unseenBytes;
    return;
  }
  seat.chargedBytes += chargedBytes;
  seat.unseenBytes += unseenBytes;
  seat.seenBytes += seenBytes;
  if (charge.coming) {
    seat.coming.chargedBytes += chargedBytes;
    seat.coming.unseenBytes += unseenBytes;
    seat.coming.seenBytes += seenBytes;
  }
  refreshPending(card, seat);
}

function refreshPending(card: Card, seat: Seat): void {
  const pendingBytes = pendingOf(seat);
  card.pendingBytes += pendingBytes - seat.pendingBytes;
  seat.pendingBytes = pendingBytes;
}

/**
 * What a process may still take beyond the last sample. Without the driver's
 * figure for it: as its own reports say. With it: what was loading has of the
 * figure whatever the other charges leave, and all together have at least what
 * the figure leaves of them, since a report of bytes that are not there must
 * not count as room (R47).
 */
export function pendingOf(seat: Seat): number {
  if (seat.readingBytes === null) return seat.unseenBytes;
  const { coming } = seat;
  const leftBytes = Math.max(0, seat.readingBytes - (seat.seenBytes - coming.seenBytes));
  const comingBytes = Math.max(0, coming.chargedBytes - leftBytes);
  return Math.max(seat.unseenBytes - coming.unseenBytes + comingBytes, seat.chargedBytes - seat.readingBytes);
}
