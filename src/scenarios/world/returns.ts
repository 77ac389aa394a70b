/** How long a broker is away, who comes back to the next one and when, and what that says falsely. Draws of its own: without restarts a seed is as it was. */
import type { ModelState } from '../../../protocol/index.js';
import { Prng } from './prng.js';

export class Returns {
  private readonly random: Prng;
  private readonly claims: Prng;

  constructor(seed: number) {
    this.random = new Prng(seed, 'returns');
    this.claims = new Prng(seed, 'claims of others');
  }

  claimsOthers(share: number): boolean {
    return this.claims.chance(share);
  }

  oneOf<T>(items: readonly T[]): T {
    return this.claims.pick(items);
  }

  /** What is held, and a lease of another beside it, or its name for what is held. */
  withClaim(held: readonly ModelState[], claim: ModelState, devices: readonly string[]): readonly ModelState[] {
    const [first, ...rest] = held;
    if (first !== undefined && this.claims.chance(0.3)) return [{ ...first, lease: claim.lease }, ...rest];
    return [...held, { ...claim, device: this.claims.pick(devices), state: this.claims.pick(['loading', 'parked', 'resident']), residentBytes: 0, hostBytes: 0, inFlight: 0 }];
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
