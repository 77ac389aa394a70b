/** What is left of a gang that has lost a member: of no use to anybody, and asked back unless its owner gives it back by itself. */
import { msSince } from '../clock.js';
import { startEviction } from '../eviction/ladder.js';
import { recall } from '../ledger/lease-events.js';
import { mustLease } from '../must.js';
import { mayBePutAway } from '../eviction/put-away.js';
import type { Core, Lease } from '../state.js';

/** On a tick. */
export function pursueStranded(core: Core): void {
  for (const [id, sinceUs] of [...core.stranded]) {
    if (msSince(core, sinceUs) >= core.options.limits.commandAnswerMs) askBack(core, mustLease(core, id));
  }
}

function askBack(core: Core, lease: Lease): void {
  if (lease.state === 'granted') {
    if (lease.recallCommand === null) recall(core, lease);
    return;
  }
  const settled = (lease.state === 'resident' || lease.state === 'parked') && lease.job === null && lease.release === null && !lease.growing;
  if (!settled || lease.avoidUntilUs > core.attendedUs || !mayBePutAway(core, lease)) return;
  startEviction(core, lease, { cause: 'gang', when: 'drained', bytes: null, target: 'none', waiterSinceAtUs: null, beneficiary: null, reason: 'the rest of its gang is gone' });
}
