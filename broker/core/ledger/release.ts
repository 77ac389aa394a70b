/**
 * Giving back. A report (an acknowledgement, a released lease) frees nothing: it
 * starts a release, charged as before, until a measurement shows the bytes gone
 * (confirm.ts) or, on a card that nothing measures, at once.
 */
import { inMs } from '../clock.js';
import { isUnwatched } from './available.js';
import { setCharged, setMeasured, setSeen } from './ledger.js';
import { closeLease, reindex, setState } from './lease-store.js';
import { mustCard } from '../must.js';
import { wantSample } from '../cards/probe.js';
import { count, explain, inWords, publish } from '../report.js';
import { settleEvictRequests } from '../eviction/progress.js';
import type { Core, JobCause, Lease, Release } from '../state.js';
import { noteRelease } from '../thrash/watch.js';

export interface Released {
  readonly leftBytes: number;
  readonly toChargedBytes: number;
  readonly then: Release['then'];
  readonly rung: Release['rung'];
  readonly cause: JobCause | 'reported';
}

/** A lease's bytes are said to be given back, down to `leftBytes`. */
export function beginRelease(core: Core, lease: Lease, released: Released): void {
  const card = mustCard(core, lease.device);
  lease.release = {
    reportedAtUs: core.nowUs,
    reportedUs: core.attendedUs,
    leftBytes: released.leftBytes,
    fromChargedBytes: lease.charge.chargedBytes,
    fromResidentBytes: Math.max(lease.charge.residentBytes, released.leftBytes),
    toChargedBytes: Math.min(released.toChargedBytes, lease.charge.wantedBytes),
    then: released.then,
    rung: released.rung,
    cause: released.cause,
    reason: lease.job?.reason ?? null,
    measuredAtUs: null,
    toldSlow: false,
  };
  lease.job = null;
  lease.growing = false;
  core.timers.drop('job', lease.id);
  core.timers.drop('grant_confirm', lease.id);
  core.timers.drop('ttl', lease.id);
  card.lastMotionAtUs = core.nowUs;
  if (released.then === 'resident') reindex(core, lease);
  else setState(core, lease, 'releasing');
  if (isUnwatched(core, card) || lease.charge.chargedBytes <= lease.release.toChargedBytes) {
    finishRelease(core, lease, 'by the ledger alone');
    return;
  }
  if (card.quietWantedUs === null) card.quietWantedUs = core.attendedUs;
  core.timers.set('release', lease.id, inMs(core, core.options.limits.releaseConfirmMs));
  wantSample(core, card, core.nowUs);
}

/** The bytes of a release are gone: charge what is left, and close, park or keep the lease. */
export function finishRelease(core: Core, lease: Lease, how: string): void {
  const { release } = lease;
  if (release === null) return;
  const card = mustCard(core, lease.device);
  const freedBytes = Math.max(0, release.fromResidentBytes - release.leftBytes);
  const seat = card.seats.get(lease.generation);
  if (seat !== undefined && isUnwatched(core, card)) seat.loweredAtUs = core.nowUs;
  core.timers.drop('release', lease.id);
  lease.release = null;
  lease.strikes = 0;
  lease.failedMoves = 0;
  setCharged(core, lease.charge, release.toChargedBytes);
  setMeasured(core, lease.charge, Math.min(release.leftBytes, release.toChargedBytes));
  card.planEpoch++;
  seat?.remeasure.delete(lease.id);
  const { cause, reason } = release;
  if (freedBytes > 0) noteRelease(core, card, lease, release);
  if (cause === 'reported') {
    publish(core, 'released', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, freedBytes, how });
  } else {
    count(core, 'evictions');
    publish(core, 'evicted', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, rung: release.rung, freedBytes, how, cause, reason });
    explain(core, {
      verdict: 'evicted', text: `${lease.model}: ${inWords(freedBytes)} seen gone ${how}${reason === null ? '' : ` (${reason})`}`,
      generation: lease.generation, model: lease.model, device: lease.device,
    });
  }
  settleEvictRequests(core, lease, freedBytes);
  if (release.then === 'closed') closeLease(core, lease);
  else setState(core, lease, release.then);
}

/** A lease that was giving back a part is reported anew: its new parts say what is charged, and it has no more than was left. */
export function abandonRelease(core: Core, lease: Lease): void {
  const { release } = lease;
  if (release?.then !== 'resident') return;
  setSeen(core, lease.charge, Math.min(lease.charge.seenBytes, release.leftBytes));
  lease.release = null;
  core.timers.drop('release', lease.id);
}

/** A grant that never came to a load frees at once (D13): nothing was ever there. */
export function voidGrant(core: Core, lease: Lease, why: string): void {
  publish(core, 'released', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, freedBytes: 0, how: why });
  mustCard(core, lease.device).planEpoch++;
  closeLease(core, lease);
}
