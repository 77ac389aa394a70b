/**
 * A small declarative schema: one description of a message serves as its
 * TypeScript type, its run-time check, its row in the wire README and its
 * entry in schema.json, which other languages read.
 *
 * Checks are strict about every field that is named and blind to every field
 * that is not: a newer peer may add fields, never change one.
 */
import { durationText } from './duration.js';

/** What a schema says about a value, in a form that other languages can read. */
export type SchemaDescription =
  | { readonly kind: 'integer'; readonly minimum: number; readonly maximum: number; readonly unit: string }
  | { readonly kind: 'number'; readonly minimum: number; readonly maximum: number }
  | { readonly kind: 'boolean' }
  | { readonly kind: 'string'; readonly charactersMax: number; readonly pattern: string | null }
  | { readonly kind: 'choice'; readonly of: readonly string[] }
  | { readonly kind: 'list'; readonly item: SchemaDescription; readonly itemsMax: number; readonly distinctBy?: string }
  | { readonly kind: 'map'; readonly value: SchemaDescription; readonly entriesMax: number }
  | { readonly kind: 'object'; readonly fields: Readonly<Record<string, SchemaDescription>> }
  | { readonly kind: 'nullable'; readonly inner: SchemaDescription }
  | { readonly kind: 'optional'; readonly inner: SchemaDescription };

/** The first thing found wrong with a value: where, and what was expected. */
export interface SchemaFault {
  readonly path: string;
  readonly expected: string;
}

/** A check for values of type `T`. `optional` marks a field that may be left out. */
export interface Schema<T, Optional extends boolean = boolean> {
  readonly description: SchemaDescription;
  readonly optional: Optional;
  /** Returns null when `value` fits, else the first fault found. Never throws. */
  check(value: unknown, path: string): SchemaFault | null;
  /** Carries the type; never present at run time. */
  readonly _type?: T;
}

export type RequiredSchema<T> = Schema<T, false>;
export type Infer<S> = S extends Schema<infer T> ? T : never;
export type Fields = Readonly<Record<string, Schema<unknown>>>;
type RequiredKeys<F extends Fields> = { [K in keyof F]: F[K] extends Schema<unknown, true> ? never : K }[keyof F];
type OptionalKeys<F extends Fields> = { [K in keyof F]: F[K] extends Schema<unknown, true> ? K : never }[keyof F];
export type InferFields<F extends Fields> = { readonly [K in RequiredKeys<F>]: Infer<F[K]> } & {
  readonly [K in OptionalKeys<F>]?: Infer<F[K]>;
};

function schema<T>(
  description: SchemaDescription,
  check: (value: unknown, path: string) => SchemaFault | null,
): RequiredSchema<T> {
  return { description, optional: false, check };
}

/** An integer from `minimum` to `maximum`; floats, NaN, strings and bigints are faults. */
export function integer(minimum: number, maximum: number, unit: string): RequiredSchema<number> {
  const expected = `an integer from ${String(minimum)} to ${String(maximum)} (${unit === 'ms' ? `ms: at most ${durationText(maximum)}` : unit})`;
  return schema({ kind: 'integer', minimum, maximum, unit }, (value, path) =>
    typeof value === 'number' && Number.isSafeInteger(value) && value >= minimum && value <= maximum
      ? null
      : { path, expected },
  );
}

/** A finite number from `minimum` to `maximum`, fractions allowed. Never used for bytes. */
export function number(minimum: number, maximum: number): RequiredSchema<number> {
  const expected = `a number from ${String(minimum)} to ${String(maximum)}`;
  return schema({ kind: 'number', minimum, maximum }, (value, path) =>
    typeof value === 'number' && value >= minimum && value <= maximum ? null : { path, expected },
  );
}

/** Zero or more bytes, up to 2^53 - 1. */
export const bytes = (): RequiredSchema<number> => integer(0, Number.MAX_SAFE_INTEGER, 'bytes');
/** At least one byte, up to 2^53 - 1. */
export const positiveBytes = (): RequiredSchema<number> => integer(1, Number.MAX_SAFE_INTEGER, 'bytes');
/** A correlation id: unique among the sender's open requests on one connection. */
export const id = (): RequiredSchema<number> => integer(1, Number.MAX_SAFE_INTEGER, 'id');
/** A count of things. */
export const count = (maximum = Number.MAX_SAFE_INTEGER): RequiredSchema<number> => integer(0, maximum, 'count');
/** A duration in whole milliseconds, at most 30 days. */
export const durationMs = (): RequiredSchema<number> => integer(0, 30 * 24 * 3600 * 1000, 'ms');
/** A moment on the machine's CLOCK_MONOTONIC in whole microseconds (ADR 0012). */
export const timeUs = (): RequiredSchema<number> => integer(0, Number.MAX_SAFE_INTEGER, 'us of CLOCK_MONOTONIC');

