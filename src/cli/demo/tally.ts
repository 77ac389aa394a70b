/** What the demo counts, from the broker's events and from the answers. */
import type { LeaseholdEvent } from '../../orchestrator/types.js';

/** Hand-offs: from the first order to put a model away until the one that waited has its grant. */
export class HandOffs {
  readonly #evictingSinceUs = new Map<string, number>();
  readonly #byModelMs = new Map<string, number[]>();
  readonly #evictedByModel = new Map<string, number>();
  readonly #grantedByModel = new Map<string, number>();

  /** Takes in an event of the broker; those of no interest are ignored. */
  take({ name, atUs, data }: LeaseholdEvent): void {
    const { device, model } = data;
    if (typeof device !== 'string' || typeof model !== 'string') return;
    if (name === 'evicting' && !this.#evictingSinceUs.has(device)) this.#evictingSinceUs.set(device, atUs);
    if (name === 'evicted') this.#evictedByModel.set(model, (this.#evictedByModel.get(model) ?? 0) + 1);
    if (name === 'granted') this.#granted(device, model, atUs);
  }

  /** Milliseconds of each hand-off to this model, by its key. */
  of(key: string): readonly number[] {
    return this.#byModelMs.get(key) ?? [];
  }

  evictionsOf(key: string): number {
    return this.#evictedByModel.get(key) ?? 0;
  }

  grantsOf(key: string): number {
    return this.#grantedByModel.get(key) ?? 0;
  }

  #granted(device: string, model: string, atUs: number): void {
    this.#grantedByModel.set(model, this.grantsOf(model) + 1);
    const sinceUs = this.#evictingSinceUs.get(device);
    if (sinceUs === undefined) return;
    this.#evictingSinceUs.delete(device);
    this.#byModelMs.set(model, [...this.of(model), (atUs - sinceUs) / 1000]);
  }
}

export interface AnswerTally {
  requests: number;
  answered: number;
  right: number;
  tokens: number;
}

/** The middle of some numbers; null when there are none. */
export function median(numbers: readonly number[]): number | null {
  const sorted = [...numbers].sort((left, right) => left - right);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle];
  if (upper === undefined) return null;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? upper)) / 2;
}
