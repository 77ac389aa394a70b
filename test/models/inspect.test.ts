// A repository inspected on a hub that behaves, and on one that does not: every rule by its code, and no byte of a weight asked for.
import { inspect as show } from 'node:util';
import t, { type Test } from 'tap';
import { LeaseholdError, defaultLimits, type ErrorCode, type Limits } from '../../protocol/index.js';
import { HubClient } from '../../src/models/hub/client.js';
import { HubFileSource, firstReadBytes } from '../../src/models/hub/file-source.js';
import type { Pauses } from '../../src/models/hub/patience.js';
import { hubSettings, Token } from '../../src/models/hub/settings.js';
import { inspectReference, type Inspection, type InspectOptions } from '../../src/models/inspect/inspect.js';
import { currentPolicy } from '../../src/models/policy/policy.js';
import { createReading } from '../../src/models/reading/reading.js';
import { parseHubReference } from '../../src/models/reference.js';
import * as faults from './hub/faults.js';
import { gguf, llamaConfig, packed, projector, safetensors, splitGguf, tinyRepository, transformersModel, type ModelParts } from './hub/models.js';
import { large, small, startHub, validToken, type HubFile, type TestHub } from './hub/server.js';

const reading = createReading();
const policy = currentPolicy();
t.teardown(() => reading.close());

interface Scene {
  readonly hub: TestHub;
  readonly client: HubClient;
  readonly slept: number[];
  readonly inspect: (reference: string, options?: InspectOptions) => Promise<Inspection>;
  /** The error of an inspection. */
  readonly refused: (reference: string) => Promise<LeaseholdError>;
  /** Bytes that were asked for of a file. */
  readonly asked: (path: string) => number;
}

async function scene(t: Test, { token, limits = {} }: { readonly token?: string; readonly limits?: Partial<Limits> } = {}): Promise<Scene> {
  const hub = await startHub();
  t.teardown(() => hub.close());
  const slept: number[] = [];
  const pauses: Pauses = { sleep: async (ms) => { slept.push(ms); }, random: () => 0.5 };
  const settings = hubSettings({ HF_ENDPOINT: hub.endpoint, ...token === undefined ? {} : { HF_TOKEN: token } });
  const all = { ...defaultLimits, ...limits };
  const client = new HubClient({ settings, limits: all, pauses });
  const inspect = (reference: string, options: InspectOptions = {}) => inspectReference({ client, reading, policy, limits: all }, parseHubReference(reference), options);
  return {
    hub, client, slept, inspect,
    refused: (reference) => inspect(reference).then(() => { throw new Error('it was not refused'); }, (error: unknown) => {
      if (error instanceof LeaseholdError) return error;
      throw error;
    }),
    asked: (path) => hub.requests.filter((request) => request.path.endsWith(path)).reduce((sum, { range }) => {
      const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
      return sum + (from === undefined ? Infinity : Number(to) - Number(from) + 1);
    }, 0),
  };
}

t.test('a model in the Transformers layout becomes a profile pinned to a commit', async (t) => {
  const { hub, inspect } = await scene(t);
  const shards = { 'model-00001-of-00002.safetensors': { a: 64, b: 32 }, 'model-00002-of-00002.safetensors': { c: 128 } };
  const commit = hub.publish('o/llama', transformersModel({ shards, more: [small('README.md', 'x'), small('modeling.py', 'x'), small('tokenizer_config.json', '{}')] }));
  const { profile, files, repository } = await inspect('o/llama');
  t.match(profile, { repository: 'o/llama', revision: commit, backend: 'transformers', architecture: 'LlamaForCausalLM', dtype: 'bfloat16', max_context_tokens: 32_768, advertised_context_tokens: 131_072 });
  t.strictSame(files.map(({ path }) => path), [...Object.keys(shards), 'model.safetensors.index.json', 'config.json', 'tokenizer.json', 'tokenizer_config.json']);
  t.equal(profile.artifact_bytes, files.slice(0, 2).reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0));
  t.equal(repository.security.complete, true);
  t.equal((await inspect('o/llama', { backend: 'vllm' })).profile.backend, 'vllm');
  t.equal((await inspect('o/llama')).profile.id, profile.id, 'the same again');

  t.test('and a tiny model of ours does, in both of its layouts', async (t) => {
    hub.publish('leasehold/tiny-facts', tinyRepository('tiny-facts'));
    t.match((await inspect('leasehold/tiny-facts')).profile, { backend: 'transformers', architecture: 'Qwen3ForCausalLM', weight_files: [] });
    t.match((await inspect('leasehold/tiny-facts:F16')).profile, { backend: 'llama_cpp', architecture: 'qwen3', quantization_method: 'f16', weight_files: ['tiny-facts-f16.gguf'], max_context_tokens: 2_048 });
  });
});

t.test('B142: one question resolves a repository, and everything after it names the commit', async (t) => {
  const { hub, inspect } = await scene(t);
  const first = hub.publish('o/m', transformersModel());
  hub.fault(/GET \/o\/m\/resolve\/.*config.json/, faults.meanwhile(() => { hub.publish('o/m', transformersModel({ config: { ...llamaConfig, max_position_embeddings: 7 } })); }));
  const { profile } = await inspect('o/m@main');
  t.match(profile, { revision: first, advertised_context_tokens: 131_072 }, 'the branch moved meanwhile, and nothing of it came in');
  t.equal(hub.requests.filter(({ path }) => path.startsWith('/api/')).length, 1);
  const [, ...later] = hub.requests.filter(({ storage }) => !storage);
  t.ok(later.length > 1);
  t.strictSame(later.filter(({ path }) => !path.startsWith(`/o/m/resolve/${first}/`)), []);
  const second = (await inspect('o/m')).profile.revision;
  t.not(second, first, 'R164: asked again, a branch is resolved again');
  t.equal((await inspect(`o/m@${first}`)).profile.revision, first);
});

