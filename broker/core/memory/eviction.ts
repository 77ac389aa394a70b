/**
 * Victims in the machine's memory. First the copies of models that are on their cards: whoever loses one is served as
 * before, and is unloaded instead of parked when its turn comes. Only when all of those do not suffice, parked models go
 * to nothing, idle models that need the machine's memory itself are unloaded, and idle workers end; by the same policy
 * and the same expected cost as on a card. Late, and only when none of that suffices, busy ones have their doors shut.
 * Plan before evict.
 */
import { durationText } from '../../../protocol/index.js';
import type { ExplainedVictim } from '../explain.js';
import { isSerial, passedOver } from '../eviction/plan.js';
import type { Seeker } from '../eviction/victim.js';
import { isRequester, staysParked } from '../eviction/spared.js';
import { companions } from '../gangs/gang.js';
import { withHeadroom } from '../ledger/headroom.js';
import { startTrim } from './trim.js';
import { isIdleWorker } from '../processes/idle.js';
import { startEviction } from '../eviction/ladder.js';
import { copyLossMs, returnCostMs, spawnCostMs } from '../processes/model.js';
import { mustCard, mustProcess } from '../must.js';
import type { Card, Core, Job, Lease, Seat } from '../state.js';
import { terminate } from '../processes/terminate.js';
import { cheapestSet, type VictimCandidate } from '../eviction/victim-policy.js';

export interface HostVictim extends VictimCandidate {
  readonly lease: Lease | null;
  readonly generation: string;
  readonly action: 'trim' | 'unload' | 'end_process';
  /** Calls are inside: its door is shut, and it goes when they have ended. */
  readonly busy: boolean;
}

export interface HostOrder {
  readonly cause: 'plan' | 'pressure';
  readonly waiterSinceAtUs: number | null;
  /** The key of the request it serves; null: none. */
  readonly beneficiary: string | null;
  readonly reason: string;
  readonly tell: (victims: readonly ExplainedVictim[], costText: string) => void;
}

/** The cheapest set that frees so much: copies that are redundant while they suffice, else all of those and the cheapest of the rest. Null: all together do not. */
export function planHost(core: Core, host: Card, seeker: Seeker | null, shortBytes: number, busyToo = false): readonly HostVictim[] | null {
  const redundant = redundantCopies(core, seeker);
  const fewest = choose(shortBytes, redundant);
  if (fewest !== null) return fewest;
  const restBytes = redundant.reduce((left, victim) => left - victim.freesBytes, shortBytes);
  const rest = choose(restBytes, restOf(core, host, seeker, redundant, busyToo));
  return rest === null ? null : withoutGoing(redundant, rest);
}

/** Everything idle that may leave there, when even that does not suffice. */
export function allOnHost(core: Core, host: Card): readonly HostVictim[] {
  const redundant = redundantCopies(core, null);
  return withoutGoing(redundant, restOf(core, host, null, redundant, false));
}

function restOf(core: Core, host: Card, seeker: Seeker | null, redundant: readonly HostVictim[], busyToo: boolean): readonly HostVictim[] {
  return [...parkedModels(core, seeker), ...residentModels(core, seeker, redundant, busyToo), ...idleWorkers(core, host)];
}

/** Whoever leaves altogether is not asked for its copy first. */
function withoutGoing(redundant: readonly HostVictim[], rest: readonly HostVictim[]): readonly HostVictim[] {
  const going = new Set(rest.map(({ lease }) => lease));
  return [...redundant.filter(({ lease }) => !going.has(lease)), ...rest];
}

function choose(shortBytes: number, candidates: readonly HostVictim[]): readonly HostVictim[] | null {
  return cheapestSet(shortBytes, candidates)?.map((place) => candidates[place]).filter((victim) => victim !== undefined) ?? null;
}

/** Copies of models that are on their cards, used or not: no call needs them. */
export function redundantCopies(core: Core, seeker: Seeker | null): readonly HostVictim[] {
  const found: HostVictim[] = [];
  for (const lease of core.leases.values()) {
    const members = companions(core, lease);
    // A copy is of use only whole, with all of its gang's.
    if (members[0] !== lease || members.every(({ hostBytes }) => hostBytes === 0) || !members.every((member) => mayTrim(core, member))) continue;
    if (seeker !== null && isRequester(lease, seeker)) continue;
    found.push({ lease, generation: lease.generation, action: 'trim', busy: false, freesBytes: sum(members, trimmedBytes), costMs: copyLossMs(core, lease), lastUsedUs: lease.lastUsedUs });
  }
  return found;
}

