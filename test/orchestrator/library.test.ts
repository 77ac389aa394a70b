/** The library as an embedder uses it: a few lines, in one process, with scripted workers and the models that ship. */
import { Readable } from 'node:stream';
import t from 'tap';
import type { LeaseholdError } from '../../protocol/index.js';
import { createOrchestrator, type LeaseholdEvent, type Token } from '../../src/index.js';
import { MiB, card, eager, folder, keyOf, leaseOf, open, refusal, scripted, thrown, until } from '../integration/support.js';

async function textOf(tokens: AsyncIterable<Token>): Promise<string> {
  let text = '';
  for await (const token of tokens) text += token.text;
  return text;
}

t.test('ten lines from nothing to answers of real models, on a card that holds two of the three', async (t) => {
  const leasehold = await createOrchestrator({ devices: ['sim:26MiB'], broker: 'own', stateFolder: folder(t), classPolicies: eager });
  t.teardown(() => leasehold.close());
  const answer = leasehold.generate('tiny-sums', 'What is 47 + 38?');
  t.match(await textOf(answer), /85/);
  const { reason, usage, timings, text, thought, explain } = await answer.result();
  t.match({ reason, text }, { reason: 'stop', text: /85/ });
  t.ok(thought.length > 0 && usage.thoughtTokens > 0, 'it thought, and that is apart from what it said');
  t.ok(usage.completionTokens > 0 && timings.loadMs > 0 && timings.placingMs > 0);
  t.match(await leasehold.explain(explain!), [{ verdict: 'granted', model: /^tiny-sums/ }]);
  t.match(await leasehold.generate('tiny-tales', 'Tell me a story about a fox and a lamp.', { maxTokens: 5 }).result(), { reason: 'length', usage: { completionTokens: 5 } });
  t.ok(await leasehold.countTokens('tiny-facts', { prompt: 'What is' }) > 0);
  const { leases, counters, simulatedCards } = await leasehold.ledger();
  t.match({ counters, simulatedCards }, { counters: { grants: 3, evictions: 1 }, simulatedCards: [{ oomRefusals: 0 }] });
  t.equal(leases.length, 2, 'one of them has made room');
});

