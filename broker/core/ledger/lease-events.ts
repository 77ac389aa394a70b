/** What a lease's owner says of it. Every report is a claim: it may raise a charge at once, and lowers one only where the ledger may believe it. */
import { durationText } from '../../../protocol/index.js';
import { layersOf } from './layers.js';
import type { LeasePart } from '../../../protocol/index.js';
import { strangersBytes } from './available.js';
import { failed, retryAfterOom, succeeded } from '../requests/backoff.js';
import { claimBytesMax } from './bounds.js';
import { inMs, msSince } from '../clock.js';
import { reportShare } from '../memory/share.js';
import { closeCommand, openCommand } from '../eviction/command.js';
import type { CoreEvent } from '../events.js';
import { companions } from '../gangs/gang.js';
import { dropJob, endProcess, strikesMax } from '../eviction/ladder.js';
import { setCharged, setResident } from './ledger.js';
import { notYours, ownerOf, wasLease } from './lease-id.js';
import { reindex, setState, setUse, watchLoad } from './lease-store.js';
import { noteProgress } from './load-progress.js';
import { modelOf } from '../processes/model.js';
import { mustCard, mustProcess } from '../must.js';
import { chargeFor, sumOf } from './need.js';
import { overLease } from '../cards/overshoot.js';
import { wantSample } from '../cards/probe.js';
import { abandonRelease, beginRelease, voidGrant } from './release.js';
import { count, emit, explain, publish } from '../report.js';
import type { Core, Lease, Release } from '../state.js';
import { isBytes } from './headroom.js';
import { hasCalls, terminate } from '../processes/terminate.js';
import { noteLoaded } from '../thrash/watch.js';

type Reported = Extract<CoreEvent, { type: 'residency_reported' }>;
type LeaseReleased = Extract<CoreEvent, { type: 'lease_released' }>;

/** The lease named by an event of its owner; null (counted, and answered where it can be) when it is not theirs. */
export function ownLease(core: Core, event: { readonly generation: string; readonly lease: string; readonly request?: number }): Lease | null {
  const process = core.processes.get(event.generation);
  const lease = core.leases.get(event.lease);
  if (process !== undefined && lease?.generation === event.generation) return lease;
  count(core, process === undefined ? 'staleEvents' : 'strayReports');
  const { generation } = event;
  if (process === undefined) {
    emit(core, { type: 'fail', generation, request: event.request ?? null, code: 'generation_stale', details: { generation, current: 'none' } });
  } else if (event.request !== undefined) {
    const refusal = notYours(core, event.lease, generation);
    if (refusal !== null) emit(core, { type: 'fail', generation, request: event.request, code: refusal.code, details: refusal.details });
  }
  return null;
}

/** The grant arrived: bytes are about to be taken. */
export function onLoadBegun(core: Core, event: Extract<CoreEvent, { type: 'load_begun' }>): void {
  const lease = ownLease(core, event);
  if (lease === null) {
    // Taken back and yet begun: find out what is there.
    if (core.processes.has(event.generation)) askModels(core, event.generation);
    return;
  }
  core.timers.drop('grant_confirm', lease.id);
  noteProgress(core, lease);
  if (lease.state === 'granted') setState(core, lease, 'loading');
  else if (lease.growing) watchLoad(core, lease);
  // Measured anew at the start of the load, so that a race lost to a stranger is known as one (B115).
  wantSample(core, mustCard(core, lease.device), core.nowUs);
}

