/** Clients' wishes to evict a model: how far they have come. */
import { count, emit } from './report.js';
import type { Core, EvictRequest, Lease } from './state.js';
import type { ErrorCode } from '../../protocol/index.js';

/** A lease has freed bytes (or is no more): every wish that waits for it comes one step further. */
export function settleEvictRequests(core: Core, lease: Lease, freedBytes: number): void {
  for (const wish of core.evictRequests.values()) {
    if (!wish.pending.delete(lease.id)) continue;
    wish.freedBytes += freedBytes;
    if (wish.pending.size > 0) continue;
    endWish(core, wish);
    emit(core, { type: 'report_evicted', generation: wish.generation, request: wish.request, freedBytes: wish.freedBytes });
  }
}

/** A wish cannot be met: its requester is told. */
export function failWish(core: Core, wish: EvictRequest, code: ErrorCode, details: Readonly<Record<string, string>>): void {
  endWish(core, wish);
  count(core, 'evictRequestsFailed');
  emit(core, { type: 'fail', generation: wish.generation, request: wish.request, code, details });
}

export function endWish(core: Core, wish: EvictRequest): void {
  core.evictRequests.delete(wish.key);
  core.timers.drop('evict_deadline', wish.key);
  core.processes.get(wish.generation)?.requests.delete(wish.key);
}
