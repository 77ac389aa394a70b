/**
 * What the head of a queue does when it does not fit: wait for what is already
 * on its way, else plan before evicting, else (late, and only when no idle set
 * suffices) have a busy victim's door shut; and keep what comes free as its hold.
 */
import { available, leavingBytes, ledgerTermBytes, numbersOf } from '../ledger/available.js';
import { carryOutPlan } from '../eviction/carry-out.js';
import { explainVictims, isSerial, leavingHereBytes, noneLeaving, planVictims, type Leaving, type Plan } from '../eviction/plan.js';
import { endingBytes } from '../eviction/whole-workers.js';
import { companions } from '../gangs/gang.js';
import { shownNeed } from '../ledger/need.js';
import { mustCard, mustLease } from '../must.js';
import { cancelDrain } from '../eviction/ladder.js';
import { inOrder } from './queue.js';
import { seekerOf } from './seeker.js';
import { explain, inWords } from '../report.js';
import type { Card, Core, Job, Lease, Waiter } from '../state.js';
import { isTooSoon } from '../thrash/patience.js';
import { cheapestSet } from '../eviction/victim-policy.js';

/** What is to be done for the first of a queue: victims to be put away, drains to be given up for them; or only what it waits for. */
export interface Intent {
  readonly reason: string;
  readonly plan: Plan | null;
  readonly shortBytes: number;
  readonly givenUp: readonly (readonly [Lease, Job])[];
}

/** Tries to make room for the head, which has `ownBytes` to itself; the code of what it now waits for. */
export function pursue(core: Core, card: Card, head: Waiter, ownBytes: number): string {
  return carryOut(core, card, head, consider(core, card, head, ownBytes));
}

/** What would make room for the head; nothing is done yet. `leaving` goes for its sake from other cards. */
export function consider(core: Core, card: Card, head: Waiter, ownBytes: number, leaving: Leaving = noneLeaving): Intent {
  if (card.loadToken !== null) return waiting('load_token');
  const { firmBytes, drainingBytes } = leavingBytes(core, card);
  const comingBytes = firmBytes + leavingHereBytes(core, card, leaving) + endingBytes(core, card, head);
  const shortBytes = head.needBytes - ownBytes - comingBytes;
  if (shortBytes <= 0) return waiting('leaving');
  // A jump between two rungs of the truth ladder evicts nobody: a second reading must say the same (R29).
  if (card.sameTruthCount < 2 && ledgerTermBytes(card) + comingBytes >= head.needBytes) return waiting('rung_changed');
  if (isSerial(core, card)) return waiting('leaving');
  if (head.triedEpoch === card.planEpoch) return waiting(drainingBytes > 0 ? 'draining' : head.triedReason);
  const seeker = seekerOf(core, head);
  const restBytes = shortBytes - drainingBytes;
  if (drainingBytes === 0) {
    const idle = planVictims(core, card, seeker, shortBytes, false, cheapestSet, leaving);
    if (idle !== null) return unlessTooSoon(core, card, head, idle, shortBytes);
  } else {
    const slow = slowDrains(core, card, head);
    // A drain that takes its time is given up once idle models would do instead.
    const instead = slow.length === 0 ? null : planVictims(core, card, seeker, shortBytes, false, cheapestSet, leaving);
    if (instead !== null) return { ...intent(instead, shortBytes), givenUp: slow };
    // What the drain leaves over is for idle models to free, when it has worked.
    if (restBytes <= 0 || planVictims(core, card, seeker, restBytes, false, cheapestSet, leaving) !== null) return waiting('draining');
  }
  if (core.attendedUs - head.arrivedUs >= core.options.classPolicies[head.class].drainAfterMs * 1_000) {
    const busy = planVictims(core, card, seeker, restBytes, true, cheapestSet, leaving);
    if (busy !== null) return unlessTooSoon(core, card, head, busy, restBytes);
  }
  lookedInVain(card, head, 'no_victims');
  return waiting(drainingBytes > 0 ? 'draining' : 'no_victims');
}

function unlessTooSoon(core: Core, card: Card, head: Waiter, plan: Plan, shortBytes: number): Intent {
  if (!isTooSoon(core, card, head, plan)) return intent(plan, shortBytes);
  lookedInVain(card, head, 'sparing');
  return waiting('sparing');
}