/** The answer to "did this grant reach you?" (D5). */
export function onRecallAnswered(core: Core, event: Extract<CoreEvent, { type: 'recall_answered' }>): void {
  const command = core.commands.get(event.command);
  if (command?.generation !== event.generation || command.kind !== 'recall' || command.lease !== event.lease) {
    count(core, 'answersIgnored');
    return;
  }
  closeCommand(core, event.command);
  const lease = ownLease(core, event);
  if (lease === null) return;
  lease.recallCommand = null;
  core.timers.drop('grant_confirm', lease.id);
  // A holder that was thought lost says after all that it has never had the grant: nothing is there to be kept.
  const isKept = lease.state === 'quarantined' && !event.begun && lease.charge.residentBytes === 0;
  if (lease.state !== 'granted' && !isKept) return;
  if (event.begun) {
    setState(core, lease, 'loading');
    return;
  }
  // Its answer was lost: asked again under the same id, it is a new request.
  if (lease.grantRequest !== null) core.processes.get(lease.generation)?.answered.delete(lease.grantRequest);
  const others = companions(core, lease).filter((other) => other !== lease && other.state === 'granted' && other.recallCommand === null);
  voidGrant(core, lease, 'recalled: the grant had not arrived');
  // Of a gang that will not be loaded nothing is kept.
  for (const other of others) recall(core, other);
}

/** A grant was not confirmed in time: ask; only an answer or an exit closes it. */
export function recall(core: Core, lease: Lease): void {
  if (lease.growing) {
    // A growth without news: taken as settled, its bytes stay charged.
    lease.growing = false;
    reindex(core, lease);
    return;
  }
  if (lease.state !== 'granted') return;
  if (lease.recallCommand !== null) lease.strikes++;
  if (lease.strikes >= strikesMax) {
    endProcess(core, lease, 'command_failed', 'it does not answer whether a grant has reached it');
    return;
  }
  const command = openCommand(core, { generation: lease.generation, kind: 'recall', lease: lease.id });
  lease.recallCommand = command;
  core.timers.set('grant_confirm', lease.id, inMs(core, core.options.limits.grantConfirmMs));
  count(core, 'recalls');
  emit(core, { type: 'recall', generation: lease.generation, command, lease: lease.id });
}

/** A load has not ended in its time, though its process lives: the process is ended (a holder's lease quarantined), and its bytes come back. */
export function loadOverdue(core: Core, lease: Lease): void {
  if (lease.state !== 'loading') {
    if (!lease.growing) return;
    lease.growing = false;
    reindex(core, lease);
    return;
  }
  if (lease.job !== null) {
    // It is being stopped: the ladder of that has its own deadlines, and may spare the process.
    core.timers.set('load', lease.id, inMs(core, core.options.limits.moveTimeoutMs));
    return;
  }
  const why = `loading ${lease.model} has not ended within ${durationText(core.options.limits.loadTimeoutMs)}`;
  count(core, 'loadTimeouts');
  explain(core, { verdict: 'escalated', text: `${lease.model}: ${why}`, generation: lease.generation, model: lease.model, device: lease.device });
  if (mustProcess(core, lease.generation).role === 'holder') failed(core, lease.model, lease.device, 'model', why, msSince(core, lease.grantedUs));
  endProcess(core, lease, 'load_timeout', why);
}

/** What a model holds now. */
export function onResidencyReported(core: Core, event: Reported): void {
  const lease = ownLease(core, event);
  if (lease === null) {
    strangeReport(core, event);
    return;
  }
  answerReport(core, event);
  if (event.seq <= lease.residencySeq || !isBytes(event.residentBytes) || !isBytes(event.hostBytes)) {
    count(core, 'staleReports');
    return;
  }
  lease.residencySeq = event.seq;
  lease.residency = event.state;
  reportShare(core, lease, event.hostBytes, event.state);
  publish(core, 'residency_changed', { lease: lease.id, model: lease.model, state: event.state, residentBytes: event.residentBytes, hostBytes: event.hostBytes });
  applyResidency(core, lease, event);
}

/** One with a figure that cannot be is told so, though what it says of the state is taken in. */
function answerReport(core: Core, { generation, request, refused }: Reported): void {
  if (refused === undefined) emit(core, { type: 'acknowledge', generation, request });
  else emit(core, { type: 'fail', generation, request, code: 'bytes_invalid', details: { field: refused.field, value: String(refused.bytes), minimum: '0', maximum: String(refused.mostBytes) } });
}

