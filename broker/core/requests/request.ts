/** Requests as they arrive: checked though the wire has checked them, answered at once where that is possible, else queued. */
import { durationText, type LeasePart, type RequestClass } from '../../../protocol/index.js';
import { admitAtOnce } from './admission.js';
import { backingOff, backoffRefusal } from './backoff.js';
import { inMs, msSince } from '../clock.js';
import { deny, type Refusal } from './deny.js';
import type { CoreEvent } from '../events.js';
import { gangKey, membersOf } from '../gangs/gang.js';
import { enterGang, firstMember, gangFault, gatheringGang, loneMemberFault, spoilGang } from '../gangs/request.js';
import { grantBudget } from './grant.js';
import { isBytes, leasableBytesMax, withHeadroom } from '../ledger/headroom.js';
import { wrongHostBytes } from '../memory/share.js';
import { notYours } from '../ledger/lease-id.js';
import { hostHasRoom, refuseHost } from '../memory/admission.js';
import { wasUseful } from '../processes/idle.js';
import { asksNothing, capacityBytes, extendedLease, needOf, neverText, shownNeed, sumOf, wholeFloorBytes, wholeNeedBytes } from '../ledger/need.js';
import { neverHere, noteAsked } from '../processes/model.js';
import { enqueue, dequeue, waiterKey } from './queue.js';
import { count, emit, explain } from '../report.js';
import { placeInQueue } from './shares.js';
import type { BudgetWaiter, Card, Core, PlaceWaiter, Process, Waiter } from '../state.js';
import { giveUpWaiter } from '../processes/terminate.js';
import { enterWaiter, extendDeadline } from './waiter.js';

export type BudgetRequested = Extract<CoreEvent, { type: 'budget_requested' }>;
type PlaceRequested = Extract<CoreEvent, { type: 'place_requested' }>;
type Asking = BudgetRequested | PlaceRequested;

/** "May I load this?" */
export function onBudgetRequested(core: Core, event: BudgetRequested): void {
  const process = requester(core, event);
  if (process === null || raised(core, event)) return;
  process.startedFor = null;
  const card = core.cards.get(event.device) ?? null;
  const waiter = card === null || wrongBytes(event.parts, event.peakBytes) !== null || wrongHost(event) !== null ? null : budgetWaiter(core, card, event);
  if (waiter !== null && card !== null) {
    waiter.exclusive = isException(core, card, waiter, event.source);
    waiter.needBytes = needOf(core, waiter);
  }
  const refusal = refuseBudget(core, event, process, card);
  if (refusal !== null || card === null || waiter === null) {
    refuse(core, event, card, refusal ?? unknownDevice(core, event.device), waiter);
    return;
  }
  if (event.lease === null && waiter.requestedBytes > 0) noteAsked(core, process, waiter, event.gang?.size ?? 1);
  if (event.gang !== null) {
    const fault = gangFault(core, card, waiter, event.gang) ?? (asksNothing(core, waiter) ? null : refuseQueueing(core, card, waiter));
    if (fault === null) enterGang(core, waiter, event.gang);
    else refuse(core, event, card, fault, waiter);
    return;
  }
  if (asksNothing(core, waiter) && hostHasRoom(core, waiter)) {
    grantBudget(core, card, waiter, false);
    return;
  }
  const late = loneMemberFault(core, waiter) ?? refuseQueueing(core, card, waiter);
  if (late === null && admitAtOnce(core, card, waiter)) return;
  if (late === null) enterWaiter(core, card, waiter);
  else refuse(core, event, card, late, waiter);
}

/** Everything that is wrong with a budget request in itself; null: nothing is. */
function refuseBudget(core: Core, event: BudgetRequested, process: Process, card: Card | null): Refusal | null {
  if (process.state === 'ending' || process.state === 'quarantined') {
    return { code: 'shutting_down', details: { what: event.generation }, text: `${event.generation} is being ended` };
  }
  if (card === null) return unknownDevice(core, event.device);
  const wrong = wrongBytes(event.parts, event.peakBytes) ?? wrongHost(event);
  if (wrong !== null) return wrong;
  if (process.role === 'holder' && event.lease === null && isNothing(event)) return bytesRefusal('bytes', 0, 1);
  if (card.lost !== null) return lostDevice(core, card);
  const { leasesMax } = core.options.limits;
  if (core.leases.size >= leasesMax && event.lease === null) return { code: 'too_many_leases', details: { limit: String(leasesMax) }, text: `${String(leasesMax)} leases are open` };
  return refuseLease(core, event);
}

