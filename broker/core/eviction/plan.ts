/** Candidates for eviction on one card, and the set to take: plan before evict, so that nothing is evicted when all of it would not suffice. */
import type { RequestClass } from '../../../protocol/index.js';
import type { ExplainedVictim } from '../explain.js';
import { parkShortBytes } from '../memory/share.js';
import { isIdleWorker } from '../processes/idle.js';
import { isLoading } from '../ledger/lease-store.js';
import { returnCostMs } from '../processes/model.js';
import { mustCard, mustLease } from '../must.js';
import { companions } from '../gangs/gang.js';
import type { Card, Core, Lease, Process, Seat } from '../state.js';
import { dampedResidencyMs } from '../thrash/damp.js';
import { cheapestSet, type VictimCandidate, type VictimPolicy } from './victim-policy.js';

/** Who asks. A model is never a victim of its own request (D1). */
export interface Seeker {
  readonly generation: string;
  readonly model: string;
  readonly class: RequestClass;
  /** A placement names no process of its own: its model is spared wherever it runs. */
  readonly placing: boolean;
  /** What was granted, or started, at that moment or after is spared; left out: nothing is for that. */
  readonly untilUs?: number;
  /** It has waited as long as its class may: no damping keeps it from its room. */
  readonly overdue: boolean;
}

export interface Victim extends VictimCandidate {
  readonly lease: Lease | null;
  readonly generation: string;
  readonly busy: boolean;
}

export interface Plan {
  readonly victims: readonly Victim[];
  readonly costMs: number;
}

/** Gangs and whole processes that leave other cards for the same request: what they have here comes free, too. */
export interface Leaving {
  readonly gangs: ReadonlySet<string>;
  readonly generations: ReadonlySet<string>;
}
export const noneLeaving: Leaving = { gangs: new Set(), generations: new Set() };

/** What a spawn costs when none of that engine has been measured. */
const assumedSpawnMs = 1_000;
const passedOverShown = 32;

/** The cheapest sufficient set, busy models included only when `busyToo`; null when there is none. */
export function planVictims(core: Core, card: Card, seeker: Seeker, shortfallBytes: number, busyToo: boolean, policy: VictimPolicy = cheapestSet, leaving: Leaving = noneLeaving): Plan | null {
  const candidates = candidatesOf(core, card, seeker, busyToo, leaving);
  const chosen = policy(shortfallBytes, candidates);
  if (chosen !== null) return toPlan(chosen.map((place) => candidates[place]).filter((victim) => victim !== undefined));
  return busyToo ? null : planWholeWorkers(core, card, candidates, shortfallBytes, policy);
}

/** All that is idle, where no set of it would suffice and a part is of use. */
export function planEverything(core: Core, card: Card, seeker: Seeker): Plan {
  return toPlan(candidatesOf(core, card, seeker, false, noneLeaving));
}

/** Everything on the card that may be evicted for this seeker, in the order of their leases. */
function candidatesOf(core: Core, card: Card, seeker: Seeker, busyToo: boolean, leaving: Leaving): Victim[] {
  const found: Victim[] = [];
  for (const id of card.leases) {
    const lease = mustLease(core, id);
    if (lease.charge.chargedBytes === 0 || isLeaving(lease, leaving)) continue;
    const reason = passedOver(core, card, lease, seeker);
    if (reason !== null && !(busyToo && reason === 'in_use')) continue;
    found.push({
      lease, generation: lease.generation, busy: reason !== null,
      freesBytes: lease.charge.chargedBytes,
      costMs: returnCostMs(core, lease, canPark(core, lease)),
      lastUsedUs: lease.lastUsedUs,
    });
  }
  for (const seat of card.seats.values()) {
    if (seat.chargedBytes === 0 || seat.leases.size > 0) continue;
    const process = core.processes.get(seat.generation);
    if (process === undefined || !isIdleWorker(process) || leaving.generations.has(seat.generation)) continue;
    if (seeker.untilUs !== undefined && process.startedUs >= seeker.untilUs) continue;
    if (process.devices.some((device) => device !== card.device && (core.cards.get(device)?.loadToken ?? null) !== null)) continue;
    found.push({ lease: null, generation: seat.generation, busy: false, freesBytes: seat.chargedBytes, costMs: spawnCostMs(core, process.engine), lastUsedUs: 0 });
  }
  return found;
}

