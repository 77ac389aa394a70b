/** How a model that is spread over several cards is split: shares, and bytes by them. Pure. */
import { LeaseholdError } from '../../protocol/index.js';

/** One share a card: as `text` says (`3,1`), else even ones. Throws `input_invalid` unless it names a positive one for each. */
export function readShares(text: string | null, cards: number, field: string): readonly number[] {
  const shares = text === null ? Array.from({ length: cards }, () => 1) : text.split(',').map((word) => (word.trim() === '' ? NaN : Number(word)));
  if (shares.length === cards && shares.every((share) => Number.isFinite(share) && share > 0)) return shares;
  throw new LeaseholdError('input_invalid', { field, reason: `it must be ${String(cards)} numbers above 0 with commas between, one for each card, not ${JSON.stringify((text ?? '').slice(0, 80))}` });
}

/** Whole numbers whose sum is `bytes`; what is left over of the shares goes a byte each to those that lost most of one. */
export function splitBytes(bytes: number, shares: readonly number[]): readonly number[] {
  const exact = shares.map((_, index) => exactShare(bytes, shares, index));
  const parts = exact.map(Math.floor);
  const leftBytes = bytes - parts.reduce((sum, part) => sum + part, 0);
  const byLoss = exact.map((share, index) => ({ index, lost: share - Math.floor(share) })).sort((a, b) => b.lost - a.lost);
  const more = new Set(byLoss.slice(0, leftBytes).map(({ index }) => index));
  return parts.map((part, index) => part + (more.has(index) ? 1 : 0));
}

/** The most that a card's part may come to: what is asked for it. It never falls as the whole grows. */
export function shareOf(bytes: number, shares: readonly number[], index: number): number {
  return Math.min(bytes, Math.floor(exactShare(bytes, shares, index)) + 1);
}

function exactShare(bytes: number, shares: readonly number[], index: number): number {
  return bytes * ((shares[index] ?? 0) / shares.reduce((sum, share) => sum + share, 0));
}
