/** What every rule is given, and how it says that it was broken. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { SimCard } from '../../../src/scenarios/world/card.js';
import type { TruthAtSample } from '../../../src/scenarios/world/probes.js';
import type { Book } from './book.js';

/** The world as it is, whatever anybody reports. */
export interface Truth {
  card(device: string): SimCard;
  /** What was true when that reading was taken. */
  at(device: string, takenAtUs: number): TruthAtSample | null;
}

export interface Violation {
  readonly rule: string;
  readonly text: string;
}

export interface Check {
  readonly book: Book;
  readonly truth: Truth;
  readonly event: CoreEvent;
  readonly effects: readonly Effect[];
  /** The explain records of this step, by id. */
  readonly records: ReadonlyMap<string, ExplainRecord>;
  /** For which request a lease is made to leave in this step: `generation#request`, or null for none. */
  readonly beneficiaries: ReadonlyMap<string, string | null>;
  /** Models (by card) whose worker did not come up in this step. */
  readonly spawnFailures: Set<string>;
  broken(rule: string, text: string): void;
}

export type EffectOf<K extends Effect['type']> = Extract<Effect, { type: K }>;