t.test('a generation', async (t) => {
  const orchestrator = await open(t, {
    models: {
      says: scripted({ text: 'one two three', tokenCharacters: 4, thought: 'hm ' }),
      long: scripted({ text: 'word ', textTimes: 5_000, tokenCharacters: 5, tokensPerSecond: 100 }, { contextTokens: 8_000 }),
    },
  });
  const atRest = (name: string): Promise<unknown> => until('the slot to be free', async () => (await leaseOf(orchestrator, name))?.inFlight === 0);

  t.test('gives its result without being iterated, thought apart from text', async (t) => {
    t.match(await orchestrator.generate('says', 'hello').result(), { text: 'one two three', thought: 'hm ', reason: 'stop', usage: { completionTokens: 5, thoughtTokens: 1 } });
    t.match(await orchestrator.generate('says', 'hello', { thinking: false }).result(), { text: 'one two three', thought: '' });
    t.match(await orchestrator.generate('says', { messages: [{ role: 'user', content: 'hello' }] }, { stop: [' three'] }).result(), { text: 'one two' });
  });

  t.test('does nothing until somebody wants it, and its tokens can be read once', async (t) => {
    const { placements } = (await orchestrator.ledger()).counters;
    const generation = orchestrator.generate('says', 'hello');
    t.equal((await orchestrator.ledger()).counters['placements'], placements);
    t.equal(await textOf(generation), 'hm one two three');
    t.equal(thrown(() => generation[Symbol.asyncIterator]()).code, 'closed');
    t.match(await generation.result(), { text: 'one two three' });
  });

  t.test('ends when its loop is left, and frees its slot', async (t) => {
    const generation = orchestrator.generate('long', 'hello', { maxTokens: 6_000 });
    for await (const token of generation) if (token.text.length > 0) break;
    await atRest('long');
    t.equal((await refusal(generation.result())).code, 'request_cancelled');
  });

  t.test('ends when it is aborted: while it streams, while it waits for its turn, and before it began', async (t) => {
    const stop = new AbortController();
    const reader = orchestrator.generate('long', 'hello', { maxTokens: 6_000, signal: stop.signal })[Symbol.asyncIterator]();
    await reader.next();
    const waits = new AbortController();
    const second = refusal(orchestrator.generate('long', 'hello', { signal: waits.signal }).result());
    await until('the second to wait', async () => (await leaseOf(orchestrator, 'long'))?.inFlight === 1);
    waits.abort();
    t.equal((await second).code, 'request_cancelled');
    const startedMs = performance.now();
    stop.abort();
    t.equal((await refusal((async (): Promise<void> => { while ((await reader.next()).done !== true); })())).code, 'request_cancelled');
    t.ok(performance.now() - startedMs < 1_000);
    await atRest('long');
    t.equal((await refusal(orchestrator.generate('long', 'hello', { signal: AbortSignal.abort() }).result())).code, 'request_cancelled');
  });

  t.test('shares its signal with as many others as its caller likes', async (t) => {
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => { warnings.push(warning.name); };
    process.on('warning', onWarning);
    const stop = new AbortController();
    const calls = Array.from({ length: 30 }, () => refusal(orchestrator.generate('long', 'hello', { signal: stop.signal }).result()));
    await until('them all to wait', async () => (await leaseOf(orchestrator, 'long'))?.inFlight === 1);
    stop.abort();
    t.ok((await Promise.all(calls)).every(({ code }) => code === 'request_cancelled'));
    process.off('warning', onWarning);
    t.strictSame(warnings, []);
    await atRest('long');
  });

  t.test('may be left while a token is awaited', async (t) => {
    const reader = orchestrator.generate('long', 'hello', { maxTokens: 6_000 })[Symbol.asyncIterator]();
    const first = reader.next();
    const left = reader.return?.();
    t.equal((await refusal(first)).code, 'request_cancelled');
    t.match(await left, { done: true });
  });

  t.test('has an end for whoever waits for the whole, though its reader leaves before the first token', async (t) => {
    const untouched = orchestrator.generate('says', 'hello');
    t.match(await untouched[Symbol.asyncIterator]().return?.(), { done: true });
    t.equal((await refusal(untouched.result())).code, 'request_cancelled');
    const streamed = orchestrator.generate('says', 'hello');
    Readable.from(streamed).destroy();
    t.equal((await refusal(streamed.result())).code, 'request_cancelled');
  });

  t.test('is bounded by its deadline while it waits, and by nothing while it runs', async (t) => {
    const reader = orchestrator.generate('long', 'hello', { maxTokens: 120, deadlineMs: 800 })[Symbol.asyncIterator]();
    await reader.next();
    t.match(await refusal(orchestrator.generate('long', 'hello', { deadlineMs: 200 }).result()), { code: 'deadline_passed', retryable: true });
    let tokens = 1;
    while ((await reader.next()).done !== true) tokens += 1;
    t.equal(tokens, 120);
  });

  t.test('is refused at once when it makes no sense', async (t) => {
    t.match(thrown(() => orchestrator.generate('nobody', 'hello')), { code: 'model_unknown', message: /nobody.*known: says, long, tiny-/ });
    t.equal(thrown(() => orchestrator.generate('says', { messages: [] })).code, 'input_invalid');
    t.equal(thrown(() => orchestrator.generate('says', 'x', { seed: 2 ** 60 })).code, 'input_invalid', 'R287');
    t.equal(thrown(() => orchestrator.generate('says', 'x', { maxTokens: 1.5 })).code, 'input_invalid');
    t.equal((await refusal(orchestrator.countTokens('says', { messages: [] }))).code, 'input_invalid');
    t.equal((await refusal(orchestrator.explain('nobody'))).code, 'model_unknown');
    t.equal((await refusal(orchestrator.generate('says', 'hello '.repeat(2_000)).result())).code, 'context_too_small');
  });
});