t.test('B143: a commit that is gone is asked for once more, and never read by the name of its branch', async (t) => {
  const { hub, refused, inspect } = await scene(t);
  const commit = hub.publish('o/m', transformersModel());
  const gone = 'c'.repeat(40);
  hub.repositories.get('o/m')!.info = { sha: gone };
  const error = await refused('o/m');
  t.match(error, { code: 'commit_gone', message: new RegExp(`pinned commit ${gone} of o/m is gone.*the same commit`) });
  t.equal(hub.requests.filter(({ path }) => path.startsWith('/api/')).length, 2);
  t.notOk(hub.requests.some(({ path }) => path.includes('/resolve/main/')));
  hub.fault(/GET \/api/, faults.meanwhile(() => { hub.repositories.get('o/m')!.info = {}; }));
  hub.fault(/GET \/o\/m\/resolve\/.*config.json/, faults.status(404, {}, 'EntryNotFound'));
  hub.repositories.get('o/m')!.commits.set('d'.repeat(40), { files: [] });
  t.equal((await inspect(`o/m@${commit}`).catch((thrown: unknown) => thrown) as LeaseholdError).code, 'commit_gone', 'a commit named by the caller is not exchanged for another');
});

t.test('R131: gated, private, missing, unknown revision and unreachable are five errors, and none shows the token', async (t) => {
  const secret = 'hf_thisIsSecret';
  const { hub, refused } = await scene(t, { token: secret });
  const anonymous = await scene(t);
  for (const each of [hub, anonymous.hub]) {
    for (const name of ['o/gated', 'o/private', 'o/open']) each.publish(name, transformersModel());
    each.repositories.get('o/gated')!.gated = 'manual';
    each.repositories.get('o/private')!.private = true;
  }
  const cases: readonly (readonly [Scene['refused'], string, ErrorCode, RegExp])[] = [
    [refused, 'o/gated', 'repository_gated', /terms at .*\/o\/gated.*token of HF_TOKEN was sent/],
    [anonymous.refused, 'o/gated', 'repository_gated', /put a token .* into HF_TOKEN/],
    [anonymous.refused, 'o/private', 'repository_private', /put a token .* into HF_TOKEN/],
    [refused, 'o/open@nope', 'revision_missing', /branch, a tag/],
  ];
  for (const [ask, reference, code, help] of cases) t.match(await ask(reference), { code, help }, reference);
  const authorised = await scene(t, { token: validToken });
  t.equal((await authorised.refused('o/none')).code, 'repository_missing');
  await hub.close();
  const unreachable = await refused('o/open');
  t.match(unreachable, { code: 'hub_unreachable', retryable: true, message: /nothing listens there|connection was cut/ });
  for (const error of [await anonymous.refused('o/gated'), unreachable]) t.notMatch(`${show(error, { depth: 9 })} ${JSON.stringify(error)}`, secret);
  t.notMatch(`${show(new Token(secret), { showHidden: true })} ${JSON.stringify({ token: new Token(secret) })} ${String(new Token(secret))}`, secret);
});

t.test('a token comes from the environment alone, and goes to no other host', async (t) => {
  t.match(hubSettings({ HF_TOKEN: ' ', HUGGING_FACE_HUB_TOKEN: 'b' }).token?.authorization, 'Bearer b');
  t.match(hubSettings({ HF_TOKEN: 'a', HUGGING_FACE_HUB_TOKEN: 'b' }).token?.authorization, 'Bearer a');
  t.match(hubSettings({}), { endpoint: 'https://huggingface.co', token: null, offline: false });
  t.equal(hubSettings({ HF_ENDPOINT: 'http://mirror:8080/hub/' }).endpoint, 'http://mirror:8080/hub');
  for (const HF_ENDPOINT of ['mirror', 'ftp://x', 'https://me:pw@x']) t.throws(() => hubSettings({ HF_ENDPOINT }), { code: 'config_invalid', message: /HF_ENDPOINT/ });
  t.throws(() => hubSettings({ HF_TOKEN: 'a b' }), { code: 'config_invalid' });
  const { hub, client, inspect } = await scene(t, { token: validToken });
  const commit = hub.publish('o/m', transformersModel());
  await inspect('o/m');
  const [storage, own] = [hub.requests.filter((each) => each.storage), hub.requests.filter((each) => !each.storage)];
  t.ok(storage.length > 0 && storage.every(({ token }) => token === null), 'the storage host gets none');
  t.ok(own.every(({ token }) => token === validToken));
  hub.fault(/tokenizer.json/, faults.redirectTo(`${hub.storage}/back`));
  hub.fault(/\/back/, faults.redirectTo(`${hub.endpoint}/o/m/resolve/${commit}/config.json`));
  await client.read(await client.resolve('o/m', null), 'tokenizer.json', 1e6, () => new LeaseholdError('internal'));
  t.equal(hub.requests.at(-1)?.token, null, 'nor does the hub, when a stranger sends us back');
  hub.fault(/tokenizer.json/, ({ response }) => { response.writeHead(302, { location: `${hub.endpoint}/o/m/resolve/${commit}/tokenizer.json` }).end(); return true; }, Infinity);
  await t.rejects(client.read(await client.resolve('o/m', null), 'tokenizer.json', 1e6, () => new LeaseholdError('internal')), { code: 'hub_unreachable', message: /circles/ });
  t.equal((await new HubClient({ settings: hubSettings({ HF_HUB_OFFLINE: '1', HF_ENDPOINT: hub.endpoint }), limits: defaultLimits }).resolve('o/m', null).catch((error: unknown) => error) as LeaseholdError).code, 'hub_unreachable');
});

