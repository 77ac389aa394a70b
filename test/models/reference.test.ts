// From what a person writes to a profile: references, the policy, canonical bytes and what a changed profile comes to.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { parseHubReference, parseReference, referenceText, type ModelReference } from '../../src/models/reference.js';
import { currentPolicy, rowFor, type Backend } from '../../src/models/policy/policy.js';
import { canonicalBytes, digestOf, roundToTenth } from '../../src/models/profile/canonical.js';
import { curatedProfiles, shippedFolder } from '../../src/models/profile/curated.js';
import { generateProfile, type ProfileFacts } from '../../src/models/profile/generate.js';
import { readCurated, readProfile, readProfileManifest } from '../../src/models/profile/read.js';
import type { Profile, ProfileManifest } from '../../src/models/profile/profile.js';
import { sealed } from '../../src/models/profile/seal.js';

const policy = currentPolicy();
const surroundings = { cwd: '/srv', curatedIds: new Set(['smolvlm2-2.2b-instruct']) };
const parse = (text: string): ModelReference => parseReference(text, surroundings);

function made(facts: Partial<ProfileFacts> = {}, backend: Backend | null = null): Profile {
  const all: ProfileFacts = {
    repository: 'owner/model', commit: '9'.repeat(40), architecture: 'MuseGlimmerForConditionalGeneration', quantization: 'none', dtype: 'bfloat16',
    artifactBytes: 25 * 1024 ** 3, advertisedContextTokens: 8_192, weightFiles: [], projectorFile: '', ...facts,
  };
  return generateProfile(all, rowFor(policy, { ...all, backend }), policy);
}

type Json = { readonly [name: string]: unknown };

/** Every field at any depth: with another value of its kind, of another kind, taken out, and one more beside it. */
function editsOf(json: unknown, path = ''): readonly { readonly path: string; readonly json: unknown }[] {
  if (typeof json !== 'object' || json === null) return otherValues(json).map((value) => ({ path, json: value }));
  const below = (name: string): string => (path === '' ? name : `${path}.${name}`);
  if (Array.isArray(json)) {
    const list: readonly unknown[] = json;
    const each = list.flatMap((value, index) => editsOf(value, below(String(index))).map((edit) => ({ path: edit.path, json: list.map((one, at) => (at === index ? edit.json : one)) })));
    return [...each, { path, json: [...list, 'x'] }, { path, json: list.slice(1) }, { path, json: null }].filter((edit) => JSON.stringify(edit.json) !== JSON.stringify(list));
  }
  const fields = json as Json;
  return [
    ...Object.keys(fields).flatMap((name) => editsOf(fields[name], below(name)).map((edit) => ({ path: edit.path, json: { ...fields, [name]: edit.json } }))),
    ...Object.keys(fields).map((name) => ({ path: below(name), json: Object.fromEntries(Object.entries(fields).filter(([each]) => each !== name)) })),
    { path: below('one_more'), json: { ...fields, one_more: 1 } },
  ];
}

function otherValues(value: unknown): readonly unknown[] {
  if (typeof value === 'string') return [`${value}x`, value.slice(1), value === '' ? ' ' : '', 'curated', '../../../../../evil.gguf', 7, null].filter((other) => other !== value);
  if (typeof value === 'number') return [value + 1, value / 3, -value - 1, 0.1, String(value), null].filter((other) => other !== value);
  return [value === false, 'true', null];
}

/** The same object with its keys, at any depth, in another order. */
function shuffled(json: unknown, seed: number): unknown {
  if (Array.isArray(json)) return json.map((each) => shuffled(each, seed));
  if (typeof json !== 'object' || json === null) return json;
  const rank = (key: string): string => createHash('sha256').update(`${String(seed)} ${key}`).digest('hex');
  return Object.fromEntries(Object.entries(json).sort(([one], [other]) => rank(one).localeCompare(rank(other))).map(([key, each]) => [key, shuffled(each, seed)]));
}

