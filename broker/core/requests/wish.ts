/** `evict` and `pin`: what operators and embedders ask of a model by name. */
import { inMs } from '../clock.js';
import type { CoreEvent } from '../events.js';
import { endWish, failWish } from '../eviction/progress.js';
import { mayBePutAway } from '../eviction/put-away.js';
import { startEviction } from '../eviction/ladder.js';
import { reindex } from '../ledger/lease-store.js';
import { setPinned } from '../processes/model.js';
import { mustCard, mustLease } from '../must.js';
import { waiterKey } from './queue.js';
import { callsInWords, count, emit } from '../report.js';
import { requester } from './request.js';
import type { Core, EvictRequest, Lease } from '../state.js';

/**
 * "Free this model's card bytes": waits for its calls to end and for the bytes to be seen gone. A load is stopped, unless
 * older calls wait for it and it ends soon. Which models there are is known to those who serve them, not here: one that
 * was never loaded holds nothing.
 */
export function onEvictRequested(core: Core, event: Extract<CoreEvent, { type: 'evict_requested' }>): void {
  const process = requester(core, event);
  if (process === null) return;
  const leases = leasesOf(core, event.model).filter((lease) => lease.charge.chargedBytes > 0 || event.target === 'none');
  if (leases.some((lease) => lease.pinned)) {
    emit(core, { type: 'fail', generation: event.generation, request: event.request, code: 'pinned', details: { model: event.model } });
    return;
  }
  if (leases.length === 0) {
    emit(core, { type: 'report_evicted', generation: event.generation, request: event.request, freedBytes: 0 });
    return;
  }
  const key = waiterKey(event.generation, event.request);
  const wish: EvictRequest = {
    key, generation: event.generation, request: event.request, model: event.model, target: event.target,
    arrivedAtUs: core.nowUs, deadlineMs: event.deadlineMs, pending: new Set(leases.map((lease) => lease.id)), freedBytes: 0,
  };
  core.evictRequests.set(key, wish);
  for (const lease of leases) {
    (lease.wishes ??= new Set()).add(key);
    mustCard(core, lease.device).wished.add(lease.id);
    core.touched.add(lease.id);
  }
  process.requests.add(key);
  core.timers.set('evict_deadline', key, inMs(core, event.deadlineMs));
  count(core, 'evictRequests');
}

/**
 * Sends what can be sent for the leases that this step touched and a wish waits
 * for: on cards where nothing else profiles free memory (B14). What
 * cannot be sent now is looked at again when its lease, the load token of its
 * card or the state of its process changes, or its pause is over.
 */
export function pursueWishes(core: Core): void {
  for (const id of core.touched) {
    const lease = core.leases.get(id);
    if (lease === undefined || lease.wishes === null) continue;
    for (const key of lease.wishes) {
      const wish = core.evictRequests.get(key);
      if (wish !== undefined) pursueWish(core, wish, lease);
      break;
    }
  }
}

function pursueWish(core: Core, wish: EvictRequest, lease: Lease): void {
  const loads = lease.state === 'loading';
  if (lease.job !== null || lease.release !== null || (!loads && lease.state !== 'resident' && lease.state !== 'parked')) return;
  if (!mayBePutAway(core, lease) || core.processes.get(lease.generation)?.endWhenIdle !== null) return;
  if (lease.avoidUntilUs > core.attendedUs) {
    core.timers.set('wish', lease.id, lease.avoidUntilUs);
    return;
  }
  startEviction(core, lease, {
    cause: 'request', when: 'drained', bytes: null, beneficiary: null,
    target: lease.state === 'parked' || (loads && lease.hostBytes === 0) ? 'none' : wish.target,
    waiterSinceAtUs: wish.arrivedAtUs, reason: 'asked for',
  });
}

/** Its deadline has passed: the requester is told; a command under way goes on. */
export function wishOverdue(core: Core, key: string): void {
  const wish = core.evictRequests.get(key);
  if (wish !== undefined) failWish(core, wish, 'deadline_passed', { what: `evicting ${wish.model}`, deadlineMs: String(wish.deadlineMs), reason: whoStays(core, wish) });
}

/** What keeps the model there: calls that still run, a load, or bytes that are not confirmed. */
function whoStays(core: Core, wish: EvictRequest): string {
  const leases = [...wish.pending].map((id) => mustLease(core, id));
  const inside = leases.reduce((sum, lease) => sum + lease.inFlight + lease.queued, 0);
  const where = [...new Set(leases.map(({ device }) => device))].sort().join(' and ');
  if (inside > 0) return `${callsInWords(inside)} still inside on ${where}; it goes when ${inside === 1 ? 'that has' : 'they have'} ended`;
  if (leases.some(({ state }) => state === 'loading')) return `it is being loaded on ${where}`;
  return `its bytes on ${where} are not confirmed free yet`;
}

/** Cancelled, or its requester is gone. */
export function dropWish(core: Core, key: string): boolean {
  const wish = core.evictRequests.get(key);
  if (wish === undefined) return false;
  endWish(core, wish);
  return true;
}

/** "Never, or no longer never, a victim": remembered for its next load where the model is not loaded yet. */
export function onPinRequested(core: Core, event: Extract<CoreEvent, { type: 'pin_requested' }>): void {
  if (requester(core, event) === null) return;
  if (!setPinned(core, event.model, event.pinned)) {
    const { pinnedModelsMax } = core.options.limits;
    emit(core, { type: 'fail', generation: event.generation, request: event.request, code: 'too_many_pins', details: { limit: String(pinnedModelsMax) } });
    return;
  }
  for (const lease of leasesOf(core, event.model)) {
    lease.pinned = event.pinned;
    reindex(core, lease);
  }
  emit(core, { type: 'acknowledge', generation: event.generation, request: event.request });
}

function leasesOf(core: Core, model: string): Lease[] {
  const found: Lease[] = [];
  for (const generation of core.models.get(model)?.hosts ?? []) {
    for (const id of core.processes.get(generation)?.models.get(model)?.leases ?? []) found.push(mustLease(core, id));
  }
  return found;
}
