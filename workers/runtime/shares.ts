/** How a model that is spread over several cards is split: shares, and bytes by them. Pure. */
import { LeaseholdError } from '../../protocol/index.js';

/** One share a card: as `text` says (`3,1`), else even ones. Throws `input_invalid` unless it names a positive one for each. */
export function readShares(text: string | null, cards: number, field: string): readonly number[] {
  const shares = text === null ? Array.from({ length: cards }, () => 1) : text.split(',').map((word) => (word.trim() === '' ? NaN : Number(word)));
  if (shares.length === cards && shares.every((share) => Number.isFinite(share) && share > 0)) return shares;
  throw new LeaseholdError('input_invalid', { field, reason: `it must be ${String(cards)} numbers above 0 with commas between, one for each card, not ${JSON.stringify((text ?? '').slice(0, 80))}` });
}

/** Whole numbers whose sum is `bytes`. */
export function splitBytes(bytes: number, shares: readonly number[]): readonly number[] {
  const all = shares.reduce((sum, share) => sum + share, 0);
  let shared = 0;
  let given = 0;
  return shares.map((share, index) => {
    shared += share;
    const upTo = index === shares.length - 1 ? bytes : Math.floor(bytes * (shared / all));
    const part = upTo - given;
    given = upTo;
    return part;
  });
}

/** The same for what is only estimated: each rounded up, so that none falls short, and none falls as the whole grows. */
export function shareOf(bytes: number, shares: readonly number[], index: number): number {
  const all = shares.reduce((sum, share) => sum + share, 0);
  return Math.min(bytes, Math.ceil(bytes * ((shares[index] ?? 0) / all)));
}