function thrown(act: () => unknown): LeaseholdError {
  try {
    act();
  } catch (error) {
    if (error instanceof LeaseholdError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

t.test('R127: a reference', async (t) => {
  t.test('is a repository, with a revision and a file or quantisation where they are given', async (t) => {
    const hub = (repository: string, revision: string | null = null, selection: string | null = null) => ({ kind: 'hub', repository, revision, selection });
    const cases: readonly (readonly [string, object])[] = [
      ['owner/model', hub('owner/model')],
      ['0wner/Model.v1_2-x', hub('0wner/Model.v1_2-x')],
      ['owner/model@main', hub('owner/model', 'main')],
      ['owner/model@refs/pr/3', hub('owner/model', 'refs/pr/3')],
      [`owner/model@${'a'.repeat(40)}`, hub('owner/model', 'a'.repeat(40))],
      ['owner/X-GGUF:Q4_K_M', hub('owner/X-GGUF', null, 'Q4_K_M')],
      ['owner/X-GGUF:latest', hub('owner/X-GGUF')],
      ['owner/X-GGUF@v1:sub/x-Q4_K_M.gguf', hub('owner/X-GGUF', 'v1', 'sub/x-Q4_K_M.gguf')],
      ['hf.co/owner/X-GGUF:IQ2_XXS', hub('owner/X-GGUF', null, 'IQ2_XXS')],
      ['https://huggingface.co/owner/model', hub('owner/model')],
    ];
    for (const [text, wanted] of cases) t.strictSame(parse(text), wanted, text);
  });

  t.test('is a path where it begins like one, and a profile where it is the id of one', async (t) => {
    t.strictSame(parse('./owner/model'), { kind: 'folder', path: '/srv/owner/model' });
    t.strictSame(parse('/models/a.GGUF'), { kind: 'gguf', path: '/models/a.GGUF' });
    t.strictSame(parse('../a.gguf'), { kind: 'gguf', path: '/a.gguf' });
    t.strictSame(parse('~/m'), { kind: 'folder', path: join(homedir(), 'm') });
    t.strictSame(parse(`hf-${'0'.repeat(64)}`), { kind: 'generated', id: `hf-${'0'.repeat(64)}` });
    t.strictSame(parse('smolvlm2-2.2b-instruct'), { kind: 'curated', id: 'smolvlm2-2.2b-instruct' });
  });

  t.test('is refused where it is neither, saying what it must be', async (t) => {
    for (const text of [
      '', 'model', 'a/b/c', '-a/b', 'a/-b', 'a/.b', 'a b/c', 'a/b@', 'a/b@-x', 'a/b@../../x', 'a/b@x//y', 'a/b:', 'a/b:../x.gguf', 'a/b:/x', 'a/b:x\\y', 'a/b?x=1', 'a/b#x', 'a/b%2e', 'a..b/c',
      `hf-${'0'.repeat(63)}`, `hf-../${'0'.repeat(61)}`, `x/${'y'.repeat(2_000)}`, './a\0b', 'http://evil.example/a/b',
    ]) {
      const { code, help } = thrown(() => parse(text));
      t.equal(code, 'reference_invalid', text);
      t.match(help, /a Hugging Face ID like owner\/model or owner\/model@revision/);
    }
    t.match(thrown(() => parse('model')).message, /^"model" does not name a model: it is not written as owner\/name\.$/);
  });

  t.test('is written at its shortest in records', async (t) => {
    for (const [text, short] of [['o/n', 'o/n'], ['o/n@main', 'o/n'], ['hf.co/o/n@v1:Q8_0', 'o/n@v1:Q8_0'], ['o/n:latest', 'o/n']] as const) t.equal(referenceText(parseHubReference(text)), short);
  });
});

t.test('the policy', async (t) => {
  t.test('R143: refuses an architecture or a quantisation that was not reviewed, naming it and its version', async (t) => {
    const base = { repository: 'o/n', quantization: 'none', backend: null };
    t.match(thrown(() => rowFor(policy, { ...base, architecture: 'EvilForCausalLM' })), { code: 'architecture_unsupported', message: /policy 1 .*EvilForCausalLM of o\/n/ });
    t.match(thrown(() => rowFor(policy, { ...base, architecture: 'MuseGlimmerForConditionalGeneration', quantization: 'fp8' })), { code: 'quantization_unsupported', message: /policy 1 .*quantised as fp8/ });
    t.match(thrown(() => rowFor(policy, { ...base, architecture: 'MuseGlimmerForConditionalGeneration', backend: 'vllm' })), { code: 'architecture_unsupported', message: /MuseGlimmerForConditionalGeneration on vllm/ });
    for (const [architecture, quantization] of [['GptOssForCausalLM', 'mxfp4'], ['DeepseekV3ForCausalLM', 'fp8']] as const) t.match(thrown(() => rowFor(policy, { ...base, architecture, quantization, backend: 'transformers' })), { code: 'quantization_unsupported' }, 'not reviewed');
    t.equal(thrown(() => rowFor(policy, { ...base, architecture: '__proto__' })).code, 'architecture_unsupported');
  });

  t.test('sends each family to the first backend that takes its quantisation', async (t) => {
    const backend = (architecture: string, quantization: string) => rowFor(policy, { repository: 'o/n', architecture, quantization, backend: null }).backend;
    t.equal(backend('LlamaForCausalLM', 'none'), 'transformers');
    t.equal(backend('LlamaForCausalLM', 'awq'), 'vllm');
    for (const quantization of ['none', 'fp8', 'modelopt_fp4']) t.equal(backend('Qwen3_5ForConditionalGeneration', quantization), 'vllm');
    t.equal(backend('GptOssForCausalLM', 'mxfp4'), 'vllm');
    // Rows that came later leave what had one, and the version with it.
    for (const architecture of ['GptOssForCausalLM', 'DeepseekV2ForCausalLM', 'DeepseekV3ForCausalLM']) t.equal(backend(architecture, 'none'), 'vllm');
    t.equal(policy.version, 1);
    const onTransformers = (architecture: string): unknown => rowFor(policy, { repository: 'o/n', architecture, quantization: 'none', backend: 'transformers' }).options['attention_implementation'];
    t.equal(onTransformers('GptOssForCausalLM'), 'eager', 'its sinks are not in the fused attention');
    for (const architecture of ['DeepseekV2ForCausalLM', 'DeepseekV3ForCausalLM']) t.equal(onTransformers(architecture), 'sdpa');
  });

  t.test('has each architecture once, and every requirement has a version', async (t) => {
    const all = policy.families.flatMap(({ architectures }) => architectures);
    t.equal(new Set(all).size, all.length);
    const requirements = [...policy.families.flatMap(({ backends }) => backends.flatMap((row) => row.requirements)), ...policy.gguf.requirements];
    t.strictSame(requirements.filter((name) => policy.packages[name] === undefined), []);
    const { peerDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as { peerDependencies: Record<string, string> };
    t.equal(policy.packages['llama_cpp'], `node-llama-cpp==${peerDependencies['node-llama-cpp'] ?? ''}`, 'the version that is installed');
  });
});

t.test('a profile', async (t) => {
  const nvfp4 = { architecture: 'Qwen3_5ForConditionalGeneration', quantization: 'modelopt_fp4', artifactBytes: 30 * 1024 ** 3, advertisedContextTokens: 262_144 };

  t.test('R156: has the ids of the golden vectors, and the canonical bytes of the second', async (t) => {
    t.equal(made(nvfp4).id, 'hf-d7deb048e0729541bb25ee93261a4ab5e567eb255d9b35176bd1409c9ab471ac');
    const glimmer = made();
    t.equal(glimmer.id, 'hf-7afa025a5547bf79c1fbf07ded9d6eeb40e2782b6a7bb635589ef6df1532dd80');
    t.equal(
      Buffer.from(canonicalBytes(glimmer, policy)).toString(),
      '{"advertised_context_tokens":8192,"architecture":"MuseGlimmerForConditionalGeneration","artifact_bytes":26843545600,"backend":"transformers",'
      + '"backend_options":{"attention_implementation":"sdpa"},"compatibility_policy_version":1,"dtype":"bfloat16","estimated_vram_gb":35.0,"max_context_tokens":8192,'
      + '"modalities":["file","image","text"],"quantization_method":"none","reasoning_parser":"none","repository":"owner/model","revision":"9999999999999999999999999999999999999999",'
      + '"runtime_requirements":["transformers==5.15.0"],"schema_version":2}',
    );
  });

  t.test('R145 R146: has at most 32 K of context and the memory of the rule of thumb, rounded half to even', async (t) => {
    t.match(made(nvfp4), { max_context_tokens: 32_768, advertised_context_tokens: 262_144, estimated_vram_gb: 45.6, backend_options: { max_model_len: 32_768, kv_cache_memory_bytes: 12 * 1024 ** 3 } });
    t.match(made(), { max_context_tokens: 8_192, estimated_vram_gb: 35 });
    // 0.25 and 0.75 are ties in binary; 0.15, 0.35 and 1.45 only look like some.
    for (const [value, rounded] of [[0.25, 0.2], [0.75, 0.8], [0.15, 0.1], [0.35, 0.3], [1.45, 1.4], [2.5, 2.5], [99.95, 100], [12.050000000000001, 12.1], [4.24, 4.2]] as const) t.equal(roundToTenth(value), rounded, String(value));
  });

  t.test('R155: escapes what is not ASCII and sorts by code point', async (t) => {
    const odd = { ...made(), backend_options: { '\u{1F600}': 'é\u007F"\n', '\uFFFF': 1, a: true } };
    t.match(Buffer.from(canonicalBytes(odd, policy)).toString(), String.raw`{"a":true,"\uffff":1,"\ud83d\ude00":"\u00e9\u007f\"\n"}`);
  });

  t.test('R154: is another one with any other field that defines how it runs, limits and chosen files included', async (t) => {
    const base = made();
    const other: readonly Partial<Profile>[] = [
      { revision: '8'.repeat(40) }, { dtype: 'float16' }, { backend: 'vllm' }, { estimated_vram_gb: 35.1 }, { max_context_tokens: 4_096 }, { backend_options: {} }, { runtime_requirements: [] },
      { execution_target: 'local_apple' }, { max_images: 9 }, { max_video_frames: 9 }, { max_file_bytes: 9 }, { max_file_characters: 9 }, { allow_mixed_image_video: true }, { weight_files: ['a.gguf'] }, { projector_file: 'mmproj.gguf' },
    ];
    const digests = other.map((change) => digestOf({ ...base, ...change }, policy));
    t.equal(new Set([...digests, digestOf(base, policy)]).size, other.length + 1);
    t.equal(digestOf({ ...base, display_name: 'another name' }, policy), digestOf(base, policy), 'a name changes nothing');
    t.equal(digestOf(base, policy), createHash('sha256').update(canonicalBytes(base, policy)).digest('hex'));
  });

  t.test('R153: is read back only as it was written: its digest is computed anew', async (t) => {
    const profile = made(nvfp4);
    t.strictSame(readProfile(JSON.parse(JSON.stringify(profile)), 'x', policy), profile);
    const changed = { ...profile, estimated_vram_gb: 0.1, backend: 'transformers' };
    t.match(thrown(() => readProfile(changed, '/p/profile.json', policy)), { code: 'profile_tampered', help: /\/p\/profile.json/ });
    for (const change of [{ max_images: 9 }, { weight_files: ['x'] }, { reasoning_parser: 'none' }]) t.equal(thrown(() => readProfile({ ...profile, ...change }, 'x', policy)).code, 'profile_tampered');
    t.equal(thrown(() => readProfile({ ...profile, compatibility_policy_version: 2 }, 'x', policy)).code, 'profile_outdated');
  });

  t.test('R153: is never taken for a reviewed one because it says so', async (t) => {
    t.match(thrown(() => readProfile({ ...made(nvfp4), source: 'curated', estimated_vram_gb: 0.1 }, 'x', policy)), { code: 'profile_invalid', message: /source must be generated/ });
    t.equal(thrown(() => readProfileManifest(JSON.stringify(sealed({ ...manifest, profile: { ...manifest.profile, source: 'curated' } })), 'x', manifest.profile.id, policy)).code, 'profile_invalid', 'not even sealed anew');
  });

  const manifest: ProfileManifest = {
    schema_version: 2, compatibility_policy_version: policy.version, requested_reference: 'owner/model', resolved_at_unix: 1_700_000_000, security_scan_complete: true,
    profile: made({ ...nvfp4, weightFiles: ['a.gguf', 'b.gguf'], projectorFile: 'mmproj.gguf' }),
  };
  const { id } = manifest.profile;
  const stored = JSON.parse(JSON.stringify(sealed(manifest))) as Json;
  const read = (json: unknown, indent = 0): ProfileManifest => readProfileManifest(JSON.stringify(json, null, indent), '/p/profile.json', id, policy);

  t.test('R280: is refused with any single field of its manifest edited, taken out or added, saying what to do', async (t) => {
    const edits = editsOf(stored);
    const paths = new Set(edits.map(({ path }) => path));
    for (const field of [...Object.keys(manifest), 'seal', ...Object.keys(manifest.profile).map((name) => `profile.${name}`), 'profile.backend_options.max_model_len', 'profile.weight_files.1']) t.ok(paths.has(field), field);
    for (const { path, json } of edits) {
      const error = thrown(() => read(json));
      t.match(error.code, /^profile_(tampered|invalid)$/, path);
      t.match(error.help, path === 'seal' ? /pull/i : /[Dd]elete that file and pull the model again/, `${path}: ${error.help}`);
    }
    for (const source of ['curated', 'generated']) t.equal(thrown(() => read({ ...stored, profile: { ...manifest.profile, source, estimated_vram_gb: 0.1, weight_files: ['../../../../../evil.gguf'] } })).code, 'profile_tampered');
  });

  t.test('R280: is accepted with keys in any order and any white space', async (t) => {
    fc.assert(fc.property(fc.integer(), fc.integer({ min: 0, max: 8 }), (seed, indent) => {
      const json = shuffled(stored, seed);
      // Of the lists the order counts; of the fields alone it does not.
      t.strictSame(read(json, indent), manifest);
    }), { numRuns: 60 });
    t.strictSame(readProfileManifest(`\n\t ${JSON.stringify(stored)} \r\n`, 'x', id, policy), manifest);
  });

  t.test('R153: in the place of another one is refused, and so is one that nothing vouches for', async (t) => {
    const other = sealed({ ...manifest, profile: made() });
    t.match(thrown(() => read(other)), { code: 'profile_tampered', details: { profile: id, digest: made().profile_digest } });
    t.match(thrown(() => read(manifest)), { code: 'profile_invalid', message: /no seal/, help: /Pull the model again: leasehold pull\. What is downloaded is kept/ });
  });

  t.test('R151: is refused with everything that is wrong with it', async (t) => {
    const { message } = thrown(() => readProfile({ ...made(), max_images: 0, max_file_bytes: -1, trust_remote_code: true, dtype: 'int8', modalities: [], revision: 'main' }, 'x', policy));
    for (const part of ['max_images, max_file_bytes', 'review and package custom model code instead', 'dtype', 'modalities', '40 lower-case hex']) t.match(message, part);
    for (const change of [{ id: 'hf-../x' }, { id: `hf-${'0'.repeat(64)}` }, { schema_version: 1 }, { profile_digest: 'x' }, { repository: 'x' }, { backend: 'torch' }, { backend_options: { a: [] } }, { max_images: NaN }]) {
      t.equal(thrown(() => readProfile({ ...made(), ...change }, 'x', policy)).code, 'profile_invalid', JSON.stringify(change));
    }
    for (const json of [null, [], 'x', 7]) t.equal(thrown(() => readProfile(json, 'x', policy)).code, 'profile_invalid');
    for (const text of ['', '{', '[]', '{"profile":{}}']) t.equal(thrown(() => readProfileManifest(text, 'x', made().id, policy)).code, 'profile_invalid');
  });

  t.test('R150 R159: may be curated, with defaults for what an older file leaves out', async (t) => {
    const curated = curatedProfiles();
    t.match(curated.get('smolvlm2-2.2b-instruct'), {
      repository: 'HuggingFaceTB/SmolVLM2-2.2B-Instruct', schema_version: 1, source: 'curated', backend: 'transformers', quantization_method: 'none', execution_target: 'modal',
      advertised_context_tokens: 16_384, reasoning_parser: '', estimated_vram_gb: 6,
    });
    const entry = { ...made(), source: 'curated', id: 'x' };
    t.match(thrown(() => readCurated(JSON.stringify({ profiles: [entry, entry] }), 'c')).message, /twice/);
    for (const json of [{}, { profiles: [] }, { profiles: [3] }, { profiles: [made()] }]) t.equal(thrown(() => readCurated(JSON.stringify(json), 'c')).code, 'profile_invalid');
  });

  t.test('of each tiny model is curated, and its file ships', async (t) => {
    for (const id of ['tiny-tales', 'tiny-sums', 'tiny-facts']) {
      const profile = curatedProfiles().get(id);
      t.ok(profile);
      const bytes = readFileSync(join(shippedFolder(profile!) ?? '', profile!.weight_files[0] ?? ''));
      t.equal(bytes.length, profile!.artifact_bytes);
      t.equal(createHash('sha256').update(bytes).digest('hex').slice(0, 40), profile!.revision);
    }
    t.equal(shippedFolder(curatedProfiles().get('smolvlm2-2.2b-instruct')!), null);
  });
});
