/** Calls and reports of the worker runtime before a scripted broker, in one process: whatever becomes of a call, the ledger knows first. */
import t from 'tap';
import { defaultLimits, type ControlMessage } from '../../protocol/index.js';
import { readEnvironment } from '../../workers/runtime/index.js';
import type { Control } from './fake-broker.js';
import { ask, begun, codeOf, model, models, read, readOn, rig, turns } from './in-process.js';

const limits = { ...defaultLimits, residencyFlushMs: 50, cancelWithinMs: 50 };

function announced(message: ControlMessage): { added: string[]; removed: readonly string[]; seq: number } {
  const { newModels } = message as Control<'done'>;
  if (newModels === undefined) throw new Error(`${message.type} carries no announcement`);
  return { added: newModels.added.map((state) => `${state.model} ${state.state} ${String(state.residentBytes)}`), removed: newModels.removed, seq: newModels.seq };
}

t.test('announcements and reports', async (t) => {
  t.test('R271: a call that loads a model and then throws: the ledger has the lease before the caller has the error, and it can be evicted', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    broker.acknowledges = false;
    let error: string | null | undefined;
    void codeOf(read(one.generate(ask(model({ weightsBytes: 1_000, contextBytesPerToken: 0, faults: [{ at: 'generate', how: 'throw' }] }))))).then((code) => { error = code; });
    await broker.heard('residency');
    await turns();
    t.equal(error, undefined, 'the error waits for the acknowledgement');
    broker.acknowledge();
    while (error === undefined) await turns(1);
    t.equal(error, 'generation_failed');
    broker.acknowledges = true;
    const busyAnswer = await broker.move({ lease: 'b-l9' }).answer;
    t.strictSame(announced(busyAnswer).added, ['m resident 1000'], 'R51: a failed answer carries announcements, too');
    t.match(await broker.move().answer, { type: 'done', freedBytes: 1_000 });
    await close();
  });

  t.test('D25: a broker that does not acknowledge holds an answer up for residencyFlushMs and no longer', async (t) => {
    const { broker, caller, close } = await rig(t, { limits });
    const one = await caller();
    broker.acknowledges = false;
    t.match(await read(one.generate(ask(model()))), { end: { reason: 'stop' } });
    broker.acknowledge();
    await close();
  });

  t.test('R49, R50, R272, R273: each answer carries what has changed since the last, by value, and what left and came back is told again', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 0, parkable: true });
    const probe = (): ReturnType<typeof broker.move>['answer'] => broker.move({ lease: 'b-l9' }).answer;
    await one.load(spec);
    const first = announced(await probe());
    t.strictSame(first, { seq: 1, added: ['m resident 1000'], removed: [] });
    t.strictSame(announced(await probe()), { seq: 2, added: [], removed: [] });
    t.strictSame(announced(await broker.move({ target: 'host' }).answer).added, ['m parked 0'], 'parked is an entry without card bytes');
    t.strictSame(announced(await broker.move().answer), { seq: 4, added: [], removed: ['m'] }, 'unloaded is none');
    await one.load(spec);
    t.strictSame(announced(await probe()).added, ['m resident 1000']);
    await close();
  });
});

