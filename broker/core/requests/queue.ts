/**
 * Who goes first. Within a class the oldest; between classes the higher rank,
 * a request gaining one rank for each `ageingMs` it has waited; and before all
 * of that whoever is past the longest wait of its class goes before every
 * younger one. Each class is a sorted list, so the order is a merge of three.
 */
import { classes } from '../../../protocol/index.js';
import { must } from '../must.js';
import type { Card, Core, Waiter } from '../state.js';

export function waiterKey(generation: string, request: number): string {
  return `${generation} ${String(request)}`;
}

/** How many wait on a card. */
export function queueLength(card: Card): number {
  return card.queue.interactive.length + card.queue.normal.length + card.queue.background.length;
}

/** Puts a request into its class by age; a re-asked one gets its old place back. */
export function enqueue(core: Core, card: Card, waiter: Waiter): void {
  const list = card.queue[waiter.class];
  let place = list.length;
  while (place > 0 && isOlder(waiter, waiterAt(core, list, place - 1))) place--;
  list.splice(place, 0, waiter.key);
  card.queuedBy.set(waiter.generation, (card.queuedBy.get(waiter.generation) ?? 0) + 1);
}

export function dequeue(card: Card, waiter: Waiter): boolean {
  const list = card.queue[waiter.class];
  const place = list.indexOf(waiter.key);
  if (place < 0) return false;
  list.splice(place, 1);
  const left = (card.queuedBy.get(waiter.generation) ?? 0) - 1;
  if (left > 0) card.queuedBy.set(waiter.generation, left);
  else card.queuedBy.delete(waiter.generation);
  return true;
}

/** All waiters of a card, first to last, as of now; whoever ends while they are gone through is passed over. */
export function* inOrder(core: Core, card: Card): Generator<Waiter> {
  const lists = classes.map((name) => [...card.queue[name]]);
  const places = lists.map(() => 0);
  for (;;) {
    let best: Waiter | null = null;
    let from = -1;
    for (let index = 0; index < lists.length; index++) {
      const waiter = nextOf(core, lists[index] ?? [], places, index);
      if (waiter === null) continue;
      if (best === null || goesBefore(core, waiter, best)) {
        best = waiter;
        from = index;
      }
    }
    if (best === null) return;
    places[from] = (places[from] ?? 0) + 1;
    yield best;
  }
}

function nextOf(core: Core, list: readonly string[], places: number[], index: number): Waiter | null {
  for (let place = places[index] ?? 0; place < list.length; place++) {
    const waiter = core.waiters.get(list[place] ?? '');
    if (waiter === undefined) continue;
    places[index] = place;
    return waiter;
  }
  return null;
}

/** Whether `a` is served before `b`. */
export function goesBefore(core: Core, a: Waiter, b: Waiter): boolean {
  const older = isOlder(a, b);
  if (older && isOverdue(core, a)) return true;
  if (!older && isOverdue(core, b)) return false;
  const rankA = rankOf(core, a);
  const rankB = rankOf(core, b);
  return rankA === rankB ? older : rankA > rankB;
}

/** Class rank plus ageing. */
export function rankOf(core: Core, waiter: Waiter): number {
  const policy = core.options.classPolicies[waiter.class];
  return policy.rank + Math.floor((core.attendedUs - waiter.arrivedUs) / (policy.ageingMs * 1_000));
}

/** Place of a waiter in its card's order, from 0. */
export function positionOf(core: Core, card: Card, waiter: Waiter): number {
  let before = 0;
  for (const name of classes) {
    for (const key of card.queue[name]) {
      const other = core.waiters.get(key);
      if (other !== undefined && other !== waiter && goesBefore(core, other, waiter)) before++;
    }
  }
  return before;
}

/** It has waited for as long as its class may: it goes before every younger one. */
export function isOverdue(core: Core, waiter: Waiter): boolean {
  return core.attendedUs - waiter.arrivedUs >= core.options.classPolicies[waiter.class].longestWaitMs * 1_000;
}

function isOlder(a: Waiter, b: Waiter): boolean {
  return a.arrivedUs < b.arrivedUs || (a.arrivedUs === b.arrivedUs && a.order < b.order);
}

function waiterAt(core: Core, list: readonly string[], place: number): Waiter {
  const waiter = core.waiters.get(list[place] ?? '');
  must(waiter !== undefined, 'a queued request is known');
  return waiter;
}
