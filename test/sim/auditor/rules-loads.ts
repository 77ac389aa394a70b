/** A load that somebody wants stopped is told to stop, and a worker that goes on with it is ended. */
import type { Check } from './check.js';
import type { AuditedLease, AuditedProcess, AuditedRequest } from './records.js';

/** On each tick, for each wish to evict: no load of that model goes on untold. */
export function checkEvict(check: Check, key: string, request: AuditedRequest): void {
  const { book } = check;
  const { commandAnswerMs, tickIntervalMs, stallToleranceMs } = book.options.limits;
  const untold = [...book.leases.values()].find((lease) => lease.model === request.model && goesOnUntold(check, request, lease));
  if (untold === undefined) {
    request.ignoredSinceUs = null;
    return;
  }
  request.ignoredSinceUs ??= book.clock.leastUs;
  const ignoredUs = book.clock.leastUs - request.ignoredSinceUs;
  // A worker that has just failed to answer is left alone for a while.
  if (ignoredUs > (2 * commandAnswerMs + tickIntervalMs + stallToleranceMs) * 1_000) check.broken('evict-ignored', `evict ${key}: ${untold.lease} (${untold.model}) has been loading on for ${ignoredUs} us, and nobody has told it to stop`);
}

function goesOnUntold(check: Check, request: AuditedRequest, lease: AuditedLease): boolean {
  const { book } = check;
  // What was granted later, the wish did not ask for.
  if (lease.stage !== 'loading' || lease.isQuarantined || lease.grantedAtUs >= request.arrivedAtUs || !isReachable(book.process(lease.generation))) return false;
  for (const other of book.leases.values()) {
    const measures = other !== lease && other.device === lease.device && other.profilesFreeMemory && !other.isQuarantined && (other.stage === 'loading' || other.stage === 'granted');
    if (measures) return false;
  }
  const { moveTimeoutMs, commandAnswerMs } = book.options.limits;
  for (const command of book.commands.values()) {
    if (command.kind !== 'move' || command.lease !== lease.lease) continue;
    // Told for an earlier wish, it may have put it off until its load is done.
    const isRecent = book.clock.mostUs - command.attendedMaxUs < (moveTimeoutMs + commandAnswerMs) * 1_000;
    if (command.sentAtUs >= request.arrivedAtUs || isRecent || !(command.answered || command.cancelled)) return false;
  }
  return true;
}

function isReachable(process: AuditedProcess | null): boolean {
  return process?.connected === true && process.state === 'ready';
}

/** Told twice to stop its load and busy with it both times: only calls of its other models may keep its worker. */
export function checkRefusedStops(check: Check): void {
  const { book } = check;
  for (const lease of book.leases.values()) {
    if (lease.refusedStops < 2 || lease.stage !== 'loading' || lease.isQuarantined || !isReachable(book.process(lease.generation))) continue;
    const hasCalls = book.leasesOf(lease.generation).some((other) => other.inFlight > 0);
    if (!hasCalls) check.broken('load-goes-on', `${lease.generation} was busy ${lease.refusedStops} times when told to stop loading ${lease.model}, and is left to it`);
  }
}
