/** Simulated workers, a holder and a caller with the real broker: real processes, real sockets, a simulated card that nobody can talk round. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { SimulatedCard, simulatedDevice } from '../../broker/devices/index.js';
import { createBroker, type Broker } from '../../broker/shell/index.js';
import { classPolicies, type Limits, type ModelSpec } from '../../protocol/index.js';
import { connectBroker, openCaller, type BrokerEvent, type BrokerSession, type WorkerCaller } from '../../src/client/index.js';
import { ask, codeOf, model, read } from './in-process.js';

const program = fileURLToPath(new URL('../../workers/simulated/main.js', import.meta.url));
const mebibyte = 1024 * 1024;
/** Nothing has to stay for long here, and a busy model's door is shut soon. */
const hasty = { minimumResidencyMs: 0, drainAfterMs: 20 };

interface Stand {
  readonly broker: Broker;
  readonly card: SimulatedCard;
  readonly session: BrokerSession;
  readonly events: BrokerEvent[];
  readonly heard: (name: string, matches?: (data: BrokerEvent['data']) => boolean) => Promise<BrokerEvent>;
  readonly caller: (spec: ModelSpec) => Promise<WorkerCaller>;
  readonly say: (spec: ModelSpec, prompt: string) => Promise<string>;
  readonly close: () => Promise<void>;
}

async function stand(totalBytes: number, limits: Partial<Limits> = {}): Promise<Stand> {
  const stateFolder = mkdtempSync(join(tmpdir(), 'lh-'));
  const cards: SimulatedCard[] = [];
  const broker = await createBroker({
    stateFolder, limits,
    classPolicies: { interactive: { ...classPolicies.interactive, ...hasty }, normal: { ...classPolicies.normal, ...hasty }, background: { ...classPolicies.background, ...hasty } },
    discover: (stateId) => {
      const card = new SimulatedCard({ device: simulatedDevice(stateId, 0), totalBytes, lagMs: 10, blind: false, floorBytes: 0, name: null });
      cards.push(card);
      return Promise.resolve([{ card: card.description, reader: card, reserveBytes: 0 }]);
    },
    engines: [{ name: 'simulated', command: process.execPath, args: [program], env: {}, modelsPerWorker: 1 }],
  });
  const [card] = cards;
  if (card === undefined) throw new Error('the broker has no card');
  const session = await connectBroker({ stream: broker.attachInMemory(), secret: broker.secret, role: 'holder', name: 'a test' });
  const events: BrokerEvent[] = [];
  let watchers: (() => void)[] = [];
  const listening = (async () => {
    for await (const event of session.subscribe()) {
      events.push(event);
      for (const watcher of watchers.splice(0)) watcher();
    }
  })();
  const callers = new Map<string, WorkerCaller>();
  const caller = async (spec: ModelSpec): Promise<WorkerCaller> => {
    const { generation, dataSocket, ticket } = await session.place({ model: spec.key, engine: 'simulated', estimateBytes: null });
    const known = callers.get(generation);
    if (known?.open === true) return known;
    const opened = await openCaller({ dataSocket, ticket, caller: session.generation });
    callers.set(generation, opened);
    return opened;
  };
  return {
    broker, card, session, events, caller,
    heard: async (name, matches = () => true) => {
      for (;;) {
        const found = events.find((event) => event.name === name && matches(event.data));
        if (found !== undefined) return found;
        await new Promise<void>((resolve) => { watchers = [...watchers, resolve]; });
      }
    },
    say: async (spec, prompt) => (await read((await caller(spec)).generate(ask(spec, prompt)))).text,
    close: async () => {
      for (const each of callers.values()) each.close();
      await session.close();
      await listening;
      await broker.close();
      rmSync(stateFolder, { recursive: true, force: true });
    },
  };
}

function sized(key: string, mebibytes: number, script: Readonly<Record<string, unknown>> = {}): ModelSpec {
  return model({ weightsBytes: mebibytes * mebibyte, contextBytesPerToken: 16, ...script }, { key });
}

t.test('three models on a card for two take turns, and the card never refuses a byte', async (t) => {
  const { card, say, events, close } = await stand(24 * mebibyte);
  for (const key of ['a', 'b', 'c', 'a', 'c', 'b']) t.equal(await say(sized(key, 9), `to ${key}`), `to ${key}`);
  t.strictSame(await Promise.all(['a', 'b', 'c', 'a', 'b', 'c'].map((key, index) => say(sized(key, 9), `${key} ${String(index)}`))), ['a 0', 'b 1', 'c 2', 'a 3', 'b 4', 'c 5']);
  t.equal(card.counters.oomRefusals, 0);
  t.ok(card.counters.peakUsedBytes <= 24 * mebibyte);
  t.ok(events.filter(({ name }) => name === 'evicted').length >= 3);
  await close();
  t.equal(card.usedBytes, 0, 'all is back when the workers are gone');
});

