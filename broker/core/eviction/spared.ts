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
