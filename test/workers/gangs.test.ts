/** A worker that sees two cards: its models are on both, asked for, told of, moved and given back as one. */
import t, { type Test } from 'tap';
import type { Control } from './fake-broker.js';
import { SimulatedEngine } from '../../workers/simulated/engine.js';
import type { Engine, LoadedModel } from '../../workers/runtime/index.js';
import { readShares, shareOf, splitBytes } from '../../workers/runtime/shares.js';
import { ask, begun, codeOf, model, models, read, readOn, rig, turns, type Rig, type RigOptions } from './in-process.js';

const cards = ['SIM-b', 'SIM-a'];
const wide = model({ weightsBytes: 1_000, contextBytesPerToken: 2, tensorSplit: '3,1' }, { contextTokens: 100 });

const stage = (t: Test, options: RigOptions = {}): Promise<Rig> => rig(t, { cards, ...options });
const requests = (stand: Rig): Control<'request_vram_budget'>[] => stand.broker.all('request_vram_budget');
const released = (stand: Rig): unknown[] => stand.broker.all('release_lease').map(({ lease, cause }) => [lease, cause]);

t.test('R125: one request a card, in the order of the UUIDs, under one name', async (t) => {
  const stand = await stage(t);
  const caller = await stand.caller();
  t.equal((await read(caller.generate(ask(wide)))).text, 'hello there');
  const asked = requests(stand);
  t.strictSame(asked.map(({ device, gang, lease }) => [device, gang?.size, lease]), [['SIM-a', 2, null], ['SIM-b', 2, null]]);
  t.equal(asked[0]?.gang?.gang, asked[1]?.gang?.gang);
  t.strictSame(asked.map(({ parts }) => parts.map(({ name, bytes }) => [name, bytes])), [[['weights', 750], ['context:1', 150]], [['weights', 250], ['context:1', 50]]], 'each for its share');
  t.strictSame(stand.broker.all('loading').map(({ lease }) => lease), ['b-l1', 'b-l2']);
  const told = stand.broker.all('residency').filter(({ state }) => state === 'resident');
  t.strictSame(told.map(({ lease, residentBytes, parts }) => [lease, residentBytes, parts?.length]), [['b-l1', 900, 2], ['b-l2', 300, 2]]);
  t.strictSame((await models(stand.broker)).map(({ device, lease, residentBytes }) => [device, lease, residentBytes]), [['SIM-a', 'b-l1', 900], ['SIM-b', 'b-l2', 300]]);
  t.strictSame(stand.attached.worker.reserved, [{ device: 'SIM-a', bytes: 900 }, { device: 'SIM-b', bytes: 300 }], 'for each card in a heartbeat');
  t.strictSame(new Set(stand.broker.all('in_use').map(({ lease }) => lease)), new Set(['b-l1', 'b-l2']), 'its use is that of each of its leases');
  await stand.close();
  t.strictSame(released(stand), [['b-l1', 'unloaded'], ['b-l2', 'unloaded']]);
});

t.test('B190: each card is asked for what the engine needs there, be it less than the whole or the same on each', async (t) => {
  // Of four cards and two heads of the cache, each card has one: half of the whole, and not a quarter.
  class Replicated extends SimulatedEngine {
    override async estimate(...args: Parameters<Engine['estimate']>): ReturnType<Engine['estimate']> {
      const whole = await super.estimate(...args);
      return { ...whole, cards: whole.cards?.map((card) => ({ ...card, contextBytes: (tokens: number) => whole.contextBytes(tokens) / 2 })) };
    }
  }
  for (const [count, engine, share] of [[2, new SimulatedEngine(), 100], [4, new Replicated(), 100]] as const) {
    const stand = await stage(t, { engine, cards: Array.from({ length: count }, (_, index) => `SIM-${String(index)}`) });
    const caller = await stand.caller();
    await read(caller.generate(ask(model({ weightsBytes: 1_000, contextBytesPerToken: 2 }, { contextTokens: 100 }))));
    const asked = requests(stand).map(({ parts }) => parts.map(({ bytes }) => bytes));
    t.strictSame(asked, Array.from({ length: count }, () => [1_000 / count, share]));
    await stand.close();
  }
});