t.test('calls', async (t) => {
  t.test('one caller stops reading: only its own stream stops, its engine is held, and it goes on when it reads again', async (t) => {
    const { attached, caller, close } = await rig(t, { limits: { ...defaultLimits, creditTokensMax: 64 } });
    const [slow, quick] = [await caller('b-s1'), await caller('b-s2')];
    const spec = model({}, { parallel: 2, contextTokens: 8_192 });
    const long = 'abcdefgh'.repeat(1_000);
    const stopped = slow.generate(ask(spec, long))[Symbol.asyncIterator]();
    let text = '';
    while (text.length < 400) {
      const { value } = await stopped.next();
      if (value?.type === 'token') text += value.text;
    }
    for (let call = 0; call < 20; call++) t.match(await read(quick.generate(ask(spec, `quick ${String(call)}`))), { text: `quick ${String(call)}` });
    t.equal(attached.worker.inFlight, 1, 'the unread generation is held, not finished');
    for (let next = await stopped.next(); next.done !== true; next = await stopped.next()) if (next.value.type === 'token') text += next.value.text;
    t.equal(text, long);
    await close();
  });

  t.test('a reader that never comes back loses its own call, and the slot is free', async (t) => {
    const { caller, close } = await rig(t, { limits: { ...defaultLimits, creditTokensMax: 16, unreadStreamMs: 30 } });
    const one = await caller();
    const spec = model({}, { contextTokens: 8_192 });
    const unread = await begun(one.generate(ask(spec, 'abcdefgh'.repeat(1_000))));
    t.match(await read(one.generate(ask(spec, 'next'))), { text: 'next' });
    t.equal(await codeOf(readOn(unread)), 'stream_unread');
    await close();
  });

  t.test('a cancelled call ends at once, its slot takes the next call, and an engine that heeds nothing does not hold its caller', async (t) => {
    const { attached, caller, abandon } = await rig(t, { limits });
    const one = await caller();
    const spec = model({ text: 'xxxx', textTimes: 10_000 }, { contextTokens: 20_000 });
    for await (const event of one.generate(ask(spec))) if (event.type === 'token') break;
    t.match(await read(one.generate(ask(spec, 'again', { sampling: { maxTokens: 2, temperature: 0 } }))), { end: { reason: 'length' } });
    const hung = model({ faults: [{ at: 'generate', how: 'hang', afterTokens: 1 }] }, { key: 'hung' });
    const stop = new AbortController();
    const events: string[] = [];
    const error = await codeOf((async () => {
      for await (const event of one.generate(ask(hung, 'hello there', { signal: stop.signal }))) {
        events.push(event.type);
        if (event.type === 'token') stop.abort();
      }
    })());
    t.equal(error, 'request_cancelled');
    t.ok(events.includes('token'));
    t.equal(attached.worker.inFlight, 1, 'what the engine still does is not called idle');
    await abandon();
  });

  t.test('B80: after a hundred of each failure nothing is counted as in flight', async (t) => {
    const { broker, attached, caller, close } = await rig(t, { limits: { ...limits, queuedCallsPerModelMax: 32 } });
    const one = await caller();
    const spec = model({ text: 'x'.repeat(400) }, { parallel: 4 });
    const hundred = async (what: string, run: (index: number) => Promise<unknown>): Promise<void> => {
      await Promise.all(Array.from({ length: 100 }, (_, index) => run(index)));
      while (attached.worker.references > 0) await turns(1);
      t.equal(attached.worker.inFlight, 0, what);
      t.ok((await models(broker)).every((state) => state.inFlight === 0), `${what}, as told`);
    };
    await one.load(spec);
    await hundred('left before it begins', (index) => {
      const stop = new AbortController();
      const ended = codeOf(read(one.generate(ask(spec, String(index), { signal: stop.signal }))));
      setImmediate(() => { stop.abort(); });
      return ended;
    });
    await hundred('left in mid-stream', () => codeOf((async () => { for await (const event of one.generate(ask(spec))) if (event.type === 'token') break; })()));
    const others: Awaited<ReturnType<typeof caller>>[] = [];
    for (let index = 0; index < 100; index++) others.push(await caller(`b-s${String(index + 10)}`));
    await hundred('connection lost in mid-stream', async (index) => {
      const other = others[index]!;
      await codeOf((async () => { for await (const event of other.generate(ask(spec))) if (event.type === 'token' || event.type === 'stage') other.close(); })());
    });
    await hundred('engine throws', () => codeOf(read(one.generate(ask(model({ faults: [{ at: 'generate', how: 'throw', afterTokens: 2 }] }, { key: 'throws', parallel: 4 }))))));
    await hundred('load fails', () => codeOf(one.load(model({ faults: [{ at: 'load', how: 'throw', afterFraction: 0.5 }] }, { key: 'fails' }))));
    await hundred('queue is full or deadline passes', () => codeOf(read(one.generate(ask(spec, 'late', { deadlineMs: 1 })))));
    await hundred('input is wrong', () => codeOf(read(one.generate({ model: spec, sampling: { maxTokens: 1, temperature: 0 } }))));
    t.match(await broker.heard('in_use', (use) => use === broker.all('in_use').filter(({ model: key }) => key === 'm').at(-1)), { inFlight: 0, queued: 0 });
    await close();
  });

  t.test('what an engine throws is typed, and the worker lives on', async (t) => {
    const { caller, fatal, close } = await rig(t);
    const one = await caller();
    const failing = (at: string): ReturnType<typeof model> => model({ embeddingDimensions: 3, faults: [{ at, how: 'throw', message: `at ${at}` }] }, { key: at });
    t.match(await read(one.generate(ask(failing('generate')))).catch((error: unknown) => error), { code: 'generation_failed', details: { model: 'generate', reason: 'at generate' } });
    t.match(await one.load(failing('load')).catch((error: unknown) => error), { code: 'load_failed', details: { model: 'load', reason: 'at load' } });
    t.match(await one.load(failing('estimate')).catch((error: unknown) => error), { code: 'load_failed' });
    t.match(await one.load(failing('context')).catch((error: unknown) => error), { code: 'load_failed' });
    t.match(await one.countTokens(failing('count'), { prompt: 'x' }).catch((error: unknown) => error), { code: 'generation_failed' });
    t.match(await one.embed(failing('embed'), ['x']).catch((error: unknown) => error), { code: 'generation_failed' });
    t.match(await one.load(model({ nonsense: 1 }, { key: 'bad' })).catch((error: unknown) => error), { code: 'model_invalid' });
    t.match(await one.load(model({}, { engine: 'other' })).catch((error: unknown) => error), { code: 'engine_unknown' });
    t.match(await read(one.generate(ask(model({}, { embedding: true, key: 'vectors' })))).catch((error: unknown) => error), { code: 'input_invalid' });
    t.match(await read(one.generate(ask(model({}, { contextTokens: 2, key: 'small' })))).catch((error: unknown) => error), { code: 'context_too_small', details: { contextTokens: '2' } });
    t.strictSame(fatal, []);
    await close();
  });

  t.test('embeds in turns, counts tokens, and any text arrives as it was sent (B176)', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ embeddingDimensions: 8, contextBytesPerToken: 10 }, { embedding: true });
    const [left, right] = await Promise.all([one.embed(spec, ['a', 'b']), one.embed(spec, ['a'])]);
    t.strictSame(left.vectors[0], right.vectors[0]);
    t.not(left.vectors[0]?.[0], left.vectors[1]?.[0]);
    t.ok(Math.abs(Math.hypot(...left.vectors[1] ?? []) - 1) < 1e-9);
    t.match(broker.all('request_vram_budget'), [{ parts: [{ name: 'weights' }] }], 'no context of ours is asked for');
    t.equal(await one.countTokens(model({}, { key: 'text' }), { messages: [{ role: 'user', content: 'ab' }] }), 3);
    const odd = 'a\nb#c\u2028d\u0000e\r\n{"type":"end"}\u{1F600}é';
    t.equal((await read(one.generate(ask(model({}, { key: 'text' }), odd)))).text, odd);
    const lone = await read(one.generate(ask(model({}, { key: 'text' }), 'x\ud800y')));
    t.equal(lone.text, 'x\ufffdy', 'half a character becomes a replacement, and nothing around it changes');
    await close();
  });
});

