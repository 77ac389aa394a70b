/**
 * The one place where requests are decided: run at the end of a step for every
 * card that changed, whatever changed it. In order: who fits is granted; the
 * first who does not is the head, which may evict; those behind it pass only on
 * bytes that it does not need.
 */
import { durationText } from '../../../protocol/index.js';
import { available, numbersOf } from '../ledger/available.js';
import { backingOff, backoffRefusal, sparedRefusal } from './backoff.js';
import { behindOthersMs } from './behind-others.js';
import { msSince } from '../clock.js';
import { deny, shortageText, type Refusal } from './deny.js';
import { sparedModels } from '../eviction/plan.js';
import { slowLeaving, slowLeavingText } from '../eviction/slow-leaving.js';
import { grantBudget } from './grant.js';
import { loneMemberFault } from '../gangs/request.js';
import { standReady, standShort, waitForGang } from '../gangs/standing.js';
import { askHost, foreseeHost, hostHasRoom, refuseHost } from '../memory/admission.js';
import { asksNothing, capacityBytes, extendedLease, needOf, neverText, shownNeed, wholeFloorBytes, wholeNeedBytes } from '../ledger/need.js';
import { neverHere } from '../processes/model.js';
import { stalledLoad, stallText } from '../ledger/load-progress.js';
import { joinHost, placeOn } from './placement.js';
import { isEntrenched, pursue, trimDrains } from './pursue.js';
import { inOrder, isOverdue, positionOf, queueLength } from './queue.js';
import { sampleNeededAtUs, wantSample } from '../cards/probe.js';
import { count, emit, explain, publish } from '../report.js';
import type { BudgetWaiter, Card, Core, Lease, Waiter } from '../state.js';
import { seekerOf } from './seeker.js';
import { endWaiter, setHold, speaks } from './waiter.js';
import { whatStays, type Staying } from './what-stays.js';

/** Decides everything that can be decided on a card now. */
export function settle(core: Core, card: Card): void {
  if (queueLength(card) > 0) {
    if (card.lost === null) settleQueue(core, card);
    else for (const waiter of [...inOrder(core, card)]) denyLost(core, card, waiter);
  }
  trimDrains(core, card);
  card.maxOverReserveBytes = Math.max(card.maxOverReserveBytes, card.chargedBytes + card.holdBytes - capacityBytes(card));
}

/**
 * A request that comes to an empty queue and fits is granted without entering
 * it: the same decision, less bookkeeping. False: it has to queue.
 */
export function admitAtOnce(core: Core, card: Card, waiter: BudgetWaiter): boolean {
  if (queueLength(card) > 0 || blockedBy(core, card, waiter) !== null) return false;
  const { freeBytes, unverified } = available(core, card);
  if (freeBytes === null || waiter.needBytes > freeBytes || (waiter.profiles && hasMotion(card)) || !hostHasRoom(core, waiter)) return false;
  grantBudget(core, card, waiter, unverified);
  return true;
}

/**
 * Holds follow the order of the queue: what is free goes first to whoever goes
 * first, up to its need, and what was freed for it is kept from all behind it.
 */
function settleQueue(core: Core, card: Card): void {
  let head: Waiter | null = null;
  let heldBytes = 0;
  for (const waiter of inOrder(core, card)) {
    if (head !== null && stopsAll(core, card, head, heldBytes)) {
      waiter.standing = 'kept';
      keepHold(core, card, waiter, heldBytes);
    } else {
      if (waiter.kind === 'place' && joinHost(core, waiter)) continue;
      const triedEpoch = waiter.triedEpoch;
      const outcome = decide(core, card, waiter, head, heldBytes);
      if (outcome === 'done' || (outcome === 'no_victims' && denySparing(core, card, waiter))) continue;
      if (outcome === 'no_victims') tellStuck(core, card, waiter, waiter.triedEpoch !== triedEpoch);
      // What a gang waits for is told when all of its cards have been looked at: which of them is short, or the machine's memory.
      else if (outcome !== 'gang_short' && !(outcome === 'gang_ready' && waitsForHost(waiter.told))) tell(core, card, waiter, outcome);
      if (!standsAside(waiter, outcome)) head ??= waiter;
    }
    heldBytes += waiter.holdBytes;
  }
}

