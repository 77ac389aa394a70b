/** Candidates for eviction on one card, and the set to take: plan before evict, so that nothing is evicted when all of it would not suffice. */
import type { ExplainedVictim } from '../explain.js';
import { parkShortBytes } from '../memory/share.js';
import { isIdleWorker } from '../processes/idle.js';
import { isLoading } from '../ledger/lease-store.js';
import { returnCostMs, spawnCostMs } from '../processes/model.js';
import { mustCard, mustLease } from '../must.js';
import { companions } from '../gangs/gang.js';
import type { Card, Core, Lease } from '../state.js';
import { isBusy, isRequester, isSpared, youth } from './spared.js';
import type { Seeker, Victim } from './victim.js';
import { cheapestSet, type VictimPolicy } from './victim-policy.js';
import { mayEnd, wholeWorkers } from './whole-workers.js';

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

const passedOverShown = 32;

/** The cheapest sufficient set, busy models included only when `busyToo`; null when there is none. */
export function planVictims(core: Core, card: Card, seeker: Seeker, shortfallBytes: number, busyToo: boolean, policy: VictimPolicy = cheapestSet, leaving: Leaving = noneLeaving): Plan | null {
  const candidates = candidatesOf(core, card, seeker, busyToo, leaving);
  const chosen = policy(shortfallBytes, candidates);
  if (chosen !== null) return toPlan(chosen.map((place) => candidates[place]).filter((victim) => victim !== undefined));
  const wholes = wholeWorkers(core, card, seeker, candidates);
  const ended = policy(shortfallBytes, wholes);
  return ended === null ? null : toPlan(ended.flatMap((place) => wholes[place]?.victims ?? []));
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
      lease, generation: lease.generation, busy: reason !== null, ends: false,
      freesBytes: lease.charge.chargedBytes,
      costMs: returnCostMs(core, lease, canPark(core, lease)),
      lastUsedUs: lease.lastUsedUs,
    });
  }
  for (const seat of card.seats.values()) {
    if (seat.chargedBytes === 0 || seat.leases.size > 0) continue;
    const process = core.processes.get(seat.generation);
    if (process === undefined || leaving.generations.has(seat.generation) || !(isIdleWorker(process) || (process.leases.size === 0 && seeker.overdue !== null && mayEnd(core, process, seeker)))) continue;
    if (seeker.untilUs !== undefined && process.startedUs >= seeker.untilUs) continue;
    if (process.devices.some((device) => device !== card.device && (core.cards.get(device)?.loadToken ?? null) !== null)) continue;
    found.push({ lease: null, generation: seat.generation, busy: false, ends: true, freesBytes: seat.chargedBytes, costMs: spawnCostMs(core, process.engine), lastUsedUs: 0 });
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

function toPlan(victims: readonly Victim[]): Plan {
  return { victims, costMs: victims.reduce((sum, victim) => sum + victim.costMs, 0) };
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
  if (isRequester(lease, seeker)) return 'requester';
  if (seeker.untilUs !== undefined && lease.grantedUs >= seeker.untilUs) return 'came_later';
  const process = core.processes.get(lease.generation);
  const listens = process !== undefined && process.state === 'ready' && process.sessionOpen;
  if (lease.state !== 'resident' || !listens || lease.avoidUntilUs > core.attendedUs) return 'not_answering';
  if (isSpared(core, lease, seeker)) return 'spared';
  return youth(core, lease, seeker) ?? (isBusy(core, lease) ? 'in_use' : null);
}

/** The models on a card that are spared for one whose loads fail. */
export function sparedModels(core: Core, card: Card, seeker: Seeker): readonly string[] {
  if (seeker.failingSinceUs === null) return [];
  const leases = [...card.leases].map((id) => mustLease(core, id));
  return [...new Set(leases.filter((lease) => lease.charge.chargedBytes > 0 && passedOver(core, card, lease, seeker) === 'spared').map(({ model }) => model))];
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
    const victim = { lease, generation: lease.generation, busy: reason === 'in_use', ends: false, freesBytes: lease.charge.chargedBytes, costMs: returnCostMs(core, lease, canPark(core, lease)), lastUsedUs: lease.lastUsedUs };
    shown.push(explainOne(core, victim, reason));
  }
  return shown;
}

/** What the victim has on other cards goes with it, at no cost of its own. */
function explainOthers(core: Core, { lease, generation, busy, ends }: Victim): ExplainedVictim[] {
  if (lease === null || lease.gang === null) return [];
  return companions(core, lease).filter((other) => other !== lease)
    .map((other) => explainOne(core, { lease: other, generation, busy, ends, freesBytes: other.charge.chargedBytes, costMs: 0, lastUsedUs: other.lastUsedUs }, null));
}

function explainOne(core: Core, victim: Victim, passed: string | null): ExplainedVictim {
  const { lease } = victim;
  const moves = lease !== null && !victim.ends && canPark(core, lease) ? 'park' : 'unload';
  const action = lease === null ? 'end_process' : victim.busy ? 'wait_drain' : moves;
  return {
    lease: lease?.id ?? null, model: lease?.model ?? null, generation: victim.generation,
    freesBytes: victim.freesBytes, costMs: Math.round(victim.costMs), action, passedOver: passed,
  };
}