/** It is not looked for again before something there has changed, or time has passed. */
function lookedInVain(card: Card, head: Waiter, reason: Waiter['triedReason']): void {
  head.triedEpoch = card.planEpoch;
  head.triedReason = reason;
}

function waiting(reason: string): Intent {
  return { reason, plan: null, shortBytes: 0, givenUp: [] };
}

function intent(plan: Plan, shortBytes: number): Intent {
  return { reason: plan.victims.some((victim) => victim.busy) ? 'draining' : 'leaving', plan, shortBytes, givenUp: [] };
}

/** Does what is to be done; the code of what the head then waits for. */
export function carryOut(core: Core, card: Card, head: Waiter, { reason, plan, shortBytes, givenUp }: Intent): string {
  for (const [lease, job] of givenUp) cancelDrain(core, lease, job);
  if (plan !== null) commit(core, card, head, plan, shortBytes);
  return reason;
}

/** The drains started for this request that have lasted longer than any answer may take. */
function slowDrains(core: Core, card: Card, head: Waiter): [Lease, Job][] {
  const slow: [Lease, Job][] = [];
  for (const id of card.jobs) {
    const lease = mustLease(core, id);
    const { job } = lease;
    if (job?.beneficiary !== head.key || job.when !== 'drained' || job.phase !== 'draining') continue;
    if (core.attendedUs - job.startedUs >= core.options.limits.commandAnswerMs * 1_000) slow.push([lease, job]);
  }
  return slow;
}

/** The record comes first: it is filed under the request, and names each victim. */
function commit(core: Core, card: Card, head: Waiter, plan: Plan, shortBytes: number): void {
  head.planned = true;
  head.ends = [...new Set(plan.victims.flatMap(({ ends, generation }) => (ends ? [generation] : [])))];
  carryOutPlan(core, card, plan, shortBytes, {
    cause: 'plan', waiterSinceAtUs: head.arrivedAtUs, beneficiary: head.key, reason: `room for ${head.model}`,
    tell: (chosenText) => {
      explain(core, {
        verdict: 'evicting',
        text: `${head.model} needs ${inWords(shortBytes)} more on ${card.device}: ${chosenText}`,
        generation: head.generation, request: head.request, model: head.model, device: card.device, class: head.class, arrivedUs: head.arrivedUs,
        numbers: numbersOf(core, card, shownNeed(core, head)),
        victims: explainVictims(core, card, seekerOf(core, head), plan),
      });
    },
  });
}

/** From when a head keeps everything available up to its need: it has a plan, has waited, or has been passed often enough (D22). */
export function isEntrenched(core: Core, waiter: Waiter): boolean {
  const { limits } = core.options;
  return waiter.planned || waiter.skips >= limits.drainBatchMax || core.attendedUs - waiter.arrivedUs >= limits.backfillUntilMs * 1_000;
}

/** Drains whose bytes nobody waits for any more are taken back (D21). */
export function trimDrains(core: Core, card: Card): void {
  if (card.jobs.size === 0) return;
  const { freeBytes } = available(core, card);
  if (freeBytes === null) return;
  const { firmBytes, drainingBytes } = leavingBytes(core, card);
  let wantedBytes = 0;
  for (const waiter of inOrder(core, card)) if (waiter.planned) wantedBytes += waiter.needBytes;
  let surplusBytes = Math.max(0, freeBytes) + firmBytes + drainingBytes - wantedBytes;
  for (const id of [...card.jobs]) {
    const lease = mustLease(core, id);
    const { job } = lease;
    if (job === null || job.cause !== 'plan' || job.when !== 'drained' || job.phase === 'moving' || job.phase === 'cancelling') continue;
    const served = (job.beneficiary !== null && core.waiters.has(job.beneficiary)) || isWantedElsewhere(core, lease);
    if (served || (wantedBytes > 0 && lease.charge.chargedBytes > surplusBytes)) continue;
    surplusBytes -= lease.charge.chargedBytes;
    cancelDrain(core, lease, job);
  }
}

/** On another card of its gang somebody waits for its bytes: it leaves all of them or none. */
function isWantedElsewhere(core: Core, lease: Lease): boolean {
  if (lease.gang === null) return false;
  return companions(core, lease).some((other) => other !== lease && [...inOrder(core, mustCard(core, other.device))].some((waiter) => waiter.planned));
}
