/**
 * What came of commands. An answer is bound to (generation, command); one to
 * nothing is ignored and counted (B182). A late or expired one is taken in as a
 * change of state, which can only start a release: nothing is granted twice (B193).
 */
import { inMs } from '../clock.js';
import { closeCommand } from './command.js';
import type { CoreEvent } from '../events.js';
import { withHeadroom } from '../ledger/headroom.js';
import { reportShare } from '../memory/share.js';
import { onTrimAnswered } from '../memory/trim.js';
import { cancelDrain, dropJob, endProcess, isStop, nextRung, stopLoad, strike, strikesMax } from './ladder.js';
import { askModels } from '../ledger/lease-events.js';
import { mustProcess } from '../must.js';
import { setOver } from '../cards/overshoot.js';
import { beginRelease } from '../ledger/release.js';
import { callsInWords, count, explain, inWords } from '../report.js';
import type { Command, Core, Job, Lease } from '../state.js';
import { failWishes } from './progress.js';

type Answered = Extract<CoreEvent, { type: 'command_answered' }>;
type Answer = Answered['answer'];
type Done = Extract<Answer, { kind: 'done' }>;

export function onCommandAnswered(core: Core, event: Answered): void {
  const command = core.commands.get(event.command);
  if (command?.generation !== event.generation) {
    count(core, 'answersIgnored');
    return;
  }
  const lease = command.lease === null ? undefined : core.leases.get(command.lease);
  if (event.answer.kind !== 'draining') closeCommand(core, command.id);
  if (lease === undefined) return;
  if (command.kind === 'trim') {
    onTrimAnswered(core, lease, command.id, event.answer);
    return;
  }
  if (command.kind !== 'move') return;
  const job = lease.job?.command === command.id ? lease.job : null;
  if (job === null) onLateAnswer(core, lease, command, event.answer);
  else onCurrentAnswer(core, lease, job, event.answer);
}

function onCurrentAnswer(core: Core, lease: Lease, job: Job, answer: Answer): void {
  switch (answer.kind) {
    case 'done':
      onDone(core, lease, job, answer);
      return;
    case 'draining':
      onDraining(core, lease, job, answer.inFlight);
      return;
    case 'busy':
      onBusy(core, lease, job, answer.inFlight);
      return;
    case 'unsupported':
      if (isLastWord(core, lease, job)) staysPut(core, lease, 'unsupported', { model: lease.model, target: job.rung, reason: answer.message }, answer.message);
      else nextRung(core, lease, job, `unsupported: ${answer.message}`);
      return;
    case 'failed':
      onFailed(core, lease, job, answer.code, answer.message);
  }
}

/** The move is done, as the worker says; what is left decides how the release ends. */
function onDone(core: Core, lease: Lease, job: Job, answer: Done): void {
  checkFreed(core, lease, answer.freedBytes);
  reportShare(core, lease, answer.hostBytes, null);
  setOver(core, lease, false);
  const inPart = job.bytes !== null && answer.residentBytes > 0;
  if (!inPart && answer.target !== 'host') {
    beginRelease(core, lease, { leftBytes: 0, toChargedBytes: 0, then: 'closed', rung: 'unload', cause: job.cause });
    return;
  }
  const left = Math.min(answer.residentBytes, lease.charge.residentBytes);
  if (!inPart && left > 0 && answer.hostBytes === 0) {
    onShortDone(core, lease, job, left);
    return;
  }
  if (!inPart) {
    beginRelease(core, lease, { leftBytes: left, toChargedBytes: left, then: 'parked', rung: 'park', cause: job.cause });
    return;
  }
  onPartDone(core, lease, job, answer, left);
}

/** All of it was asked for and a part is still there, with no copy elsewhere: that is not parked, only smaller; or nothing was done at all. */
function onShortDone(core: Core, lease: Lease, job: Job, left: number): void {
  if (left === lease.charge.residentBytes) onFailed(core, lease, job, 'move_failed', `all of its ${inWords(left)} are still there`);
  else beginRelease(core, lease, { leftBytes: left, toChargedBytes: withHeadroom(left), then: 'resident', rung: 'partial', cause: job.cause });
}

