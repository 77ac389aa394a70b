/** Checks a plain value against the schema and says what is wrong in words, with what is allowed. */
import { suggest, nearest, didYouMean } from '../../protocol/index.js';
import type { ErrorObject, ValidateFunction } from 'ajv';
import { configInvalid, shown, type Fault, type Pointer, type Source } from './fault.js';
import { configSchema, type JsonSchema } from './schema-file.js';

/** More names than this are not listed: the nearest one says more. */
const namesListedMax = 14;

const compiled = new Map<JsonSchema, Promise<ValidateFunction>>();

/** Throws one `config_invalid` with every fault of `value`, and of `found` before; a value that passes has the shape of the schema. */
export async function assertValid(value: unknown, source: Source, schema: JsonSchema = configSchema(), found: readonly Fault[] = []): Promise<void> {
  // Nothing was read of it, and why is known.
  const faults = value === null && found.length > 0 ? found : [...found, ...await schemaFaults(value, schema)];
  if (faults.length > 0) throw configInvalid(source, faults);
}

/** What of `value` the schema does not allow. */
export async function schemaFaults(value: unknown, schema: JsonSchema = configSchema()): Promise<readonly Fault[]> {
  const known = compiled.get(schema) ?? compile(schema);
  compiled.set(schema, known);
  const validate = await known;
  return validate(value) ? [] : faultsOf(validate.errors ?? []);
}

/** The value without what is wrong in it, so that the rest can be judged, too: an entry of a list takes the list with it, what is missing its map. */
export function without(value: unknown, faults: readonly Fault[]): unknown {
  const left: unknown = structuredClone(value);
  for (const { pointer } of faults) {
    const list = pointer.findIndex((step) => typeof step === 'number');
    const steps = list === -1 ? pointer : pointer.slice(0, list);
    const last = steps.at(-1);
    if (last === undefined) return {};
    const parent = steps.slice(0, -1).reduce<unknown>((at, step) => (at as Readonly<Record<string, unknown>> | null | undefined)?.[String(step)], left);
    if (typeof parent === 'object' && parent !== null) Reflect.deleteProperty(parent, String(last));
  }
  return left;
}

async function compile(schema: JsonSchema): Promise<ValidateFunction> {
  const { Ajv } = await import('ajv');
  return new Ajv({ allErrors: true, verbose: true, allowUnionTypes: true }).compile(withoutReferences(schema));
}

/**
 * The schema with each definition where it is referred to. ajv checks a definition that itself refers to others in a
 * function of its own, and copies all faults found before into the list after every call: of 20,000 models that took seconds.
 */
function withoutReferences(schema: JsonSchema): JsonSchema {
  const { definitions = {}, ...rest } = schema;
  const inPlace = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(inPlace);
    if (typeof part !== 'object' || part === null) return part;
    const { $ref } = part as JsonSchema;
    if ($ref !== undefined) return inPlace(definitions[$ref.replace('#/definitions/', '')]);
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, inPlace(value)]));
  };
  return inPlace(rest) as JsonSchema;
}

/** One fault a value: of several errors about it, the first says what was expected of it. */
function faultsOf(errors: readonly ErrorObject[]): readonly Fault[] {
  const seen = new Set<string>();
  return errors.filter(({ keyword }) => keyword !== 'propertyNames').flatMap((error) => {
    const fault = faultOf(error);
    const place = JSON.stringify([fault.pointer, fault.part]);
    if (seen.has(place)) return [];
    seen.add(place);
    return [fault];
  });
}

function faultOf(error: ErrorObject): Fault {
  const parent = error.parentSchema as JsonSchema | undefined;
  const pointer = toPointer(error.instancePath);
  if (error.keyword === 'additionalProperties') {
    const { additionalProperty: key } = error.params as { additionalProperty: string };
    return { pointer: [...pointer, key], part: 'key', reason: unknownKey(key, Object.keys(parent?.properties ?? {})) };
  }
  // The error is about the name of a key, not about the value there.
  if (error.propertyName !== undefined) {
    return { pointer: [...pointer, error.propertyName], part: 'key', reason: `${shown(error.propertyName)} must be ${parent?.title ?? 'another name'}` };
  }
  if (error.keyword === 'required') {
    return { pointer, part: 'key', reason: `${(error.params as { missingProperty: string }).missingProperty} is missing` };
  }
  return { pointer, part: 'value', reason: wrongValue(error, parent) };
}

function wrongValue(error: ErrorObject, parent: JsonSchema | undefined): string {
  const data: unknown = error.data;
  if (error.keyword === 'enum') return wrongWord(data, (error.params as { allowedValues: readonly string[] }).allowedValues);
  if (error.keyword === 'uniqueItems') return sameTwice(data, (error.params as { i: number }).i);
  if (error.keyword === 'minItems' || error.keyword === 'minProperties') return `must have at least one entry${parent?.title === undefined ? '' : `: ${parent.title}`}`;
  if (error.keyword === 'maxItems' || error.keyword === 'maxProperties') return `must have at most ${(error.params as { limit: number }).limit} entries`;
  if (error.keyword === 'maxLength') return `must have at most ${(error.params as { limit: number }).limit} characters`;
  return `must be ${parent?.title ?? error.message ?? 'something else'}, not ${shown(data)}`;
}

/** Two cards that are simulated alike are told apart by their names. */
function sameTwice(data: unknown, index: number): string {
  const entry: unknown = Array.isArray(data) ? data[index] : undefined;
  const named = typeof entry === 'string' && entry.startsWith('sim:') ? `; two simulated cards alike need names: ${entry},name=left and ${entry},name=right` : '';
  return `${shown(entry)} is there twice${named}`;
}

function wrongWord(data: unknown, allowed: readonly string[]): string {
  const near = typeof data === 'string' ? suggest(data, allowed) : null;
  return `must be one of ${allowed.join(', ')}, not ${shown(data)}${near === null ? '' : `; did you mean ${near}?`}`;
}

/** `unknown key "modls"; did you mean models? Known here: …` */
export function unknownKey(key: string, known: readonly string[]): string {
  const near = nearest(key, known);
  if (near.length > 0) return `unknown key ${shown(key)}${didYouMean(near)}`;
  return `unknown key ${shown(key)}; ${known.length <= namesListedMax ? `known here: ${known.join(', ')}` : `${known.length} keys are known here${known.includes('frameBytesMax') ? ' (`leasehold limits` lists them)' : ''}`}`;
}

/** A JSON pointer's steps; all-digit steps are indices (no key of ours is a number). */
function toPointer(instancePath: string): Pointer {
  return instancePath.split('/').slice(1).map((step) => {
    const text = step.replaceAll('~1', '/').replaceAll('~0', '~');
    return /^\d+$/.test(text) ? Number(text) : text;
  });
}
