/**
 * What the runtime asks of an engine. The runtime owns leases, residency,
 * doors, queues, credits and the wire; an engine only estimates, loads, runs
 * and frees, and says honestly what it measured.
 */
import type { ChatMessage, LeasePart, ModelSpec } from '../../protocol/index.js';

export interface EngineCapabilities {
  readonly park: boolean;
  readonly partial: boolean;
  readonly embed: boolean;
  readonly profilesFreeMemory: boolean;
  /** It can spread a model over all the cards that its process sees. Left out: it cannot. */
  readonly spread?: boolean;
}

/** A card this process may use. Simulated cards are allocated through `CardAllocator`. */
export interface VisibleCard {
  readonly device: string;
  readonly name: string;
  readonly totalBytes: number | null;
  readonly simulated: boolean;
}

/** The machine's memory, where it is leased. A simulated one is allocated through `CardAllocator` too. */
export interface VisibleMemory {
  readonly device: string;
  readonly totalBytes: number;
  readonly simulated: boolean;
}

/** Bytes on a simulated card: `allocate` rejects with `out_of_memory` as a driver would. */
export interface CardAllocator {
  allocate(device: string, bytes: number): Promise<CardAllocation>;
}
export interface CardAllocation {
  readonly bytes: number;
  free(): Promise<void>;
}

/** Cards as the broker sees them, which is no process on any of them. Bounded; never rejects. */
export interface CardWatch {
  /** Used bytes of the whole card, by a reading taken after the question; null when it cannot be read. */
  usedBytes(device: string): Promise<number | null>;
  /** Stands for what others hold there: between two equal texts nothing of it has moved. Null: something is moving, or it is not known. */
  neighbours(device: string): Promise<string | null>;
}

export interface EngineContext {
  readonly cards: readonly VisibleCard[];
  /** Left out: it is not leased, and an engine keeps there what it likes. */
  readonly memory?: VisibleMemory;
  /** CPU threads this process may use. */
  readonly threads: number;
  /** What `start` may take, all of it; later the process is ended, and nobody learns why. */
  readonly startTimeoutMs: number;
  readonly allocator: CardAllocator;
  log(level: 'debug' | 'info' | 'warn' | 'error', message: string, fields?: Readonly<Record<string, string>>): void;
  readonly watch: CardWatch;
  /** The process's own cost on a card has been measured anew. */
  reportFloor(device: string, bytes: number): void;
}

/** What a model will need of the machine's memory. */
export interface HostEstimate {
  /** As long as it is loaded, without any context. */
  readonly bytes: number;
  /** What one context of so many tokens adds. Monotonic. */
  contextBytes(tokens: number): number;
  /** A copy that it would like to keep beside what is on the card, so that it can be parked at once; 0: none. */
  readonly copyBytes: number;
  /** Highest total while it loads; 0 when it never exceeds the rest. */
  readonly peakBytes: number;
  /** What parking takes where no copy was kept; null: not known. */
  readonly parkPeakBytes: number | null;
}

/** What a model will need on one card, before a byte of it is there. */
export interface CardEstimate {
  /** `weights`, `compute`, … without any context. */
  readonly parts: readonly LeasePart[];
  /** Bytes of one context of so many tokens. Monotonic. */
  contextBytes(tokens: number): number;
  /** Highest total during a load with its first context; 0 when it never exceeds the sum. */
  readonly peakBytes: number;
}

/** How far a model may be left to the CPU. */
export interface Offload {
  /** At least so many of `total` stay on the card. */
  readonly fewest: number;
  readonly total: number;
  /** The model with so many of them there, to be estimated and loaded. */
  with(layers: number): ModelSpec;
}

/** The figures are those of the whole model; spread over several cards, `cards` are what counts. */
export interface Estimate extends CardEstimate {
  /** One for each card that the process sees, in their order; left out where it sees one. */
  readonly cards?: readonly CardEstimate[] | undefined;
  readonly source: 'estimated' | 'declared' | 'learned' | 'measured';
  readonly parkable: boolean;
  /** Fewer of its layers than these may be on the card, where the operator allows it; left out: all of them or nothing. */
  readonly offload?: Offload;
  /** Left out: nothing to speak of; on the pseudo-card, where every byte is the machine's, all of the above. */
  readonly host?: HostEstimate;
}

