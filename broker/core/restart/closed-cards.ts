/**
 * Cards that are closed to grants: a process of an earlier broker may hold any
 * bytes there and has not said which. Each such process closes its cards by
 * itself, and opens them when it has come back and said everything, or is gone.
 * The machine's memory is closed in the same way by every one of them: whatever
 * it was granted of that, it may be about to take.
 */
import { knownFloorBytes } from '../ledger/available.js';
import { chargeFloor, floorMeasured } from '../ledger/floors.js';
import { isBytes } from '../ledger/headroom.js';
import { claimBytesMax } from '../ledger/bounds.js';
import { setCharged, setMeasured, setResident } from '../ledger/ledger.js';
import { seesNothingOf } from '../cards/misplaced.js';
import { ledgersOf } from '../must.js';
import { setResidue } from '../cards/overshoot.js';
import { wantSample } from '../cards/probe.js';
import { explain, inWords, publish, count } from '../report.js';
import type { Card, Core, Process, Seat } from '../state.js';

/** `floorBytes`: what was charged for it before any model. */
export function closeCard(core: Core, card: Card, process: Process, floorBytes: number): void {
  const { generation } = process;
  const seat = chargeFloor(core, card, generation, process.engine);
  if (isBytes(floorBytes) && floorBytes <= claimBytesMax(card) && floorBytes > seat.floor.chargedBytes) setCharged(core, seat.floor, floorBytes);
  // What was charged stays charged, until it says itself what it costs: that may be more than it has taken yet.
  if (process.role === 'worker' && seat.floor.chargedBytes > 0 && seat.floorSource === 'unknown') seat.floorSource = 'learned';
  setResident(core, seat.floor, seat.floor.chargedBytes);
  // What it has in memory beyond a floor that is known is not its floor.
  if (card === core.host && seat.floor.chargedBytes > 0) {
    seat.floorSource = 'learned';
    seat.hadLease = true;
  }
  if (card.closedBy.size === 0) card.closedSinceUs = core.attendedUs;
  card.closedBy.add(generation);
  core.dirty.add(card.device);
  publish(core, 'card_closed', { device: card.device, generation });
  explain(core, { verdict: 'waiting', text: `${card.device} is closed to grants: ${generation}, of an earlier broker, has not said what it holds there`, generation, device: card.device });
}

/** What was charged of a process while it had said nothing makes way for what it says now: nobody holds more than a card, and both together might. */
export function clearUnexplained(core: Core, process: Process): void {
  for (const card of ledgersOf(core)) {
    const seat = card.seats.get(process.generation);
    // On a card that it cannot see there is nothing for it to say; and what it has given back of memory that is open is not seen yet.
    if (seat === undefined || seesNothingOf(card, seat, process) || (card === core.host && !card.closedBy.has(process.generation))) continue;
    setResidue(core, seat, 0);
    if (process.state === 'quarantined') setCharged(core, seat.floor, knownFloorBytes(core, card, process.engine));
  }
}

/** What the driver shows of a process beyond the leases that it has told of is its floor, unless it has told that too; of the machine's memory the next reading tells. */
export function explainBytes(core: Core, process: Process): void {
  for (const card of core.cards.values()) {
    const seat = card.seats.get(process.generation);
    if (seat === undefined || seesNothingOf(card, seat, process)) continue;
    // Of a load under way it cannot be told how much of the figure it has.
    if (seat.readingBytes === null || seat.unsettled > 0 || (process.role === 'worker' && seat.floorSource === 'measured')) continue;
    const unleasedBytes = Math.max(0, seat.readingBytes - seat.leasedBytes);
    // What a worker costs may be more than it has taken yet.
    const floorBytes = process.role === 'worker' ? Math.max(seat.floor.chargedBytes, unleasedBytes) : unleasedBytes;
    seat.floorSource = 'measured';
    setCharged(core, seat.floor, floorBytes);
    setMeasured(core, seat.floor, unleasedBytes);
  }
}

/** Nothing that this process holds is unknown any more. What waited for that alone is decided, on whatever card it waits. */
export function openCards(core: Core, process: Process): void {
  for (const card of ledgersOf(core)) {
    core.dirty.add(card.device);
    if (card.closedBy.has(process.generation)) openFor(core, card, process);
  }
}

function openFor(core: Core, card: Card, process: Process): void {
  card.closedBy.delete(process.generation);
  card.openedAtUs = core.nowUs;
  card.lastMotionAtUs = core.nowUs;
  card.planEpoch++;
  core.dirty.add(card.device);
  wantSample(core, card, core.nowUs);
  if (card.closedBy.size > 0) return;
  publish(core, 'card_opened', { device: card.device, closedMs: Math.floor((core.attendedUs - card.closedSinceUs) / 1_000) });
}

/** A process that says nothing and that we may not, or cannot, end: where the driver shows its bytes they are its floor (D7), and the card is known again; elsewhere it stays closed until the end of the process. */
export function leaveUnreturned(core: Core, process: Process, why: string): void {
  process.state = 'quarantined';
  for (const card of ledgersOf(core)) {
    if (!card.closedBy.has(process.generation)) continue;
    const seat = card.seats.get(process.generation);
    if (seat !== undefined && seat.readingBytes !== null) chargeAsFloor(core, card, seat, process, seat.readingBytes);
    // The reading of the whole shows what it has of the machine's memory, whosever it is.
    else if (card === core.host) openFor(core, card, process);
    const bytes = seat?.chargedBytes ?? 0;
    count(core, 'quarantines');
    publish(core, 'quarantined', { lease: null, model: null, generation: process.generation, device: card.device, bytes, why });
    const closed = card.closedBy.has(process.generation) ? 'the card stays closed until it ends' : `${inWords(bytes)} stay charged until it ends`;
    explain(core, { verdict: 'quarantined', text: `${process.generation} on ${card.device}: ${why}; ${closed}`, generation: process.generation, device: card.device });
  }
}

/** Whether what a process takes here is not for its reports to explain: it has made none yet. */
export function isUnannounced(card: Card, process: Process | undefined): process is Process {
  return process !== undefined && card.closedBy.has(process.generation);
}

/** The sample just taken shows what a process takes that has said nothing: charged, and nobody's fault. Never lowered: one that is listed with less may have died, and its bytes not have come back. */
export function judgeUnannounced(core: Core, card: Card, seat: Seat, process: Process): void {
  const { readingBytes } = seat;
  if (readingBytes === null) return;
  if (process.state !== 'quarantined') setResidue(core, seat, Math.max(seat.residue.chargedBytes, readingBytes - (seat.chargedBytes - seat.residue.chargedBytes)));
  else if (readingBytes > 0) chargeAsFloor(core, card, seat, process, readingBytes);
}

function chargeAsFloor(core: Core, card: Card, seat: Seat, process: Process, readingBytes: number): void {
  setResidue(core, seat, 0);
  floorMeasured(core, card, seat, null, readingBytes);
  openFor(core, card, process);
}

/** The cards of a worker on so many of them that may host any model of this engine and has not said so: a placement waits for it rather than load a second copy. */
export function mayComeBack(core: Core, engine: string, cards: readonly Card[], count: number): readonly Card[] | null {
  for (const card of cards) {
    for (const generation of card.closedBy) {
      const process = core.processes.get(generation);
      if (process?.state !== 'recorded' || process.engine !== engine || process.devices.length !== count) continue;
      const itsCards = cards.filter(({ device }) => process.devices.includes(device));
      if (itsCards.length === count) return itsCards.sort((a, b) => (a.device < b.device ? -1 : 1));
    }
  }
  return null;
}
