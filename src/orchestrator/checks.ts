/**
 * What callers give, checked before anything is done with it: kinds of values, and what is not known by its name. One
 * table for each thing that can be given (tables.ts); the first fault found is told with its place and what is allowed.
 */
import { suggest } from '../../protocol/index.js';
import type { Schema } from '../../protocol/index.js';

/** Where something is wrong, and why. */
export interface Fault {
  readonly path: string;
  readonly reason: string;
}

/** Null when the value is allowed there. */
export type Check = (value: unknown, path: string) => Fault | null;

/** A check for each thing that `T` may have; what it may not have is not there. */
export type Table<T> = Readonly<Record<keyof T & string, Check>>;

/** What other libraries call it. */
const otherNames: Readonly<Record<string, string>> = {
  timeout: 'deadlineMs', timeoutms: 'deadlineMs', path: 'source', file: 'source', model: 'source', modelpath: 'source', ctx: 'contextTokens', nctx: 'contextTokens',
  contextsize: 'contextTokens', ngpulayers: 'options', gpu: 'devices', workers: 'engines', abortsignal: 'signal', maxnewtokens: 'maxTokens', npredict: 'maxTokens', size: 'bytes',
};

/** Values that `test` is true for. */
export function that(expected: string, test: (value: unknown) => boolean): Check {
  return (value, path) => (test(value) ? null : mustBe(path, expected, value));
}

/** Values that the wire takes there. */
export function as(schema: Schema<unknown>): Check {
  return (value, path) => {
    const fault = schema.check(value, '');
    return fault === null ? null : mustBe(within(path, fault.path), fault.expected, fault.path === '' ? value : undefined);
  };
}

export function orNull(check: Check): Check {
  return (value, path) => {
    if (value === null) return null;
    const fault = check(value, path);
    return fault === null || fault.path !== path ? fault : { path, reason: fault.reason.replace(/, not /, ' or null, not ') };
  };
}

export function listOf(item: Check, expected: string): Check {
  return (value, path) => {
    if (!Array.isArray(value)) return mustBe(path, expected, value);
    return firstOf(value.map((each: unknown, index) => [`${path}[${String(index)}]`, each, item] as const));
  };
}

/** An object with keys of the caller's choice. */
export function mapOf(item: Check, expected: string): Check {
  return (value, path) => (isObject(value) ? firstOf(Object.entries(value).map(([key, each]) => [within(path, key), each, item] as const)) : mustBe(path, expected, value));
}

/** An object that has what `table` names, and of that at least what is `required`. What is undefined counts as left out. */
export function object(table: Readonly<Record<string, Check>>, expected = 'an object', required: readonly string[] = []): Check {
  return (value, path) => {
    if (!isObject(value)) return mustBe(path, expected, value);
    const unknown = Object.keys(value).find((key) => !Object.hasOwn(table, key));
    if (unknown !== undefined) return { path: within(path, unknown), reason: unknownKey(unknown, Object.keys(table)) };
    const given = Object.entries(value).filter(([, each]) => each !== undefined);
    const missing = required.find((key) => !given.some(([name]) => name === key));
    if (missing !== undefined) return { path: within(path, missing), reason: 'it is missing' };
    return firstOf(given.map(([key, each]) => [within(path, key), each, table[key] ?? anything] as const));
  };
}

export const anything: Check = () => null;
export const truth = that('true or false', (value) => typeof value === 'boolean');
export const text = that('a string with something in it', (value) => typeof value === 'string' && value !== '');
export const aFunction = that('a function', (value) => typeof value === 'function');
/** What kind of number it must be is checked where it is used. */
export const aNumber = that('a number', (value) => typeof value === 'number');

function firstOf(entries: readonly (readonly [string, unknown, Check])[]): Fault | null {
  for (const [path, value, check] of entries) {
    const fault = check(value, path);
    if (fault !== null) return fault;
  }
  return null;
}

function unknownKey(key: string, known: readonly string[]): string {
  const near = nearest(key, known);
  return `there is no such option; ${near === null ? `known here: ${known.join(', ')}` : `did you mean ${near}?`}`;
}

/** A slip of the pen, the beginning of a word, or what others call it; however its words are joined. */
function nearest(key: string, known: readonly string[]): string | null {
  const plain = key.replace(/[^a-z0-9]/gi, '').toLowerCase();
  const other = otherNames[plain];
  if (other !== undefined && known.includes(other)) return other;
  const begun = plain.length < 3 ? [] : known.filter((name) => name.toLowerCase().startsWith(plain));
  return begun[0] ?? suggest(plain, known);
}

function mustBe(path: string, expected: string, value: unknown): Fault {
  return { path, reason: `it must be ${expected}${value === undefined ? '' : `, not ${shown(value)}`}` };
}

function within(path: string, key: string): string {
  if (path === '' || key === '') return path + key;
  return key.startsWith('[') ? path + key : `${path}.${key}`;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}…` : value);
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}