t.test('models come, stay and go as they are told', async (t) => {
  const source = scripted({ weightsBytes: 4 * MiB, text: 'hi' });
  const orchestrator = await open(t, {
    models: {
      first: { ...source, aliases: ['eins', 'uno'] }, twin: { ...source, class: 'background', contextTokens: 512 },
      brief: scripted({ weightsBytes: 3 * MiB, text: 'word ', textTimes: 80, tokenCharacters: 5, tokensPerSecond: 100 }, { ttlMs: 500 }),
      eager: scripted({ weightsBytes: 2 * MiB }, { preload: true }),
      firm: scripted({ weightsBytes: 40 * MiB }), large: scripted({ weightsBytes: 41 * MiB }),
    },
  });

  t.test('a model with preload is there without anybody asking', async (t) => {
    const lease = await until('it to be there', () => leaseOf(orchestrator, 'eager'));
    t.match(orchestrator.models.find(({ name }) => name === 'eager'), { preload: true, engine: 'simulated' });
    t.equal(lease.model, keyOf(orchestrator, 'eager'));
  });

  t.test('B77: aliases and presets of one file are one load', async (t) => {
    await Promise.all([orchestrator.load('eins'), orchestrator.load('twin'), orchestrator.load('first')]);
    t.equal(keyOf(orchestrator, 'twin'), keyOf(orchestrator, 'first'));
    t.equal((await orchestrator.generate('uno', 'hello').result()).text, 'hi');
    t.equal((await orchestrator.ledger()).leases.filter(({ model }) => model === keyOf(orchestrator, 'first')).length, 1);
  });

  t.test('evict frees what was held and says how much, and nothing the second time', async (t) => {
    const held = (await leaseOf(orchestrator, 'first'))!.residentBytes;
    t.equal(await orchestrator.evict('eins'), held);
    t.equal(await leaseOf(orchestrator, 'first'), null);
    t.equal(await orchestrator.evict('first'), 0);
  });

  t.test('its time to live counts from the end of its last use', async (t) => {
    // It speaks for longer than it may be idle.
    const reason = await orchestrator.generate('brief', 'hello').result();
    t.equal(reason.usage.completionTokens, 80);
    t.ok(await leaseOf(orchestrator, 'brief'), 'still there when it has ended');
    await until('it to be put away', async () => (await leaseOf(orchestrator, 'brief')) === null);
  });

  t.test('what is pinned is no victim and cannot be evicted, until it is pinned no more', async (t) => {
    await orchestrator.load('firm');
    await orchestrator.pin('firm');
    t.match(await leaseOf(orchestrator, 'firm'), { pinned: true });
    t.equal((await refusal(orchestrator.evict('firm'))).code, 'pinned');
    const stop = new AbortController();
    const told: string[] = [];
    const waiting = refusal(orchestrator.load('large', { signal: stop.signal, onStage: ({ text }) => { told.push(text); } }));
    await until('it to be told why it waits', () => told.some((text) => /firm is pinned \(leasehold pin --off MODEL\).*: .* needed, .* available/.test(text)));
    t.match(await leaseOf(orchestrator, 'firm'), { state: 'resident' });
    stop.abort();
    t.equal((await waiting).code, 'request_cancelled');
    await orchestrator.pin('firm', false);
    await orchestrator.load('large');
    t.equal(await leaseOf(orchestrator, 'firm'), null);
  });
});

t.test('a listener of the caller’s that throws loses its own call', async (t) => {
  const orchestrator = await open(t, { models: { m: scripted({ text: 'hello' }) } });
  const onStage = (): void => { throw new Error('mine'); };
  for (const call of [orchestrator.generate('m', 'x', { onStage }).result(), orchestrator.load('m', { onStage })]) {
    t.match(await refusal(call), { code: 'input_invalid', message: 'onStage: mine.' });
  }
  const lease = await orchestrator.lease({ model: 'held', bytes: 50 * MiB, onEvict: () => 'busy' });
  t.match(await refusal(orchestrator.lease({ model: 'other', bytes: 50 * MiB, onEvict: () => 'busy', onWaiting: onStage })), { code: 'input_invalid', message: /what listens to waiting: mine/ });
  lease.release();
  t.equal((await orchestrator.generate('m', 'x').result()).text, 'hello');
});

t.test('two leases of one name are two leases, asked for at once or one after the other, and no byte of either is free', async (t) => {
  for (const loading of [false, true]) {
    const orchestrator = await open(t, { models: {} });
    const ask = (model: string, bytes: number, deadlineMs = 60_000) => orchestrator.lease({ model, bytes, loading, deadlineMs, onEvict: () => 'busy' });
    const leases = [...await Promise.all([ask('buffer', 10 * MiB), ask('buffer', 20 * MiB)]), await ask('buffer', 20 * MiB)];
    t.equal(new Set(leases.map(({ lease }) => lease)).size, 3);
    t.match(await refusal(ask('other', 20 * MiB, 500)), { code: 'deadline_passed' });
    t.match(await refusal(ask('buffer', 200 * MiB)), { code: 'never_fits' }, 'and a refusal leaves them');
    const waiting = [ask('buffer', 5 * MiB), ask('buffer', 6 * MiB)];
    for (const lease of leases) await lease.loaded({ residentBytes: 9 * MiB });
    t.ok((await orchestrator.ledger()).leases.filter(({ model }) => model === 'buffer').length >= 3);
    leases[2]!.release();
    t.match((await Promise.all(waiting)).map(({ held }) => held), [true, true], 'two that wait under one name both come');
    t.ok(leases[0]!.held && leases[1]!.held);
    await orchestrator.close();
  }
});

