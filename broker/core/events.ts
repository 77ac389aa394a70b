/**
 * Everything that can happen to the broker's core. Names are past facts; each
 * carries the moment the shell took it in, on CLOCK_MONOTONIC in microseconds.
 * Values have been checked against the wire schema, but their senders are not
 * believed: a report is a claim, a sample is a measurement, an exit is a fact.
 */
import type {
  HostNeed, LeasePart, ModelPolicy, ModelState, RequestClass, ResidencyState, TruthSource,
} from '../../protocol/index.js';

/** A card's kind decides its default reserve and what may be believed. `cpu` is where 0-byte leases live (D18); `host` is the machine's memory, the second ledger (memory/share.ts). */
export type CardKind = 'gpu' | 'simulated' | 'cpu' | 'host';

/** How a release can be seen: by the process's own figure, by the card's total in a quiet interval, or not at all. */
export type Confirmation = 'process' | 'total' | 'none';

/** Why a reading is missing. Unknown, zero, not supported and failed are four different things. */
export type MissingReading = 'unknown' | 'unsupported' | 'failed' | 'timed_out';

/** A process's bytes on one card, as the driver (or the simulated card) says. */
export interface ProcessReading {
  readonly generation: string;
  readonly usedBytes: number;
}

/** A process that is not ours, and what it has on the card. */
export interface StrangerReading {
  readonly pid: number;
  readonly usedBytes: number;
}

/** A process's bytes that the driver keeps in host memory for want of room on the card: allocated, and not fitted (B113). */
export interface SpillReading {
  readonly generation: string;
  readonly spilledBytes: number;
}

export interface EngineCapabilities {
  readonly park: boolean;
  readonly partial: boolean;
  readonly embed: boolean;
  readonly profilesFreeMemory: boolean;
}

/** What a worker or holder answered to a command; the wire's answers, in the core's words. */
export type CommandAnswer =
  | { readonly kind: 'done'; readonly target: 'host' | 'none' | 'device'; readonly freedBytes: number; readonly residentBytes: number; readonly hostBytes: number }
  | { readonly kind: 'draining'; readonly inFlight: number }
  | { readonly kind: 'busy'; readonly inFlight: number }
  | { readonly kind: 'unsupported'; readonly message: string }
  /** `code` is `command_expired`, `request_cancelled`, `generation_stale`, `lease_unknown` or `move_failed`. */
  | { readonly kind: 'failed'; readonly code: string; readonly message: string; readonly residentBytes: number | null };

/** The parts of one lease as they are to be: by name; 0 bytes drop one. */
export interface LeaseChange {
  readonly lease: string;
  readonly parts: readonly LeasePart[];
}

