/**
 * What must hold after every step. The short form looks at what the step
 * touched and runs always; the whole form recomputes every sum and index.
 */
import { cardSumBytesMax, seatBytesMax } from './ledger/bounds.js';
import { companions } from './gangs/gang.js';
import { checkHost } from './memory/invariants.js';
import { isIdle, isLoading } from './ledger/lease-store.js';
import { pendingOf } from './ledger/ledger.js';
import { must, mustCard, mustLease } from './must.js';
import { queueLength } from './requests/queue.js';
import type { Card, Charge, Core, Gang, Lease, Seat } from './state.js';

/** After every step, in production too: the cards and leases that it touched. */
export function checkTouched(core: Core): void {
  for (const device of core.changed) checkSums(mustCard(core, device));
  for (const id of core.touched) {
    const lease = core.leases.get(id);
    if (lease !== undefined) checkLease(lease);
  }
}

function checkSums(card: Card): void {
  const { charged } = card;
  must(charged.lease >= 0 && charged.floor >= 0 && charged.residue >= 0 && charged.returning >= 0, `${card.device}: no kind of charge is negative`);
  must(charged.lease + charged.floor + charged.residue + charged.returning === card.chargedBytes, `${card.device}: charges add up by kind`);
  must(card.holdBytes >= 0 && card.pendingBytes >= 0 && card.idleBytes >= 0 && card.spawning >= 0, `${card.device}: holds, pending and idle bytes are not negative`);
  must(Number.isSafeInteger(card.residentBytes) && card.residentBytes >= 0, `${card.device}: resident bytes are a count`);
  must(Number.isSafeInteger(card.chargedBytes + card.holdBytes + card.pendingBytes), `${card.device}: sums are integers`);
}

function checkLease(lease: Lease): void {
  const { charge } = lease;
  must(Number.isSafeInteger(charge.chargedBytes) && charge.chargedBytes >= 0, `${lease.id}: its charge is a byte count`);
  must(charge.residentBytes >= 0 && charge.seenBytes >= 0, `${lease.id}: what is resident is a byte count`);
  must(!(lease.job !== null && lease.release !== null), `${lease.id}: is commanded or being given back, not both`);
  must(!lease.pinned || lease.idleBytes === 0, `${lease.id}: a pinned lease is not evictable`);
}

/** The whole check. Throws `invariant_broken`; changes nothing. */
export function checkInvariants(core: Core): void {
  for (const card of core.cards.values()) checkCard(core, card);
  if (core.host !== null) checkHost(core, core.host);
  for (const lease of core.leases.values()) checkIndexes(core, lease);
  for (const [key, waiter] of core.waiters) {
    const card = mustCard(core, waiter.device);
    const gathers = waiter.gang !== null && core.gangs.has(waiter.gang) && core.gangs.get(waiter.gang)?.members.size !== core.gangs.get(waiter.gang)?.size;
    const places = [card.queue[waiter.class].includes(key), waiter.kind === 'place' && waiter.joined !== null, gathers].filter((there) => there).length;
    must(places === 1, `request ${key} waits in exactly one place`);
    must(core.processes.get(waiter.generation)?.requests.has(key) === true, `request ${key} is known to its process`);
    must(core.timers.has('deadline', key), `request ${key} has a deadline`);
  }
  for (const [, wish] of core.evictRequests) {
    for (const id of wish.pending) must(mustLease(core, id).wishes?.has(wish.key) === true, `${wish.key} waits for leases that know of it`);
  }
  for (const key of core.workersAwaited.keys()) must(core.waiters.get(key)?.kind === 'place', `${key} waits for a worker and is a placement`);
  for (const gang of core.gangs.values()) checkGang(core, gang);
  for (const id of core.stranded.keys()) mustLease(core, id);
  for (const process of core.processes.values()) {
    must(core.workers.has(process.generation) === (process.role === 'worker'), `${process.generation}: is counted among the workers exactly if it is one`);
    for (const id of process.leases) must(mustLease(core, id).generation === process.generation, `${process.generation} owns its leases`);
  }
}

