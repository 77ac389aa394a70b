/** Processes: sessions, readiness, signs of life, and ends. Only a confirmed exit closes leases; its bytes return by measurement. */
import { durationText } from '../../../protocol/index.js';
import { failed } from '../requests/backoff.js';
import { inMs, msSince } from '../clock.js';
import { isUnwatched } from '../ledger/available.js';
import { leaveUnreturned, openCards } from '../restart/closed-cards.js';
import { dropReturning, returningKey } from '../ledger/confirm.js';
import { deny } from '../requests/deny.js';
import type { CoreEvent } from '../events.js';
import { dropFloorClaims } from '../ledger/floors.js';
import { forgetGangs } from '../gangs/gang.js';
import { considerIdle } from './idle.js';
import { leaveHost } from '../memory/share.js';
import { quarantine } from '../eviction/ladder.js';
import { dropCharge, newCharge, seatOf, setAttributed, setCharged, setFlux, setMeasured, setResident } from '../ledger/ledger.js';
import { closeLease } from '../ledger/lease-store.js';
import { must, mustCard, mustLease } from '../must.js';
import { newProcess } from './new-process.js';
import { tellPlaced } from '../requests/placement.js';
import { wantSample } from '../cards/probe.js';
import { detach, onReadyAgain, returnOverdue } from '../restart/reattach.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Process, Returning, Seat, Waiter } from '../state.js';
import { giveUpWaiter, leaveSpawning, terminate } from './terminate.js';
import { reportFloor, reportFloors } from '../restart/unfound-cards.js';
import { endWaiter } from '../requests/waiter.js';
import { dropWish } from '../requests/wish.js';

/** Models of an ended process that one event names. */
const modelsTold = 16;

type Of<T extends CoreEvent['type']> = Extract<CoreEvent, { type: T }>;

export function onSessionOpened(core: Core, event: Of<'session_opened'>): void {
  must(!core.processes.has(event.generation), `generation ${event.generation} is new`);
  const process = newProcess(core, { generation: event.generation, role: event.role, name: event.name, engine: null, devices: [], state: 'ready' });
  process.sessionOpen = true;
  core.processes.set(event.generation, process);
  if (event.role === 'holder') watchHeartbeat(core, event.generation, core.attendedUs);
}

/** End of file. A client is gone; a holder's or worker's end of file is not yet its exit (D7). */
export function onSessionClosed(core: Core, event: Of<'session_closed'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) return;
  // A connection to an earlier broker: what its process is given to come back goes on as it began.
  if (!process.sessionOpen && process.state !== 'spawning') {
    count(core, 'strayEvents');
    return;
  }
  process.sessionOpen = false;
  dropRequests(core, process);
  // Its next connection counts its requests anew.
  process.answered.clear();
  if (process.role === 'client') {
    core.processes.delete(event.generation);
    return;
  }
  // What one that has not said it yet holds is unknown.
  if (process.role === 'holder' && !process.returning && holdsNothing(core, process)) {
    // Whatever it takes from now on, it does not take as ours.
    removeProcess(core, process, false);
    return;
  }
  if (process.state === 'ending' || process.state === 'quarantined') return;
  core.timers.drop('heartbeat', event.generation);
  publish(core, 'process_suspect', { generation: event.generation, why: event.reason });
  detach(core, process);
  const { reattachGraceMs, releaseConfirmMs } = core.options.limits;
  if (process.role === 'worker' && reattachGraceMs === 0) terminate(core, process, 'session_lost', `its session ended: ${event.reason}`);
  // Cards are closed for one that has not said yet what it holds, for its grace and no longer.
  else suspectFor(core, process, process.role === 'worker' || process.state === 'recorded' ? reattachGraceMs : releaseConfirmMs);
}

/** Neither leases, in whatever state, nor bytes that were found with it. */
export function holdsNothing(core: Core, process: Process): boolean {
  if (process.leases.size > 0) return false;
  for (const card of core.cards.values()) if ((card.seats.get(process.generation)?.residue.chargedBytes ?? 0) > 0) return false;
  return true;
}

function suspectFor(core: Core, process: Process, ms: number): void {
  if (process.state === 'ready') process.state = 'suspect';
  core.timers.set('detached', process.generation, inMs(core, ms));
}