type Happening =
  // ── Cards ────────────────────────────────────────────────────────────────
  | {
      readonly type: 'card_added';
      readonly device: string;
      readonly name: string;
      readonly kind: CardKind;
      readonly totalBytes: number;
      readonly reserveBytes: number;
      readonly confirms: Confirmation;
      /** What one process costs there before it has said so itself; null: nothing is known. */
      readonly floorBytes: number | null;
      /** Its memory is the machine's: nothing is gained by moving a model from one to the other. */
      readonly unified?: boolean;
      /** Made free for programs that are not ours when they take more, beside the reserve; left out or null: nothing is given up for them. */
      readonly yieldFreeBytes?: number | null;
    }
  | { readonly type: 'card_lost'; readonly device: string; readonly reason: string }
  | {
      readonly type: 'sampled';
      readonly device: string;
      /** When the reading was taken; what counts is this, not `atUs` (sample epochs). */
      readonly takenAtUs: number;
      readonly usedBytes: number;
      readonly totalBytes: number;
      readonly truth: TruthSource;
      /** Null where the driver has no per-process figures. Processes unknown to us are left out: they are foreign. */
      readonly processes: readonly ProcessReading[] | null;
      /** The largest of those by their pids, where the driver has them: for people alone. */
      readonly strangers?: readonly StrangerReading[];
      /** Absent where the driver never spills, or does not say. Processes that it does not name have spilled nothing. */
      readonly spilled?: readonly SpillReading[];
    }
  | { readonly type: 'sample_failed'; readonly device: string; readonly reading: MissingReading; readonly reason: string }
  // ── Processes and sessions ───────────────────────────────────────────────
  /** A holder or client attached (workers are spawned by the core's own effect). */
  | { readonly type: 'session_opened'; readonly generation: string; readonly role: 'holder' | 'client'; readonly name: string }
  /** End of file. For a client: it is gone. For holders and workers: not yet an exit (D7). */
  | { readonly type: 'session_closed'; readonly generation: string; readonly reason: string }
  | {
      readonly type: 'process_ready';
      readonly generation: string;
      readonly capabilities: EngineCapabilities;
      /** Floors it measured itself, by card. */
      readonly floors: readonly { readonly device: string; readonly bytes: number }[];
    }
  /** A process that an earlier broker started or served lives on, says its record. Until it has come back and said what it holds, or is gone, its cards are closed to grants. */
  | {
      readonly type: 'process_recorded';
      readonly generation: string;
      readonly role: 'worker' | 'holder';
      readonly name: string;
      /** Null for a holder. */
      readonly engine: string | null;
      /** The cards that it may have taken bytes on. */
      readonly devices: readonly string[];
      /** What was charged for it there before any model. */
      readonly floors: readonly { readonly device: string; readonly bytes: number }[];
    }
  /** The connection of a process in the ledger is back, to this broker or from an earlier one. A worker's `process_ready` follows. */
  | { readonly type: 'process_resumed'; readonly generation: string }
  | { readonly type: 'spawn_failed'; readonly generation: string; readonly code: string; readonly reason: string }
  | { readonly type: 'heartbeat'; readonly generation: string; readonly reserved: readonly { readonly device: string; readonly bytes: number }[] }
  | { readonly type: 'floor_measured'; readonly generation: string; readonly device: string; readonly bytes: number }
  /** A worker ends by itself; it takes nothing any more. Its exit is still to come. */
  | { readonly type: 'process_ending'; readonly generation: string; readonly reason: string }
  /** Confirmed: pid and start time are gone. The only thing, besides a measurement, that frees. */
  | {
      readonly type: 'process_exited';
      readonly generation: string;
      readonly how: string;
      /** It ended itself because its engine hung. */
      readonly engineHung?: boolean;
    }
  /** SIGKILL was sent and no end could be confirmed within killConfirmMs. */
  | { readonly type: 'kill_unconfirmed'; readonly generation: string; readonly reason: string }
  // ── Requests ─────────────────────────────────────────────────────────────
  | {
      readonly type: 'place_requested';
      readonly generation: string;
      readonly request: number;
      readonly model: string;
      readonly engine: string;
      readonly estimateBytes: number | null;
      readonly class: RequestClass;
      readonly deadlineMs: number;
      readonly ageMs: number;
      readonly device: string | null;
      /** The cards that it may use; left out: `device`, or any. */
      readonly devices?: readonly string[];
      /** Over how many of them; left out: one. */
      readonly cards?: number;
      readonly policy: ModelPolicy;
    }
  | {
      readonly type: 'budget_requested';
      readonly generation: string;
      /** Again while it is open: only raises class and deadline (D2). Again after its answer: it crossed that answer on the wire, and is ignored (D3). */
      readonly request: number;
      readonly model: string;
      readonly device: string;
      /** Null: a new lease; else the lease these parts extend, by name. A parked lease kept no parts on the card: it begins anew with these. */
      readonly lease: string | null;
      readonly parts: readonly LeasePart[];
      readonly peakBytes: number;
      readonly class: RequestClass;
      readonly deadlineMs: number;
      readonly ageMs: number;
      readonly parkable: boolean;
      /** Left out: nothing of the machine's memory, or what was said before of the lease that it extends. */
      readonly host?: HostNeed;
      readonly profilesFreeMemory: boolean;
      readonly source: 'estimated' | 'declared' | 'learned' | 'measured';
      readonly policy: ModelPolicy;
      readonly gang: { readonly gang: string; readonly size: number } | null;
    }
  | { readonly type: 'request_cancelled'; readonly generation: string; readonly request: number }
  | { readonly type: 'evict_requested'; readonly generation: string; readonly request: number; readonly model: string; readonly target: 'host' | 'none'; readonly deadlineMs: number }
  | { readonly type: 'pin_requested'; readonly generation: string; readonly request: number; readonly model: string; readonly pinned: boolean }
  // ── Leases ───────────────────────────────────────────────────────────────
  | { readonly type: 'load_begun'; readonly generation: string; readonly lease: string }
  | { readonly type: 'recall_answered'; readonly generation: string; readonly command: number; readonly lease: string; readonly begun: boolean }
  | {
      readonly type: 'residency_reported';
      readonly generation: string;
      readonly request: number;
      readonly lease: string;
      readonly model: string;
      readonly seq: number;
      readonly state: ResidencyState;
      readonly residentBytes: number;
      readonly hostBytes: number;
      readonly parts: readonly LeasePart[] | null;
      readonly loadMs: number | null;
      /** The first of its figures that could not be: all of them have been cut down. The door of the core adds it (ledger/claims.ts). */
      readonly refused?: RefusedFigure;
    }
  | { readonly type: 'use_reported'; readonly generation: string; readonly lease: string; readonly seq: number; readonly inFlight: number; readonly queued: number }
  | { readonly type: 'resize_requested'; readonly generation: string; readonly request: number; readonly lease: string; readonly parts: readonly LeasePart[]; readonly also?: readonly LeaseChange[] }
  | {
      readonly type: 'lease_released';
      readonly generation: string;
      readonly lease: string;
      readonly cause: 'unused' | 'unloaded' | 'load_failed' | 'cancelled' | 'refused';
      readonly failure: { readonly code: string; readonly message: string } | null;
    }
  | { readonly type: 'command_answered'; readonly generation: string; readonly command: number; readonly answer: CommandAnswer }
  /** A full announcement (list_models): reconciled with the ledger; what it lacks is released, not freed. */
  | { readonly type: 'models_announced'; readonly generation: string; readonly seq: number; readonly models: readonly ModelState[] }
  // ── Time ─────────────────────────────────────────────────────────────────
  /** The shell has polled all its sockets and looked at the clock. Deadlines are judged here alone. */
  | { readonly type: 'ticked' };

/** A figure that no card, or no machine, could hold, and the most that it could be. */
export interface RefusedFigure {
  readonly field: string;
  readonly bytes: number;
  readonly mostBytes: number;
}

export type CoreEvent = { readonly atUs: number } & Happening;
export type CoreEventType = CoreEvent['type'];
