/** Calls inside workers, as these last said. */
import type { Core } from '../state.js';

/** Those in models that are there, and each load that is asked for: somebody waits for it. */
export function callsInside(core: Core): number {
  let calls = 0;
  for (const lease of core.leases.values()) if (core.workers.has(lease.generation)) calls += lease.inFlight + lease.queued;
  for (const waiter of core.waiters.values()) if (waiter.kind === 'budget' && core.workers.has(waiter.generation)) calls++;
  return calls;
}
