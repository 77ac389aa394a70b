/**
 * What a card and one process on it can be charged with at most. A false claim
 * must not drown the sums of others: what goes beyond is cut off, remembered
 * (`wantedBytes`), and made good when other charges of the process fall (relief.ts).
 */
import { withHeadroom } from './headroom.js';
import type { Card } from '../state.js';

/** A larger card is used up to this; so is the host's memory. */
export const cardBytesMax = 2 ** 49;

/**
 * The sums of one card stay at or below this, so that any three of them are
 * still exact integers together. Above the card's own size sums decide nothing
 * more: all is refused. Only false claims of hundreds of processes come here.
 */
export const cardSumBytesMax = 2 ** 50;

/** The most that one process can hold there. The CPU's pseudo-card has no size of its own. */
export function claimBytesMax(card: Card): number {
  return card.kind === 'cpu' ? cardBytesMax : card.totalBytes;
}

/** The most that one process can be charged with there, headroom included. */
export function seatBytesMax(card: Card): number {
  return withHeadroom(claimBytesMax(card));
}

/** What a figure may be without one process, or all of them, going beyond what can be. */
export function bounded(card: Card, wantedBytes: number, isBytes: number, seatBytes: number, cardBytes: number): number {
  if (wantedBytes <= isBytes) return wantedBytes;
  const roomBytes = Math.min(seatBytesMax(card) - seatBytes, cardSumBytesMax - cardBytes);
  return isBytes + Math.max(0, Math.min(roomBytes, wantedBytes - isBytes));
}
