/** More than was leased: charged at once whatever is free (D12); raised where there is room, else unloaded and said why (B25). Never ignored. */
import { available, ledgerTermBytes } from './available.js';
import { floorMeasured } from './floors.js';
import { setAttributed, setCharged, setMeasured } from './ledger.js';
import { startEviction } from './ladder.js';
import { isLoading } from './lease-store.js';
import { mustCard, mustLease } from './must.js';
import { count, explain, inWords, publish } from './report.js';
import type { Card, Core, Lease, Seat } from './state.js';
import { terminateWhenIdle } from './terminate.js';

/** A lease turns out to need `wantedBytes`, headroom included, for `heldBytes` of steady use. */
export function overLease(core: Core, lease: Lease, heldBytes: number, wantedBytes: number): void {
  const card = mustCard(core, lease.device);
  const beforeBytes = lease.charge.chargedBytes;
  setCharged(core, lease.charge, wantedBytes);
  // What had been found without explanation in this process is explained as far as its lease now covers it.
  const seat = card.seats.get(lease.generation);
  if (seat !== undefined) setResidue(core, seat, Math.max(0, seat.residue.chargedBytes - Math.max(0, wantedBytes - beforeBytes)));
  const room = hasRoom(core, card);
  // Inside its lease: the headroom is restored, and nobody is to blame.
  if (heldBytes <= beforeBytes && !lease.over) return;
  if (heldBytes > beforeBytes) tellOvershoot(core, lease, heldBytes, beforeBytes, room);
  lease.over = !room;
  if (lease.over) unloadOver(core, lease);
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

/** Unloads once its calls have ended; a load is left to end first. */
export function unloadOver(core: Core, lease: Lease): void {
  if (lease.job !== null || lease.release !== null || isLoading(lease) || lease.state !== 'resident') return;
  startEviction(core, lease, { cause: 'overshoot', when: 'drained', bytes: null, target: 'none', waiterSinceAtUs: null, beneficiary: null, reason: 'over_lease: it holds more than its lease and there is no room to raise it' });
}

/** Compares the driver's figure for a process with its charges, in the sample just taken. */
export function judgeSeat(core: Core, card: Card, seat: Seat): void {
  const readingBytes = seat.readingBytes;
  if (readingBytes === null) return;
  const process = core.processes.get(seat.generation);
  if (seat.leases.size === 0 && seat.residue.chargedBytes === 0) {
    judgeEmptySeat(core, card, seat, process?.engine ?? null, readingBytes);
    return;
  }
  const settled = seat.unsettled === 0 && process?.state !== 'spawning';
  if (settled) seat.baselineBytes = Math.max(0, readingBytes - seat.leasedBytes - seat.residue.chargedBytes);
  const explainedBytes = seat.chargedBytes - seat.residue.chargedBytes;
  const excessBytes = Math.max(0, readingBytes - explainedBytes);
  const strayBytes = excessBytes <= core.options.limits.measureToleranceBytes ? 0 : excessBytes;
  if (strayBytes > seat.residue.chargedBytes) chargeStray(core, card, seat, strayBytes);
  // While something of it loads, what was granted for that would hide what is unexplained.
  else if (settled && strayBytes < seat.residue.chargedBytes) shrinkResidue(core, seat, strayBytes);
}

/** A process without leases: all it takes is its floor; for a holder that is the pid's unleased bytes (D7). */
function judgeEmptySeat(core: Core, card: Card, seat: Seat, engine: string | null, readingBytes: number): void {
  const process = core.processes.get(seat.generation);
  seat.baselineBytes = readingBytes;
  const over = readingBytes > seat.floor.chargedBytes + core.options.limits.measureToleranceBytes;
  const isHolder = process?.role === 'holder';
  if (over || (isHolder && readingBytes < seat.floor.chargedBytes)) floorMeasured(core, card, seat, isHolder ? null : engine, readingBytes);
  if (process !== undefined && process.state !== 'spawning') setMeasured(core, seat.floor, Math.min(readingBytes, seat.floor.chargedBytes));
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
  if (bytes === seat.residue.chargedBytes) return;
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
  if (room) return;
  for (const id of seat.leases) {
    const lease = mustLease(core, id);
    lease.over = true;
    unloadOver(core, lease);
  }
  const process = core.processes.get(seat.generation);
  if (seat.leases.size === 0 && process?.role === 'worker') terminateWhenIdle(core, process, 'misbehaved', 'it holds bytes that no lease explains, and the card is full');
}
