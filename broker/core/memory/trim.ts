/** `trim_host`: a copy, or what a process has too much of, asked back; with a deadline like every command. */
import { inMs } from '../clock.js';
import { closeCommand, openCommand } from '../eviction/command.js';
import type { CommandAnswer } from '../events.js';
import { reportShare } from './share.js';
import { endProcess, strikesMax } from '../eviction/ladder.js';
import { giveBack } from '../ledger/lease-events.js';
import { mustProcess } from '../must.js';
import { count, emit, publish } from '../report.js';
import type { Core, HostShare, Lease, TrimCause } from '../state.js';

/** Asks for a copy back, or (`growth`) for whatever its process has too much of. */
export function startTrim(core: Core, lease: Lease, cause: TrimCause, bytes: number, reason: string): void {
  const { host } = lease;
  if (host === null) return;
  const command = openCommand(core, { generation: lease.generation, kind: 'trim', lease: lease.id });
  host.trim = { command, bytes, cause, reason };
  count(core, 'trims');
  core.timers.set('trim', lease.id, inMs(core, core.options.limits.commandAnswerMs));
  // A copy is of use only whole.
  emit(core, { type: 'trim_host', generation: lease.generation, command, lease: lease.id, model: lease.model, bytes: cause === 'growth' ? bytes : null, expiresMs: core.options.limits.commandAnswerMs });
  publish(core, 'evicting', { lease: lease.id, model: lease.model, generation: lease.generation, device: host.charge.device, rung: 'trim', when: 'now', cause, reason });
  if (core.host !== null) core.dirty.add(core.host.device);
}

/** Not answered in time: the copy is passed over for a while; a worker that does so again and again is broken. */
export function trimOverdue(core: Core, lease: Lease): void {
  const { host } = lease;
  if (host === null || host.trim === null) return;
  passOver(core, host);
  host.strikes++;
  count(core, 'commandTimeouts');
  // A holder is never ended for it, and what it has on the card has done nothing wrong.
  if (host.strikes >= strikesMax && mustProcess(core, lease.generation).role === 'worker') {
    endProcess(core, lease, 'command_failed', 'it does not answer when it is asked for copies in memory');
  }
}

/** What came of it. As with every answer, what is free is what the next reading shows. */
export function onTrimAnswered(core: Core, lease: Lease, command: number, answer: CommandAnswer): void {
  const { host } = lease;
  const isCurrent = host?.trim?.command === command;
  // Of one that was given up: the deadline of the next goes on.
  if (isCurrent) core.timers.drop('trim', lease.id);
  if (answer.kind === 'done') {
    const freedBytes = Math.max(0, lease.hostBytes - answer.hostBytes);
    const { cause, reason } = host?.trim ?? { cause: null, reason: null };
    if (host !== null && isCurrent) {
      host.trim = null;
      host.strikes = 0;
    }
    reportShare(core, lease, answer.hostBytes, null);
    publish(core, 'evicted', { lease: lease.id, model: lease.model, generation: lease.generation, device: core.host?.device ?? lease.device, rung: 'trim', freedBytes, how: 'as its owner says', cause, reason });
    // It had been parked meanwhile, seen or not: then the copy was all of it.
    if (answer.target === 'none' && (lease.state === 'parked' || lease.release?.then === 'parked')) giveBack(core, lease);
    return;
  }
  if (host === null || !isCurrent) return;
  if (answer.kind === 'unsupported') host.fixed = true;
  passOver(core, host);
}

/** It can no longer be answered, and nobody is to blame for that. */
export function dropTrim(core: Core, lease: Lease): void {
  const { host } = lease;
  if (host === null || host.trim === null) return;
  core.timers.drop('trim', lease.id);
  closeCommand(core, host.trim.command);
  passOver(core, host);
}

/** Not this one for now: whoever waits plans with others. */
function passOver(core: Core, host: HostShare): void {
  host.trim = null;
  host.avoidUntilUs = inMs(core, core.options.limits.commandAnswerMs);
  if (core.host === null) return;
  core.host.planEpoch++;
  core.dirty.add(core.host.device);
}
