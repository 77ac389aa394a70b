/** A worker's part in the machine's memory: what it asks for there, what it keeps, and how it gives that back. */
import t from 'tap';
import { monotonicUs } from '../../protocol/node/index.js';
import { hostBudget } from '../../workers/runtime/budget.js';
import type { Estimate, HostEstimate } from '../../workers/runtime/engine.js';
import { SimulatedEngine } from '../../workers/simulated/engine.js';
import type { Control, FakeBroker } from './fake-broker.js';
import { ask, begun, model, read, readOn, rig, type RigOptions } from './in-process.js';

const memory = { device: 'SIM-b-memory', totalBytes: 1_000_000, simulated: true };
const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 0, parkable: true, hostBytes: 100, hostPeakBytes: 1_500, parkPeakBytes: 2_000 });

/** A worker whose broker has room for a copy, or has not. */
const withRoom = (keepCopy: boolean | null, more: RigOptions = {}): RigOptions => ({
  memory, ...more,
  onBudget: (message, broker) => {
    if (keepCopy === null) return false;
    broker.channel.send({ type: 'grant', id: message.id, lease: message.lease ?? 'b-l1', device: message.device, chargedBytes: 1_100, explain: null, keepCopy });
    return true;
  },
});

const trim = (broker: FakeBroker, more: Partial<Control<'trim_host'>> = {}): Promise<unknown> =>
  broker.channel.request({ type: 'trim_host', lease: 'b-l1', model: 'm', generation: 'b-w1', bytes: null, sentUs: monotonicUs(), expiresMs: 5_000, ...more }, { timeoutMs: 10_000 });

/** Bytes of the machine's memory that are taken now. */
const taken = (broker: FakeBroker): number => broker.takenOn(memory.device);

t.test('asks for all of it at once, and keeps a copy where there is room', async (t) => {
  const { broker, caller, close } = await rig(t, withRoom(true));
  const one = await caller();
  await one.load(spec);
  t.match(broker.all('request_vram_budget')[0], { host: { neededBytes: 100, copyBytes: 1_000, peakBytes: 1_500, parkPeakBytes: 2_000 } });
  t.match(await broker.heard('residency'), { state: 'resident', hostBytes: 1_000 });
  t.equal(taken(broker), 1_100);
  t.equal(broker.peakOn(memory.device), 1_500, 'and no more at its height');
  t.match(await broker.move({ lease: 'b-l1', target: 'host', when: 'now' }).answer, { type: 'done', target: 'host', hostBytes: 1_000 });
  t.equal(broker.peakOn(memory.device), 1_500, 'parking took nothing more');
  await read(one.generate(ask(spec)));
  t.match(broker.all('residency').at(-1), { state: 'resident', hostBytes: 1_000 });
  t.match(await broker.move({ lease: 'b-l1', when: 'now' }).answer, { type: 'done', hostBytes: 0 });
  t.equal(taken(broker), 0);
  await close();
});

t.test('keeps none where there is no room, and takes what it said when it is parked', async (t) => {
  const { broker, caller, close } = await rig(t, withRoom(false));
  const one = await caller();
  await one.load(spec);
  t.match(await broker.heard('residency'), { state: 'resident', hostBytes: 0 });
  t.equal(taken(broker), 100);
  t.match(await broker.move({ lease: 'b-l1', target: 'host', when: 'now' }).answer, { type: 'done', hostBytes: 1_000 });
  t.equal(broker.peakOn(memory.device), 2_100);
  t.equal(taken(broker), 1_100);
  await close();
});

t.test('where nobody leases it nothing is said of room, and the engine does as it likes', async (t) => {
  const { broker, caller, close } = await rig(t);
  await (await caller()).load(spec);
  t.match(await broker.heard('residency'), { hostBytes: 1_000 });
  t.equal(taken(broker), 0);
  await close();
});

t.test('trim_host: the copy goes in the middle of a call', async (t) => {
  const { broker, caller, close } = await rig(t, withRoom(true));
  const one = await caller();
  const talk = await begun(one.generate(ask(model({ ...JSON.parse(spec.source.slice(4)) as object, text: 'word '.repeat(50), tokensPerSecond: 100 }))));
  t.match(await trim(broker), { type: 'done', target: 'device', freedBytes: 1_000, residentBytes: 1_000, hostBytes: 0 });
  t.equal(taken(broker), 100);
  t.match(await trim(broker), { type: 'done', freedBytes: 0 }, 'it has nothing more to give');
  await readOn(talk);
  t.match(await broker.move({ lease: 'b-l1', target: 'host', when: 'now' }).answer, { type: 'done', hostBytes: 1_000 }, 'it can still be parked');
  await close();
});

