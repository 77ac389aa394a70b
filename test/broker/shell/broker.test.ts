/** A broker with peers that are played by the test: who is let in, what it may claim, and what a flood costs. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { defaultLimits, LeaseholdError, type ControlMessage } from '../../../protocol/index.js';
import { connect, openChannel, spawnKey, type Channel } from '../../../protocol/node/index.js';
import { createBroker, type Broker, type BrokerOptions, type CardReader, type OwnedCard } from '../../../broker/shell/index.js';
import { SimulatedCard, simulatedDevice, type CardDescription, type Reading } from '../../../broker/devices/index.js';
import { MiB, folder, lives, patienceMs, peer, quick, refusal, residentBytes, until, type Peer } from '../../integration/support.js';

/** A process that says nothing and waits: the test plays the worker in its place. */
const silent = { name: 'silent', command: 'sleep', args: ['86400'], env: {}, modelsPerWorker: 100_000 };

async function simulated(stateId: string): Promise<readonly OwnedCard[]> {
  const card = new SimulatedCard({ totalBytes: 64 * MiB, floorBytes: 0, lagMs: 0, blind: false, name: null, device: simulatedDevice(stateId, 0) });
  return [{ card: card.description, reader: card, reserveBytes: 0 }];
}

async function start(t: Test, options: Partial<BrokerOptions> = {}): Promise<Broker> {
  const broker = await createBroker({ discover: simulated, engines: [silent], stateFolder: folder(t), ...options, limits: { ...quick, ...options.limits } });
  t.teardown(() => broker.close());
  return broker;
}

/** A real card, for the locks alone. */
function lockedCard(device: string): { readonly card: OwnedCard; readonly reader: CardReader & { closes: number } } {
  const description: CardDescription = { device, name: device, kind: 'gpu', totalBytes: MiB, confirms: 'total', display: false, floorBytes: null, visibility: {} };
  const reader = {
    closes: 0,
    read: async (): Promise<Reading> => ({ kind: 'missing', device, takenAtUs: 0, reading: 'unknown', reason: 'nobody looks' }),
    close: async (): Promise<void> => { reader.closes += 1; },
  };
  return { card: { card: description, reader, reserveBytes: 0 }, reader };
}

const shellUrl = new URL('../../../broker/shell/index.js', import.meta.url).href;

