/** Requests while they wait: entered once, ended once, with their holds. */
import { considerIdle } from './idle.js';
import { must, mustCard } from './must.js';
import { dequeue, enqueue } from './queue.js';
import type { Card, Core, Waiter } from './state.js';

/** Enters a request: known, timed, and queued on its card. */
export function enterWaiter(core: Core, card: Card, waiter: Waiter): void {
  must(!core.waiters.has(waiter.key), `request ${waiter.key} is open once`);
  core.waiters.set(waiter.key, waiter);
  enqueue(core, card, waiter);
  core.timers.set('deadline', waiter.key, waiter.deadlineUs);
  const process = core.processes.get(waiter.generation);
  if (process !== undefined) {
    process.requests.add(waiter.key);
    considerIdle(core, process);
  }
  core.fresh.add(waiter.key);
  core.dirty.add(card.device);
}

/** Ends a request, however it was answered; its hold is free again. */
export function endWaiter(core: Core, waiter: Waiter): void {
  const card = mustCard(core, waiter.device);
  setHold(core, card, waiter, 0);
  dequeue(card, waiter);
  core.waiters.delete(waiter.key);
  core.fresh.delete(waiter.key);
  core.workersAwaited.delete(waiter.key);
  core.timers.drop('deadline', waiter.key);
  if (waiter.kind === 'place' && waiter.joined !== null) core.processes.get(waiter.joined)?.joined.delete(waiter.key);
  const process = core.processes.get(waiter.generation);
  if (process !== undefined) {
    process.requests.delete(waiter.key);
    considerIdle(core, process);
  }
  card.planEpoch++;
  core.dirty.add(card.device);
}

/** Sets the bytes kept for a waiter. */
export function setHold(core: Core, card: Card, waiter: Waiter, bytes: number): void {
  must(bytes >= 0 && bytes <= Math.max(waiter.needBytes, waiter.holdBytes), 'a hold is at most what its request needs');
  card.holdBytes += bytes - waiter.holdBytes;
  waiter.holdBytes = bytes;
  core.dirty.add(card.device);
}
