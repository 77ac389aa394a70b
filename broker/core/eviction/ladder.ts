/**
 * The eviction ladder of one victim: partial, park, unload, end the process,
 * quarantine; each rung with its own deadline. The broker asks, the worker
 * decides and answers; an answer frees nothing (ledger/release.ts).
 */
import { inMs, toClock } from '../clock.js';
import { openCommand } from './command.js';
import type { TerminateCause } from '../effects.js';
import { canPark, couldPark } from './plan.js';
import { failWishes } from './progress.js';
import { companions } from '../gangs/gang.js';
import { parkShortBytes } from '../memory/share.js';
import { reindex, setState } from '../ledger/lease-store.js';
import { setResident } from '../ledger/ledger.js';
import { sumOf } from '../ledger/need.js';
import { mustProcess } from '../must.js';
import { count, emit, explain, inWords, publish } from '../report.js';
import type { Core, Job, JobCause, Lease } from '../state.js';
import { terminateWhenIdle } from '../processes/terminate.js';

export interface EvictionOrder {
  readonly cause: JobCause;
  readonly when: 'now' | 'drained';
  /** Null: all of it. */
  readonly bytes: number | null;
  readonly target: 'host' | 'none';
  readonly waiterSinceAtUs: number | null;
  /** The key of the request it serves; null: none. */
  readonly beneficiary: string | null;
  readonly reason: string;
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** Commands of one lease that may go unanswered before its process is ended. */
export const strikesMax = 2;

const rungWords = { partial: 'freed in part', park: 'parked', unload: 'unloaded' } as const;

/** Sends the first fitting rung's command; to every lease of its gang, since a model leaves all of its cards or none. */
export function startEviction(core: Core, lease: Lease, order: EvictionOrder): void {
  for (const member of companions(core, lease)) if (member === lease || mayFollow(lease, member)) sendMove(core, member, order);
}

/** Not on its way already, and with something to put away. */
function mayFollow(lead: Lease, lease: Lease): boolean {
  if (lease.job !== null || lease.release !== null || (lease.growing && !lead.growing)) return false;
  // A load that is to be stopped is one on all of its cards.
  return lease.state === 'resident' || lease.state === 'parked' || (lease.state === 'loading' && lead.state === 'loading');
}

function sendMove(core: Core, lease: Lease, order: EvictionOrder): void {
  const parks = order.target === 'host' && canPark(core, lease);
  const rung = order.bytes !== null ? 'partial' : parks ? 'park' : 'unload';
  if (lease.host !== null) lease.host.parkUntilUs = null;
  if (rung === 'unload' && order.target === 'host' && couldPark(core, lease)) tellNotParked(core, lease);
  const id = openCommand(core, { generation: lease.generation, kind: 'move', lease: lease.id });
  const { limits } = core.options;
  lease.job = { command: id, cause: order.cause, rung, when: order.when, bytes: order.bytes, waiterSinceAtUs: order.waiterSinceAtUs, beneficiary: order.beneficiary, startedUs: core.attendedUs, phase: 'sent', reason: order.reason, toldSlow: false };
  core.timers.set('job', lease.id, inMs(core, limits.commandAnswerMs));
  reindex(core, lease);
  emit(core, {
    type: 'move', generation: lease.generation, command: id, lease: lease.id, model: lease.model,
    target: parks ? 'host' : 'none', device: null, bytes: order.bytes, when: order.when,
    // 0: nobody waits whom a call could be older than.
    waiterSinceUs: order.waiterSinceAtUs === null || order.waiterSinceAtUs === 0 ? order.waiterSinceAtUs : Math.max(1, toClock(core, order.waiterSinceAtUs)),
    expiresMs: order.when === 'drained' ? limits.drainTimeoutMs : limits.commandAnswerMs,
    reason: order.reason,
  });
  publish(core, 'evicting', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, rung, when: order.when, cause: order.cause, reason: order.reason });
  // A plan has its own record, under whom it was made for and under each victim.
  if (order.cause !== 'plan' && order.cause !== 'yield') explain(core, { verdict: 'evicting', text: `${lease.model} is to be ${rungWords[rung]}${notParkedText(core, lease, rung, order)}: ${order.reason}`, generation: lease.generation, model: lease.model, device: lease.device });
}

/** Whoever asked for it to be parked reads why it is not; want of room has a record of its own. */
function notParkedText(core: Core, lease: Lease, rung: Job['rung'], { cause, target }: EvictionOrder): string {
  return cause === 'request' && target === 'host' && rung === 'unload' && !couldPark(core, lease) ? ', as it cannot be parked' : '';
}

/** It is unloaded for want of room in the machine's memory (B50, B185). */
function tellNotParked(core: Core, lease: Lease): void {
  const shortBytes = parkShortBytes(core, lease);
  count(core, 'parksRefused');
  explain(core, {
    verdict: 'evicting', generation: lease.generation, model: lease.model, device: lease.device,
    text: `${lease.model} is unloaded instead of parked: ${shortBytes === null ? 'how much of the machine\'s memory is free is not known' : `${inWords(shortBytes)} are short in the machine's memory`}`,
  });
}

