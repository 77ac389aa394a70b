/** The headroom of every lease, the inverse of it, and byte counts that may enter the ledger. All integers, all exact. */

/** The one headroom constant: a lease is 11/10 of what it was asked for, rounded up once. */
export const headroom = { numerator: 11, denominator: 10 } as const;

/** Largest count whose headroom is still an exact integer (2^53 - 1 after it). */
export const leasableBytesMax = withoutHeadroom(Number.MAX_SAFE_INTEGER);

/** ceil(11/10 x bytes). `bytes` is an integer from 0 to `leasableBytesMax`. */
export function withHeadroom(bytes: number): number {
  // Split first: bytes x 11 leaves the exact integers long before bytes does.
  const rest = bytes % headroom.denominator;
  const whole = (bytes - rest) / headroom.denominator;
  return whole * headroom.numerator + Math.ceil((rest * headroom.numerator) / headroom.denominator);
}

/** The largest count whose headroom fits into `bytes`; 0 when nothing does. */
export function withoutHeadroom(bytes: number): number {
  if (bytes <= 0) return 0;
  const rest = bytes % headroom.numerator;
  const whole = (bytes - rest) / headroom.numerator;
  return whole * headroom.denominator + Math.floor((rest * headroom.denominator) / headroom.numerator);
}

/** Whether a value may enter the ledger as a byte count: an integer, not negative, with an exact headroom. */
export function isBytes(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= leasableBytesMax;
}