/** Kept by its own process, by another card, or by the machine's memory without a prospect, and not by this card: nobody waits behind it. */
function standsAside(waiter: Waiter, outcome: string): boolean {
  if (outcome === 'gang_ready') return waiter.kind === 'place' || !waiter.profiles;
  if (outcome === 'gang_waits' || ownMatters.includes(outcome)) return true;
  return waitsForHost(outcome) && (outcome !== 'host_leaving' || waiter.needBytes === 0);
}

/** A hold is never more than what those before it leave; one with a plan keeps of that all that it needs, whatever else it waits for. */
function keepHold(core: Core, card: Card, waiter: Waiter, heldBytes: number): void {
  if (waiter.holdBytes === 0 && !waiter.planned) return;
  if (waiter.gang !== null && core.gangs.get(waiter.gang)?.forming === false) {
    setHold(core, card, waiter, 0);
    return;
  }
  const { freeBytes } = available(core, card);
  if (freeBytes === null) return;
  const wantedBytes = waiter.planned ? waiter.needBytes : waiter.holdBytes;
  setHold(core, card, waiter, Math.min(wantedBytes, Math.max(0, freeBytes - heldBytes)));
}

/** Grants the waiter, or says what it waits for. `heldBytes` are kept for those before it. */
function decide(core: Core, card: Card, waiter: Waiter, head: Waiter | null, heldBytes: number): string {
  waiter.standing = 'kept';
  const fault = waiter.kind === 'budget' && waiter.lease !== null ? extensionFault(core, waiter, waiter.lease) : null;
  if (fault !== null) return denyWaiter(core, card, waiter, fault);
  setNeed(core, card, waiter, needOf(core, waiter));
  if (wholeNeedBytes(core, waiter) > capacityBytes(card)) return denyNever(core, card, waiter);
  const never = refuseHost(core, waiter);
  if (never !== null) return denyHost(core, waiter, never);
  keepHold(core, card, waiter, heldBytes);
  const backoff = waiter.kind === 'place' || waiter.lease === null ? backingOff(core, waiter.model, card.device) : null;
  // Its model failed there while it waited: told at once rather than kept for the length of the pause (B79).
  if (backoff !== null) return denyWaiter(core, card, waiter, backoffRefusal(core, waiter.model, backoff));
  const gang = waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  if (gang !== undefined && !gang.forming) return waitForGang(core, card, waiter);
  if (waiter.kind === 'budget' && asksNothing(core, waiter)) {
    if (gang !== undefined) return standReady(core, card, waiter, gang);
    // It waits for the machine's memory alone, whatever state the card is in (B83).
    return askHost(core, waiter) ?? grantNow(core, card, waiter, null, false);
  }
  const { freeBytes, unverified } = available(core, card);
  const blocked = blockedBy(core, card, waiter);
  const ownBytes = (freeBytes ?? 0) - heldBytes;
  waiter.roomBytes = ownBytes;
  if (blocked !== null) {
    // Nobody waits behind it, but once it is overdue nobody takes what it needs either.
    if (ownMatters.includes(blocked) && isOverdue(core, waiter)) setHold(core, card, waiter, Math.min(waiter.needBytes, Math.max(0, ownBytes)));
    return blocked;
  }
  if (freeBytes === null) return 'unmeasured';
  // A need of 0 does not fit into an overshoot either: what it would take is charged, and not there.
  const fits = waiter.needBytes <= ownBytes;
  const mustRest = fits && waiter.kind === 'budget' && waiter.profiles && hasMotion(card);
  if (gang !== undefined && fits && !mustRest) return standReady(core, card, waiter, gang);
  if (gang !== undefined && !mustRest && head === null) return standShort(core, card, waiter, gang);
  const short = fits && !mustRest ? askHost(core, waiter) : null;
  if (fits && !mustRest && short === null) return grantNow(core, card, waiter, head, unverified);
  const reason = short ?? (mustRest ? 'others_loading' : head === null ? makeRoom(core, card, waiter, ownBytes) : 'behind_head');
  const keeps = waiter.planned || (head === null && isEntrenched(core, waiter) && !standsAside(waiter, reason));
  setHold(core, card, waiter, keeps ? Math.min(waiter.needBytes, Math.max(0, ownBytes)) : 0);
  wantSample(core, card, sampleNeededAtUs(card));
  return reason;
}

