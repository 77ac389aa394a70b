// Models from a hub as people handle them: pull, list, run without the hub, check, remove; each command a process of its own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { tinyModels } from '../../workers/models/index.js';

import { gguf, projector, tinyRepository, transformersModel } from '../models/hub/models.js';
import { large, startHub } from '../models/hub/server.js';
import { jsonLines } from './fake-io.js';

const main = join(dirname(fileURLToPath(import.meta.url)), '../../bin/leasehold.js');
const work = mkdtempSync(join(tmpdir(), 'lh-models-'));
t.teardown(() => { rmSync(work, { recursive: true, force: true }); });
const hub = await startHub();
t.teardown(() => hub.close());
const name = 'leasehold/tiny-facts-GGUF';
const commit = hub.publish(name, tinyRepository('tiny-facts').filter(({ path }) => /gguf|README/.test(path)));
hub.publish('leasehold/tiny-facts', tinyRepository('tiny-facts'));
hub.publish('o/sees', [large('x-Q8_0.gguf', gguf()), large('mmproj-x-F16.gguf', projector(3))]);
hub.publish('o/evil', transformersModel({ config: { architectures: ['EvilForCausalLM'], max_position_embeddings: 1 } }));

async function leasehold(...args: string[]) {
  const child = spawn(process.execPath, [main, ...args], {
    cwd: work, stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'] ?? '', HOME: work, HF_ENDPOINT: hub.endpoint, LEASEHOLD_MODELS: join(work, 'store'), LEASEHOLD_STATE: join(work, 'state') },
  });
  const heard = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => { heard.out += text; });
  child.stderr.setEncoding('utf8').on('data', (text: string) => { heard.err += text; });
  const [code] = await once(child, 'close') as [number | null];
  return { code, ...heard };
}

const question = 'What is the capital of France?';

t.test('a model that was not pulled is not run, and nothing is downloaded for it', async (t) => {
  t.match(await leasehold('run', name, question), { code: 2, err: /leasehold\/tiny-facts-GGUF has not been pulled[\s\S]*leasehold pull/ });
  t.match(await leasehold('models', '--pulled'), { code: 0, out: /Nothing has been pulled/ });
  t.equal(hub.requests.length, 0);
});

t.test('pull brings it here and says what came of it', async (t) => {
  t.match(await leasehold('pull', name), { code: 0, out: new RegExp(`tiny-facts-GGUF is here: qwen3, 2\\.0 MiB of weights for llama_cpp; 2\\.0 MiB downloaded in [\\s\\S]*${commit}[\\s\\S]*hf-[0-9a-f]{64}`) });
  const { code, out } = await leasehold('pull', name, '--json');
  t.equal(code, 0);
  t.match(jsonLines(out).at(-1), {
    event: 'end', requested_reference: name, repository: name, revision: commit, backend: 'llama_cpp', quantization_method: 'f16', artifact_bytes: tinyModels['tiny-facts'].gguf.bytes,
    manifest_created: false, security_scan_complete: true, downloaded: false, downloaded_bytes: 0,
  }, 'R176');
  t.match(jsonLines(out).find(({ event }) => event === 'progress'), { stage: 'cached', files: { done: 1, total: 1 } });
  t.match(await leasehold('models', '--pulled'), { code: 0, out: /tiny-facts-GGUF +llama_cpp +f16 +2\.0 MiB +2048 +[0-9a-f]{8} +pulled/ });
});

t.test('what sees images is brought with a GGUF, listed, checked and removed with it, unless it is left out', async (t) => {
  const file = 'mmproj-x-F16.gguf';
  const listed = async () => jsonLines((await leasehold('models', '--pulled', '--json')).out).filter(({ model }) => model === 'o/sees');
  t.notMatch((await leasehold('models', '--pulled')).out, /PROJECTOR/);
  t.match(await leasehold('pull', 'o/sees', '--no-projector'), { code: 0, out: /^(?!.*projector)/s });
  t.match(await listed(), [{ projector: null, artifact_bytes: gguf().length, files: 1 }]);
  t.equal((await leasehold('rm', 'o/sees')).code, 0);
  t.match(await leasehold('pull', 'o/sees'), { code: 0, out: /  projector mmproj-x-F16\.gguf \(.* B\), for engines that see or hear: llama\.cpp here reads text alone/ });
  t.match(jsonLines((await leasehold('pull', 'o/sees', '--json')).out).at(-1), { projector: file, artifact_bytes: gguf().length + projector(3).length, downloaded: false });
  const [{ path = '' } = {}] = await listed() as readonly { readonly path?: string }[];
  t.match(await listed(), [{ projector: file, staged: true, files: 2 }]);
  t.match((await leasehold('models', '--pulled')).out, /STATE +PROJECTOR\n[\s\S]*o\/sees .* pulled +mmproj-x-F16\.gguf/);
  t.strictSame(readFileSync(join(path, file)), projector(3));
  writeFileSync(join(path, file), Buffer.alloc(projector(3).length, 1));
  t.match(await leasehold('verify', 'o/sees'), { code: 1, out: /mmproj-x-F16\.gguf: its hash is/ });
  hub.requests.length = 0;
  t.equal((await leasehold('pull', 'o/sees')).code, 0);
  t.strictSame(hub.requests.filter(({ storage, range }) => storage && range === null).length, 1, 'that file alone is fetched again');
  t.match(await leasehold('rm', 'o/sees'), { code: 0, out: new RegExp(`${String(gguf().length + projector(3).length)} B free again`) });
  t.notOk(existsSync(path));
});

