/** From stored JSON to a profile that can be trusted: its fields are checked, and are those that were stored. */
import { LeaseholdError } from '../../../protocol/index.js';
import { fileNameFault } from '../formats/file-name.js';
import type { Policy, Scalar } from '../policy/policy.js';
import { digestOf } from './canonical.js';
import { generatedIdShape, type Profile, type ProfileManifest } from './profile.js';
import { isFields, readFields, readSealed, type Fields } from './seal.js';

const backends = ['transformers', 'vllm', 'mlx_vlm', 'llama_cpp'];
const modalities = ['text', 'image', 'video', 'file'];
const positive = ['estimated_vram_gb', 'max_context_tokens', 'max_images', 'max_video_frames', 'max_file_bytes', 'max_file_characters', 'advertised_context_tokens'] as const;

/** What the fields that an older file leaves out mean. */
const defaults = {
  schema_version: 1, source: 'curated', profile_digest: '', compatibility_policy_version: 0, backend: 'transformers', architecture: '', quantization_method: 'none', artifact_bytes: 0,
  reasoning_parser: '', backend_options: {}, runtime_requirements: [], execution_target: 'modal', weight_files: [], projector_file: '', allow_mixed_image_video: false, trust_remote_code: false,
};

/**
 * A generated profile out of JSON. Throws `profile_invalid` listing what is wrong, `profile_outdated` for one of another policy,
 * and `profile_tampered` where its fields do not have the digest that its id states.
 */
export function readProfile(json: unknown, path: string, policy: Policy): Profile {
  const profile = checkedProfile(json, path, 'generated');
  const { id } = profile;
  if (profile.schema_version !== 2) throw invalid(id, path, [`schema_version is ${String(profile.schema_version)}, a generated one has 2`]);
  if (id !== `hf-${profile.profile_digest}` || !generatedIdShape.test(id)) throw invalid(id, path, ['its id is not hf- and its profile_digest']);
  if (profile.compatibility_policy_version !== policy.version) {
    throw new LeaseholdError('profile_outdated', { profile: id, policyVersion: profile.compatibility_policy_version, running: policy.version });
  }
  const digest = digestOf(profile, policy);
  if (digest !== profile.profile_digest) throw new LeaseholdError('profile_tampered', { profile: id, digest, path });
  return profile;
}

/** The file of the generated profile `id`, no field of which was edited since it was stored. Throws as `readSealed` and `readProfile`. */
export function readProfileManifest(text: string, path: string, id: string, policy: Policy): ProfileManifest {
  return manifestOf(readSealed(text, path, id), path, id, policy);
}

/** The profile of a manifest from before there were seals; null where it has one. Its own digest is checked, and nothing vouches for what stands beside it. */
export function readUnsealedProfile(text: string, path: string, id: string, policy: Policy): Profile | null {
  const json = readFields(text, path, id);
  return 'seal' in json ? null : manifestOf(json, path, id, policy).profile;
}

function manifestOf(json: Fields, path: string, id: string, policy: Policy): ProfileManifest {
  const { requested_reference: reference, resolved_at_unix: resolvedAt, security_scan_complete: scanned } = json;
  const faults = [
    ...typeof reference === 'string' ? [] : ['requested_reference is no text'],
    ...Number.isSafeInteger(resolvedAt) ? [] : ['resolved_at_unix is no whole number'],
    ...typeof scanned === 'boolean' ? [] : ['security_scan_complete is neither true nor false'],
  ];
  if (faults.length > 0) throw invalid(id, path, faults);
  const profile = readProfile(json['profile'], path, policy);
  // A whole manifest in the place of another one.
  if (profile.id !== id) throw new LeaseholdError('profile_tampered', { profile: id, digest: profile.profile_digest, path });
  return { ...json, profile } as unknown as ProfileManifest;
}

/** A file `{ "profiles": [...] }` of curated profiles. Throws `profile_invalid`. */
export function readCurated(text: string, path: string): ReadonlyMap<string, Profile> {
  const list = readFields(text, path, 'curated profiles')['profiles'];
  if (!Array.isArray(list) || list.length === 0) throw invalid('?', path, ['profiles must be a list with something in it']);
  const found = new Map<string, Profile>();
  for (const each of list as readonly unknown[]) {
    const profile = checkedProfile(each, path, 'curated');
    if (found.has(profile.id)) throw invalid(profile.id, path, ['its id is there twice']);
    found.set(profile.id, profile);
  }
  return found;
}