t.test('every rule has its own error, and refuses before any weight is asked for', async (t) => {
  const config = (change: Record<string, unknown>): ModelParts => ({ config: { ...llamaConfig, ...change } });
  const indexed = (weightMap: Record<string, string>): ModelParts => ({ weightMap, shards: { 'model.safetensors': { a: 64 } } });
  const cases: readonly (readonly [string, ErrorCode, RegExp, readonly HubFile[]])[] = [
    ['R133', 'config_json_missing', /no config\.json/, transformersModel().filter(({ path }) => path !== 'config.json')],
    ['R134', 'weights_missing', /requires safetensors weights; pickle-only checkpoints are rejected.*pytorch_model\.bin/, [...transformersModel({ shards: {} }), large('pytorch_model.bin', Buffer.from([0x80, 4]))]],
    ['R134', 'weights_missing', /rejected/, [...transformersModel({ shards: {} }), large('model.safetensors', Buffer.alloc(0))]],
    ['R137', 'model_config_invalid', /config\.json/, transformersModel({ config: '[1]' })],
    ['R137', 'model_config_invalid', /config\.json/, transformersModel({ config: '{"a":' })],
    ['R138', 'architecture_undeclared', /exactly one architecture/, transformersModel(config({ architectures: [] }))],
    ['R138', 'architecture_undeclared', /exactly one architecture/, transformersModel(config({ architectures: ['A', 'B'] }))],
    ['R138', 'architecture_undeclared', /exactly one architecture/, transformersModel(config({ architectures: [' '] }))],
    ['R139', 'context_undeclared', /usable context length/, transformersModel(config({ max_position_embeddings: undefined }))],
    ['R139', 'context_undeclared', /is 0/, transformersModel(config({ max_position_embeddings: 0 }))],
    ['R139', 'context_undeclared', /is 1\.5/, transformersModel(config({ text_config: { max_position_embeddings: 1.5 } }))],
    ['R140', 'dtype_unsupported', /int8/, transformersModel(config({ torch_dtype: 'int8' }))],
    ['R143', 'architecture_unsupported', /policy 1 .*EvilForCausalLM/, transformersModel(config({ architectures: ['EvilForCausalLM'] }))],
    ['R143', 'quantization_unsupported', /policy 1 .*bitsandbytes/, transformersModel(config({ quantization_config: { quant_method: 'bitsandbytes' } }))],
    ['auto_map', 'remote_code_refused', /auto_map in config\.json/, transformersModel({ ...config({ auto_map: { AutoModel: 'modeling.X' } }), more: [small('modeling.py', '')] })],
    ['nested auto_map', 'remote_code_refused', /text_config\.0\.auto_map/, transformersModel(config({ text_config: [{ auto_map: {} }] }))],
    ['auto_map elsewhere', 'remote_code_refused', /auto_map in tokenizer_config\.json/, transformersModel({ more: [small('tokenizer_config.json', '{"auto_map":{"AutoTokenizer":["x.Y",null]}}')] })],
    ...['processor_config.json', 'preprocessor_config.json', 'video_preprocessor_config.json', 'generation_config.json', 'added_tokens.json', 'special_tokens_map.json', 'hf_quant_config.json', 'chat_template.json', 'tokenizer_more.json', 'processor.json']
      .map((path): readonly [string, ErrorCode, RegExp, readonly HubFile[]] => ['auto_map elsewhere', 'remote_code_refused', new RegExp(`a\\.0\\.auto_map in ${path.replace('.', '\\.')}`), transformersModel({ more: [small(path, '{"a":[{"auto_map":{"AutoProcessor":"processing_x.X"}}]}'), small('processing_x.py', 'x')] })]),
    ['auto_map spelled by escapes', 'remote_code_refused', /auto_map in processor_config\.json/, transformersModel({ more: [small('processor_config.json', '{"\\u0061uto\\u005fmap":"x.Y"}')] })],
    ['auto_map twice', 'remote_code_refused', /auto_map in processor_config\.json/, transformersModel({ more: [small('processor_config.json', '{"auto_map":null,"auto_map":["x.Y"]}')] })],
    ['no JSON', 'model_config_invalid', /processor_config\.json/, transformersModel({ more: [small('processor_config.json', '{"auto_map')] })],
    ['R141', 'weights_layout_invalid', /names "b\.safetensors", which the repository does not have/, transformersModel(indexed({ a: 'b.safetensors' }))],
    ['R141', 'weights_layout_invalid', /empty/, transformersModel(indexed({}))],
    ['R141', 'weights_layout_invalid', /2 lie in its root/, [...transformersModel({ shards: {} }), large('a.safetensors', safetensors({ a: 8 })), large('b.safetensors', safetensors({ b: 8 }))]],
    ['R142', 'listing_too_large', /size of tokenizer\.json/, transformersModel().map((file) => (file.path === 'tokenizer.json' ? small(file.path, Buffer.alloc(2_000, 32)) : file))],
  ];
  const { hub, refused, asked } = await scene(t, { limits: { modelAssetBytesMax: 1_999 } });
  for (const [index, [rule, code, message, files]] of cases.entries()) {
    hub.publish(`o/m${String(index)}`, files);
    hub.requests.length = 0;
    t.match(await refused(`o/m${String(index)}`), { code, message }, `${rule}: ${code}`);
    t.ok(asked('.safetensors') === 0 && asked('.bin') === 0, 'no byte of a weight was asked for');
  }
});