t.test('a command for each of its leases moves it once, and each is answered with what it did on its card', async (t) => {
  const stand = await stage(t);
  const caller = await stand.caller();
  const slow = await begun(caller.generate(ask({ ...wide, source: wide.source.replace('{', '{"tokensPerSecond":100,') })));
  const order = [stand.broker.move({ lease: 'b-l2' }), stand.broker.move({ lease: 'b-l1' })] as const;
  await turns();
  t.match(order.map(({ interim }) => interim), [[{ type: 'draining', inFlight: 1 }], [{ type: 'draining', inFlight: 1 }]], 'both wait for the call inside');
  await readOn(slow);
  t.match(await Promise.all(order.map(({ answer }) => answer)), [{ type: 'done', freedBytes: 300, residentBytes: 0 }, { type: 'done', freedBytes: 900, residentBytes: 0 }]);
  t.equal(stand.broker.usedBytes, 0);
  t.strictSame(await models(stand.broker), []);
  t.equal((await read(caller.generate(ask(wide, 'again')))).text, 'again', 'and it comes back under new leases');
  t.match(requests(stand).slice(2).map(({ gang }) => gang?.gang), [requests(stand)[2]?.gang?.gang, requests(stand)[2]?.gang?.gang]);
  t.not(requests(stand)[2]?.gang?.gang, requests(stand)[0]?.gang?.gang, 'asked for by a name of its own');
  await stand.close();
});

t.test('taken back, one command or all: who is told to stay stays', async (t) => {
  const stand = await stage(t);
  const caller = await stand.caller();
  const slow = await begun(caller.generate(ask({ ...wide, source: wide.source.replace('{', '{"tokensPerSecond":100,') })));
  const [one, two] = [stand.broker.move({ lease: 'b-l1' }), stand.broker.move({ lease: 'b-l2' })];
  await turns();
  stand.broker.channel.send({ type: 'cancel', target: two.id });
  t.match(await two.answer, { type: 'failed', code: 'request_cancelled' }, 'the one that joined, by itself');
  stand.broker.channel.send({ type: 'cancel', target: one.id });
  t.match(await one.answer, { type: 'failed', code: 'request_cancelled', residentBytes: 900 });
  await readOn(slow);
  t.equal((await models(stand.broker)).length, 2);
  t.match(await stand.broker.move({ lease: 'b-l2', target: 'device' }).answer, { type: 'done', freedBytes: 0, residentBytes: 300 }, 'where it is already');
  const recall = await stand.broker.channel.request({ type: 'recall_lease', lease: 'b-l2' }, { timeoutMs: 10_000 });
  t.match(recall, { type: 'recalled', begun: true });
  t.match(await stand.broker.move({ lease: 'b-l2', bytes: 10, target: 'host' }).answer, { type: 'unsupported' }, 'a part of it is nobody’s to give');
  await stand.close();
});

t.test('refused on one card it is refused; what was granted on the other all the same is given back', async (t) => {
  const stand = await stage(t, { onBudget: (message, broker) => {
    if (message.device === 'SIM-a') return false;
    broker.deny(message, 'never_fits');
    return true;
  } });
  const caller = await stand.caller();
  t.equal(await codeOf(read(caller.generate(ask(wide)))), 'never_fits');
  t.strictSame(released(stand), [['b-l1', 'unused']]);
  t.equal(stand.broker.usedBytes, 0);
  await stand.close();
});

t.test('what a member’s refusal means is told, not that the others went with it', async (t) => {
  const stand = await stage(t, { onBudget: (message, broker) => {
    broker.deny(message, message.device === 'SIM-a' ? 'gang_broken' : 'never_fits');
    return true;
  } });
  const caller = await stand.caller();
  t.equal(await codeOf(read(caller.generate(ask(wide)))), 'never_fits');
  await stand.close();
});