t.test('R274: a long compute that logs all the time: its deadline is the whole, its heartbeats go on, and it stops within one of them', async (t) => {
  const { broker, caller, close } = await rig(t);
  const one = await caller();
  // Alone in its process it would be at it for ten seconds, a line every ten milliseconds.
  const compute = (prefillMs: number): ReturnType<typeof model> => model({ prefillMs, prefillLogLines: prefillMs / 10 }, { key: `m${String(prefillMs)}` });
  const beats = (): number => broker.all('heartbeat').length;

  t.equal(await codeOf(read(one.generate(ask(compute(10_000), 'x', { deadlineMs: 2_000 })))), 'deadline_passed');
  t.ok(broker.all('log').length > 50, 'lines came');
  t.notOk(broker.all('log').some(({ message }) => message.startsWith('prefill 1000 ')), 'and none of them put the end off');
  const inUse = (): number => broker.all('in_use').at(-1)?.inFlight ?? 0;
  while (inUse() > 0) await turns(1);

  const before = beats();
  t.match(await read(one.generate(ask(compute(3_000), 'x', { deadlineMs: 60_000 }))), { end: { reason: 'stop' } });
  t.ok(beats() - before >= 2, 'it was heard of all the time');

  const stop = new AbortController();
  const stopped = codeOf(read(one.generate(ask(compute(10_000), 'x', { signal: stop.signal }))));
  await broker.heard('in_use', ({ inFlight }) => inFlight > 0);
  const lines = broker.all('log').length;
  while (broker.all('log').length < lines + 5) await turns(1);
  const atStop = beats();
  stop.abort();
  while (inUse() > 0) await turns(1);
  t.ok(beats() - atStop <= 1, 'not in use any more, one heartbeat later');
  t.equal(await stopped, 'request_cancelled');
  await close();
});

