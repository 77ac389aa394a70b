/** Who is spared for the sake of whom, whatever it has and costs. */
import { mustCard } from '../must.js';
import type { Core, Lease } from '../state.js';
import { dampedResidencyMs } from '../thrash/damp.js';
import type { Seeker } from './victim.js';

/** It is of the model that asks, in the same process; for a placement wherever it runs (D1). */
export function isRequester(lease: Lease, seeker: Seeker): boolean {
  return lease.model === seeker.model && (seeker.placing || lease.generation === seeker.generation);
}

/** Why it was loaded too short a while ago to be evicted by an equal or lower class: by the minimum of its own, or because the card thrashes. */
export function youth(core: Core, lease: Lease, seeker: Seeker): 'minimum_residency' | 'damped' | null {
  const { classPolicies } = core.options;
  const own = classPolicies[lease.class];
  if (classPolicies[seeker.class].rank > own.rank) return null;
  const residentMs = (core.attendedUs - lease.loadedUs) / 1_000;
  if (residentMs < own.minimumResidencyMs) return 'minimum_residency';
  return seeker.overdue === null && residentMs < dampedResidencyMs(core, mustCard(core, lease.device), lease) ? 'damped' : null;
}

/** Calls inside or queued, as last reported, or the worker has just answered `busy`. */
export function isBusy(core: Core, lease: Lease): boolean {
  return lease.inFlight + lease.queued > 0 || lease.busyUntilUs > core.attendedUs;
}

/** Used, or brought back to be, since the seeker's model first failed to load: what that cost it once it is not to cost again (B79, ADR 0046). */
export function isSpared(core: Core, lease: Lease, seeker: Seeker): boolean {
  if (seeker.failingSinceUs === null) return false;
  return isBusy(core, lease) || Math.max(lease.lastUsedUs, lease.grantedUs) >= seeker.failingSinceUs;
}

/** A model that is parked stays so for this seeker. */
export function staysParked(core: Core, lease: Lease, seeker: Seeker): boolean {
  return isRequester(lease, seeker) || isSpared(core, lease, seeker) || youth(core, lease, seeker) !== null;
}
