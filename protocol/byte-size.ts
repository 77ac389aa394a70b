/** Sizes as people write them. Strict: a whole number, then nothing or one of the eight units; never a fraction, a sign or a guess. */
import { LeaseholdError } from './errors.js';

const unitBytes: Readonly<Record<string, number>> = {
  '': 1,
  KB: 1_000,
  MB: 1_000_000,
  GB: 1_000_000_000,
  TB: 1_000_000_000_000,
  KiB: 1_024,
  MiB: 1_024 ** 2,
  GiB: 1_024 ** 3,
  TiB: 1_024 ** 4,
};

const sizePattern = /^(\d{1,16})(KiB|MiB|GiB|TiB|KB|MB|GB|TB)?$/;

/**
 * Bytes of `text`: `24MiB`, `2GB`, `1048576`. Throws `bytes_invalid`, naming `field`, for anything else,
 * for a size below `minimumBytes` and for one that no safe integer holds.
 */
export function parseBytes(text: string, field: string, minimumBytes = 0): number {
  const match = sizePattern.exec(text);
  const bytes = match === null ? Number.NaN : Number(match[1]) * (unitBytes[match[2] ?? ''] ?? Number.NaN);
  if (!Number.isSafeInteger(bytes) || bytes < minimumBytes) {
    throw new LeaseholdError('bytes_invalid', { field, value: JSON.stringify(text.slice(0, 64)), minimum: minimumBytes, maximum: Number.MAX_SAFE_INTEGER });
  }
  return bytes;
}