t.test('trim_host: what cannot go, what fails, and what is not for us', async (t) => {
  const script = JSON.parse(spec.source.slice(4)) as object;
  for (const [more, answer] of [
    [{ copyIsFixed: true }, { type: 'unsupported' }],
    [{ faults: [{ at: 'trim', how: 'throw' }] }, { type: 'failed', code: 'move_failed', residentBytes: 1_000 }],
  ] as const) {
    const { broker, caller, close } = await rig(t, withRoom(true));
    await (await caller()).load(model({ ...script, ...more }));
    t.match(await trim(broker), answer);
    t.match(await trim(broker, { lease: 'b-l9' }), { type: 'failed', code: 'lease_unknown' });
    t.match(await trim(broker, { generation: 'b-w9' }), { type: 'failed', code: 'generation_stale' });
    t.match(await trim(broker, { sentUs: monotonicUs() - 5_000_000 }), { type: 'failed', code: 'command_expired' }, 'B31: read 5 s after it was sent');
    await close();
  }
});

t.test('trim_host with a figure: garbage and caches first, the copy when that was not enough', async (t) => {
  const engine = new SimulatedEngine({ growthBytes: 300, growthGivenBack: true });
  const { broker, caller, close } = await rig(t, withRoom(true, { engine }));
  const one = await caller();
  await one.load(spec);
  await broker.move({ lease: 'b-l1', when: 'now' }).answer;
  await one.load(spec);
  t.equal(taken(broker), 1_400, 'an unload has left something behind');
  t.match(await trim(broker, { bytes: 1 }), { type: 'done' });
  t.ok([100, 1_100].includes(taken(broker)), 'what was left behind is back');
  t.match(await trim(broker, { bytes: Number.MAX_SAFE_INTEGER }), { type: 'done', hostBytes: 0 });
  t.equal(taken(broker), 100);
  await close();
});

t.test('trim_host while it moves: busy', async (t) => {
  const { broker, caller, close } = await rig(t, withRoom(true));
  await (await caller()).load(model({ ...JSON.parse(spec.source.slice(4)) as object, parkMs: 200 }));
  const parking = broker.move({ lease: 'b-l1', target: 'host', when: 'now' });
  await broker.heard('residency', ({ state }) => state === 'parking');
  t.match(await trim(broker), { type: 'busy' });
  t.match(await parking.answer, { type: 'done', hostBytes: 1_000 });
  t.match(await trim(broker), { type: 'done', target: 'none', hostBytes: 0 }, 'parked, it was all there was');
  await close();
});

t.test('what a lease takes of it: contexts too; on the pseudo-card all there is, where the engine says nothing', async (t) => {
  const estimate: Estimate = {
    parts: [{ name: 'weights', kind: 'weights', bytes: 70, upFront: true }], contextBytes: (tokens) => tokens * 2, peakBytes: 90, source: 'estimated', parkable: false,
  };
  const host: HostEstimate = { bytes: 5, contextBytes: (tokens) => tokens, copyBytes: 7, peakBytes: 9, parkPeakBytes: null };
  t.equal(hostBudget(estimate, [{ tokens: 3 }], ['GPU-a'], 0), null);
  t.strictSame(hostBudget({ ...estimate, host }, [{ tokens: 3 }, { tokens: 4 }], ['GPU-a'], 0), { neededBytes: 12, copyBytes: 7, peakBytes: 9, parkPeakBytes: null });
  const spread = [0, 1].map((index) => hostBudget({ ...estimate, host: { ...host, parkPeakBytes: 15 } }, [], ['GPU-a', 'GPU-b'], index));
  t.strictSame(spread, [{ neededBytes: 3, copyBytes: 4, peakBytes: 5, parkPeakBytes: 8 }, { neededBytes: 2, copyBytes: 3, peakBytes: 4, parkPeakBytes: 7 }], 'of several cards each has its share');
  t.strictSame(hostBudget(estimate, [{ tokens: 3 }], ['CPU-0'], 0), { neededBytes: 76, copyBytes: 0, peakBytes: 90, parkPeakBytes: null });
  t.throws(() => hostBudget({ ...estimate, host: { ...host, copyBytes: -1 } }, [], ['GPU-a'], 0), { code: 'bytes_invalid' });
});