/** Each field by itself. Where it comes from is known by where it was found, never by what it says of itself. */
function checkedProfile(json: unknown, path: string, source: Profile['source']): Profile {
  if (!isFields(json)) throw invalid('?', path, ['it is no object']);
  const profile: Fields = { ...defaults, advertised_context_tokens: json['max_context_tokens'], ...json };
  const faults = [...faultsOf(profile), ...profile['source'] === source ? [] : [`source must be ${source}`]];
  if (faults.length > 0) throw invalid(typeof profile['id'] === 'string' ? profile['id'] : '?', path, faults);
  return profile as unknown as Profile;
}

function faultsOf(profile: Fields): string[] {
  const rules: readonly (readonly [holds: boolean, fault: string])[] = [
    [isText(profile['id'], /^[a-z0-9][a-z0-9._-]*$/), 'id must be lower-case letters, digits, dots, dashes'],
    [isText(profile['display_name'], /./), 'display_name is missing'],
    [isText(profile['repository'], /^[^/]+\/[^/]+$/), 'repository must be owner/name'],
    [isText(profile['revision'], /^[0-9a-f]{40}$/), 'revision must be 40 lower-case hex digits'],
    [['bfloat16', 'float16', 'float32'].includes(profile['dtype'] as string), 'dtype must be bfloat16, float16 or float32'],
    [isList(profile['modalities'], (each) => modalities.includes(each as string)) && (profile['modalities'] as unknown[]).length > 0, `modalities must be some of ${modalities.join(', ')}`],
    [profile['trust_remote_code'] === false, 'trust_remote_code must be false: review and package custom model code instead'],
    [typeof profile['allow_mixed_image_video'] === 'boolean', 'allow_mixed_image_video must be true or false'],
    [backends.includes(profile['backend'] as string), `backend must be one of ${backends.join(', ')}`],
    [['modal', 'local_apple'].includes(profile['execution_target'] as string), 'execution_target must be modal or local_apple'],
    [['', 'none', 'qwen3'].includes(profile['reasoning_parser'] as string), 'reasoning_parser must be empty, none or qwen3'],
    [isWhole(profile['schema_version']) && isWhole(profile['compatibility_policy_version']), 'its versions must be whole numbers'],
    [isText(profile['architecture'], /^/) && isText(profile['quantization_method'], /./) && isText(profile['profile_digest'], /^/), 'architecture, quantization_method and profile_digest must be texts'],
    [isWhole(profile['artifact_bytes']), 'artifact_bytes must be a whole number'],
    [isFields(profile['backend_options']) && Object.values(profile['backend_options']).every(isScalar), 'backend_options must be an object of texts, numbers and truth values'],
    [isList(profile['runtime_requirements'], (each) => typeof each === 'string'), 'runtime_requirements must be a list of texts'],
    [isList(profile['weight_files'], isFileName), 'weight_files must be a list of names of files within the repository'],
    [profile['projector_file'] === '' || isFileName(profile['projector_file']), 'projector_file must be empty, or the name of a file within the repository'],
    [positive.slice(1).every((name) => Number.isSafeInteger(profile[name])), `${positive.slice(1).join(', ')} must be whole numbers`],
  ];
  const low = positive.filter((name) => !(typeof profile[name] === 'number' && Number.isFinite(profile[name]) && profile[name] > 0));
  return [...rules.filter(([holds]) => !holds).map(([, fault]) => fault), ...low.length === 0 ? [] : [`above 0 must be: ${low.join(', ')}`]];
}

const isText = (value: unknown, shape: RegExp): boolean => typeof value === 'string' && shape.test(value);
const isFileName = (value: unknown): boolean => typeof value === 'string' && fileNameFault(value) === null;
const isWhole = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isScalar = (value: unknown): value is Scalar => ['string', 'boolean'].includes(typeof value) || (typeof value === 'number' && Number.isFinite(value));
const isList = (value: unknown, holds: (each: unknown) => boolean): boolean => Array.isArray(value) && value.every(holds);

function invalid(profile: string, path: string, faults: readonly string[]): LeaseholdError {
  return new LeaseholdError('profile_invalid', { profile: `${profile} (${path})`, reason: faults.join('; ') });
}
