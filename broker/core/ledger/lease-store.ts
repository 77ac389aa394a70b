/** Leases in the ledger: opened, indexed anew after each change, closed. One function changes a state's consequences. */
import type { HostNeed } from '../../../protocol/index.js';
import { strangersBytes } from './available.js';
import { inMs } from '../clock.js';
import { forgetCommands } from '../eviction/command.js';
import { settleEvictRequests } from '../eviction/progress.js';
import { companions, strandRest } from '../gangs/gang.js';
import { closeShare, newShare, rehost } from '../memory/share.js';
import { detachLease, modelOf } from '../processes/model.js';
import { must, mustCard } from '../must.js';
import { nextLeaseId } from './lease-id.js';
import { dropCharge, newCharge, seatOf, setFlux } from './ledger.js';
import { considerIdle } from '../processes/idle.js';
import { countUse } from '../eviction/use-forecast.js';
import type { BudgetWaiter, Card, Core, Lease, LeaseState } from '../state.js';

const leaseTimers = ['grant_confirm', 'load', 'job', 'release', 'ttl', 'wish', 'trim'] as const;

export function openLease(core: Core, card: Card, waiter: BudgetWaiter): Lease {
  const { generation, model, gang, exclusive, policy, parkable, profiles, host, request } = waiter;
  const lease = newLease(core, card, { id: nextLeaseId(core, generation), generation, model, gang, parts: waiter.parts.filter((part) => part.bytes > 0), class: waiter.class, policy, exclusive, parkable, profiles, host, request });
  enterLease(core, card, lease);
  return lease;
}

type Named = Pick<Lease, 'id' | 'generation' | 'model' | 'gang' | 'parts' | 'class' | 'policy' | 'exclusive' | 'parkable' | 'profiles'> & {
  /** The request that it is granted to; null: none of this broker's. */
  readonly request: number | null;
  /** What it takes of the machine's memory; null: nothing is said of that. */
  readonly host: HostNeed | null;
};

/** A lease as it begins: granted, nothing charged, nothing there, in no index. Written out, not spread: this runs once a grant. */
export function newLease(core: Core, card: Card, named: Named): Lease {
  return {
    id: named.id, generation: named.generation, model: named.model, device: card.device, gang: named.gang, order: core.nextOrder++,
    charge: newCharge('lease', named.id, card.device, named.generation),
    state: 'granted', residency: 'absent', parts: named.parts, growing: false, exclusive: named.exclusive, hostBytes: 0, host: newShare(core, named.id, named.generation, named.host),
    class: named.class, policy: named.policy,
    pinned: core.models.get(named.model)?.pinned ?? named.policy.pinned,
    parkable: named.parkable, profiles: named.profiles,
    residencySeq: -1, useSeq: -1, inFlight: 0, queued: 0, busyUntilUs: 0, avoidUntilUs: 0,
    grantedUs: core.attendedUs, progressUs: core.attendedUs, loadedUs: core.attendedUs, loadTookMs: 0, lastUsedUs: core.attendedUs, lastUsedAtUs: core.nowUs,
    strikes: 0, failedMoves: 0, disowned: false, partialFailed: false, foreignAtGrantBytes: strangersBytes(card), grantRequest: named.request, idleBytes: 0, unsettled: false, misplacedOn: null, over: false,
    recallCommand: null, commands: [], wishes: null, job: null, release: null,
  };
}

/** Puts a new lease into every index. */
export function enterLease(core: Core, card: Card, lease: Lease): void {
  core.leases.set(lease.id, lease);
  card.leases.add(lease.id);
  const seat = seatOf(core, card, lease.generation);
  seat.leases.add(lease.id);
  seat.hadLease = true;
  core.processes.get(lease.generation)?.leases.add(lease.id);
  core.touched.add(lease.id);
}

/** Moves a lease to a state and draws every consequence for the indexes. */
export function setState(core: Core, lease: Lease, state: LeaseState): void {
  lease.state = state;
  if (state !== 'loading') core.timers.drop('load', lease.id);
  else if (!core.timers.has('load', lease.id)) watchLoad(core, lease);
  reindex(core, lease);
}

/** A load holds its card's bytes, and perhaps the load token, for so long and no longer: signs of life of its process do not extend it. */
export function watchLoad(core: Core, lease: Lease): void {
  core.timers.set('load', lease.id, inMs(core, core.options.limits.loadTimeoutMs));
}

