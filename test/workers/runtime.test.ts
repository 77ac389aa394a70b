/** The worker runtime before a scripted broker, in one process: loads, the broker's commands, contexts. */
import t from 'tap';
import { defaultLimits, type ModelSpec } from '../../protocol/index.js';
import { memoryPair, monotonicUs } from '../../protocol/node/index.js';
import { openCaller } from '../../src/client/index.js';
import { WorkerLog } from '../../workers/runtime/log.js';
import { until } from '../integration/support.js';
import { card, generation } from './fake-broker.js';
import { ask, begun, codeOf, model, models, read, readOn, rig, turns } from './in-process.js';

t.test('loading', async (t) => {
  t.test('a first call asks before it loads, reports what it measured, and answers', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 2, actualWeightsBytes: 1_200 });
    const { text, end, events } = await read(one.generate(ask(spec)));
    t.equal(text, 'hello there');
    t.match(end, { reason: 'stop', usage: { promptTokens: 3, completionTokens: 3 }, explain: 'b-x1' });
    const [request] = broker.all('request_vram_budget');
    t.match(request, {
      model: 'm', device: card, lease: null, class: 'normal', source: 'estimated', gang: null,
      parts: [{ name: 'weights', bytes: 1_000 }, { name: 'context:1', kind: 'context', bytes: 1_024, upFront: true }],
    });
    const order = broker.said.map(({ type }) => type);
    t.ok(order.indexOf('request_vram_budget') < order.indexOf('loading'), 'asked before');
    t.ok(order.indexOf('loading') < order.indexOf('card_allocate'), 'confirmed before a byte is taken');
    t.match(await broker.heard('residency'), { state: 'resident', residentBytes: 2_224, hostBytes: 0, parts: [{ name: 'weights', bytes: 1_200 }, { name: 'context:1', bytes: 1_024 }] });
    t.equal(broker.usedBytes, 2_224);
    const stages = events.filter((event) => event.type === 'stage').map((event) => event.stage);
    t.strictSame([...new Set(stages)], ['estimating', 'waiting', 'loading', 'prefill', 'generating']);
    t.match(await broker.heard('in_use', (use) => use.inFlight === 0 && use.queued === 0), { model: 'm', lease: 'b-l1' });
    await close();
  });

  t.test('B77: ten callers at once, with presets that differ only in sampling, share one request and one load', async (t) => {
    const { broker, caller, close } = await rig(t);
    const spec = model({ loadMs: 5 }, { parallel: 3 });
    const one = await caller();
    const all = await Promise.all(Array.from({ length: 10 }, (_, index) => read(one.generate(ask(spec, `call ${String(index)}`, { sampling: { maxTokens: 100, temperature: index / 10 } })))));
    t.strictSame(all.map(({ text }) => text), Array.from({ length: 10 }, (_, index) => `call ${String(index)}`));
    t.equal(broker.all('request_vram_budget').filter(({ lease }) => lease === null).length, 1);
    t.equal(broker.all('residency').filter(({ loadMs }) => loadMs !== null).length, 1);
    await close();
  });

  t.test('B64: a request that its only caller leaves is cancelled, and a grant that crossed it is given back', async (t) => {
    const { broker, caller, close } = await rig(t, {
      onBudget: (message, to) => {
        to.channel.send({ type: 'waiting', id: message.id, position: 2, reason: 'others load', explain: 'b-x7' });
        return true;
      },
    });
    const one = await caller();
    const stop = new AbortController();
    const stages: string[] = [];
    const loading = one.load(model(), { signal: stop.signal, onStage: (stage) => {
      stages.push(`${stage.stage} ${stage.explain ?? ''}`);
      if (stage.explain === 'b-x7') stop.abort();
    } });
    t.equal(await codeOf(loading), 'request_cancelled');
    t.ok(stages.includes('waiting b-x7'), 'the caller was told what it waits for');
    const request = await broker.heard('request_vram_budget');
    t.match(await broker.heard('cancel'), { target: request.id });
    broker.grant(request);
    t.match(await broker.heard('release_lease'), { lease: 'b-l1', cause: 'unused' });
    t.strictSame(await models(broker), []);
    await close();
  });

  t.test('B65: the only waiter leaves during the load; the load goes on, and the next call is served by it', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const stop = new AbortController();
    const spec = model({ loadSteps: 10, loadMs: 20 });
    const first = one.load(spec, { signal: stop.signal, onStage: ({ stage, progress }) => { if (stage === 'loading' && (progress ?? 0) >= 0.3) stop.abort(); } });
    t.equal(await codeOf(first), 'request_cancelled');
    const { text } = await read(one.generate(ask(spec, 'second')));
    t.equal(text, 'second');
    t.equal(broker.all('request_vram_budget').length, 1);
    t.equal(broker.all('release_lease').length, 0, 'the lease is held, not leaked and not thrown away');
    t.match(await models(broker), [{ model: 'm', state: 'resident', lease: 'b-l1' }]);
    await close();
  });

  t.test('a refusal reaches every caller with the numbers that decided it', async (t) => {
    const { caller, close } = await rig(t, {
      onBudget: (message, to) => {
        to.deny(message, 'never_fits');
        return true;
      },
    });
    const one = await caller();
    const errors = await Promise.all([1, 2, 3].map(() => read(one.generate(ask(model()))).catch((error: unknown) => error)));
    for (const error of errors) t.match(error, { code: 'never_fits', details: { needBytes: '22', mostBytes: '17', couldHaveBytes: '4', roomElsewhere: 'SIM-other', explain: 'b-x2', tokensReceived: '0' } });
    await close();
  });

  t.test('B22: a card that refuses gets one corrective attempt under a new lease, with what was refused in its numbers', async (t) => {
    const { broker, caller, close } = await rig(t, { cardBytes: 500 });
    const one = await caller();
    const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 0, loadSteps: 1 });
    const error: unknown = await read(one.generate(ask(spec))).catch((thrown: unknown) => thrown);
    t.match(error, { code: 'out_of_memory', details: { device: card, wantedBytes: '1000', freeBytes: '500', tokensReceived: '0' } });
    t.equal(broker.all('request_vram_budget').length, 2, 'no third attempt');
    t.match(broker.all('request_vram_budget')[1], { peakBytes: 1_000 });
    t.match(broker.all('release_lease').map(({ cause, failure }) => [cause, failure?.code]), [['load_failed', 'out_of_memory'], ['load_failed', 'out_of_memory']]);
    t.equal(broker.usedBytes, 0);
    broker.cardBytes = 5_000;
    t.match(await read(one.generate(ask(spec))), { text: 'hello there' }, 'the model is not poisoned');
    await close();
  });

  t.test('B20: where no size can be worked out the operator’s word counts, and without one the refusal names the setting', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const unknown = { sizeUnknown: true, contextBytesPerToken: 0 };
    t.match(await one.load(model(unknown)).catch((error: unknown) => error), { code: 'estimate_unknown', help: /declaredBytes/ });
    await one.load(model(unknown, { key: 'declared', declaredBytes: 6_000_000 }));
    t.match(broker.all('request_vram_budget'), [{ source: 'declared', parts: [{ name: 'declared', bytes: 6_000_000, upFront: false }, { name: 'context:1', bytes: 0 }] }]);
    await close();
  });

  t.test('a worker without a card leases no card bytes, and says the same of what it holds (D18)', async (t) => {
    const { broker, caller, close } = await rig(t, { cards: [] });
    const one = await caller();
    await read(one.generate(ask(model())));
    const [request] = broker.all('request_vram_budget');
    t.match(request, { device: 'CPU-0', peakBytes: 0, parts: [{ bytes: 0 }, { bytes: 0 }] });
    t.match(await broker.heard('residency'), { residentBytes: 0, parts: [{ bytes: 0 }, { bytes: 0 }] });
    await close();
  });

  t.test('an open request is raised when a more urgent caller joins', async (t) => {
    const { broker, caller, close } = await rig(t, { onBudget: (message) => message.class === 'background' });
    const one = await caller();
    const first = one.load(model(), { class: 'background', deadlineMs: 20_000 });
    await broker.heard('request_vram_budget');
    await Promise.all([first, one.load(model(), { class: 'interactive', deadlineMs: 60_000 })]);
    const [asked, raised] = broker.all('request_vram_budget');
    t.equal(raised?.id, asked?.id, 'the same request, sent again');
    t.match(raised, { class: 'interactive' });
    t.ok((raised?.deadlineMs ?? 0) > 50_000);
    await close();
  });

  t.test('a request that is taken back in the turn in which another caller joins is not sent again under its old id', async (t) => {
    let waits = true;
    const { broker, caller, close } = await rig(t, { onBudget: () => waits });
    const one = await caller();
    const stop = new AbortController();
    const left = codeOf(one.load(model(), { class: 'background', deadlineMs: 20_000, signal: stop.signal }));
    await broker.heard('request_vram_budget');
    waits = false;
    stop.abort();
    const joined = one.load(model(), { class: 'interactive', deadlineMs: 60_000 });
    t.equal(await left, 'request_cancelled');
    await joined;
    const ids = broker.all('request_vram_budget').map(({ id }) => id);
    t.equal(new Set(ids).size, ids.length, 'each id once');
    await close();
  });
});

