/// <reference lib="esnext.disposable" preserve="true" />
/** The library's surface. Everything here is safe to keep: changes follow semantic versioning. */
import type { ChatMessage, RequestClass } from '../../protocol/index.js';
import type { ExplainRecord, ExplainedVictim } from '../../broker/core/explain.js';
import type { LeaseView, LedgerView, WaiterView } from '../../broker/core/view.js';
import type { EvictedModel, HeldLease, HoldOptions } from '../client/index.js';

/** A prompt as it is, or a conversation that the model's own chat template renders. */
export type GenerateInput = string | { readonly prompt: string } | { readonly messages: readonly ChatMessage[] };

export interface CallOptions {
  /** Stops the call within 200 ms at any stage; the iterator rejects with `request_cancelled`. */
  readonly signal?: AbortSignal;
  /** Default: the model's. */
  readonly class?: RequestClass;
  /** Longest the whole call may wait for room and its turn, in milliseconds; running calls are never cut. Default 120,000. */
  readonly deadlineMs?: number;
  /** What the call is waiting for or doing, as it changes; progress in steps of 0.05 at least. */
  readonly onStage?: (stage: Stage) => void;
}

export interface GenerateOptions extends CallOptions {
  /** Default 512. */
  readonly maxTokens?: number;
  /** Default 0: greedy. */
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repeatPenalty?: number;
  /** A bigint, a safe integer or decimal digits, 0 to 2^63 - 1. */
  readonly seed?: bigint | number | string;
  readonly stop?: readonly string[];
  /** The chat template's thinking switch; default: the template's. */
  readonly thinking?: boolean;
}

export interface Stage {
  readonly stage: 'placing' | 'queued' | 'estimating' | 'waiting' | 'loading' | 'resuming' | 'prefill' | 'generating';
  /** 0 to 1; null when it cannot be known. */
  readonly progress: number | null;
  readonly text: string;
  /** The explain record behind a wait, when there is one. */
  readonly explain: string | null;
}

/** One piece of a generated answer. */
export interface Token {
  readonly text: string;
  readonly ids: readonly number[];
  /** True while the model thinks, where its template marks thought. */
  readonly thought: boolean;
}

export interface GenerationResult {
  readonly reason: 'stop' | 'length';
  /** The answer, thought left out. */
  readonly text: string;
  readonly thought: string;
  readonly usage: { readonly promptTokens: number; readonly cachedTokens: number; readonly completionTokens: number; readonly thoughtTokens: number };
  /**
   * Milliseconds, one after the other: until a worker was found, or started, and reached (`placingMs`; tries that were lost
   * are in it); in its queue; the load, as far as it was waited for; the prompt; the answer. Together, what was waited, but
   * for the time in which nobody read.
   */
  readonly timings: { readonly placingMs: number; readonly queuedMs: number; readonly loadMs: number; readonly prefillMs: number; readonly generateMs: number };
  /** The explain record of the grant behind it; null when the model was resident already. */
  readonly explain: string | null;
}

/** A running generation: iterate its tokens once, or wait for the whole. Leaving the loop cancels it. */
export interface Generation extends AsyncIterable<Token> {
  /** Settles when the call ends; consumes the tokens when nobody iterates. */
  result(): Promise<GenerationResult>;
}

/** Room that this process itself will use on a card: `model` and `bytes` (or `parts`), `onEvict`, and what the options below add. */
export interface HostLeaseRequest extends Omit<HoldOptions, 'device' | 'tell'> {
  /** Left out: the card with most room. */
  readonly device?: string;
  /**
   * Default false: what is asked for counts as there as soon as it is granted,
   * so that it can be evicted from then on; `loaded()` may true it up. True:
   * it is still to be loaded, and nobody may evict it until `loaded()` says
   * that it is there.
   */
  readonly loading?: boolean;
}

export interface EvictOptions {
  /** `host` keeps a copy in host RAM where the engine can. Default `none`. */
  readonly target?: 'host' | 'none';
  /** Longest wait for its calls to end, in milliseconds. Default 120,000. */
  readonly deadlineMs?: number;
}

/** What happened, as it happens: grants, waits, evictions, loads, ends of processes. */
export interface LeaseholdEvent {
  readonly name: string;
  readonly atUs: number;
  /** `model` is a key; `name` beside it is what that is called here, and sentences have the names. */
  readonly data: Readonly<Record<string, unknown>>;
  /** Events lost since the last because this reader was too slow. */
  readonly dropped: number;
}

export interface ServedModel {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly key: string;
  readonly engine: string;
  readonly source: string;
  readonly contextTokens: number;
  /** It is being loaded, or was, without anybody asking. */
  readonly preload: boolean;
}