/** Bytes that come free on a card by what leaves others. */
export function leavingHereBytes(core: Core, card: Card, leaving: Leaving): number {
  let bytes = 0;
  if (leaving.gangs.size > 0) {
    for (const id of card.leases) {
      const lease = mustLease(core, id);
      if (isLeaving(lease, leaving)) bytes += lease.charge.chargedBytes;
    }
  }
  for (const generation of leaving.generations) bytes += card.seats.get(generation)?.chargedBytes ?? 0;
  return bytes;
}

function isLeaving(lease: Lease, leaving: Leaving): boolean {
  return lease.gang !== null && leaving.gangs.has(lease.gang);
}

/** When the models alone do not suffice, whole workers may: their floor comes free once they are empty. */
function planWholeWorkers(core: Core, card: Card, candidates: readonly Victim[], shortfallBytes: number, policy: VictimPolicy): Plan | null {
  const groups = new Map<string, Victim[]>();
  for (const victim of candidates) groups.set(victim.generation, [...(groups.get(victim.generation) ?? []), victim]);
  const members = [...groups.entries()];
  const wholes = members.map(([generation, victims]) => wholeWorker(core, card.seats.get(generation), victims));
  const chosen = policy(shortfallBytes, wholes);
  return chosen === null ? null : toPlan(chosen.flatMap((place) => members[place]?.[1] ?? []));
}

function wholeWorker(core: Core, seat: Seat | undefined, victims: readonly Victim[]): VictimCandidate {
  const process = seat === undefined ? undefined : core.processes.get(seat.generation);
  const bytes = victims.reduce((sum, victim) => sum + victim.freesBytes, 0);
  const costMs = victims.reduce((sum, victim) => sum + victim.costMs, 0);
  const lastUsedUs = Math.max(...victims.map((victim) => victim.lastUsedUs));
  const goesWhole = seat !== undefined && process?.role === 'worker' && process.state === 'ready' && process.requests.size === 0 && leavesNothing(core, process, victims);
  if (!goesWhole) return { freesBytes: bytes, costMs, lastUsedUs };
  return { freesBytes: seat.chargedBytes, costMs: costMs + spawnCostMs(core, process.engine), lastUsedUs };
}

/** Every model of the process is among the victims, with all of its cards. */
function leavesNothing(core: Core, process: Process, victims: readonly Victim[]): boolean {
  const going = new Set(victims.flatMap(({ lease }) => (lease === null ? [] : companions(core, lease).map(({ id }) => id))));
  return going.size === process.leases.size;
}

function toPlan(victims: readonly Victim[]): Plan {
  return { victims, costMs: victims.reduce((sum, victim) => sum + victim.costMs, 0) };
}

export function spawnCostMs(core: Core, engine: string | null): number {
  return core.spawnMs.get(engine ?? '') ?? assumedSpawnMs;
}

/** Whether parking is tried before unloading: it can be, and there is room for its copy or it has one (R57). */
export function canPark(core: Core, lease: Lease): boolean {
  return couldPark(core, lease) && parkShortBytes(core, lease) === 0;
}

/** The same but for room in the machine's memory. Where that is the card's own, parking would free nothing. */
export function couldPark(core: Core, lease: Lease): boolean {
  return lease.parkable && core.processes.get(lease.generation)?.capabilities?.park !== false && core.cards.get(lease.device)?.unified !== true;
}

/** Why a lease is no victim for this seeker; null: it is one. Those of a gang are victims together or not at all. */
export function passedOver(core: Core, card: Card, lease: Lease, seeker: Seeker): string | null {
  if (lease.gang === null) return whyNot(core, card, lease, seeker);
  let used: string | null = null;
  for (const member of companions(core, lease)) {
    const there = mustCard(core, member.device);
    // An engine that measures free memory on another of its cards is not to be disturbed there.
    const kept = there !== card && there.loadToken !== null ? 'load_token' : null;
    const reason = kept ?? whyNot(core, there, member, seeker);
    if (reason === 'in_use') used = reason;
    else if (reason !== null) return reason;
  }
  return used;
}