/** A process without a session has not ended in time: a worker is ended, a holder's bytes are quarantined, never its process killed. */
export function detachedOverdue(core: Core, process: Process): void {
  if (process.returning) {
    returnOverdue(core, process);
    return;
  }
  if (process.role === 'worker') {
    terminate(core, process, 'session_lost', 'its session did not come back');
    return;
  }
  process.state = 'quarantined';
  for (const id of [...process.leases]) quarantine(core, mustLease(core, id), 'its holder is gone from the wire and has not ended');
}

export function onProcessReady(core: Core, event: Of<'process_ready'>): void {
  const process = core.processes.get(event.generation);
  if (process?.returning === true && process.sessionOpen && process.role === 'worker' && process.state !== 'ending') {
    onReadyAgain(core, process, event);
    return;
  }
  if (process?.state !== 'spawning') {
    count(core, process === undefined ? 'staleEvents' : 'strayEvents');
    // Ended while it was starting: it is not wanted any more, and what it says that it takes is there until its exit.
    if (process?.state === 'ending') reportFloors(core, process, event.floors);
    return;
  }
  leaveSpawning(core, process);
  process.state = 'ready';
  process.capabilities = event.capabilities;
  process.sessionOpen = true;
  process.lastHeartbeatUs = core.attendedUs;
  core.timers.drop('spawn', process.generation);
  watchHeartbeat(core, process.generation, core.attendedUs);
  if (process.engine !== null) core.spawnMs.set(process.engine, msSince(core, process.startedUs));
  for (const device of process.devices) settleFloor(core, mustCard(core, device), process);
  if (core.host !== null) settleFloor(core, core.host, process);
  reportFloors(core, process, event.floors);
  publish(core, 'process_ready', { generation: process.generation, engine: process.engine });
  for (const key of [...process.joined]) {
    const waiter = core.waiters.get(key);
    if (waiter?.kind === 'place') tellPlaced(core, waiter, process);
  }
  considerIdle(core, process);
}

/** It runs: what was charged for it is taken to be there until it is measured. */
function settleFloor(core: Core, card: Card, process: Process): void {
  const seat = seatOf(core, card, process.generation);
  setResident(core, seat.floor, seat.floor.chargedBytes);
  setFlux(core, seat.floor, null);
  wantSample(core, card, core.nowUs);
}

export function onFloorMeasured(core: Core, event: Of<'floor_measured'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) count(core, 'strayEvents');
  else reportFloor(core, process, event.device, event.bytes);
}

export function onHeartbeat(core: Core, event: Of<'heartbeat'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'staleEvents');
    return;
  }
  // Looked at when the timer falls due, so that a sign of life costs nothing.
  process.lastHeartbeatUs = core.attendedUs;
  if (process.role !== 'holder' || process.state !== 'suspect' || !process.sessionOpen || process.returning) return;
  process.state = 'ready';
  for (const id of process.leases) core.touched.add(id);
}

function watchHeartbeat(core: Core, generation: string, lastUs: number): void {
  const { heartbeatIntervalMs, heartbeatMissesMax } = core.options.limits;
  core.timers.set('heartbeat', generation, lastUs + heartbeatIntervalMs * heartbeatMissesMax * 1_000);
}

/** So many intervals have passed since the last look: silent, or heard in between. */
export function heartbeatDue(core: Core, process: Process): void {
  const { heartbeatIntervalMs, heartbeatMissesMax } = core.options.limits;
  const silentUs = core.attendedUs - process.lastHeartbeatUs;
  if (silentUs < heartbeatIntervalMs * heartbeatMissesMax * 1_000) {
    watchHeartbeat(core, process.generation, process.lastHeartbeatUs);
    return;
  }
  const silentMs = Math.floor(silentUs / 1_000);
  if (process.role === 'worker') {
    terminate(core, process, 'silent', `silent for ${durationText(silentMs)}`);
    return;
  }
  if (process.state === 'ready') {
    process.state = 'suspect';
    publish(core, 'process_suspect', { generation: process.generation, why: `silent for ${durationText(silentMs)}` });
  }
  watchHeartbeat(core, process.generation, core.attendedUs);
}

