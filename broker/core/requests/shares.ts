/**
 * Bounds that all peers share: places in a card's queue, and workers that are
 * started and not used yet. When one is full, what is refused is the newest of
 * the peer that holds the most of it: a flood costs the one who makes it.
 */
import { deny, type Refusal } from './deny.js';
import { shownNeed } from '../ledger/need.js';
import { queueLength } from './queue.js';
import type { Card, Core, Process, Waiter } from '../state.js';
import { terminate } from '../processes/terminate.js';
import { endWaiter } from './waiter.js';

/** Makes a place in the queue of a card for one more request of a peer; else why there is none: it would hold the most itself. */
export function placeInQueue(core: Core, card: Card, generation: string): Refusal | null {
  if (queueLength(card) < core.options.limits.queuedRequestsPerCardMax) return null;
  const ownCount = card.queuedBy.get(generation) ?? 0;
  let most = generation;
  let mostCount = ownCount + 1;
  for (const [peer, count] of card.queuedBy) {
    if (count <= mostCount) continue;
    most = peer;
    mostCount = count;
  }
  const newest = most === generation ? null : newestQueued(core, card, most);
  if (newest === null) return queueRefusal(core, card, ownCount);
  refuse(core, newest, { ...queueRefusal(core, card, mostCount), ...shownNeed(core, newest), card });
  return null;
}

function queueRefusal(core: Core, card: Card, ownCount: number): Refusal {
  const limit = core.options.limits.queuedRequestsPerCardMax;
  return {
    code: 'queue_full', details: { limit: String(limit), device: card.device, own: String(ownCount) }, retryAfterMs: core.options.limits.backoffFirstMs,
    text: `${String(limit)} requests wait for ${card.device}, ${String(ownCount)} of them of this peer; no other has more`,
  };
}

/** The request of a peer that came last of those that are in the queue of a card. */
function newestQueued(core: Core, card: Card, generation: string): Waiter | null {
  let newest: Waiter | null = null;
  for (const key of core.processes.get(generation)?.requests ?? []) {
    const waiter = core.waiters.get(key);
    const isQueued = waiter?.device === card.device && card.queue[waiter.class].includes(key);
    if (isQueued && waiter.order > (newest?.order ?? -1)) newest = waiter;
  }
  return newest;
}

/** Started for a placement of that peer, and not asked for anything yet. */
function isUnused(process: Process | undefined, peer: string | null): process is Process {
  return process !== undefined && peer !== null && process.startedFor === peer && (process.state === 'spawning' || process.state === 'ready');
}

/** Whether one more worker may be starting for a peer. Those that end before they were ready count until they are gone: taking back is no way round it. */
export function mayStartOne(core: Core, peer: string): boolean {
  let count = 0;
  for (const generation of core.workers) {
    const process = core.processes.get(generation);
    if (process?.startedFor === peer && process.capabilities === null && (process.state === 'spawning' || process.state === 'ending')) count++;
  }
  return count < core.options.limits.spawnsAtOnceMax;
}

/** Unused workers that were started for placements of a peer, and ends of workers that its placements wait for. */
function startsOf(core: Core, peer: string): number {
  let count = 0;
  for (const generation of core.workers) if (isUnused(core.processes.get(generation), peer)) count++;
  for (const waiting of core.workersAwaited.values()) if (waiting === peer) count++;
  return count;
}

/** Ends the newest unused worker of the peer that has the most of them, if those are more than this one would have; false: there is none. */
export function endSurplusWorker(core: Core, waiter: Waiter): boolean {
  const unused = new Map<string, Process[]>();
  for (const generation of core.workers) {
    const process = core.processes.get(generation);
    const peer = process?.startedFor ?? waiter.generation;
    if (peer === waiter.generation || !isUnused(process, peer)) continue;
    const others = unused.get(peer);
    if (others === undefined) unused.set(peer, [process]);
    else others.push(process);
  }
  const wouldHave = startsOf(core, waiter.generation) + 1;
  const mostFirst = [...unused].sort(([, a], [, b]) => b.length - a.length);
  // Whoever has left comes no more for what was started for it.
  return mostFirst.some(([peer, processes]) => (processes.length > wouldHave || !core.processes.has(peer)) && endUnused(core, processes, waiter));
}

/** Ends the last of them for which nobody else waits. */
function endUnused(core: Core, processes: readonly Process[], waiter: Waiter): boolean {
  for (const process of [...processes].reverse()) {
    const joined = [...process.joined].map((key) => core.waiters.get(key)).filter((other) => other !== undefined);
    if (joined.some((other) => other.generation !== process.startedFor)) continue;
    for (const other of joined) refuse(core, other, { ...workersRefusal(core, other.generation), card: core.cards.get(other.device) ?? null });
    terminate(core, process, 'evicted', `a place among ${String(core.options.limits.workersMax)} workers for ${waiter.model}, of a peer with fewer`);
    return true;
  }
  return false;
}

/** Why no further worker is started for a peer. */
export function workersRefusal(core: Core, peer: string): Refusal {
  const limit = core.options.limits.workersMax;
  const ownCount = startsOf(core, peer);
  return {
    code: 'too_many_workers', details: { limit: String(limit), own: String(ownCount) },
    text: `${String(limit)} workers are alive and none is idle; ${String(ownCount)} were started for this peer and are not used yet`,
  };
}

function refuse(core: Core, waiter: Waiter, refusal: Refusal & { readonly card: Card | null }): void {
  deny(core, { generation: waiter.generation, request: waiter.request, model: waiter.model, class: waiter.class, arrivedUs: waiter.arrivedUs, ...refusal });
  endWaiter(core, waiter);
}