/** Brings a lease's card indexes into line with its state; call after any change of state, use, pin, job or release. */
export function reindex(core: Core, lease: Lease): void {
  const card = mustCard(core, lease.device);
  const loads = isLoading(lease);
  index(card.loading, lease.id, loads);
  setFlux(core, lease.charge, loads ? 'loading' : lease.release !== null ? 'releasing' : null);
  index(card.jobs, lease.id, lease.job !== null);
  index(card.releasing, lease.id, lease.release !== null);
  index(card.quarantined, lease.id, lease.state === 'quarantined');
  const unsettled = loads || lease.job !== null || lease.release !== null;
  const seat = card.seats.get(lease.generation);
  if (seat !== undefined && unsettled !== lease.unsettled) seat.unsettled += unsettled ? 1 : -1;
  lease.unsettled = unsettled;
  if (!loads && card.loadToken === lease.id) {
    card.loadToken = null;
    card.planEpoch++;
    // What was to be evicted waited for it (B14).
    for (const id of card.wished) core.touched.add(id);
  }
  const idleBytes = isIdle(lease) && !lease.pinned ? lease.charge.chargedBytes : 0;
  if (idleBytes > lease.idleBytes) card.planEpoch++;
  card.idleBytes += idleBytes - lease.idleBytes;
  lease.idleBytes = idleBytes;
  rehost(core, lease);
  considerTtl(core, lease);
  core.dirty.add(card.device);
  core.touched.add(lease.id);
}

function index(among: Set<string>, id: string, belongs: boolean): void {
  if (belongs) among.add(id);
  else if (among.size > 0) among.delete(id);
}

/** Idle time-to-live: counted from the end of the last use while the lease is idle. */
function considerTtl(core: Core, lease: Lease): void {
  const { ttlMs } = lease.policy;
  if (ttlMs === null) return;
  if (lease.pinned || !isIdle(lease)) core.timers.drop('ttl', lease.id);
  else if (!core.timers.has('ttl', lease.id)) core.timers.set('ttl', lease.id, lease.lastUsedUs + ttlMs * 1_000);
}

/** Granted or being loaded, resumed or enlarged: its process may be taking bytes at this moment. */
export function isLoading(lease: Lease): boolean {
  return lease.release === null && (lease.state === 'granted' || lease.state === 'loading' || lease.growing);
}

/** Resident, settled, without calls and without a command: what a victim must be. */
export function isIdle(lease: Lease): boolean {
  return lease.state === 'resident' && !lease.growing && lease.inFlight === 0 && lease.queued === 0 && lease.job === null && lease.release === null;
}

/** Ends a lease whose bytes are gone (or never came). Whatever names it by its id is settled here, whoever ends it and why. */
export function closeLease(core: Core, lease: Lease): void {
  const card = mustCard(core, lease.device);
  settleEvictRequests(core, lease, lease.charge.residentBytes);
  strandRest(core, lease);
  lease.job = null;
  lease.release = null;
  lease.growing = false;
  setState(core, lease, 'releasing');
  card.idleBytes -= lease.idleBytes;
  lease.idleBytes = 0;
  dropCharge(core, lease.charge);
  closeShare(core, lease);
  forgetCommands(core, lease);
  core.leases.delete(lease.id);
  core.over.delete(lease.id);
  core.touched.delete(lease.id);
  card.leases.delete(lease.id);
  card.wished.delete(lease.id);
  const seat = card.seats.get(lease.generation);
  seat?.leases.delete(lease.id);
  seat?.remeasure.delete(lease.id);
  core.timers.dropAll(lease.id, leaseTimers);
  const process = core.processes.get(lease.generation);
  if (process !== undefined) {
    process.leases.delete(lease.id);
    detachLease(core, process, lease);
    considerIdle(core, process);
  }
}

/** Calls on a lease changed; keeps what fairness and the TTL need. */
export function setUse(core: Core, lease: Lease, inFlight: number, queued: number): void {
  must(inFlight >= 0 && queued >= 0, 'calls are counted from 0');
  const was = lease.inFlight + lease.queued;
  const is = inFlight + queued;
  const model = modelOf(core, lease.model);
  // A model over several cards is used once, whichever of its leases says so.
  if (was === 0 && is > 0 && companions(core, lease)[0] === lease) countUse(core.pace, model.gaps, model.lastUsedUs === null ? null : core.attendedUs - model.lastUsedUs, core.attendedUs);
  if (was > 0 || is > 0) {
    model.lastUsedUs = core.attendedUs;
    lease.lastUsedUs = core.attendedUs;
    lease.lastUsedAtUs = core.nowUs;
  }
  lease.inFlight = inFlight;
  lease.queued = queued;
  if (is === 0) lease.busyUntilUs = 0;
  reindex(core, lease);
}
