/** CLOCK_MONOTONIC in whole microseconds: the same clock in every process of the machine, and a safe integer for 285 years. */
export function monotonicUs(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}
