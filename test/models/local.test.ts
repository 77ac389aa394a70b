// A folder and a GGUF file of this machine become profiles by the rules of a repository.
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { defaultLimits } from '../../protocol/index.js';
import { askEstimate } from '../../src/models/estimate/ask.js';
import { Models } from '../../src/models/models.js';
import { tinyModels } from '../../workers/models/index.js';
import { gguf, splitGguf, transformersModel } from './hub/models.js';
import type { HubFile } from './hub/server.js';

const work = mkdtempSync(join(tmpdir(), 'leasehold-local-'));
const models = new Models({ cwd: work, root: join(work, 'store'), donors: { hub: [], llama: [], ollama: [] } });
t.teardown(async () => {
  await models.close();
  rmSync(work, { recursive: true, force: true });
});

function folder(name: string, files: readonly HubFile[]): string {
  const path = mkdtempSync(join(work, `${name}-`));
  for (const file of files) writeFileSync(join(path, file.path), file.bytes);
  return path;
}

t.test('a folder is inspected like a repository, and its commit is what is in it', async (t) => {
  const one = await models.inspect(tinyModels['tiny-facts'].directory);
  t.match(one.profile, { repository: 'local/tiny-facts', architecture: 'Qwen3ForCausalLM', backend: 'transformers', revision: /^[0-9a-f]{40}$/ });
  t.equal((await models.inspect(tinyModels['tiny-facts'].directory)).profile.id, one.profile.id);
  const path = folder('m', transformersModel());
  const before = (await models.inspect(path)).profile;
  writeFileSync(join(path, 'tokenizer.json'), '{"model":{"x":1}}');
  t.not((await models.inspect(path)).profile.id, before.id);
  await t.rejects(models.inspect(folder('code', transformersModel({ config: { architectures: ['LlamaForCausalLM'], max_position_embeddings: 9, auto_map: { AutoModel: 'x.Y' } } }))), { code: 'remote_code_refused' });
  await t.rejects(models.inspect(folder('empty', [])), { code: 'config_json_missing' });
  await t.rejects(models.inspect('./nothing'), { code: 'model_invalid', message: /no such folder/ });
});

t.test('a GGUF file is, with all parts of it', async (t) => {
  t.match((await models.inspect(tinyModels['tiny-sums'].ggufPath)).profile, { repository: 'local/tiny-sums-f16.gguf', backend: 'llama_cpp', quantization_method: 'f16', weight_files: ['tiny-sums-f16.gguf'] });
  const split = splitGguf('X-Q4_K_M', 3);
  const path = folder('split', [...split, { path: 'other-Q8_0.gguf', bytes: gguf(), large: true }]);
  t.strictSame((await models.inspect(join(path, 'X-Q4_K_M-00002-of-00003.gguf'))).profile.weight_files, split.map((file) => file.path));
  rmSync(join(path, 'X-Q4_K_M-00003-of-00003.gguf'));
  await t.rejects(models.inspect(join(path, 'X-Q4_K_M-00001-of-00003.gguf')), { code: 'gguf_incomplete' });
  writeFileSync(join(path, 'bad.gguf'), 'GGUF and no more');
  await t.rejects(models.inspect(join(path, 'bad.gguf')), { code: 'weights_layout_invalid' });
});

t.test('B160: an index that points out of its folder opens no file there', async (t) => {
  const outside = join(work, 'private.safetensors');
  writeFileSync(outside, transformersModel().find(({ path }) => path === 'model.safetensors')!.bytes);
  for (const target of ['../private.safetensors', outside, 'a/../../private.safetensors', '%2e%2e/private.safetensors']) {
    const path = folder('index', transformersModel({ weightMap: { a: target } }));
    await t.rejects(models.inspect(path), { code: 'weights_layout_invalid', message: /the index puts tensor a into/ }, target);
    const question = { model: path, contextTokens: 16, projector: 'none', draft: null, declaredBytes: null, askEngine: false } as const;
    await t.rejects(askEstimate(question, { env: {}, cwd: work, limits: defaultLimits }), { code: 'model_invalid', message: /the index puts tensor a into/ }, target);
  }
});

t.test('B208: links are followed as far as they stay in the folder', async (t) => {
  const path = folder('links', transformersModel());
  symlinkSync('config.json', join(path, 'generation_config.json'));
  symlinkSync('nowhere', join(path, 'added_tokens.json'));
  t.notOk((await models.inspect(path)).files.some((file) => file.path === 'added_tokens.json'));
  symlinkSync('/etc/hostname', join(path, 'merges.txt'));
  await t.rejects(models.inspect(path), { code: 'link_refused' });
});
