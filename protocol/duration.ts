/** Durations as people read them in a sentence. */

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** `250 ms`, `1.5 s`, `90 s`, `5 min`, `5 min 12 s`, `24 h`, `3 d 4 h`: never a number that must be divided to be understood. */
export function durationText(ms: number): string {
  if (ms < secondMs) return `${String(Math.round(ms))} ms`;
  if (ms < 2 * minuteMs) return `${(ms / secondMs).toFixed(1).replace(/\.0$/, '')} s`;
  if (ms < 2 * hourMs) return inTwo(ms, minuteMs, 'min', secondMs, 's');
  return ms < 2 * dayMs ? inTwo(ms, hourMs, 'h', minuteMs, 'min') : inTwo(ms, dayMs, 'd', hourMs, 'h');
}

/** The smaller unit only where there is something of it. */
function inTwo(ms: number, largeMs: number, large: string, smallMs: number, small: string): string {
  const all = Math.round(ms / smallMs);
  const each = largeMs / smallMs;
  const rest = all % each;
  return `${String(Math.floor(all / each))} ${large}${rest === 0 ? '' : ` ${String(rest)} ${small}`}`;
}
