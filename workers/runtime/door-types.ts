/**
 * One model's door, in types: what stands at it, what can happen to it, and
 * what it wants done. No I/O, no clock: times come with the events.
 */

/** A call as the door sees it. It holds a reference from its arrival to its end, in the queue or inside (B74). */
export interface DoorCall {
  readonly id: number;
  readonly arrivedAtUs: number;
  /** `slot`: runs alone on a context of at least `tokens`. `model`: only needs the model to be resident. */
  readonly needs: 'slot' | 'model';
  readonly tokens: number;
  /** Calls with equal ones begin with the same text: what a context has computed for one serves the next. Null: nothing to go by. */
  readonly topic?: string | null;
}

/** A context that is open. `retiring`: takes no new call, because a larger one is to come in its place. */
export interface Slot {
  readonly name: string;
  readonly tokens: number;
  call: number | null;
  /** Of its last call. */
  topic: string | null;
  retiring: boolean;
}

/** The context that a load or a return to the card opens with the model. */
export interface FirstContext {
  readonly name: string;
  readonly tokens: number;
}

/** A `model_to_device` of the broker, as it reached us. */
export interface DoorCommand {
  readonly id: number;
  readonly lease: string;
  readonly target: 'host' | 'none' | 'device';
  /** Null: all of it. */
  readonly bytes: number | null;
  readonly when: 'now' | 'drained';
  /** Queued calls older than this may still start (D20). Null: those queued at receipt. */
  readonly waiterSinceUs: number | null;
  /** Not begun by then: not begun at all (B193). */
  readonly expiresAtUs: number;
}

/** Where the model is. Bytes are held only in states that name a lease. */
export type Residency =
  | { readonly kind: 'absent' }
  | { readonly kind: 'loading'; readonly phase: 'asking'; readonly attempt: 1 | 2; readonly context: FirstContext }
  | { readonly kind: 'loading'; readonly phase: 'taking' | 'aborting'; readonly attempt: 1 | 2; readonly lease: string; readonly context: FirstContext }
  | { readonly kind: 'resident'; readonly lease: string }
  /** Bytes leave the card: all of them (`whole`), or a part while the model stays. */
  | { readonly kind: 'parking'; readonly lease: string; readonly whole: boolean }
  | { readonly kind: 'parked'; readonly lease: string }
  | { readonly kind: 'resuming'; readonly phase: 'asking' | 'moving'; readonly attempt: 1 | 2; readonly lease: string; readonly context: FirstContext }
  /** `stuck`: an unload failed; calls are refused, and the next command tries again. */
  | { readonly kind: 'unloading'; readonly lease: string; readonly stuck: boolean };

/** A further, or larger, context on its way. One at a time. */
export type Growing =
  | { readonly phase: 'retiring'; readonly slots: readonly string[]; readonly tokens: number }
  /**
   * `required`: no open context could ever serve the call; else the call may as well wait for a free one. `replaces`:
   * contexts, idle by now, that go when it has been granted and not before: one that is refused has cost nothing.
   */
  | { readonly phase: 'asking'; readonly name: string; readonly tokens: number; readonly required: boolean; readonly withdrawn: boolean; readonly replaces: readonly string[] };

/** The command at the door. While it drains, only `eligible` calls may still begin. */
export type Underway =
  | { readonly phase: 'draining'; readonly command: DoorCommand; readonly eligible: Set<number> }
  | { readonly phase: 'moving'; readonly command: DoorCommand };

export interface DoorOptions {
  readonly drainBatchMax: number;
  readonly queuedCallsMax: number;
  /** How soon a call that found no place may be sent again. */
  readonly retryAfterMs: number;
  /** A call waits so long for a free context before a further one is asked for: asking may cost another model its place. */
  readonly growAfterUs: number;
  /** Pause between two requests for a further context that was refused. */
  readonly growPauseUs: number;
}

/** One door. Changed in place by `stepDoor` and by nothing else. */
export interface Door {
  readonly options: DoorOptions;
  residency: Residency;
  /** Arrived and not begun, oldest first. */
  queue: DoorCall[];
  /** Begun and not ended: the call, and the slot it runs on. A set of ids, never a counter (B80). */
  readonly begun: Map<number, string | null>;
  slots: Slot[];
  growing: Growing | null;
  growNotBeforeUs: number;
  underway: Underway | null;
  /** Commands that came while another was underway, oldest first. */
  readonly later: DoorCommand[];
  /** Contexts at most; the model's `parallel`. */
  parallel: number;
  /** Tokens that the latest call's context has: what a return without a waiting call opens. */
  contextTokens: number;
  parkable: boolean;
  partial: boolean;
  contextsNamed: number;
  /** Shutting down: no call is taken, the model leaves as soon as it can. */
  closed: boolean;
}

