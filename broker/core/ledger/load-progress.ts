/** Signs of progress of loads. One without any is not ended for it, but whoever waits because of it is told which it is. */
import { msSince } from '../clock.js';
import { mustLease } from '../must.js';
import { secondsInWords } from '../report.js';
import type { Card, Core, Lease } from '../state.js';

/** Its load has begun, or has come further. */
export function noteProgress(core: Core, lease: Lease): void {
  lease.progressUs = core.attendedUs;
}

/** The driver's figure of a process (null: only that of the card) is another than before: what loads there moves. */
export function noteMoved(core: Core, card: Card, generation: string | null): void {
  for (const id of card.loading) {
    const lease = mustLease(core, id);
    if (generation === null || lease.generation === generation) noteProgress(core, lease);
  }
}

/** The load on the card that has shown no progress for longest, if that is too long. */
export function stalledLoad(core: Core, card: Card): Lease | null {
  let stalled: Lease | null = null;
  for (const id of card.loading) {
    const lease = mustLease(core, id);
    if (isStalled(core, lease) && lease.progressUs < (stalled?.progressUs ?? Infinity)) stalled = lease;
  }
  return stalled;
}

/** A process has loads on the card, and none of them has shown progress of late. */
export function areStalled(core: Core, card: Card, generation: string): boolean {
  const loads = [...card.loading].map((id) => mustLease(core, id)).filter((lease) => lease.generation === generation);
  return loads.length > 0 && loads.every((lease) => isStalled(core, lease));
}

function isStalled(core: Core, lease: Lease): boolean {
  return msSince(core, lease.progressUs) >= core.options.limits.loadStallMs;
}

export function stallText(core: Core, lease: Lease): string {
  const seconds = (sinceUs: number): string => secondsInWords(msSince(core, sinceUs));
  return `${lease.model} has been loading in ${lease.generation} for ${seconds(lease.grantedUs)} and has shown no progress for ${seconds(lease.progressUs)} (lease ${lease.id}; evicting ${lease.model} stops it)`;
}
