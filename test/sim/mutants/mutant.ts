/** One planted fault. */
import type { Replacement } from './load.js';

export interface Mutant extends Replacement {
  readonly name: string;
  /** What it does, for when it survives. */
  readonly about: string;
  /** A seed in which it shows, tried first, for faults that need a rare moment. */
  readonly shows?: { readonly seed: number; readonly steps: number };
}