t.test('auto_map that names nothing, or stands where nothing is brought from, refuses nobody', async (t) => {
  const { hub, inspect } = await scene(t);
  const tokens = Object.fromEntries(Array.from({ length: 60_000 }, (_, index) => [String(index), { content: `<|${String(index)}|>`, lstrip: false }]));
  hub.publish('o/m', transformersModel({ more: [
    small('tokenizer_config.json', JSON.stringify({ auto_map: null, added_tokens_decoder: tokens, note: 'auto_map' })), small('other/config.json', '{"auto_map":{"AutoModel":"x.Y"}}'), small('README.md', 'auto_map'), small('modeling_x.py', 'x'),
  ] }));
  const { files } = await inspect('o/m');
  t.ok(files.some(({ path }) => path === 'tokenizer_config.json'), 'a table of sixty thousand tokens is no obstacle');
  t.notOk(files.some(({ path }) => /\.py$|^other/.test(path)));
});

t.test('R135 R136: the budget counts what is needed, a finding refuses, an unfinished scan does not', async (t) => {
  const { hub, refused, inspect } = await scene(t, { limits: { modelWeightsBytesMax: 400 } });
  const shards = { 'a.safetensors': { a: 64 }, 'b.safetensors': { b: 64 } };
  hub.publish('o/fits', transformersModel({ shards, more: [large('consolidated.safetensors', safetensors({ a: 64, b: 64, c: 1_024 }))] }));
  t.match((await inspect('o/fits')).profile.artifact_bytes, 2 * safetensors({ a: 64 }).length);
  hub.publish('o/large', transformersModel({ shards: { 'model.safetensors': { a: 1_024 } } }));
  t.match(await refused('o/large'), { code: 'weights_over_budget', message: /need 0\.0 GiB; at most 0\.0 GiB/ });
  for (const security of [{ securityRepoStatus: { scansDone: true, filesWithIssues: [{ path: 'x.bin', level: 'unsafe' }, 'y'] } }, { security_repo_status: { scansDone: true, issues: ['x.bin', 'y'] }, securityRepoStatus: null }]) {
    hub.repositories.get('o/fits')!.info = security;
    t.match(await refused('o/fits'), { code: 'security_flagged', message: /2 files of o\/fits: x\.bin, y/ });
  }
  hub.repositories.get('o/fits')!.info = { securityRepoStatus: { scansDone: false, filesWithIssues: [] } };
  t.equal((await inspect('o/fits')).repository.security.complete, false);
  hub.repositories.get('o/fits')!.info = { sha: 'main' };
  t.match(await refused('o/fits'), { code: 'revision_unresolved', message: /did not resolve to an exact commit/ });
});

t.test('R140 R144: types and quantisations are read wherever they are said', async (t) => {
  const { hub, inspect } = await scene(t);
  const cases: readonly (readonly [Record<string, unknown>, object])[] = [
    [{ torch_dtype: 'bf16' }, { dtype: 'bfloat16', quantization_method: 'none', backend: 'transformers' }],
    [{ torch_dtype: undefined }, { dtype: 'bfloat16' }],
    [{ torch_dtype: null, dtype: 'FP16' }, { dtype: 'float16' }],
    [{ torch_dtype: 'auto', text_config: { dtype: 'torch.float32' } }, { dtype: 'float32' }],
    [{ torch_dtype: { '': 'float16' } }, { dtype: 'float16' }],
    [{ quantization_config: { quant_method: 'fp8' } }, { quantization_method: 'fp8', backend: 'vllm', backend_options: { quantization: 'fp8' } }],
    [{ text_config: { quantization_config: { quant_method: 'AWQ' } } }, { quantization_method: 'awq', backend: 'vllm' }],
    [{ architectures: ['Qwen3ForCausalLM'], quantization_config: { quant_method: 'modelopt', quant_algo: 'nvfp4' } }, { quantization_method: 'modelopt_fp4', backend: 'vllm' }],
  ];
  for (const [index, [change, wanted]] of cases.entries()) {
    hub.publish(`o/m${String(index)}`, transformersModel({ config: { ...llamaConfig, ...change } }));
    t.match((await inspect(`o/m${String(index)}`)).profile, wanted, JSON.stringify(change));
  }
});

