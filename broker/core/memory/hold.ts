/** Bytes of the machine's memory that are kept for a request which waits. */
import type { Card, Core, Waiter } from '../state.js';

export function setHostHold(core: Core, host: Card, waiter: Waiter, bytes: number): void {
  if (bytes === waiter.hostHoldBytes) return;
  host.holdBytes += bytes - waiter.hostHoldBytes;
  waiter.hostHoldBytes = bytes;
  core.dirty.add(host.device);
}

/** The request is over: what was kept for it is free, and another may be the first. */
export function leaveHostWaiters(core: Core, waiter: Waiter): void {
  if (!core.hostWaiters.delete(waiter.key) || core.host === null) return;
  setHostHold(core, core.host, waiter, 0);
  core.host.planEpoch++;
  core.dirty.add(core.host.device);
}