t.test('commands', async (t) => {
  t.test('B193: busy is answered while the call runs on, and an expired command is not carried out late', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ text: 'x'.repeat(4), textTimes: 2_000 });
    const running = await begun(one.generate(ask(spec, 'go', { sampling: { maxTokens: 400, temperature: 0 } })));
    t.match(await broker.move({ when: 'now' }).answer, { type: 'busy', inFlight: 1 });
    for (const when of ['now', 'drained'] as const) {
      const late = broker.move({ when, sentUs: monotonicUs() - 40_000_000, expiresMs: 40_000 });
      t.match(await late.answer, { type: 'failed', code: 'command_expired' }, 'read 40 s after it was sent');
      t.strictSame(late.interim, [], 'no door is shut for it');
    }
    const expires = broker.move({ when: 'drained', expiresMs: 1 });
    t.match(await expires.answer, { type: 'failed', code: 'command_expired' }, 'so does what was read in time and could not begin');
    await readOn(running);
    t.equal((await models(broker))[0]?.state, 'resident');
    await close();
  });

  t.test('B74, D20: behind a shut door a call waits, the model is unloaded when the last one ends, and is loaded again for it', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ text: 'x'.repeat(400) });
    const running = await begun(one.generate(ask(spec)));
    const move = broker.move({ waiterSinceUs: 1 });
    await turns();
    t.match(move.interim, [{ type: 'draining', inFlight: 1 }]);
    const waiting = read(one.generate(ask(spec)));
    await readOn(running);
    t.match(await move.answer, { type: 'done', target: 'none', residentBytes: 0, hostBytes: 0 });
    t.match(await waiting, { end: { reason: 'stop' } });
    t.equal(broker.all('request_vram_budget').length, 2);
    t.equal(broker.all('residency').filter(({ state }) => state === 'unloading').length, 1);
    await close();
  });

  t.test('D21: the broker takes a drain back', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ text: 'x'.repeat(400) });
    const running = await begun(one.generate(ask(spec)));
    const move = broker.move();
    await turns();
    broker.channel.send({ type: 'cancel', target: move.id });
    t.match(await move.answer, { type: 'failed', code: 'request_cancelled' });
    await readOn(running);
    t.match(await read(one.generate(ask(spec))), { end: { reason: 'stop' } }, 'the door is open');
    await close();
  });

  t.test('parks, answers that the bytes are gone, and comes back under the same lease', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 1, parkable: true });
    await read(one.generate(ask(spec)));
    t.match(await broker.move({ target: 'host', when: 'now' }).answer, { type: 'done', target: 'host', freedBytes: 1_512, residentBytes: 0, hostBytes: 1_000 });
    t.equal(broker.usedBytes, 0);
    t.match(await models(broker), [{ state: 'parked', lease: 'b-l1', residentBytes: 0, hostBytes: 1_000, parkable: true }]);
    const { events } = await read(one.generate(ask(spec)));
    t.ok(events.some((event) => event.type === 'stage' && event.stage === 'resuming'));
    t.match(broker.all('request_vram_budget')[1], { lease: 'b-l1', parts: [{ name: 'context:1', bytes: 0 }, { name: 'weights', bytes: 1_000 }, { name: 'context:2', bytes: 512 }] });
    t.equal(broker.usedBytes, 1_512);
    await broker.move({ target: 'host', when: 'now' }).answer;
    t.match(await broker.channel.request({ type: 'trim_host', lease: 'b-l1', model: 'm', generation, bytes: null, sentUs: monotonicUs(), expiresMs: 30_000 }, { timeoutMs: 10_000 }), { type: 'done', target: 'none', hostBytes: 0 });
    t.strictSame(await models(broker), []);
    await close();
  });

  for (const how of ['throw', 'oom'] as const) {
    t.test(`a copy that does not come back to the card (${how}) is dropped, and the call has the model loaded afresh`, async (t) => {
      const { broker, caller, close } = await rig(t);
      const one = await caller();
      const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 1, parkable: true, faults: [{ at: 'resume', how }] });
      for (let round = 0; round < 2; round++) {
        t.match(await read(one.generate(ask(spec))), { end: { reason: 'stop' } });
        const lease = (await models(broker))[0]?.lease ?? '';
        t.match(await broker.move({ target: 'host', when: 'now', lease }).answer, { type: 'done', target: 'host' });
      }
      t.match(await read(one.generate(ask(spec))), { end: { reason: 'stop' } });
      t.equal(broker.usedBytes, 1_512);
      await close();
    });
  }

  t.test('frees a part, honestly; and says what cannot be done', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    await one.load(model({ weightsBytes: 1_000, contextBytesPerToken: 0, partial: true, partFreesFraction: 0.5 }));
    t.match(await broker.move({ bytes: 400, when: 'now' }).answer, { type: 'done', freedBytes: 200, residentBytes: 800 });
    t.equal(broker.usedBytes, 800);
    t.match(await broker.move({ target: 'host', when: 'now' }).answer, { type: 'unsupported' });
    t.match(await broker.move({ lease: 'b-l9' }).answer, { type: 'failed', code: 'lease_unknown', residentBytes: 0 });
    t.match(await broker.move({ generation: 'b-w9' }).answer, { type: 'failed', code: 'generation_stale' });
    await close();
  });

  t.test('a lie is told as the script has it: done, while the card still has the bytes', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    await one.load(model({ weightsBytes: 1_000, contextBytesPerToken: 0, unloadKeepsFraction: 0.75, overAllocateBytes: 7 }));
    t.equal(broker.usedBytes, 1_007);
    t.match(await broker.move().answer, { type: 'done', residentBytes: 0 });
    t.equal(broker.usedBytes, 757);
    await close();
  });

  t.test('an unload that fails is told as failed with what is held, and the lease stands', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 0, faults: [{ at: 'unload', how: 'throw' }] });
    await one.load(spec);
    t.match(await broker.move().answer, { type: 'failed', code: 'move_failed', residentBytes: 1_000 });
    t.equal(await codeOf(read(one.generate(ask(spec)))), 'move_failed');
    t.match(await models(broker), [{ state: 'unloading', lease: 'b-l1', residentBytes: 1_000 }]);
    await close();
  });

  for (const [name, waiterSinceUs] of [['aborts the load', 1], ['waits until it is ready', null]] as const) {
    t.test(`B194: an unload at ten points of a load ${name}; never "unloaded" with memory held`, async (t) => {
      const { broker, caller, close } = await rig(t);
      const one = await caller();
      for (let point = 0; point < 10; point++) {
        const stop = new AbortController();
        const loads = broker.all('loading').length;
        const moves: ReturnType<typeof broker.move>[] = [];
        const spec = model({ weightsBytes: 1_000, contextBytesPerToken: 1, loadSteps: 10, loadMs: 10 });
        const loading = one.load(spec, {
          signal: stop.signal,
          onStage: ({ stage, progress }) => {
            if (stage !== 'loading' || moves.length > 0 || Math.round((progress ?? 0) * 10) < point) return;
            moves.push(broker.move({ waiterSinceUs }));
          },
        });
        void loading.catch(() => undefined);
        await broker.heard('loading', () => broker.all('loading').length > loads);
        while (moves.length === 0) await turns(1);
        const answer = await moves[0]!.answer;
        t.match(answer, { type: 'done', target: 'none', residentBytes: 0, hostBytes: 0 });
        t.equal(broker.usedBytes, 0, `at ${String(point * 10)} %`);
        if (waiterSinceUs === null) await loading;
        // The aborted caller still waits for its model: it leaves, and what it asked for is taken back or given back.
        stop.abort();
        if (waiterSinceUs !== null) await codeOf(loading);
        for (let state = await models(broker); state.length > 0; state = await models(broker)) await broker.move({ waiterSinceUs: 1 }).answer;
      }
      t.equal(broker.usedBytes, 0);
      await close();
    });
  }

  t.test('a grant that is recalled has begun or is void', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    await one.load(model());
    t.match(await broker.channel.request({ type: 'recall_lease', lease: 'b-l1' }, { timeoutMs: 10_000 }), { type: 'recalled', begun: true });
    t.match(await broker.channel.request({ type: 'recall_lease', lease: 'b-l8' }, { timeoutMs: 10_000 }), { type: 'recalled', begun: false });
    await close();
  });

  t.test('R75: while a request for room waits, orders for other models are carried out and their calls served', async (t) => {
    const { broker, caller, close } = await rig(t, { onBudget: ({ model: key }) => key === 'waits' });
    const one = await caller();
    const spec = model({ text: 'here' });
    await one.load(spec);
    const waiting = codeOf(one.load(model({}, { key: 'waits' })));
    const request = await broker.heard('request_vram_budget', ({ model: key }) => key === 'waits');
    t.equal((await read(one.generate(ask(spec)))).text, 'here');
    t.match(await broker.move().answer, { type: 'done', target: 'none', residentBytes: 0 }, 'it may be the one that must make room');
    broker.grant(request);
    t.equal(await waiting, null);
    await close();
  });

  t.test('R87: a log that nobody takes is dropped and counted; it neither grows nor holds anything up', async (t) => {
    const log = new WorkerLog();
    for (let line = 0; line < 300; line++) log.line('info', `early ${String(line)}`);
    const sent: Readonly<Record<string, unknown>>[] = [];
    const channel = { open: true, unsentBytes: 0, send: (message: Readonly<Record<string, unknown>>) => { sent.push(message); } };
    log.attach(channel as unknown as Parameters<WorkerLog['attach']>[0]);
    t.equal(sent.length, 200, 'as many of the first as it keeps');
    t.match(sent[0], { message: 'early 0', fields: { droppedLines: '100' } });
    channel.unsentBytes = 300 * 1_024;
    for (let line = 0; line < 1_000; line++) log.line('info', 'x'.repeat(10_000));
    t.equal(sent.length, 200);
    channel.unsentBytes = 0;
    log.line('warn', 'after it', { why: 'y'.repeat(5_000) });
    t.match(sent.at(-1), { level: 'warn', message: 'after it', fields: { droppedLines: '1000', why: /^y{2000}$/ } });
  });

  t.test('R275: 500 log lines before a command do not keep it from its answer', async (t) => {
    const { broker, attached, close } = await rig(t);
    for (let line = 0; line < 500; line++) attached.log.line('info', `line ${String(line)}`);
    t.strictSame(await models(broker), []);
    t.ok(broker.all('log').length >= 400, 'and they arrive');
    await close();
  });

  t.test('whoever means another model by the same key is refused, and changes nothing for those who mean what is here', async (t) => {
    const { broker, caller, close } = await rig(t);
    const [one, other] = [await caller(), await caller('b-s2')];
    const spec = model({}, { options: { text: 'the right one' } });
    const means = (asked: ModelSpec): Promise<string | null> => codeOf(read(other.generate(ask(asked))));
    const strangers: readonly (readonly [string, ModelSpec])[] = [
      ['source', model({ loadMs: 1 }, { options: { text: 'the right one' } })],
      ['options', { ...spec, options: { text: 'another' } }],
      ['options', { ...spec, options: {} }],
      ['options', { ...spec, options: { text: 'the right one', loadMs: '1' } }],
    ];
    await one.load(spec);
    for (const [field, stranger] of strangers) {
      await t.rejects(read(other.generate(ask(stranger))), {
        code: 'model_key_taken', details: { model: 'm', field, held: field === 'source' ? spec.source : '{"text":"the right one"}', asked: field === 'source' ? stranger.source : JSON.stringify(stranger.options) },
      });
      t.equal((await read(one.generate(ask(spec)))).text, 'the right one');
    }
    await broker.move().answer;
    // Nothing is loaded under it any more, and nobody is here: the key is free.
    t.equal(await means(model({ text: 'another' })), null);
    t.equal(await means({ ...model({ text: 'another' }), contextTokens: 256, parallel: 2, policy: { ttlMs: 5, pinned: false, exclusive: false } }), null, 'how it is used is not what it is');
    await close();
  });

  t.test('drain refuses new calls; shutdown is passed on and answered', async (t) => {
    const { broker, caller, shutdowns, close } = await rig(t);
    const one = await caller();
    t.match(await broker.channel.request({ type: 'drain' }, { timeoutMs: 10_000 }), { type: 'ok' });
    t.equal(await codeOf(read(one.generate(ask(model())))), 'shutting_down');
    t.match(await broker.channel.request({ type: 'shutdown', graceMs: 100, reason: 'idle' }, { timeoutMs: 10_000 }), { type: 'ok' });
    t.strictSame(shutdowns, ['idle']);
    await close();
  });

  t.test('closing unloads, gives the leases back, and ends the calls with a typed error', async (t) => {
    const { broker, attached, caller, close } = await rig(t);
    const one = await caller();
    const iterator = await begun(one.generate(ask(model({ text: 'xxxx', textTimes: 10_000 }))));
    const ended = codeOf(readOn(iterator));
    await attached.close();
    t.equal(await ended, 'shutting_down');
    t.match(broker.all('release_lease'), [{ lease: 'b-l1', cause: 'unloaded' }]);
    t.equal(broker.usedBytes, 0);
    await close();
  });
});

