/** Ending processes. The core decides that and why; the supervisor's ladder does it, and only a confirmed exit frees. */
import { deny } from '../requests/deny.js';
import type { TerminateCause } from '../effects.js';
import { reindex } from '../ledger/lease-store.js';
import { mustLease } from '../must.js';
import { shownNeed } from '../ledger/need.js';
import { queueLength } from '../requests/queue.js';
import { count, emit, explain, publish } from '../report.js';
import type { Core, Process, Waiter } from '../state.js';
import { endWaiter } from '../requests/waiter.js';

/** Starts a worker's end; once. Holders are never ended by us (D7). */
export function terminate(core: Core, process: Process, cause: TerminateCause, why: string): void {
  if (process.role !== 'worker' || process.state === 'ending' || process.state === 'quarantined') return;
  leaveSpawning(core, process);
  process.state = 'ending';
  process.endCause = cause;
  for (const kind of ['idle', 'heartbeat', 'spawn', 'detached'] as const) core.timers.drop(kind, process.generation);
  for (const device of process.devices) core.cards.get(device)?.ending.add(process.generation);
  core.host?.ending.add(process.generation);
  // Commands to it are moot; its bytes come back by its exit.
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    core.cards.get(lease.device)?.ending.add(process.generation);
    lease.job = null;
    core.timers.drop('job', id);
    reindex(core, lease);
  }
  denyRequests(core, process, why);
  count(core, `terminations.${cause}`);
  emit(core, { type: 'terminate', generation: process.generation, cause, graceMs: core.options.limits.terminateGraceMs });
  if (cause === 'silent') publish(core, 'process_suspect', { generation: process.generation, why });
  explain(core, { verdict: cause === 'idle' || cause === 'evicted' || cause === 'unawaited' || cause === 'shutdown' ? 'evicting' : 'escalated', text: `${process.generation} is ended (${cause}): ${why}`, generation: process.generation });
}

/** What it still asks for is not granted to a process that is being ended. */
function denyRequests(core: Core, process: Process, why: string): void {
  for (const key of [...process.requests]) {
    const waiter = core.waiters.get(key);
    if (waiter === undefined) continue;
    deny(core, {
      generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
      code: 'shutting_down', details: { what: process.generation }, text: `${process.generation} is being ended: ${why}`,
      card: core.cards.get(waiter.device) ?? null, ...shownNeed(core, waiter),
    });
    endWaiter(core, waiter);
  }
}

/** Ends a worker unless calls are in flight in it: no call is ever cut (D19); then as soon as they have ended. */
export function terminateWhenIdle(core: Core, process: Process, cause: TerminateCause, why: string): void {
  if (hasCalls(core, process)) process.endWhenIdle = cause;
  else terminate(core, process, cause, why);
}

export function hasCalls(core: Core, process: Process): boolean {
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    // Calls for a model that is not there yet wait for its load; none runs.
    if (lease.inFlight > 0 && lease.state !== 'loading') return true;
  }
  return false;
}

/** Ends a request that its asker has given up, and with it the start of a worker that nobody else waits for. */
export function giveUpWaiter(core: Core, waiter: Waiter): void {
  const joined = waiter.kind === 'place' ? waiter.joined : null;
  endWaiter(core, waiter);
  const process = joined === null ? undefined : core.processes.get(joined);
  if (process?.state !== 'spawning' || process.joined.size > 0) return;
  terminate(core, process, 'unawaited', `whoever waited for it has given up, ${waiter.model} last`);
}

/** Its start is over, one way or the other: another may begin. */
export function leaveSpawning(core: Core, process: Process): void {
  if (process.state !== 'spawning') return;
  for (const card of core.cards.values()) if (queueLength(card) > 0) core.dirty.add(card.device);
  for (const device of process.devices) {
    const card = core.cards.get(device);
    if (card === undefined) continue;
    card.spawning--;
    card.lastMotionAtUs = core.nowUs;
  }
}
