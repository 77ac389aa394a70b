/** What every reader here rejects with. */
import { LeaseholdError } from '../../../protocol/index.js';

/** `reason` follows "… cannot be used: ". */
export function unusableFile(source: string, reason: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError('model_invalid', { source, reason }, cause === undefined ? {} : { cause });
}

/** The reason within an error of `unusableFile`; null for any other error. */
export function unusableReason(error: unknown): string | null {
  return error instanceof LeaseholdError && error.code === 'model_invalid' ? error.details['reason'] ?? null : null;
}