function checkGang(core: Core, gang: Gang): void {
  must(gang.members.size > 0 && gang.members.size <= gang.size, `${gang.key}: has some of its members`);
  for (const [device, key] of gang.members) {
    const waiter = core.waiters.get(key);
    must(waiter?.gang === gang.key && waiter.device === device && waiter.model === gang.model, `${gang.key}: its member on ${device} is an open request`);
  }
  must(!gang.forming || [...gang.members.keys()].every((device) => core.cards.get(device)?.forming === gang.key), `${gang.key}: has its cards while it forms`);
  for (const card of core.cards.values()) must(card.forming !== gang.key || gang.members.has(card.device), `${gang.key}: forms on its own cards`);
}

function checkCard(core: Core, card: Card): void {
  checkSums(card);
  const totals = { lease: 0, floor: 0, residue: 0, returning: 0 };
  let pendingBytes = 0;
  let attributedBytes = 0;
  let idleBytes = 0;
  for (const id of card.leases) {
    const lease = mustLease(core, id);
    checkLease(lease);
    totals.lease += lease.charge.chargedBytes;
    attributedBytes += lease.charge.attributedBytes;
    idleBytes += isIdle(lease) && !lease.pinned ? lease.charge.chargedBytes : 0;
    must(lease.idleBytes <= lease.charge.chargedBytes, `${id}: idle bytes are charged`);
  }
  for (const generation of card.closedBy) must(core.processes.get(generation)?.returning === true, `${card.device}: is closed by processes that have not said what they hold`);
  for (const seat of card.seats.values()) {
    totals.floor += seat.floor.chargedBytes;
    totals.residue += seat.residue.chargedBytes;
    attributedBytes += seat.floor.attributedBytes + seat.residue.attributedBytes;
    pendingBytes += checkSeat(core, card, seat);
  }
  for (const returning of card.returning.values()) {
    totals.returning += returning.charge.chargedBytes;
    attributedBytes += returning.charge.attributedBytes;
    pendingBytes += unseen(returning.charge);
  }
  for (const kind of ['lease', 'floor', 'residue', 'returning'] as const) must(totals[kind] === card.charged[kind], `${card.device}: the sum of ${kind} charges is kept`);
  must(pendingBytes === card.pendingBytes, `${card.device}: the sum of pending bytes is kept`);
  must(attributedBytes === card.attributedBytes, `${card.device}: the sum of attributed bytes is kept`);
  must(idleBytes === card.idleBytes, `${card.device}: the sum of idle bytes is kept`);
  must(card.forming === null || core.gangs.has(card.forming), `${card.device}: the gang that forms there is known`);
  checkHolds(core, card);
}

function checkSeat(core: Core, card: Card, seat: Seat): number {
  let chargedBytes = seat.floor.chargedBytes + seat.residue.chargedBytes;
  let unseenBytes = unseen(seat.floor) + unseen(seat.residue);
  let leasedBytes = 0;
  let unsettled = 0;
  for (const id of seat.leases) {
    const lease = mustLease(core, id);
    must(lease.generation === seat.generation && lease.device === card.device, `${id}: sits where it belongs`);
    chargedBytes += lease.charge.chargedBytes;
    unseenBytes += unseen(lease.charge);
    leasedBytes += lease.charge.residentBytes;
    unsettled += lease.unsettled ? 1 : 0;
  }
  for (const id of seat.remeasure) mustLease(core, id);
  must(core.processes.has(seat.generation), `${seat.generation}: a seat belongs to a process`);
  must(chargedBytes === seat.chargedBytes && unseenBytes === seat.unseenBytes && leasedBytes === seat.leasedBytes && unsettled === seat.unsettled, `${seat.generation}: the sums of its seat are kept`);
  checkComing(core, seat);
  checkCut(core, card, seat);
  must(seat.pendingBytes === pendingOf(seat), `${seat.generation}: what it may still take is kept`);
  return seat.pendingBytes;
}