/** What it is called here: the first name given to it; its key when there is none. */
interface Named {
  readonly name: string;
}

/** A record, with names in its sentence and beside each key. */
export type NamedRecord = Omit<ExplainRecord, 'victims'> & { readonly name: string | null; readonly victims: readonly (ExplainedVictim & { readonly name: string | null })[] };

type NamedLedger = Omit<LedgerView, 'leases' | 'waiting'> & { readonly leases: readonly (LeaseView & Named)[]; readonly waiting: readonly (WaiterView & Named)[] };

/** Its event loop was blocked for so long at least, and that ended so long ago; null: not lately. A broker of an earlier version does not say. */
export interface LoopBlocked {
  readonly blockedMs: number;
  readonly agoMs: number;
}

/** The ledger with what the shell knows besides. */
export interface LedgerState extends NamedLedger {
  /** Entries that one answer could not carry: a list that was cut holds its weightiest (most charged first). */
  readonly omitted?: { readonly leases: number; readonly waiting: number; readonly processes: number };
  readonly broker: { readonly pid: number; readonly socket: string; readonly startedMsAgo: number; readonly loopBlocked?: LoopBlocked | null };
  readonly workers: readonly { readonly generation: string; readonly engine: string; readonly pid: number | null; readonly threads: number; readonly loopBlocked?: LoopBlocked | null }[];
  /** Processes that may hold leases: attached, or without their connection and not yet seen gone. */
  readonly holders: readonly { readonly generation: string; readonly pid: number }[];
  /** Simulated cards as they read themselves: `oomRefusals`, `peakUsedBytes`, `usedBytes`. */
  readonly simulatedCards: readonly { readonly device: string; readonly totalBytes: number; readonly usedBytes: number; readonly peakUsedBytes: number; readonly oomRefusals: number }[];
}

export interface Orchestrator {
  /** True when this process owns the broker; false when it is attached to one. With `auto` it may come to own one whose owner has gone. */
  readonly ownsBroker: boolean;
  readonly socketPath: string;
  readonly models: readonly ServedModel[];
  /** Places the model, loads it if need be, and streams. Retries once on another worker when no token had been sent. */
  generate(model: string, input: GenerateInput, options?: GenerateOptions): Generation;
  /** Vectors for texts, from an embedding model. */
  embed(model: string, inputs: readonly string[], options?: CallOptions): Promise<{ readonly vectors: readonly (readonly number[])[]; readonly promptTokens: number }>;
  /** How many tokens the input has, by the model's own tokenizer (loads it if need be). */
  countTokens(model: string, input: GenerateInput, options?: CallOptions): Promise<number>;
  /** Makes it resident. */
  load(model: string, options?: CallOptions): Promise<void>;
  /** Frees its card bytes once its calls have ended; resolves to bytes confirmed free. */
  evict(model: string, options?: EvictOptions): Promise<number>;
  /** The same of every model in the ledger, whoever holds it. Pinned models, and those in use until the deadline, stay and are told with why. */
  evictAll(options?: EvictOptions): Promise<readonly EvictedModel[]>;
  /** Never, or with `false` no longer never, a model that makes room for another. What is in the ledger and not in our catalogue, such as a lease of a holder, is named by its key, here as in `evict` and `explain`. */
  pin(model: string, pinned?: boolean): Promise<void>;
  /**
   * Leases bytes for this process itself; they count as there once it resolves, unless the request says `loading`. Each
   * call is a lease of its own: two of one name are both charged, and neither is put away for the other.
   */
  lease(request: HostLeaseRequest): Promise<HeldLease>;
  ledger(): Promise<LedgerState>;
  /** Why: by explain id or model name; the latest when left out. Newest first. */
  explain(about?: string, count?: number): Promise<readonly NamedRecord[]>;
  /** Every loop over it hears all events from its first step on, and ends when the orchestrator closes or the loop is left. */
  events(): AsyncIterable<LeaseholdEvent>;
  /**
   * Ends calls, workers (when owned) and every child. Idempotent. Until then an orchestrator that owns its broker keeps
   * the process, as a server does; one that is attached keeps it only while a call, a lease or a loop over events is open.
   */
  close(options?: CloseOptions): Promise<void>;
  /** `await using leasehold = await createOrchestrator()` closes it at the end of the block, where the runtime knows `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface CloseOptions {
  /** When it aborts, nobody is waited for any more: calls are cut, and the workers of an owned broker are killed with all of their children. */
  readonly hurry?: AbortSignal;
}
