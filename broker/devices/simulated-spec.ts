/** `sim:24MiB[,floor=1MiB][,lag=200ms][,blind][,name=…]`: a simulated card in one word of a configuration. */
import { parseBytes } from '../../protocol/byte-size.js';
import { LeaseholdError } from '../../protocol/index.js';
import { cardBytesMax } from '../core/ledger/bounds.js';

export interface SimulatedSpec {
  readonly totalBytes: number;
  /** What each attached process costs; default 0. */
  readonly floorBytes: number;
  /** From a process's end to the return of its bytes; default 0. */
  readonly lagMs: number;
  /** No figures by process, as under WDDM. */
  readonly blind: boolean;
  /** Null: the card names itself. */
  readonly name: string | null;
}

export function isSimulatedSpec(text: string): boolean {
  return text.startsWith('sim:');
}

/** Throws `input_invalid` (naming `field` and the part) or `bytes_invalid`. Each option at most once, none unknown. */
export function parseSimulatedSpec(text: string, field = 'devices'): SimulatedSpec {
  if (!isSimulatedSpec(text)) throw invalid(field, `${JSON.stringify(text.slice(0, 64))} must begin with sim:`);
  const [size = '', ...settings] = text.slice('sim:'.length).split(',').map((part) => part.trim());
  const given = new Map<string, string | null>();
  for (const setting of settings) {
    const equals = setting.indexOf('=');
    const key = equals === -1 ? setting : setting.slice(0, equals);
    if (given.has(key)) throw invalid(field, `${key} is given twice in ${text}`);
    given.set(key, equals === -1 ? null : setting.slice(equals + 1));
  }
  const spec = {
    totalBytes: parseBytes(size, `${field} ${text}`, 1),
    floorBytes: parseBytes(take(given, 'floor', field) ?? '0', `${field} ${text} floor`),
    lagMs: parseLag(take(given, 'lag', field) ?? '0ms', text, field),
    blind: takeFlag(given, 'blind', field),
    name: parseName(take(given, 'name', field), field),
  };
  for (const key of given.keys()) throw invalid(field, `${JSON.stringify(key)} is not known in ${text}; known: floor, lag, blind, name`);
  if (spec.totalBytes > cardBytesMax) throw new LeaseholdError('bytes_invalid', { field: `${field} ${text}`, value: spec.totalBytes, minimum: 1, maximum: cardBytesMax });
  if (spec.floorBytes > spec.totalBytes) throw invalid(field, `the floor in ${text} is larger than the card`);
  return spec;
}

function take(given: Map<string, string | null>, key: string, field: string): string | null {
  const value = given.get(key);
  if (value === undefined) return null;
  if (value === null) throw invalid(field, `${key} needs a value: ${key}=…`);
  given.delete(key);
  return value;
}

function takeFlag(given: Map<string, string | null>, key: string, field: string): boolean {
  const value = given.get(key);
  if (value === undefined) return false;
  if (value !== null) throw invalid(field, `${key} takes no value`);
  given.delete(key);
  return true;
}

function parseLag(text: string, spec: string, field: string): number {
  const match = /^(\d{1,7})(ms|s)$/.exec(text);
  if (match === null) throw invalid(field, `lag in ${spec} must be whole milliseconds or seconds, like 200ms or 2s`);
  return Number(match[1]) * (match[2] === 's' ? 1_000 : 1);
}

function parseName(text: string | null, field: string): string | null {
  if (text !== null && (text.length === 0 || text.length > 64)) throw invalid(field, 'name must have 1 to 64 characters');
  return text;
}

function invalid(field: string, reason: string): LeaseholdError {
  return new LeaseholdError('input_invalid', { field, reason });
}