t.test('nobody waits any more: all of its requests are taken back, and grants that crossed are given back', async (t) => {
  const held: Control<'request_vram_budget'>[] = [];
  const stand = await stage(t, { onBudget: (message) => { held.push(message); return true; } });
  const caller = await stand.caller();
  const stop = new AbortController();
  const call = codeOf(read(caller.generate(ask(wide, 'x', { signal: stop.signal }))));
  await stand.broker.heard('request_vram_budget', ({ device }) => device === 'SIM-b');
  stop.abort();
  t.equal(await call, 'request_cancelled');
  await stand.broker.heard('cancel', ({ target }) => target === held[1]?.id);
  t.strictSame(stand.broker.all('cancel').map(({ target }) => target), held.map(({ id }) => id));
  for (const message of held) stand.broker.grant(message);
  await stand.broker.heard('release_lease', ({ lease }) => lease === 'b-l2');
  t.strictSame(released(stand), [['b-l1', 'unused'], ['b-l2', 'unused']]);
  await stand.close();
});

t.test('a load that fails gives both leases back with its reason', async (t) => {
  const stand = await stage(t, { cardBytes: 800 });
  const caller = await stand.caller();
  t.equal(await codeOf(read(caller.generate(ask(wide)))), 'out_of_memory');
  t.match(stand.broker.all('release_lease').slice(0, 2), [{ lease: 'b-l1', failure: { code: 'out_of_memory' } }, { lease: 'b-l2', failure: { code: 'out_of_memory' } }]);
  t.equal(stand.broker.usedBytes, 0, 'nothing stays on either');
  await stand.close();
});

t.test('an engine that cannot spread a model, or does not say what it has on each card, is refused', async (t) => {
  class Narrow extends SimulatedEngine {
    override readonly capabilities = { park: true, partial: false, embed: true, profilesFreeMemory: false };
  }
  class Mute extends SimulatedEngine {
    override async estimate(...args: Parameters<Engine['estimate']>): ReturnType<Engine['estimate']> {
      return { ...await super.estimate(...args), cards: undefined };
    }
  }
  class Forgetful extends SimulatedEngine {
    override async load(...args: Parameters<Engine['load']>): Promise<LoadedModel> {
      const loaded = await super.load(...args);
      return {
        measuredParts: loaded.measuredParts, residentBytes: () => loaded.residentBytes(), hostBytes: () => 0, countTokens: async () => 0,
        openContext: (...about) => loaded.openContext(...about), embed: null, park: null, resume: null, freePart: null, unload: () => loaded.unload(),
      };
    }
  }
  for (const engine of [new Narrow(), new Mute(), new Forgetful()]) {
    const stand = await stage(t, { engine });
    const caller = await stand.caller();
    t.equal(await codeOf(read(caller.generate(ask(wide)))), 'gang_unsupported', engine.constructor.name);
    t.strictSame(stand.attached.worker.reserved, []);
    await stand.abandon();
  }
});

t.test('shares: one a card, and what is split adds up', (t) => {
  t.strictSame(readShares(null, 3, 'f'), [1, 1, 1]);
  t.strictSame(readShares(' 3, 1.5', 2, 'f'), [3, 1.5]);
  for (const text of ['', '1', '1,2,3', '1,0', '1,-1', '1,x', '1,', '1,Infinity']) t.throws(() => readShares(text, 2, 'f'), { code: 'input_invalid', details: { field: 'f' } }, JSON.stringify(text));
  for (const bytes of [0, 1, 7, 1_000, 2 ** 40 + 1]) {
    for (const shares of [[1, 1], [3, 1], [1, 1, 1], [0.1, 0.7, 0.2]]) {
      const split = splitBytes(bytes, shares);
      t.equal(split.reduce((sum, part) => sum + part, 0), bytes);
      t.ok(split.every((part, index) => Number.isSafeInteger(part) && part >= 0 && part <= shareOf(bytes, shares, index)), 'none above what would be estimated');
    }
  }
  t.end();
});
