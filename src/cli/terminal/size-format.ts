/** Bytes, durations and counts as people read them. Unknown is said, never shown as zero. */

const sizeUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

/** `10.9 MiB`, `512 B`, `0`, `-3.0 MiB`; `unknown` for null. */
export function formatBytes(bytes: number | null): string {
  if (bytes === null) return 'unknown';
  if (bytes === 0) return '0';
  let value = Math.abs(bytes);
  let unit = 0;
  // 1023.95 would be written 1024.0: the next unit then says it better.
  while (value >= (unit === 0 ? 1024 : 1023.95) && unit < sizeUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${bytes < 0 ? '-' : ''}${unit === 0 ? String(value) : value.toFixed(1)} ${sizeUnits[unit] ?? ''}`;
}

/** `85 ms`, `1.2 s`, `2 m 05 s`, `3 h 04 m`, `2 d 03 h`; `-` for null. */
export function formatMs(ms: number | null): string {
  if (ms === null) return '-';
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return pair(Math.floor(seconds / 60), 'm', seconds % 60, 's');
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return pair(Math.floor(minutes / 60), 'h', minutes % 60, 'm');
  const hours = Math.floor(minutes / 60);
  return pair(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

/** `1 token`, `2 tokens` */
export function formatCount(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** `1st`, `2nd`, `11th` */
export function formatOrdinal(number: number): string {
  const teen = number % 100 >= 11 && number % 100 <= 13;
  const ending = teen ? 'th' : ['th', 'st', 'nd', 'rd'][number % 10] ?? 'th';
  return `${number}${ending}`;
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return `${large} ${largeUnit} ${String(small).padStart(2, '0')} ${smallUnit}`;
}