t.test('parks and brings back under the same lease', async (t) => {
  const { session, say, heard, card, close } = await stand(24 * mebibyte);
  const spec = sized('p', 9, { parkable: true });
  await say(spec, 'first');
  const { freedBytes } = await session.evict('p', { target: 'host' });
  t.ok(freedBytes >= 9 * mebibyte);
  t.equal(card.usedBytes, 0);
  t.equal(await say(spec, 'second'), 'second');
  const leases = new Set([(await heard('loaded')).data['lease'], (await heard('residency_changed', (data) => data['state'] === 'resuming')).data['lease']]);
  t.equal(leases.size, 1);
  await close();
});

t.test('B62: what is resident never stands behind another model’s eviction', async (t) => {
  const { say, heard, events, close } = await stand(24 * mebibyte);
  const [a, b, c] = [sized('a', 5), sized('b', 12), sized('c', 12, { unloadMs: 400 })];
  await say(c, 'c');
  await say(a, 'a');
  const order: string[] = [];
  const waiting = say(b, 'b').then(() => { order.push('b'); });
  await heard('evicting', (data) => data['model'] === 'c');
  for (let call = 0; call < 20; call++) {
    await say(a, `a ${String(call)}`);
    order.push('a');
  }
  t.equal(order.length, 20, 'all twenty were answered while the eviction went on');
  await waiting;
  t.notOk(events.some(({ name, data }) => name === 'evicting' && data['model'] === 'a'));
  await close();
});

t.test('D19, D20: a busy model’s door is shut for one who waits; the running call ends, the later ones wait and are served', async (t) => {
  const { caller, say, heard, close } = await stand(12 * mebibyte);
  const [a, b] = [sized('a', 9, { text: 'xxxx', textTimes: 200, tokensPerSecond: 200 }), sized('b', 9)];
  // Both workers are up, so that what is waited for is the card alone.
  const [ofA] = [await caller(a), await caller(b)];
  const running = read(ofA.generate(ask(a)));
  await heard('loaded');
  const waiter = say(b, 'b');
  await heard('evicting', (data) => data['model'] === 'a' && data['when'] === 'drained');
  const later = read(ofA.generate(ask(a, 'later', { sampling: { maxTokens: 3, temperature: 0 } })));
  t.equal((await running).text, 'xxxx'.repeat(200), 'no call in flight is cut');
  t.equal(await waiter, 'b');
  t.match(await later, { text: 'xxxx'.repeat(3), end: { reason: 'length' } });
  await close();
});

t.test('a holder gives room when it is told to, and its lease is over when the card has seen it', async (t) => {
  const { session, card, say, close } = await stand(24 * mebibyte);
  const reasons: string[] = [];
  const lease = await session.holdLease({
    model: 'mine', device: card.description.device, bytes: 12 * mebibyte,
    onEvict: ({ target, reason }) => {
      reasons.push(`${target} ${reason === '' ? 'no reason' : 'told why'}`);
      return { residentBytes: 0 };
    },
  });
  t.ok(lease.chargedBytes >= 12 * mebibyte);
  await lease.loaded({ residentBytes: 0 });
  const done = lease.use();
  const b = say(sized('b', 15), 'b');
  await new Promise((resolve) => setImmediate(resolve));
  t.ok(lease.held, 'not while it is used');
  done();
  t.equal(await b, 'b');
  t.notOk(lease.held);
  t.strictSame(reasons, ['none told why']);
  t.equal(await codeOf(session.holdLease({ model: 'huge', device: card.description.device, bytes: 2 ** 40, onEvict: () => 'busy' })), 'never_fits');
  await close();
});

t.test('a worker that dies in mid-stream gives its bytes back by its end, and the next call gets a new one', async (t) => {
  const { caller, say, heard, close } = await stand(12 * mebibyte);
  const spec = sized('a', 9, { text: 'xxxx', textTimes: 5, faults: [{ at: 'generate', how: 'kill', afterTokens: 2 }] });
  t.match(await read((await caller(spec)).generate(ask(spec))).catch((error: unknown) => error), { code: 'connection_lost' });
  await heard('process_ended');
  t.equal(await say(sized('a', 9), 'again'), 'again');
  await close();
});

t.test('B41: "unloaded" is not believed while the card still has the bytes; the liar ends, and who waited is served', async (t) => {
  const { say, card, events, close } = await stand(12 * mebibyte, { measureToleranceBytes: 0, confirmQuietAfterMs: 100, releaseConfirmMs: 300, terminateGraceMs: 500, sampleIntervalMs: 50 });
  await say(sized('liar', 9, { unloadKeepsFraction: 1 }), 'x');
  t.equal(await say(sized('b', 9), 'b'), 'b');
  t.equal(card.counters.oomRefusals, 0, 'nothing was granted on its word');
  t.ok(events.some(({ name }) => name === 'process_ended'));
  await close();
});