t.test('B10: files that no index names are neither counted nor fetched', async (t) => {
  const { hub, inspect } = await scene(t);
  const shards = { 'model-00001-of-00002.safetensors': { a: 4_096 }, 'model-00002-of-00002.safetensors': { b: 4_096 } };
  const more = [large('consolidated.safetensors', safetensors({ a: 8_192 })), large('original/x.pth', Buffer.alloc(8_192)), large('metal/model.bin', Buffer.alloc(8_192)), large('original/model.safetensors', safetensors({ a: 64 }))];
  hub.publish('o/m', transformersModel({ shards, more }));
  const { profile, files } = await inspect('o/m');
  t.equal(profile.artifact_bytes, 2 * safetensors({ a: 4_096 }).length);
  t.strictSame(files.filter(({ sha256 }) => sha256 !== null).map(({ path }) => path), Object.keys(shards));
});

t.test('B157: an index and the headers of its files must agree, tensor by tensor', async (t) => {
  const { hub, inspect, refused } = await scene(t);
  const shards = { 'a.safetensors': { 'x.0': 64, 'x.1': 64 }, 'b.safetensors': { 'y.0': 64 } };
  const right = { 'x.0': 'a.safetensors', 'x.1': 'a.safetensors', 'y.0': 'b.safetensors' };
  const cases: readonly (readonly [what: string, weightMap: Record<string, string>, told: string])[] = [
    ['one more than there is', { ...right, 'z.0': 'b.safetensors' }, 'it puts z.0 into b.safetensors, which does not hold it'],
    ['one in the wrong file', { ...right, 'x.1': 'b.safetensors' }, 'it puts x.1 into b.safetensors, which does not hold it: it is in a.safetensors'],
    ['two exchanged', { ...right, 'x.1': 'b.safetensors', 'y.0': 'a.safetensors' }, 'it puts y.0 into a.safetensors, which does not hold it: it is in b.safetensors; it puts x.1 into b.safetensors, which does not hold it: it is in a.safetensors'],
    ['one less than there is', { 'x.0': 'a.safetensors', 'y.0': 'b.safetensors' }, 'a.safetensors holds x.1, which it does not put there'],
    ['another name', { ...right, 'y.0': 'a.safetensors', 'y.1': 'b.safetensors' }, 'it puts y.0 into a.safetensors, which does not hold it: it is in b.safetensors; it puts y.1 into b.safetensors, which does not hold it'],
  ];
  for (const [what, weightMap, told] of cases) {
    hub.publish('o/m', transformersModel({ shards, weightMap }));
    t.match(await refused('o/m'), { code: 'weights_layout_invalid', details: { file: 'model.safetensors.index.json', reason: told } }, what);
  }
  t.notOk(hub.requests.some(({ storage, range }) => storage && range === null), 'only headers were read');
  hub.publish('o/m', transformersModel({ shards, statedBytes: 999_999 }));
  t.equal((await inspect('o/m')).profile.artifact_bytes, safetensors(shards['a.safetensors']).length + safetensors(shards['b.safetensors']).length, 'what the index says of all bytes counts nothing');
});
t.test('B157: of many tensors that differ a dozen are named, of many files eight are looked through, and the rest is counted', async (t) => {
  const { hub, refused } = await scene(t);
  const tensors = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`t.${String(index)}`, 2]));
  hub.publish('o/m', transformersModel({ shards: { 'a.safetensors': tensors, 'b.safetensors': { u: 2 } }, weightMap: { ...Object.fromEntries(Object.keys(tensors).map((name) => [`${name}.x`, 'a.safetensors'])), u: 'b.safetensors' } }));
  const many = (await refused('o/m')).details['reason'] ?? '';
  t.equal(many.split('; ').length, 13);
  t.match(many, /^it puts t\.0\.x into a\.safetensors, which does not hold it; .*; 28 more tensors differ$/);
  const files = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`f${String(index)}.safetensors`, { [`t.${String(index)}`]: 2 }]));
  hub.publish('o/m', transformersModel({ shards: files, weightMap: Object.fromEntries(Object.keys(files).map((file, index) => [`s.${String(index)}`, file])) }));
  t.match((await refused('o/m')).details['reason'], /; 4 more tensors differ; it puts 1 tensors into f8\.safetensors, which holds others; it puts 1 tensors into f9\.safetensors, which holds others$/);
});

t.test('B158: a header at the edge of the first read takes exactly one request more when it is needed', async (t) => {
  const { hub, client } = await scene(t);
  for (const headerBytes of [-9, -8, -7, -1, 0, 1].map((distance) => firstReadBytes + distance)) {
    const plain = JSON.stringify({ a: { dtype: 'BF16', shape: [8], data_offsets: [0, 16] } });
    const bytes = packed(plain.padEnd(headerBytes), Buffer.alloc(16));
    hub.publish('o/m', [large('model.safetensors', bytes)]);
    const repository = await client.resolve('o/m', null);
    hub.requests.length = 0;
    const header = await reading.safetensorsHeader(new HubFileSource(client, repository, repository.files[0]!));
    t.equal(header.headerBytes, headerBytes + 8);
    t.equal(hub.requests.filter(({ storage }) => storage).length, headerBytes + 8 > firstReadBytes ? 2 : 1, `${String(headerBytes)} bytes`);
  }
});

