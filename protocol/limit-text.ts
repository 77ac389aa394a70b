/** The value of a limit as a person writes it in leasehold.yaml: in the largest unit that says it exactly. */

const durations = [['d', 86_400_000], ['h', 3_600_000], ['m', 60_000], ['s', 1_000], ['ms', 1]] as const;
const sizes = [['TiB', 1_024 ** 4], ['GiB', 1_024 ** 3], ['MiB', 1_024 ** 2], ['KiB', 1_024], ['', 1]] as const;

/** `heartbeatIntervalMs` 2000 → `2s`; `frameBytesMax` 8388608 → `8MiB`; a count as it is. */
export function limitText(name: string, value: number): string {
  const units = name.includes('Bytes') ? sizes : name.endsWith('Ms') ? durations : [];
  const [unit, size] = units.find(([, each]) => value !== 0 && value % each === 0) ?? ['', 1];
  return `${String(value / size)}${unit}`;
}
