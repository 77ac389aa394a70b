/**
 * What is stored of a model says itself whether somebody edited it: the digest of all its fields is one more field. It is
 * evidence, not a secret: whoever may write the store may also write a digest, and weights.
 */
import { createHash } from 'node:crypto';
import { LeaseholdError } from '../../../protocol/index.js';
import { canonicalJson, type Canonical } from './canonical.js';

export type Fields = Readonly<Record<string, unknown>>;

export interface Sealed {
  /** 64 lower-case hex digits: sha256 of the canonical JSON of every other field, so that the order of keys and white space mean nothing. */
  readonly seal: string;
}

export function sealed<T extends object>(fields: T): T & Sealed {
  return { ...fields, seal: sealOf(fields) };
}

/**
 * The object in `text`, all of whose fields are as they were stored. Throws `profile_invalid` for what is no such object or has
 * no seal, `profile_tampered` for one that does not match. `name`: whose it is.
 */
export function readSealed(text: string, path: string, name: string): Fields {
  const json = readFields(text, path, name);
  const { seal, ...fields } = json;
  if (seal === undefined) throw new LeaseholdError('profile_invalid', { profile: `${name} (${path})`, reason: 'it has no seal: it was stored by an older version, or somebody took it out' }, { help: pullAgain });
  const digest = sealOf(fields);
  if (digest !== seal) throw new LeaseholdError('profile_tampered', { profile: name, digest, path });
  return fields;
}

/** Throws `profile_invalid` for what is no JSON object. */
export function readFields(text: string, path: string, name: string): Fields {
  const fault = (reason: string, cause?: unknown): LeaseholdError => new LeaseholdError('profile_invalid', { profile: `${name} (${path})`, reason }, cause === undefined ? {} : { cause });
  try {
    const json: unknown = JSON.parse(text);
    if (isFields(json)) return json;
  } catch (error) {
    throw fault(`it is no JSON (${(error as Error).message})`, error);
  }
  throw fault('it is no object');
}

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Where the file that is wrong is not in the way of the right one. */
export const pullAgain = 'Pull the model again: leasehold pull. What is downloaded is kept.';

function sealOf(fields: object): string {
  return createHash('sha256').update(canonicalJson(JSON.parse(JSON.stringify(fields)) as Canonical)).digest('hex');
}