/** A part was asked for: a short return sends the next one for all of it (R44, R268). */
function onPartDone(core: Core, lease: Lease, job: Job, answer: Done, left: number): void {
  lease.partialFailed = answer.freedBytes < (job.bytes ?? 0);
  if (lease.partialFailed) {
    count(core, 'shortReturns');
    nextRung(core, lease, job, `${inWords(job.bytes ?? 0)} were asked for and ${inWords(answer.freedBytes)} freed`);
    return;
  }
  beginRelease(core, lease, { leftBytes: left, toChargedBytes: withHeadroom(left), then: 'resident', rung: 'partial', cause: job.cause });
}

/** More freed than was ever held is not believed; the ledger keeps what was measured. */
function checkFreed(core: Core, lease: Lease, freedBytes: number): void {
  const heldBytes = lease.charge.residentBytes;
  if (freedBytes <= heldBytes + core.options.limits.measureToleranceBytes) return;
  count(core, 'moreFreedThanHeld');
  explain(core, { verdict: 'overshoot', text: `${lease.model} reports ${inWords(freedBytes)} freed of ${inWords(heldBytes)} held; the report is not believed`, generation: lease.generation, model: lease.model, device: lease.device });
}

function onDraining(core: Core, lease: Lease, job: Job, inFlight: number): void {
  if (job.phase === 'cancelling') return;
  job.phase = 'draining';
  lease.strikes = 0;
  // Nobody is inside a load: it ends, or is stopped, in no longer than a move may take.
  core.timers.set('job', lease.id, inMs(core, lease.state === 'loading' ? core.options.limits.moveTimeoutMs : core.options.limits.drainTimeoutMs));
  // With nobody inside it is no wait, and the answer to the command tells all.
  if (inFlight > 0) explain(core, { verdict: 'evicting', text: `${lease.model} has shut its door; ${callsInWords(inFlight)} still inside`, generation: lease.generation, model: lease.model, device: lease.device });
  core.dirty.add(lease.device);
}

/** In use after all: the worker is the truth. The next victim is tried, or its door is shut later. */
function onBusy(core: Core, lease: Lease, job: Job, inFlight: number): void {
  count(core, 'busyAnswers');
  if (isWorkersLoad(core, lease)) {
    onBusyLoad(core, lease, job);
    return;
  }
  const hangs = inFlight === 0 && lease.strikes > 0;
  lease.strikes = hangs ? lease.strikes + 1 : 0;
  lease.busyUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  // Not even its door could be shut: asked again at once, it would say so again at the speed of the wire.
  if (job.when === 'drained') lease.avoidUntilUs = lease.busyUntilUs;
  dropJob(core, lease);
  // A wish to evict waits for the calls to end; a plan or an idle model's time-to-live looks again.
  explain(core, { verdict: 'evicting', text: `${lease.model} is in use${inFlight === 0 ? '' : ` (${String(inFlight)} inside)`} and was not evicted (${job.reason})`, generation: lease.generation, model: lease.model, device: lease.device });
  // Nobody is inside, and an earlier command has not come to an end: it is that which keeps it.
  if (hangs && lease.strikes >= strikesMax) endProcess(core, lease, 'command_failed', 'it is busy without a call, and does not end what it was told before');
}

/** Only a worker can be made to stop a load: a holder's bytes are its own for as long as it needs them. */
function isWorkersLoad(core: Core, lease: Lease): boolean {
  return lease.state === 'loading' && mustProcess(core, lease.generation).role === 'worker';
}

/** Nobody is inside, and it is busy all the same: left to it for as long as a move may take, once. */
function onBusyLoad(core: Core, lease: Lease, job: Job): void {
  if (isStop(job)) {
    nextRung(core, lease, job, 'it is busy with the load that it was told to stop');
    return;
  }
  job.phase = 'put_off';
  core.timers.set('job', lease.id, inMs(core, core.options.limits.moveTimeoutMs));
  explain(core, { verdict: 'evicting', text: `${lease.model} is being loaded and leaves when that is done, or is stopped`, generation: lease.generation, model: lease.model, device: lease.device });
}

