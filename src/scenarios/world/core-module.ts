/** The core as the simulator uses it: the real one, or a copy with a fault planted in it. */
import type { Effect } from '../../../broker/core/effects.js';
import type { CoreEvent } from '../../../broker/core/events.js';
import type { CoreOptions } from '../../../broker/core/options.js';
import type { LedgerView } from '../../../broker/core/view.js';

/** The core's private state: handed back to it, never looked into. */
export type Core = unknown;

export interface CoreModule {
  createCore(options: CoreOptions): Core;
  step(core: Core, event: CoreEvent): readonly Effect[];
  /** The whole check; throws, or names what is broken. */
  checkInvariants(core: Core): unknown;
  ledgerView(core: Core, atUs: number): LedgerView;
  snapshot(core: Core): unknown;
  /** What is charged for a process before any model, as it is put on record. */
  floorsOf(core: Core, generation: string): readonly { readonly device: string; readonly bytes: number }[];
  /** Whether a process has anything to be put on record for. */
  mayHold(core: Core, generation: string): boolean;
}

type WithoutTime<T> = T extends { readonly atUs: number } ? Omit<T, 'atUs'> : never;
/** An event before the shell has put its moment on it. */
export type Happening = WithoutTime<CoreEvent>;
type WithoutGeneration<T> = T extends { readonly generation: string } ? Omit<T, 'generation'> : never;
/** What a peer says; its connection knows whose it is. */
export type Saying = WithoutGeneration<Happening>;
