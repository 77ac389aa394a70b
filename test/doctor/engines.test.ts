/** Configuration and engines: what a user wrote, and whether what it names can be started. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { tinyModels } from '../../src/orchestrator/shipped-models.js';
import { judgeModel, type Room } from '../../src/doctor/checks/configuration.js';
import { judgeTrial, ownedBy, tryAttach } from '../../src/doctor/checks/engines.js';
import type { BrokerSeen } from '../../src/doctor/running-broker.js';
import { attachWorker } from '../../src/doctor/throwaway.js';
import { engineCommands } from '../../src/orchestrator/engines.js';
import type { RunOutcome } from '../../broker/devices/bounded-run.js';
import { card, findingBy, findingsBy, first, fixtureScene, gibibyte, mebibyte, reading, rung } from './fixture.js';

const ended = (outcome: Partial<Extract<RunOutcome, { kind: 'ended' }>>): RunOutcome => ({ kind: 'ended', exitCode: 0, signal: null, stdout: '', stderr: '', ...outcome });
const never = new AbortController().signal;

t.test('the file', async (t) => {
  const folder = t.testdir();
  const sceneOf = (name: string, text: string) => {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'mine.yaml'), text);
    return fixtureScene(join(folder, name), { flags: { config: 'mine.yaml' }, rungs: [rung('nvml', { cards: [card(first)], driver: '1' }, [reading(first)])] });
  };
  t.match(await findingBy(fixtureScene(join(folder, 'none')), 'configuration.file'), { verdict: 'ok', found: /^none \(looked for .*leasehold\.yaml and .*\); the defaults hold$/ });
  t.match(await findingBy(sceneOf('good', 'models:\n  a: {source: tiny-facts}\nlimits: {workersMax: 3}\n'), 'configuration.file'), { verdict: 'ok', found: /mine\.yaml, 1 model, 1 limit changed$/ });
  const broken = sceneOf('broken', 'modles: {}\nlimits: {wrokersMax: 1}\n');
  t.match(await findingBy(broken, 'configuration.file'), { verdict: 'problem', found: /modles.*; .*wrokersMax/ });
  for (const id of ['configuration.devices', 'configuration.models']) t.match(await findingBy(broken, id), { verdict: 'not_applicable' }, id);
  t.match(await findingBy(broken, 'state.path'), { found: /state; its longest/ }, 'what does not hang on it is looked at all the same');
  t.match(await findingBy(sceneOf('clash', 'models:\n  a: {source: tiny-facts, aliases: [x]}\n  b: {source: tiny-sums, aliases: [x]}\n'), 'configuration.file'), { verdict: 'problem', found: /x already means a/ });
  t.match(await findingBy(fixtureScene(join(folder, 'lost'), { flags: { config: 'nowhere.yaml' } }), 'configuration.file'), { verdict: 'problem', found: /nowhere\.yaml/ });

  const devices = (name: string, text: string) => findingBy(sceneOf(name, text), 'configuration.devices');
  t.match(await devices('auto', ''), { verdict: 'ok', found: `auto: ${first} with 23.8 GiB to lease` });
  t.match(await devices('sim', 'devices: ["sim:24MiB", cpu]\n'), { verdict: 'ok', found: /SIM-0 with 24\.0 MiB to lease/ });
  t.match(await devices('stranger', 'devices: [GPU-99999999-2222-3333-4444-555555555555]\n'), { verdict: 'problem', found: /there is no GPU-9999.* here/, advice: new RegExp(first) });
  t.match(await devices('reserve', `reserve: {${first}: 24GiB}\n`), { verdict: 'problem', found: /the reserve leaves nothing/ });
  t.match(await findingBy(fixtureScene(join(folder, 'bare')), 'configuration.devices'), { verdict: 'ok', found: 'auto: the CPU alone, where nothing is leased' });
});

t.test('its models', async (t) => {
  const folder = t.testdir();
  writeFileSync(join(folder, 'no.gguf'), 'this is no model at all, whatever it is called');
  writeFileSync(join(folder, 'empty.gguf'), '');
  writeFileSync(join(folder, 'leasehold.yaml'), [
    'models:', '  good: {source: tiny-facts}', '  path: {source: %GOOD%, context: 100000}', '  broken: {source: no.gguf}', '  empty: {source: empty.gguf}', '  lost: {source: ./nowhere.gguf}',
    '  script: {source: "sim:{}", engine: simulated}', '  other: {source: no.gguf, engine: mine}', 'workers:', '  mine: {command: /bin/true}', '',
  ].join('\n').replace('%GOOD%', tinyModels['tiny-sums'].ggufPath));
  const found = new Map((await findingsBy(fixtureScene(folder, { flags: { config: 'leasehold.yaml' } }), 'configuration.models')).map((each) => [each.id, each]));
  const of = (name: string) => found.get(`configuration.models.${name}`);
  t.match(of('good'), { title: 'Model good', verdict: 'ok', found: /^qwen3, 2\.0 MiB of weights, a context of 2048 tokens$/ });
  t.match(of('path'), { verdict: 'warning', found: /a context of 100000 tokens; it was made for 2048/ });
  t.match(of('broken'), { verdict: 'problem', found: /does not begin with GGUF/, advice: /anew/ });
  t.match(of('empty'), { verdict: 'problem', found: /it is empty/ });
  t.match(of('lost'), { verdict: 'problem', found: /there is no such file/, advice: /`source`/ });
  t.match(of('script'), { verdict: 'ok' });
  t.match(of('other'), { verdict: 'ok', found: /for mine$/ });
  t.match(await findingBy(fixtureScene(join(folder, 'none')), 'configuration.models'), { verdict: 'not_applicable' });

  t.test('against the cards', async (t) => {
    const source = tinyModels['tiny-facts'].ggufPath;
    const room: Room = { cards: [{ device: first, leasableBytes: 10 * gibibyte }, { device: 'GPU-2', leasableBytes: 20 * gibibyte }], hostBytes: 64 * gibibyte };
    const engines = new Set(['llama', 'simulated']);
    const judge = (tensorBytes: number, changes = {}, where = room) => judgeModel({ source, ...changes }, { path: source, architecture: 'llama', tensorBytes, parts: 2, trainedTokens: 4_096 }, where, engines);
    t.match(await judge(18 * gibibyte), { verdict: 'ok', found: /18\.0 GiB of weights in 2 files/ });
    t.match(await judge(19 * gibibyte), { verdict: 'problem', found: /needs 20\.9 GiB, and the largest card has 20\.0 GiB/, advice: /gpuLayers/ });
    t.match(await judge(19 * gibibyte, { exclusive: true, declaredBytes: 19.5 * gibibyte }), { verdict: 'ok' }, 'the one exception to the headroom');
    t.match(await judge(19 * gibibyte, { exclusive: true }), { verdict: 'warning', advice: /declaredBytes/ }, 'which no estimate is enough for');
    t.match(await judge(19 * gibibyte, { options: { gpuLayers: '10' } }), { verdict: 'ok' }, 'not all of it goes there');
    t.match(await judge(18 * gibibyte, { device: first }), { verdict: 'problem', found: /10\.0 GiB to lease/ });
    t.match(await judge(1, { device: 'GPU-99999999-2222-3333-4444-555555555555' }), { verdict: 'problem', found: /none of those to own/ });
    t.match(await judge(65 * gibibyte, {}, { ...room, cards: [] }), { verdict: 'problem', found: /the machine has 64\.0 GiB/ });
    t.match(await judge(mebibyte, { engine: 'nobody' }), { verdict: 'problem', found: 'nobody is no engine here' });
  });
});

t.test('workers start and attach to a broker made for the moment', async (t) => {
  const [, simulated] = engineCommands([]);
  if (simulated === undefined) throw new Error('the simulated engine is built in');
  t.match(await tryAttach(() => attachWorker(simulated, 30_000, never), simulated.command), { verdict: 'ok', found: /^started and attached .* \(simulated 1\)$/ });
  const folder = t.testdir();
  const own = (name: string, body: string) => {
    const command = join(folder, name);
    writeFileSync(command, `#!/bin/sh\n${body}\n`);
    chmodSync(command, 0o755);
    return { name, command, args: [], env: {}, modelsPerWorker: 1 };
  };
  const dies = own('dies', 'echo "ImportError: no module named torch" >&2; exit 3');
  t.match(await tryAttach(() => attachWorker(dies, 30_000, never), dies.command), { verdict: 'problem', found: /does not start.*ImportError: no module named torch/ });
  const mute = own('mute', 'exec sleep 300');
  t.match(await tryAttach(() => attachWorker(mute, 1_000, never), mute.command), { verdict: 'problem', found: /does not start/ });
  const absent = { ...mute, command: join(folder, 'not-there') };
  t.match(await tryAttach(() => attachWorker(absent, 30_000, never), absent.command), { verdict: 'problem', found: /not-there: there is no such file/, advice: /may be executed/ });
  // No card is shown to it: nobody has leased one.
  const told = join(folder, 'told');
  const curious = own('curious', `echo "$CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES" > ${told}; exit 1`);
  await tryAttach(() => attachWorker(curious, 30_000, never), curious.command);
  t.equal(readFileSync(told, 'utf8'), '-1 -1\n');
});

t.test('one token of llama.cpp, or why there is none', async (t) => {
  const ran = { ran: true, version: '3.21.1', release: 'b1', devices: ['NVIDIA H200'], openMs: 900, loadMs: 30, firstTokenMs: 12.3 };
  t.match(judgeTrial(ended({ stdout: `noise\n${JSON.stringify(ran)}\n` }), 'cuda', '580'), { verdict: 'ok', found: 'cuda on NVIDIA H200: first token 12 ms after the prompt (opened in 900 ms, a tiny model loaded in 30 ms); node-llama-cpp 3.21.1, llama.cpp b1' });
  // As an H200 with driver 580.159 ends it, backtrace and all.
  const abort = 'ggml_cuda_compute_forward: RMS_NORM failed\nCUDA error: the provided PTX was compiled with an unsupported toolchain.\n/home/x/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:98: CUDA error';
  t.match(judgeTrial(ended({ exitCode: null, signal: 'SIGABRT', stderr: abort }), 'cuda', '580.159'), { verdict: 'problem', found: /its CUDA build has code for this card only as PTX of a newer CUDA than driver 580\.159 can translate.*SIGABRT/, advice: /Update the NVIDIA driver, or build llama\.cpp/ });
  const failed = (reason: string, missing = false): RunOutcome => ended({ stdout: `${JSON.stringify({ ran: false, missing, reason })}\n` });
  const rows: readonly (readonly [RunOutcome, object])[] = [
    [failed('Cannot find package \'node-llama-cpp\' imported from x', true), { verdict: 'warning', found: 'node-llama-cpp is not installed', advice: /npm install node-llama-cpp@3\.21\.1/ }],
    [failed('Cannot find package \'ora\' imported from node-llama-cpp', true), { verdict: 'problem', found: /does not load: Cannot find package 'ora'/, advice: /not whole/ }],
    [failed('CUDA error: no kernel image is available'), { verdict: 'problem', found: /no code for a card of this kind/ }],
    [failed('CUDA driver version is insufficient for CUDA runtime version'), { verdict: 'problem', found: /driver 580 is older/ }],
    [failed('ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory'), { verdict: 'problem', advice: /End what holds the card/ }],
    [failed('libcudart.so.13: cannot open shared object file'), { verdict: 'problem', advice: /LD_LIBRARY_PATH/ }],
    [failed('NoBinaryFoundError'), { verdict: 'problem', found: /there is no cuda build/, advice: /optional\), and the NVIDIA driver\./ }],
    [failed('Engine llama is not installed: NoBinaryFoundError', true), { verdict: 'problem', found: /without its build/, advice: /optional\)\.$/ }],
    [ended({ exitCode: null, signal: 'SIGABRT', stderr: '/x/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:108: CUDA error\nlibggml-base.so(ggml_abort+0x152)[0x7fa638144f42]' }), { verdict: 'problem', found: 'cuda: it was ended by SIGABRT: ggml/src/ggml-cuda/ggml-cuda.cu:108: CUDA error', advice: /do not go together/ }],
    [failed('it sees 2 cards (A, B) and cannot be kept to one'), { verdict: 'problem', advice: /CUDA build|one card/ }],
    [failed('something else'), { verdict: 'problem', found: 'cuda: something else', advice: /inspect gpu/ }],
    [ended({ exitCode: null, signal: 'SIGILL' }), { verdict: 'problem', found: /lacks instructions/ }],
    [ended({ exitCode: null, signal: 'SIGKILL' }), { verdict: 'problem', advice: /oom/ }],
    [ended({ exitCode: 3, stderr: 'terminate called' }), { verdict: 'problem', found: /it ended with code 3: terminate called/ }],
    [{ kind: 'timed_out' }, { verdict: 'problem', found: /no token within 60 s/, advice: /hangs/ }],
    [{ kind: 'not_started', reason: 'EAGAIN' }, { verdict: 'problem', found: /EAGAIN/ }],
    [{ kind: 'too_much_output' }, { verdict: 'problem', found: /without end/ }],
  ];
  for (const [outcome, wanted] of rows) t.match(judgeTrial(outcome, 'cuda', '580'), wanted);
});

t.test('cards are tried as their worker would be, best backend first', async (t) => {
  const folder = t.testdir();
  /** In place of the worker's own program: says what it was asked, and behaves by the backend. */
  const builtOf = (name: string, body: string): string => {
    const built = join(folder, name);
    mkdirSync(join(built, 'workers', 'llama'), { recursive: true });
    writeFileSync(join(built, 'workers', 'llama', 'trial.js'), `const [, , backend] = process.argv;\nconst ran = { ran: true, version: '1', release: 'b1', devices: [process.env.CUDA_VISIBLE_DEVICES], openMs: 1, loadMs: 1, firstTokenMs: 1 };\n${body}\n`);
    return built;
  };
  const visible = { ...card(first), visibility: { CUDA_VISIBLE_DEVICES: first } };
  const sceneOf = (name: string, body: string, used = gibibyte) => fixtureScene(join(folder, `${name}-scene`), { builtRoot: builtOf(name, body), rungs: [rung('nvml', { cards: [visible], driver: '580.159' }, [reading(first, { usedBytes: used })])] });
  const tried = async (...given: Parameters<typeof sceneOf>) => (await findingsBy(sceneOf(...given), 'engines.llama.cards'))[0];
  t.match(await tried('good', 'console.log(JSON.stringify(ran));'), { id: `engines.llama.cards.${first}`, title: 'llama.cpp on Card', verdict: 'ok', found: new RegExp(`^cuda on ${first}: first token`) });
  t.match(await tried('aborts', 'if (backend === "cuda") { console.error("CUDA error: the provided PTX was compiled with an unsupported toolchain."); process.abort(); }\nconsole.log(JSON.stringify(ran));'), { verdict: 'warning', found: /^vulkan on .*; cuda: its CUDA build has code .*580\.159.*SIGABRT/ });
  t.match(await tried('nothing', 'process.exit(9);'), { verdict: 'problem', found: /cuda: it ended with code 9; vulkan: it ended with code 9/, advice: /nothing of llama\.cpp runs on this card/ });
  t.match(await tried('missing', 'console.log(JSON.stringify({ ran: false, missing: true, reason: "Cannot find package \'node-llama-cpp\'" }));'), { verdict: 'warning', found: 'node-llama-cpp is not installed' });
  t.match(await tried('full', 'process.exit(9);', 23.5 * gibibyte), { verdict: 'warning', found: /not tried: 512\.0 MiB are free/ });
  t.match(await findingBy(fixtureScene(join(folder, 'no-card')), 'engines.llama.cards'), { verdict: 'not_applicable' });
  const broker = { kind: 'running', ledger: { cards: [{ device: first }], processes: [{ generation: 'w1', devices: [first] }, { generation: 'w2', devices: ['GPU-2'] }], workers: [{ generation: 'w1', engine: 'llama', versions: { backend: 'cuda' } }, { generation: 'w2', engine: 'llama' }] } } as unknown as BrokerSeen;
  t.match(ownedBy(broker, first), { verdict: 'not_applicable', found: /^not tried, since a running broker owns it.*; there run llama \(backend cuda\)$/ });
  t.equal(ownedBy(broker, 'GPU-2'), null);
  t.equal(ownedBy({ kind: 'none', leftovers: [], workers: [] }, first), null);
});

t.test('the worker\'s own program makes a token on the CPU', async (t) => {
  t.match(await findingBy(fixtureScene(t.testdir()), 'engines.llama.cpu'), { verdict: 'ok', found: /^cpu: first token [\d.]+ m?s after the prompt .*node-llama-cpp 3\.21\.1/ });
});

t.test('what llama.cpp says last is heard, though it may end the process', async (t) => {
  const broken = join(t.testdir(), 'broken.gguf');
  // Its header is whole, which is as far as the bindings look.
  const whole = readFileSync(tinyModels['tiny-facts'].ggufPath);
  writeFileSync(broken, whole.subarray(0, whole.length / 2));
  const trial = fileURLToPath(new URL('../../workers/llama/trial.js', import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, [trial, 'cpu', broken, '1'], { encoding: 'utf8' });
  t.match(`${stdout}${stderr}`, /^llama_model_load: error loading model: tensor .* is not within the file bounds/m, 'in its own words, from its own hand');
  t.match(judgeTrial(ended({ exitCode: status, stdout, stderr }), 'cpu', 'none'), { verdict: 'problem', found: /^cpu: Failed to load model: llama_model_load: error loading model: tensor/ });
});
