/**
 * What the core wants done. Effects are data, imperative, in order; the shell
 * carries them out and whatever comes of them returns as an event. Requests
 * are named by (generation, request): the session that asked and its id.
 */
import type { AdmissionNumbers, RequestClass } from '../../protocol/index.js';
import type { ExplainRecord } from './explain.js';

/** Which worker must end, and why; the supervisor's ladder is SIGTERM, grace, SIGKILL of the tree, confirmation. */
export type TerminateCause =
  | 'idle'
  | 'evicted'
  /** Nobody waits any more for a worker that is still starting. */
  | 'unawaited'
  | 'silent'
  /** It said that it ends, without having been told to. */
  | 'leaving'
  | 'session_lost'
  | 'residue'
  | 'command_failed'
  | 'misbehaved'
  | 'spawn_timeout'
  | 'load_timeout'
  /** It lost its broker, and has not come back or not said what it holds. */
  | 'orphaned'
  | 'card_lost'
  /** It has grown in the machine's memory beyond what is leased, and did not give it back. */
  | 'host_growth'
  | 'shutdown';

export type Effect =
  | { readonly type: 'grant'; readonly generation: string; readonly request: number; readonly lease: string; readonly device: string; readonly chargedBytes: number; readonly keepCopy: boolean | null; readonly also?: readonly { readonly lease: string; readonly chargedBytes: number }[]; readonly explain: string | null }
  | {
      readonly type: 'deny';
      readonly generation: string;
      readonly request: number;
      readonly code: string;
      readonly details: Readonly<Record<string, string>>;
      readonly numbers: AdmissionNumbers | null;
      readonly couldHaveBytes: number | null;
      readonly roomElsewhere: readonly string[];
      readonly retryAfterMs: number | null;
      readonly explain: string | null;
    }
  | { readonly type: 'wait'; readonly generation: string; readonly request: number; readonly position: number; readonly reason: string; readonly explain: string | null }
  | { readonly type: 'placed'; readonly generation: string; readonly request: number; readonly worker: string; readonly devices: readonly string[]; readonly explain: string | null }
  /** An answer that carries nothing (residency, pin), sent after the ledger has taken the change in. */
  | { readonly type: 'acknowledge'; readonly generation: string; readonly request: number }
  | { readonly type: 'fail'; readonly generation: string; readonly request: number | null; readonly code: string; readonly details: Readonly<Record<string, string>> }
  /** A holder is told that its lease is none to use any more; its bytes stay charged until they are seen gone. */
  | { readonly type: 'lease_quarantined'; readonly generation: string; readonly lease: string; readonly bytes: number; readonly reason: string }
  | { readonly type: 'report_evicted'; readonly generation: string; readonly request: number; readonly freedBytes: number }
  | { readonly type: 'spawn'; readonly generation: string; readonly engine: string; readonly devices: readonly string[] }
  | { readonly type: 'terminate'; readonly generation: string; readonly cause: TerminateCause; readonly graceMs: number }
  | {
      readonly type: 'move';
      readonly generation: string;
      readonly command: number;
      readonly lease: string;
      readonly model: string;
      readonly target: 'host' | 'none' | 'device';
      readonly device: string | null;
      /** Null: all of it. */
      readonly bytes: number | null;
      readonly when: 'now' | 'drained';
      readonly waiterSinceUs: number | null;
      readonly expiresMs: number;
      readonly reason: string;
    }
  | { readonly type: 'trim_host'; readonly generation: string; readonly command: number; readonly lease: string; readonly model: string; readonly bytes: number | null; readonly expiresMs: number }
  | { readonly type: 'cancel_command'; readonly generation: string; readonly command: number }
  | { readonly type: 'recall'; readonly generation: string; readonly command: number; readonly lease: string }
  /** Ask a worker for everything it holds; the answer is `models_announced`. */
  | { readonly type: 'list_models'; readonly generation: string; readonly command: number }
  /** A reading of this card taken not before that moment is waited for; single flight a card. */
  | { readonly type: 'sample'; readonly device: string; readonly notBeforeUs: number }
  | { readonly type: 'explain'; readonly record: ExplainRecord }
  | { readonly type: 'publish'; readonly name: PublishedName; readonly data: Readonly<Record<string, string | number | boolean | null>> };

/** What subscribers can hear of. */
export type PublishedName =
  | 'granted'
  | 'denied'
  | 'waiting'
  | 'placed'
  | 'spawned'
  | 'process_ready'
  | 'process_ended'
  | 'process_suspect'
  | 'process_recorded'
  | 'process_reattached'
  | 'card_closed'
  | 'card_opened'
  | 'loaded'
  | 'residency_changed'
  | 'evicting'
  | 'evicted'
  | 'eviction_failed'
  | 'leaving_slowly'
  | 'released'
  | 'overshoot'
  | 'residue'
  | 'quarantined'
  | 'misplaced'
  | 'card_lost'
  | 'card_regained'
  | 'sample_lost'
  | 'sample_regained'
  | 'foreign_changed'
  | 'yielded'
  | 'host_growth'
  | 'backing_off'
  | 'thrashing'
  | 'thrash_ended';

export type EffectType = Effect['type'];
export type { RequestClass };
