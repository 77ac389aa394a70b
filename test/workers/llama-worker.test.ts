// The llama worker as a real process: its program, the wire, a simulated card at a scripted broker, a shipped model.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { listen } from '../../protocol/node/index.js';
import { openCaller, type GenerateOptions } from '../../src/client/index.js';
import { checkSum, tinyModels } from '../../workers/models/index.js';
import { specOf } from '../fixtures/llama-engine.js';
import { card, FakeBroker, workerKey } from './fake-broker.js';
import { codeOf, read } from './in-process.js';

const folder = mkdtempSync(join(tmpdir(), 'lh-'));
const dataSocket = join(folder, 'd.sock');
let connected: (broker: FakeBroker) => void = () => undefined;
const attached = new Promise<FakeBroker>((resolve) => { connected = resolve; });
const listener = await listen({ path: join(folder, 'b.sock'), onConnection: (stream) => { connected(new FakeBroker(stream)); } });
const child = spawn(process.execPath, [fileURLToPath(new URL('../../workers/llama/main.js', import.meta.url))], {
  stdio: ['ignore', 'ignore', 'inherit'],
  env: {
    PATH: process.env['PATH'], LEASEHOLD_SOCKET: listener.path, LEASEHOLD_SPAWN: 'b-w1', LEASEHOLD_KEY: workerKey, LEASEHOLD_DATA_SOCKET: dataSocket,
    LEASEHOLD_TOKEN: folder, LEASEHOLD_DEVICES: JSON.stringify([{ device: card, name: card, totalBytes: null, simulated: true }]),
  },
});
const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
t.teardown(async () => {
  child.kill('SIGKILL');
  await exited;
  await listener.close();
  rmSync(folder, { recursive: true, force: true });
});

t.test('a lease, an answer, an eviction and an end', async (t) => {
  const broker = await attached;
  const ready = await broker.heard('ready');
  t.match(ready, { engine: 'llama', capabilities: { park: false, partial: false, embed: true, profilesFreeMemory: false }, floors: [] });
  const caller = await openCaller({ dataSocket, ticket: broker.ticket('b-s1'), caller: 'b-s1' });
  const spec = specOf(tinyModels['tiny-sums'].ggufPath, { key: 'tiny-sums' });
  const question = 'What is 47 + 38?';
  const sum = (maxTokens: number): GenerateOptions => ({ model: spec, messages: [{ role: 'user', content: question }], sampling: { maxTokens, temperature: 0 } });

  const { text, events, end } = await read(caller.generate(sum(256)));
  t.ok(checkSum(question, text), text);
  t.match(end, { reason: 'stop' });
  t.ok(events.some((event) => event.type === 'token' && event.thought), 'it thought first');
  const [request] = broker.all('request_vram_budget');
  const requestedBytes = request?.parts.reduce((bytes, part) => bytes + part.bytes, 0) ?? 0;
  t.equal(broker.usedBytes, requestedBytes, 'what was asked for is what the card has, to the byte');
  t.same(readdirSync(join(folder, 'llama')).length, 1, 'that the file is sound is kept for the next worker');

  const stop = new AbortController();
  const cancelled = codeOf(read(caller.generate({ ...sum(256), signal: stop.signal })));
  stop.abort();
  t.equal(await cancelled, 'request_cancelled');

  const moved = await broker.move({ model: 'tiny-sums' }).answer;
  t.match(moved, { type: 'done', target: 'none', residentBytes: 0, hostBytes: 0 });
  t.equal(broker.usedBytes, 0);
  t.equal(await codeOf(read(caller.generate({ ...sum(4), model: specOf(join(folder, 'none.gguf'), { key: 'none' }) }))), 'model_invalid');

  t.ok(checkSum(question, (await read(caller.generate(sum(256)))).text), 'and it comes back');
  t.match(await broker.channel.request({ type: 'shutdown', graceMs: 10_000, reason: 'the end' }, { timeoutMs: 10_000 }), { type: 'ok' });
  t.equal(await exited, 0);
  t.equal(broker.usedBytes, 0, 'with nothing left on the card');
  caller.close();
});