t.test('what is refused is told with what to do, and leaves nothing behind', async (t) => {
  const before = readdirSync(join(work, 'store'), { recursive: true }).length;
  t.match(await leasehold('pull', 'o/evil'), { code: 2, err: /EvilForCausalLM[\s\S]*help:/ });
  t.match(await leasehold('pull', `${name}:Q8_0`), { code: 2, err: /no GGUF Q8_0[\s\S]*It has: F16 \(0\.00 GiB\)/ });
  t.match(await leasehold('pull', 'nothing'), { code: 2, err: /^(asking .*\n)?error: "nothing" does not name a model: it is not written as owner\/name\.\n  help: It must be a Hugging Face ID/ });
  t.match(await leasehold('pull', './a'), { code: 2, err: /it is on this machine, and nothing was pulled/ });
  t.match(await leasehold('pull', name, '--pin', 'x'), { code: 2, err: /FILE=SHA256/ });
  t.match(await leasehold('pull', name, '--pin', `tiny-facts-f16.gguf=${'0'.repeat(64)}`), { code: 2, err: /is pinned to sha256 0000/ });
  t.equal(readdirSync(join(work, 'store'), { recursive: true }).length, before);
});

t.test('what no engine here loads is told before it is brought, and refused by name', async (t) => {
  const files = tinyRepository('tiny-facts').filter(({ path }) => !path.endsWith('.gguf'));
  hub.publish('leasehold/plain', files);
  t.match(await leasehold('pull', 'leasehold/plain'), { code: 0, err: /It is for transformers, an engine that is not here: it is pulled, and `leasehold run` will refuse it\. .*owner\/name-GGUF:Q4_K_M/, out: /leasehold\/plain is here/ });
  t.match(jsonLines((await leasehold('pull', 'leasehold/tiny-facts', '--json')).out)[0], { event: 'note', code: 'engine_unknown', engine: 'transformers', text: /leasehold pull leasehold\/tiny-facts:F16\./ }, 'and where the repository has what runs, that is named');
  t.equal((await leasehold('rm', 'leasehold/plain')).code, 0);
  mkdirSync(join(work, 'folder'));
  for (const { path, bytes } of files) writeFileSync(join(work, 'folder', path), bytes);
  for (const path of ['./folder', './folder/model.safetensors']) t.match(await leasehold('run', path, question), { code: 2, err: /no engine transformers[\s\S]*holds safetensors, which llama\.cpp does not load\. Pull a GGUF of it/ });
  rmSync(join(work, 'folder', 'model.safetensors'));
  for (const one of ['x.gguf', 'y.gguf']) writeFileSync(join(work, 'folder', one), 'GGUF');
  t.match(await leasehold('run', './folder', question), { code: 2, err: /it has 2 GGUF models; name one of them: x\.gguf, [^ ,]+\.gguf\./ });
  for (const verb of ['rm', 'verify']) t.match(await leasehold(verb, 'tiny-facts'), { code: 2, err: /^error: tiny-facts ships with Leasehold; nothing was pulled\.\n/ });
  t.match(await leasehold('pull', 'tiny-facts'), { code: 2, err: /^error: tiny-facts ships with Leasehold; nothing was pulled\.\n/ });
  writeFileSync(join(work, 'named.yaml'), `models:\n  story: { engine: simulated, source: 'sim:{}' }\n  here: { source: ./x.gguf, aliases: [h] }\n  gone: { source: hf.co/leasehold/never, aliases: [g] }\n`);
  for (const verb of ['pull', 'rm', 'verify']) {
    t.match(await leasehold(verb, 'story', '--config', 'named.yaml'), { code: 2, err: /^error: story is a script of the simulated engine; nothing was pulled\.\n/ }, verb);
    t.match(await leasehold(verb, 'h', '--config', 'named.yaml'), { code: 2, err: /^error: h is configured with the source .*x\.gguf, which is not on a hub; nothing was pulled\.\n/ }, verb);
    t.match((await leasehold(verb, 'g', '--config', 'named.yaml')).err, /leasehold\/never/, `${verb}: a name stands for what is configured under it`);
  }
  t.match(await leasehold('pull', './folder'), { code: 2, err: /it is on this machine, and nothing was pulled\.\n.*help: It is used where it lies: leasehold run PATH/ });
  t.match(await leasehold('run', 'leasehold/tiny-facts', question), { code: 2, err: /no engine transformers[\s\S]*Pull a GGUF of it/ });
  t.equal((await leasehold('pull', 'leasehold/tiny-facts:F16', '-q')).code, 0);
  t.equal(jsonLines((await leasehold('models', '--pulled', '--json')).out).length, 3);
});

