/** "Did you mean": the known word nearest to a misspelt one. */

/** The nearest of `known` to `word`, whatever the case; null when none is near enough to be a slip. */
export function suggest(word: string, known: Iterable<string>): string | null {
  let best: string | null = null;
  // A third of the letters wrong is a slip; more is another word.
  let bestDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase(), bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** The names of `known` that `word` may stand for, three at the most: the one that it is a slip of the pen away from, else those that it is a part of, else those that share its first word. */
export function nearest(word: string, known: readonly string[]): readonly string[] {
  const slip = suggest(word, known);
  if (slip !== null) return [slip];
  const small = word.toLowerCase();
  const parts = small.length < 3 ? [] : known.filter((name) => name.toLowerCase().includes(small));
  const [first = ''] = /^[A-Za-z][a-z]{3,}/.exec(word) ?? [];
  const family = first === '' ? [] : known.filter((name) => name.toLowerCase().startsWith(first.toLowerCase()));
  return (parts.length > 0 ? parts : family).slice(0, 3);
}

/** `; did you mean a, b or c?`, or nothing. */
export function didYouMean(names: readonly string[]): string {
  if (names.length === 0) return '';
  const last = names.at(-1) ?? '';
  return `; did you mean ${names.length === 1 ? last : `${names.slice(0, -1).join(', ')} or ${last}`}?`;
}

/**
 * Letters inserted, left out, replaced or swapped with their neighbour between
 * two words; `limit` when there are that many or more.
 */
export function editDistance(left: string, right: string, limit: number): number {
  if (Math.abs(left.length - right.length) >= limit) return limit;
  let beforeLast: number[] = [];
  let last = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const same = left[row - 1] === right[column - 1];
      let cost = Math.min((last[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1, (last[column - 1] ?? 0) + (same ? 0 : 1));
      const swapped = row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      if (swapped) cost = Math.min(cost, (beforeLast[column - 2] ?? 0) + 1);
      current.push(cost);
    }
    [beforeLast, last] = [last, current];
  }
  return Math.min(last[right.length] ?? limit, limit);
}
