/**
 * The one place where gangs are decided, when every card of one has been looked
 * at: all of it fits and all of it is granted; or room is made on every card
 * that is short, if it can be made on all of them; or nothing is done.
 */
import { available } from '../ledger/available.js';
import { denySparing, tell, tellStuck } from '../requests/admission.js';
import type { Leaving } from '../eviction/plan.js';
import { devicesOf, endGang, membersOf } from './gang.js';
import { grantBudget } from '../requests/grant.js';
import { gangCopiesFit, hostSpokesman } from '../memory/share.js';
import { askHost, foreseeHost } from '../memory/admission.js';
import { mustCard } from '../must.js';
import { placeGang } from './placement.js';
import { carryOut, consider, type Intent } from '../requests/pursue.js';
import { inWords } from '../report.js';
import type { BudgetWaiter, Core, Gang, Waiter } from '../state.js';
import { endWaiter } from '../requests/waiter.js';

/** Decides on every gang whose cards have come to rest in this step. */
export function settleGangs(core: Core): void {
  for (const gang of [...core.gangs.values()]) {
    if (!core.gangs.has(gang.key) || !gang.forming || !isAllSeen(core, gang)) continue;
    const members = membersOf(core, gang);
    const isReady = members.every(({ standing }) => standing === 'ready');
    const lacking = inMemory(core, gang, isReady);
    if (!isReady) makeRoom(core, gang, members, lacking);
    else if (lacking === null) formGang(core, gang, members);
  }
}

/** All of its cards have been looked at in this step: what was true of one in an earlier step may be out of date, and is looked at again. */
function isAllSeen(core: Core, gang: Gang): boolean {
  const devices = devicesOf(gang);
  if (!devices.some((device) => core.changed.has(device))) return false;
  for (const device of devices) if (!core.changed.has(device)) core.dirty.add(device);
  return devices.every((device) => !core.dirty.has(device));
}

/** What the gang waits for in the machine's memory, told by the member that speaks for it there; null: nothing. Without a prospect it keeps nobody up. */
function inMemory(core: Core, gang: Gang, isTurn: boolean): string | null {
  const spokesman = hostSpokesman(core, gang);
  if (core.host === null || spokesman === null) return null;
  const reason = isTurn ? askHost(core, spokesman) : foreseeHost(core, spokesman);
  if (reason !== null) tell(core, mustCard(core, spokesman.device), spokesman, reason);
  if (spokesman.planned) for (const waiter of membersOf(core, gang)) plan(core, waiter);
  if (isTurn || reason !== null) setStalled(core, gang, reason === null || reason === 'host_leaving' ? null : core.host.device);
  return reason;
}

function formGang(core: Core, gang: Gang, members: readonly Waiter[]): void {
  const budgets = members.filter((waiter) => waiter.kind === 'budget');
  if (budgets.length === 0) {
    placeGang(core, members);
    return;
  }
  const copies = gangCopiesFit(core, budgets);
  for (const waiter of budgets) waiter.hostCopies = copies;
  // From here on its requests end one by one, each granted.
  endGang(core, gang, null);
  const cards = budgets.map((waiter) => `${inWords(waiter.needBytes)} on ${waiter.device}`).join(', ');
  for (const waiter of budgets) grantMember(core, waiter, cards);
}

function grantMember(core: Core, waiter: BudgetWaiter, cards: string): void {
  const card = mustCard(core, waiter.device);
  grantBudget(core, card, waiter, available(core, card).unverified, cards);
  endWaiter(core, waiter);
}

/** Nothing is evicted anywhere unless enough can be on every card that is short. */
function makeRoom(core: Core, gang: Gang, members: readonly Waiter[], lacking: string | null): void {
  const intents = new Map<Waiter, Intent & { readonly looked: boolean }>();
  const leaving = { gangs: new Set<string>(), generations: new Set<string>() };
  let stalledOn = lacking === null ? null : (core.host?.device ?? null);
  for (const waiter of members) {
    // Who holds what on a closed card is unknown: the others wait for that and keep nobody up.
    if (waiter.standing === 'kept' && mustCard(core, waiter.device).closedBy.size > 0) stalledOn ??= waiter.device;
    if (waiter.standing !== 'short') continue;
    const { triedEpoch } = waiter;
    const intent = consider(core, mustCard(core, waiter.device), waiter, waiter.roomBytes, leaving);
    if (intent.reason === 'no_victims') stalledOn ??= waiter.device;
    noteLeaving(intent, leaving);
    intents.set(waiter, { ...intent, looked: waiter.triedEpoch !== triedEpoch });
  }
  setStalled(core, gang, stalledOn);
  // Where one of its cards is spared, nothing leaves the others in vain.
  const mayEvict = stalledOn === null && members.every(({ standing }) => standing !== 'kept') && [...intents.values()].every(({ reason }) => reason !== 'sparing');
  for (const [waiter, intent] of intents) {
    const card = mustCard(core, waiter.device);
    if (lacking !== null && waiter === hostSpokesman(core, gang)) continue;
    const isIdle = stalledOn === null ? !mayEvict && intent.plan !== null : stalledOn !== waiter.device;
    const outcome = isIdle ? 'gang_waits' : carryOut(core, card, waiter, intent);
    // With one of them all of its requests are answered.
    if (outcome === 'no_victims' && denySparing(core, card, waiter)) return;
    if (outcome === 'no_victims') tellStuck(core, card, waiter, intent.looked);
    else tell(core, card, waiter, outcome);
  }
  // What is free for it on its other cards is worth keeping from now on, too.
  if (members.some(({ planned }) => planned)) for (const waiter of members) plan(core, waiter);
}

function plan(core: Core, waiter: Waiter): void {
  if (waiter.planned) return;
  waiter.planned = true;
  core.dirty.add(waiter.device);
}

/** Its members elsewhere keep others up, or no longer do. */
function setStalled(core: Core, gang: Gang, device: string | null): void {
  if (gang.stalledOn === device) return;
  gang.stalledOn = device;
  for (const other of gang.members.keys()) core.dirty.add(other);
}

function noteLeaving({ plan }: Intent, leaving: { readonly gangs: Set<string>; readonly generations: Set<string> } & Leaving): void {
  for (const { lease, generation } of plan?.victims ?? []) {
    if (lease === null) leaving.generations.add(generation);
    else if (lease.gang !== null) leaving.gangs.add(lease.gang);
  }
}
