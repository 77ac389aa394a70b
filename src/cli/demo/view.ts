/** What the demo tells its audience, whoever draws it: a terminal, a log, a program. */
import type { GenerationResult, LedgerState, ServedModel, Stage } from '../../orchestrator/types.js';
import type { Summary } from './summary.js';
import type { Turn } from './script.js';

export interface Outcome {
  readonly result: GenerationResult | null;
  /** Why there is no result. */
  readonly failure: { readonly code: string; readonly message: string } | null;
  readonly right: boolean;
  readonly tookMs: number;
}

export interface DemoView {
  /** The models are being measured to size the card. */
  measuring(models: readonly string[]): void;
  /** The card has its size; `turns` is how many questions will be asked. */
  began(state: LedgerState, models: readonly ServedModel[], turns: number): void;
  asked(turn: Turn): void;
  stage(turn: Turn, stage: Stage): void;
  token(turn: Turn, text: string, thought: boolean): void;
  ended(turn: Turn, outcome: Outcome): void;
  /** The ledger as it is now. */
  ledger(state: LedgerState): void;
  finished(summary: Summary): void;
  /** Gives the terminal back; called once, whatever happened. */
  close(): void;
}