/** Room on its card, unless the machine's memory could not serve it then: nobody leaves in vain. */
function makeRoom(core: Core, card: Card, waiter: Waiter, ownBytes: number): string {
  return foreseeHost(core, waiter) ?? pursue(core, card, waiter, ownBytes);
}

function grantNow(core: Core, card: Card, waiter: Waiter, head: Waiter | null, unverified: boolean): string {
  if (waiter.kind === 'place') {
    const outcome = placeOn(core, waiter);
    if (outcome !== 'done') return outcome;
  } else {
    grantBudget(core, card, waiter, unverified);
    endWaiter(core, waiter);
  }
  if (head !== null) {
    head.skips++;
    count(core, 'backfills');
  }
  return 'done';
}

/** What keeps a request is between it and its own process; the card is others' to use. */
const ownMatters: readonly string[] = ['own_release', 'remeasure', 'recalled', 'starts_full'];

/** What forbids any grant to this waiter here, apart from bytes. */
function blockedBy(core: Core, card: Card, waiter: Waiter): string | null {
  if (card.closedBy.size > 0) return 'closed';
  if (available(core, card).freeBytes === null) {
    // Just too old, or a probe that fails: a fresh one is asked for, and the request waits for it.
    wantSample(core, card, core.nowUs);
    return 'unmeasured';
  }
  if (card.loadToken !== null && core.leases.get(card.loadToken)?.generation !== waiter.generation) return 'load_token';
  if (card.quietWantedUs !== null && card.confirms === 'total' && core.attendedUs - card.quietWantedUs > core.options.limits.confirmQuietAfterMs * 1_000) return 'quiet';
  if ((card.seats.get(waiter.generation)?.remeasure.size ?? 0) > 0) return 'remeasure';
  // What it is giving back, or has just given back, is measured first: its own old bytes would pass for those it asks for.
  const extended = waiter.kind === 'budget' ? extendedLease(core, waiter) : null;
  if (extended !== null && (extended.release !== null || extended.job !== null)) return 'own_release';
  // If it has not arrived its lease is given up with the answer, and this would be a grant of nothing.
  if (extended !== null && extended.recallCommand !== null) return 'recalled';
  return null;
}

/** Something loads, leaves or is being put away: an engine that profiles free memory must not start into it. */
function hasMotion(card: Card): boolean {
  return card.loading.size > 0 || card.releasing.size > 0 || card.returning.size > 0 || card.jobs.size > 0 || card.spawning > 0 || card.ending.size > 0;
}

/** Nobody behind this head can be granted now. */
function stopsAll(core: Core, card: Card, head: Waiter, heldBytes: number): boolean {
  if (head.told === 'closed' || head.told === 'unmeasured' || head.told === 'quiet' || head.told === 'load_token') return true;
  if ((head.told === 'others_loading' || head.told === 'gang_ready') && isEntrenched(core, head)) return true;
  const { freeBytes } = available(core, card);
  return freeBytes !== null && freeBytes <= heldBytes;
}

function setNeed(core: Core, card: Card, waiter: Waiter, needBytes: number): void {
  waiter.needBytes = needBytes;
  if (waiter.holdBytes > needBytes) setHold(core, card, waiter, needBytes);
}

