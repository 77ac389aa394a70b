/** Readings that a driver gives and that are not so: more than there is, more for one process than there is, less than is there. */
import type { ProcessReading } from '../../../broker/core/events.js';
import { Prng } from './prng.js';

/** As the driver says it. */
export interface Shown {
  readonly usedBytes: number;
  readonly processes: readonly ProcessReading[] | null;
}

/** Draws of its own: where there are none a seed is as it was. */
export class WildReadings {
  private readonly random: Prng;

  constructor(seed: number) {
    this.random = new Prng(seed, 'wild readings');
  }

  /** A true reading, or now and then another. Of the machine's memory, where nobody adds processes up, none is too little. */
  shown(isTrue: Shown, totalBytes: number, share: number, isMemory: boolean): Shown {
    const { random } = this;
    if (!random.chance(share)) return isTrue;
    const beyondBytes = totalBytes + random.pick([1, totalBytes, 2 ** 40]);
    const { usedBytes, processes } = isTrue;
    switch (random.pick(['above', 'process', 'below'] as const)) {
      case 'above': return { usedBytes: beyondBytes, processes };
      case 'process': return { usedBytes, processes: processes?.map((reading, index) => (index === 0 ? { ...reading, usedBytes: beyondBytes } : reading)) ?? null };
      case 'below': return { usedBytes: isMemory ? usedBytes : Math.floor(usedBytes * random.pick([0, 0.5, 0.95])), processes };
    }
  }
}

/** What a reading keeps from who knows at least that all of a card is no less than what its processes have. */
export function hiddenBytes(truthBytes: number, { usedBytes, processes }: Shown): number {
  const listedBytes = processes?.reduce((sum, reading) => sum + reading.usedBytes, 0) ?? 0;
  return Math.max(0, truthBytes - Math.max(usedBytes, listedBytes));
}
