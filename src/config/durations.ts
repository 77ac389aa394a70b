/** Durations as people write them: `250ms`, `30s`, `5m`, `2h`, `1d`, or a whole number of milliseconds. */

/** Longest duration any setting takes: 30 days, what the wire carries. */
export const durationMsMax = 30 * 24 * 3600 * 1000;

const unitMs: Readonly<Record<string, number>> = { '': 1, 'ms': 1, 's': 1_000, 'm': 60_000, 'h': 3_600_000, 'd': 86_400_000 };

const durationPattern = /^(\d{1,10})(ms|s|m|h|d)?$/;

/** Milliseconds of a duration; null when it is none, or longer than `durationMsMax`. Never rounds. */
export function parseDurationMs(given: string | number): number | null {
  const match = durationPattern.exec(String(given));
  if (match === null) return null;
  const ms = Number(match[1]) * (unitMs[match[2] ?? ''] ?? Number.NaN);
  return ms <= durationMsMax ? ms : null;
}