export function boolean(): RequiredSchema<boolean> {
  return schema({ kind: 'boolean' }, (value, path) =>
    typeof value === 'boolean' ? null : { path, expected: 'true or false' },
  );
}

/** A string of at most `charactersMax` UTF-16 units that matches `pattern` when one is given. */
export function string(charactersMax: number, pattern: RegExp | null = null): RequiredSchema<string> {
  const expected =
    `a string of at most ${String(charactersMax)} characters` + (pattern ? ` matching ${pattern.source}` : '');
  return schema({ kind: 'string', charactersMax, pattern: pattern?.source ?? null }, (value, path) =>
    typeof value === 'string' && value.length <= charactersMax && (pattern === null || pattern.test(value))
      ? null
      : { path, expected },
  );
}

/** One of the given words. */
export function choice<const W extends string>(...of: readonly W[]): RequiredSchema<W> {
  const words = new Set<unknown>(of);
  return schema({ kind: 'choice', of }, (value, path) =>
    words.has(value) ? null : { path, expected: `one of ${of.join(', ')}` },
  );
}

/** `distinctBy`: a field of text that no two of its items have alike. */
export function list<T>(item: Schema<T>, itemsMax: number, distinctBy?: keyof T & string): RequiredSchema<readonly T[]> {
  return schema({ kind: 'list', item: item.description, itemsMax, ...(distinctBy === undefined ? {} : { distinctBy }) }, (value, path) => {
    if (!Array.isArray(value)) return { path, expected: 'a list' };
    if (value.length > itemsMax) return { path, expected: `a list of at most ${String(itemsMax)} items` };
    for (let index = 0; index < value.length; index++) {
      const fault = item.check(value[index], '');
      if (fault !== null) return within(`${path}[${String(index)}]`, fault);
    }
    return distinctBy === undefined || value.length < 2 ? null : doubleIn(value as readonly T[], distinctBy, path);
  });
}

function doubleIn<T>(items: readonly T[], field: keyof T & string, path: string): SchemaFault | null {
  const seen = new Set<unknown>();
  for (const [index, { [field]: own }] of items.entries()) {
    if (seen.has(own)) return { path: `${path}[${String(index)}].${field}`, expected: `another than that of an item before it: ${JSON.stringify(own)} is there twice` };
    seen.add(own);
  }
  return null;
}

/** Longest key of a map, in UTF-16 units. */
export const mapKeyCharactersMax = 128;

/** A map with string keys of at most 128 characters. */
export function map<T>(value: Schema<T>, entriesMax: number): RequiredSchema<Readonly<Record<string, T>>> {
  return schema({ kind: 'map', value: value.description, entriesMax }, (candidate, path) => {
    if (!isPlainObject(candidate)) return { path, expected: 'a map' };
    const keys = Object.keys(candidate);
    if (keys.length > entriesMax) return { path, expected: `a map of at most ${String(entriesMax)} entries` };
    for (const key of keys) {
      if (key.length > mapKeyCharactersMax) return { path, expected: `a map with keys of at most ${String(mapKeyCharactersMax)} characters` };
      const fault = value.check(candidate[key], '');
      if (fault !== null) return within(join(path, key), fault);
    }
    return null;
  });
}

export function object<F extends Fields>(fields: F): RequiredSchema<InferFields<F>> {
  const entries = Object.entries(fields);
  const described = Object.fromEntries(entries.map(([name, field]) => [name, field.description]));
  const names = entries.map(([name]) => name);
  const checks = entries.map(([, field]) => field);
  return schema({ kind: 'object', fields: described }, (value, path) => {
    if (!isPlainObject(value)) return { path, expected: 'a map' };
    // A million small messages pass here: paths are put together only when something is wrong.
    for (let index = 0; index < names.length; index++) {
      const name = names[index] as string;
      const field = checks[index] as Schema<unknown>;
      const inner = value[name];
      if (inner === undefined) {
        if (field.optional) continue;
        return { path: join(path, name), expected: 'present' };
      }
      const fault = field.check(inner, '');
      if (fault !== null) return within(join(path, name), fault);
    }
    return null;
  });
}

/** Absence said out loud: null is "unknown" or "none", never zero. */
export function nullable<T>(inner: Schema<T>): RequiredSchema<T | null> {
  return schema({ kind: 'nullable', inner: inner.description }, (value, path) =>
    value === null ? null : inner.check(value, path),
  );
}

/** A field that may be left out. */
export function optional<T>(inner: Schema<T>): Schema<T, true> {
  return {
    description: { kind: 'optional', inner: inner.description },
    optional: true,
    check: (value, path) => (value === undefined ? null : inner.check(value, path)),
  };
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** A fault found inside the value at `path`. */
function within(path: string, fault: SchemaFault): SchemaFault {
  const joined = fault.path === '' || fault.path.startsWith('[') ? `${path}${fault.path}` : `${path}.${fault.path}`;
  return { path: joined, expected: fault.expected };
}
