/** What an embedder gives `createOrchestrator`, and what a configuration file becomes. */
import type { ClassPolicy, LeaseholdError, Limits, RequestClass } from '../../protocol/index.js';
import type { EngineCommand, Log } from '../../broker/shell/index.js';

/** One model to serve. */
export interface ModelOptions {
  /** Path of what the engine loads: a GGUF file for `llama`, a script for `simulated`. Or the name of a model that ships with Leasehold; or `hf.co/owner/name[:quant]`, a GGUF that was pulled. */
  readonly source: string;
  /** Default `llama`. */
  readonly engine?: string;
  /** Tokens of one context. Default 2048. */
  readonly contextTokens?: number;
  /** Calls that may run at once, each in a context of its own. Default 1. */
  readonly parallel?: number;
  /** Unloaded this long after the end of its last use; null (default): never. Milliseconds. */
  readonly ttlMs?: number | null;
  /** Load at start. Default false. */
  readonly preload?: boolean;
  /** Never a victim. Default false. */
  readonly pinned?: boolean;
  /** Fits the empty card alone, without the headroom: its only exception, for a size that is declared, learned or measured. Default false. */
  readonly exclusive?: boolean;
  /** UUID of the card to use; default: the broker chooses. */
  readonly device?: string | null;
  /** Over how many cards it is spread: it is on all of them or on none, and leaves them together. Default 1. */
  readonly cards?: number;
  /** UUIDs of the cards that it may use, in place of `device`; the broker chooses among them. Default: any. */
  readonly devices?: readonly string[] | null;
  /** Default class of its requests. Default `normal`. */
  readonly class?: RequestClass;
  /** Other names it answers to. */
  readonly aliases?: readonly string[];
  /** The operator's word on its size where no estimate can be made, or with `exclusive`: the most that it takes, contexts included. Bytes. */
  readonly declaredBytes?: number | null;
  /** It makes vectors, not text. Default false. */
  readonly embedding?: boolean;
  /**
   * llama.cpp alone: where the whole can never fit its card, as many layers as what could be had holds go there, never
   * fewer than `minGpuLayers`, and the others are computed by the CPU, much slower. Null, default: all of them or an error.
   */
  readonly offload?: { readonly minGpuLayers: number } | null;
  /** Settings of the engine, passed through. */
  readonly options?: Readonly<Record<string, string>>;
}

/** How workers of an engine are started. What is left out is the built-in engine's; an engine of another name needs `command`. */
export interface EngineOptions extends Partial<EngineCommand> {
  readonly name: string;
  /**
   * The built-in `llama` alone: what a worker does that was given a real card on which llama.cpp does not compute. `refuse`
   * (default): it ends, and who waits gets `card_unusable`. `allow`: it runs on the CPU, some fifty times slower.
   */
  readonly cpuFallback?: 'allow' | 'refuse';
}

/** The machine's memory: copies of parked models, what loads take in passing, models on the CPU. */
export interface HostMemoryOptions {
  /**
   * `auto` (default): it is leased where it can be read, unless every card is simulated. `system`: then too. `off`: it is
   * not; a model is parked whatever room there is. `sim:64MiB`: a simulated one, in which simulated models keep copies.
   */
  readonly lease?: string;
  /** Kept free for everything else, in bytes; default: a tenth, at least 1 GiB, at most half. Of a simulated one: nothing. */
  readonly reserveBytes?: number | null;
  /** Go on by the ledger alone, flagged unverified, while it cannot be read. Default false. */
  readonly allowUnknown?: boolean;
}

/** What of a card is made free for programs that are not ours: so many bytes, `auto` (a tenth of the card, at most 2 GiB), or nothing. */
export type YieldFree = number | 'auto' | 'off';

