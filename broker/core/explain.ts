/** Explain records: why a decision fell as it did, with every number that decided it. */
import type { AdmissionNumbers, RequestClass } from '../../protocol/index.js';

/** One candidate victim as the policy saw it. */
export interface ExplainedVictim {
  readonly lease: string | null;
  readonly model: string | null;
  readonly generation: string;
  readonly freesBytes: number;
  /** Expected cost in milliseconds: reload time times likelihood of use soon. */
  readonly costMs: number;
  readonly action: 'trim' | 'partial' | 'park' | 'unload' | 'end_process' | 'wait_drain';
  /** Null: chosen. Else why it was passed over: `pinned`, `loading`, `in_use`, `minimum_residency`, `damped`, `requester`, `already_leaving`, `load_token`, `not_answering`, `spared`, `came_later`, `dearer`, `insufficient`. */
  readonly passedOver: string | null;
}

export type Verdict =
  | 'granted'
  | 'denied'
  | 'waiting'
  | 'placed'
  | 'evicting'
  | 'evicted'
  | 'escalated'
  | 'ended'
  | 'quarantined'
  | 'overshoot'
  | 'thrashing'
  | 'expired'
  | 'reattached'
  | 'cancelled';

export interface ExplainRecord {
  /** `<bootId>-x<n>`. */
  readonly id: string;
  readonly atUs: number;
  readonly verdict: Verdict;
  /** One sentence for a person. */
  readonly text: string;
  readonly generation: string;
  readonly request: number | null;
  readonly model: string | null;
  readonly device: string | null;
  readonly class: RequestClass | null;
  readonly waitedMs: number;
  readonly numbers: AdmissionNumbers | null;
  readonly victims: readonly ExplainedVictim[];
  /** True when the decision rests on the ledger alone. */
  readonly unverified: boolean;
}