function mayTrim(core: Core, lease: Lease): boolean {
  const { host } = lease;
  if (lease.state !== 'resident' || lease.job !== null || lease.release !== null) return false;
  return host !== null && host.trim === null && !host.fixed && host.avoidUntilUs <= core.attendedUs && listens(core, lease);
}

/** What its charge there falls by when its copy goes. */
function trimmedBytes(lease: Lease): number {
  const { host } = lease;
  return host === null ? 0 : Math.max(0, host.charge.chargedBytes - withHeadroom(host.asked.neededBytes));
}

function sum(leases: readonly Lease[], of: (lease: Lease) => number): number {
  return leases.reduce((bytes, lease) => bytes + of(lease), 0);
}

/** What a parked model is worth there: the return instead of the load, as likely as it is wanted. */
export function parkedWorthMs(core: Core, lease: Lease): number {
  return Math.max(0, returnCostMs(core, lease, false) - returnCostMs(core, lease, true));
}

function parkedModels(core: Core, seeker: Seeker | null): readonly HostVictim[] {
  const found: HostVictim[] = [];
  for (const lease of core.leases.values()) {
    const members = companions(core, lease);
    const freesBytes = sum(members, ({ host }) => host?.charge.chargedBytes ?? 0);
    if (members[0] !== lease || freesBytes === 0 || !members.every((member) => mayLeave(core, member))) continue;
    if (seeker !== null && members.some((member) => staysParked(core, member, seeker))) continue;
    found.push({ lease, generation: lease.generation, action: 'unload', busy: false, freesBytes, costMs: parkedWorthMs(core, lease), lastUsedUs: lease.lastUsedUs });
  }
  return found;
}

/** Models on their cards, or on the CPU, that hold more there than a copy which could be asked back: all of it comes free when they are unloaded. */
function residentModels(core: Core, seeker: Seeker | null, redundant: readonly HostVictim[], busyToo: boolean): readonly HostVictim[] {
  const trimmed = new Map(redundant.map(({ lease, freesBytes }) => [lease, freesBytes]));
  const found: HostVictim[] = [];
  for (const lease of core.leases.values()) {
    if (lease.state !== 'resident' || (lease.host?.charge.chargedBytes ?? 0) === 0) continue;
    const members = companions(core, lease);
    const freesBytes = sum(members, ({ host }) => host?.charge.chargedBytes ?? 0) - (trimmed.get(lease) ?? 0);
    if (members[0] !== lease || freesBytes <= 0) continue;
    if (members.some(({ device }) => isLocked(core, [device]) || isSerial(core, mustCard(core, device)))) continue;
    // For nobody's sake it leaves like for one of its own class.
    const reason = passedOver(core, mustCard(core, lease.device), lease, seeker ?? { generation: '', model: '', class: lease.class, placing: false, failingSinceUs: null, overdue: null });
    if (reason !== null && !(busyToo && reason === 'in_use')) continue;
    found.push({ lease, generation: lease.generation, action: 'unload', busy: reason !== null, freesBytes, costMs: returnCostMs(core, lease, false), lastUsedUs: lease.lastUsedUs });
  }
  return found;
}

function mayLeave(core: Core, lease: Lease): boolean {
  if (lease.state !== 'parked' || lease.job !== null || lease.release !== null || lease.pinned || lease.avoidUntilUs > core.attendedUs || !listens(core, lease)) return false;
  return lease.inFlight + lease.queued === 0 && !isWanted(core, lease) && !isLocked(core, [lease.device]);
}

function idleWorkers(core: Core, host: Card): readonly HostVictim[] {
  const found: HostVictim[] = [];
  for (const seat of host.seats.values()) {
    const process = core.processes.get(seat.generation);
    const freesBytes = seat.chargedBytes - unseenBytes(host, seat);
    if (process === undefined || freesBytes === 0 || !isIdleWorker(process) || isLocked(core, process.devices)) continue;
    found.push({ lease: null, generation: seat.generation, action: 'end_process', busy: false, freesBytes, costMs: spawnCostMs(core, process.engine), lastUsedUs: 0 });
  }
  return found;
}

