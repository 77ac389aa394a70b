/** A model over several cards is there on all of them or on none: asked, granted, refused, evicted and grown together. */
import type { LedgerView } from '../../../broker/core/view.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { Check, EffectOf } from './check.js';
import { mergeParts } from './follow-effects.js';
import { requestKey, sumOf, withHeadroom, type AuditedLease, type AuditedRequest } from './records.js';

/** Before the effects of a step are written into the book. */
export function checkGangs(check: Check): void {
  const granted = new Map<string, EffectOf<'grant'>[]>();
  const refused = new Map<string, AuditedRequest>();
  for (const effect of check.effects) {
    if (effect.type !== 'grant' && effect.type !== 'deny' && effect.type !== 'fail') continue;
    const request = effect.request === null ? null : check.book.request(effect.generation, effect.request);
    if (request !== null && effect.type === 'grant') checkGrown(check, request, effect);
    if (request === null || request.gang === null) continue;
    if (effect.type === 'grant') granted.set(request.gang.key, [...granted.get(request.gang.key) ?? [], effect]);
    else refused.set(request.gang.key, request);
  }
  for (const [key, grants] of granted) checkGranted(check, key, grants);
  for (const request of refused.values()) checkRefused(check, request);
  checkMoves(check);
}

function checkGranted(check: Check, key: string, grants: readonly EffectOf<'grant'>[]): void {
  const [first] = grants;
  if (first === undefined) return;
  const size = check.book.request(first.generation, first.request)?.gang?.size ?? 0;
  if (grants.length !== size) check.broken('gang-split', `${grants.length} of the ${size} requests of gang ${key} are granted in one step`);
  for (const [index, grant] of grants.entries()) {
    const before = grants[index - 1];
    if (before !== undefined && before.device >= grant.device) check.broken('gang-order', `gang ${key} is granted on ${before.device} before ${grant.device}`);
  }
}

/** What grows on one card grows on the others that it named, by as much as it said. */
function checkGrown(check: Check, request: AuditedRequest, grant: EffectOf<'grant'>): void {
  for (const { lease: id, parts } of request.also) {
    const told = grant.also?.find((other) => other.lease === id);
    const lease = check.book.leases.get(id);
    const needBytes = lease === undefined || lease.shortBytes > 0 ? 0 : withHeadroom(sumOf(mergeParts(lease, parts)));
    if (told === undefined || told.chargedBytes < needBytes) check.broken('gang-split', `${request.model} grows on ${grant.device}, and ${id} is charged ${told?.chargedBytes ?? 0} of the ${needBytes} that it is to be`);
  }
}

function checkRefused(check: Check, request: AuditedRequest): void {
  for (const other of check.book.requests.values()) {
    if (other === request || other.gang?.key !== request.gang?.key || other.cancelled || other.isOptional) continue;
    const isTold = check.effects.some((effect) => isFinal(effect) && effect.generation === other.generation && effect.request === other.request);
    if (!isTold) check.broken('gang-split', `${requestKey(request.generation, request.request)} of gang ${request.gang?.key ?? ''} is refused, and ${requestKey(other.generation, other.request)} of it waits on`);
  }
}

function isFinal(effect: Effect): effect is EffectOf<'grant' | 'deny' | 'fail'> {
  return effect.type === 'grant' || effect.type === 'deny' || effect.type === 'fail';
}

/** Who is told to leave one card is told, or has been told, to leave all of its cards. */
function checkMoves(check: Check): void {
  const { book } = check;
  const moved = new Set(check.effects.filter((effect) => effect.type === 'move').map((move) => move.lease));
  for (const id of moved) {
    const lease = book.leases.get(id);
    if (lease === undefined || lease.gang === null) continue;
    for (const other of book.companions(lease)) {
      if (other !== lease && !moved.has(other.lease) && !isOnItsWay(check, other)) check.broken('gang-split', `${lease.model} is told to leave ${lease.device}, and not ${other.device}`);
    }
  }
}

/** Commanded before, or in a state in which a command would find nothing. */
function isOnItsWay(check: Check, lease: AuditedLease): boolean {
  return check.book.wasTold(lease) || lease.stage !== 'resident' || lease.residentBytes === 0 || lease.isQuarantined || lease.growing || lease.blamed;
}

/** By the ledger as shown: only a gang that has all of its cards keeps bytes anywhere, and on each card one at most. */
export function checkForming(check: Check, view: LedgerView): void {
  const forming = new Map(view.cards.map((card) => [card.device, card.forming]));
  const holders = new Map<string, string>();
  for (const waiter of view.waiting) {
    if (waiter.gang === null || waiter.holdBytes === 0) continue;
    const others = view.waiting.filter((other) => other.gang === waiter.gang);
    const size = check.book.request(waiter.generation, waiter.request)?.gang?.size;
    if (size !== undefined && others.length < size) check.broken('gang-hold', `gang ${waiter.gang} keeps ${waiter.holdBytes} on ${waiter.device} before all of its requests have come`);
    if (others.some((other) => forming.get(other.device) !== waiter.gang)) check.broken('gang-hold', `gang ${waiter.gang} keeps ${waiter.holdBytes} on ${waiter.device} without having all of its cards`);
    const before = holders.get(waiter.device) ?? waiter.gang;
    if (before !== waiter.gang) check.broken('gang-hold', `two gangs form on ${waiter.device}: ${before} and ${waiter.gang}`);
    holders.set(waiter.device, waiter.gang);
  }
}

/** By the ledger as shown: leases that were granted together, by this broker or an earlier one, are one gang, and nobody else is of it. */
export function checkTogether(check: Check, view: LedgerView): void {
  const shownAs = new Map<string, string>();
  for (const shown of view.leases) {
    const lease = check.book.leases.get(shown.lease);
    if (lease === undefined) continue;
    if ((lease.gang === null) !== (shown.gang === null)) check.broken('gang-split', `${shown.lease} is shown as ${shown.gang === null ? 'alone' : 'one of a gang'}`);
    if (lease.gang === null || shown.gang === null) continue;
    const key = `${lease.gang} ${lease.model}`;
    const before = shownAs.get(key) ?? shown.gang;
    if (before !== shown.gang) check.broken('gang-split', `${shown.lease} is shown in gang ${shown.gang}, the others of ${lease.gang} in ${before}`);
    shownAs.set(key, before);
  }
}
