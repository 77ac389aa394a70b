/** More than was leased: charged at once whatever is free (D12); raised where there is room, else unloaded and said why (B25). Never ignored. */
import { available, ledgerTermBytes } from '../ledger/available.js';
import { companions } from '../gangs/gang.js';
import { mayBePutAway } from '../eviction/put-away.js';
import { floorMeasured, judgeFloorClaim } from '../ledger/floors.js';
import { leasedSeenBytes, setAttributed, setCharged, setMeasured } from '../ledger/ledger.js';
import { startEviction } from '../eviction/ladder.js';
import { isLoading, reindex } from '../ledger/lease-store.js';
import { mustCard, mustLease } from '../must.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Lease, Process, Seat } from '../state.js';
import { terminateWhenIdle } from '../processes/terminate.js';

/** A lease turns out to need `wantedBytes`, headroom included, for `heldBytes` of steady use. */
export function overLease(core: Core, lease: Lease, heldBytes: number, wantedBytes: number): void {
  const card = mustCard(core, lease.device);
  const beforeBytes = lease.charge.wantedBytes;
  setCharged(core, lease.charge, wantedBytes);
  // What had been found without explanation in this process is explained as far as its lease now covers it.
  const seat = card.seats.get(lease.generation);
  if (seat !== undefined) setResidue(core, seat, Math.max(0, seat.residue.chargedBytes - Math.max(0, wantedBytes - beforeBytes)));
  reindex(core, lease);
  const room = hasRoom(core, card);
  // Inside its lease: the headroom is restored, and nobody is to blame.
  if (heldBytes <= beforeBytes && !lease.over) return;
  if (heldBytes > beforeBytes) tellOvershoot(core, lease, heldBytes, beforeBytes, room);
  setOver(core, lease, !room);
}

/** Marks a lease as one to be unloaded (done as soon as it can be), or no longer. */
export function setOver(core: Core, lease: Lease, over: boolean): void {
  lease.over = over;
  if (!over) core.over.delete(lease.id);
  else if (lease.state !== 'quarantined') {
    core.over.add(lease.id);
    unloadOver(core, lease);
  }
}

function hasRoom(core: Core, card: Card): boolean {
  return (available(core, card).freeBytes ?? ledgerTermBytes(card)) >= card.holdBytes;
}

function tellOvershoot(core: Core, lease: Lease, heldBytes: number, beforeBytes: number, room: boolean): void {
  count(core, 'overshoots');
  publish(core, 'overshoot', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, bytes: heldBytes - beforeBytes });
  explain(core, {
    verdict: 'overshoot',
    text: `${lease.model} holds ${inWords(heldBytes)} under a lease of ${inWords(beforeBytes)}; ${room ? 'the lease is raised' : 'there is no room to raise it, so it is unloaded'}`,
    generation: lease.generation, model: lease.model, device: lease.device,
  });
}

/** On a tick: room may have come meanwhile, and then its raised charge is all that was needed. */
export function reconsiderOver(core: Core, lease: Lease): void {
  if (hasRoom(core, mustCard(core, lease.device))) setOver(core, lease, false);
  else unloadOver(core, lease);
}

/** Unloads once its calls have ended; a load, its own or one that measures free memory, is left to end first (B14). */
function unloadOver(core: Core, lease: Lease): void {
  if (lease.job !== null || lease.release !== null || isLoading(lease) || lease.state !== 'resident' || lease.avoidUntilUs > core.attendedUs) return;
  if (!mayBePutAway(core, lease) || companions(core, lease).some((member) => isLoading(member))) return;
  startEviction(core, lease, { cause: 'overshoot', when: 'drained', bytes: null, target: 'none', waiterSinceAtUs: null, beneficiary: null, reason: 'over_lease: it holds more than its lease and there is no room to raise it' });
}

/** Compares the driver's figure for a process with its charges, in the sample just taken; `givenBackBytes` of them have been given back since. */
export function judgeSeat(core: Core, card: Card, seat: Seat, givenBackBytes: number): void {
  const readingBytes = seat.readingBytes;
  if (readingBytes === null) return;
  const process = core.processes.get(seat.generation);
  if (typeof process?.engine === 'string' && core.floorClaims.size > 0 && process.state !== 'spawning') judgeFloorClaim(core, card, seat, process.engine, readingBytes);
  if (showsFloor(seat, process)) {
    judgeEmptySeat(core, card, seat, process?.engine ?? null, readingBytes);
    return;
  }
  const settled = seat.unsettled === 0 && process?.state !== 'spawning';
  const explainedBytes = seat.chargedBytes - seat.residue.chargedBytes + givenBackBytes;
  const excessBytes = Math.max(0, readingBytes - explainedBytes);
  const strayBytes = excessBytes <= core.options.limits.measureToleranceBytes ? 0 : excessBytes;
  if (strayBytes > seat.residue.chargedBytes) chargeStray(core, card, seat, strayBytes);
  // While something of it loads, what was granted for that would hide what is unexplained.
  // Nor does a process that ends: it may be gone already, and what it had not yet back.
  else if (settled && strayBytes < seat.residue.chargedBytes && !card.ending.has(seat.generation)) shrinkResidue(core, seat, strayBytes);
  if (settled && seat.coming.chargedBytes === 0) seat.baselineBytes = Math.max(0, readingBytes - leasedSeenBytes(seat) - seat.residue.chargedBytes);
}

