/** The requests of a gang as they arrive: gathered until all are there, and refused together when one of them is wrong. */
import type { Refusal } from '../requests/deny.js';
import { gangBroken, gangKey, isComplete, membersOf, noteRefused } from './gang.js';
import { extendedLease } from '../ledger/need.js';
import type { BudgetWaiter, Card, Core, Gang, GangRefusal, Waiter } from '../state.js';
import { extendDeadline, noteWaiter, queueWaiter, refuseGang } from '../requests/waiter.js';

/** As the wire has it: how the requester calls it, and how many cards it has. */
export interface AskedGang {
  readonly gang: string;
  readonly size: number;
}

/** The gang that this is a further request of, while it gathers. */
export function gatheringGang(core: Core, generation: string, asked: AskedGang | null): Gang | null {
  return asked === null ? null : (core.gangs.get(gangKey(generation, asked.gang)) ?? null);
}

/** The first of its requests that came: the others take its place in the order, so that it is the same on every card. */
export function firstMember(core: Core, gang: Gang): Waiter | null {
  for (const key of gang.members.values()) return core.waiters.get(key) ?? null;
  return null;
}

/** What is wrong with this request as a member of its gang; null: nothing. */
export function gangFault(core: Core, card: Card, waiter: BudgetWaiter, asked: AskedGang): Refusal | null {
  const over = core.processes.get(waiter.generation)?.gangsOver.get(asked.gang);
  if (over !== undefined) return over;
  const about = { model: waiter.model, size: asked.size };
  if (card.kind === 'cpu') return { code: 'gang_unsupported', details: { model: waiter.model, size: String(asked.size), reason: `${card.device} is no card` }, text: `${waiter.model} cannot be spread over ${card.device}` };
  const gang = gatheringGang(core, waiter.generation, asked);
  if (gang === null) return null;
  if (gang.model !== waiter.model) return gangBroken(about, `gang ${asked.gang} is one of ${gang.model}`);
  if (gang.size !== asked.size) return gangBroken(about, `gang ${asked.gang} was asked with ${String(gang.size)} cards and with ${String(asked.size)}`);
  return gang.members.has(card.device) ? gangBroken(about, `${card.device} is asked for twice in gang ${asked.gang}`) : null;
}

/** A request that extends one lease of a gang alone would leave the others behind. */
export function loneMemberFault(core: Core, waiter: BudgetWaiter): Refusal | null {
  const lease = extendedLease(core, waiter);
  if (waiter.gang !== null || lease === null || lease.gang === null) return null;
  return gangBroken({ model: waiter.model, size: 1 }, `lease ${lease.id} is one of a gang, which grows on all of its cards or on none`);
}

/** Takes a sound request in; with the last one the gang takes its place in the queues of its cards. */
export function enterGang(core: Core, waiter: BudgetWaiter, asked: AskedGang): void {
  const gang = gatheringGang(core, waiter.generation, asked) ?? newGang(core, { key: gangKey(waiter.generation, asked.gang), generation: waiter.generation, name: asked.gang, model: waiter.model, size: asked.size });
  gang.members.set(waiter.device, waiter.key);
  noteWaiter(core, waiter);
  if (!isComplete(gang)) return;
  const fault = mixedFault(core, gang);
  if (fault === null) queueGang(core, gang);
  else refuseGang(core, gang, fault);
}

export function newGang(core: Core, about: Pick<Gang, 'key' | 'generation' | 'name' | 'model' | 'size'>): Gang {
  const gang: Gang = { ...about, members: new Map(), forming: false, stalledOn: null, refusal: null };
  core.gangs.set(gang.key, gang);
  return gang;
}

/** All of its members are known: they wait on their cards, as long as the most patient of them. */
export function queueGang(core: Core, gang: Gang): void {
  const members = membersOf(core, gang);
  const deadlineUs = Math.max(...members.map((waiter) => waiter.deadlineUs));
  for (const waiter of members) {
    extendDeadline(core, waiter, deadlineUs);
    const card = core.cards.get(waiter.device);
    if (card !== undefined) queueWaiter(core, card, waiter);
  }
}

/** A member was refused as it came: so are those that came before, and those that come late. */
export function spoilGang(core: Core, generation: string, asked: AskedGang, refusal: GangRefusal): void {
  const gang = gatheringGang(core, generation, asked);
  if (gang !== null) {
    refuseGang(core, gang, refusal);
    return;
  }
  const process = core.processes.get(generation);
  if (process !== undefined && !process.gangsOver.has(asked.gang)) noteRefused(process, asked.gang, refusal);
}

/** They extend the leases of one gang, all of them, or all are new. */
function mixedFault(core: Core, gang: Gang): GangRefusal | null {
  const extended = membersOf(core, gang).map((waiter) => (waiter.kind === 'budget' ? extendedLease(core, waiter) : null));
  const together = new Set(extended.map((lease) => lease?.gang ?? null));
  if (extended.every((lease) => lease === null)) return null;
  if (together.size === 1 && extended.every((lease) => lease !== null && lease.gang !== null)) return null;
  return gangBroken(gang, 'it extends leases that are not those of one gang');
}

