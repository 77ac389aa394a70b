/** A release that measurement contradicts for too long: the next rung, then the process, then quarantine. A release that nothing has measured is never blamed, nor one whose bytes may be those of a load. */
import { inMs } from '../clock.js';
import { isLedgerOnly } from './available.js';
import { dropReturning } from './confirm.js';
import { canPark } from '../eviction/plan.js';
import { endProcess, quarantine, startEviction } from '../eviction/ladder.js';
import { setCharged } from './ledger.js';
import { areStalled } from './load-progress.js';
import { setResidue } from '../cards/overshoot.js';
import { closeLease, setState } from './lease-store.js';
import { mustCard, mustProcess } from '../must.js';
import { settleEvictRequests } from '../eviction/progress.js';
import { wantSample } from '../cards/probe.js';
import { count, explain, inWords, publish } from '../report.js';
import { finishRelease } from './release.js';
import type { Card, Core, Lease, Release } from '../state.js';

/** releaseConfirmMs have passed and the bytes have not been seen gone. */
export function releaseOverdue(core: Core, lease: Lease): void {
  const { release } = lease;
  const card = mustCard(core, lease.device);
  if (card.ending.has(lease.generation)) return;
  if (release === null) {
    retryUnload(core, lease);
    return;
  }
  if (isLedgerOnly(core, card)) {
    finishRelease(core, lease, 'by the ledger alone');
    return;
  }
  const { sampleMaxAgeMs } = core.options.limits;
  if (release.measuredAtUs === null || core.nowUs - release.measuredAtUs > sampleMaxAgeMs * 1_000) {
    // Not measured lately: waited for, not blamed.
    core.timers.set('release', lease.id, inMs(core, sampleMaxAgeMs));
    wantSample(core, card, core.nowUs);
    return;
  }
  const leftBytes = lease.charge.chargedBytes - release.toChargedBytes;
  if (leftBytes <= 0) {
    finishRelease(core, lease, 'by the figure of its process');
    return;
  }
  if (card.confirms === 'total') {
    // The card as a whole blames nobody: what is still used may be anybody's. It counts as foreign from now on.
    publish(core, 'residue', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, bytes: leftBytes });
    count(core, 'releasesUnseen');
    finishRelease(core, lease, `unseen: ${inWords(leftBytes)} did not return and are taken for foreign use`);
    return;
  }
  if (mayBeLoads(core, card, lease, leftBytes)) {
    core.timers.set('release', lease.id, inMs(core, core.options.limits.releaseConfirmMs));
    wantSample(core, card, core.nowUs);
    return;
  }
  const { sessionOpen, returning } = mustProcess(core, lease.generation);
  if (!sessionOpen || returning) {
    // Nobody hears the next rung: told when it is back, unless its process is given up first.
    core.timers.set('release', lease.id, inMs(core, core.options.limits.releaseConfirmMs));
    return;
  }
  count(core, 'escalations');
  publish(core, 'residue', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, bytes: leftBytes });
  explain(core, { verdict: 'escalated', text: `${lease.model}: ${release.rung} was acknowledged but ${inWords(leftBytes)} are still there`, generation: lease.generation, model: lease.model, device: lease.device });
  climb(core, card, lease, release, leftBytes);
}

/** What loaded in the same process when the card was read may be all that is still there: charged, and nobody's fault, as long as a load there gets on. */
function mayBeLoads(core: Core, card: Card, { generation }: Lease, leftBytes: number): boolean {
  const coming = card.seats.get(generation)?.coming;
  return coming !== undefined && coming.chargedBytes >= leftBytes && !areStalled(core, card, generation);
}

/** Parked, it says, and yet charged by measurement: the unload is asked for until it is done or its process ends. */
function retryUnload(core: Core, lease: Lease): void {
  if (lease.state !== 'parked' || lease.charge.chargedBytes === 0) return;
  core.timers.set('release', lease.id, inMs(core, core.options.limits.releaseConfirmMs));
  const process = mustProcess(core, lease.generation);
  if (lease.job !== null || process.state !== 'ready' || !process.sessionOpen) return;
  startEviction(core, lease, { cause: 'residue', when: 'now', bytes: null, target: 'none', waiterSinceAtUs: null, beneficiary: null, reason: 'what was parked is still there' });
}

function climb(core: Core, card: Card, lease: Lease, release: Release, leftBytes: number): void {
  lease.release = null;
  const order = { cause: 'residue', when: lease.inFlight + lease.queued > 0 ? 'drained' : 'now', bytes: null, waiterSinceAtUs: null, beneficiary: null, reason: 'what was put away is still there' } as const;
  if (release.rung === 'partial') {
    setState(core, lease, 'resident');
    startEviction(core, lease, { ...order, target: canPark(core, lease) ? 'host' : 'none' });
  } else if (release.rung === 'park') {
    setState(core, lease, 'parked');
    core.timers.set('release', lease.id, inMs(core, core.options.limits.releaseConfirmMs));
    startEviction(core, lease, { ...order, target: 'none' });
  } else if (mustProcess(core, lease.generation).role === 'worker') {
    becomeResidue(core, card, lease, leftBytes);
  } else {
    quarantine(core, lease, 'its holder reports it released, and it is still there');
  }
}

/** The model is gone and its bytes are not: they are the process's residue until it ends. */
function becomeResidue(core: Core, card: Card, lease: Lease, leftBytes: number): void {
  const seat = card.seats.get(lease.generation);
  if (seat !== undefined) {
    setCharged(core, lease.charge, lease.charge.chargedBytes - leftBytes);
    setResidue(core, seat, seat.residue.chargedBytes + leftBytes);
  }
  endProcess(core, lease, 'residue', `${inWords(leftBytes)} of ${lease.model} are still there after its unload`);
  settleEvictRequests(core, lease, 0);
  closeLease(core, lease);
}

/** releaseConfirmMs after an exit: a dead process holds nothing any more; whatever a sample still shows is somebody else's. */
export function returningOverdue(core: Core, card: Card, generation: string): void {
  const returning = card.returning.get(generation);
  if (returning === undefined) return;
  if (returning.measured && returning.listedBytes === 0) dropReturning(core, card, returning, 'its process ended long ago');
  else if (isLedgerOnly(core, card)) dropReturning(core, card, returning, 'by the exit alone');
  else {
    core.timers.set('returning', `${card.device} ${generation}`, inMs(core, core.options.limits.releaseConfirmMs));
    wantSample(core, card, core.nowUs);
  }
}
