/**
 * Which victims: one pure function from candidates to a set. It logs nothing,
 * changes nothing, reads no clock; candidates come in a fixed order and equal
 * costs are settled by it.
 */

export interface VictimCandidate {
  readonly freesBytes: number;
  /** Expected cost in milliseconds. */
  readonly costMs: number;
  readonly lastUsedUs: number;
}

/** Places (in `candidates`) of a set that frees at least `shortfallBytes`, ascending; null when all together do not suffice. */
export type VictimPolicy = (shortfallBytes: number, candidates: readonly VictimCandidate[]) => readonly number[] | null;

/** Up to so many candidates every set is looked at. */
const exactMax = 14;

/** The set of least cost: exact among few candidates, else the best of greedy, the best single one, and exact among the most promising. */
export const cheapestSet: VictimPolicy = (shortfallBytes, candidates) => {
  if (shortfallBytes <= 0) return [];
  if (totalBytes(candidates) < shortfallBytes) return null;
  const byDensity = candidates
    .map((candidate, place) => ({ place, candidate, density: candidate.costMs / Math.max(1, candidate.freesBytes) }))
    .filter((entry) => entry.candidate.freesBytes > 0)
    .sort((a, b) => a.density - b.density || a.place - b.place)
    .map((entry) => entry.place);
  let best = greedy(shortfallBytes, candidates, byDensity);
  best = cheaper(candidates, best, bestSingle(shortfallBytes, candidates));
  best = cheaper(candidates, best, exact(shortfallBytes, candidates, byDensity.slice(0, exactMax), costOf(candidates, best)));
  return best.sort((a, b) => a - b);
};

/** The baseline to beat: least recently used first, until it is enough. */
export const leastRecentlyUsed: VictimPolicy = (shortfallBytes, candidates) => {
  if (shortfallBytes <= 0) return [];
  if (totalBytes(candidates) < shortfallBytes) return null;
  const order = candidates.map((_, place) => place).sort((a, b) => (candidates[a]?.lastUsedUs ?? 0) - (candidates[b]?.lastUsedUs ?? 0) || a - b);
  const chosen: number[] = [];
  let freed = 0;
  for (const place of order) {
    const bytes = candidates[place]?.freesBytes ?? 0;
    if (freed >= shortfallBytes) break;
    if (bytes === 0) continue;
    freed += bytes;
    chosen.push(place);
  }
  return chosen.sort((a, b) => a - b);
};

/** Cheapest per byte first; then whoever turned out not to be needed is let go, the dearest first. */
function greedy(shortfallBytes: number, candidates: readonly VictimCandidate[], byDensity: readonly number[]): number[] {
  const chosen: number[] = [];
  let freed = 0;
  for (const place of byDensity) {
    if (freed >= shortfallBytes) break;
    freed += candidates[place]?.freesBytes ?? 0;
    chosen.push(place);
  }
  const dearestFirst = [...chosen].sort((a, b) => (candidates[b]?.costMs ?? 0) - (candidates[a]?.costMs ?? 0) || a - b);
  const needed = new Set(chosen);
  for (const place of dearestFirst) {
    const without = freed - (candidates[place]?.freesBytes ?? 0);
    if (without < shortfallBytes) continue;
    freed = without;
    needed.delete(place);
  }
  return [...needed];
}

function bestSingle(shortfallBytes: number, candidates: readonly VictimCandidate[]): number[] | null {
  let best: number | null = null;
  for (const [place, candidate] of candidates.entries()) {
    if (candidate.freesBytes < shortfallBytes) continue;
    if (best === null || candidate.costMs < (candidates[best]?.costMs ?? 0)) best = place;
  }
  return best === null ? null : [best];
}

/** Branch and bound over a few candidates; null when none of their sets is cheaper than `boundMs`. */
function exact(shortfallBytes: number, candidates: readonly VictimCandidate[], places: readonly number[], boundMs: number): number[] | null {
  let best: number[] | null = null;
  let bestMs = boundMs;
  const restBytes = new Array<number>(places.length + 1).fill(0);
  for (let at = places.length - 1; at >= 0; at--) restBytes[at] = (restBytes[at + 1] ?? 0) + (candidates[places[at] ?? -1]?.freesBytes ?? 0);
  const chosen: number[] = [];
  const visit = (at: number, freed: number, costMs: number): void => {
    if (costMs >= bestMs) return;
    if (freed >= shortfallBytes) {
      best = [...chosen];
      bestMs = costMs;
      return;
    }
    const place = places[at];
    if (place === undefined || freed + (restBytes[at] ?? 0) < shortfallBytes) return;
    const candidate = candidates[place];
    if (candidate === undefined) return;
    chosen.push(place);
    visit(at + 1, freed + candidate.freesBytes, costMs + candidate.costMs);
    chosen.pop();
    visit(at + 1, freed, costMs);
  };
  visit(0, 0, 0);
  return best;
}

function cheaper(candidates: readonly VictimCandidate[], a: number[], b: number[] | null): number[] {
  return b !== null && costOf(candidates, b) < costOf(candidates, a) ? b : a;
}

function costOf(candidates: readonly VictimCandidate[], places: readonly number[]): number {
  return places.reduce((sum, place) => sum + (candidates[place]?.costMs ?? 0), 0);
}

function totalBytes(candidates: readonly VictimCandidate[]): number {
  return candidates.reduce((sum, candidate) => sum + candidate.freesBytes, 0);
}
