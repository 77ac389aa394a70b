/** One planted fault. */
import type { Replacement } from './load.js';

export interface Mutant extends Replacement {
  readonly name: string;
  /** What it does, for when it survives. */
  readonly about: string;
}