function refuseLease(core: Core, event: BudgetRequested): Refusal | null {
  if (event.lease === null) return null;
  const refusal = notYours(core, event.lease, event.generation);
  if (refusal !== null) return refusal;
  const lease = core.leases.get(event.lease);
  // Not told of yet: the request waits with its card.
  if (lease === undefined && core.processes.get(event.generation)?.returning === true) return null;
  if (lease === undefined || lease.device !== event.device || lease.model !== event.model) {
    return { code: 'lease_unknown', details: { lease: event.lease }, text: `there is no lease ${event.lease} of ${event.model} on ${event.device}` };
  }
  // Being parked, or parked and its old bytes not yet seen gone: a return of the whole model waits until they are.
  const parks = lease.release?.then === 'parked' || (lease.job?.phase === 'moving' && lease.job.rung === 'park');
  if (parks && event.parts.some((part) => part.kind === 'weights')) return null;
  if (lease.state === 'releasing' || lease.state === 'quarantined' || lease.job?.phase === 'moving') {
    return { code: 'lease_unknown', details: { lease: lease.id }, text: `lease ${lease.id} is being given back` };
  }
  return null;
}

/** What stands against waiting: back-off, sizes that never fit, limits. */
function refuseQueueing(core: Core, card: Card, waiter: BudgetWaiter): Refusal | null {
  const backoff = backingOff(core, waiter.model, card.device);
  if (backoff !== null && extendedLease(core, waiter) === null) return backoffRefusal(core, waiter.model, backoff);
  const wholeBytes = wholeNeedBytes(core, waiter);
  if (wholeBytes > capacityBytes(card)) {
    return { code: 'never_fits', elsewhereBytes: wholeBytes, details: { model: waiter.model, needBytes: String(wholeBytes), device: card.device, mostBytes: String(capacityBytes(card)) }, text: `${waiter.model} can never fit on ${card.device}: ${neverText(wholeBytes, wholeFloorBytes(core, waiter), core.processes.get(waiter.generation)?.engine ?? 'holder', card)}${estimatedText(core, card, waiter)}` };
  }
  const host = refuseHost(core, waiter);
  if (host !== null) return host;
  const double = refuseDouble(core, waiter);
  if (double !== null) return double;
  if (!measurable(core, card)) {
    return { code: 'device_unmeasured', details: { device: card.device, reading: card.missing?.reading ?? 'unknown' }, text: `free memory of ${card.device} cannot be read, and the ledger alone is not allowed` };
  }
  return placeInQueue(core, card, waiter.generation);
}

/** A worker has a model once, and one request open for it (D2). What a holder calls so may be many things, each with a lease of its own. */
function refuseDouble(core: Core, waiter: BudgetWaiter): Refusal | null {
  const process = core.processes.get(waiter.generation);
  if (process?.role !== 'worker') return null;
  for (const key of process.requests) {
    const other = core.waiters.get(key);
    if (other !== undefined && other.kind === 'budget' && other.model === waiter.model && (waiter.gang === null || other.gang !== waiter.gang)) {
      return { code: 'model_loading_elsewhere', details: { model: waiter.model, device: other.device }, text: `${waiter.model} already has a request open on ${other.device}` };
    }
  }
  return null;
}

/** False when the card will never be measured and the operator has not allowed the ledger alone. */
function measurable(core: Core, card: Card): boolean {
  return core.options.allowLedgerOnly || card.kind === 'cpu' || card.missing?.reading !== 'unsupported';
}

export function lostDevice(core: Core, card: Card): Refusal {
  const sinceMs = card.lost === null ? 0 : Math.floor((core.nowUs - card.lost.sinceAtUs) / 1_000);
  return { code: 'device_lost', details: { device: card.device, sinceMs: String(sinceMs) }, text: `card ${card.device} is lost` };
}

export function unknownDevice(core: Core, device: string): Refusal {
  return { code: 'device_unknown', details: { device, known: [...core.cards.keys()].join(', ') }, text: `there is no card ${device}` };
}

/** The first byte count that cannot enter the ledger. */
export function wrongBytes(parts: readonly LeasePart[], peakBytes: number): Refusal | null {
  for (const part of parts) if (!isBytes(part.bytes)) return bytesRefusal(`parts.${part.name}`, part.bytes);
  if (!isBytes(peakBytes)) return bytesRefusal('peakBytes', peakBytes);
  return Number.isNaN(sumOf(parts)) ? bytesRefusal('sum of parts', parts.reduce((sum, part) => sum + part.bytes, 0)) : null;
}

