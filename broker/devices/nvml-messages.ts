/** What the NVML helper and the broker say to each other: one JSON text a line, over the helper's stdin and stdout. */
import type { MissingReading } from '../core/events.js';

export interface HelperCard {
  readonly device: string;
  readonly name: string;
  /** Null: the driver does not say. */
  readonly totalBytes: number | null;
  readonly display: boolean;
  /** The driver gives memory by process for this card. */
  readonly processes: boolean;
  /** As the driver counts; null: a slice of a card. */
  readonly index: number | null;
}

export type HelperRequest =
  | { readonly id: number; readonly ask: 'discover' }
  | { readonly id: number; readonly ask: 'read'; readonly device: string };

export type HelperReading =
  | {
      readonly kind: 'read';
      readonly takenAtUs: number;
      readonly usedBytes: number;
      readonly totalBytes: number;
      readonly counting: 'v1' | 'v2';
      readonly processes: readonly { readonly pid: number; readonly usedBytes: number }[] | null;
    }
  | { readonly kind: 'missing'; readonly takenAtUs: number; readonly reading: MissingReading; readonly reason: string; readonly lost?: boolean };

export type HelperMessage =
  /** Once, first: the library is open. */
  | { readonly say: 'ready'; readonly driver: string; readonly library: string }
  /** Once, first and last: there is no NVML here, and why. */
  | { readonly say: 'unavailable'; readonly reason: string }
  | { readonly say: 'cards'; readonly id: number; readonly cards: readonly HelperCard[] }
  | { readonly say: 'reading'; readonly id: number; readonly reading: HelperReading }
  | { readonly say: 'failed'; readonly id: number; readonly reason: string };

/** How a helper is started. */
export interface HelperSetup {
  readonly libraryPaths: readonly string[];
  /** The helper ends when this is no longer its parent. */
  readonly parentPid: number;
}
