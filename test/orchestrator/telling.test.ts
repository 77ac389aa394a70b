/** What people are told: by the names they gave, with the deadline they set, and no more often than something is new. */
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { Stage } from '../../src/index.js';
import { MiB, card, folder, keyOf, leaseOf, open, peer, refusal, scripted, until, workerPid } from '../integration/support.js';
import { createOrchestrator } from '../../src/orchestrator/index.js';

const onEvict = (): { readonly residentBytes: number } => ({ residentBytes: 0 });

t.test('models that are in the ledger and not in the catalogue are named by their keys', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder, models: { ours: scripted({ weightsBytes: 4 * MiB }) } });
  const guest = await createOrchestrator({ stateFolder, broker: 'attach', models: { theirs: scripted({ weightsBytes: 5 * MiB, text: 'theirs' }) } });
  t.teardown(() => guest.close());
  await guest.load('theirs');
  await orchestrator.load('ours');
  const held = await orchestrator.lease({ model: 'my reranker', bytes: 2 * MiB, onEvict });
  const key = keyOf(guest, 'theirs');
  for (const name of ['my reranker', key, keyOf(orchestrator, 'ours')]) {
    await orchestrator.pin(name);
    t.match((await orchestrator.ledger()).leases.find(({ model }) => model === name), { pinned: true }, name);
    t.match(await refusal(orchestrator.evict(name)), { code: 'pinned' });
    await orchestrator.pin(name, false);
    t.ok((await orchestrator.explain(name)).every(({ model }) => model === name));
    t.ok(await orchestrator.evict(name) > 0);
    t.equal((await orchestrator.ledger()).leases.some(({ model }) => model === name), false);
    t.ok((await orchestrator.explain(name)).length > 0, 'why it went is still told when it is gone');
  }
  t.equal(held.held, false);
  await guest.load('theirs');
  for (const ask of [() => orchestrator.evict('tiny-fact'), () => orchestrator.pin('tiny-fcts'), () => orchestrator.load('Tiny-Facts'), () => orchestrator.explain('tinyfacts')]) {
    t.match(await refusal(ask()), { code: 'model_unknown', help: /^Did you mean tiny-facts\?/ });
  }
  for (const ask of [() => orchestrator.evict('nobody'), () => orchestrator.pin('nobody'), () => orchestrator.explain('nobody'), () => orchestrator.evict('my')]) {
    t.match(await refusal(ask()), { code: 'model_unknown', details: { known: new RegExp(`ours, tiny-.*; in the ledger: ${key}$`) } });
  }
});

