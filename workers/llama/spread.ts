/** A model over several simulated cards: the engine computes on the CPU, and what it holds is counted on each in the shares of its split. */
import type { Estimate } from '../runtime/engine.js';
import { readShares, shareOf } from '../runtime/shares.js';
import type { StartedLlama } from './started.js';

/** The cards over which models of this process are spread, in the order of their UUIDs; empty where it has but one. */
export function spreadOver({ card, context }: Pick<StartedLlama, 'card' | 'context'>): readonly string[] {
  if (card?.simulated !== true) return [];
  const devices = context.cards.filter(({ simulated }) => simulated).map(({ device }) => device).sort();
  return devices.length > 1 ? devices : [];
}

/** With each card’s share of it, where there are several. */
export function spreadEstimate(estimate: Estimate, started: StartedLlama, split: string | null): Estimate {
  const { length } = spreadOver(started);
  if (length === 0) return estimate;
  const shares = readShares(split, length, 'options.tensorSplit');
  return {
    ...estimate,
    cards: shares.map((_, index) => ({
      parts: estimate.parts.map((part) => ({ ...part, bytes: shareOf(part.bytes, shares, index) })),
      contextBytes: (tokens) => shareOf(estimate.contextBytes(tokens), shares, index),
      peakBytes: shareOf(estimate.peakBytes, shares, index),
    })),
  };
}