t.test('with the hub gone, what was pulled answers', async (t) => {
  await hub.close();
  for (const reference of [name, `hf.co/${name}:F16`, 'leasehold/tiny-facts:f16']) {
    t.match(await leasehold('run', reference, question, '--device', 'sim:64MiB'), { code: 0, out: /Paris/ }, reference);
  }
  t.test('also under a name of the configuration, which the doctor understands', async (t) => {
    writeFileSync(join(work, 'leasehold.yaml'), `models:\n  facts: { source: 'hf.co/${name}:F16', context: 512 }\n  none: { source: hf.co/o/none }\n`);
    t.match(await leasehold('doctor', 'configuration', '--no-engines', '--json'), { out: /o\/none has not been pulled/ });
    t.notMatch((await leasehold('doctor', 'configuration', '--no-engines', '--json')).out, /facts.*no such file/);
    t.match(await leasehold('run', 'none', question, '--device', 'sim:64MiB'), { code: 2, err: /o\/none has not been pulled/ });
    t.match(await leasehold('run', 'facts', question, '--device', 'sim:64MiB'), { code: 0, out: /Paris/ }, 'the other is served');
    rmSync(join(work, 'leasehold.yaml'));
  });
});

t.test('verify takes away what is wrong, rm what is not wanted', async (t) => {
  t.match(await leasehold('verify'), { code: 0, out: /as they were pulled/ });
  const [model] = jsonLines((await leasehold('models', '--pulled', '--json')).out).filter(({ model }) => model === name);
  const file = join(String(model?.['path']), 'tiny-facts-f16.gguf');
  const bytes = readFileSync(file);
  writeFileSync(file, Buffer.from(bytes).fill(0, bytes.length - 4_096));
  t.match(await leasehold('verify', name), { code: 1, out: /1 file missing or taken away; `leasehold pull leasehold\/tiny-facts-GGUF`[\s\S]*its hash is [^;]*; kept at \S*\.quarantine\S* until the next/ });
  t.match(await leasehold('run', name, question, '--device', 'sim:64MiB'), { code: 2, err: /is not pulled[\s\S]*leasehold pull leasehold\/tiny-facts-GGUF/ });
  t.match(await leasehold('models', '--pulled'), { code: 0, out: /[0-9a-f]{8} +incomplete/ });
  for (const args of [['verify'], ['verify', name]]) t.match(await leasehold(...args), { code: 1, out: /1 file missing or[^]*tiny-facts-f16\.gguf: no file of its own is there/ }, 'as often as it is asked');
  const [verdict] = jsonLines((await leasehold('verify', '--json')).out).filter(({ model }) => model === name);
  t.match(verdict, { files: [{ path: 'tiny-facts-f16.gguf', size_bytes: null, fault: 'no file of its own is there', kept_at: null }] });
  rmSync(join(String(model?.['path']), '.leasehold-complete.json'));
  t.match(await leasehold('verify'), { code: 1, err: /is not pulled: it was never staged to the end/ });
  t.match(await leasehold('verify', '--json'), { code: 1, out: /"code":"not_staged"/ });
  t.match(await leasehold('rm', name), { code: 0, out: /removed/ });
  t.match(await leasehold('rm', name, '--json'), { code: 2, out: /"code":"profile_unknown"/ });
  t.match(await leasehold('pull', name), { code: 1, err: /could not be reached/ }, 'the hub is still gone');
});

t.test('a model that a broker has on a card is not removed', async (t) => {
  const reference = 'leasehold/tiny-facts:F16';
  const daemon = spawn(process.execPath, [main, 'up', '--device', 'sim:64MiB', '--json'], {
    cwd: work, stdio: ['ignore', 'pipe', 'inherit'], env: { PATH: process.env['PATH'] ?? '', HOME: work, LEASEHOLD_MODELS: join(work, 'store'), LEASEHOLD_STATE: join(work, 'state') },
  });
  t.teardown(() => { daemon.kill('SIGKILL'); });
  await new Promise<void>((resolve) => { daemon.stdout.setEncoding('utf8').on('data', (text: string) => { if (text.includes('"ready"')) resolve(); }); });
  t.match(await leasehold('run', reference, question), { code: 0, out: /Paris/ });
  t.match(await leasehold('rm', reference), { code: 1, err: /is in use: .*tiny-facts-f16/ });
  t.match(await leasehold('evict', reference), { code: 0 });
  t.match(await leasehold('rm', reference), { code: 0, out: /removed/ });
  const closed = once(daemon, 'close');
  daemon.kill('SIGTERM');
  await closed;
});