t.test('a deadline bounds the wait for the first token, and no stream after it', async (t) => {
  const { caller, close } = await rig(t);
  const one = await caller();
  const slow = model({ text: 'xxxx', textTimes: 60, tokensPerSecond: 400 }, { key: 'slow' });
  await one.load(slow);
  t.match(await read(one.generate(ask(slow, 'go', { deadlineMs: 80 }))), { end: { reason: 'stop', usage: { completionTokens: 60 } } });
  const late = model({ prefillMs: 5_000 }, { key: 'late' });
  await one.load(late);
  t.match(await read(one.generate(ask(late, 'go', { deadlineMs: 30 }))).catch((error: unknown) => error), { code: 'deadline_passed', details: { deadlineMs: '30', reason: 'reading the prompt', tokensReceived: '0' } });
  const cold = model({ loadMs: 5_000 }, { key: 'cold' });
  t.match(await one.load(cold, { deadlineMs: 30 }).catch((error: unknown) => error), { code: 'deadline_passed', details: { reason: 'loading cold' } });
  await close();
});

t.test('the environment is read once, checked, and its key is gone from it', async (t) => {
  const whole = { LEASEHOLD_SOCKET: '/b', LEASEHOLD_SPAWN: 'b-w1', LEASEHOLD_KEY: 'k', LEASEHOLD_DATA_SOCKET: '/d', LEASEHOLD_DEVICES: '[{"device":"GPU-1"}]', LEASEHOLD_LIMITS: '{"cancelWithinMs":5}' };
  const env: NodeJS.ProcessEnv = { ...whole };
  t.match(readEnvironment(env), { key: 'k', cards: [{ device: 'GPU-1', name: 'GPU-1', totalBytes: null, simulated: false }], limits: { cancelWithinMs: 5, residencyFlushMs: 1_000 } });
  t.notOk('LEASEHOLD_KEY' in env);
  for (const [name, value, code] of [
    ['LEASEHOLD_SOCKET', '', 'input_invalid'], ['LEASEHOLD_DEVICES', '{}', 'input_invalid'], ['LEASEHOLD_DEVICES', '[{}]', 'input_invalid'], ['LEASEHOLD_DEVICES', 'x', 'input_invalid'],
    ['LEASEHOLD_LIMITS', '{"nonsense":1}', 'input_invalid'], ['LEASEHOLD_LIMITS', '{"cancelWithinMs":-1}', 'input_invalid'], ['LEASEHOLD_LIMITS', '{"heartbeatMissesMax":1}', 'limit_relation'],
  ] as const) t.throws(() => readEnvironment({ ...whole, [name]: value }), { code }, `${name}=${value}`);
});
