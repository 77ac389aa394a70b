/** How one request of a gang stands on its card: what it keeps there while its others are awaited. */
import { sampleNeededAtUs, wantSample } from '../cards/probe.js';
import { isEntrenched } from '../requests/pursue.js';
import type { Card, Core, Gang, Waiter } from '../state.js';
import { setHold } from '../requests/waiter.js';

/** Another gang forms here, or on a card before it: it keeps nothing. */
export function waitForGang(core: Core, card: Card, waiter: Waiter): string {
  setHold(core, card, waiter, 0);
  return 'gang_waits';
}

/** It could be granted: all that it needs is kept for it once others may no longer pass. */
export function standReady(core: Core, card: Card, waiter: Waiter, gang: Gang): string {
  waiter.standing = 'ready';
  setHold(core, card, waiter, keeps(core, waiter, gang) ? waiter.needBytes : 0);
  return 'gang_ready';
}

/** First in its queue and short of bytes: room is made when that is possible on all of its cards. */
export function standShort(core: Core, card: Card, waiter: Waiter, gang: Gang): string {
  waiter.standing = 'short';
  setHold(core, card, waiter, keeps(core, waiter, gang) ? Math.min(waiter.needBytes, Math.max(0, waiter.roomBytes)) : 0);
  wantSample(core, card, sampleNeededAtUs(card));
  // Nothing can be made free for it elsewhere: whoever is behind it here need not wait for that.
  return gang.stalledOn === null || gang.stalledOn === card.device ? 'gang_short' : 'gang_waits';
}

function keeps(core: Core, waiter: Waiter, gang: Gang): boolean {
  const stalledElsewhere = gang.stalledOn !== null && gang.stalledOn !== waiter.device;
  return waiter.planned || (isEntrenched(core, waiter) && !stalledElsewhere);
}