/** An engine measures free memory on its card: nothing ends there meanwhile (B14). */
function isLocked(core: Core, devices: readonly string[]): boolean {
  return devices.some((device) => (core.cards.get(device)?.loadToken ?? null) !== null);
}

function listens(core: Core, lease: Lease): boolean {
  const process = core.processes.get(lease.generation);
  return process?.state === 'ready' && process.sessionOpen;
}

/** Its own process asks for its way back to the card. */
function isWanted(core: Core, lease: Lease): boolean {
  for (const key of core.processes.get(lease.generation)?.requests ?? []) {
    const waiter = core.waiters.get(key);
    if (waiter?.kind === 'budget' && waiter.model === lease.model) return true;
  }
  return false;
}

/** Bytes on their way back there: of copies under a command, of what was given back and not seen yet, of processes that end. */
export function hostLeavingBytes(core: Core, host: Card): number {
  let bytes = 0;
  for (const seat of host.seats.values()) bytes += host.ending.has(seat.generation) ? seat.chargedBytes : unseenBytes(host, seat);
  for (const lease of core.leases.values()) {
    if (lease.host === null || host.ending.has(lease.generation)) continue;
    if (isUnloading(lease.job) && !isDraining(lease.job)) bytes += lease.host.charge.chargedBytes;
    else if (lease.host.trim !== null) bytes += Math.min(lease.host.trim.bytes, lease.host.charge.chargedBytes);
  }
  return bytes;
}

/** Bytes there of models that go when the calls inside have ended. */
export function hostDrainingBytes(core: Core, host: Card): number {
  let bytes = 0;
  for (const lease of core.leases.values()) {
    if (lease.host !== null && !host.ending.has(lease.generation) && isUnloading(lease.job) && isDraining(lease.job)) bytes += lease.host.charge.chargedBytes;
  }
  return bytes;
}

function isUnloading(job: Job | null): job is Job {
  return job !== null && job.rung === 'unload' && job.phase !== 'cancelling';
}

function isDraining({ when, phase }: Job): boolean {
  return when === 'drained' && phase !== 'moving';
}

/** What a process has given back since the last reading: the next one shows whether it has. */
function unseenBytes(host: Card, seat: Seat): number {
  return seat.loweredAtUs > (host.sample?.takenAtUs ?? 0) ? seat.residue.chargedBytes : 0;
}

/** Sends what a plan needs. The record comes first, and names each victim. */
export function carryOutHost(core: Core, host: Card, plan: readonly HostVictim[], order: HostOrder): void {
  const costMs = plan.reduce((sum, victim) => sum + victim.costMs, 0);
  order.tell(plan.flatMap((victim) => explained(core, victim)), `${plan.length === 1 ? '1 victim' : `${String(plan.length)} victims`} chosen, at an expected cost of ${durationText(costMs)}`);
  for (const { lease, generation, action, busy } of plan) {
    if (lease === null) terminate(core, mustProcess(core, generation), 'evicted', order.reason);
    else if (action === 'trim') trimAll(core, lease, order.cause, order.reason);
    else {
      startEviction(core, lease, { cause: order.cause, when: busy ? 'drained' : 'now', bytes: null, target: 'none', waiterSinceAtUs: order.waiterSinceAtUs, beneficiary: busy ? order.beneficiary : null, reason: order.reason });
    }
  }
  core.dirty.add(host.device);
}

/** Asks for the whole copy, card by card. */
export function trimAll(core: Core, lease: Lease, cause: 'plan' | 'pressure' | 'park', reason: string): void {
  for (const member of companions(core, lease)) startTrim(core, member, cause, trimmedBytes(member), reason);
}

/** Of a gang each lease is named, with the cost at the first. */
export function explained(core: Core, { lease, generation, action: how, busy, freesBytes, costMs }: HostVictim): ExplainedVictim[] {
  const action = busy ? 'wait_drain' : how;
  if (lease === null) return [{ lease: null, model: null, generation, freesBytes, costMs: Math.round(costMs), action, passedOver: null }];
  return companions(core, lease).map((member) => ({
    lease: member.id, model: member.model, generation, freesBytes: action === 'trim' ? trimmedBytes(member) : (member.host?.charge.chargedBytes ?? 0),
    costMs: member === lease ? Math.round(costMs) : 0, action, passedOver: null,
  }));
}
