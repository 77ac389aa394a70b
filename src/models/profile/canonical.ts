/** The bytes that a profile's id is the digest of. They must come out the same in every language, to the last digit. */
import { createHash } from 'node:crypto';
import type { Policy } from '../policy/policy.js';
import type { Profile } from './profile.js';

/** A number that is printed with a decimal point though it may be whole. */
class Float {
  constructor(readonly value: number) {}
}

export type Canonical = null | string | number | boolean | Float | readonly Canonical[] | { readonly [key: string]: Canonical };

/**
 * The digest's input. The limits are constants of the policy and its version stands for them; a profile with another one
 * carries it here by name, and so do the files that were chosen: every field that defines how a model runs is covered,
 * and a profile that differs in none of these has the same bytes as in other programs of this schema.
 */
export function canonicalBytes(profile: Profile, policy: Policy): Uint8Array {
  const { limits } = policy;
  const unusual = (Object.keys(limits) as (keyof typeof limits)[]).filter((name) => profile[name] !== limits[name]);
  const fields: Record<string, Canonical> = {
    schema_version: profile.schema_version,
    compatibility_policy_version: profile.compatibility_policy_version,
    repository: profile.repository,
    revision: profile.revision,
    dtype: profile.dtype,
    modalities: [...profile.modalities].sort(byCodePoint),
    backend: profile.backend,
    architecture: profile.architecture,
    quantization_method: profile.quantization_method,
    artifact_bytes: profile.artifact_bytes,
    advertised_context_tokens: profile.advertised_context_tokens,
    max_context_tokens: profile.max_context_tokens,
    estimated_vram_gb: new Float(profile.estimated_vram_gb),
    reasoning_parser: profile.reasoning_parser,
    backend_options: profile.backend_options,
    runtime_requirements: profile.runtime_requirements,
    ...profile.execution_target === 'modal' ? {} : { execution_target: profile.execution_target },
    ...Object.fromEntries(unusual.map((name) => [name, profile[name]])),
    ...profile.weight_files.length === 0 ? {} : { weight_files: profile.weight_files },
    ...profile.projector_file === '' ? {} : { projector_file: profile.projector_file },
  };
  return new TextEncoder().encode(print(fields));
}

/** 64 lower-case hex digits. */
export function digestOf(profile: Profile, policy: Policy): string {
  return createHash('sha256').update(canonicalBytes(profile, policy)).digest('hex');
}

/** Rounded to one decimal, a half to the even digit, judged on the binary value: as the id's other makers do. */
export function roundToTenth(value: number): number {
  // The exact decimal expansion of a double ends; twenty places show every tie that a size can make.
  const [whole = '0', digits = ''] = value.toFixed(20).split('.');
  const tenth = Number(digits[0] ?? 0);
  const rest = digits.slice(1);
  const half = `5${'0'.repeat(rest.length - 1)}`;
  const up = rest > half || (rest === half && tenth % 2 === 1);
  return (Number(whole) * 10 + tenth + (up ? 1 : 0)) / 10;
}

/** As the sources print it: keys in order of code points, no space, ASCII alone. */
export function canonicalJson(value: Canonical): string {
  return print(value);
}

function print(value: Canonical): string {
  if (value === null) return 'null';
  if (value instanceof Float) return Number.isInteger(value.value) ? `${String(value.value)}.0` : String(value.value);
  if (typeof value === 'string') return quote(value);
  if (typeof value !== 'object') return String(value);
  if (isList(value)) return `[${value.map(print).join(',')}]`;
  return `{${Object.entries(value).sort(([one], [other]) => byCodePoint(one, other)).map(([key, each]) => `${quote(key)}:${print(each)}`).join(',')}}`;
}

/** As JSON, with everything outside printable ASCII escaped. */
function quote(text: string): string {
  return JSON.stringify(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function byCodePoint(left: string, right: string): number {
  const [one, other] = [Array.from(left), Array.from(right)];
  for (let index = 0; index < Math.min(one.length, other.length); index++) {
    const difference = (one[index]?.codePointAt(0) ?? 0) - (other[index]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return one.length - other.length;
}

function isList(value: object): value is readonly Canonical[] {
  return Array.isArray(value);
}
