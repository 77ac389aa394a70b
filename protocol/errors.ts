/** The one error class. Codes come from errors.json; texts are for people and may change. */
import { durationText } from './duration.js';
import { errorTable, type ErrorCode } from './errors.generated.js';

export { errorTable, type ErrorCode } from './errors.generated.js';

export type ErrorDetails = Readonly<Record<string, string | number | null>>;

/**
 * Every error that leaves Leasehold. `details` name the thing and the limit;
 * `help` says what to do; `retryable` whether the same request may succeed later.
 */
export class LeaseholdError extends Error {
  // On the prototype, as are the figures of the table: who prints the error sees what is its own.
  /** `AbortError` for what was cancelled, as everything that takes a signal calls it. */
  declare readonly name: 'LeaseholdError' | 'AbortError';
  readonly code: ErrorCode;
  readonly help: string;
  readonly details: Readonly<Record<string, string>>;

  static {
    Object.defineProperty(this.prototype, 'name', {
      configurable: true,
      get(this: LeaseholdError) { return this.code === 'request_cancelled' ? 'AbortError' : 'LeaseholdError'; },
    });
  }

  /**
   * `help`: what to do, where more is known of it than the table says. A `cause` that is an error of ours of the same
   * code only says the same in other words: its own cause is kept in its place.
   */
  constructor(code: ErrorCode, details: ErrorDetails = {}, options: { readonly cause?: unknown; readonly help?: string } = {}) {
    const row = errorTable[code];
    const texts = Object.fromEntries(Object.entries(details).map(([key, value]) => [key, String(value)]));
    const cause = options.cause instanceof LeaseholdError && options.cause.code === code ? options.cause.cause : options.cause;
    super(fill(row.message, texts), cause === undefined ? undefined : { cause });
    this.code = code;
    this.help = options.help ?? fill(row.help, texts);
    this.details = texts;
  }

  /** Its number in the table: never used for another error. */
  get number(): number {
    return errorTable[this.code].number;
  }

  /** The HTTP status that says the same. */
  get http(): number {
    return errorTable[this.code].http;
  }

  /** The same request may succeed later. */
  get retryable(): boolean {
    return errorTable[this.code].retryable;
  }

  /** How soon the same request may be sent again, where whoever refused it has said so. */
  get retryAfterMs(): number | null {
    const text = this.details['retryAfterMs'] ?? '';
    return /^\d{1,16}$/.test(text) ? Number(text) : null;
  }

  /**
   * An error of ours as it is; anything else wrapped as `code` (default `internal`) with its text as the reason. That no
   * file could be opened for want of a descriptor says nothing of the file, and is `too_many_open_files` wherever it comes up.
   */
  static from(thrown: unknown, code: ErrorCode = 'internal', details: ErrorDetails = {}): LeaseholdError {
    if (thrown instanceof LeaseholdError) return thrown;
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    const shortage = descriptorShortage(thrown);
    if (shortage !== null) return new LeaseholdError('too_many_open_files', { ...details, reason, ...shortage }, { cause: thrown });
    return new LeaseholdError(code, { reason, ...details }, { cause: thrown });
  }

  /** An error as it came over the wire. A code this side does not know becomes `internal`, keeping its text. */
  static fromWire(wire: { readonly code: string; readonly message: string; readonly details: Readonly<Record<string, string>> }): LeaseholdError {
    return isErrorCode(wire.code)
      ? new LeaseholdError(wire.code, wire.details)
      : new LeaseholdError('internal', { reason: `${wire.code}: ${wire.message}`, ...wire.details });
  }
}

const descriptorLimits: Readonly<Record<string, string>> = { EMFILE: 'a process', ENFILE: 'the system' };

/** What is told of a system call that found no descriptor left, from its error, what that was the cause of, or the word for it in a text; else null. */
export function descriptorShortage(thrown: unknown): { readonly whose: string; readonly code: string } | null {
  const { code, cause } = (typeof thrown === 'object' && thrown !== null ? thrown : {}) as { readonly code?: unknown; readonly cause?: { readonly code?: unknown } | null };
  const inText = typeof thrown === 'string' ? /\b(EMFILE|ENFILE)\b/.exec(thrown)?.[1] : undefined;
  const found = [inText, code, cause?.code].find((each): each is string => typeof each === 'string' && Object.hasOwn(descriptorLimits, each));
  return found === undefined ? null : { whose: descriptorLimits[found] ?? '', code: found };
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorTable, code);
}

/** Fills `{name}` from details; a name that is missing stays visible as `?`. A reason that is a sentence already gets no second full stop. */
function fill(template: string, details: Readonly<Record<string, string>>): string {
  return template.replace(/\{(\w+)\}( bytes| ms)?(\.?)/g, (_, name: string, unit: string | undefined, stop: string) => {
    const text = visible(inUnits(name, details[name] ?? '?', unit ?? ''));
    return stop !== '' && name in details && /[.?!…]$/.test(text) ? text : text + stop;
  });
}

/**
 * Names and texts come from strangers, and messages end on terminals: what would move a cursor, colour, or turn the order of
 * what is read is shown by its number. Line ends and tabs stay; the details have it all as it came.
 */
function visible(text: string): string {
  return text.replace(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u2028\u2029\u202A-\u202E\u2066-\u2069]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Byte counts as people read them, with the count itself: `105.3 MiB (110363443 bytes)`; times in the unit that fits. Anything else as it is. */
function inUnits(name: string, text: string, unit: string): string {
  if (unit === ' ms' && /^\d{1,16}$/.test(text)) return durationText(Number(text));
  if (!/(^b|B)ytes$/.test(name) || !/^\d{4,16}$/.test(text) || Number(text) < 1_024) return text + unit;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length, Math.floor(Math.log2(Number(text)) / 10));
  return `${(Number(text) / 1_024 ** power).toFixed(1)} ${units[power - 1] ?? ''} (${text}${unit})`;
}