function applyResidency(core: Core, lease: Lease, event: Reported): void {
  switch (event.state) {
    case 'loading':
    case 'resuming':
      if (lease.state === 'granted') core.timers.drop('grant_confirm', lease.id);
      if (lease.state === 'granted' || lease.state === 'parked') setState(core, lease, 'loading');
      if (event.residentBytes !== lease.charge.wantedResidentBytes) noteProgress(core, lease);
      if (lease.release === null) claimResident(core, lease, event.residentBytes);
      return;
    case 'resident':
      onResident(core, lease, event);
      return;
    case 'parking':
    case 'unloading':
      believeMore(core, lease, event.residentBytes);
      if (lease.job !== null && lease.job.phase !== 'cancelling') {
        lease.job.phase = 'moving';
        core.timers.set('job', lease.id, inMs(core, core.options.limits.moveTimeoutMs));
      }
      return;
    case 'parked':
      believeMore(core, lease, event.residentBytes);
      if (!parksMore(lease, event.residentBytes)) return;
      beginRelease(core, lease, { leftBytes: event.residentBytes, toChargedBytes: event.residentBytes, then: 'parked', rung: 'park', cause: lease.job?.cause ?? 'reported' });
      return;
    case 'absent':
      giveBack(core, lease);
  }
}

/** Loaded (or measured anew): the lease is trued up (D11), what was measured is charged at once (D12). */
function onResident(core: Core, lease: Lease, event: Reported): void {
  if (lease.release !== null && lease.release.then !== 'resident') {
    // Said to be gone, and now said to be there: the release is void, the bytes stay charged.
    lease.release = null;
    core.timers.drop('release', lease.id);
  }
  if (lease.release !== null && event.parts === null) {
    // A part was given back, and this is what it has now: never less than that is left charged.
    lease.release.leftBytes = Math.max(lease.release.leftBytes, event.residentBytes);
    lease.release.toChargedBytes = Math.max(lease.release.toChargedBytes, event.residentBytes);
    // It holds by now what it had before, or more: nothing is left to be seen gone.
    if (lease.release.toChargedBytes >= lease.release.fromChargedBytes) abandonRelease(core, lease);
  }
  const loaded = lease.state !== 'resident' || lease.growing;
  const fresh = lease.state === 'granted' || lease.state === 'loading';
  if (event.parts !== null && sumOf(event.parts) > 0) {
    abandonRelease(core, lease);
    const parts = trueUp(lease.parts, event.parts);
    // Together more than the card: what was declared once is not there any more, and what was measured counts.
    lease.parts = sumOf(parts) <= claimBytesMax(mustCard(core, lease.device)) ? parts : event.parts.filter((part) => part.bytes > 0);
  }
  lease.growing = false;
  core.timers.drop('grant_confirm', lease.id);
  if (fresh) loadSucceeded(core, lease, event.loadMs);
  else if (event.loadMs !== null) lease.loadedUs = core.attendedUs;
  setResident(core, lease.charge, event.residentBytes);
  if (lease.job?.phase === 'put_off') dropJob(core, lease);
  else if (lease.job?.phase === 'draining') core.timers.set('job', lease.id, inMs(core, core.options.limits.drainTimeoutMs));
  setState(core, lease, 'resident');
  chargeSteady(core, lease, loaded || event.parts !== null);
  reindex(core, lease);
  if (!fresh) return;
  noteLoaded(core, mustCard(core, lease.device), lease);
  const layers = layersOf(lease.parts);
  publish(core, 'loaded', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, residentBytes: event.residentBytes, chargedBytes: lease.charge.chargedBytes, loadMs: event.loadMs, layersOnCard: layers?.onCard ?? null, layers: layers?.total ?? null });
}

