/**
 * Bytes of a process of ours on a card on which it has neither lease nor floor: a mask that was not heeded, an index
 * that meant another card (B98). Charged at once, told, and the leases that are short by as much are flagged.
 */
import { hasLeft } from '../ledger/confirm.js';
import { judgeSeat, setResidue, unloadFor } from './overshoot.js';
import { mustLease } from '../must.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Lease, Process, Seat } from '../state.js';

/** Compares the driver's figure for a process, in the sample just taken, with what it may have there; `givenBackBytes` of that have been given back since. */
export function judgeProcess(core: Core, card: Card, seat: Seat, givenBackBytes: number): void {
  const process = core.processes.get(seat.generation);
  const { readingBytes } = seat;
  if (hasLeft(core, seat)) return;
  if (process !== undefined && readingBytes !== null && seesNothingOf(card, seat, process)) {
    judgeMisplaced(core, card, seat, process, readingBytes);
    return;
  }
  judgeSeat(core, card, seat, givenBackBytes);
  if (process?.role === 'holder' && readingBytes !== null && seat.leases.size === 0) judgeHolder(core, card, process, readingBytes);
}

/** A worker that was never given the card to see. The machine's memory is everybody's. */
export function seesNothingOf(card: Card, seat: Seat, process: Process): boolean {
  return card.kind !== 'host' && process.role === 'worker' && seat.leases.size === 0 && !process.devices.includes(card.device);
}

function judgeMisplaced(core: Core, card: Card, seat: Seat, process: Process, readingBytes: number): void {
  const { measureToleranceBytes } = core.options.limits;
  const bytes = readingBytes <= measureToleranceBytes ? 0 : readingBytes;
  const grownBytes = bytes - seat.residue.chargedBytes;
  setResidue(core, seat, bytes);
  const flagged = flagShort(core, card, process, bytes > 0);
  if (grownBytes > measureToleranceBytes || flagged.length > 0) tellMisplaced(core, card, process, bytes, flagged);
  if (grownBytes > 0) unloadFor(core, card, seat, process);
}

/** Where a holder's unleased bytes are its floor (D7), only a lease of it that is short elsewhere tells that they are misplaced. */
function judgeHolder(core: Core, card: Card, process: Process, bytes: number): void {
  if (process.leases.size === 0) return;
  const flagged = flagShort(core, card, process, bytes > core.options.limits.measureToleranceBytes);
  if (flagged.length > 0) tellMisplaced(core, card, process, bytes, flagged);
}

/** Flags its leases on other cards whose bytes the driver does not show there; those newly flagged. */
function flagShort(core: Core, card: Card, process: Process, elsewhere: boolean): Lease[] {
  const flagged: Lease[] = [];
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    if (lease.device === card.device) continue;
    const isShort = elsewhere && isShortOn(core, lease);
    if (isShort && lease.misplacedOn === null) flagged.push(lease);
    if (isShort) lease.misplacedOn = card.device;
    else if (lease.misplacedOn === card.device) lease.misplacedOn = null;
  }
  return flagged;
}

/** It says that it is there, and the last reading of its card shows less of its process. */
function isShortOn(core: Core, lease: Lease): boolean {
  const seat = core.cards.get(lease.device)?.seats.get(lease.generation);
  if (seat === undefined || seat.readingBytes === null || lease.charge.seenBytes === 0) return false;
  return seat.readingBytes + core.options.limits.measureToleranceBytes < seat.seenBytes;
}

function tellMisplaced(core: Core, card: Card, process: Process, bytes: number, flagged: readonly Lease[]): void {
  count(core, 'misplaced');
  const [first] = flagged;
  publish(core, 'misplaced', { generation: process.generation, device: card.device, bytes, lease: first?.id ?? null, model: first?.model ?? null, leasedOn: first?.device ?? null });
  const lacks = flagged.map((lease) => `${lease.model} (${lease.id}) is leased on ${lease.device} and not there`).join(', ');
  explain(core, {
    verdict: 'overshoot', generation: process.generation, device: card.device, model: first?.model ?? null,
    text: `${process.generation} holds ${inWords(bytes)} on ${card.device}, where it has no lease${lacks === '' ? '' : `: ${lacks}`}`,
  });
}