const reasons: Readonly<Record<string, string>> = {
  closed: 'a process of an earlier broker has not said what it holds there',
  unmeasured: 'free memory is unknown until the card has been read',
  load_token: 'an engine is measuring free memory while it loads; nothing else loads until it is ready',
  others_loading: 'this engine measures free memory while it loads; others must come to rest first',
  quiet: 'a release can only be seen by the card as a whole; nothing loads until it has been',
  own_release: 'bytes that this model gives back are being measured',
  recalled: 'whether an earlier grant of this lease has arrived is being asked',
  remeasure: 'a load failed in this process; what it left is being measured',
  leaving: 'room is being made',
  draining: 'a busy model has been asked to finish its calls',
  sparing: 'what could make room is likely to be wanted again soon; it stays until the wait is worth its reload',
  rung_changed: 'another probe answers than before; a second reading is awaited',
  behind_head: 'an earlier request needs the room',
  gang_waits: 'its cards are taken together, and another of them is not free yet',
  gang_ready: 'there is room here; another of its cards is awaited',
  starts_full: 'as many workers as one peer may have starting are starting for it',
  host_closed: 'a process of an earlier broker has not said what it holds of the machine\'s memory',
  host_unmeasured: 'how much of the machine\'s memory is free is unknown until it has been read',
  host_leaving: 'room is being made in the machine\'s memory',
  host_full: 'nothing may leave the machine\'s memory for it now',
  host_behind: 'an earlier request needs the room in the machine\'s memory',
  workers_full: 'the limit of worker processes is reached; one is being ended',
};

/** What a load that does not end may be to blame for. */
const causedByLoads: readonly string[] = ['load_token', 'others_loading', 'no_victims', 'quiet'];

/** Nothing can make room: told with what keeps everything where it is, and again when what an operator has pinned has changed. */
export function tellStuck(core: Core, card: Card, waiter: Waiter, looked: boolean): void {
  if (!looked && waiter.told?.startsWith('no_victims') === true) return;
  tell(core, card, waiter, 'no_victims', whatStays(core, card, waiter));
}

/**
 * Tells the requester what it waits for, when that has changed: also when a load without progress or somebody who leaves
 * slowly has become part of it. With other figures alone it is told again after a while, unless it only stands behind others.
 */
export function tell(core: Core, card: Card, waiter: Waiter, code: string, staying: Staying | null = null): void {
  const told = staying === null ? code : `${code} ${staying.pinned.join(' ')}`;
  const named = namedIn(core, card, code);
  const isNews = waiter.told !== told || waiter.toldNamed !== named;
  if (!isNews && (code === 'behind_head' || msSince(core, waiter.toldUs) < core.options.limits.waitRetoldMs)) return;
  core.fresh.delete(waiter.key);
  const before = waiter.reason;
  waiter.told = told;
  waiter.toldNamed = named;
  waiter.toldUs = core.attendedUs;
  if (!speaks(waiter)) return;
  if (isNews) waiter.clause = staying?.text ?? reasons[code] ?? code;
  waiter.reason = waitText(core, card, waiter);
  if (!isNews && waiter.reason === before) return;
  const position = positionOf(core, card, waiter);
  const id = explain(core, {
    verdict: 'waiting', text: waiter.reason + boundText(core, card, waiter),
    generation: waiter.generation, request: waiter.request, model: waiter.model, device: card.device, class: waiter.class, arrivedUs: waiter.arrivedUs,
    numbers: numbersOf(core, card, shownNeed(core, waiter)),
    ...(staying === null ? {} : { victims: staying.considered }),
    unverified: available(core, card).unverified,
  });
  emit(core, { type: 'wait', generation: waiter.generation, request: waiter.request, position, reason: waiter.reason, explain: id });
  if (isNews) publish(core, 'waiting', { generation: waiter.generation, request: waiter.request, model: waiter.model, device: card.device, position, reason: code, why: waiter.reason });
}

/** The load that keeps it and shows no progress, and who leaves slowly. */
function namedIn(core: Core, card: Card, code: string): string {
  if (waitsForHost(code)) return '';
  return [blamedLoad(core, card, code)?.id ?? '', ...slowLeaving(core, card).map(({ id }) => id)].join(' ');
}

function blamedLoad(core: Core, card: Card, code: string): Lease | null {
  return causedByLoads.includes(code) && card.loading.size > 0 ? stalledLoad(core, card) : null;
}

