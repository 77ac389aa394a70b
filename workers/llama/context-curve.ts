/** Bytes of a context for any number of tokens, from a few sizes that were really worked out. */

export interface ContextSample {
  readonly tokens: number;
  readonly bytes: number;
}

/** llama.cpp rounds a context up to a multiple of this. */
const contextGranule = 256;

export function paddedTokens(tokens: number): number {
  return Math.max(1, Math.ceil(tokens / contextGranule)) * contextGranule;
}

/**
 * A function that is exact at the samples, straight between and beyond them, and never falls as tokens rise: not even
 * where the samples do (B16).
 */
export function contextCurve(samples: readonly ContextSample[]): (tokens: number) => number {
  const points = rising(samples);
  return (tokens) => {
    const at = paddedTokens(tokens);
    const [first] = points;
    if (first === undefined || at <= first.tokens) return first?.bytes ?? 0;
    const next = points.findIndex((point) => point.tokens >= at);
    const right = next < 0 ? points.length - 1 : next;
    const [left, end] = [points[right - 1], points[right]];
    if (left === undefined || end === undefined) return first.bytes;
    const slope = (end.bytes - left.bytes) / (end.tokens - left.tokens);
    return at === end.tokens ? end.bytes : Math.ceil(left.bytes + slope * (at - left.tokens));
  };
}

/** The samples in order of tokens, one a size, none smaller than one before. */
function rising(samples: readonly ContextSample[]): readonly ContextSample[] {
  let most = 0;
  const bySize = new Map(samples.map(({ tokens, bytes }) => [paddedTokens(tokens), bytes]));
  return [...bySize].sort(([a], [b]) => a - b).map(([tokens, bytes]) => {
    most = Math.max(most, bytes);
    return { tokens, bytes: most };
  });
}