/** A part allocated up front becomes its measured size; every other one max(declared, measured); new ones join. */
export function trueUp(declared: readonly LeasePart[], measured: readonly LeasePart[]): LeasePart[] {
  const byName = new Map(declared.map((part) => [part.name, part]));
  for (const part of measured) {
    const known = byName.get(part.name);
    const bytes = known === undefined || part.upFront ? part.bytes : Math.max(known.bytes, part.bytes);
    byName.set(part.name, { ...part, bytes });
  }
  return [...byName.values()].filter((part) => part.bytes > 0);
}

/** Charges ceil(11/10 x the steady ceiling): the surplus of a load's peak goes back (B23), an overshoot is dealt with (B25). */
function chargeSteady(core: Core, lease: Lease, mayShrink: boolean): void {
  // Without news of its parts only what is resident counts: a partial eviction may have left it smaller than they are.
  const steadyBytes = mayShrink ? Math.max(sumOf(lease.parts), lease.charge.residentBytes) : lease.charge.residentBytes;
  if (!mayShrink && steadyBytes <= lease.charge.wantedBytes) return;
  const wantedBytes = chargeFor(steadyBytes, lease.exclusive);
  if (wantedBytes <= lease.charge.wantedBytes) {
    if (mayShrink) setCharged(core, lease.charge, wantedBytes);
    return;
  }
  overLease(core, lease, steadyBytes, wantedBytes);
}

function claimResident(core: Core, lease: Lease, bytes: number): void {
  setResident(core, lease.charge, bytes);
  if (bytes > lease.charge.wantedBytes && lease.state === 'loading') overLease(core, lease, bytes, chargeFor(bytes, lease.exclusive));
}

/** On its way out or parked, and it says that it holds more than is charged: charged at once, whatever was thought to be free (D12). */
function believeMore(core: Core, lease: Lease, bytes: number): void {
  const { release } = lease;
  if (release !== null) {
    release.leftBytes = Math.max(release.leftBytes, bytes);
    release.toChargedBytes = Math.max(release.toChargedBytes, bytes);
  }
  if (bytes <= lease.charge.wantedBytes) return;
  setResident(core, lease.charge, bytes);
  overLease(core, lease, bytes, bytes);
}

function loadSucceeded(core: Core, lease: Lease, loadMs: number | null): void {
  const model = modelOf(core, lease.model);
  const tookMs = loadMs ?? msSince(core, lease.grantedUs);
  // Granted again after it had been loaded: back from a parked copy.
  if (lease.loadedUs < lease.grantedUs) model.resumeMs = tookMs;
  else model.loadMs = tookMs;
  lease.loadedUs = core.attendedUs;
  lease.loadTookMs = msSince(core, lease.grantedUs);
  lease.lastUsedUs = core.attendedUs;
  lease.lastUsedAtUs = core.nowUs;
  succeeded(core, lease.model, lease.device);
  count(core, 'loads');
}

/** Calls inside and queued: an absolute count, never a difference (B80). */
export function onUseReported(core: Core, event: Extract<CoreEvent, { type: 'use_reported' }>): void {
  const lease = ownLease(core, event);
  if (lease === null) {
    strangeUse(core, event);
    return;
  }
  if (event.seq <= lease.useSeq) {
    count(core, 'staleReports');
    return;
  }
  lease.useSeq = event.seq;
  setUse(core, lease, Math.max(0, event.inFlight), Math.max(0, event.queued));
  const process = mustProcess(core, lease.generation);
  if (process.endWhenIdle !== null && !hasCalls(core, process)) terminate(core, process, process.endWhenIdle, 'its last call has ended');
}

/** Used under a name of its own that was never granted here: whatever that is, it may be in the ledger under another. */
function strangeUse(core: Core, { generation, lease }: Extract<CoreEvent, { type: 'use_reported' }>): void {
  const process = core.processes.get(generation);
  if (process?.returning === false && ownerOf(core, lease) === generation && !wasLease(core, lease)) askModels(core, generation);
}

