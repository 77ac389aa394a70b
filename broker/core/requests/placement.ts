/** Where a model runs: in a worker that hosts it, one with room for it, or a new one on the cards that were chosen for it. */
import { inMs } from '../clock.js';
import { chargeFloor } from '../ledger/floors.js';
import { leaveHostWaiters } from '../memory/hold.js';
import { considerIdle, isIdleWorker } from '../processes/idle.js';
import { endGang } from '../gangs/gang.js';
import { setFlux } from '../ledger/ledger.js';
import { promise } from '../processes/model.js';
import { mustCard } from '../must.js';
import { newProcess } from '../processes/new-process.js';
import { deny } from './deny.js';
import { dequeue } from './queue.js';
import { count, emit, explain, noteAnswered, publish } from '../report.js';
import { endSurplusWorker, mayStartOne, workersRefusal } from './shares.js';
import type { Card, Core, PlaceWaiter, Process, WantedCards } from '../state.js';
import { terminate } from '../processes/terminate.js';
import { endWaiter, setHold } from './waiter.js';

/** Gives a placement to a process that hosts the model, or is promised it, or has room for it; false when there is none. */
export function joinHost(core: Core, waiter: PlaceWaiter): boolean {
  const process = hostOf(core, waiter, waiter.wanted) ?? workerWithRoom(core, waiter.devices, waiter.engine);
  if (process === null) return false;
  const speaker = endSilent(core, waiter);
  if (speaker !== null) join(core, speaker, process);
  return true;
}

/** Of a placement that waits on several cards, the one that is answered; the others end. */
export function endSilent(core: Core, waiter: PlaceWaiter): PlaceWaiter | null {
  const gang = waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  if (gang === undefined) return waiter;
  let speaker: PlaceWaiter | null = null;
  endGang(core, gang, null);
  for (const key of gang.members.values()) {
    const member = core.waiters.get(key);
    if (member?.kind !== 'place') continue;
    if (member.speaks) speaker = member;
    else endWaiter(core, member);
  }
  return speaker;
}

/** The process that hosts a model (or is promised it), ready ones before starting ones. */
export function hostOf(core: Core, placing: { readonly model: string; readonly engine: string }, wanted: WantedCards): Process | null {
  let starting: Process | null = null;
  for (const generation of core.models.get(placing.model)?.hosts ?? []) {
    const process = core.processes.get(generation);
    if (process === undefined || !serves(process, placing.engine) || !suits(core, process, wanted)) continue;
    if (process.state === 'ready') return process;
    starting ??= process;
  }
  return starting;
}

function suits(core: Core, process: Process, { count, allowed }: WantedCards): boolean {
  if (process.devices.some((device) => core.cards.get(device)?.lost !== null)) return false;
  return process.devices.length === count && (allowed === null || process.devices.every((device) => allowed.includes(device)));
}

/** Carries a placement out on its cards, where its floor fits: 'done', or what it waits for. */
export function placeOn(core: Core, waiter: PlaceWaiter): string {
  if (!mayStartOne(core, waiter.generation)) return 'starts_full';
  const awaits = core.workersAwaited.has(waiter.key);
  const free = core.options.limits.workersMax - core.workers.size;
  const ending = countEnding(core);
  // A place that comes free is for those who wait for one.
  if (free > (awaits ? 0 : Math.max(0, core.workersAwaited.size - ending))) {
    const speaker = endSilent(core, waiter);
    if (speaker !== null) join(core, speaker, spawn(core, waiter));
    return 'done';
  }
  core.workersAwaited.delete(waiter.key);
  // One that ends already, and that nobody else waits for, serves as well.
  if (ending > core.workersAwaited.size || endIdleWorker(core, waiter) || endSurplusWorker(core, waiter)) {
    core.workersAwaited.set(waiter.key, waiter.generation);
    return 'workers_full';
  }
  const card = mustCard(core, waiter.device);
  deny(core, { generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs, card, ...workersRefusal(core, waiter.generation) });
  endWaiter(core, waiter);
  return 'done';
}

function countEnding(core: Core): number {
  let count = 0;
  for (const generation of core.workers) if (core.processes.get(generation)?.state === 'ending') count++;
  return count;
}

function endIdleWorker(core: Core, waiter: PlaceWaiter): boolean {
  for (const generation of core.workers) {
    const process = core.processes.get(generation);
    if (process === undefined || !isIdleWorker(process)) continue;
    terminate(core, process, 'evicted', `a place among ${String(core.options.limits.workersMax)} workers for ${waiter.model}`);
    return true;
  }
  return false;
}

