/** A model that is too large for its card, loaded with fewer layers there where the operator allows that: how many. */
import type { LeaseholdError, ModelSpec } from '../../protocol/index.js';
import type { Budget } from './budget.js';
import type { Estimate, Offload } from './engine.js';

/** A model with some of its layers left to the CPU, and what it needs so. */
export interface Lighter {
  readonly spec: ModelSpec;
  readonly layers: number;
  readonly total: number;
  readonly estimate: Estimate;
  /** Under which its sizes are learned: they are not those of the whole. */
  readonly learnedKey: string;
}

/** Refused for good, whatever else leaves the card; what could be had there. Null: refused for another reason, or nobody knows. */
export function couldHaveBytes(refusal: LeaseholdError): number | null {
  const bytes = Number(refusal.details['couldHaveBytes']);
  return refusal.code === 'never_fits' && refusal.details['couldHaveBytes'] !== undefined && Number.isSafeInteger(bytes) ? bytes : null;
}

/** What the broker adds its headroom to (D11). */
export function askedBytes({ parts, peakBytes }: Budget): number {
  return Math.max(parts.reduce((sum, { bytes }) => sum + bytes, 0), peakBytes);
}

/** The most layers, fewer than all, for which `fits` says so; with more they need more. The fewest that are allowed when not even those do. */
export async function mostLayers({ fewest, total }: Pick<Offload, 'fewest' | 'total'>, fits: (layers: number) => Promise<boolean>): Promise<number> {
  let most = fewest;
  let over = total;
  while (over - most > 1) {
    const middle = Math.floor((most + over) / 2);
    if (await fits(middle)) most = middle;
    else over = middle;
  }
  return most;
}
