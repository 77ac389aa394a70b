/** How long a broker is away, and who comes back to the next one, and when. Draws of its own: without restarts a seed is as it was. */
import { Prng } from './prng.js';

export class Returns {
  private readonly random: Prng;

  constructor(seed: number) {
    this.random = new Prng(seed, 'returns');
  }

  /** Mostly started again within seconds; now and then nobody has waited so long. */
  downMs(graceMs: number): number {
    const { random } = this;
    return random.chance(0.1) ? graceMs + random.int(1, 5_000) : random.int(5, 5_000);
  }

  /** Until a process looks for its broker for the first time. */
  firstLookMs(): number {
    return this.random.chance(0.2) ? this.random.int(2, 4_000) : this.random.int(2, 200);
  }

  isLost(share: number): boolean {
    return this.random.chance(share);
  }

  /** Until a program that has given its broker up ends. */
  endsAfterMs(): number {
    return this.random.int(100, 60_000);
  }
}