/** Bytes of no card and not of the machine: a worker's model may take none there (B83), while a holder would hold nothing, for ever. */
function isNothing({ parts, peakBytes, host }: BudgetRequested): boolean {
  return peakBytes === 0 && sumOf(parts) === 0 && (host === undefined || Math.max(host.neededBytes, host.copyBytes, host.peakBytes) === 0);
}

function wrongHost(event: BudgetRequested): Refusal | null {
  const wrong = event.host === undefined ? null : wrongHostBytes(event.host);
  return wrong === null ? null : bytesRefusal(...wrong);
}

export function bytesRefusal(field: string, value: number, minimum = 0): Refusal {
  return { code: 'bytes_invalid', details: { field, value: String(value), minimum: String(minimum), maximum: String(leasableBytesMax) }, text: `${field} is ${String(value)}; from ${String(minimum)} to ${String(leasableBytesMax)} can be leased` };
}

/** The living process that asks; an unknown one is told that it is stale (B28). */
export function requester(core: Core, event: { readonly generation: string; readonly request: number }): Process | null {
  const process = core.processes.get(event.generation);
  if (process !== undefined) {
    wasUseful(core, process);
    return process;
  }
  count(core, 'staleEvents');
  emit(core, { type: 'fail', generation: event.generation, request: event.request, code: 'generation_stale', details: { generation: event.generation, current: 'none' } });
  return null;
}

/**
 * The same id again only raises class and deadline (D2); true when it was open.
 * Sent again while its answer was on the way, it has had that one answer (D3):
 * a second grant would look like a second lease.
 */
export function raised(core: Core, event: Asking): boolean {
  const waiter = core.waiters.get(waiterKey(event.generation, event.request));
  if (waiter === undefined) {
    const crossed = core.processes.get(event.generation)?.answered.has(event.request) === true;
    if (crossed) count(core, 'requestsCrossed');
    return crossed;
  }
  const gang = waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  // Those of a gang stand in one order on all of its cards.
  for (const each of gang === undefined ? [waiter] : membersOf(core, gang)) raise(core, each, event.class, inMs(core, event.deadlineMs));
  return true;
}

function raise(core: Core, waiter: Waiter, requestClass: RequestClass, deadlineUs: number): void {
  const card = core.cards.get(waiter.device);
  const { classPolicies } = core.options;
  if (card !== undefined && classPolicies[requestClass].rank > classPolicies[waiter.class].rank) {
    const queued = dequeue(card, waiter);
    waiter.class = requestClass;
    if (queued) enqueue(core, card, waiter);
    core.dirty.add(card.device);
  }
  extendDeadline(core, waiter, deadlineUs);
}

/** Says no to a request that does not wait. */
export function refuse(core: Core, event: Asking, card: Card | null, refusal: Refusal, waiter: Waiter | null = null): void {
  deny(core, {
    generation: event.generation, request: event.request, model: event.model, class: event.class, card,
    ...(waiter === null ? {} : shownNeed(core, waiter)),
    ...refusal,
  });
  if (refusal.code === 'never_fits') neverHere(core, event.generation, event.model);
  if (event.type === 'budget_requested' && event.gang !== null) spoilGang(core, event.generation, event.gang, refusal);
}

/** A request is taken back by its asker. */
export function onRequestCancelled(core: Core, event: Extract<CoreEvent, { type: 'request_cancelled' }>): void {
  const waiter = core.waiters.get(waiterKey(event.generation, event.request));
  if (waiter === undefined) {
    count(core, 'cancelledNothing');
    return;
  }
  explain(core, { ...takenBack(core, waiter), generation: waiter.generation, request: waiter.request, model: waiter.model, device: waiter.device, class: waiter.class, arrivedUs: waiter.arrivedUs });
  count(core, 'cancellations');
  giveUpWaiter(core, waiter);
}

/** An asker counts its deadline from before its request came here, and so takes it back a little before ours. */
const deadlineNearMs = 50;

