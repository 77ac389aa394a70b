/**
 * Whole workers as victims, for when models alone do not suffice: their floors come free once all that they host has
 * left. So nothing of it is parked, and what is parked already goes, too.
 */
import { companions } from '../gangs/gang.js';
import { mustCard, mustLease, mustProcess } from '../must.js';
import { returnCostMs, spawnCostMs } from '../processes/model.js';
import { goesBefore } from '../requests/queue.js';
import type { Card, Core, Lease, Process, Waiter } from '../state.js';
import { staysParked } from './spared.js';
import type { Seeker, Victim } from './victim.js';
import type { VictimCandidate } from './victim-policy.js';

/** What one worker would give: its candidates as they are, or all of it. */
export interface WholeWorker extends VictimCandidate {
  readonly victims: readonly Victim[];
}

/** The candidates worker by worker; each is taken whole where it may end. */
export function wholeWorkers(core: Core, card: Card, seeker: Seeker, candidates: readonly Victim[]): WholeWorker[] {
  const byWorker = new Map<string, Victim[]>();
  // Also those that have nothing there but themselves, and models that are parked.
  for (const { generation, leases } of card.seats.values()) if (leases.size > 0) byWorker.set(generation, []);
  for (const victim of candidates) {
    const others = byWorker.get(victim.generation);
    if (others === undefined) byWorker.set(victim.generation, [victim]);
    else others.push(victim);
  }
  return [...byWorker].map(([generation, victims]) => {
    const all = allOf(core, mustProcess(core, generation), seeker, victims);
    return all === null ? together(victims, 0, 0) : together(all, unleasedBytes(core, card, generation), spawnCostMs(core, mustProcess(core, generation).engine));
  });
}

function together(victims: readonly Victim[], moreBytes: number, moreMs: number): WholeWorker {
  return {
    victims,
    freesBytes: victims.reduce((sum, { freesBytes }) => sum + freesBytes, moreBytes),
    costMs: victims.reduce((sum, { costMs }) => sum + costMs, moreMs),
    lastUsedUs: victims.reduce((latestUs, { lastUsedUs }) => Math.max(latestUs, lastUsedUs), 0),
  };
}

/** Whether a worker may be ended for a seeker once it is empty: it asks for nothing, or for nothing but what waits behind one that has waited as long as it may. */
export function mayEnd(core: Core, process: Process, { overdue, untilUs }: Seeker): boolean {
  if (process.role !== 'worker' || process.state !== 'ready' || (untilUs !== undefined && process.startedUs >= untilUs)) return false;
  for (const key of process.requests) if (overdue === null || !isBehind(core, core.waiters.get(key), overdue)) return false;
  return true;
}

/** It stands in the same queue, and the other goes before it. */
function isBehind(core: Core, waiter: Waiter | undefined, overdue: Waiter): boolean {
  return waiter !== undefined && waiter !== overdue && waiter.device === overdue.device && waiter.gang === null && goesBefore(core, overdue, waiter);
}

/** All that a worker hosts, each to be put away altogether; null: it may not end, or something of it may not leave. */
function allOf(core: Core, process: Process, seeker: Seeker, victims: readonly Victim[]): Victim[] | null {
  if (process.leases.size === 0 || !process.sessionOpen || !mayEnd(core, process, seeker)) return null;
  const rest = new Set(process.leases);
  const all: Victim[] = [];
  for (const victim of victims) {
    const { lease } = victim;
    if (lease === null) return null;
    for (const { id } of companions(core, lease)) rest.delete(id);
    all.push({ ...victim, ends: true, costMs: returnCostMs(core, lease, false) });
  }
  for (const id of rest) {
    const lease = mustLease(core, id);
    const members = companions(core, lease);
    if (!members.every((member) => mayLeaveParked(core, member, seeker))) return null;
    for (const member of members) rest.delete(member.id);
    all.push({ lease, generation: process.generation, busy: false, ends: true, freesBytes: 0, costMs: Math.max(0, returnCostMs(core, lease, false) - returnCostMs(core, lease, true)), lastUsedUs: lease.lastUsedUs });
  }
  return all;
}

/** Parked, and at rest: nothing on any card is freed by it but its process. */
function mayLeaveParked(core: Core, lease: Lease, seeker: Seeker): boolean {
  if (lease.state !== 'parked' || lease.charge.chargedBytes > 0 || lease.job !== null || lease.release !== null || lease.pinned) return false;
  return lease.inFlight + lease.queued === 0 && lease.avoidUntilUs <= core.attendedUs && !staysParked(core, lease, seeker) && mustCard(core, lease.device).loadToken === null;
}

/** What a worker is charged on a card beside its leases. */
function unleasedBytes(core: Core, card: Card, generation: string): number {
  const seat = card.seats.get(generation);
  let bytes = seat?.chargedBytes ?? 0;
  for (const id of seat?.leases ?? []) bytes -= mustLease(core, id).charge.chargedBytes;
  return bytes;
}

/** What comes free beside the leases of workers that are to end for a request: all that they host there is on its way out, never to be parked. */
export function endingBytes(core: Core, card: Card, { ends }: Waiter): number {
  let bytes = 0;
  for (const generation of ends) {
    const process = core.processes.get(generation);
    if (process?.state !== 'ready' || process.leases.size === 0) continue;
    if ([...process.leases].every((id) => isGoing(mustLease(core, id)))) bytes += unleasedBytes(core, card, generation);
  }
  return bytes;
}

function isGoing({ job, release }: Lease): boolean {
  return release === null ? job?.rung === 'unload' && job.phase !== 'cancelling' : release.then === 'closed';
}
