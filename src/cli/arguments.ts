/** Words of the command line as values; a wrong one is `input_invalid` and says what is allowed. */
import { LeaseholdError } from '../../protocol/index.js';
import { parseDurationMs } from '../config/durations.js';
import { contextTokensMax, parseContextTokens } from '../config/tokens.js';

export function wholeNumber(text: string | undefined, field: string, minimum: number, maximum: number): number | undefined {
  if (text === undefined) return undefined;
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value) || value < minimum || value > maximum) throw invalid(field, `must be a whole number from ${minimum} to ${maximum}`, text);
  return value;
}

/** Tokens of a context: `4096`, or `4k` for 4 times 1024; one bound for every command. */
export function contextTokens(text: string | undefined, field: string): number | undefined {
  if (text === undefined) return undefined;
  const tokens = parseContextTokens(text);
  if (tokens === null) throw invalid(field, `must be a whole number from 1 to ${contextTokensMax}, or one of times 1024 like 32k`, text);
  return tokens;
}

export function decimal(text: string | undefined, field: string, minimum: number, maximum: number): number | undefined {
  if (text === undefined) return undefined;
  const value = /^\d{1,6}(\.\d{1,9})?$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= minimum && value <= maximum)) throw invalid(field, `must be a number from ${minimum} to ${maximum}`, text);
  return value;
}

export function duration(text: string | undefined, field: string, minimumMs = 1): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDurationMs(text);
  if (ms === null || ms < minimumMs) throw invalid(field, `must be a duration like 250ms, 30s, 5m or 2h, from ${minimumMs}ms to 30d`, text);
  return ms;
}

/** Decimal digits up to 2^63 - 1, kept as text: no JavaScript number holds them all. */
export function seed(text: string | undefined, field: string): string | undefined {
  if (text === undefined) return undefined;
  const digits = text;
  if (!/^\d{1,19}$/.test(digits) || BigInt(digits) > 2n ** 63n - 1n) throw invalid(field, 'must be whole, from 0 to 9223372036854775807', text);
  return digits;
}

function invalid(field: string, rule: string, given: string): LeaseholdError {
  return new LeaseholdError('input_invalid', { field, reason: `${rule}, not ${JSON.stringify(given)}` }, { help: 'The same command with --help says what each option takes.' });
}