/** Done with a lease. What was never begun frees at once (D13); anything else waits to be seen. */
export function onLeaseReleased(core: Core, event: LeaseReleased): void {
  const lease = ownLease(core, event);
  if (lease === null) return;
  if (event.cause === 'load_failed') loadFailed(core, lease, event.failure?.code ?? 'load_failed', event.failure?.message ?? 'no reason given');
  giveBack(core, lease);
}

/** Whether a model that is said to be parked has given something back by that. */
function parksMore(lease: Lease, leftBytes: number): boolean {
  if (lease.state === 'granted') return false;
  if (lease.release !== null) return leavesMore(lease.release, 'parked', leftBytes);
  // Parked already, and charged for what it said in between: that is to be seen gone before it asks for room again.
  return lease.state !== 'parked' || (lease.job === null && leftBytes < lease.charge.wantedBytes);
}

/** What was said to be done before it was is said to be done now, and less is left than was said in between: that is to be seen anew. */
function leavesMore(release: Release, then: Release['then'], leftBytes: number): boolean {
  return release.then === then && release.leftBytes > leftBytes;
}

/** The owner says that nothing of this lease is left. */
export function giveBack(core: Core, lease: Lease): void {
  const never = lease.state === 'granted' && lease.charge.residentBytes === 0;
  if (never) voidGrant(core, lease, 'never begun');
  else if (lease.release === null || lease.release.then !== 'closed' || leavesMore(lease.release, 'closed', 0)) {
    beginRelease(core, lease, { leftBytes: 0, toChargedBytes: 0, then: 'closed', rung: 'unload', cause: lease.job?.cause ?? lease.release?.cause ?? 'reported' });
  }
}

function loadFailed(core: Core, lease: Lease, code: string, message: string): void {
  const card = mustCard(core, lease.device);
  const seat = card.seats.get(lease.generation);
  // Nothing else is granted to this process there until a sample has shown what the failure left (B44).
  if (seat !== undefined && lease.state !== 'granted') seat.remeasure.add(lease.id);
  const reason = `${code}: ${message}`;
  if (code === 'out_of_memory') {
    const raced = strangersBytes(card) > (lease.foreignAtGrantBytes ?? 0) + core.options.limits.measureToleranceBytes;
    if (raced) count(core, 'lostRaces');
    if (retryAfterOom(core, lease.model, lease.device, reason)) {
      const race = raced ? ': lost race to a foreign process' : '';
      explain(core, {
        verdict: 'expired', text: `${lease.model} ran out of memory inside its lease${race}; one retry after a new measurement`,
        generation: lease.generation, model: lease.model, device: lease.device,
      });
      return;
    }
  }
  failed(core, lease.model, lease.device, code === 'out_of_memory' ? 'anybody' : 'model', reason, msSince(core, lease.grantedUs));
}

/** A report about a lease that is no more, or never was; one about another's has been refused. */
function strangeReport(core: Core, event: Reported): void {
  const process = core.processes.get(event.generation);
  if (process === undefined || notYours(core, event.lease, event.generation) !== null) return;
  // All that one which is coming back holds is about to be told; what is gone needs no lease.
  if (process.returning || (wasLease(core, event.lease) && event.residentBytes === 0)) {
    emit(core, { type: 'acknowledge', generation: event.generation, request: event.request });
    return;
  }
  emit(core, { type: 'fail', generation: event.generation, request: event.request, code: 'lease_unknown', details: { lease: event.lease } });
  askModels(core, event.generation);
}

/** Asks a process for everything it holds; what it holds without a lease is then charged and put away. */
export function askModels(core: Core, generation: string): void {
  for (const open of core.processes.get(generation)?.commands ?? []) if (core.commands.get(open)?.kind === 'list') return;
  const command = openCommand(core, { generation, kind: 'list', lease: null });
  emit(core, { type: 'list_models', generation, command });
}
