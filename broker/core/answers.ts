/**
 * What came of commands. An answer is bound to (generation, command); one to
 * nothing is ignored and counted (B182). A late or expired one is taken in as a
 * change of state, which can only start a release: nothing is granted twice (B193).
 */
import { inMs } from './clock.js';
import { closeCommand } from './command.js';
import type { CoreEvent } from './events.js';
import { withHeadroom } from './headroom.js';
import { cancelDrain, dropJob, endProcess, nextRung, strike, strikesMax } from './ladder.js';
import { askModels } from './lease-events.js';
import { mustProcess } from './must.js';
import { setOver } from './overshoot.js';
import { beginRelease } from './release.js';
import { count, explain, inWords } from './report.js';
import type { Command, Core, Job, Lease } from './state.js';
import { failWishes } from './evict-progress.js';

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
    if (event.answer.kind === 'done') lease.hostBytes = event.answer.hostBytes;
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
      nextRung(core, lease, job, `unsupported: ${answer.message}`);
      return;
    case 'failed':
      onFailed(core, lease, job, answer.code, answer.message);
  }
}

/** The move is done, as the worker says; what is left decides how the release ends. */
function onDone(core: Core, lease: Lease, job: Job, answer: Done): void {
  checkFreed(core, lease, answer.freedBytes);
  lease.hostBytes = answer.hostBytes;
  setOver(core, lease, false);
  const inPart = job.bytes !== null && answer.residentBytes > 0;
  if (!inPart && answer.target !== 'host') {
    beginRelease(core, lease, { leftBytes: 0, toChargedBytes: 0, then: 'closed', rung: 'unload', cause: job.cause });
    return;
  }
  const left = Math.min(answer.residentBytes, lease.charge.residentBytes);
  if (!inPart) {
    beginRelease(core, lease, { leftBytes: left, toChargedBytes: left, then: 'parked', rung: 'park', cause: job.cause });
    return;
  }
  onPartDone(core, lease, job, answer, left);
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
  // Nobody is inside a load: to stop it takes no longer than a move.
  core.timers.set('job', lease.id, inMs(core, lease.state === 'loading' ? core.options.limits.moveTimeoutMs : core.options.limits.drainTimeoutMs));
  explain(core, { verdict: 'evicting', text: `${lease.model} has shut its door; ${String(inFlight)} call(s) still inside`, generation: lease.generation, model: lease.model, device: lease.device });
  core.dirty.add(lease.device);
}

/** In use after all: the worker is the truth. The next victim is tried, or its door is shut later. */
function onBusy(core: Core, lease: Lease, job: Job, inFlight: number): void {
  count(core, 'busyAnswers');
  const loads = lease.state === 'loading' && mustProcess(core, lease.generation).role === 'worker';
  const hangs = loads || (inFlight === 0 && lease.strikes > 0);
  lease.strikes = hangs ? lease.strikes + 1 : 0;
  lease.busyUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  // Not even its door could be shut: asked again at once, it would say so again at the speed of the wire.
  if (job.when === 'drained') lease.avoidUntilUs = lease.busyUntilUs;
  dropJob(core, lease);
  // A wish to evict waits for the calls to end; a plan or an idle model's time-to-live looks again.
  explain(core, { verdict: 'evicting', text: `${lease.model} is in use (${String(inFlight)} inside) and was not evicted (${job.cause})`, generation: lease.generation, model: lease.model, device: lease.device });
  // Nobody is inside, and an earlier command has not come to an end: it is that which keeps it.
  if (hangs && lease.strikes >= strikesMax) endProcess(core, lease, 'command_failed', loads ? 'it was told twice to stop its load and goes on with it' : 'it is busy without a call, and does not end what it was told before');
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
    case 'lease_unknown':
    case 'generation_stale':
      // It says that it has no such lease: what it does have decides.
      dropJob(core, lease);
      askModels(core, lease.generation);
      return;
    default:
      nextRung(core, lease, job, `${code}: ${message}`);
  }
}

/** The command had been given up. What it did is taken in as a fact about the model, and must be measured like any other. */
function onLateAnswer(core: Core, lease: Lease, command: Command, answer: Answer): void {
  count(core, 'answersLate');
  if (answer.kind !== 'done' || lease.release !== null || lease.state === 'granted' || lease.state === 'loading' || command.kind !== 'move') return;
  // Another command is under way: its answer will say how things stand.
  if (lease.job !== null) return;
  const left = Math.min(answer.residentBytes, lease.charge.residentBytes);
  checkFreed(core, lease, answer.freedBytes);
  lease.hostBytes = answer.hostBytes;
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
    case 'draining':
      if (lease.state === 'loading') {
        lease.strikes++;
        nextRung(core, lease, job, 'its load was not stopped in time');
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