/** Whether somebody beats on its session: when its pid is gone, a fork of it, which goes on with what it holds. */
export function isHeard(core: Core, generation: string): boolean {
  const process = core.processes.get(generation);
  const { heartbeatIntervalMs, heartbeatMissesMax } = core.options.limits;
  return process?.sessionOpen === true && core.attendedUs - process.lastHeartbeatUs < heartbeatIntervalMs * heartbeatMissesMax * 1_000;
}

/** It never ran: nothing was taken. */
export function onSpawnFailed(core: Core, event: Of<'spawn_failed'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'strayEvents');
    return;
  }
  failJoined(core, process, event.reason);
  removeProcess(core, process, false);
}

/** It is none to place anything in, and gets the grace of every end, no more. */
export function onProcessEnding(core: Core, event: Of<'process_ending'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'staleEvents');
    return;
  }
  if (process.state === 'spawning') failJoined(core, process, `it ends: ${event.reason}`);
  terminate(core, process, 'leaving', `it ends: ${event.reason}`);
}

/** Confirmed gone: leases close at once, bytes return. */
export function onProcessExited(core: Core, event: Of<'process_exited'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'strayEvents');
    return;
  }
  if (process.state === 'spawning' || process.joined.size > 0) failJoined(core, process, event.how);
  if (event.engineHung === true) engineHung(core, process);
  publish(core, 'process_ended', { generation: event.generation, how: event.how, cause: process.endCause, models: process.leases.size === 0 ? null : [...process.leases].map((id) => mustLease(core, id).model).slice(0, modelsTold).join(', ') });
  for (const id of process.leases) {
    const { model, device, charge } = mustLease(core, id);
    explain(core, { verdict: 'ended', text: `${event.generation} has ended (${event.how}), and ${inWords(charge.residentBytes)} of ${model} with it`, generation: event.generation, model, device });
  }
  removeProcess(core, process, true);
}

/** Ends of this kind are counted: nothing else shows that an engine breaks again and again, since each time a new process goes on. */
function engineHung(core: Core, process: Process): void {
  count(core, 'exits.engine_hung');
  explain(core, { verdict: 'escalated', text: `${process.generation} ended itself: its engine hung, and only the end of the process frees what it holds`, generation: process.generation });
}

/** The spawn did not become ready in time. */
export function spawnOverdue(core: Core, process: Process): void {
  failJoined(core, process, `not ready within ${durationText(core.options.limits.spawnTimeoutMs)}`);
  terminate(core, process, 'spawn_timeout', 'it did not become ready in time');
}

/** It has said or done what no sound process can: a worker is ended, a holder never (D7). */
export function endMisbehaving(core: Core, process: Process, why: string): void {
  if (process.role !== 'worker') return;
  if (process.state === 'spawning') failJoined(core, process, why);
  terminate(core, process, 'misbehaved', why);
}

export function onKillUnconfirmed(core: Core, event: Of<'kill_unconfirmed'>): void {
  const process = core.processes.get(event.generation);
  if (process === undefined) {
    count(core, 'strayEvents');
    return;
  }
  leaveSpawning(core, process);
  process.state = 'quarantined';
  for (const card of core.cards.values()) card.ending.delete(event.generation);
  core.host?.ending.delete(event.generation);
  for (const id of [...process.leases]) quarantine(core, mustLease(core, id), event.reason);
  leaveUnreturned(core, process, event.reason);
  failJoined(core, process, event.reason);
  explain(core, { verdict: 'quarantined', text: `${event.generation} could not be ended: ${event.reason}`, generation: event.generation });
}

function removeProcess(core: Core, process: Process, ran: boolean): void {
  leaveSpawning(core, process);
  dropRequests(core, process);
  for (const id of [...process.leases]) {
    const lease = mustLease(core, id);
    // A crash inside a load counts against the model: it may be what crashed it (B79).
    if (lease.state === 'loading') failed(core, lease.model, lease.device, 'anybody', 'its process ended during the load', msSince(core, lease.grantedUs));
  }
  for (const card of core.cards.values()) {
    const seat = card.seats.get(process.generation);
    if (seat !== undefined) leaveSeat(core, card, seat, ran);
    card.ending.delete(process.generation);
    card.planEpoch++;
    core.dirty.add(card.device);
  }
  openCards(core, process);
  leaveHost(core, process.generation);
  dropFloorClaims(core, process.generation);
  for (const command of process.commands) core.commands.delete(command);
  for (const [model] of process.models) {
    core.timers.drop('assignment', `${process.generation} ${model}`);
    core.models.get(model)?.hosts.delete(process.generation);
  }
  for (const kind of ['heartbeat', 'spawn', 'idle', 'detached'] as const) core.timers.drop(kind, process.generation);
  core.processes.delete(process.generation);
  core.workers.delete(process.generation);
}