export interface OrchestratorOptions {
  /** Models by name. The models that ship with Leasehold are known without being named here. */
  readonly models?: Readonly<Record<string, ModelOptions>>;
  /**
   * Cards to own: `auto` (default: every real card, else the CPU), `cpu`,
   * `sim:24MiB` (a simulated card), or UUIDs. Of no effect when attaching: see `onIgnored`.
   */
  readonly devices?: readonly string[];
  /** Bytes kept free on every card, or by UUID; default by kind of card. */
  readonly reserveBytes?: number | Readonly<Record<string, number>> | null;
  /**
   * Give way to programs that are not ours, on every card or by UUID: when a reading shows that they have grown and less
   * than this is free beside the reserve, idle models are parked or unloaded until it is, and come back when they are
   * wanted. Only where the driver tells whose bytes are in use. Default `off`. Ignored when attaching.
   */
  readonly yieldFreeBytes?: YieldFree | Readonly<Record<string, YieldFree>> | null;
  /** What of the machine's memory is leased. Ignored when attaching. */
  readonly hostMemory?: HostMemoryOptions;
  /**
   * `auto` (default): attach to a broker that runs on this state folder, else
   * own one; when that broker goes, attach to the next or own it. With `limits.reattachGraceMs` of 0 (default) it takes
   * over no living workers of a broker that is gone: the next is waited for, or their end, and after 40 s it rejects with `broker_lost`. `own`: reject with `broker_running` if there is one. `attach`:
   * reject with `broker_missing` if there is none, with `shutting_down` if it is just ending.
   */
  readonly broker?: 'auto' | 'own' | 'attach';
  /** Default: $LEASEHOLD_STATE, else the user's runtime directory. */
  readonly stateFolder?: string;
  /** Go on with the ledger alone, flagged unverified, when no probe answers. Default false. */
  readonly allowLedgerOnly?: boolean;
  /** Engines besides the built-in `llama` and `simulated`; one of the same name replaces it. */
  readonly engines?: readonly EngineOptions[];
  /** Overrides of the limits; see protocol/limits.ts. */
  readonly limits?: Partial<Limits>;
  /** Overrides of how the classes of requests are treated; what is left out keeps its default. */
  readonly classPolicies?: Readonly<Partial<Record<RequestClass, Partial<ClassPolicy>>>>;
  /**
   * Called when the broker that was attached to is gone, as soon as that is seen: for so long it is waited for, and calls go
   * on when it is back. Also when there is none at the start, and workers of one that is gone wait for it, or one that is just ending. Brokers of `leasehold up` have a grace of 30 s, unless their limits say otherwise.
   */
  readonly onBrokerLost?: (loss: BrokerLoss) => void;
  /**
   * Called when the broker that was attached to is gone and the next use has found another, or has come to own one in
   * this process: on other cards, perhaps, and without what was loaded there.
   */
  readonly onBrokerChange?: (change: BrokerChange) => void;
  /**
   * Called, with `broker: 'auto'`, when a broker was found that owns none of some of the `devices` asked for: its own are
   * used. Default: a warning of the process (`LeaseholdWarning`).
   */
  readonly onIgnored?: (why: LeaseholdError) => void;
  /**
   * Called for each of `models` whose file is not there, or that was not pulled: the others are served, and it is refused
   * when it is asked for. A file is looked for again then; what was pulled meanwhile is found at the next start. Default: it rejects with that error.
   */
  readonly onUnusable?: (model: string, why: LeaseholdError) => void;
  /** Default: silent. */
  readonly log?: Log;
}

export interface BrokerLoss {
  /** Null: it was lost before it had told. */
  readonly pid: number | null;
  readonly graceMs: number;
  /** It ended in order, and its workers with it; else it was killed, or only the connection was lost. */
  readonly stopped: boolean;
}

export interface BrokerChange {
  /** The broker that is gone; null: it was in this process. */
  readonly lostPid: number | null;
  /** This process owns the new one. */
  readonly ownsBroker: boolean;
  readonly socketPath: string;
  /** Cards of the new one. */
  readonly devices: readonly string[];
}