export interface GenerateCall {
  readonly messages: readonly ChatMessage[] | null;
  readonly prompt: string | null;
  readonly sampling: {
    readonly maxTokens: number;
    readonly temperature: number;
    readonly topK?: number;
    readonly topP?: number;
    readonly minP?: number;
    readonly repeatPenalty?: number;
    readonly seed?: string;
    readonly stop?: readonly string[];
    readonly thinking?: boolean;
  };
}

export type GenerateEvent =
  | { readonly type: 'prefill'; readonly doneTokens: number; readonly totalTokens: number }
  | { readonly type: 'token'; readonly ids: readonly number[]; readonly text: string; readonly thought: boolean }
  | {
      readonly type: 'end';
      readonly reason: 'stop' | 'length';
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly completionTokens: number;
      readonly thoughtTokens: number;
    };

/** One context (slot) of a loaded model; runs one call at a time. */
export interface LoadedContext {
  readonly name: string;
  readonly tokens: number;
  /** Measured by the engine (or taken from the card), not estimated. */
  readonly measuredBytes: number;
  /** The same on each card that the process sees, in their order; left out where it sees one. */
  readonly measuredBytesByCard?: readonly number[] | undefined;
  /**
   * Yields until `end`. When `signal` aborts it stops within cancelWithinMs, at
   * any stage, and throws its reason; the context is then clean for the next call.
   */
  generate(call: GenerateCall, signal: AbortSignal): AsyncIterable<GenerateEvent>;
  /** Frees it. Only called while no call runs. */
  close(): Promise<void>;
}

/** What a loaded model has on one card. */
export interface CardFigures {
  /** Measured parts of the model itself (no contexts). */
  readonly measuredParts: readonly LeasePart[];
  /** Bytes on the card now, contexts included. */
  residentBytes(): number;
}

export interface LoadedModel extends CardFigures {
  /** One for each card that the process sees, in their order; left out where it sees one. */
  readonly cards?: readonly CardFigures[] | undefined;
  /** Bytes of a copy in host RAM from which it can be restored. */
  hostBytes(): number;
  /** Never called for a spec with `embedding`: such a model holds all it needs from its load on, and its calls take turns. */
  openContext(name: string, tokens: number, signal: AbortSignal): Promise<LoadedContext>;
  countTokens(input: { readonly messages: readonly ChatMessage[] | null; readonly prompt: string | null }): Promise<number>;
  /** Null when the model makes no embeddings. */
  readonly embed: ((inputs: readonly string[], signal: AbortSignal) => Promise<{ readonly vectors: readonly (readonly number[])[]; readonly promptTokens: number }>) | null;
  /** Drop card bytes, keep a host copy; contexts have been closed. Null when it cannot. */
  readonly park: (() => Promise<void>) | null;
  /** Back from the host copy. Null when it cannot park. */
  readonly resume: ((signal: AbortSignal) => Promise<void>) | null;
  /** Drop the copy that is kept beside what is on the card, while calls go on. Null, or left out: it cannot go by itself. */
  readonly dropCopy?: (() => Promise<void>) | null;
  /** Free about so many bytes of a resident model; resolves to what was freed. Null when it cannot. */
  readonly freePart: ((bytes: number) => Promise<number>) | null;
  /** Give back everything; contexts have been closed. */
  unload(): Promise<void>;
}

export interface Engine {
  readonly name: string;
  readonly capabilities: EngineCapabilities;
  readonly versions: Readonly<Record<string, string>>;
  /** What the process costs before any model, by card; measured in `start`, empty when unknown. */
  readonly floors: readonly { readonly device: string; readonly bytes: number }[];
  start(context: EngineContext): Promise<void>;
  /** Reads headers only. Rejects with `model_invalid` or `estimate_unknown`. */
  estimate(spec: ModelSpec, signal: AbortSignal): Promise<Estimate>;
  /**
   * Loads onto `device`; where the process sees several cards, over all of them. On abort or failure everything is given
   * back before it rejects. `keepCopy`: whether the machine's memory has room for the copy that was asked for; null, or left out: nobody counts it, and the engine does as it likes.
   */
  load(spec: ModelSpec, device: string, progress: (fraction: number | null) => void, signal: AbortSignal, keepCopy?: boolean | null): Promise<LoadedModel>;
  /** Drop caches and whatever else of the machine's memory it can do without. */
  releaseMemory?(): Promise<void>;
  close(): Promise<void>;
}
