/** Copies larger than was granted are a word alone: no more of them stays charged than their process is read to have. */
import { hasLeft } from '../ledger/confirm.js';
import { isLoading } from '../ledger/lease-store.js';
import { mustLease } from '../must.js';
import { count, explain, inWords } from '../report.js';
import { isParking, reportShare } from './share.js';
import type { Core, Seat } from '../state.js';

/** The sample just taken shows what a process has in memory, all that it has said included. */
export function judgeCopies(core: Core, seat: Seat): void {
  const { readingBytes } = seat;
  // One that is silent and read to have nothing has died, or is about to: its exit tells.
  if (readingBytes === null || hasLeft(core, seat)) return;
  for (const id of core.processes.get(seat.generation)?.leases ?? []) {
    const lease = mustLease(core, id);
    const { host } = lease;
    // What was said after the reading was taken is for the next one; what is being made or given back is still to be told.
    if (host === null || host.charge.changes.length > 0 || isLoading(lease) || isParking(lease) || lease.job !== null || lease.release !== null) continue;
    const mostBytes = Math.max(host.asked.copyBytes, readingBytes);
    if (lease.hostBytes <= mostBytes + core.options.limits.measureToleranceBytes) continue;
    count(core, 'copiesDoubted');
    explain(core, {
      verdict: 'overshoot', generation: seat.generation, model: lease.model, device: seat.device,
      text: `${seat.generation} says that it keeps ${inWords(lease.hostBytes)} of ${lease.model} in memory; it is read to have ${inWords(readingBytes)} there in all, and ${inWords(mostBytes)} of the copy stay charged`,
    });
    reportShare(core, lease, mostBytes, null);
  }
}