/** Why something did not work: a code of the error table and its details. */
export interface Failure {
  readonly code: string;
  readonly details: Readonly<Record<string, string | number | null>>;
}

type Happening =
  | { readonly type: 'call_arrived'; readonly call: DoorCall; readonly parallel: number }
  /** Its caller left. A begun call still has to end. */
  | { readonly type: 'call_cancelled'; readonly call: number }
  | { readonly type: 'call_ended'; readonly call: number }
  | { readonly type: 'load_granted'; readonly lease: string }
  /** Refused, or the size could not be estimated: the request is over. */
  | { readonly type: 'load_denied'; readonly failure: Failure }
  | { readonly type: 'load_done'; readonly parkable: boolean; readonly partial: boolean; readonly slots: readonly FirstContext[] }
  /** Everything was given back. `freedBytes`: what had been taken by then. */
  | { readonly type: 'load_failed'; readonly failure: Failure; readonly freedBytes: number; readonly hostBytes: number }
  | { readonly type: 'move_done'; readonly freedBytes: number; readonly residentBytes: number; readonly hostBytes: number; readonly slots: readonly FirstContext[] }
  /** `left`: what the engine says the model is now. */
  | { readonly type: 'move_failed'; readonly failure: Failure; readonly residentBytes: number; readonly left: 'resident' | 'parked' | 'stuck'; readonly slots: readonly FirstContext[] }
  | { readonly type: 'context_opened'; readonly name: string; readonly tokens: number }
  /** `closed`: those it was to replace that are gone nevertheless, because it failed after they were closed. */
  | { readonly type: 'context_refused'; readonly failure: Failure; readonly closed: readonly string[] }
  | { readonly type: 'command_arrived'; readonly command: DoorCommand }
  | { readonly type: 'command_cancelled'; readonly command: number }
  | { readonly type: 'ticked' }
  | { readonly type: 'closed' };

export type DoorEvent = { readonly atUs: number } & Happening;

export type DoorAnswer =
  | { readonly kind: 'draining'; readonly inFlight: number }
  | { readonly kind: 'busy'; readonly inFlight: number }
  | { readonly kind: 'unsupported'; readonly reason: string }
  | { readonly kind: 'failed'; readonly failure: Failure; readonly residentBytes: number | null }
  | { readonly kind: 'done'; readonly target: 'host' | 'none' | 'device'; readonly freedBytes: number; readonly residentBytes: number; readonly hostBytes: number }
  /** Nothing to do: it is where the command wants it. The caller of the door knows the bytes. */
  | { readonly kind: 'already'; readonly target: 'host' | 'none' | 'device' };

/** What the door wants done, in order. */
export type DoorAction =
  /** Estimate and request room: a new lease (null), or the card bytes of a parked one. */
  | { readonly type: 'ask'; readonly lease: string | null; readonly attempt: 1 | 2; readonly context: FirstContext }
  | { readonly type: 'withdraw' }
  | { readonly type: 'load'; readonly lease: string; readonly context: FirstContext }
  | { readonly type: 'abort_load' }
  | { readonly type: 'begin'; readonly call: number; readonly slot: string | null }
  | { readonly type: 'fail'; readonly calls: readonly number[]; readonly failure: Failure }
  | { readonly type: 'answer'; readonly command: DoorCommand; readonly answer: DoorAnswer }
  /** Contexts are closed first for a whole park and an unload; `context` is opened after a return. */
  | { readonly type: 'move'; readonly target: 'host' | 'none' | 'device'; readonly bytes: number | null; readonly lease: string; readonly context: FirstContext | null }
  | { readonly type: 'release'; readonly lease: string; readonly cause: 'unused' | 'unloaded' | 'load_failed' | 'cancelled' | 'refused'; readonly failure: Failure | null }
  | { readonly type: 'ask_context'; readonly lease: string; readonly name: string; readonly tokens: number; readonly required: boolean; readonly replaces: readonly string[] }
  | { readonly type: 'withdraw_context' };
