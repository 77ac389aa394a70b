/** How large the demo's card is: worked out from what the models need, never written down. */

const units = [1024 ** 2, 64 * 1024, 1024, 1];

/**
 * Bytes of a card that holds any two of the models and never all: halfway between the two sizes, in whole MiB where
 * that is possible. Throws when no such card exists.
 */
export function chooseCardBytes(chargedBytes: readonly number[]): number {
  const sorted = [...chargedBytes].sort((left, right) => right - left);
  const [largest = 0, second = 0] = sorted;
  const pairBytes = largest + second;
  const allBytes = sorted.reduce((sum, bytes) => sum + bytes, 0);
  const middle = (pairBytes + allBytes) / 2;
  for (const unit of units) {
    const rounded = Math.floor(middle / unit) * unit;
    if (rounded >= pairBytes && rounded < allBytes) return rounded;
  }
  throw new Error(`no card holds two of ${chargedBytes.join(', ')} bytes and not all`);
}
