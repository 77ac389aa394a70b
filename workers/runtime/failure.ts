/** Between errors and the door’s plain failures. */
import { LeaseholdError, isErrorCode, type ErrorCode } from '../../protocol/index.js';
import type { Failure } from './door-types.js';

/** An engine’s own exceptions get `code`; typed errors stay what they are. */
export function toFailure(thrown: unknown, code: ErrorCode, model: string): Failure {
  const error = LeaseholdError.from(thrown, code, { model });
  return { code: error.code, details: { model, ...error.details } };
}

export function toError(failure: Failure, model: string): LeaseholdError {
  const details = { model, ...failure.details };
  return isErrorCode(failure.code) ? new LeaseholdError(failure.code, details) : new LeaseholdError('internal', { reason: failure.code, ...details });
}
