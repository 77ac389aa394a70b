/**
 * Damping: what has been loaded on a thrashing card is left there while calls
 * queue for it, long enough that loading takes no more than a set share of the
 * time. With nobody left in its queue it goes as ever: a card kept for fewer
 * loads alone serves nobody sooner (ADR 0041). Whoever has waited as long as
 * its class may is not kept from its room by it.
 */
import type { Card, Core, Lease } from '../state.js';

/** How long after its load a model with a queue is left on a thrashing card, in ms: loading is then at most the share of load and stay. 0: no longer than the minimum of its class. */
export function dampedResidencyMs(core: Core, card: Card, lease: Lease): number {
  if (card.reloads.thrashingSinceUs === null || lease.state !== 'resident' || lease.queued === 0) return 0;
  return lease.loadTookMs * timesAsLong(core);
}

/** So many times as long as loads take, something else goes on. 0: they may take all of the time. */
export function timesAsLong(core: Core): number {
  return 100 / core.options.limits.thrashDampedPercent - 1;
}
