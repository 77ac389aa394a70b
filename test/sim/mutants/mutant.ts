/** One planted fault. */
import type { Replacement } from './load.js';

export interface Mutant extends Replacement {
  readonly name: string;
  /** What it does, for when it survives. */
  readonly about: string;
  /** The test of the core (`test/broker/core/NAME.test.ts`) that plays the rare moment which it takes: seeds would have to be sought anew with every change of the world. */
  readonly pinnedBy?: string;
}
