/** What a scenario is played on: the simulated machine on its virtual clock, or real processes. */
import type { LedgerView } from '../../broker/core/view.js';
import type { RequestClass } from '../../protocol/index.js';
import type { FaultAct } from './scenario.js';

export interface AskedCall {
  readonly model: string;
  readonly class: RequestClass;
  readonly deadlineMs: number;
}

/** How a call ended: `answered`, `cancelled`, or the code of its error. */
export type CallEnd = string;

export interface AskedCallback {
  begun(): void;
  ended(end: CallEnd): void;
}

export interface Machine {
  /** Milliseconds of the scenario's time since its beginning. */
  nowMs(): number;
  after(delayMs: number, run: () => void): void;
  /** Returns what takes the call back. */
  ask(call: AskedCall, callback: AskedCallback): () => void;
  strike(act: FaultAct): void;
  ledger(): LedgerView | null;
  /** What a card refused although it was granted, over all cards. */
  refusals(): number;
}

/** What happened, as the broker told it. */
export interface MachineEvent {
  readonly name: string;
  readonly atMs: number;
  readonly data: Readonly<Record<string, unknown>>;
}
