/** What the inhabitants of the world may use of it. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { ModelState } from '../../../protocol/index.js';
import type { FreeLag, SimCard } from './card.js';
import type { Happening } from './core-module.js';
import type { Faults } from './faults.js';
import type { Knobs, ModelKnobs } from './knobs.js';
import type { Prng } from './prng.js';
import type { Returns } from './returns.js';
import type { Scheduler } from './scheduler.js';

/** What a process tells its broker of one lease. */
export type HeldState = ModelState & { readonly lease: string };

/** One that effects can be addressed to. */
export interface Peer {
  readonly generation: string;
  receive(effect: Effect): void;
  /** The broker is gone, or the connection to it. */
  loseBroker(): void;
}

/** A worker, as a client's data plane meets it. */
export interface CallTaker extends Peer {
  take(call: Call): void;
  dropCall(call: Call): void;
}

/** One call of a caller on a model. Ends exactly once. */
export interface Call {
  readonly model: ModelKnobs;
  readonly class: 'interactive' | 'normal' | 'background';
  /** On the core's clock, as it arrived at the worker. */
  arrivedAtUs: number;
  readonly deadlineUs: number;
  readonly durationMs: number;
  /** It needs a context of at least this size; null: the declared one does. */
  readonly contextBytes: number | null;
  /** The first token flowed. */
  onBegun: (() => void) | null;
  onEnd: ((outcome: CallOutcome, code: string | null) => void) | null;
}
export type CallOutcome = 'answered' | 'denied' | 'load_failed' | 'out_of_memory' | 'worker_lost' | 'cancelled' | 'resize_denied';

export interface WorldCounters {
  calls: number;
  answered: number;
  failed: number;
  crashes: number;
  ooms: number;
  memoryShort: number;
  loads: number;
  restarts: number;
  /** Processes that were back with a broker after they had lost one. */
  returned: number;
}

export interface WorldContext {
  readonly scheduler: Scheduler;
  readonly random: Prng;
  readonly knobs: Knobs;
  /** Replaced by none when the faults stop. */
  faults: Faults;
  readonly counters: WorldCounters;
  /** How late freed bytes come back: after a free, and after an exit. */
  lag(after: 'free' | 'exit'): FreeLag;
  card(device: string): SimCard;
  readonly cards: readonly SimCard[];
  /** The machine's memory, where it is leased. */
  readonly memory: SimCard | null;
  /** How late what a process frees there comes back. */
  memoryLag(): FreeLag;
  /** It had no room for an allocation: somebody is killed. */
  onMemoryShort(generation: string, bytes: number): void;
  /** Puts an event on the broker's loop; lost when there is no broker. */
  tell(happening: Happening): void;
  /** What the broker of now finds out later; another finds it out in its own way. */
  tellLater(delayUs: number, happening: Happening): void;
  readonly brokerIsUp: boolean;
  /** Which start of the broker this is, from 1. */
  readonly boot: number;
  /** Whether the broker of now has that name in its ledger. */
  knows(generation: string): boolean;
  readonly returns: Returns;
  /** What some other living process holds, as it would tell of it; null: nobody holds anything. */
  leaseOfAnother(generation: string): HeldState | null;
  /** A load was refused by the card: told to whoever judges whether that may be. */
  readonly onOom: { tell: ((oom: OutOfMemory) => void) | null };
  worker(generation: string): CallTaker | null;
  addPeer(peer: Peer): void;
  dropPeer(generation: string): void;
}

export interface OutOfMemory {
  readonly device: string;
  readonly generation: string;
  readonly model: string;
  readonly lease: string | null;
  readonly wantedBytes: number;
  /** Everything this process would have held with it. */
  readonly heldBytes: number;
  readonly chargedBytes: number;
}

export interface Step {
  readonly event: CoreEvent;
  readonly effects: readonly Effect[];
}