/** The command did not do it: the next rung of the same victim. */
export function nextRung(core: Core, lease: Lease, job: Job, why: string): void {
  count(core, 'escalations');
  explain(core, { verdict: 'escalated', text: `${lease.model}: ${job.rung} did not free it (${why})`, generation: lease.generation, model: lease.model, device: lease.device });
  const again: Writable<Omit<EvictionOrder, 'target'>> = { cause: job.cause, when: job.when, bytes: null, waiterSinceAtUs: job.waiterSinceAtUs, beneficiary: job.beneficiary, reason: why };
  dropJob(core, lease);
  // In use by now: a plan looks for another, and only a residue is worth a shut door.
  const busy = job.when === 'now' && lease.inFlight + lease.queued > 0;
  if (busy && job.cause !== 'residue') return;
  if (busy) again.when = 'drained';
  if (job.rung === 'partial' && canPark(core, lease)) startEviction(core, lease, { ...again, target: 'host' });
  else if (job.rung !== 'unload') startEviction(core, lease, { ...again, target: 'none' });
  else endProcess(core, lease, job.cause === 'residue' ? 'residue' : 'command_failed', why);
}

/** The last rungs: a worker ends, a holder's bytes are quarantined. */
export function endProcess(core: Core, lease: Lease, cause: TerminateCause, why: string): void {
  const process = mustProcess(core, lease.generation);
  publish(core, 'eviction_failed', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, why });
  if (process.role === 'worker') terminateWhenIdle(core, process, cause, why);
  else quarantine(core, lease, why);
}

/** Bytes that nobody gives back: charged until a measurement or an exit says otherwise, never granted. */
export function quarantine(core: Core, lease: Lease, why: string): void {
  if (lease.state === 'quarantined') return;
  // What it was loading is taken to be there: nobody will say what is, and a reading shows it beside all that is still to come.
  if (lease.state === 'loading' || lease.growing) setResident(core, lease.charge, Math.max(lease.charge.residentBytes, Math.min(sumOf(lease.parts), lease.charge.chargedBytes)));
  lease.job = null;
  lease.release = null;
  lease.growing = false;
  core.timers.drop('job', lease.id);
  core.timers.drop('release', lease.id);
  core.timers.drop('ttl', lease.id);
  setState(core, lease, 'quarantined');
  count(core, 'quarantines');
  publish(core, 'quarantined', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, bytes: lease.charge.chargedBytes, why });
  explain(core, { verdict: 'quarantined', text: `${inWords(lease.charge.chargedBytes)} of ${lease.model} on ${lease.device} are quarantined: ${why}`, generation: lease.generation, model: lease.model, device: lease.device });
  const process = core.processes.get(lease.generation);
  if (process?.role === 'holder' && process.sessionOpen) emit(core, { type: 'lease_quarantined', generation: lease.generation, lease: lease.id, bytes: lease.charge.chargedBytes, reason: why });
  failWishes(core, lease, 'quarantined', { bytes: String(lease.charge.chargedBytes), device: lease.device, reason: why });
}

/** The job is over without its doing; the victim may be chosen again. */
export function dropJob(core: Core, lease: Lease): void {
  lease.job = null;
  core.timers.drop('job', lease.id);
  reindex(core, lease);
}

/** A command went unanswered: it is taken back, the victim is passed over for a while, and the second time its process ends. */
export function strike(core: Core, lease: Lease, job: Job, why: string): void {
  lease.strikes++;
  count(core, 'commandTimeouts');
  emit(core, { type: 'cancel_command', generation: lease.generation, command: job.command });
  dropJob(core, lease);
  lease.avoidUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  explain(core, { verdict: 'escalated', text: `${lease.model}: ${why}; nothing was freed, it stays charged`, generation: lease.generation, model: lease.model, device: lease.device });
  if (lease.strikes >= strikesMax) {
    count(core, 'escalations');
    endProcess(core, lease, 'command_failed', why);
  }
}

/** Takes back a drain that nobody waits for any more (D21), or that took too long: of all leases of a gang. */
export function cancelDrain(core: Core, lease: Lease, job: Job): void {
  cancelOne(core, lease, job);
  for (const other of companions(core, lease)) {
    if (other !== lease && other.job?.when === 'drained' && other.job.phase !== 'moving' && other.job.phase !== 'cancelling') cancelOne(core, other, other.job);
  }
}

function cancelOne(core: Core, lease: Lease, job: Job): void {
  job.phase = 'cancelling';
  count(core, 'drainsCancelled');
  core.timers.set('job', lease.id, inMs(core, core.options.limits.commandAnswerMs));
  core.dirty.add(lease.device);
  emit(core, { type: 'cancel_command', generation: lease.generation, command: job.command });
}

/** A load that has not ended though its model is to leave is stopped, whoever waits for it: no call is older than the beginning of time. */
export function stopLoad(core: Core, lease: Lease, job: Job): void {
  explain(core, { verdict: 'escalated', text: `${lease.model} is still being loaded; its load is to be stopped`, generation: lease.generation, model: lease.model, device: lease.device });
  if (job.phase === 'draining') emit(core, { type: 'cancel_command', generation: lease.generation, command: job.command });
  dropJob(core, lease);
  startEviction(core, lease, { cause: job.cause, when: 'drained', bytes: null, target: 'none', waiterSinceAtUs: 0, beneficiary: null, reason: 'its load is to be stopped' });
}

export function isStop(job: Job): boolean {
  return job.waiterSinceAtUs === 0;
}
