/** Residency and use as their worker tells them: claims that raise a charge at once and lower it only once seen. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { LeasePart } from '../../../protocol/index.js';
import type { Book } from './book.js';
import { requestKey, sumOf, withHeadroom, type AuditedLease } from './records.js';

export function followReport(book: Book, event: Extract<CoreEvent, { type: 'residency_reported' }>): void {
  if (book.process(event.generation) === null) return;
  openReport(book, event);
  const lease = book.leaseOf(event) ?? revive(book, event);
  if (lease === null) return;
  const lowered = lease.residentBytes - event.residentBytes;
  // What was said to have left has not.
  const isMeasured = event.state === 'resident' && event.parts !== null;
  // Or is trued up with what it has now: what it gave back shows in the reading alone.
  if (lowered < 0 || isMeasured) book.departures = book.departures.filter((departure) => departure.generation !== event.generation || departure.device !== lease.device);
  if (event.state === 'parked' || event.state === 'absent') settleCommands(book, lease);
  if (event.state === 'resident') {
    lease.growing = false;
    arrive(book, lease, event.parts);
    // Measured parts true a lease up at once: a reading taken before still shows what they no longer hold.
    if (lowered > 0 && event.parts === null) {
      lease.promiseBytes = event.residentBytes;
      lease.shortBytes += lowered;
      book.depart(lease.device, lease.generation, lowered, book.beneficiaryOf(lease));
    }
  } else if (event.state === 'absent' && event.residentBytes === 0) {
    book.closeLease(lease, lease.stage === 'loading' ? lease.promiseBytes : lease.residentBytes);
    return;
  } else if (lowered > 0) {
    book.depart(lease.device, lease.generation, lowered, book.beneficiaryOf(lease));
    lease.promiseBytes = event.residentBytes;
  } else if (event.state === 'parked' && lease.stage === 'loading') {
    // Begun, and put away before it was there: nothing more comes of that grant.
    book.depart(lease.device, lease.generation, lease.promiseBytes - event.residentBytes, book.beneficiaryOf(lease));
    lease.promiseBytes = event.residentBytes;
  }
  if (event.state === 'parked') park(book, lease);
  lease.residentBytes = event.residentBytes;
  // Measured bytes are charged at once whatever is free (D12).
  lease.promiseBytes = Math.max(lease.promiseBytes, event.residentBytes);
  if (lease.promiseBytes <= lease.grantedBytes) lease.raisedAtUs = null;
  else lease.raisedAtUs ??= book.nowUs;
}

/** Said to be gone, and now said to be there, before anybody has seen it gone: it is there. */
function revive(book: Book, event: Extract<CoreEvent, { type: 'residency_reported' }>): AuditedLease | null {
  const lease = book.closedLeases.get(event.lease);
  if (lease?.generation !== event.generation || event.residentBytes === 0) return null;
  Object.assign(lease, { revived: true, neverCame: false });
  if (event.state === 'resident' && event.parts !== null) stay(book, event.lease, event.residentBytes);
  return null;
}

/** None of it leaves, and it is trued up with what it has now: the rest was its load's. */
function stay(book: Book, lease: string, bytes: number): void {
  book.departures = book.departures.map((departure) => (departure.lease === lease ? { ...departure, bytes: Math.min(departure.bytes, bytes) } : departure));
}

/** A load has ended: the surplus of its peak leaves, the measured parts stay (D11). */
function arrive(book: Book, lease: AuditedLease, measured: readonly LeasePart[] | null): void {
  const wasLoading = lease.stage === 'loading' || lease.stage === 'granted';
  if (wasLoading) {
    lease.loadedAtUs = lease.usedAtUs = book.nowUs;
    lease.loadPromiseBytes = lease.promiseBytes;
    book.loadBackOffs.delete(`${lease.device} ${lease.model}`);
    book.oomRetries.delete(`${lease.device} ${lease.model}`);
  }
  lease.stage = 'resident';
  if (wasLoading) lease.shortBytes = 0;
  if (measured === null) return;
  lease.parts = trueUp(lease.parts, measured);
  lease.peakBytes = 0;
  const steadyBytes = sumOf(lease.parts);
  if (lease.shortBytes > 0) {
    lease.promiseBytes = Math.min(lease.promiseBytes, steadyBytes);
    return;
  }
  // A measured rise is charged at once; its headroom where there is room for it.
  lease.promiseBytes = Math.min(withHeadroom(steadyBytes), Math.max(lease.promiseBytes, steadyBytes));
}

