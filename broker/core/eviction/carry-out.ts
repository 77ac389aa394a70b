/** From a plan to its commands: whoever it is for, a waiting request or strangers on the card. */
import { durationText } from '../../../protocol/index.js';
import { makesRoomToPark } from '../memory/park.js';
import { mustProcess } from '../must.js';
import type { Card, Core, JobCause } from '../state.js';
import { terminate } from '../processes/terminate.js';
import { startEviction } from './ladder.js';
import type { Plan } from './plan.js';
import type { Victim } from './victim.js';

export interface PlanOrder {
  readonly cause: JobCause;
  readonly waiterSinceAtUs: number | null;
  /** The key of the request it serves; null: none. */
  readonly beneficiary: string | null;
  readonly reason: string;
  /** Called before the first command, when there will be one. */
  readonly tell: (chosenText: string) => void;
}

/** Carries a plan out. With busy victims in it only their doors are shut now: the idle ones go when that has worked. */
export function carryOutPlan(core: Core, card: Card, plan: Plan, shortBytes: number, order: PlanOrder): void {
  const drains = plan.victims.filter((victim) => victim.busy);
  const chosen = drains.length > 0 ? drains : plan.victims;
  const ready = chosen.filter(({ lease, ends }) => lease === null || ends || !makesRoomToPark(core, lease));
  // All of them wait for room to be parked: that was told when it began to be made.
  if (ready.length === 0) return;
  order.tell(`${plan.victims.length === 1 ? '1 victim' : `${String(plan.victims.length)} victims`} chosen, at an expected cost of ${durationText(plan.costMs)}`);
  const now = card.confirms === 'total' ? ready.slice(0, 1) : ready;
  const spareBytes = plan.victims.reduce((sum, victim) => sum + victim.freesBytes, 0) - shortBytes;
  const partial = partialVictim(core, chosen, spareBytes);
  for (const victim of now) evict(core, order, victim, victim === partial ? spareBytes : 0);
}

/** The victim of which only a part is needed, where its engine can free a part. */
function partialVictim(core: Core, victims: readonly Victim[], spareBytes: number): Victim | null {
  if (spareBytes <= 0) return null;
  let best: Victim | null = null;
  for (const victim of victims) {
    // What is spread over several cards goes as a whole: a part of it serves nobody.
    if (victim.lease === null || victim.ends || victim.lease.gang !== null || victim.lease.partialFailed || victim.freesBytes <= spareBytes) continue;
    if (core.processes.get(victim.generation)?.capabilities?.partial !== true) continue;
    if (best === null || victim.freesBytes > best.freesBytes) best = victim;
  }
  return best;
}

function evict(core: Core, order: PlanOrder, victim: Victim, keepBytes: number): void {
  const { lease } = victim;
  if (lease === null) {
    terminate(core, mustProcess(core, victim.generation), 'evicted', order.reason);
    return;
  }
  startEviction(core, lease, {
    cause: order.cause, when: victim.busy ? 'drained' : 'now',
    bytes: keepBytes > 0 ? victim.freesBytes - keepBytes : null,
    target: victim.ends ? 'none' : 'host', waiterSinceAtUs: order.waiterSinceAtUs, beneficiary: order.beneficiary, reason: order.reason,
  });
}
