/** What the core is told once, at its birth. */
import type { ClassPolicy, Limits, RequestClass } from '../../protocol/index.js';

/** What the core must know of an engine to place its workers. */
export interface EngineDescription {
  readonly name: string;
  /** Models one worker of this engine may host. */
  readonly modelsPerWorker: number;
  /** What one of its processes is taken to cost on a real card until one has been measured there (R9); left out: nothing. */
  readonly floorBytes?: number;
}

export interface CoreOptions {
  /** Unique to this start of the broker, [0-9A-Za-z]{1,16}; prefixes every id, so that none is ever reused. */
  readonly bootId: string;
  readonly startedAtUs: number;
  readonly limits: Limits;
  readonly classPolicies: Readonly<Record<RequestClass, ClassPolicy>>;
  readonly engines: readonly EngineDescription[];
  /** When no probe answers: go on with the ledger alone, flagged unverified. Default false: nothing new is granted. */
  readonly allowLedgerOnly: boolean;
  /** The same for the machine's memory. */
  readonly allowHostUnknown?: boolean;
}
