/** Where a model should run: a worker that hosts it, one with room for it, or a new one on the card of least eviction cost. */
import { available, floorNeededBytes, leavingBytes } from './available.js';
import { backingOff } from './backoff.js';
import { inMs } from './clock.js';
import { planVictims } from './eviction-plan.js';
import { chargeFloor } from './floors.js';
import { considerIdle, isIdleWorker } from './idle.js';
import { setFlux } from './ledger.js';
import { promise } from './model.js';
import { capacityBytes } from './need.js';
import { newProcess } from './new-process.js';
import { withHeadroom } from './headroom.js';
import { deny } from './deny.js';
import { queueLength, dequeue } from './queue.js';
import { count, emit, explain, noteAnswered, publish } from './report.js';
import { endSurplusWorker, workersRefusal } from './shares.js';
import type { Card, Core, PlaceWaiter, Process } from './state.js';
import { terminate } from './terminate.js';
import { endWaiter, setHold } from './waiter.js';

export interface Placing {
  readonly generation: string;
  readonly model: string;
  readonly engine: string;
  readonly class: PlaceWaiter['class'];
  readonly requestedBytes: number;
  readonly device: string | null;
}

/** Gives a placement to a process that hosts the model, or is promised it, or has room for it; false when there is none. */
export function joinHost(core: Core, card: Card, waiter: PlaceWaiter): boolean {
  const process = hostOf(core, waiter, waiter.wantedDevice) ?? workerWithRoom(core, card, waiter.engine);
  if (process === null) return false;
  join(core, waiter, process);
  return true;
}

/** The process that hosts a model (or is promised it), ready ones before starting ones. */
export function hostOf(core: Core, placing: { readonly model: string; readonly engine: string }, device: string | null): Process | null {
  let starting: Process | null = null;
  for (const generation of core.models.get(placing.model)?.hosts ?? []) {
    const process = core.processes.get(generation);
    if (process === undefined || !serves(process, placing.engine) || (device !== null && !process.devices.includes(device))) continue;
    if (process.state === 'ready') return process;
    starting ??= process;
  }
  return starting;
}

/** Carries a placement out on its card, where its floor fits: 'done', or what it waits for. */
export function placeOn(core: Core, card: Card, waiter: PlaceWaiter): string {
  const awaits = core.workersAwaited.has(waiter.key);
  const free = core.options.limits.workersMax - core.workers.size;
  const ending = countEnding(core);
  // A place that comes free is for those who wait for one.
  if (free > (awaits ? 0 : Math.max(0, core.workersAwaited.size - ending))) {
    join(core, waiter, spawn(core, card, waiter));
    return 'done';
  }
  core.workersAwaited.delete(waiter.key);
  // One that ends already, and that nobody else waits for, serves as well.
  if (ending > core.workersAwaited.size || endIdleWorker(core, waiter) || endSurplusWorker(core, waiter)) {
    core.workersAwaited.set(waiter.key, waiter.generation);
    return 'workers_full';
  }
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

/** A ready or starting worker of that engine on that card that may host one model more. */
export function workerWithRoom(core: Core, card: Card, engine: string): Process | null {
  const modelsMax = core.options.engines.find((known) => known.name === engine)?.modelsPerWorker ?? 1;
  let starting: Process | null = null;
  for (const generation of card.seats.keys()) {
    const process = core.processes.get(generation);
    if (process === undefined || !serves(process, engine) || process.models.size >= modelsMax) continue;
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

function spawn(core: Core, card: Card, waiter: PlaceWaiter): Process {
  const generation = `${core.options.bootId}-w${String(core.nextWorker++)}`;
  const process = newProcess(core, { generation, role: 'worker', name: waiter.engine, engine: waiter.engine, devices: [card.device], state: 'spawning' });
  process.startedFor = waiter.generation;
  core.processes.set(generation, process);
  core.workers.add(generation);
  const seat = chargeFloor(core, card, generation, waiter.engine);
  setFlux(core, seat.floor, 'loading');
  card.spawning++;
  core.timers.set('spawn', generation, inMs(core, core.options.limits.spawnTimeoutMs));
  count(core, 'spawns');
  emit(core, { type: 'spawn', generation, engine: waiter.engine, devices: [card.device] });
  publish(core, 'spawned', { generation, engine: waiter.engine, device: card.device, model: waiter.model });
  return process;
}

function serves(process: Process, engine: string): boolean {
  return process.role === 'worker' && process.engine === engine && (process.state === 'ready' || process.state === 'spawning') && process.endWhenIdle === null;
}

interface Choice {
  readonly card: Card;
  readonly costMs: number;
  readonly floorBytes: number;
  readonly spareBytes: number;
}

/** The card of least eviction cost; null when the model could never fit on any. */
export function chooseCard(core: Core, placing: Placing, cards: readonly Card[]): Card | null {
  let best: Choice | null = null;
  for (const card of cards) {
    const choice = judgeCard(core, placing, card);
    if (choice === null) continue;
    if (best === null || choice.costMs < best.costMs || (choice.costMs === best.costMs && choice.spareBytes > best.spareBytes)) best = choice;
  }
  return best?.card ?? null;
}

/** Cost of a placement there: 0 when it fits, the victims' cost when it must evict, without bound when it must wait. */
function judgeCard(core: Core, placing: Placing, card: Card): Choice | null {
  const roomy = workerWithRoom(core, card, placing.engine);
  const floorBytes = roomy !== null ? 0 : floorNeededBytes(core, card, '', placing.engine);
  const needBytes = floorBytes + (card.kind === 'cpu' ? 0 : withHeadroom(placing.requestedBytes));
  if (needBytes > capacityBytes(card)) return null;
  const free = available(core, card).freeBytes ?? 0;
  const queuedBytes = queueLength(card) > 0 ? card.holdBytes : 0;
  const spareBytes = free - queuedBytes + leavingBytes(core, card).firmBytes - needBytes;
  const backsOff = backingOff(core, placing.model, card.device) !== null;
  if (backsOff || card.closedBy.size > 0) return { card, floorBytes, spareBytes, costMs: Number.MAX_VALUE };
  if (spareBytes >= 0) return { card, floorBytes, spareBytes, costMs: 0 };
  const seeker = { generation: placing.generation, model: placing.model, class: placing.class, placing: true };
  const plan = planVictims(core, card, seeker, -spareBytes, false);
  return { card, floorBytes, spareBytes, costMs: plan?.costMs ?? Number.MAX_SAFE_INTEGER };
}