/** What another process of this user is told that wants a broker of that card. */
async function elsewhere(stateFolder: string, device: string): Promise<unknown> {
  const program = `
    const [shell, stateFolder, device] = process.argv.slice(1);
    const { createBroker } = await import(shell);
    const card = { device, name: device, kind: 'gpu', totalBytes: 1, confirms: 'total', display: false, floorBytes: null, visibility: {} };
    const reader = { read: async () => ({ kind: 'missing', device, takenAtUs: 0, reading: 'unknown', reason: '' }), close: async () => {} };
    await createBroker({ stateFolder, engines: [], discover: async () => [{ card, reader, reserveBytes: 0 }] })
      .then((broker) => broker.close(), ({ code, details }) => console.log(JSON.stringify({ code, ...details })));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program, shellUrl, stateFolder, device]);
  return JSON.parse(stdout);
}

const request = (model: string, engine = 'silent'): Parameters<Peer['ask']>[0] => ({
  type: 'place', model, engine, estimateBytes: null, class: 'normal', deadlineMs: 10_000, device: null, policy: { ttlMs: null, pinned: false, exclusive: false },
});

interface Played {
  readonly channel: Channel<'control'>;
  readonly generation: string;
  readonly pid: number;
  readonly heard: ControlMessage[];
  readonly closed: Promise<LeaseholdError>;
}

/** Has the broker start a worker, and attaches in its place. */
async function playWorker(broker: Broker, client: Peer): Promise<Played> {
  const placing = client.ask(request('first'));
  placing.catch(() => undefined);
  const worker = await until('the worker to be started', async () => {
    const answer = await client.ask({ type: 'ledger' });
    const { workers } = JSON.parse((answer as { readonly json: string }).json) as { readonly workers: readonly { readonly generation: string; readonly pid: number | null }[] };
    return workers.find(({ pid }) => pid !== null);
  });
  const { generation } = worker;
  const heard: ControlMessage[] = [];
  let tellClosed: (error: LeaseholdError) => void = () => undefined;
  const closed = new Promise<LeaseholdError>((resolve) => { tellClosed = resolve; });
  const channel = openChannel(await connect({ path: broker.socketPath, timeoutMs: patienceMs }), {
    plane: 'control', side: 'worker', limits: defaultLimits, handlers: { onMessage: (message) => { heard.push(message); }, onClose: (error) => { tellClosed(error); } },
  });
  await channel.request({ type: 'hello', protocol: 1, role: 'worker', spawn: generation, proof: spawnKey(broker.secret, generation), pid: process.pid, name: generation, resume: null }, { timeoutMs: patienceMs });
  return { channel, generation, pid: worker.pid ?? 0, heard, closed };
}

function readyOf(broker: Broker, generation: string, changes: Readonly<Record<string, unknown>> = {}): Parameters<Channel<'control'>['request']>[0] {
  const devices = broker.devices.map(({ device, name, totalBytes }) => ({ device, name, totalBytes }));
  return {
    type: 'ready', engine: 'silent', versions: {}, devices, capabilities: { park: false, partial: false, embed: false, profilesFreeMemory: false },
    dataSocket: join(broker.stateFolder, `${generation}.sock`), floors: [], ...changes,
  };
}

t.test('placements that are taken back before their turn start no process, and others get theirs', async (t) => {
  const started: unknown[] = [];
  const nothing = (): undefined => undefined;
  const info = ({ generation }: Readonly<Record<string, unknown>>, message: string): void => { if (message === 'worker started') started.push(generation); };
  const broker = await start(t, { engines: [{ ...silent, modelsPerWorker: 1 }], log: { debug: nothing, info, warn: nothing, error: nothing } });
  const [flood, other] = [await peer(broker.stateFolder, 'client'), await peer(broker.stateFolder, 'client')];
  for (let id = 100; id < 120; id++) {
    flood.say({ ...request(`flood-${String(id)}`), id });
    flood.say({ type: 'cancel', target: id });
  }
  flood.channel.end();
  const placing = other.ask(request('mine'));
  placing.catch(nothing);
  await until('a worker to be started', () => started.length > 0);
  const { json } = await other.ask({ type: 'ledger' }) as Extract<ControlMessage, { type: 'ledger_state' }>;
  const { workers, counters } = JSON.parse(json) as { readonly workers: readonly { readonly generation: string }[]; readonly counters: Readonly<Record<string, number>> };
  t.strictSame(workers.map(({ generation }) => generation), started, 'one process, and nothing is left of the others');
  t.match(counters, { spawns: 21, 'terminations.unawaited': 20 }, 'each had been decided on');
});

t.test('a card belongs to one broker of this user, whatever their folders', async (t) => {
  const before = process.env['XDG_RUNTIME_DIR'];
  process.env['XDG_RUNTIME_DIR'] = folder(t);
  t.teardown(() => {
    if (before === undefined) delete process.env['XDG_RUNTIME_DIR'];
    else process.env['XDG_RUNTIME_DIR'] = before;
  });
  const [mine, theirs, other] = ['GPU-1111', 'GPU-1111', 'GPU-2222'].map(lockedCard) as [ReturnType<typeof lockedCard>, ReturnType<typeof lockedCard>, ReturnType<typeof lockedCard>];
  const first = await start(t, { discover: async () => [mine.card] });
  const stateFolder = folder(t);
  const refused = await refusal(start(t, { stateFolder, discover: async () => [other.card, theirs.card] }));
  t.match(refused, { code: 'broker_running', details: { path: /GPU-1111\.lock$/, pid: String(process.pid) } });
  t.equal(theirs.reader.closes, 1, 'what was opened to find the cards is closed again');
  t.match(await elsewhere(folder(t), 'GPU-1111'), { code: 'broker_running', pid: String(process.pid) }, 'the same from another process');
  const second = await start(t, { stateFolder, discover: async () => [other.card] });
  t.ok(second.devices.length === 1 && first.devices.length === 1, 'and its folder and its other card are free');
  await first.close();
  t.equal(mine.reader.closes, 1);
  await (await start(t, { discover: async () => [theirs.card] })).close();
});

t.test('a start that fails half way leaves nothing', async (t) => {
  const stateFolder = folder(t);
  mkdirSync(join(stateFolder, 'broker.sock'));
  const { card, reader } = lockedCard('SIM-a-0');
  const simulatedKind = { ...card, card: { ...card.card, kind: 'simulated' as const } };
  t.match(await refusal(start(t, { stateFolder, discover: async () => [simulatedKind] })), { code: 'socket_in_use', message: /is no socket/ });
  t.equal(reader.closes, 1);
  t.ok(existsSync(join(stateFolder, 'broker.sock')), 'what is not a socket of ours is not removed');
  rmSync(join(stateFolder, 'broker.sock'), { recursive: true });
  await (await start(t, { stateFolder })).close();
});

t.test('who comes', async (t) => {
  const broker = await start(t, { limits: { sessionsMax: 2, sessionsPerProcessMax: 2 } });
  const hello = { type: 'hello', protocol: 1, role: 'client', spawn: null, proof: '0'.repeat(64), pid: 1, name: 'x', resume: null } as const;
  const dial = async (): Promise<{ readonly channel: Channel<'control'>; readonly closed: Promise<LeaseholdError> }> => {
    let tellClosed: (error: LeaseholdError) => void = () => undefined;
    const closed = new Promise<LeaseholdError>((resolve) => { tellClosed = resolve; });
    return { closed, channel: openChannel(await connect({ path: broker.socketPath, timeoutMs: patienceMs }), { plane: 'control', side: 'client', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: tellClosed } }) };
  };
  t.equal((await refusal((await dial()).channel.request(hello, { timeoutMs: patienceMs }))).code, 'hello_refused', 'without proof is refused');
  t.match(await refusal((await dial()).channel.request({ ...hello, protocol: 7 }, { timeoutMs: patienceMs })), { code: 'protocol_version', details: { theirs: '7', ours: '1' } });
  const [one, two] = [await peer(broker.stateFolder, 'client'), await peer(broker.stateFolder, 'holder')];
  t.match(await refusal(peer(broker.stateFolder, 'client')), { code: 'too_many_sessions', details: { limit: '2' } });
  two.channel.end();
  await until('its place to be free', () => peer(broker.stateFolder, 'client').then(({ channel }) => { channel.end(); return true; }, () => false));
  await broker.close();
  t.match(await one.closed, { code: 'broker_lost' });
  const late = openChannel(broker.attachInMemory(), { plane: 'control', side: 'client', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
  t.match(await refusal(late.request(hello, { timeoutMs: patienceMs })), { code: /^(shutting_down|connection_lost)$/ }, 'nobody is admitted to a broker that has ended');
  t.equal(await broker.ended, null);
});

t.test('a worker may claim only what it was given', async (t) => {
  const lies = [
    { changes: { dataSocket: '/tmp/elsewhere.sock' }, refusal: { code: 'message_invalid', message: /ready\.dataSocket must be the path it was given/ } },
    { changes: { devices: [{ device: 'GPU-not-mine', name: 'x', totalBytes: 1 }] }, refusal: { code: 'device_unknown', message: /GPU-not-mine; known: SIM-/ } },
  ];
  for (const lie of lies) {
    const broker = await start(t);
    const worker = await playWorker(broker, await peer(broker.stateFolder, 'client'));
    t.match(await refusal(worker.channel.request(readyOf(broker, worker.generation, lie.changes), { timeoutMs: patienceMs })), lie.refusal);
  }
  const broker = await start(t);
  const worker = await playWorker(broker, await peer(broker.stateFolder, 'client'));
  t.match(await worker.channel.request(readyOf(broker, worker.generation), { timeoutMs: patienceMs }), { type: 'ok' });
  const twin = openChannel(await connect({ path: broker.socketPath, timeoutMs: patienceMs }), { plane: 'control', side: 'worker', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
  const again = twin.request({ type: 'hello', protocol: 1, role: 'worker', spawn: worker.generation, proof: spawnKey(broker.secret, worker.generation), pid: 1, name: 'twin', resume: null }, { timeoutMs: patienceMs });
  t.equal((await refusal(again)).code, 'hello_refused', 'and there is one of each generation');
});

t.test('an engine that cannot start is named, with why', async (t) => {
  const engines = [
    { name: 'absent', command: '/nowhere/engine', args: [], env: {}, modelsPerWorker: 1 },
    { name: 'broken', command: 'sh', args: ['-c', 'echo "no such card" >&2; exit 4'], env: {}, modelsPerWorker: 1 },
    { name: 'slow', command: 'sleep', args: ['86400'], env: {}, modelsPerWorker: 1 },
  ];
  const broker = await start(t, { engines, limits: { spawnTimeoutMs: 300, terminateGraceMs: 200 } });
  const client = await peer(broker.stateFolder, 'client');
  t.match(await client.ask(request('m', 'unheard')), { type: 'deny', code: 'engine_unknown', details: { engine: 'unheard', known: 'absent, broken, slow' } });
  t.match(await client.ask(request('a', 'absent')), { type: 'deny', code: 'spawn_failed', message: /absent could not be started: .*no such file/ });
  t.match(await client.ask(request('b', 'broken')), { type: 'deny', code: 'spawn_failed', details: { engine: 'broken', reason: /exit code 4; it said last: no such card/ } });
  t.match(await client.ask(request('c', 'slow')), { type: 'deny', code: 'spawn_failed' }, 'and one that never says hello is given up');
});

t.test('as many records are told as fit into a frame, the newest', async (t) => {
  const broker = await start(t, { limits: { frameBytesMax: 64 * 1_024 } });
  const client = await peer(broker.stateFolder, 'client');
  for (let n = 0; n < 200; n++) await client.ask(request(`model ${String(n)} ${'x'.repeat(200)}`, 'unheard'));
  const answer = await client.ask({ type: 'explain', explain: null, model: null, count: 1_000 });
  if (answer.type !== 'explanation') throw new Error(answer.type);
  t.ok(answer.records.length > 10 && answer.records.length < 200);
  t.match(JSON.parse(answer.records[0]!), { model: /^model 199 / });
  const { id } = JSON.parse(answer.records[5]!) as { readonly id: string };
  t.match(await client.ask({ type: 'explain', explain: id, model: null, count: 1 }), { records: [new RegExp(id)] }, 'and any by its name');
});

t.test('a peer that asks more than it may have open is told so, and others are served', async (t) => {
  const broker = await start(t, { limits: { openRequestsPerSessionMax: 50 } });
  const [greedy, other] = [await peer(broker.stateFolder, 'client'), await peer(broker.stateFolder, 'client')];
  const codes: string[] = [];
  const asked = Array.from({ length: 80 }, (_, n) => greedy.ask(request(`m${String(n)}`)).then(({ type }) => type, (error: unknown) => codes.push(LeaseholdError.from(error).code)));
  await until('the refusals', () => codes.length >= 30);
  t.ok(codes.every((code) => code === 'too_many_requests'));
  t.equal((await other.ask({ type: 'ledger' })).type, 'ledger_state');
  greedy.channel.end();
  await Promise.all(asked);
});

/** A worker's lease of one KiB for a model, resident. */
async function hold(worker: Played, device: string, model: string): Promise<void> {
  const grant = await worker.channel.request({
    type: 'request_vram_budget', model, device, lease: null, parts: [{ name: 'weights', kind: 'weights', bytes: 1_024, upFront: true }], peakBytes: 0, class: 'normal', deadlineMs: 20_000,
    parkable: false, profilesFreeMemory: false, source: 'declared', policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null,
  }, { timeoutMs: patienceMs });
  if (grant.type !== 'grant') throw new Error(grant.type);
  worker.channel.send({ type: 'loading', lease: grant.lease });
  await worker.channel.request({ type: 'residency', seq: 1, lease: grant.lease, model, state: 'resident', residentBytes: 1_024, hostBytes: 0, parts: null, loadMs: 1 }, { timeoutMs: patienceMs });
}

t.test('B178: thousands of commands to a worker that reads nothing are bounded; it is ended, its leases close, and nobody else waits', async (t) => {
  const broker = await start(t, { limits: { frameBytesMax: 128 * 1_024, outgoingBytesMax: 256 * 1_024, terminateGraceMs: 200, openRequestsPerSessionMax: 10_000 } });
  const client = await peer(broker.stateFolder, 'client');
  const worker = await playWorker(broker, client);
  await worker.channel.request(readyOf(broker, worker.generation), { timeoutMs: patienceMs });
  const device = broker.devices[0]!.device;
  const thousands = Array.from({ length: 10 }, (_, thousand) => Array.from({ length: 1_000 }, (_each, n) => `m${String(thousand * 1_000 + n)}`));
  for (const thousand of thousands) await Promise.all(thousand.map((model) => hold(worker, device, model)));
  worker.channel.pause();
  const before = residentBytes();
  const askers = await Promise.all(thousands.map(() => peer(broker.stateFolder, 'client')));
  const evictions = thousands.flatMap((thousand, index) => thousand.map((model) => askers[index]!.ask({ type: 'evict', model, target: 'none', deadlineMs: 20_000 })));
  const other = await peer(broker.stateFolder, 'client');
  const askedMs = performance.now();
  t.equal((await other.ask({ type: 'explain', explain: null, model: null, count: 1 })).type, 'explanation');
  t.comment(`answered beside the flood in ${(performance.now() - askedMs).toFixed(0)} ms`);
  const answers = await Promise.all(evictions);
  t.ok(answers.every(({ type }) => type === 'evicted'), 'each is evicted by the end of the worker');
  worker.channel.resume();
  t.match(await worker.closed, { code: 'connection_lost' });
  await until('the process to be gone', () => !lives(worker.pid));
  t.ok(residentBytes() - before < 300 * MiB, 'memory stays bounded');
  const ledger = JSON.parse(((await other.ask({ type: 'ledger' })) as { readonly json: string }).json) as { readonly leases: readonly unknown[] };
  t.strictSame(ledger.leases, []);
});