/** On a card read by its total alone, evictions go one at a time, or no quiet moment would ever come (D16). */
export function isSerial(core: Core, card: Card): boolean {
  if (card.confirms !== 'total') return false;
  for (const id of card.jobs) if (mustLease(core, id).job?.phase !== 'draining') return true;
  return card.releasing.size > 0 || card.returning.size > 0;
}

function whyNot(core: Core, card: Card, lease: Lease, seeker: Seeker): string | null {
  if (lease.job !== null || lease.release !== null || card.ending.has(lease.generation)) return 'already_leaving';
  if (lease.pinned) return 'pinned';
  if (isLoading(lease)) return 'loading';
  if (lease.model === seeker.model && (seeker.placing || lease.generation === seeker.generation)) return 'requester';
  if (seeker.untilUs !== undefined && lease.grantedUs >= seeker.untilUs) return 'came_later';
  const process = core.processes.get(lease.generation);
  const listens = process !== undefined && process.state === 'ready' && process.sessionOpen;
  if (lease.state !== 'resident' || !listens || lease.avoidUntilUs > core.attendedUs) return 'not_answering';
  return youth(core, lease, seeker) ?? (isBusy(core, lease) ? 'in_use' : null);
}

/** Calls inside or queued, as last reported, or the worker has just answered `busy`. */
export function isBusy(core: Core, lease: Lease): boolean {
  return lease.inFlight + lease.queued > 0 || lease.busyUntilUs > core.attendedUs;
}

/** Why it was loaded too short a while ago to be evicted by an equal or lower class: by the minimum of its own, or because the card thrashes. */
export function youth(core: Core, lease: Lease, seeker: Seeker): 'minimum_residency' | 'damped' | null {
  const { classPolicies } = core.options;
  const own = classPolicies[lease.class];
  if (classPolicies[seeker.class].rank > own.rank) return null;
  const residentMs = (core.attendedUs - lease.loadedUs) / 1_000;
  if (residentMs < own.minimumResidencyMs) return 'minimum_residency';
  return !seeker.overdue && residentMs < dampedResidencyMs(core, mustCard(core, lease.device), lease) ? 'damped' : null;
}

/** The plan as people read it: the chosen, then some of those passed over and why. */
export function explainVictims(core: Core, card: Card, seeker: Seeker, plan: Plan | null): ExplainedVictim[] {
  const chosen = new Set<string>();
  const shown: ExplainedVictim[] = [];
  for (const victim of plan?.victims ?? []) {
    if (victim.lease !== null) chosen.add(victim.lease.id);
    shown.push(explainOne(core, victim, null), ...explainOthers(core, victim));
  }
  for (const id of card.leases) {
    if (shown.length >= chosen.size + passedOverShown) break;
    const lease = mustLease(core, id);
    if (chosen.has(id) || lease.charge.chargedBytes === 0) continue;
    const reason = passedOver(core, card, lease, seeker) ?? (plan === null ? 'insufficient' : 'dearer');
    const victim = { lease, generation: lease.generation, busy: reason === 'in_use', freesBytes: lease.charge.chargedBytes, costMs: returnCostMs(core, lease, canPark(core, lease)), lastUsedUs: lease.lastUsedUs };
    shown.push(explainOne(core, victim, reason));
  }
  return shown;
}

/** What the victim has on other cards goes with it, at no cost of its own. */
function explainOthers(core: Core, { lease, generation, busy }: Victim): ExplainedVictim[] {
  if (lease === null || lease.gang === null) return [];
  return companions(core, lease).filter((other) => other !== lease)
    .map((other) => explainOne(core, { lease: other, generation, busy, freesBytes: other.charge.chargedBytes, costMs: 0, lastUsedUs: other.lastUsedUs }, null));
}

function explainOne(core: Core, victim: Victim, passed: string | null): ExplainedVictim {
  const { lease } = victim;
  const moves = lease !== null && canPark(core, lease) ? 'park' : 'unload';
  const action = lease === null ? 'end_process' : victim.busy ? 'wait_drain' : moves;
  return {
    lease: lease?.id ?? null, model: lease?.model ?? null, generation: victim.generation,
    freesBytes: victim.freesBytes, costMs: Math.round(victim.costMs), action, passedOver: passed,
  };
}
