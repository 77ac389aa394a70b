/** Thrash is named when by the log it is one, and never when it is none; and what is loaded then is left there while calls queue for it. */
import type { LedgerView } from '../../../broker/core/view.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { Check, EffectOf } from './check.js';
import { requestKey } from './records.js';
import { waitedUs } from './order.js';

/** Shares nearer to a limit than this are left to the core. */
const slack = 0.005;

export function followThrash(check: Check, effect: Effect): void {
  const { book } = check;
  const { turns, clock } = book;
  if (effect.type === 'grant') {
    const lease = book.leases.get(effect.lease);
    if (lease !== undefined && lease.stage === 'granted') turns.grantedUs.set(effect.lease, clock.mostUs);
    return;
  }
  if (effect.type !== 'publish') return;
  const text = (name: string): string => String(effect.data[name]);
  if (effect.name === 'loaded') turns.loaded(text('device'), text('lease'), text('model'), clock.mostUs, windowUs(check));
  if (effect.name === 'evicted' && text('cause') === 'plan' && Number(effect.data['freedBytes']) > 0) {
    const hasLeft = book.leases.get(text('lease'))?.stage !== 'resident' && book.closedLeases.get(text('lease'))?.revived !== true;
    turns.putAway(text('device'), text('model'), clock.mostUs, hasLeft);
  }
  if (effect.name === 'thrashing') checkNamed(check, effect.data);
  if (effect.name === 'thrash_ended') checkEnded(check, text('device'));
}

const windowUs = (check: Check): number => check.book.options.limits.thrashWindowMs * 1_000;
const shareOf = (check: Check, device: string, sureOnly: boolean): number => check.book.turns.share(device, check.book.clock.mostUs, windowUs(check), sureOnly);
const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

function checkNamed(check: Check, data: EffectOf<'publish'>['data']): void {
  const device = String(data['device']);
  const share = shareOf(check, device, false);
  const turns = check.book.turns.of(device);
  if (turns.isNamed) check.broken('thrash-named-twice', `${device} is said to thrash, and was before`);
  if (share * 100 < check.book.options.limits.thrashBeginsPercent - slack * 100) check.broken('thrash-false', `${device} is said to thrash; by the log at most ${percent(share)} of its time went into models that take turns`);
  const card = check.book.cards.get(device);
  if (card !== undefined && data['capacityBytes'] !== card.totalBytes - card.reserveBytes) check.broken('thrash-false', `${device}: ${String(data['capacityBytes'])} could be used of ${card.totalBytes}`);
  for (const model of check.book.turns.sureModels(device)) if (!String(data['models']).includes(model)) check.broken('thrash-false', `${device}: ${model} takes turns and is not among "${String(data['models'])}"`);
  turns.isNamed = true;
}

function checkEnded(check: Check, device: string): void {
  const share = shareOf(check, device, true);
  const turns = check.book.turns.of(device);
  if (!turns.isNamed) check.broken('thrash-ended', `${device} is said to thrash no longer, and never did`);
  if (share > check.book.options.limits.thrashEndsPercent / 100 + slack) check.broken('thrash-ended', `${device} is said to thrash no longer; by the log ${percent(share)} of its time still goes that way`);
  turns.isNamed = false;
}

/** On each tick. */
export function checkThrash(check: Check): void {
  const { thrashBeginsPercent, thrashEndsPercent } = check.book.options.limits;
  for (const device of check.book.cards.keys()) {
    const { isNamed } = check.book.turns.of(device);
    const sure = shareOf(check, device, true);
    const most = shareOf(check, device, false);
    if (!isNamed && sure > thrashBeginsPercent / 100 + slack) check.broken('thrash-unnamed', `${device} thrashes by the log (${percent(sure)} of its time), and nobody says so`);
    if (isNamed && most < thrashEndsPercent / 100 - slack) check.broken('thrash-kept', `${device} is still said to thrash; by the log it is at most ${percent(most)} of its time`);
  }
}

export function checkThrashView(check: Check, view: LedgerView): void {
  for (const { device, thrashing } of view.cards) {
    const { isNamed } = check.book.turns.of(device);
    if ((thrashing !== null) !== isNamed) check.broken('thrash-view', `${device} is shown ${thrashing === null ? 'at rest' : 'to thrash'}; by its events it is not so`);
  }
}

/** On a thrashing card a model that calls queue for is not made to leave before it has stayed as long as its load asks, unless for a higher class or one that has waited out its own. */
export function checkDamped(check: Check, move: EffectOf<'move'>): void {
  const { book } = check;
  const { classPolicies, limits } = book.options;
  const lease = book.leases.get(move.lease);
  const key = check.beneficiaries.get(move.lease) ?? null;
  const request = key === null ? undefined : book.requests.get(key);
  if (lease === undefined || request === undefined || request.kind === 'evict' || !book.turns.of(lease.device).isNamed) return;
  if (request.device !== lease.device || lease.revived || lease.queued === 0) return;
  if (classPolicies[request.class].rank > classPolicies[lease.class].rank) return;
  if (waitedUs(book, request) >= classPolicies[request.class].longestWaitMs * 1_000) return;
  const stayUs = (book.turns.tookUs.get(lease.lease) ?? 0) * (100 / limits.thrashDampedPercent - 1);
  const stayedUs = check.event.atUs - lease.loadedAtUs;
  if (stayedUs < stayUs - (limits.tickIntervalMs + 1) * 1_000) check.broken('damping', `${lease.lease} (${lease.model}) is to leave thrashing ${lease.device} for ${requestKey(request.generation, request.request)} after ${stayedUs} us of ${stayUs}`);
}