/** What a request that has been told so waits for, as of now. */
export function waitText(core: Core, card: Card, waiter: Waiter): string {
  const code = waiter.told?.replace(/ .*/, '') ?? '';
  if (waitsForHost(code) && core.host !== null) return `${waiter.clause}: ${shortageText(core, core.host, waiter.hostNeedBytes, waiter.hostHoldBytes)}`;
  const stalled = blamedLoad(core, card, code);
  const causes = [waiter.clause, stalled === null ? '' : stallText(core, stalled), slowLeavingText(slowLeaving(core, card))];
  return `${causes.filter((cause) => cause !== '').join('; ')}: ${shortageText(core, card, waiter.needBytes, waiter.holdBytes)}`;
}

/** "; at most 40 s more behind others", where that is known. */
function boundText(core: Core, card: Card, waiter: Waiter): string {
  const boundMs = behindOthersMs(core, card, waiter);
  return boundMs === null ? '' : `; at most ${durationText(Math.ceil(boundMs / 1_000) * 1_000)} more behind others`;
}

/** Whether it is the machine's memory that a request waits for. */
export function waitsForHost(told: string | null): boolean {
  return told?.startsWith('host_') === true;
}

/** New requests that the pass did not come to are told that they wait behind others. */
export function tellFresh(core: Core): void {
  for (const key of [...core.fresh]) {
    const waiter = core.waiters.get(key);
    const card = waiter === undefined ? undefined : core.cards.get(waiter.device);
    if (waiter !== undefined && card !== undefined && waiter.told === null) tell(core, card, waiter, 'behind_head');
  }
  core.fresh.clear();
}

function denyNever(core: Core, card: Card, waiter: Waiter): string {
  const engine = waiter.kind === 'place' ? waiter.engine : (core.processes.get(waiter.generation)?.engine ?? 'holder');
  deny(core, {
    generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
    code: 'never_fits', card, elsewhereBytes: wholeNeedBytes(core, waiter), ...shownNeed(core, waiter),
    details: { model: waiter.model, needBytes: String(wholeNeedBytes(core, waiter)), device: card.device, mostBytes: String(capacityBytes(card)) },
    text: `${waiter.model} can never fit on ${card.device}: ${neverText(wholeNeedBytes(core, waiter), wholeFloorBytes(core, waiter), engine, card)}`,
  });
  neverHere(core, waiter.generation, waiter.model);
  endWaiter(core, waiter);
  return 'done';
}

/** The machine's memory can never serve it, or can never be read. */
function denyHost(core: Core, waiter: Waiter, refusal: Refusal): string {
  deny(core, {
    generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
    ...refusal,
  });
  endWaiter(core, waiter);
  return 'done';
}

/** Answered with a refusal and its card's numbers. */
function denyWaiter(core: Core, card: Card, waiter: Waiter, refusal: Refusal): string {
  deny(core, { generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs, ...refusal, card, ...shownNeed(core, waiter) });
  endWaiter(core, waiter);
  return 'done';
}

/** Only models that have been used since it first failed to load could make room for it: told at once, and nobody waits behind it. True: it was. */
export function denySparing(core: Core, card: Card, waiter: Waiter): boolean {
  const spared = sparedModels(core, card, seekerOf(core, waiter));
  const refusal = spared.length === 0 ? null : sparedRefusal(core, waiter.model, card.device, spared);
  if (refusal === null) return false;
  denyWaiter(core, card, waiter, refusal);
  return true;
}

/** What has become, or was told later, of the lease that it extends; for a further context also that it was put away meanwhile. */
function extensionFault(core: Core, waiter: BudgetWaiter, lease: string): Refusal | null {
  const state = core.leases.get(lease)?.state;
  const isAway = state === 'parked' && waiter.parts.every((part) => part.kind === 'context');
  if (state === 'quarantined' || isAway) return { code: 'lease_unknown', details: { lease }, text: `lease ${lease} is ${state}` };
  return loneMemberFault(core, waiter);
}

function denyLost(core: Core, card: Card, waiter: Waiter): void {
  deny(core, {
    generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
    code: 'device_lost', card, ...shownNeed(core, waiter),
    details: { device: card.device, sinceMs: String(card.lost === null ? 0 : Math.floor((core.nowUs - card.lost.sinceAtUs) / 1_000)) },
    text: `card ${card.device} is lost`,
  });
  endWaiter(core, waiter);
}