t.test('the ledger, records, events and orders to a holder name models as people do, beside their keys', async (t) => {
  const orchestrator = await open(t, { models: { first: scripted({ weightsBytes: 20 * MiB }), second: scripted({ weightsBytes: 50 * MiB }) } });
  const heard: { readonly name: string; readonly data: Readonly<Record<string, unknown>> }[] = [];
  void (async (): Promise<void> => { for await (const event of orchestrator.events()) heard.push(event); })();
  const orders: string[] = [];
  const lease = await orchestrator.lease({ model: 'my reranker', bytes: 20 * MiB, onEvict: ({ reason }) => { orders.push(reason); return { residentBytes: 0 }; } });
  await orchestrator.load('first');
  t.match((await orchestrator.ledger()).leases.map(({ name, model }) => [name, model]), [['my reranker', 'my reranker'], ['first', keyOf(orchestrator, 'first')]]);
  await orchestrator.load('second');
  t.strictSame(orders, ['room for second']);
  t.match(await lease.ended, { message: 'The lease of my reranker (it was evicted: room for second) has been closed.' });
  const records = await orchestrator.explain(undefined, 50);
  t.match(records.find(({ victims }) => victims.length > 0), { name: 'second', model: keyOf(orchestrator, 'second'), text: /^second needs/ });
  t.ok(records.flatMap(({ victims }) => victims.map(({ name }) => name)).includes('first'));
  t.match(heard.find(({ name }) => name === 'evicted'), { data: { reason: 'room for second', model: String, name: String } });
  for (const said of [...records.map(({ text }) => text), ...heard.flatMap(({ data }) => [data['reason'], data['why'], data['how']]), ...orders]) t.notMatch(String(said), /#[0-9a-f]{8}/);
});

t.test('a program of its own is told of others by their names, and so is the log; the key stands beside the name', async (t) => {
  const stateFolder = folder(t);
  const lines: { readonly fields: Readonly<Record<string, unknown>>; readonly message: string }[] = [];
  const write = (fields: Readonly<Record<string, unknown>>, message: string): void => { lines.push({ fields, message }); };
  const orchestrator = await open(t, { stateFolder, log: { debug: write, info: write, warn: write, error: write }, models: { second: scripted({ weightsBytes: 50 * MiB }) } });
  const holder = await peer(stateFolder, 'holder');
  t.teardown(() => { holder.channel.end(); });
  const device = (await orchestrator.ledger()).cards[0]?.device ?? '';
  const parts = [{ name: 'held', kind: 'other', bytes: 20 * MiB, upFront: true }];
  const asked = { type: 'request_vram_budget', model: 'mine', device, lease: null, parts, peakBytes: 0, class: 'normal', deadlineMs: 10_000, parkable: false, profilesFreeMemory: false, source: 'declared', policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null };
  const grant = await holder.ask(asked);
  if (grant.type !== 'grant') throw new Error(grant.type);
  holder.say({ type: 'loading', lease: grant.lease });
  await holder.ask({ type: 'residency', seq: 1, lease: grant.lease, model: 'mine', state: 'resident', residentBytes: 20 * MiB, hostBytes: 0, parts, loadMs: 0 });
  const load = orchestrator.load('second', { deadlineMs: 3_000 });
  await until('the order', () => holder.heard.some(({ type }) => type === 'model_to_device'));
  t.match(holder.heard.find(({ type }) => type === 'model_to_device'), { reason: 'room for second', model: 'mine' });
  await refusal(load);
  const key = keyOf(orchestrator, 'second');
  const ofModel = lines.flatMap(({ fields }) => [fields, fields['event']]).filter((fields) => (fields as { modelKey?: unknown } | undefined)?.modelKey === key);
  t.ok(ofModel.length > 0);
  for (const fields of ofModel) t.match(fields, { model: 'second' });
  for (const { fields, message } of lines) t.notMatch(`${message} ${JSON.stringify(fields).replaceAll(`"modelKey":"${key}"`, '')}`, new RegExp(key.replaceAll(/[^\w]/g, '.')));
});

t.test('errors name models as people do', async (t) => {
  const orchestrator = await open(t, {
    models: {
      firm: scripted({ weightsBytes: 40 * MiB }, { aliases: ['steady'], pinned: true }), huge: scripted({ weightsBytes: 100 * MiB }),
      second: scripted({ weightsBytes: 41 * MiB }), preset: scripted({ weightsBytes: 41 * MiB }, { contextTokens: 512 }), ill: scripted({ faults: [{ at: 'load', how: 'throw', message: 'no luck' }] }),
    },
  });
  await orchestrator.load('firm');
  t.match(await refusal(orchestrator.evict('steady')), { code: 'pinned', message: 'firm is pinned.', help: /leasehold pin --off firm\.$/, details: { model: 'firm' } });
  t.match(await refusal(orchestrator.load('huge')), { code: 'never_fits', message: /^huge needs 110\.\d MiB \(\d+ bytes\) on SIM-.*; at most 64\.0 MiB \(67108864 bytes\) could/, details: { mostBytes: String(64 * MiB) } });
  t.match(await refusal(orchestrator.load('ill')), { code: 'load_failed', message: /^Loading ill failed: / });
  t.match(await refusal(orchestrator.load('ill')), { code: 'backing_off', message: /^ill failed 1 times/ });
  for (const name of ['second', 'preset']) {
    const told: Stage[] = [];
    const error = await refusal(orchestrator.load(name, { deadlineMs: 1_500, onStage: (stage) => { told.push(stage); } }));
    t.match(error, { code: 'deadline_passed', details: { deadlineMs: '1500' } }, 'B5: the deadline is told as it was set');
    for (const text of [error.message, ...Object.values(error.details), ...told.map((stage) => stage.text)]) t.notMatch(text, /#[0-9a-f]{8}/);
  }
});

t.test('a load tells its progress some twenty times, however often it moves', async (t) => {
  const orchestrator = await open(t, { models: { m: scripted({ weightsBytes: 4 * MiB, loadMs: 600, loadSteps: 200 }) } });
  const told: Stage[] = [];
  await orchestrator.load('m', { onStage: (stage) => { told.push(stage); } });
  const loading = told.filter(({ stage }) => stage === 'loading').map(({ progress }) => progress ?? 0);
  t.ok(loading.length >= 3 && loading.length <= 23, `told ${String(loading.length)} times`);
  t.strictSame(loading, [...loading].sort((left, right) => left - right));
});

t.test('who cancels, or has closed, is told that and no word of the wire', async (t) => {
  const orchestrator = await open(t, { models: { slow: scripted({ loadMs: 20_000 }) } });
  const stop = new AbortController();
  const waiting = refusal(orchestrator.load('slow', { signal: stop.signal }));
  await until('it to load', () => leaseOf(orchestrator, 'slow'));
  const early = refusal(orchestrator.load('slow', { signal: AbortSignal.abort() }));
  stop.abort();
  for (const error of [await waiting, await early]) t.match(error, { name: 'AbortError', code: 'request_cancelled', message: 'The call was cancelled.' });
  const full = refusal(orchestrator.lease({ model: 'full', bytes: 50 * MiB, onEvict: () => 'busy', signal: AbortSignal.abort() }));
  t.match(await full, { message: 'The call was cancelled.' });
  const begun = [refusal(orchestrator.load('slow')), refusal(orchestrator.generate('slow', 'x').result())];
  await until('it to load', () => leaseOf(orchestrator, 'slow'));
  await orchestrator.close();
  const late = [orchestrator.load('slow'), orchestrator.ledger(), orchestrator.evict('slow'), orchestrator.explain(), orchestrator.generate('slow', 'x').result(), orchestrator.lease({ model: 'm', bytes: 1, onEvict })];
  for (const error of [...await Promise.all(begun), ...await Promise.all(late.map(refusal))]) t.match(error, { name: 'LeaseholdError', code: 'closed', message: 'The orchestrator has been closed.' });
});

t.test('many readers of events, and many leases with one signal, are no leak', async (t) => {
  const orchestrator = await open(t);
  const warnings: string[] = [];
  const onWarning = (warning: Error): void => { warnings.push(warning.message); };
  process.on('warning', onWarning);
  const stop = new AbortController();
  const readers = Array.from({ length: 15 }, () => orchestrator.events()[Symbol.asyncIterator]());
  const news = readers.map((reader) => reader.next());
  const leases = Array.from({ length: 15 }, (_, n) => orchestrator.lease({ model: `m${String(n)}`, bytes: MiB, onEvict, signal: stop.signal }));
  for (const each of await Promise.all(news)) t.match(each, { done: false });
  for (const lease of await Promise.all(leases)) t.ok(lease.held);
  for (const reader of readers) await reader.return?.(undefined);
  process.off('warning', onWarning);
  t.strictSame(warnings, []);
});

t.test('every loop over events hears all of them, also two over one object: a worker that ends has ended for each', async (t) => {
  const orchestrator = await open(t, { models: { m: scripted({ weightsBytes: MiB, text: 'm' }) } });
  const shared = orchestrator.events();
  const loops = [shared, shared, orchestrator.events()].map((events) => events[Symbol.asyncIterator]());
  const firsts = loops.map((loop) => loop.next());
  await orchestrator.load('m');
  process.kill(await workerPid(orchestrator, 'm'), 'SIGKILL');
  const heard = await Promise.all(loops.map(async (loop, n) => {
    const names: string[] = [];
    for (let next = await firsts[n]!; next.done !== true; next = await loop.next()) {
      names.push(next.value.name);
      if (next.value.name === 'process_ended') break;
    }
    await loop.return?.(undefined);
    return names;
  }));
  t.match(heard[0], ['spawned']);
  t.ok(heard[0]?.includes('loaded') && heard[0].at(-1) === 'process_ended', String(heard[0]));
  t.strictSame(heard.slice(1), [heard[0], heard[0]]);
});

t.test('what a host leases counts as there once it is granted, and is given back when a model needs the room', async (t) => {
  const orchestrator = await open(t, { models: { m: scripted({ weightsBytes: 50 * MiB, text: 'room' }) } });
  const orders: string[] = [];
  // As in the README: nothing is said but what to do when the room is wanted.
  const lease = await orchestrator.lease({ model: 'my reranker', bytes: 20 * MiB, onEvict: async ({ reason }) => { orders.push(reason); return { residentBytes: 0 }; } });
  t.match((await orchestrator.ledger()).leases, [{ model: 'my reranker', state: 'resident', residentBytes: 20 * MiB, chargedBytes: 22 * MiB }]);
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'room');
  t.strictSame([orders.length, lease.held], [1, false]);
  await orchestrator.evict('m');
  const coming = await orchestrator.lease({ model: 'coming', parts: [{ name: 'w', kind: 'weights', bytes: 20 * MiB, upFront: true }], loading: true, onEvict });
  t.match((await orchestrator.ledger()).leases, [{ model: 'coming', state: 'loading', residentBytes: 0 }]);
  t.match(await refusal(orchestrator.load('m', { deadlineMs: 500 })), { code: 'deadline_passed' }, 'what is being loaded is left alone');
  await coming.loaded({ residentBytes: 20 * MiB });
  await orchestrator.load('m');
  t.equal(coming.held, false);
});

t.test('a worker that ends of an error before it is ready is refused with that error', async (t) => {
  const runtime = new URL('../../workers/runtime/index.js', import.meta.url).href;
  const protocol = new URL('../../protocol/index.js', import.meta.url).href;
  const program = `
    const [{ runWorker }, { LeaseholdError }] = await Promise.all([import(${JSON.stringify(runtime)}), import(${JSON.stringify(protocol)})]);
    const engine = { name: 'mine', start: async () => { throw new LeaseholdError('engine_missing', { engine: 'mine', reason: 'Cannot find package mine' }, { cause: new Error('Cannot find package') }); }, close: async () => {} };
    await runWorker(engine);`;
  const orchestrator = await open(t, {
    engines: [
      { name: 'mine', command: process.execPath, args: ['--input-type=module', '-e', program] },
      { name: 'plain', command: 'sh', args: ['-c', `echo 'leasehold-error {"code":"platform_unsupported","details":{"what":"plain","platform":"here"}}' >&2; exit 70`] },
    ],
    models: { m: { engine: 'mine', source: fileURLToPath(import.meta.url) }, other: { engine: 'plain', source: fileURLToPath(import.meta.url) } },
  });
  t.match(await refusal(orchestrator.load('other')), { code: 'platform_unsupported', message: 'plain is not available on here.' }, 'two words of shell are enough');
  for (const again of ['at first', 'and again in the pause that follows']) {
    const error = await refusal(orchestrator.load('m'));
    t.match(error, { code: 'engine_missing', retryable: false, message: 'Engine mine is not installed: Cannot find package mine.', help: /npm install/ }, again);
  }
  t.match(await orchestrator.explain('m'), [{ text: /Engine mine is not installed/ }]);
  t.equal((await card(orchestrator)).oomRefusals, 0);
});

t.test('what another process holds can be put away, too', async (t) => {
  const stateFolder = folder(t);
  const orchestrator = await open(t, { stateFolder });
  const odd = await peer(stateFolder, 'holder');
  const { cards } = await orchestrator.ledger();
  const grant = await odd.ask({
    type: 'request_vram_budget', model: 'raw key', device: cards[0]!.device, lease: null, parts: [{ name: 'held', kind: 'other', bytes: MiB, upFront: true }], peakBytes: 0, class: 'normal', deadlineMs: 5_000,
    parkable: false, profilesFreeMemory: false, source: 'declared', policy: { ttlMs: null, pinned: false, exclusive: false }, gang: null,
  });
  t.match(grant, { type: 'grant' });
  await orchestrator.pin('raw key');
  t.match((await orchestrator.ledger()).leases, [{ model: 'raw key', pinned: true }]);
  t.ok((await orchestrator.explain('raw key')).length > 0);
  odd.channel.end();
});
