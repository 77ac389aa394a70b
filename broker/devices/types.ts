/** Cards and readings, as every rung of the truth ladder gives them. */
import type { TruthSource } from '../../protocol/index.js';
import type { CardKind, Confirmation, MissingReading } from '../core/events.js';

export interface CardDescription {
  readonly device: string;
  readonly name: string;
  /** `cpu`: the pseudo-card `CPU-0`, where 0-byte leases live (D18); its total is 0. `host`: the machine's memory. */
  readonly kind: CardKind;
  readonly totalBytes: number;
  readonly confirms: Confirmation;
  /** The card drives a display: the larger default reserve (R11). */
  readonly display: boolean;
  /** What a process costs there, where it is known beforehand (simulated cards); null elsewhere. */
  readonly floorBytes: number | null;
  /** Its memory is the machine's: one ledger, the card's, serves for both. */
  readonly unified?: boolean;
  /** Environment that makes this card, and it alone, visible to a worker. Empty for simulated cards. */
  readonly visibility: Readonly<Record<string, string>>;
  /** How its maker counts it; absent: not at all. */
  readonly counted?: Counted;
}

/** A maker's own number for a card, in the order of the PCI bus where that is known. Nothing is ever told by it: masks are read with it. */
export interface Counted {
  readonly maker: 'nvidia' | 'amd';
  /** Null: the card has no number that can be relied on (a MIG slice, an AMD card beside others). */
  readonly index: number | null;
}

/** One reading. `takenAtUs` is when the driver was asked, on CLOCK_MONOTONIC. */
export type Reading =
  | {
      readonly kind: 'read';
      readonly device: string;
      readonly takenAtUs: number;
      readonly usedBytes: number;
      readonly totalBytes: number;
      readonly truth: TruthSource;
      /** How NVML counted: `v1` includes what the driver reserves for itself, `v2` does not (R29). */
      readonly counting?: 'v1' | 'v2';
      /** By pid; null where the driver does not say. */
      readonly processes: readonly { readonly pid: number; readonly usedBytes: number }[] | null;
      /** What the driver keeps in host memory for want of room on the card; absent where it does not say (B113). */
      readonly spilled?: readonly { readonly pid: number; readonly spilledBytes: number }[];
    }
  | {
      readonly kind: 'missing';
      readonly device: string;
      readonly takenAtUs: number;
      readonly reading: MissingReading;
      readonly reason: string;
      /** The driver answers, and says that this card is gone (B106). A driver that does not answer says nothing of its cards (B107). */
      readonly lost?: boolean;
    };

/** A card that is there and whose size the rung cannot tell; usable only with a declared total. */
export interface UnmeasuredCard {
  readonly device: string;
  readonly name: string;
  readonly reason: string;
  readonly visibility: Readonly<Record<string, string>>;
  readonly counted?: Counted;
}

export type Discovery =
  /** `library`: where what answers was found, when it is a library. */
  | { readonly cards: readonly CardDescription[]; readonly driver: string; readonly library?: string; readonly unmeasured?: readonly UnmeasuredCard[] }
  | { readonly unavailable: string };

/** One rung: finds its cards and reads them. A read is bounded by the probe deadline, a discovery by its own; none throws. */
export interface Rung {
  readonly truth: TruthSource;
  /** `unavailable`: this rung does not work on this machine now, and why. May be asked again. */
  discover(): Promise<Discovery>;
  read(device: string): Promise<Reading>;
  close(): Promise<void>;
}