t.test('B160: an index that points anywhere but at a file of the listing refuses the whole model', async (t) => {
  const { hub, refused, asked } = await scene(t);
  for (const target of ['../x.safetensors', '/etc/passwd', 'a/../../b.safetensors', '%2e%2e/x.safetensors', 'http://evil/x.safetensors', 'model.safetensors?y', 'a\\b.safetensors', 'a\0.safetensors', 'config.json']) {
    hub.publish('o/m', transformersModel({ weightMap: { a: target } }));
    hub.requests.length = 0;
    t.match(await refused('o/m'), { code: 'weights_layout_invalid' }, JSON.stringify(target));
    t.equal(asked('.safetensors'), 0);
    t.notOk(hub.requests.some(({ path }) => /evil|passwd|\.\.|%2e/i.test(path)));
  }
  hub.publish('o/m', transformersModel({ weightMap: { a: 'elsewhere.safetensors' } }));
  t.match(await refused('o/m'), { code: 'weights_layout_invalid', message: /it names "elsewhere\.safetensors", which the repository does not have/ });
});

t.test('B173: one name that could leave its folder on any system refuses the repository', async (t) => {
  const { hub, refused } = await scene(t);
  for (const name of ['../x', 'a/..\\..\\x', 'C:x', 'C:\\x', '\\\\srv\\share\\x', '/abs', 'a//b', 'CON', 'con.json', 'x:ads', 'trailing.', 'trailing ', 'a\u0000b', 'a\nb', 'config.JSON']) {
    hub.publish('o/m', transformersModel({ more: [small(name, 'x')] }));
    hub.requests.length = 0;
    t.match(await refused('o/m'), { code: 'file_name_unsafe' }, JSON.stringify(name));
    t.equal(hub.requests.length, 1, 'nothing but the listing was asked for');
  }
});

t.test('R142: more files than are read refuse the repository', async (t) => {
  const { hub, refused } = await scene(t, { limits: { repositoryFilesMax: 3 } });
  hub.publish('o/m', transformersModel({ more: [small('a', ''), small('b', '')] }));
  t.match(await refused('o/m'), { code: 'listing_too_large', message: /number of its files is 5, the limit 3/ });
});

t.test('B167: what Python writes of numbers that are none is read for nothing, words in texts stay', async (t) => {
  const { hub, inspect } = await scene(t);
  hub.publish('o/m', transformersModel({ config: `{"architectures":["LlamaForCausalLM"],"max_position_embeddings":4096,"time_step_limit":[0.0,Infinity],"x":NaN,"y":-Infinity,"note":"Infinity and NaN"}` }));
  t.equal((await inspect('o/m')).profile.max_context_tokens, 4_096);
});

