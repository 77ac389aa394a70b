/** What the shell takes in and gives out has bounds: options, cards, the ledger's answer, sessions that come and go. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import t from 'tap';
import { classPolicies, type ControlMessage } from '../../../protocol/index.js';
import { createBroker, type BrokerOptions } from '../../../broker/shell/index.js';
import { ledgerEntriesMax, ledgerJson } from '../../../broker/shell/fitting-ledger.js';
import { Sampler } from '../../../broker/shell/sampler.js';
import type { UntimedEvent } from '../../../broker/shell/loop.js';
import { SimulatedCard, simulatedDevice, type Reading } from '../../../broker/devices/index.js';
import type { LeaseView, LedgerView, ProcessView, WaiterView } from '../../../broker/core/index.js';
import { MiB, folder, open, patienceMs, peer, refusal, until } from '../../integration/support.js';

const card = (stateId: string, index: number): SimulatedCard =>
  new SimulatedCard({ totalBytes: 64 * MiB, floorBytes: 0, lagMs: 0, blind: false, name: null, device: simulatedDevice(stateId, index) });

const lease = (n: number, model = 'm'): LeaseView => ({
  lease: `l${String(n)}`, model, generation: 'b-s1', device: 'SIM-x-0', gang: null, state: 'resident', chargedBytes: n, residentBytes: n, hostBytes: 0, hostChargedBytes: null, parts: [], layers: null, inFlight: 0, pinned: false, misplacedOn: null, leavingMs: null, idleMs: 0,
});
const waiter = (n: number): WaiterView => ({ generation: 'b-s1', request: n, model: 'm', device: 'SIM-x-0', gang: null, class: 'normal', needBytes: 1, waitedMs: 1, position: 5_000 - n, holdBytes: 0, hostNeedBytes: 0, hostHoldBytes: 0, behindOthersMs: null, reason: 'r'.repeat(100) });
const holder = (n: number): ProcessView => ({ generation: `b-s${String(n)}`, role: 'holder', engine: null, state: 'ready', devices: [], floorBytes: n, memoryBytes: null });
const many = <Entry>(count: number, make: (n: number) => Entry): Entry[] => Array.from({ length: count }, (_, n) => make(n));

interface Carried extends LedgerView {
  readonly omitted: Readonly<Record<'leases' | 'waiting' | 'processes', number>>;
  readonly catalogue: unknown;
}

t.test('a ledger of any size fits into its answer: the weightiest entries, and how many are left out', async (t) => {
  const ledger: LedgerView = { bootId: 'b', cards: [], host: null, counters: {}, leases: many(40_000, (n) => lease(n, 'x'.repeat(200))), waiting: many(4_000, waiter), processes: many(6_000, holder) };
  for (const bytesMax of [32_000, 256_000, 4 * MiB]) {
    const json = ledgerJson(ledger, { catalogue: ['a model'] }, bytesMax);
    t.ok(Buffer.byteLength(json) <= bytesMax, `${String(json.length)} of ${String(bytesMax)} bytes`);
    const { leases, waiting, processes, omitted, catalogue } = JSON.parse(json) as Carried;
    t.ok(leases.length > 10 && waiting.length > 10 && processes.length > 10, 'something of each');
    t.strictSame(omitted, { leases: 40_000 - leases.length, waiting: 4_000 - waiting.length, processes: 6_000 - processes.length });
    t.equal(leases[0]?.chargedBytes, 39_999, 'the most charged first');
    t.equal(waiting[0]?.position, 1_001, 'the first in line first');
    t.equal(processes[0]?.floorBytes, 5_999);
    t.ok(leases.length <= ledgerEntriesMax);
    t.strictSame(catalogue, ['a model'], 'what who attaches needs is whole');
  }
  const small = { ...ledger, leases: [lease(1), lease(3), lease(2)], waiting: [], processes: [] };
  t.match(JSON.parse(ledgerJson(small, {}, 4 * MiB)), { leases: [{ lease: 'l1' }, { lease: 'l3' }, { lease: 'l2' }], omitted: { leases: 0, waiting: 0, processes: 0 } }, 'what fits is whole and in its order');
});

t.test('what createBroker is given is checked before anything is made', async (t) => {
  const engine = { name: 'e', command: 'true', args: [], env: {}, modelsPerWorker: 1 };
  const normal = classPolicies.normal;
  const cases: readonly (readonly [string, object, RegExp])[] = [
    ['no discover', { discover: undefined }, /discover/],
    ['no models a worker', { engines: [{ ...engine, modelsPerWorker: 0 }] }, /engines\.e\.modelsPerWorker: 0 is not a whole number from 1/],
    ['two engines of a name', { engines: [engine, engine] }, /engines\.e: two engines have this name/],
    ['an engine without a name', { engines: [{ ...engine, name: '' }] }, /a name must have/],
    ['an engine without a command', { engines: [{ ...engine, command: undefined }] }, /engines\.e\.command/],
    ['an argument with NUL', { engines: [{ ...engine, args: ['a\0b'] }] }, /engines\.e\.args/],
    ['a variable with =', { engines: [{ ...engine, env: { 'A=B': 'c' } }] }, /engines\.e\.env/],
    ['an engine that is none', { engines: [null] }, /is not an engine/],
    ['a policy that divides by nothing', { classPolicies: { ...classPolicies, normal: { ...normal, ageingMs: 0 } } }, /classPolicies\.normal\.ageingMs: 0/],
    ['a negative rank', { classPolicies: { ...classPolicies, normal: { ...normal, rank: -1 } } }, /classPolicies\.normal\.rank: -1/],
    ['a policy that is missing', { classPolicies: { interactive: normal, normal } }, /classPolicies\.background: it is missing/],
    ['a path with NUL', { stateFolder: 'a\0b' }, /stateFolder/],
    ['half a worker', { expectedWorkers: 0.5 }, /expectedWorkers/],
    ['65 cards', { discover: async (id: string) => many(65, (n) => ({ card: card(id, n).description, reader: card(id, n), reserveBytes: 0 })) }, /65 cards are more than the 64/],
    ['a card that is no name', { discover: async (id: string) => [{ card: { ...card(id, 0).description, device: 7 }, reader: card(id, 0), reserveBytes: 0 }] }, /7 is not the name of a card/],
  ];
  for (const [what, given, said] of cases) {
    const options = { stateFolder: folder(t), engines: [], discover: async () => [], ...given } as unknown as BrokerOptions;
    t.match(await refusal(createBroker(options)), { code: 'config_invalid', message: said }, what);
  }
});

t.test('a reading whose owners cannot be told is a reading that is missing, and the next one counts', async (t) => {
  const events: UntimedEvent[] = [];
  let short = true;
  const sampler = new Sampler(5, {
    of: () => {
      if (short) throw Object.assign(new Error('EMFILE: too many open files'), { code: 'EMFILE' });
      return [{ generation: 'b-w1', usedBytes: 7 }];
    },
    pids: () => [],
  }, (event) => { events.push(event); });
  t.teardown(() => { sampler.stop(); });
  const { description } = card('x', 0);
  const read = async (device: string): Promise<Reading> => ({ kind: 'read', device, takenAtUs: 1, usedBytes: 7, totalBytes: 100, truth: 'simulated', processes: [{ pid: 1, usedBytes: 7 }] });
  sampler.watch(description, { read, close: async () => undefined }, { reserveBytes: 0 });
  await until('the failure to be told', () => events.length > 0);
  t.match(events[0], { type: 'sample_failed', reading: 'failed', reason: /EMFILE/ });
  short = false;
  await until('a reading', () => events.some(({ type }) => type === 'sampled'));
  sampler.watch({ ...description, device: 'SIM-y-0' }, { read: () => { throw new Error('at once'); }, close: async () => undefined }, { reserveBytes: 0 });
  await until('a reader that throws at once to be told of', () => events.some((event) => event.type === 'sample_failed' && event.device === 'SIM-y-0'));
});

t.test('a holder that comes and goes and holds nothing leaves nothing behind', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'] });
  const { processes: before } = await orchestrator.ledger();
  // Its process is another one than the broker's, and goes on living.
  const program = `
    const { connectBroker } = await import(${JSON.stringify(new URL('../../../src/client/index.js', import.meta.url).href)});
    const { readStateFolder } = await import(${JSON.stringify(new URL('../../../broker/shell/index.js', import.meta.url).href)});
    const { socketPath, secret } = readStateFolder(${JSON.stringify(stateFolder)});
    for (let n = 0; n < 20; n++) await (await connectBroker({ socketPath, secret, role: 'holder', name: 'come and go' })).close();
    console.log('done');
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  const after = await until('all of them to be dropped', async () => {
    const { processes, holders } = await orchestrator.ledger();
    return processes.length === before.length && holders.length === 0 ? processes : null;
  });
  t.strictSame(after.map(({ generation }) => generation), before.map(({ generation }) => generation));
  t.equal(child.exitCode, null, 'while its process lives');
});

/** A broker in a process that may have few descriptors; it says its socket, and ends by itself with the test. */
const fewDescriptors = (stateFolder: string): string => `
  const { createBroker } = await import(${JSON.stringify(new URL('../../../broker/shell/index.js', import.meta.url).href)});
  const { SimulatedCard, simulatedDevice } = await import(${JSON.stringify(new URL('../../../broker/devices/index.js', import.meta.url).href)});
  const { openSync, closeSync } = await import('node:fs');
  const discover = async (id) => { const card = new SimulatedCard({ totalBytes: 1e9, floorBytes: 0, lagMs: 0, blind: false, name: null, device: simulatedDevice(id, 0) }); return [{ card: card.description, reader: card, reserveBytes: 0 }]; };
  const broker = await createBroker({ stateFolder: ${JSON.stringify(stateFolder)}, engines: [{ name: 'e', command: 'sleep', args: ['1000'], env: {}, modelsPerWorker: 1 }], discover, limits: { sampleIntervalMs: 20 } });
  process.stdin.on('data', (word) => {
    const held = [];
    if (String(word).startsWith('eat')) { try { for (;;) held.push(openSync('/dev/null')); } catch (error) { console.log(error.code); } }
    setTimeout(() => { for (const file of held) closeSync(file); console.log('free'); }, 1000);
  });
  console.log('up');`;

