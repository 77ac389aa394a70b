/** The one error class. Codes come from errors.json; texts are for people and may change. */
import { errorTable, type ErrorCode } from './errors.generated.js';

export { errorTable, type ErrorCode } from './errors.generated.js';

export type ErrorDetails = Readonly<Record<string, string | number | null>>;

/**
 * Every error that leaves Leasehold. `details` name the thing and the limit;
 * `help` says what to do; `retryable` whether the same request may succeed later.
 */
export class LeaseholdError extends Error {
  override readonly name = 'LeaseholdError';
  readonly code: ErrorCode;
  readonly number: number;
  readonly http: number;
  readonly retryable: boolean;
  readonly help: string;
  readonly details: Readonly<Record<string, string>>;

  /** `help`: what to do, where more is known of it than the table says. */
  constructor(code: ErrorCode, details: ErrorDetails = {}, options: { readonly cause?: unknown; readonly help?: string } = {}) {
    const row = errorTable[code];
    const texts = Object.fromEntries(Object.entries(details).map(([key, value]) => [key, String(value)]));
    super(fill(row.message, texts), 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.number = row.number;
    this.http = row.http;
    this.retryable = row.retryable;
    this.help = options.help ?? fill(row.help, texts);
    this.details = texts;
  }

  /** An error of ours as it is; anything else wrapped as `code` (default `internal`) with its text as the reason. */
  static from(thrown: unknown, code: ErrorCode = 'internal', details: ErrorDetails = {}): LeaseholdError {
    if (thrown instanceof LeaseholdError) return thrown;
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    return new LeaseholdError(code, { reason, ...details }, { cause: thrown });
  }

  /** An error as it came over the wire. A code this side does not know becomes `internal`, keeping its text. */
  static fromWire(wire: { readonly code: string; readonly message: string; readonly details: Readonly<Record<string, string>> }): LeaseholdError {
    return isErrorCode(wire.code)
      ? new LeaseholdError(wire.code, wire.details)
      : new LeaseholdError('internal', { reason: `${wire.code}: ${wire.message}`, ...wire.details });
  }
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorTable, code);
}

/** Fills `{name}` from details; a name that is missing stays visible as `?`. A reason that is a sentence already gets no second full stop. */
function fill(template: string, details: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}( bytes)?(\.?)/g, (_, name: string, unit: string | undefined, stop: string) => {
    const text = inUnits(name, details[name] ?? '?', unit ?? '');
    return stop !== '' && name in details && /[.?!…]$/.test(text) ? text : text + stop;
  });
}

/** Byte counts as people read them, with the count itself: `105.3 MiB (110363443 bytes)`. Anything else as it is. */
function inUnits(name: string, text: string, unit: string): string {
  if (!/(^b|B)ytes$/.test(name) || !/^\d{4,16}$/.test(text) || Number(text) < 1_024) return text + unit;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length, Math.floor(Math.log2(Number(text)) / 10));
  return `${(Number(text) / 1_024 ** power).toFixed(1)} ${units[power - 1] ?? ''} (${text}${unit})`;
}