function trueUp(declared: readonly LeasePart[], measured: readonly LeasePart[]): readonly LeasePart[] {
  const byName = new Map(declared.map((part) => [part.name, part]));
  for (const part of measured) {
    const before = byName.get(part.name);
    const bytes = part.upFront || before === undefined ? part.bytes : Math.max(before.bytes, part.bytes);
    byName.set(part.name, { ...part, bytes });
  }
  return [...byName.values()];
}

function openReport(book: Book, event: Extract<CoreEvent, { type: 'residency_reported' }>): void {
  const key = requestKey(event.generation, event.request);
  book.requests.set(key, {
    kind: 'residency', generation: event.generation, request: event.request, model: event.model, engine: null, device: null, gang: null, cards: 1, also: [], lease: event.lease, class: 'normal',
    arrivedAtUs: event.atUs, sinceUs: event.atUs, deadlineMs: 0, attendedMinUs: book.clock.leastUs, attendedMaxUs: book.clock.mostUs, parts: [], peakBytes: 0, askedBytes: 0,
    chargeBytes: 0, profilesFreeMemory: false, host: null, ttlMs: null, pinned: false, waits: 0, waitsFor: '', isOptional: false, cancelled: false, holdBytes: 0, victims: new Set(), ignoredSinceUs: null, order: book.nextOrder++, queuedOn: null, startsIn: null, awaitsEnd: false,
  });
}

export function followUse(book: Book, event: Extract<CoreEvent, { type: 'use_reported' }>): void {
  const lease = book.leaseOf(event);
  if (lease === null || event.seq <= lease.useSeq) return;
  lease.useSeq = event.seq;
  if (lease.inFlight + lease.queued + event.inFlight + event.queued > 0) lease.usedAtUs = event.atUs;
  lease.inFlight = event.inFlight;
  lease.queued = event.queued;
}

export function park(book: Book, lease: AuditedLease): void {
  // Granted again since: the report was on its way before.
  if (lease.stage === 'parked' || lease.stage === 'granted') return;
  lease.stage = 'parked';
  lease.parkedAtUs = book.nowUs;
}

function settleCommands(book: Book, lease: AuditedLease): void {
  for (const command of book.commands.values()) if (command.kind === 'move' && command.lease === lease.lease) command.settled = true;
}

/** Everything that a process says it holds: what it leaves out is over, except what it may not have heard of yet, and what it may mean by the name of another's lease. */
export function followAnnouncement(book: Book, event: Extract<CoreEvent, { type: 'models_announced' }>): void {
  const named = new Set(event.models.map(({ lease, model }) => (lease === null || book.ownerOf(lease) === event.generation ? lease : `any of ${model}`)));
  for (const lease of book.leasesOf(event.generation)) {
    if (!named.has(lease.lease) && !named.has(`any of ${lease.model}`) && lease.stage !== 'granted') book.closeLease(lease, lease.stage === 'loading' ? lease.promiseBytes : lease.residentBytes);
  }
  // One that is back goes on with whatever it has, a copy alone among it.
  const isBack = book.process(event.generation)?.state === 'away';
  for (const { lease, model, residentBytes, state } of event.models) {
    const owned = book.leases.get(lease ?? '');
    // Under no name of its own it speaks of whatever it has of that model that it does not name besides.
    const known = owned?.generation === event.generation ? owned : book.leasesOf(event.generation).find((own) => own.model === model && !named.has(own.lease));
    // The grant had come, and its load began with nobody to tell.
    if (isBack && known !== undefined && known.stage === 'granted' && state !== 'parked' && state !== 'absent') known.stage = 'loading';
    const ended = book.closedLeases.get(lease ?? '');
    if (ended?.generation === event.generation && (residentBytes > 0 || (isBack && state !== 'absent'))) Object.assign(ended, { revived: true, neverCame: false });
  }
}
