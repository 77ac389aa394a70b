/** The ledger as the core shows it, against the book: never less than must be charged, and nothing that does not exist. */
import type { CardView, LedgerView } from '../../../broker/core/view.js';
import type { Check } from './check.js';
import { checkForming, checkTogether } from './rules-gangs.js';
import { checkDoubled, checkOwners, checkShownClosed } from './rules-returns.js';
import { checkMemoryView } from './rules-memory.js';
import { checkThrashView } from './rules-thrash.js';
import type { AuditedCard, AuditedLease, AuditedProcess } from './records.js';
import { strangersNow, strangersThen } from './strangers.js';

export function checkView(check: Check, view: LedgerView): void {
  checkForming(check, view);
  checkTogether(check, view);
  for (const shown of view.cards) {
    const card = check.book.cards.get(shown.device);
    if (card !== undefined) checkCard(check, shown, card);
  }
  checkDoubled(check, view);
  checkOwners(check, view);
  checkThrashView(check, view);
  for (const lease of view.leases) {
    const audited = check.book.leases.get(lease.lease);
    if (check.book.closedLeases.get(lease.lease)?.neverCame === true) check.broken('view-lease', `lease ${lease.lease} of ${lease.model} is shown as ${lease.state}; by the log it was never begun`);
    if (lease.state === 'releasing' || lease.state === 'quarantined') continue;
    if (audited === undefined) {
      const ended = check.book.closedLeases.get(lease.lease);
      // One that was never granted was found in a process's announcement and taken in.
      if (ended === undefined || ended.revived) continue;
      // Of a process that is being ended nothing is waited for but its exit.
      if (check.book.process(lease.generation)?.state === 'ending') continue;
      check.broken('view-lease', `lease ${lease.lease} of ${lease.model} is shown as ${lease.state}; by the log it has ended`);
    } else if (lease.chargedBytes < audited.promiseBytes && !audited.isLeftToReading && !hasAll(check, view, audited)) {
      check.broken('view-lease', `lease ${lease.lease} (${lease.state}) is charged ${lease.chargedBytes}; by the log at least ${audited.promiseBytes}`);
    }
  }
  for (const lease of view.leases) {
    const audited = check.book.leases.get(lease.lease);
    if (audited !== undefined) audited.shownBytes = lease.chargedBytes;
  }
  checkMemoryView(check, view);
  const shownLeases = new Set(view.leases.map((lease) => lease.lease));
  for (const lease of check.book.leases.values()) {
    if (!shownLeases.has(lease.lease) && !lease.isLeftToReading) check.broken('view-lease', `lease ${lease.lease} (${lease.stage}, ${lease.promiseBytes}) of ${lease.generation} is not in the ledger`);
  }
}

/** Its process is charged with the whole card already: whatever more it claims can change nothing. */
function hasAll(check: Check, view: LedgerView, audited: AuditedLease): boolean {
  let bytes = 0;
  for (const lease of view.leases) if (lease.generation === audited.generation && lease.device === audited.device) bytes += lease.chargedBytes;
  return bytes + (check.book.process(audited.generation)?.floors.get(audited.device) ?? 0) >= (check.book.cards.get(audited.device)?.totalBytes ?? 0);
}

function checkCard(check: Check, shown: CardView, card: AuditedCard): void {
  const chargedBytes = shown.leasedBytes + shown.floorBytes + shown.residueBytes + shown.returningBytes;
  const leastBytes = check.book.chargedBytes(card.device);
  if (chargedBytes < Math.min(leastBytes, card.totalBytes)) check.broken('view-charged', `${card.device}: ${chargedBytes} charged; by the log at least ${leastBytes}`);
  checkSeen(check, shown, card, chargedBytes);
  checkShownClosed(check, shown, card);
  if ((shown.missing === null) !== (card.missing === null) && card.confirms !== 'none') {
    check.broken('view-missing', `${card.device}: the reading is shown as ${shown.missing?.reading ?? 'present'}; by the log ${card.missing?.reading ?? 'present'}`);
  }
}

/** What the driver's figures showed of our processes, living or just ended, is charged in some form: as lease, floor, residue or returning. */
function checkSeen(check: Check, shown: CardView, card: AuditedCard, chargedBytes: number): void {
  const { book, truth } = check;
  if (card.sample?.hasFigures !== true || card.missing !== null) return;
  let seenBytes = 0;
  let processes = 1;
  for (const [generation, bytes] of truth.at(card.device, card.sample.takenAtUs)?.byProcess ?? []) {
    const process = book.processes.get(generation);
    // One that has not said that it is ready may be anybody's yet; one that a broker found on record may die before it has read the card; what a dead one leaves is told from the total, when all else is at rest.
    if (process === undefined || isUnheard(process) || (process.state === 'gone' && (process.freeByExit || !process.clearAtEnd.has(card.device) || !isAtRest(check, card)))) continue;
    if (process.closes.length > 0 && !truth.card(card.device).processes().includes(generation)) continue;
    // What it said since the reading was taken, or with its last breath, may have lowered its charge.
    if (process.saidAtUs >= card.sample.takenAtUs - (process.state === 'gone' ? lastBreathUs : 0)) continue;
    seenBytes += bytes;
    processes++;
  }
  const toleranceBytes = book.options.limits.measureToleranceBytes * processes;
  if (seenBytes > chargedBytes + toleranceBytes) {
    check.broken('view-seen', `${shown.device}: the last reading showed ${seenBytes} of our processes; ${chargedBytes} are charged`);
  }
}

/** It has not said that it is up, or was gone before it did, and may never have been seen. */
function isUnheard({ role, state, startedAtUs, readyAtUs }: AuditedProcess): boolean {
  return state === 'spawning' || (role === 'worker' && state === 'gone' && readyAtUs === startedAtUs);
}

/** Bytes freed so shortly before an exit may go with the exit, and look like a stranger's till then. */
const lastBreathUs = 2_000_000;

/** With strangers that come and go, or by the total alone, what a dead process has left cannot be told for sure. */
const unclearForUs = 10_000_000;

/** Nothing loads, grows, starts or leaves there, nobody lies, and there are and were no strangers. */
function isAtRest(check: Check, card: AuditedCard): boolean {
  const { book, truth } = check;
  if (check.event.atUs - card.unclearAtUs < unclearForUs) return false;
  if (card.sample === null || strangersThen(book, truth, card.device, card.sample.takenAtUs) !== 0 || strangersNow(book, truth, card.device) > 0) return false;
  for (const lease of book.leases.values()) {
    if (lease.device === card.device && (lease.stage === 'granted' || lease.stage === 'loading' || lease.growing || lease.blamed)) return false;
  }
  for (const process of book.processes.values()) {
    if (process.devices.includes(card.device) && (process.state === 'spawning' || process.state === 'ending' || process.misbehaviour + process.commandFailures > 0)) return false;
  }
  return !book.departures.some((departure) => departure.device === card.device);
}
