/**
 * What a holder's own code says of its bytes, checked before any of it is kept
 * or told. A figure that is none must cost the call that gave it alone: kept,
 * it would ride on the next heartbeat, whose refusal ends the session and with
 * it every lease of the process.
 */
import { LeaseholdError, bytes, durationMs, leaseParts, object, optional, type LeasePart, type Schema } from '../../protocol/index.js';

export interface Measured {
  readonly residentBytes: number;
  readonly hostBytes?: number;
  /** Measured sizes: the lease is trued up by them. Left out: as asked for. */
  readonly parts?: readonly LeasePart[];
  readonly loadMs?: number;
}

/** What is left, measured; or that it is in use (nothing was changed), or that it cannot be done so. */
export type EvictAnswer =
  | { readonly residentBytes: number; readonly hostBytes?: number }
  | 'busy'
  | 'unsupported';

const parts = leaseParts();
const measured = object({ residentBytes: bytes(), hostBytes: optional(bytes()), parts: optional(parts), loadMs: optional(durationMs()) });
const left = object({ residentBytes: bytes(), hostBytes: optional(bytes()) });

/** Throws `input_invalid`, as the two below. */
export function checkMeasured(value: Measured): void {
  check(measured, value, 'what was measured');
}

export function checkParts(value: readonly LeasePart[]): void {
  check(parts, value, 'parts');
}

export function checkEvictAnswer(value: EvictAnswer): void {
  if (value === 'busy' || value === 'unsupported') return;
  // A handler that forgets its `return` is the commonest slip, and must read what it forgot.
  if (typeof value !== 'object' || (value as unknown) === null) {
    throw new LeaseholdError('input_invalid', { field: 'onEvict', reason: `it must return { residentBytes }, 'busy' or 'unsupported', not ${(JSON.stringify(value) as string | undefined) ?? 'undefined'}` });
  }
  check(left, value, 'what onEvict returns');
}

function check(schema: Schema<unknown>, value: unknown, what: string): void {
  const fault = schema.check(value, '');
  if (fault === null) return;
  throw new LeaseholdError('input_invalid', { field: fault.path === '' ? what : `${what}: ${fault.path}`, reason: `it must be ${fault.expected}` });
}
