/** Clients' wishes to evict a model: how far they have come. */
import { count, emit } from '../report.js';
import type { Core, EvictRequest, Lease } from '../state.js';
import type { ErrorCode } from '../../../protocol/index.js';

/** A lease has freed bytes (or is no more): every wish that waits for it comes one step further. */
export function settleEvictRequests(core: Core, lease: Lease, freedBytes: number): void {
  for (const wish of wishesFor(core, lease)) {
    forget(core, wish.key, lease);
    wish.pending.delete(lease.id);
    wish.freedBytes += freedBytes;
    if (wish.pending.size > 0) continue;
    endWish(core, wish);
    emit(core, { type: 'report_evicted', generation: wish.generation, request: wish.request, freedBytes: wish.freedBytes });
  }
}

/** The wishes that wait for this lease cannot be met. */
export function failWishes(core: Core, lease: Lease, code: ErrorCode, details: Readonly<Record<string, string>>): void {
  for (const wish of wishesFor(core, lease)) failWish(core, wish, code, details);
}

function wishesFor(core: Core, lease: Lease): EvictRequest[] {
  const wishes: EvictRequest[] = [];
  for (const key of lease.wishes ?? []) {
    const wish = core.evictRequests.get(key);
    if (wish !== undefined) wishes.push(wish);
  }
  return wishes;
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
  for (const id of wish.pending) forget(core, wish.key, core.leases.get(id));
}

/** The lease is no longer waited for by this wish. */
function forget(core: Core, key: string, lease: Lease | undefined): void {
  if (lease?.wishes?.delete(key) !== true) return;
  if (lease.wishes.size > 0) {
    // The next in line has its turn.
    core.touched.add(lease.id);
    return;
  }
  core.cards.get(lease.device)?.wished.delete(lease.id);
  core.timers.drop('wish', lease.id);
}