/** A ready or starting worker of that engine, on those cards and no others, that may host one model more. */
export function workerWithRoom(core: Core, devices: readonly string[], engine: string): Process | null {
  const modelsMax = core.options.engines.find((known) => known.name === engine)?.modelsPerWorker ?? 1;
  let starting: Process | null = null;
  for (const generation of core.cards.get(devices[0] ?? '')?.seats.keys() ?? []) {
    const process = core.processes.get(generation);
    if (process === undefined || !serves(process, engine) || process.models.size >= modelsMax || !suits(core, process, { count: devices.length, allowed: devices })) continue;
    if (process.state === 'ready') return process;
    starting ??= process;
  }
  return starting;
}

/** The placement is answered by this process: at once when it is ready, else when it is. */
export function join(core: Core, waiter: PlaceWaiter, process: Process): void {
  attachPromise(core, process, waiter.model);
  if (process.state === 'ready') {
    tellPlaced(core, waiter, process);
    return;
  }
  const card = core.cards.get(waiter.device);
  if (card !== undefined) {
    setHold(core, card, waiter, 0);
    leaveHostWaiters(core, waiter);
    dequeue(card, waiter);
  }
  core.workersAwaited.delete(waiter.key);
  waiter.joined = process.generation;
  process.joined.add(waiter.key);
  waiter.reason = `${process.generation} is starting`;
  if (waiter.told === 'starting') return;
  waiter.told = 'starting';
  core.fresh.delete(waiter.key);
  const id = explain(core, {
    verdict: 'waiting', text: `${waiter.model} waits for ${process.generation} to be ready`,
    generation: waiter.generation, request: waiter.request, model: waiter.model, device: waiter.device, class: waiter.class, arrivedUs: waiter.arrivedUs,
  });
  emit(core, { type: 'wait', generation: waiter.generation, request: waiter.request, position: 0, reason: waiter.reason, explain: id });
}

function attachPromise(core: Core, process: Process, model: string): void {
  const entry = process.models.get(model);
  if (entry !== undefined && entry.leases.length > 0) return;
  // As long as a ticket to it is good, somebody may come with it.
  promise(core, process, model, inMs(core, core.options.limits.ticketTtlMs));
  considerIdle(core, process);
}

/** Answers a placement. */
export function tellPlaced(core: Core, waiter: PlaceWaiter, process: Process): void {
  // Its ticket is good from now on.
  attachPromise(core, process, waiter.model);
  count(core, 'placements');
  const id = explain(core, {
    verdict: 'placed', text: `${waiter.model} is placed on ${process.generation} (${process.devices.join(', ')})`,
    generation: waiter.generation, request: waiter.request, model: waiter.model, device: waiter.device, class: waiter.class, arrivedUs: waiter.arrivedUs,
  });
  noteAnswered(core, waiter.generation, waiter.request);
  emit(core, { type: 'placed', generation: waiter.generation, request: waiter.request, worker: process.generation, devices: process.devices, explain: id });
  publish(core, 'placed', { generation: waiter.generation, request: waiter.request, model: waiter.model, worker: process.generation });
  endWaiter(core, waiter);
}

function spawn(core: Core, waiter: PlaceWaiter): Process {
  const { devices } = waiter;
  const generation = `${core.options.bootId}-w${String(core.nextWorker++)}`;
  const process = newProcess(core, { generation, role: 'worker', name: waiter.engine, engine: waiter.engine, devices, state: 'spawning' });
  process.startedFor = waiter.generation;
  core.processes.set(generation, process);
  core.workers.add(generation);
  for (const device of devices) startOn(core, mustCard(core, device), generation, waiter.engine);
  if (core.host !== null) setFlux(core, chargeFloor(core, core.host, generation, waiter.engine).floor, 'loading');
  core.timers.set('spawn', generation, inMs(core, core.options.limits.spawnTimeoutMs));
  count(core, 'spawns');
  emit(core, { type: 'spawn', generation, engine: waiter.engine, devices });
  publish(core, 'spawned', { generation, engine: waiter.engine, device: devices[0] ?? '', devices: devices.join(', '), model: waiter.model });
  return process;
}

function startOn(core: Core, card: Card, generation: string, engine: string): void {
  const seat = chargeFloor(core, card, generation, engine);
  setFlux(core, seat.floor, 'loading');
  card.spawning++;
}

function serves(process: Process, engine: string): boolean {
  return process.role === 'worker' && process.engine === engine && (process.state === 'ready' || process.state === 'spawning') && process.endWhenIdle === null;
}