t.test('a broker that runs out of descriptors lives on, and serves again once it has some', async (t) => {
  const stateFolder = folder(t);
  const child = spawn('bash', ['-c', 'ulimit -n 200; exec "$0" --input-type=module -e "$1"', process.execPath, fewDescriptors(stateFolder)], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => { said += chunk.toString(); });
  await until('the broker', () => said.includes('up'));
  const client = await peer(stateFolder, 'client');
  const place = (model: string): Parameters<typeof client.ask>[0] => ({ type: 'place', model, engine: 'e', estimateBytes: null, class: 'normal', deadlineMs: 3_000, device: null, policy: { ttlMs: null, pinned: false, exclusive: false } });
  const first = client.ask(place('first')).catch((error: unknown) => error);
  await until('a worker to be sampled', async () => (JSON.parse(((await client.ask({ type: 'ledger' })) as Extract<ControlMessage, { type: 'ledger_state' }>).json) as { readonly workers: readonly unknown[] }).workers.length === 1);
  child.stdin.write('eat\n');
  await until('no descriptor to be left', () => said.includes('EMFILE'));
  const sockets: Socket[] = Array.from({ length: 20 }, () => createConnection(`${stateFolder}/broker.sock`).on('error', () => undefined));
  const second = client.ask(place('second')).catch((error: unknown) => error);
  t.match(await client.ask({ type: 'ledger' }), { type: 'ledger_state' }, 'who is there already is served');
  await until('descriptors to be free', () => said.includes('free'), patienceMs);
  for (const socket of sockets) socket.destroy();
  await Promise.all([first, second]);
  t.equal(child.exitCode, null);
  const late = await peer(stateFolder, 'client');
  t.match(await late.ask({ type: 'ledger' }), { type: 'ledger_state' });
});

t.test('connections that never say who they are hold no more descriptors than they may', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, devices: ['sim:64MiB'], limits: { preAuthConnectionsMax: 8, flushTimeoutMs: 60_000 } });
  let closed = 0;
  // They read nothing and never close: half open for as long as we let them.
  const sockets = await Promise.all(many(100, async () => {
    const socket = createConnection({ path: orchestrator.socketPath, allowHalfOpen: true });
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(Buffer.from([0, 0, 1]));
    socket.on('end', () => { closed += 1; });
    socket.resume();
    return socket;
  }));
  await until('all but the newest to be dropped at once', () => closed >= 92);
  t.equal(process.getActiveResourcesInfo().filter((kind) => kind === 'PipeWrap').length > 108 + 20, false, 'and their descriptors with them');
  for (const socket of sockets) socket.destroy();
});