/** What came of a request that its asker has taken back: its deadline, as a rule; else it was not wanted any more. */
function takenBack(core: Core, waiter: Waiter): { readonly verdict: 'expired' | 'cancelled'; readonly text: string } {
  const waited = `${waiter.model} waited ${durationText(msSince(core, waiter.arrivedUs))}`;
  const leftMs = Math.max(0, Math.floor((waiter.deadlineUs - core.attendedUs) / 1_000));
  const forWhat = waiter.reason === 'queued' ? '' : `: ${waiter.reason}`;
  const isOver = leftMs <= deadlineNearMs;
  return isOver
    ? { verdict: 'expired', text: `${waited}, until its deadline (${durationText(waiter.deadlineMs)} were left of it when it asked)${forWhat}` }
    : { verdict: 'cancelled', text: `${waited} and was taken back by its requester, ${durationText(leftMs)} before its deadline${forWhat}` };
}

/** Moments of a request in both clocks; one that is asked again brings its age with it. */
export function momentsOf(core: Core, event: Asking): Pick<Waiter, 'arrivedUs' | 'arrivedAtUs' | 'deadlineUs' | 'deadlineMs'> {
  const ageUs = event.ageMs > 0 ? event.ageMs * 1_000 : 0;
  const deadlineMs = event.deadlineMs >= 0 ? event.deadlineMs : core.options.limits.requestDeadlineMs;
  return { arrivedUs: core.attendedUs - ageUs, arrivedAtUs: Math.max(0, core.nowUs - ageUs), deadlineUs: inMs(core, deadlineMs), deadlineMs };
}

// Written out, not spread: this runs once a grant.
function budgetWaiter(core: Core, card: Card, event: BudgetRequested): BudgetWaiter {
  const peakBytes = peakOf(card, event);
  const requestedBytes = Math.max(sumOf(event.parts), peakBytes);
  const gang = gatheringGang(core, event.generation, event.gang);
  const first = gang === null ? null : firstMember(core, gang);
  const { deadlineUs, deadlineMs, arrivedUs, arrivedAtUs } = momentsOf(core, event);
  return {
    kind: 'budget',
    key: waiterKey(event.generation, event.request),
    generation: event.generation, request: event.request, model: event.model, order: first?.order ?? core.nextOrder++,
    class: first?.class ?? event.class, arrivedUs: first?.arrivedUs ?? arrivedUs, arrivedAtUs: first?.arrivedAtUs ?? arrivedAtUs, deadlineUs, deadlineMs, policy: event.policy, device: card.device,
    gang: event.gang === null ? null : gangKey(event.generation, event.gang.gang), standing: 'kept', roomBytes: 0, ends: [], needBytes: 0, holdBytes: 0, hostNeedBytes: 0, hostHoldBytes: 0, hostTriedEpoch: -1, hostHopeless: false, hostCopies: null, planned: false, skips: 0, triedEpoch: -1, triedReason: 'no_victims', told: null, toldNamed: '', toldUs: 0, clause: '', reason: 'queued',
    lease: event.lease, parts: event.parts, requestedBytes, peakBytes,
    parkable: event.parkable, profiles: event.profilesFreeMemory, exclusive: false, host: event.host ?? null,
  };
}

/** Where the card's memory is the machine's, a load takes of the same memory what it takes beside the card. */
function peakOf(card: Card, { parts, peakBytes, host }: BudgetRequested): number {
  if (!card.unified || host === undefined) return peakBytes;
  return Math.min(leasableBytesMax, Math.max(sumOf(parts), peakBytes) + Math.max(host.neededBytes, host.peakBytes));
}

/** What an operator can do about a marked model of which only an estimate is known. */
function estimatedText(core: Core, card: Card, waiter: BudgetWaiter): string {
  const couldBe = waiter.policy.exclusive && !waiter.exclusive && waiter.requestedBytes + wholeFloorBytes(core, waiter) <= capacityBytes(card);
  return couldBe ? '; it is marked `exclusive`, which is believed of a size that is declared (`declaredBytes`) or learned, not of an estimate' : '';
}

/** The one exception to the headroom: marked by the operator, of a size that is no estimate, and fitting the empty card only without it. */
function isException(core: Core, card: Card, waiter: BudgetWaiter, source: BudgetRequested['source']): boolean {
  if (extendedLease(core, waiter)?.exclusive === true) return waiter.policy.exclusive;
  const mostBytes = capacityBytes(card) - wholeFloorBytes(core, waiter);
  return waiter.policy.exclusive && source !== 'estimated' && waiter.requestedBytes <= mostBytes && withHeadroom(waiter.requestedBytes) > mostBytes;
}

export type { PlaceRequested, PlaceWaiter };