t.test('a call that can never fit costs the resident model nothing', async (t) => {
  const source = scripted({ weightsBytes: 4 * MiB, contextBytesPerToken: 1_024, text: 'still here' });
  const orchestrator = await open(t, { models: { small: { ...source, contextTokens: 2_048 }, vast: { ...source, contextTokens: 100_000 } } });
  t.equal((await orchestrator.generate('small', 'x').result()).text, 'still here');
  const before = await leaseOf(orchestrator, 'small');
  t.match(await refusal(orchestrator.generate('vast', 'x').result()), { code: 'never_fits', message: /^vast needs 111\.8 MiB .* at most 64\.0 MiB/ });
  t.strictSame({ ...await leaseOf(orchestrator, 'small'), idleMs: 0, inFlight: 0 }, { ...before, idleMs: 0, inFlight: 0 });
  t.match(await orchestrator.generate('small', 'x').result(), { text: 'still here', timings: { loadMs: 0 } });
});

t.test('the host process leases for itself, and gives way when a model needs the room', async (t) => {
  const orchestrator = await open(t, { models: { model: scripted({ weightsBytes: 50 * MiB, text: 'room made' }) } });
  const orders: unknown[] = [];
  const lease = await orchestrator.lease({
    model: 'reranker', parts: [{ name: 'weights', kind: 'weights', bytes: 20 * MiB, upFront: true }],
    onEvict: ({ target, when, reason }) => { orders.push({ target, when, reason }); return { residentBytes: 0 }; },
  });
  t.match(lease, { device: /^SIM-/, chargedBytes: 22 * MiB, held: true });
  await lease.loaded({ residentBytes: 20 * MiB });
  const refused = await refusal(lease.resize([{ name: 'weights', kind: 'weights', bytes: 60 * MiB, upFront: true }]));
  t.match(refused, { code: 'resize_denied', details: { growBytes: /^\d+$/, availableBytes: String(42 * MiB) } });
  await lease.resize([{ name: 'context:1', kind: 'context', bytes: 10 * MiB, upFront: true }]);
  t.equal(lease.chargedBytes, 33 * MiB);
  await lease.loaded({ residentBytes: 30 * MiB });

  const done = lease.use();
  const answer = orchestrator.generate('model', 'hello').result();
  await until('the order to wait for the use to end', async () => (await orchestrator.explain(undefined, 50)).some(({ text }) => /^reranker has shut its door; 1 /.test(text)));
  t.strictSame(orders, [], 'nothing is taken from under a use');
  done();
  t.equal((await answer).text, 'room made');
  t.match(orders, [{ target: 'none', when: 'drained' }]);
  t.equal(lease.held, false);
  t.match(await refusal(lease.loaded({ residentBytes: 1 })), { code: 'closed', message: /^The lease of .* \(it was evicted/ });

  const small = await orchestrator.lease({ model: 'small', bytes: MiB, onEvict: () => 'busy' });
  small.release('unused');
  small.release();
  await until('it to be given back', async () => (await orchestrator.ledger()).leases.every(({ model }) => model !== 'small'));
});

t.test('what happens can be followed and asked about', async (t) => {
  const orchestrator = await open(t, { models: { told: scripted({ weightsBytes: 5 * MiB }) } });
  const heard: LeaseholdEvent[] = [];
  const listening = (async (): Promise<void> => { for await (const event of orchestrator.events()) heard.push(event); })();
  await orchestrator.load('told');
  await orchestrator.evict('told');
  await until('the news of it', () => heard.some(({ name }) => name === 'evicted'));
  t.ok(heard.map(({ name }) => name).join(' ').match(/granted.* loaded.* evicting.* evicted/), heard.map(({ name }) => name).join(' '));
  t.ok(heard.every(({ atUs, dropped }) => atUs > 0 && dropped === 0));

  const [newest, ...older] = await orchestrator.explain('told', 10);
  t.match(newest, { id: /-x\d+$/, verdict: 'evicted', model: keyOf(orchestrator, 'told') });
  t.strictSame(await orchestrator.explain(newest!.id), [newest]);
  const granted = older.find(({ verdict, numbers }) => verdict === 'granted' && numbers !== null);
  t.match(granted?.numbers, { requestedBytes: 5 * MiB + 256 * 1_024, needBytes: Math.ceil((5 * MiB + 256 * 1_024) * 11 / 10), totalBytes: 64 * MiB, truth: 'simulated' });
  t.equal((await orchestrator.explain(`${newest!.id.split('-')[0]!}-x999999`)).length, 0);

  const ledger = await orchestrator.ledger();
  t.match(ledger, {
    bootId: /^[0-9a-f]{12}$/, broker: { pid: process.pid, socket: orchestrator.socketPath }, leases: [], waiting: [],
    cards: [{ kind: 'simulated', totalBytes: 64 * MiB, leasedBytes: 0, availableBytes: 64 * MiB, missing: null }],
    counters: { grants: 1, evictions: 1, loads: 1 }, simulatedCards: [{ oomRefusals: 0, peakUsedBytes: 5 * MiB + 256 * 1_024 }],
  });
  await orchestrator.close();
  await listening;
});

t.test('close', async (t) => {
  const orchestrator = await open(t, { models: { long: scripted({ text: 'word ', textTimes: 1_000, tokensPerSecond: 50 }, { contextTokens: 8_000 }) } });
  const events = orchestrator.events()[Symbol.asyncIterator]();
  const next = events.next();
  const reader = orchestrator.generate('long', 'hello')[Symbol.asyncIterator]();
  await reader.next();
  const waiting = refusal(orchestrator.generate('long', 'hello').result());
  const taken = orchestrator.generate('long', 'hello');
  const neverStepped = taken[Symbol.asyncIterator]();
  const whole = refusal(taken.result());
  const [first, second] = [orchestrator.close(), orchestrator.close()];
  t.equal(first, second, 'may be asked for twice');
  await first;
  t.match(await refusal((async (): Promise<void> => { while ((await reader.next()).done !== true); })()), { code: 'closed' });
  t.equal((await waiting).code, 'closed');
  t.equal((await whole).code, 'closed');
  t.equal((await refusal(taken.result())).code, 'closed');
  t.equal((await refusal(neverStepped.next())).code, 'closed');
  await next;
  const late = [() => orchestrator.load('long'), () => orchestrator.ledger(), () => orchestrator.pin('long'), () => orchestrator.lease({ model: 'm', bytes: 1, device: 'SIM-x-0', onEvict: () => 'busy' })];
  for (const ask of late) t.equal((await refusal(ask())).code, 'closed');
});

t.test('options that make no sense are refused before anything is started', async (t) => {
  const refused = async (options: Parameters<typeof createOrchestrator>[0]): Promise<LeaseholdError> => refusal(createOrchestrator({ broker: 'own', stateFolder: folder(t), devices: ['sim:8MiB'], ...options }));
  t.match(await refused({ limits: { tickIntervalMs: 600 } }), { code: 'limit_relation', message: /tickIntervalMs \* 2 <= stallToleranceMs/ });
  t.match(await refused({ limits: { workersMax: Number.NaN } }), { code: 'config_invalid', message: /workersMax: NaN is not a whole number/ });
  t.match(await refused({ limits: { wrokersMax: 1 } as object }), { code: 'config_invalid', message: /no such limit; did you mean workersMax\?/ });
  t.match(await refused({ limits: { helloTimeoutMs: 2 ** 31 } }), { code: 'config_invalid', message: /from 1 to 2147483647/ });
  t.match(await refused({ models: { m: { source: '/nowhere/at/all.gguf' } } }), { code: 'model_invalid', message: /no such file/ });
  t.match(await refused({ models: { m: { source: '/etc/host\0name' } } }), { code: 'model_invalid', message: /a path holds no NUL\.$/ });
  t.match(await refused({ models: { m: { source: '/etc/hostname/model.gguf' } } }), { code: 'model_invalid', message: /a part of its path is no folder\.$/ });
  t.match(await refused({ models: { m: { source: `/${'x'.repeat(300)}` } } }), { code: 'model_invalid', message: /its path is too long\.$/ });
  t.match(await refused({ models: { m: { source: 'constructor' } } }), { code: 'model_invalid' });
  for (const [field, value] of Object.entries({ contextTokens: 0, parallel: 0, ttlMs: -1, engine: 'e'.repeat(65) })) {
    t.match(await refused({ models: { m: scripted({}, { [field]: value }) } }), { code: 'config_invalid', details: { where: `m.${field}` } }, field);
  }
  for (const declaredBytes of [0, -1, 0.5, Number.NaN, 2 ** 53]) t.match(await refused({ models: { m: scripted({}, { declaredBytes }) } }), { code: 'bytes_invalid', details: { field: 'models.m.declaredBytes' } });
  for (const offload of [{}, { minGpuLayers: -1 }, { minGpuLayers: 1.5 }, { gpuLayers: 3 }]) t.match(await refused({ models: { m: scripted({}, { offload: offload as { minGpuLayers: number } }) } }), { code: 'config_invalid' }, JSON.stringify(offload));
  t.match(await refused({ models: { a: scripted(), b: scripted({}, { aliases: ['a'] }) } }), { code: 'config_invalid', message: /the name a already means a/ });
  for (const reserveBytes of [-1, Number.NaN, 1.5]) t.equal((await refused({ reserveBytes })).code, 'bytes_invalid');
  t.match(await refused({ reserveBytes: { 'GPU-typo': 1 } }), { code: 'device_unknown', message: /GPU-typo; known: SIM-/ });
  for (const yieldFreeBytes of [0, -1, Number.NaN, 1.5, 'some' as 'auto']) t.match(await refused({ yieldFreeBytes }), { code: 'config_invalid', message: /is not off, auto or a number of bytes/ });
  t.match(await refused({ yieldFreeBytes: { 'GPU-typo': 'auto' } }), { code: 'device_unknown', message: /GPU-typo; known: SIM-/ });
  t.match(await refused({ reserveBytes: 4 * MiB, yieldFreeBytes: 4 * MiB }), { code: 'config_invalid', message: /8\.0 MiB would be kept free of 8\.0 MiB/ });
  t.match(await refused({ devices: [] }), { code: 'config_invalid' });
  for (const devices of [['sim:0MiB'], ['sim:513TiB'], ['sim:8191TiB']]) t.match(await refused({ devices }), { code: 'bytes_invalid' });
  t.match(await refused({ hostMemory: { lease: 'sim:8191TiB' } }), { code: 'bytes_invalid', message: /hostMemory sim:8191TiB/ });
  t.match(await refused({ devices: ['sim:8MiB', 'GPU-00000000-0000-0000-0000-000000000000'] }), { code: 'device_unknown' });
  t.match(await refused({ engines: [{ name: 'mine' }] }), { code: 'config_invalid', message: /mine: command is missing/ });
  t.match(await refused({ broker: 'attach' }), { code: 'broker_missing', message: /^No broker is running here: none answers in /, help: /leasehold up/ });
});

t.test('limits are honoured: by the broker, by its workers, and by this side', async (t) => {
  const orchestrator = await open(t, { limits: { requestDeadlineMs: 1_100, workersMax: 1, grantConfirmMs: 1_000 }, models: { a: scripted({ text: 'word ', textTimes: 200, tokensPerSecond: 50 }), b: scripted({ weightsBytes: MiB }) } });
  const reader = orchestrator.generate('a', 'hello', { deadlineMs: 20_000 })[Symbol.asyncIterator]();
  await reader.next();
  const startedMs = performance.now();
  const error = await refusal(orchestrator.load('b'));
  t.match(error, { code: /^(too_many_workers|deadline_passed)$/ });
  t.ok(performance.now() - startedMs < 10_000);
  t.match(await refusal(orchestrator.generate('a', 'hello').result()), { code: 'deadline_passed', details: { deadlineMs: /^\d{3,4}$/ } }, 'a call that names no deadline has that of the limits');
  await reader.return?.();
});

t.test('a reserve is kept free, by card', async (t) => {
  const orchestrator = await open(t, { reserveBytes: 60 * MiB, models: { m: scripted({ weightsBytes: 4 * MiB }) } });
  t.match(await card(orchestrator), { reserveBytes: 60 * MiB, availableBytes: 4 * MiB });
  t.match(await refusal(orchestrator.load('m')), { code: 'never_fits', details: { mostBytes: String(4 * MiB) } });
});

t.test('without a card models run on the CPU, and nothing is leased for it', async (t) => {
  const orchestrator = await open(t, { devices: ['cpu'], models: { m: scripted({ weightsBytes: 4 * MiB, text: 'no card' }) } });
  t.equal((await orchestrator.generate('m', 'hello').result()).text, 'no card');
  t.match(await orchestrator.ledger(), { cards: [{ device: 'CPU-0', kind: 'cpu', totalBytes: 0 }], leases: [{ device: 'CPU-0', chargedBytes: 0, residentBytes: 0 }] });
  t.ok((await orchestrator.explain('m', 10)).some(({ text }) => /cpu, not leased/.test(text)), 'and the record says so');
});
