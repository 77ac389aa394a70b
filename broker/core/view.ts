/** The ledger as people and programs read it: `leasehold ps`, `ledger()`, the demo's bars. A copy; changing it changes nothing. */
import type { LeasePart, RequestClass, TruthSource } from '../../protocol/index.js';
import type { CardKind, MissingReading, StrangerReading } from './events.js';

export interface LeaseView {
  readonly lease: string;
  readonly model: string;
  readonly generation: string;
  readonly device: string;
  /** The common name of leases of one model that come and go together, a card each; null: it is alone. */
  readonly gang: string | null;
  /** `granted` (not yet confirmed), `loading`, `resident`, `parked`, `releasing` (unconfirmed), `quarantined`. */
  readonly state: 'granted' | 'loading' | 'resident' | 'parked' | 'releasing' | 'quarantined';
  readonly chargedBytes: number;
  readonly residentBytes: number;
  /** Of a copy in the machine's memory. */
  readonly hostBytes: number;
  /** Charged for it in the machine's memory, headroom included; null: that is not leased. */
  readonly hostChargedBytes: number | null;
  readonly parts: readonly LeasePart[];
  /** So many of its layers are on the card, the others are left to the CPU; null: all are, or nobody says. */
  readonly layers: { readonly onCard: number; readonly total: number } | null;
  readonly inFlight: number;
  readonly pinned: boolean;
  /** The card on which its process has bytes instead of here; null: none. */
  readonly misplacedOn: string | null;
  /** How long ago it was asked to leave, or said that it had (`releasing`) and has not been seen gone; null: it stays. */
  readonly leavingMs: number | null;
  readonly idleMs: number;
}

/** How a card gives way to strangers. */
export interface YieldView {
  /** Made free for them, beside the reserve, when they take more. */
  readonly freeBytes: number;
  /** While they press: since when, and the largest of them, where the driver tells their pids. Null: they do not. */
  readonly pressed: { readonly sinceMs: number; readonly strangersBytes: number; readonly strangers: readonly StrangerReading[] } | null;
  /** Why it cannot be done there now; null: it can. */
  readonly blind: string | null;
}

export interface CardView {
  readonly device: string;
  readonly name: string;
  readonly kind: CardKind;
  readonly totalBytes: number;
  readonly reserveBytes: number;
  readonly leasedBytes: number;
  readonly floorBytes: number;
  readonly residueBytes: number;
  readonly returningBytes: number;
  readonly holdBytes: number;
  readonly foreignBytes: number | null;
  /** Last good reading; null when there is none. */
  readonly sampledUsedBytes: number | null;
  readonly sampleAgeMs: number | null;
  readonly truth: TruthSource | null;
  /** Set while the probe does not answer: since when and how. */
  readonly missing: { readonly reading: MissingReading; readonly reason: string; readonly sinceMs: number } | null;
  /** What a request could be granted now; negative after an overshoot; null when unknown. */
  readonly availableBytes: number | null;
  readonly loadToken: string | null;
  /** The gang that takes its cards now and has this one; null: none does. */
  readonly forming: string | null;
  /** Set while the card is gone: since when and why. Nothing is granted there, and nothing that was there is taken to be free. */
  readonly lost: { readonly sinceMs: number; readonly reason: string } | null;
  /** Set where idle models give way to programs that are not ours. */
  readonly yields: YieldView | null;
  /** Nothing is granted there: these processes of an earlier broker have not said what they hold. Null: open. */
  readonly closed: { readonly sinceMs: number; readonly waitsFor: readonly string[] } | null;
  /** Set while too much of its time goes into loading models again that were put away there for each other; null: it does not. */
  readonly thrashing: ThrashView | null;
}

export interface ThrashView {
  readonly sinceMs: number;
  /** Of the last `windowMs`, the share in which such loads went on. */
  readonly shareOfTime: number;
  readonly windowMs: number;
  /** Who takes turns: how often each was loaded again in that time, and what that took; the most first. */
  readonly models: readonly { readonly model: string; readonly loads: number; readonly loadMs: number }[];
  /** What would have to fit for all of them to stay, with everything else that is there; and what may be used of the card. */
  readonly neededBytes: number;
  readonly capacityBytes: number;
}

export interface WaiterView {
  readonly generation: string;
  readonly request: number;
  readonly model: string;
  readonly device: string;
  /** Requests of one gang are granted together or not at all; null: it is alone. */
  readonly gang: string | null;
  readonly class: RequestClass;
  readonly needBytes: number;
  readonly waitedMs: number;
  readonly position: number;
  readonly holdBytes: number;
  /** What it needs in the machine's memory besides, and what of that is kept for it. */
  readonly hostNeedBytes: number;
  readonly hostHoldBytes: number;
  /** It waits no longer than this behind others, from now, while the card works as it should; null: that cannot be known. */
  readonly behindOthersMs: number | null;
  readonly reason: string;
}

export interface ProcessView {
  readonly generation: string;
  readonly role: 'worker' | 'holder' | 'client';
  readonly engine: string | null;
  readonly state: 'spawning' | 'ready' | 'suspect' | 'recorded' | 'ending' | 'quarantined';
  readonly devices: readonly string[];
  readonly floorBytes: number;
  /** Of the machine's memory, as last read: what only this process and its children can give back. Null: not known. */
  readonly memoryBytes: number | null;
}

export interface LedgerView {
  readonly bootId: string;
  readonly cards: readonly CardView[];
  /** The machine's memory, the second ledger; null: it is not leased. */
  readonly host: CardView | null;
  readonly leases: readonly LeaseView[];
  readonly waiting: readonly WaiterView[];
  readonly processes: readonly ProcessView[];
  readonly counters: Readonly<Record<string, number>>;
}
