/**
 * How likely a model is used soon, from how long it used to rest between two
 * uses. A mean would not do: a model used ten times in a minute and then not
 * for a day has two kinds of gaps, and once it has rested longer than the short
 * ones it is in a long one. So gaps are counted by length, and what counts is
 * how many of those that lasted so long ended soon after.
 */

/** At n: how many gaps lasted at least `shortestUs` x 2^n; at 0: all. They fade, so fractions. */
export type Gaps = number[];

/** What is known of the uses of all models together. */
export interface Pace {
  readonly gaps: Gaps;
  /** Mean time between two uses of whatever model. */
  everyUs: number;
  lastUseUs: number;
}

const lengths = 20;
const shortestUs = 65_536;
/** Where each length begins, and where the last one ends. */
const startsUs = Array.from({ length: lengths + 1 }, (_, length) => shortestUs * 2 ** length);
/** With each new gap of a model its older ones count so much less: about ten are remembered. */
const ownFading = 0.9;
const allFading = 0.995;
/** What all models together say weighs as much as one gap of its own. */
const othersWeigh = 1;
/** Gaps that ended in no way anybody has seen: half of one. */
const unseen = 0.5;
const paceSmoothing = 1 / 32;
/** "Soon" is the time of three uses of whatever model: about what one eviction buys. */
const usesAhead = 3;
const soonestUs = 1_000_000;
const latestUs = 600_000_000;
const firstEveryUs = 20_000_000;

export const noGaps = (): Gaps => new Array<number>(lengths).fill(0);

/** Before anything is known a gap of any length is equally likely, which makes the longest idle the least likely to come back. */
export const newPace = (): Pace => ({ gaps: Array.from({ length: lengths }, (_, length) => 1 - length / lengths), everyUs: firstEveryUs, lastUseUs: 0 });

/** A model was used again after `gapUs`; null: for the first time that is remembered. */
export function countUse(pace: Pace, own: Gaps, gapUs: number | null, nowUs: number): void {
  if (pace.lastUseUs > 0) pace.everyUs += (Math.max(0, nowUs - pace.lastUseUs) - pace.everyUs) * paceSmoothing;
  pace.lastUseUs = nowUs;
  if (gapUs === null) return;
  add(own, gapUs, ownFading);
  add(pace.gaps, gapUs, allFading);
}

/** How far "soon" reaches. */
export function soonUs(pace: Pace): number {
  return Math.min(latestUs, Math.max(soonestUs, pace.everyUs * usesAhead));
}

/** The probability that a model that has rested for `idleUs` is used within `withinUs`; above 0, below 1. */
export function likelihoodOfUse(pace: Pace, own: Gaps, idleUs: number, withinUs: number): number {
  const now = lengthOf(idleUs);
  const then = lengthOf(idleUs + withinUs);
  const weight = othersWeigh / (pace.gaps[0] ?? 1);
  const lasting = lastingLonger(own, idleUs, now) + weight * lastingLonger(pace.gaps, idleUs, now);
  const stillLasting = lastingLonger(own, idleUs + withinUs, then) + weight * lastingLonger(pace.gaps, idleUs + withinUs, then);
  return (lasting - stillLasting + 1e-3) / (lasting + unseen);
}

function add(gaps: Gaps, gapUs: number, fading: number): void {
  const longest = lengthOf(gapUs);
  for (let length = 0; length < lengths; length++) gaps[length] = (gaps[length] ?? 0) * fading + (length <= longest ? 1 : 0);
}

/** How many gaps lasted longer than that, which is of `length`; those between two lengths spread evenly. */
function lastingLonger(gaps: Gaps, idleUs: number, length: number): number {
  const fromUs = length === 0 ? 0 : startsUs[length] ?? 0;
  const toUs = startsUs[length + 1] ?? Infinity;
  const atLeast = gaps[length] ?? 0;
  const longer = gaps[length + 1] ?? 0;
  return idleUs >= toUs ? longer : atLeast - (atLeast - longer) * (idleUs - fromUs) / (toUs - fromUs);
}

function lengthOf(gapUs: number): number {
  return Math.min(lengths - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, gapUs) / shortestUs))));
}