/** Turns a seat into one `returning` charge, until a sample taken after the exit shows the bytes gone. */
function leaveSeat(core: Core, card: Card, seat: Seat, ran: boolean): void {
  const seenBytes = Math.max(seat.readingBytes ?? 0, seat.floor.seenBytes + seat.residue.seenBytes + [...seat.leases].reduce((sum, id) => sum + mustLease(core, id).charge.seenBytes, 0));
  // What the driver last showed of it counts too, though no lease explained it yet.
  const chargedBytes = Math.max(seat.chargedBytes, seat.readingBytes ?? 0);
  for (const id of [...seat.leases]) {
    const lease = mustLease(core, id);
    publish(core, 'released', { lease: id, model: lease.model, generation: lease.generation, device: card.device, freedBytes: lease.charge.residentBytes, how: 'its process ended' });
    closeLease(core, lease);
  }
  dropCharge(core, seat.floor);
  dropCharge(core, seat.residue);
  must(seat.chargedBytes === 0, 'a seat that is left charges nothing');
  card.pendingBytes -= seat.pendingBytes;
  card.seats.delete(seat.generation);
  if (!ran || chargedBytes === 0) return;
  const returning: Returning = {
    generation: seat.generation, charge: newCharge('returning', `returning ${seat.generation}`, card.device, seat.generation),
    exitedAtUs: core.nowUs, exitedUs: core.attendedUs, listedBytes: 0, measured: false,
  };
  card.returning.set(seat.generation, returning);
  setCharged(core, returning.charge, chargedBytes);
  setMeasured(core, returning.charge, Math.min(seenBytes, chargedBytes));
  setAttributed(card, returning.charge, chargedBytes);
  card.lastMotionAtUs = core.nowUs;
  if (isUnwatched(core, card)) {
    dropReturning(core, card, returning, 'by the exit alone');
    return;
  }
  if (card.quietWantedUs === null) card.quietWantedUs = core.attendedUs;
  core.timers.set('returning', returningKey(card, seat.generation), inMs(core, core.options.limits.releaseConfirmMs));
  wantSample(core, card, core.nowUs);
  explain(core, { verdict: 'ended', text: `${seat.generation} has ended; ${inWords(chargedBytes)} on ${card.device} are returning`, generation: seat.generation, device: card.device });
}

/** Its open requests are void (D3): nobody is there to hear an answer. */
function dropRequests(core: Core, process: Process): void {
  forgetGangs(core, process.generation);
  for (const key of [...process.requests]) {
    if (dropWish(core, key)) continue;
    const waiter = core.waiters.get(key);
    if (waiter !== undefined) giveUpWaiter(core, waiter);
  }
}

/** Placements that waited for a process which will not be ready: it failed where it would have run, not where they queued. */
export function failJoined(core: Core, process: Process, reason: string): void {
  if (process.joined.size === 0) return;
  const models = new Set<string>();
  for (const key of [...process.joined]) {
    const waiter = core.waiters.get(key);
    if (waiter === undefined) continue;
    if (!models.has(waiter.model)) for (const device of process.devices) failed(core, waiter.model, device, 'anybody', reason, msSince(core, process.startedUs));
    models.add(waiter.model);
    denyJoined(core, waiter, process, reason);
  }
}

function denyJoined(core: Core, waiter: Waiter, process: Process, reason: string): void {
  deny(core, {
    generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
    code: 'spawn_failed', card: core.cards.get(waiter.device) ?? null,
    details: { engine: process.engine ?? '', reason }, text: `${process.generation} did not come up: ${reason}`,
  });
  endWaiter(core, waiter);
}
