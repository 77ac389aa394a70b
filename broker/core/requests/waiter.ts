/** Requests while they wait: entered once, ended once, with their holds; the members of a gang end together. */
import { deny } from './deny.js';
import { endGang, gangBroken } from '../gangs/gang.js';
import { leaveHostWaiters } from '../memory/hold.js';
import { considerIdle } from '../processes/idle.js';
import { must, mustCard } from '../must.js';
import { shownNeed } from '../ledger/need.js';
import { dequeue, enqueue } from './queue.js';
import type { Card, Core, Gang, GangRefusal, Waiter } from '../state.js';

/** Enters a request: known, timed, and queued on its card. */
export function enterWaiter(core: Core, card: Card, waiter: Waiter): void {
  noteWaiter(core, waiter);
  queueWaiter(core, card, waiter);
}

/** Known and timed, and not yet queued: a member of a gang that is not complete. */
export function noteWaiter(core: Core, waiter: Waiter): void {
  must(!core.waiters.has(waiter.key), `request ${waiter.key} is open once`);
  core.waiters.set(waiter.key, waiter);
  core.timers.set('deadline', waiter.key, waiter.deadlineUs);
  const process = core.processes.get(waiter.generation);
  if (process === undefined) return;
  process.requests.add(waiter.key);
  considerIdle(core, process);
}

/** It waits until then, if that is later. */
export function extendDeadline(core: Core, waiter: Waiter, deadlineUs: number): void {
  if (deadlineUs <= waiter.deadlineUs) return;
  waiter.deadlineUs = deadlineUs;
  waiter.deadlineMs = Math.floor((deadlineUs - waiter.arrivedUs) / 1_000);
  core.timers.set('deadline', waiter.key, deadlineUs);
}

export function queueWaiter(core: Core, card: Card, waiter: Waiter): void {
  enqueue(core, card, waiter);
  core.fresh.add(waiter.key);
  core.dirty.add(card.device);
}

/** Ends a request, however it was answered; its hold is free again. The others of its gang, unless that has been formed, are refused with it. */
export function endWaiter(core: Core, waiter: Waiter): void {
  endOne(core, waiter);
  const gang = waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  if (gang !== undefined) undoGang(core, gang, false);
}

/** For a reason that none of its requests has by itself. */
export function refuseGang(core: Core, gang: Gang, refusal: GangRefusal): void {
  gang.refusal ??= refusal;
  undoGang(core, gang, true);
}

/** None of it is granted. Its members are told why the first one was not. */
function undoGang(core: Core, gang: Gang, placementToo: boolean): void {
  const why = gang.refusal ?? gangBroken(gang, 'a request of it was taken back');
  // The deadline of one is not that of those who come later.
  const late = why.code === 'deadline_passed' ? gangBroken(gang, why.text) : why;
  endGang(core, gang, late);
  for (const key of gang.members.values()) {
    const waiter = core.waiters.get(key);
    if (waiter === undefined) continue;
    // Those of a placement are one request, which may have its answer.
    if (waiter.kind === 'budget' || (placementToo && waiter.speaks)) {
      const refusal = waiter.deadlineUs > core.attendedUs ? late : why;
      deny(core, {
        generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs,
        ...refusal, card: mustCard(core, waiter.device), ...shownNeed(core, waiter),
      });
    }
    endOne(core, waiter);
  }
}

/** Of the members of a gang that one request asked for, one is answered for all. */
export function speaks(waiter: Waiter): boolean {
  return waiter.kind === 'budget' || waiter.speaks;
}

function endOne(core: Core, waiter: Waiter): void {
  const card = mustCard(core, waiter.device);
  setHold(core, card, waiter, 0);
  leaveHostWaiters(core, waiter);
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