t.test('B170: pickles under any name are never taken for weights', async (t) => {
  const { hub, refused, inspect } = await scene(t);
  const pickle = Buffer.from([0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0, 0x7d, 0x2e]);
  const noWeights = transformersModel({ shards: {} });
  hub.publish('o/upper', [...noWeights, large('model.SAFETENSORS', pickle)]);
  t.match(await refused('o/upper'), { code: 'weights_missing', message: /model\.SAFETENSORS/ });
  hub.publish('o/dat', [...noWeights, large('weights.dat', Buffer.from('PK\u0003\u0004'))]);
  t.match(await refused('o/dat'), { code: 'weights_missing', message: /weights\.dat/ });
  hub.publish('o/pickled', [...noWeights, large('pytorch_model.bin', pickle), large('flax_model.msgpack', pickle)]);
  t.match(await refused('o/pickled'), { code: 'weights_missing', message: /pytorch_model\.bin, flax_model\.msgpack/ });
  hub.publish('o/disguised', [...noWeights, large('model.safetensors', pickle)]);
  t.match(await refused('o/disguised'), { code: 'weights_layout_invalid', message: /cut short|no safetensors file/ });
  const others = [large('pytorch_model.bin', pickle), small('tokenizer.py', 'x'), small('vocab.pkl', 'x'), small('chat_template.py', 'x'), small('processor_x/evil.json', 'x'), small('tokenizer.model', 'x'), small('chat_template.jinja', 'x'), small('vocab.bin', 'x')];
  hub.publish('o/beside', transformersModel({ more: others }));
  t.strictSame((await inspect('o/beside')).files.map(({ path }) => path), ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer.model', 'chat_template.jinja']);
});

t.test('B152: a hub that is busy is obeyed, by all requests together, and few are made', async (t) => {
  const { hub, inspect, slept } = await scene(t);
  const shards = Object.fromEntries(Array.from({ length: 282 }, (_, index) => [`model-${String(index + 1).padStart(5, '0')}-of-00282.safetensors`, { [`t.${String(index)}`]: 16 }]));
  hub.publish('o/m', transformersModel({ shards }));
  hub.fault(/GET/, faults.status(429, { 'retry-after': '7' }), 5);
  let open = 0;
  let most = 0;
  hub.fault(/GET \/blobs/, ({ response }) => {
    most = Math.max(most, ++open);
    response.once('close', () => { open--; });
    return false;
  }, Infinity);
  t.equal((await inspect('o/m')).files.length, 282 + 3);
  t.strictSame(slept, Array(5).fill(7_350), 'never shorter than asked, and a little longer');
  t.ok(most <= 8, `${String(most)} at once`);
  t.equal(hub.requests.length, 5 + 1 + 2 + 2 * 282, 'the listing, index and config, and a redirect and a range for each file');
  const patient = await scene(t, { limits: { hubPauseMaxMs: 6_000 } });
  patient.hub.publish('o/m', transformersModel());
  patient.hub.fault(/GET/, faults.status(429, { 'retry-after': '7' }));
  t.match(await patient.refused('o/m'), { code: 'hub_unreachable', message: /429/ }, 'a longer pause than is waited is a refusal');
});

t.test('what the network does is tried again, what the hub means is not', async (t) => {
  const { hub, inspect, refused, slept } = await scene(t);
  hub.publish('o/m', transformersModel());
  hub.fault(/GET \/api/, faults.reset);
  hub.fault(/config.json/, faults.status(503));
  hub.fault(/config.json/, faults.resetAfter(5));
  t.ok(await inspect('o/m'));
  t.strictSame(slept, [375, 375, 750]);
  for (const code of [401, 403, 404]) {
    hub.requests.length = 0;
    hub.fault(/GET \/api/, faults.status(code, {}, ''));
    await refused('o/m');
    t.equal(hub.requests.length, 1, String(code));
  }
  for (const [name, answer] of [['no JSON', '<html>'], ['no object', '[]'], ['no files', '{"sha":"' + 'a'.repeat(40) + '"}'], ['a negative size', `{"sha":"${'a'.repeat(40)}","siblings":[{"rfilename":"x","size":-1}]}`]] as const) {
    hub.fault(/GET \/api/, ({ response }) => { response.writeHead(200).end(answer); return true; });
    t.equal((await refused('o/m')).code, 'hub_answer_invalid', name);
  }
  const quick = await scene(t, { limits: { hubSilentMs: 50, hubAttemptsMax: 1 } });
  quick.hub.publish('o/m', transformersModel());
  quick.hub.fault(/config.json/, faults.stallsAfter(3));
  t.match(await quick.refused('o/m'), { code: 'hub_unreachable', message: /no byte came for 50 ms/ });
  quick.hub.fault(/model.safetensors/, ({ response }) => { response.writeHead(200).end(Buffer.alloc(500)); return true; });
  t.match(await quick.refused('o/m'), { code: 'hub_answer_invalid', message: /it sends 200 without a range|it sends more/ });
});

t.test('a mirror whose answer has no sizes is asked for its tree', async (t) => {
  const { hub, inspect } = await scene(t);
  const commit = hub.publish('o/m', transformersModel());
  hub.repositories.get('o/m')!.info = { siblings: transformersModel().map(({ path }) => ({ rfilename: path })) };
  t.equal((await inspect('o/m')).profile.revision, commit);
  t.match(hub.requests[1]?.path, new RegExp(`^/api/models/o/m/tree/${commit}`));
});

t.test('GGUF repositories', async (t) => {
  const { hub, inspect, refused } = await scene(t);
  const quants = ['Q4_K_M', 'Q8_0', 'IQ2_XXS', 'BF16'];
  hub.publish('o/X-GGUF', [...quants.map((quant, index) => large(`X-3B-${quant}.gguf`, gguf({}, index))), large('mmproj-X-F16.gguf', projector()), large('imatrix.gguf', gguf()), small('README.md', '')]);
  hub.publish('o/one', [large('model.gguf', gguf())]);
  hub.publish('o/two', [large('a-Q5_K_M.gguf', gguf()), large('b-Q8_0.gguf', gguf()), large('sub/b-Q8_0.gguf', gguf())]);
  const split = splitGguf('Q4_K_M/X-70B-Q4_K_M', 3);
  hub.publish('o/split', [...split, ...splitGguf('UD-Q2_K_XL/X-70B-UD-Q2_K_XL', 2)]);

  t.test('need no config.json: a quantisation or a file names the model, as in Ollama and llama.cpp', async (t) => {
    const chosen = async (reference: string) => (await inspect(reference)).profile.weight_files;
    const cases: readonly (readonly [string, readonly string[]])[] = [
      ['o/X-GGUF', ['X-3B-Q4_K_M.gguf']], ['o/X-GGUF:latest', ['X-3B-Q4_K_M.gguf']], ['o/X-GGUF:Q8_0', ['X-3B-Q8_0.gguf']], ['hf.co/o/X-GGUF:iq2_xxs', ['X-3B-IQ2_XXS.gguf']],
      ['o/X-GGUF:X-3B-BF16.gguf', ['X-3B-BF16.gguf']], ['o/one', ['model.gguf']], ['o/two:sub/b-Q8_0.gguf', ['sub/b-Q8_0.gguf']],
      ['o/split', split.map(({ path }) => path)], ['o/split:UD-Q2_K_XL', [1, 2].map((n) => `UD-Q2_K_XL/X-70B-UD-Q2_K_XL-0000${String(n)}-of-00002.gguf`)],
      ['o/split:Q4_K_M/X-70B-Q4_K_M-00002-of-00003.gguf', split.map(({ path }) => path)],
    ];
    for (const [reference, files] of cases) t.strictSame(await chosen(reference), files, reference);
    const { profile, files } = await inspect('o/X-GGUF');
    t.match(profile, { backend: 'llama_cpp', architecture: 'qwen3', quantization_method: 'q4_k_m', advertised_context_tokens: 40_960, max_context_tokens: 32_768, runtime_requirements: ['node-llama-cpp==3.21.1'] });
    t.strictSame(files.map(({ path }) => path), ['X-3B-Q4_K_M.gguf', 'mmproj-X-F16.gguf']);
    t.equal(profile.artifact_bytes, gguf().length + projector().length);
    t.not((await inspect('o/X-GGUF:Q8_0')).profile.id, profile.id);
  });

  t.test('come with the projector that llama.cpp would take: of the nearest folder, then of the nearest bits', async (t) => {
    const projectorOf = async (reference: string) => (await inspect(reference)).projector?.path ?? null;
    t.equal(await projectorOf('o/X-GGUF:Q8_0'), 'mmproj-X-F16.gguf');
    const [seeing, blind] = [await inspect('o/X-GGUF:Q8_0'), await inspect('o/X-GGUF:Q8_0', { projector: false })];
    t.match(seeing, { profile: { projector_file: 'mmproj-X-F16.gguf', weight_files: ['X-3B-Q8_0.gguf'], artifact_bytes: gguf().length + projector().length } });
    t.strictSame(seeing.files.map(({ path }) => path), ['X-3B-Q8_0.gguf', 'mmproj-X-F16.gguf']);
    t.match(blind, { projector: null, profile: { projector_file: '', artifact_bytes: gguf().length } }, 'unless it is to be left out');
    t.strictSame(blind.files.map(({ path }) => path), ['X-3B-Q8_0.gguf']);
    t.not(blind.profile.id, seeing.profile.id, 'which is another model');
    t.equal(await projectorOf('o/one'), null);
    hub.publish('o/sees', [
      large('x-Q4_K_M.gguf', gguf()), large('big/x-BF16.gguf', gguf({}, 1)), large('mtp-x-Q4_K_M.gguf', gguf({}, 2)),
      ...['mmproj-F32', 'mmproj-F16', 'mmproj-BF16', 'mmproj-Q8_0', 'big/mmproj-F32', 'other/mmproj-Q4_0'].map((name, index) => large(`${name}.gguf`, projector(10 + index))),
    ]);
    t.equal(await projectorOf('o/sees:Q4_K_M'), 'mmproj-Q8_0.gguf', 'never one of another folder');
    t.equal(await projectorOf('o/sees:BF16'), 'big/mmproj-F32.gguf', 'the nearest folder goes before the bits');
    hub.publish('o/equal', [large('x-Q4_K_M.gguf', gguf()), large('mmproj-BF16.gguf', projector(1)), large('mmproj-F16.gguf', projector(2))]);
    t.equal(await projectorOf('o/equal'), 'mmproj-BF16.gguf', 'of equal ones the first that is listed');
    hub.publish('o/safetensors', transformersModel({ more: [large('mmproj-F16.gguf', gguf())] }));
    t.equal(await projectorOf('o/safetensors'), null);
    for (const [what, bytes, reason] of [
      ['no GGUF', Buffer.alloc(64, 7), /./], ['a text model', gguf(), /its architecture is "qwen3"/],
    ] as const) {
      hub.publish('o/blind', [large('x-Q4_K_M.gguf', gguf()), large('mmproj-F16.gguf', bytes)]);
      t.match(await refused('o/blind'), { code: 'weights_layout_invalid', details: { file: 'mmproj-F16.gguf', reason }, help: /--no-projector leaves it out/ }, what);
      t.equal((await inspect('o/blind', { projector: false })).projector, null, 'what is left out is not looked at');
    }
  });

  t.test('say what there is to choose from where it is not clear', async (t) => {
    t.match(await refused('o/two'), { code: 'gguf_ambiguous', message: /Q5_K_M \(0\.00 GiB\), Q8_0 .*Q8_0/, help: /o\/two:NAME/ });
    t.match(await refused('o/two:Q8_0'), { code: 'gguf_ambiguous', message: /b-Q8_0\.gguf, sub\/b-Q8_0\.gguf/ });
    t.match(await refused('o/X-GGUF:Q6_K'), { code: 'gguf_missing', message: /no GGUF Q6_K/, help: /Q4_K_M .*Q8_0 .*IQ2_XXS .*BF16/ });
    t.match(await refused('o/X-GGUF:mmproj-X-F16.gguf'), { code: 'gguf_missing' });
  });

  t.test('are refused where a split set is not whole, or its parts are not what they say', async (t) => {
    hub.publish('o/holes', split.filter((_, index) => index !== 1));
    t.match(await refused('o/holes'), { code: 'gguf_incomplete', message: /of 3 parts 2 are missing/ });
    hub.publish('o/swapped', split.map((file, index) => ({ ...file, bytes: split[2 - index]!.bytes })));
    t.match(await refused('o/swapped'), { code: 'gguf_incomplete', message: /part 1 says that it is part 3 of 3/ });
    hub.publish('o/short', split.map((file, index) => ({ ...file, bytes: gguf({ 'split.no': index, 'split.count': 3, 'split.tensors.count': 9 }) })));
    t.match(await refused('o/short'), { code: 'gguf_incomplete', message: /hold 3 tensors of 9/ });
  });

  t.test('are refused where the file is none, or of no text model', async (t) => {
    hub.publish('o/bad', [large('x-Q4_K_M.gguf', Buffer.from('GGUFxxxxxxxxxxxxxxxxxxxxxxxxxxxx'))]);
    t.match(await refused('o/bad'), { code: 'weights_layout_invalid', message: /x-Q4_K_M\.gguf/ });
    hub.publish('o/flux', [large('flux-Q4_K_M.gguf', gguf({ 'general.architecture': 'flux' }))]);
    t.match(await refused('o/flux'), { code: 'context_undeclared', message: /flux\.context_length is not there/ });
    hub.repositories.get('o/one')!.info = { securityRepoStatus: { scansDone: true, filesWithIssues: ['model.gguf'] } };
    t.match(await refused('o/one'), { code: 'security_flagged' });
  });
});
