/**
 * Processes that lost their broker and live on: those on record with a broker
 * that was not there when they were started, and those whose connection alone
 * was lost. Nothing that they hold is known, or believed, before they have said
 * all of it. A worker that does not come back is ended, a holder never (D7).
 */
import { durationText } from '../../../protocol/index.js';
import { inMs } from '../clock.js';
import { closeCard, explainBytes, leaveUnreturned, openCards } from './closed-cards.js';
import type { CoreEvent } from '../events.js';
import { considerIdle } from '../processes/idle.js';
import { dropTrim } from '../memory/trim.js';
import { askModels } from '../ledger/lease-events.js';
import { dropJob } from '../eviction/ladder.js';
import { closeCommand } from '../eviction/command.js';
import { reindex } from '../ledger/lease-store.js';
import { cardOf, mustLease } from '../must.js';
import { newProcess } from '../processes/new-process.js';
import { setOver } from '../cards/overshoot.js';
import { count, explain, publish } from '../report.js';
import type { Core, Process } from '../state.js';
import { terminate } from '../processes/terminate.js';
import { awaitCards, reportFloors } from './unfound-cards.js';

type Of<T extends CoreEvent['type']> = Extract<CoreEvent, { type: T }>;

/** It lives, says a record of an earlier broker. */
export function onProcessRecorded(core: Core, event: Of<'process_recorded'>): void {
  const { generation, role, name, engine } = event;
  if (core.processes.has(generation)) {
    count(core, 'strayEvents');
    return;
  }
  const { devices } = event;
  const process = newProcess(core, { generation, role, name, engine, devices, state: 'recorded' });
  process.returning = true;
  core.processes.set(generation, process);
  if (role === 'worker') core.workers.add(generation);
  for (const device of core.host === null ? devices : [...devices, core.host.device]) {
    const card = cardOf(core, device);
    const floorBytes = event.floors.find((floor) => floor.device === device)?.bytes ?? 0;
    if (card !== undefined) closeCard(core, card, process, floorBytes);
    else process.floorsUnfound.set(device, { bytes: floorBytes, isTold: false });
  }
  awaitCards(core, process);
  core.timers.set('detached', generation, inMs(core, core.options.limits.reattachGraceMs));
  count(core, 'recorded');
  publish(core, 'process_recorded', { generation, role, engine });
}

/** Its connection is lost, its process lives: what was asked of it, and by it, is void; nobody is blamed for an answer that cannot come. */
export function detach(core: Core, process: Process): void {
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    // It may go on making the copy.
    if (lease.host !== null && lease.job?.rung === 'park') lease.host.parks = true;
    if (lease.job !== null) dropJob(core, lease);
    dropTrim(core, lease);
    lease.recallCommand = null;
    lease.grantRequest = null;
    // An answer to what was asked before may be what was lost.
    lease.strikes = 0;
    if (lease.host !== null) lease.host.strikes = 0;
    core.timers.drop('grant_confirm', id);
  }
  for (const command of [...process.commands]) closeCommand(core, command);
}

/** Its connection is back. */
export function onProcessResumed(core: Core, event: Of<'process_resumed'>): void {
  const process = core.processes.get(event.generation);
  const mayReturn = process !== undefined && !process.sessionOpen && process.state !== 'ending' && (process.state !== 'quarantined' || process.role === 'holder');
  if (!mayReturn) {
    count(core, process === undefined ? 'staleEvents' : 'strayEvents');
    return;
  }
  core.timers.drop('detached', process.generation);
  process.lastHeartbeatUs = core.attendedUs;
  // Its start goes on: that is bounded by itself, and ends with `ready`.
  if (process.state === 'spawning') return;
  const { limits } = core.options;
  process.sessionOpen = true;
  process.returning = true;
  core.timers.set('heartbeat', process.generation, inMs(core, limits.heartbeatIntervalMs * limits.heartbeatMissesMax));
  // What has not been said by then is not going to be.
  core.timers.set('detached', process.generation, inMs(core, process.role === 'worker' ? limits.spawnTimeoutMs : limits.moveTimeoutMs));
  if (process.role === 'holder') askModels(core, process.generation);
}

/** A worker that came back has said what it is: now, what it holds. */
export function onReadyAgain(core: Core, process: Process, event: Of<'process_ready'>): void {
  process.capabilities = event.capabilities;
  reportFloors(core, process, event.floors);
  core.timers.set('detached', process.generation, inMs(core, core.options.limits.moveTimeoutMs));
  askModels(core, process.generation);
}

/** It is back, and what it holds was charged without its word till now. */
export function isStranger(process: Process): boolean {
  return process.returning && process.sessionOpen && (process.state === 'recorded' || process.state === 'quarantined');
}

/** Everything that it holds has been said: it is one of ours again. */
export function returned(core: Core, process: Process): void {
  if (isStranger(process)) explainBytes(core, process);
  process.returning = false;
  process.returnedAtUs = core.nowUs;
  process.state = 'ready';
  core.timers.drop('detached', process.generation);
  for (const id of process.leases) resumeWatch(core, id);
  const { generation, role, leases } = process;
  count(core, 'reattached');
  publish(core, 'process_reattached', { generation, role, leases: leases.size });
  explain(core, { verdict: 'reattached', text: `${generation} is back with ${leases.size === 1 ? '1 lease' : `${String(leases.size)} leases`}`, generation });
  openCards(core, process);
  considerIdle(core, process);
}

/** A grant that may have been lost with the connection is asked after (D5); what could not be done with its lease may be done now. */
function resumeWatch(core: Core, id: string): void {
  const lease = mustLease(core, id);
  if (lease.state === 'granted' || lease.growing) core.timers.set('grant_confirm', id, inMs(core, core.options.limits.grantConfirmMs));
  reindex(core, lease);
  if (lease.over) setOver(core, lease, true);
}

/** It did not come back, or came back and did not say what it holds. */
export function returnOverdue(core: Core, process: Process): void {
  const why = process.sessionOpen ? 'it is back and has not said what it holds' : `it has not come back within ${durationText(core.options.limits.reattachGraceMs)}`;
  count(core, 'orphans');
  if (process.role === 'worker') terminate(core, process, 'orphaned', why);
  else leaveUnreturned(core, process, why);
}