function checkComing(core: Core, seat: Seat): void {
  const charges = [seat.floor, seat.residue, ...[...seat.leases].map((id) => mustLease(core, id).charge)];
  const coming = charges.filter((charge) => charge.coming);
  must(sum(charges, (charge) => charge.seenBytes) === seat.seenBytes, `${seat.generation}: the sum of seen bytes is kept`);
  must(sum(coming, (charge) => charge.chargedBytes) === seat.coming.chargedBytes, `${seat.generation}: the sum of coming charges is kept`);
  must(sum(coming, unseen) === seat.coming.unseenBytes && sum(coming, (charge) => charge.seenBytes) === seat.coming.seenBytes, `${seat.generation}: the sums of coming bytes are kept`);
}

/** What is cut is known as such, and only where there is no room for it. */
function checkCut(core: Core, card: Card, seat: Seat): void {
  const { cut } = seat;
  let isCut = 0;
  for (const charge of [seat.floor, seat.residue, ...[...seat.leases].map((id) => mustLease(core, id).charge)]) {
    must(charge.chargedBytes <= charge.wantedBytes, `${charge.id}: is charged no more than it should be`);
    must(cut.charged.has(charge.id) === charge.chargedBytes < charge.wantedBytes, `${charge.id}: is known as cut exactly while it is`);
    isCut += charge.chargedBytes < charge.wantedBytes ? 1 : 0;
    if (charge.kind === 'lease') must(cut.resident.has(charge.id) === charge.residentBytes < charge.wantedResidentBytes, `${charge.id}: what it reports is known as cut exactly while it is`);
  }
  must(isCut === cut.charged.size, `${seat.generation}: only its own charges are cut`);
  must(isCut === 0 || seat.chargedBytes >= seatBytesMax(card) || card.chargedBytes >= cardSumBytesMax, `${seat.generation}: charges are cut only while there is no room for them`);
}

function sum(charges: readonly Charge[], of: (charge: Charge) => number): number {
  return charges.reduce((total, charge) => total + of(charge), 0);
}

function checkHolds(core: Core, card: Card): void {
  let holdBytes = 0;
  for (const name of ['interactive', 'normal', 'background'] as const) {
    for (const key of card.queue[name]) {
      const waiter = core.waiters.get(key);
      must(waiter?.device === card.device && waiter.class === name, `${key}: is queued where it waits`);
      holdBytes += waiter.holdBytes;
    }
  }
  must(holdBytes === card.holdBytes, `${card.device}: the sum of holds is kept`);
  must([...card.queuedBy.values()].reduce((sum, count) => sum + count, 0) === queueLength(card), `${card.device}: whose requests wait is kept`);
}

function checkIndexes(core: Core, lease: Lease): void {
  const card = mustCard(core, lease.device);
  must(card.leases.has(lease.id), `${lease.id}: is on its card`);
  must(card.loading.has(lease.id) === isLoading(lease), `${lease.id}: is indexed as loading exactly while it is`);
  must(card.jobs.has(lease.id) === (lease.job !== null), `${lease.id}: is indexed as commanded exactly while it is`);
  must(card.releasing.has(lease.id) === (lease.release !== null), `${lease.id}: is indexed as releasing exactly while it is`);
  must(card.quarantined.has(lease.id) === (lease.state === 'quarantined'), `${lease.id}: is indexed as quarantined exactly while it is`);
  must(lease.unsettled === (isLoading(lease) || lease.job !== null || lease.release !== null), `${lease.id}: counts as unsettled exactly while it is`);
  must(core.processes.get(lease.generation)?.leases.has(lease.id) === true, `${lease.id}: belongs to a living process`);
  const together = companions(core, lease);
  must(together.includes(lease) && new Set(together.map(({ device }) => device)).size === together.length, `${lease.id}: its gang has one lease a card`);
}

function unseen(charge: Charge): number {
  return Math.max(0, charge.chargedBytes - charge.seenBytes);
}