t.test('contexts', async (t) => {
  t.test('a second call gets a context of its own as part of the same lease; refused, it waits its turn', async (t) => {
    let refuse = true;
    const { broker, caller, close } = await rig(t, {
      onBudget: (message, to) => {
        if (message.lease === null || !refuse) return false;
        to.deny(message, 'never_fits');
        return true;
      },
    });
    const one = await caller();
    const spec = model({ text: 'x'.repeat(400), contextBytesPerToken: 2, tokensPerSecond: 800 }, { parallel: 2 });
    const two = (): Promise<unknown> => Promise.all([read(one.generate(ask(spec))), read(one.generate(ask(spec)))]);
    await two();
    t.match(broker.all('request_vram_budget')[1], { lease: 'b-l1', parts: [{ name: 'context:2', kind: 'context', bytes: 1_024 }] });
    t.equal(broker.all('residency').length, 1);
    refuse = false;
    await broker.move().answer;
    await two();
    const last = await broker.heard('residency', (report) => report.parts?.length === 3);
    t.strictSame(last.parts?.map(({ name }) => name), ['weights', 'context:1', 'context:2']);
    await close();
  });

  t.test('B61: a larger context takes the place of the smaller once its call has ended, and later small calls are served by it', async (t) => {
    const { broker, caller, close } = await rig(t);
    const one = await caller();
    const script = { text: 'x'.repeat(200), contextBytesPerToken: 2 };
    const running = await begun(one.generate(ask(model(script))));
    const larger = read(one.generate(ask(model(script, { contextTokens: 1_024 }))));
    const small = [1, 2, 3].map(() => read(one.generate(ask(model(script)))));
    await turns();
    t.equal(broker.all('request_vram_budget').length, 1, 'the stream is not cut');
    await readOn(running);
    t.match(await Promise.all([larger, ...small]), [1, 2, 3, 4].map(() => ({ end: { reason: 'stop' } })));
    t.match(broker.all('request_vram_budget').slice(1), [{ lease: 'b-l1', parts: [{ name: 'context:1', bytes: 0 }, { name: 'context:2', bytes: 2_048 }] }], 'the one for the other');
    t.match(broker.all('residency')[1], { state: 'resident', parts: [{ name: 'weights' }, { name: 'context:2', bytes: 2_048 }, { name: 'context:1', bytes: 0 }] });
    t.match((await models(broker))[0]?.residentBytes, 4 * 1024 * 1024 + 2_048);
    await close();
  });

  t.test('a larger context that is refused costs nothing: the smaller one is open as before, and serves', async (t) => {
    const { broker, caller, close } = await rig(t, {
      onBudget: (request, to) => {
        if (request.lease === null) return false;
        to.channel.send({ type: 'deny', id: request.id, code: 'never_fits', message: 'no', details: { model: 'm', needBytes: '9', device: 'SIM-card', mostBytes: '8' }, numbers: null, couldHaveBytes: 1, roomElsewhere: [], retryAfterMs: null, explain: null });
        return true;
      },
    });
    const one = await caller();
    const script = { text: 'fine', contextBytesPerToken: 2 };
    t.match(await read(one.generate(ask(model(script)))), { end: { reason: 'stop' } });
    const before = (await models(broker))[0]?.residentBytes;
    t.equal(await codeOf(read(one.generate(ask(model(script, { contextTokens: 1_000_000 }))))), 'never_fits');
    t.equal((await models(broker))[0]?.residentBytes, before);
    t.match(await read(one.generate(ask(model(script)))), { end: { reason: 'stop' } });
    t.equal(broker.all('request_vram_budget').length, 2, 'it had not to be asked for again');
    await close();
  });
});

t.test('one process has a part of the callers alone: the next one of it is refused, and another process is served', async (t) => {
  const { attached, broker, caller, close } = await rig(t, { limits: { ...defaultLimits, sessionsMax: 3, sessionsPerProcessMax: 2 } });
  const first = await caller('b-s1');
  await caller('b-s2');
  const refused = await caller('b-s3').catch((error: unknown) => error);
  t.match(refused, { code: 'too_many_own_sessions', retryable: true, details: { limit: '2', pid: String(process.pid) } });
  const elsewhere = async (pid: number) => {
    const [callerEnd, dataEnd] = memoryPair('data');
    Object.defineProperty(dataEnd, 'peerPid', { value: pid });
    attached.data.accept(dataEnd);
    return openCaller({ stream: callerEnd, ticket: broker.ticket('b-s4'), caller: 'b-s4' });
  };
  const other = await elsewhere(process.pid + 1);
  t.match(await read(other.generate(ask(model()))), { text: 'hello there' });
  t.match(await elsewhere(process.pid + 2).catch((error: unknown) => error), { code: 'too_many_sessions', details: { limit: '3' } });
  first.close();
  other.close();
  await until('its place to be free', () => caller('b-s5').then(() => true, () => false));
  await close();
});
