/** Idle time-to-live: counted from the end of the last use; then parked or unloaded. */
import { durationText } from '../../../protocol/index.js';
import { inMs } from '../clock.js';
import { isBusy } from './spared.js';
import { companions } from '../gangs/gang.js';
import { isGangIdle, mayBePutAway } from './put-away.js';
import { startEviction } from './ladder.js';
import { isIdle } from '../ledger/lease-store.js';
import type { Core, Lease } from '../state.js';

/** The time is up: put away, unless a load that measures free memory runs there (B14); then after it. */
export function ttlDue(core: Core, lease: Lease): void {
  if (!isIdle(lease) || lease.pinned) return;
  // One that is spread over several cards is unused since the last of its leases was.
  const lastUsedUs = companions(core, lease).reduce((latestUs, member) => Math.max(latestUs, member.lastUsedUs), 0);
  const dueUs = lastUsedUs + (lease.policy.ttlMs ?? 0) * 1_000;
  if (dueUs > core.attendedUs) {
    core.timers.set('ttl', lease.id, dueUs);
    return;
  }
  if (isBusy(core, lease) || !isGangIdle(core, lease) || !mayBePutAway(core, lease)) {
    core.timers.set('ttl', lease.id, inMs(core, core.options.limits.tickIntervalMs));
    return;
  }
  startEviction(core, lease, { cause: 'ttl', when: 'now', bytes: null, target: 'host', waiterSinceAtUs: null, beneficiary: null, reason: `unused for its ttl of ${durationText(lease.policy.ttlMs ?? 0)}` });
}