function onFailed(core: Core, lease: Lease, job: Job, code: string, message: string): void {
  lease.avoidUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  switch (code) {
    case 'request_cancelled':
      dropJob(core, lease);
      lease.avoidUntilUs = 0;
      return;
    case 'command_expired':
      count(core, 'commandsExpired');
      dropJob(core, lease);
      return;
    case 'generation_stale':
      askWhatThereIs(core, lease);
      return;
    case 'lease_unknown':
      // Asked after the first time it named the lease as its own, or this one would be over: no answer of it leads anywhere.
      if (lease.disowned) moveFailed(core, lease, job, 'it announces this lease, and says again that it has no such lease');
      else askWhatThereIs(core, lease);
      lease.disowned = true;
      return;
    default:
      moveFailed(core, lease, job, `${code}: ${message}`, message);
  }
}

/** It says that it has no such lease: what it does have decides. */
function askWhatThereIs(core: Core, lease: Lease): void {
  dropJob(core, lease);
  askModels(core, lease.generation);
}

function moveFailed(core: Core, lease: Lease, job: Job, why: string, told = why): void {
  if (isLastWord(core, lease, job) && ++lease.failedMoves < failedMovesMax) staysPut(core, lease, 'move_failed', { model: lease.model, reason: told }, told);
  else nextRung(core, lease, job, why);
}

/** Moves that a holder may fail in a row: a program that stumbles once has not lost its bytes for ever. */
const failedMovesMax = 2;

/** Its holder was asked to give all of it back: no milder rung is left, and a holder is never ended by us (D7). */
function isLastWord(core: Core, lease: Lease, job: Job): boolean {
  return job.rung === 'unload' && job.cause !== 'residue' && core.processes.get(lease.generation)?.role === 'holder';
}

/** Its holder could not give it back, or would not: the lease stays as it was and is passed over for a while; who asked for it by name is told. */
function staysPut(core: Core, lease: Lease, code: 'unsupported' | 'move_failed', details: Readonly<Record<string, string>>, why: string): void {
  count(core, 'movesFailed');
  lease.avoidUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  dropJob(core, lease);
  explain(core, { verdict: 'escalated', text: `${lease.model} was not given back (${why}); nothing was freed, it stays charged`, generation: lease.generation, model: lease.model, device: lease.device });
  failWishes(core, lease, code, details);
}

/** The command had been given up. What it did is taken in as a fact about the model, and must be measured like any other. */
function onLateAnswer(core: Core, lease: Lease, command: Command, answer: Answer): void {
  count(core, 'answersLate');
  if (answer.kind !== 'done' || lease.release !== null || lease.state === 'granted' || command.kind !== 'move') return;
  // Told during this load, since what was told before it is forgotten: it has been stopped, or goes on.
  if (lease.state === 'loading' && (answer.target !== 'none' || answer.residentBytes > 0)) return;
  // Another command is under way: its answer will say how things stand.
  if (lease.job !== null) return;
  const left = Math.min(answer.residentBytes, lease.charge.residentBytes);
  checkFreed(core, lease, answer.freedBytes);
  reportShare(core, lease, answer.hostBytes, null);
  const then = left > 0 ? 'resident' : answer.target === 'host' ? 'parked' : 'closed';
  beginRelease(core, lease, { leftBytes: left, toChargedBytes: then === 'resident' ? withHeadroom(left) : left, then, rung: then === 'closed' ? 'unload' : then === 'parked' ? 'park' : 'partial', cause: 'plan' });
}

/** A rung's deadline has passed. */
export function jobOverdue(core: Core, lease: Lease): void {
  const { job } = lease;
  if (job === null) return;
  switch (job.phase) {
    case 'sent':
      strike(core, lease, job, 'the command was not answered');
      return;
    case 'put_off':
    case 'draining':
      if (isWorkersLoad(core, lease)) {
        loadGoesOn(core, lease, job);
        return;
      }
      failWishes(core, lease, 'busy', { model: lease.model, inFlight: String(lease.inFlight) });
      cancelDrain(core, lease, job);
      return;
    case 'moving':
      lease.strikes++;
      nextRung(core, lease, job, 'the move took too long');
      return;
    case 'cancelling':
      strike(core, lease, job, 'the command could not be taken back');
      return;
  }
}

/** It was to leave when it is loaded, or its load was to be stopped, and neither has come about. */
function loadGoesOn(core: Core, lease: Lease, job: Job): void {
  if (isStop(job)) {
    lease.strikes++;
    nextRung(core, lease, job, 'its load was not stopped in time');
  } else {
    stopLoad(core, lease, job);
  }
}
