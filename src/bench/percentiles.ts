/** Order statistics of a sample of durations. */
export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Nearest-rank percentiles; `values` is sorted in place and must not be empty. */
export function percentilesOf(values: Float64Array): Percentiles {
  values.sort();
  const at = (fraction: number): number => values[Math.min(values.length - 1, Math.ceil(fraction * values.length) - 1)] ?? NaN;
  return { p50: at(0.5), p99: at(0.99), max: at(1) };
}

export const microsecondsSince = (start: bigint): number => Number(process.hrtime.bigint() - start) / 1000;

/** One decimal for people, exact enough for ratios. */
export const round = (value: number, digits = 3): number => Number(value.toFixed(digits));