/**
 * Whether all that a process takes now is what it costs without models: a
 * holder between leases, or a worker that has never had one and is still
 * starting or has not said itself. After a lease it may as well be what that
 * left behind.
 */
function showsFloor(seat: Seat, process: Process | undefined): boolean {
  if (seat.leases.size > 0 || seat.residue.chargedBytes > 0) return false;
  return process?.role === 'holder' || (!seat.hadLease && (seat.floorSource !== 'measured' || process?.state === 'spawning'));
}

/** A process without leases: all it takes is its floor; for a holder that is the pid's unleased bytes (D7). */
function judgeEmptySeat(core: Core, card: Card, seat: Seat, engine: string | null, readingBytes: number): void {
  // Its own word about its floor is younger than this reading.
  if (seat.floor.changes.length > 0) return;
  const process = core.processes.get(seat.generation);
  seat.baselineBytes = readingBytes;
  const over = readingBytes > seat.floor.chargedBytes + core.options.limits.measureToleranceBytes;
  const isHolder = process?.role === 'holder';
  // What a worker that is up was only taken to cost is known now.
  const isFirst = process?.state === 'ready' && seat.floorSource === 'unknown' && readingBytes > 0;
  if (over || isFirst || (isHolder && readingBytes < seat.floor.chargedBytes)) floorMeasured(core, card, seat, isHolder ? null : engine, readingBytes);
  if (process === undefined || process.state === 'spawning') return;
  setMeasured(core, seat.floor, Math.min(readingBytes, seat.floor.chargedBytes));
  setAttributed(card, seat.floor, seat.floor.seenBytes);
}

/** Residue that the driver no longer shows is gone. */
function shrinkResidue(core: Core, seat: Seat, leftBytes: number): void {
  setResidue(core, seat, leftBytes);
  publish(core, 'residue', { generation: seat.generation, device: seat.device, bytes: leftBytes });
  const process = core.processes.get(seat.generation);
  if (leftBytes === 0 && process?.endWhenIdle === 'residue') process.endWhenIdle = null;
}

/** Sets what a process holds beyond its floor and leases, as measured. */
export function setResidue(core: Core, seat: Seat, bytes: number): void {
  if (bytes === seat.residue.wantedBytes) return;
  setCharged(core, seat.residue, bytes);
  setMeasured(core, seat.residue, bytes);
  setAttributed(mustCard(core, seat.device), seat.residue, bytes);
}

/** Bytes that no report explains: charged as residue of the process; where that leaves no room, whatever it holds is unloaded. */
function chargeStray(core: Core, card: Card, seat: Seat, bytes: number): void {
  const grownBytes = bytes - seat.residue.chargedBytes;
  setResidue(core, seat, bytes);
  count(core, 'strays');
  count(core, 'overshoots');
  publish(core, 'overshoot', { lease: null, generation: seat.generation, device: card.device, bytes: grownBytes });
  const room = hasRoom(core, card);
  explain(core, {
    verdict: 'overshoot', generation: seat.generation, device: card.device,
    text: `${seat.generation} holds ${inWords(bytes)} on ${card.device} that no lease explains${room ? '' : '; the card is full, so what it hosts is unloaded'}`,
  });
  const process = core.processes.get(seat.generation);
  if (process !== undefined) unloadFor(core, card, seat, process);
}

/** Where what it holds without a lease leaves no room, what it hosts there is unloaded; a worker that hosts nothing there is ended. */
export function unloadFor(core: Core, card: Card, seat: Seat, process: Process): void {
  if (hasRoom(core, card)) return;
  for (const id of seat.leases) setOver(core, mustLease(core, id), true);
  if (seat.leases.size === 0 && process.role === 'worker') terminateWhenIdle(core, process, 'misbehaved', 'it holds bytes that no lease explains, and the card is full');
}
