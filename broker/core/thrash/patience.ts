/**
 * Patience: where models that were put away to make room have lately come back,
 * a request makes nobody leave while others load there, unless its wait is worth
 * what that costs (ADR 0041). What loads serves its calls, comes to rest and may
 * leave for less than what is used all the time. It ends, as damping does, with
 * the longest wait of its class.
 */
import { canPark, type Plan } from '../eviction/plan.js';
import { expectedReloadMs } from '../processes/model.js';
import { isOverdue } from '../requests/queue.js';
import type { Card, Core, Waiter } from '../state.js';
import { timesAsLong } from './damp.js';

/** The plan is not yet to be carried out for this request. */
export function isTooSoon(core: Core, card: Card, waiter: Waiter, plan: Plan): boolean {
  if (card.loading.size === 0 || card.reloads.loads.length === 0 || isOverdue(core, waiter)) return false;
  return core.attendedUs - waiter.arrivedUs < lossMs(core, waiter, plan) * timesAsLong(core) * 1_000;
}

/** The time that it is expected to take to bring the victims back; those of a lower class do not count. */
function lossMs(core: Core, waiter: Waiter, { victims }: Plan): number {
  const { classPolicies } = core.options;
  let ms = 0;
  for (const { lease, ends } of victims) {
    if (lease !== null && classPolicies[lease.class].rank >= classPolicies[waiter.class].rank) ms += expectedReloadMs(core, lease, !ends && canPark(core, lease));
  }
  return ms;
}
