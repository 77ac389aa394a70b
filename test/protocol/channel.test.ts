/** Channels, over memory and over sockets alike: answers find their requests and nothing else; faults end what they must and no more. */
import fc from 'fast-check';
import t from 'tap';
import { defaultLimits, FrameDecoder, frameOf, LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import { createCodec, memoryPair, type ByteStream } from '../../protocol/node/index.js';
import { example, greeted, hello, hex, openEnd, promise, streams, vectorsOf, welcome, type Carrier, type End } from './support.js';

const codec = createCodec();
const carriers: readonly Carrier[] = ['memory', 'socket'];
const limit = { timeoutMs: 10_000 } as const;
const budget = (({ id: _, ...request }) => request)(example('control', 'request_vram_budget') as Extract<ControlMessage, { type: 'request_vram_budget' }>);
const move = (({ id: _, ...request }) => request)(
  example('control', 'model_to_device: unload when the last call has ended') as Extract<ControlMessage, { type: 'model_to_device' }>,
);

function grantFor(message: ControlMessage): ControlMessage {
  return { ...(example('control', 'grant') as Extract<ControlMessage, { type: 'grant' }>), id: (message as { id: number }).id };
}

function grantAll(end: End<'control'>): void {
  end.onMessage = (message) => {
    if (message.type === 'request_vram_budget') end.channel.send(grantFor(message));
  };
}

/** The bytes of messages that no channel would send. */
function rawFrame(...messages: readonly object[]): Uint8Array {
  return Buffer.concat(messages.map((message) => codec.encode(message)));
}

type RawWorker = readonly [broker: End<'control'>, worker: ByteStream, next: () => Promise<ControlMessage>];

/** A greeted worker without a channel: its raw stream, and the broker's end. */
async function rawWorker(t: Parameters<typeof streams>[0], carrier: Carrier, limits = {}): Promise<RawWorker> {
  const [listening, raw] = await streams(t, carrier);
  const broker = openEnd(listening, 'control', 'broker', limits);
  broker.onMessage = (message) => {
    if (message.type === 'hello') broker.channel.send({ ...welcome, id: message.id });
    if (message.type === 'ready') broker.channel.send({ type: 'ok', id: message.id });
  };
  const arrived: ControlMessage[] = [];
  const waiting: ((message: ControlMessage) => void)[] = [];
  const decoder = new FrameDecoder(defaultLimits.frameBytesMax);
  raw.onData((chunk) => {
    for (const body of decoder.push(chunk)) {
      const message = codec.decode(body) as ControlMessage;
      const reader = waiting.shift();
      if (reader === undefined) arrived.push(message);
      else reader(message);
    }
  });
  const next = (): Promise<ControlMessage> => {
    const message = arrived.shift();
    return message === undefined ? new Promise((resolve) => { waiting.push(resolve); }) : Promise.resolve(message);
  };
  raw.write(rawFrame({ ...hello, id: 1 }));
  await next();
  raw.write(rawFrame({ ...(example('control', 'ready') as object), id: 2 }));
  await next();
  return [broker, raw, next];
}

for (const carrier of carriers) {
  t.test(`over ${carrier}`, async (t) => {
    t.test('a request gets its interim answers in order and then its answer', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      broker.onMessage = (message) => {
        const { id } = message as { id: number };
        for (const position of [2, 1, 0]) broker.channel.send({ type: 'waiting', id, position, reason: '', explain: null });
        broker.channel.send(grantFor(message));
      };
      const positions: unknown[] = [];
      const answer = await worker.channel.request(budget, { ...limit, onInterim: (message) => { positions.push((message as { position: number }).position); } });
      t.equal(answer.type, 'grant');
      t.strictSame(positions, [2, 1, 0]);
    });

    t.test('a listener that throws loses its own request, which is taken back, and nothing else', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const heard: ControlMessage[] = [];
      broker.onMessage = (message) => {
        heard.push(message);
        const { id, type } = message as { id: number; type: string };
        if (type !== 'cancel') for (const position of [2, 1]) broker.channel.send({ type: 'waiting', id, position, reason: '', explain: null });
      };
      const mine = new Error('mine');
      const deaf = await worker.channel.request(budget, { ...limit, onInterim: () => { throw mine; } }).catch((error: unknown) => error);
      t.match(deaf, { code: 'input_invalid', message: 'what listens to waiting: mine.', cause: mine });
      const stop = new AbortController();
      const next = await worker.channel.request(budget, { ...limit, signal: stop.signal, onInterim: () => { stop.abort(); } }).catch((error: unknown) => error);
      t.match(next, { code: 'request_cancelled' }, 'the connection goes on');
      const [first, back] = [heard.find(({ type }) => type === 'request_vram_budget'), heard.find(({ type }) => type === 'cancel')] as [{ id: number }, { target: number }];
      t.equal(back.target, first.id);
    });

    t.test('a thousand requests in the air, answered in any order, each get their own answer', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const asked: { readonly id: number; readonly peakBytes: number }[] = [];
      broker.onMessage = (message) => {
        asked.push(message as Extract<ControlMessage, { type: 'request_vram_budget' }>);
        if (asked.length < 1_000) return;
        const shuffled = asked.sort((left, right) => ((left.id * 7_919) % 1_009) - ((right.id * 7_919) % 1_009));
        for (const { id, peakBytes } of shuffled) broker.channel.send({ type: 'grant', id, lease: `b-l${String(peakBytes)}`, device: 'CPU-0', chargedBytes: 0, explain: null });
      };
      const answers = await Promise.all(Array.from({ length: 1_000 }, (_, peakBytes) => worker.channel.request({ ...budget, peakBytes }, limit)));
      t.strictSame(answers.map((answer) => (answer as { lease: string }).lease), Array.from({ length: 1_000 }, (_, index) => `b-l${String(index)}`));
    });

    t.test('both directions ask at once with the same ids', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      grantAll(broker);
      worker.onMessage = (message) => { worker.channel.send({ type: 'busy', id: (message as { id: number }).id, inFlight: 1 }); };
      const [granted, busy] = await Promise.all([worker.channel.request(budget, limit), broker.channel.request(move, limit)]);
      t.strictSame([granted.type, busy.type], ['grant', 'busy'], 'busy is a result, not an exception');
    });

    t.test('an error answer rejects with its code, text and details', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      broker.onMessage = (message) => {
        const error = new LeaseholdError('device_unknown', { device: 'GPU-9', known: 'GPU-1' });
        broker.channel.send({ type: 'error', id: (message as { id: number }).id, code: error.code, message: error.message, details: error.details });
      };
      await t.rejects(worker.channel.request(budget, limit), { code: 'device_unknown', message: 'There is no card GPU-9; known: GPU-1.', details: { device: 'GPU-9' } });
      t.ok(worker.channel.open, 'and the connection lives');
    });

    t.test('a request that nobody answers ends by its own limit, is taken back at the peer, and its late answer is ignored', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const rejected = t.rejects(worker.channel.request(budget, { timeoutMs: 20 }), { code: 'deadline_passed', details: { what: 'request_vram_budget', deadlineMs: '20' } });
      const asked = await broker.next();
      await rejected;
      t.strictSame(await broker.next(), { type: 'cancel', target: (asked as { id: number }).id });
      broker.channel.send(grantFor(asked));
      grantAll(broker);
      t.equal((await worker.channel.request(budget, limit)).type, 'grant');
      t.equal(worker.channel.strays, 1, 'B182: ignored and counted');
    });

    t.test('a signal takes a request back; one already raised sends nothing', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const controller = new AbortController();
      const rejected = t.rejects(worker.channel.request(budget, { timeoutMs: null, signal: controller.signal }), { code: 'request_cancelled' });
      const asked = await broker.next();
      controller.abort();
      await rejected;
      t.strictSame(await broker.next(), { type: 'cancel', target: (asked as { id: number }).id });
      await t.rejects(worker.channel.request(budget, { timeoutMs: null, signal: controller.signal }), { code: 'request_cancelled' });
      grantAll(broker);
      await worker.channel.request(budget, limit);
      t.equal(broker.received.filter(({ type }) => type === 'request_vram_budget').length, 2);
    });

    t.test('B182: duplicate, unknown and late answers are ignored and counted, also one with another connection’s id', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier);
      const [other] = await greeted(t, carrier);
      const stolen = t.rejects(other.channel.request(move, { timeoutMs: 200 }), { code: 'deadline_passed' }, 'no answer came by its own connection');
      const request = broker.channel.request(move, limit);
      const asked = (await next()) as { id: number };
      const done = { ...(example('control', 'done') as object), id: asked.id };
      worker.write(rawFrame(done, done, { ...done, id: 999 }, { ...done, id: other.channel.nextId() - 1 }));
      t.equal((await request).type, 'done');
      await stolen;
      t.equal(broker.channel.strays, 3);
      t.equal(broker.strays.length, 3);
      t.ok(broker.channel.open);
    });

    t.test('an answer of the wrong kind ends the request it names with an error', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier);
      const rejected = t.rejects(broker.channel.request(move, limit), { code: 'message_unexpected', message: /does not answer model_to_device/ });
      const asked = (await next()) as { id: number };
      worker.write(rawFrame({ type: 'models', id: asked.id, seq: 1, models: [] }));
      await rejected;
      t.ok(broker.channel.open);
    });

    t.test('an answer that is not valid ends the request it names with an error', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier);
      const rejected = t.rejects(broker.channel.request(move, limit), { code: 'message_invalid', details: { field: 'freedBytes' } });
      const asked = (await next()) as { id: number };
      worker.write(rawFrame({ type: 'done', id: asked.id, target: 'none', freedBytes: -1, residentBytes: 0, hostBytes: 0 }));
      await rejected;
      t.ok(broker.channel.open);
    });

    t.test('a request that is unknown, not valid, not allowed, or open already is answered with an error, and the connection lives', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier);
      const wrong: readonly (readonly [object, string])[] = [
        [{ type: 'grunt', id: 10 }, 'message_unknown'],
        [{ ...budget, id: 11, peakBytes: -1 }, 'message_invalid'],
        [{ type: 'subscribe', id: 12 }, 'message_unexpected'],
        [{ ...hello, id: 13 }, 'message_unexpected'],
        [{ ...(example('control', 'ready') as object), id: 14 }, 'message_unexpected'],
      ];
      for (const [message, code] of wrong) {
        worker.write(rawFrame(message));
        t.match(await next(), { type: 'error', id: (message as { id: number }).id, code });
      }
      worker.write(rawFrame({ type: 'ledger', id: 20 }, { type: 'ledger', id: 20 }));
      t.match(await next(), { type: 'error', id: 20, code: 'id_in_use' });
      t.equal(broker.received.filter(({ type }) => type === 'ledger').length, 1);
      t.ok(broker.channel.open);
    });

    t.test('a waiting request_vram_budget may be sent again under its id, to raise its class', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier);
      worker.write(rawFrame({ ...budget, id: 5, class: 'background' }, { ...budget, id: 5, class: 'interactive' }, { type: 'ledger', id: 5 }));
      t.match(await next(), { type: 'error', id: 5, code: 'id_in_use' }, 'but nothing else under that id');
      t.strictSame(broker.received.flatMap((message) => (message.type === 'request_vram_budget' ? [message.class] : [])), ['background', 'interactive']);
      broker.channel.send(grantFor({ ...budget, id: 5 }));
      broker.channel.send(grantFor({ ...budget, id: 5 }));
      broker.channel.send({ type: 'waiting', id: 5, position: 0, reason: '', explain: null });
      broker.channel.send({ type: 'shutdown', id: 1, graceMs: 0, reason: 'last' });
      t.match(await next(), { type: 'grant', id: 5 });
      t.match(await next(), { type: 'shutdown' }, 'one answer only, and nothing after it');
    });

    t.test('more open requests than allowed are refused, on both sides', async (t) => {
      const [broker, worker, next] = await rawWorker(t, carrier, { openRequestsPerSessionMax: 3 });
      worker.write(rawFrame(...[1, 2, 3, 4, 5].map((id) => ({ ...budget, id: 100 + id }))));
      t.match(await next(), { type: 'error', id: 104, code: 'too_many_requests', details: { limit: '3' } });
      t.match(await next(), { type: 'error', id: 105, code: 'too_many_requests' });
      t.equal(broker.received.filter(({ type }) => type === 'request_vram_budget').length, 3);
      const asked = Promise.allSettled([1, 2, 3].map(() => broker.channel.request(move, { timeoutMs: null })));
      await t.rejects(broker.channel.request(move, limit), { code: 'too_many_requests' });
      broker.channel.destroy();
      t.strictSame((await asked).map(({ status }) => status), ['rejected', 'rejected', 'rejected']);
    });

    for (const [name, bytes, code] of [
      ['bytes that are no message', Buffer.from(frameOf(Buffer.from('garbage'))), 'frame_malformed'],
      ['a length of 4 GiB', hex('ffffffff'), 'frame_too_large'],
      ['a notification that is not valid', rawFrame({ type: 'in_use', seq: 1 }), 'message_invalid'],
      ['a notification that is not allowed', rawFrame({ type: 'credits', target: 1 }), 'message_unknown'],
      ['a hello once more, without an id', rawFrame({ type: 'hello' }), 'message_invalid'],
    ] as const) {
      t.test(`${name}: the peer is told why, open requests end, and the connection closes`, async (t) => {
        const [broker, worker, next] = await rawWorker(t, carrier);
        const rejected = t.rejects(broker.channel.request(move, { timeoutMs: null }), { code });
        await next();
        // What follows a fault is not even looked at.
        worker.write(Buffer.concat([bytes, rawFrame({ type: 'ledger', id: 30 })]));
        t.match(await next(), { type: 'error', id: null, code });
        await rejected;
        t.match(await broker.closed, { code });
        t.notOk(broker.channel.open);
        t.notOk(broker.received.some(({ type }) => type === 'ledger'));
      });
    }

    t.test('before the greeting is over any fault ends the connection', async (t) => {
      for (const [bytes, code] of [
        [rawFrame({ type: 'ledger', id: 1 }), 'message_unexpected'],
        [rawFrame({ ...hello, id: 1, proof: 'short' }), 'message_invalid'],
        [rawFrame({ ...hello, id: 1 }, { type: 'ledger', id: 2 }), 'message_unexpected'],
        [rawFrame({ ...hello, id: 1, name: 'x'.repeat(5_000) }), 'frame_too_large'],
        [hex('06400000'), 'frame_too_large'],
      ] as const) {
        const [listening, raw] = await streams(t, carrier);
        const broker = openEnd(listening, 'control', 'broker');
        raw.onData(() => undefined);
        raw.write(bytes);
        t.match(await broker.closed, { code }, code);
      }
    });

    t.test('a peer that never says hello is closed in time; one that is greeted is not', async (t) => {
      const [listening, raw] = await streams(t, carrier);
      const broker = openEnd(listening, 'control', 'broker', { helloTimeoutMs: 30 });
      const goodbye = promise<Uint8Array>();
      raw.onData(goodbye.resolve);
      const [greetedBroker] = await greeted(t, carrier, 'worker', { broker: { helloTimeoutMs: 2_000 } });
      t.match(await broker.closed, { code: 'hello_timeout', details: { limitMs: '30' } });
      t.match(codec.decode((await goodbye.promise).subarray(4)), { type: 'error', id: null, code: 'hello_timeout' });
      t.ok(greetedBroker.channel.open);
    });

    t.test('frames are small before the greeting and large after it, for both directions', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      grantAll(broker);
      const parts = Array.from({ length: 1_000 }, (_, index) => ({ name: `context:${String(index)}`, kind: 'context', bytes: index, upFront: true } as const));
      t.equal((await worker.channel.request({ ...budget, parts }, limit)).type, 'grant', 'well above 4 KiB');
    });

    t.test('a message larger than the peer takes is refused here: a request rejects, an answer becomes an error, a notification ends the session', async (t) => {
      const [broker, worker] = await greeted(t, carrier, 'worker', { broker: { frameBytesMax: 8_192 } });
      broker.onMessage = (message) => { broker.channel.send({ type: 'ledger_state', id: (message as { id: number }).id, json: 'x'.repeat(10_000) }); };
      await t.rejects(worker.channel.request({ type: 'ledger' }, limit), { code: 'frame_too_large', details: { limitBytes: '8192' } });
      t.ok(worker.channel.open && broker.channel.open);
      await t.rejects(broker.channel.request({ ...move, reason: 'x'.repeat(9_000) }, limit), { code: 'frame_too_large' });
      broker.channel.send({ type: 'event', seq: 0, atUs: 0, name: 'x', json: 'x'.repeat(9_000), dropped: 0 });
      t.match(await broker.closed, { code: 'frame_too_large' });
      t.match(await worker.closed, { code: 'frame_too_large' }, 'the peer was told');
    });

    t.test('B178: a flood to a peer that does not read is bounded: it is cut off, and others are not disturbed', async (t) => {
      const [broker, worker] = await greeted(t, carrier, 'worker', { broker: { outgoingBytesMax: 1024 * 1024, openRequestsPerSessionMax: 20_000 } });
      const [other, otherWorker] = await greeted(t, carrier);
      grantAll(other);
      worker.channel.pause();
      const commands = Array.from({ length: 10_000 }, () => broker.channel.request({ ...move, reason: 'r'.repeat(1_000) }, { timeoutMs: null }));
      const results = await Promise.allSettled(commands);
      t.ok(results.every((result) => result.status === 'rejected' && (result.reason as LeaseholdError).code === 'peer_too_slow'), 'every command ended, typed');
      t.match(await broker.closed, { code: 'peer_too_slow', retryable: true, details: { limitBytes: String(1024 * 1024) } });
      t.ok(broker.channel.unsentBytes <= 1024 * 1024);
      t.equal((await otherWorker.channel.request(budget, limit)).type, 'grant');
    });

    t.test('B178: what was sent before the end arrives whole, before the end', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const models = Array.from({ length: 1_000 }, (_, index) => ({
        model: `${'m'.repeat(200)}${String(index)}`, lease: null, device: null, state: 'absent', residentBytes: 0, hostBytes: 0, inFlight: 0, parkable: false,
      } as const));
      worker.onMessage = (message) => {
        for (let part = 0; part < 8; part++) worker.channel.send({ type: 'log', level: 'info', message: String(part), fields: {} });
        worker.channel.send({ type: 'models', id: (message as { id: number }).id, seq: 1, models });
        worker.channel.end();
        worker.channel.send({ type: 'log', level: 'info', message: 'too late', fields: {} });
      };
      const answer = await broker.channel.request({ type: 'list_models' }, limit);
      t.strictSame((answer as { models: unknown }).models, models);
      t.match(await broker.closed, { code: 'connection_lost', details: { how: 'clean' } });
      t.match(await worker.closed, { code: 'closed' });
      t.strictSame(broker.received.map((message) => (message as { message?: string }).message), Array.from({ length: 8 }, (_, part) => String(part)));
    });

    t.test('what was sent after an answer is heard after whoever awaited the answer, however far away', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      const heard: string[] = [];
      const ended = promise<void>();
      const away = async (asked: Promise<unknown>): Promise<unknown> => { await Promise.resolve(); const answer = await asked; await Promise.resolve(); return answer; };
      worker.onMessage = (message) => {
        if (message.type !== 'drain') return;
        // All in one chunk, and then the end of it.
        worker.channel.send({ type: 'ok', id: message.id });
        worker.channel.send({ type: 'in_use', seq: message.id, lease: 'b-l1', model: 'm', inFlight: 0, queued: 0 });
        if (message.id === 3) worker.channel.end();
      };
      broker.onMessage = (message) => { heard.push(`in_use ${'seq' in message ? message.seq : ''}`); };
      void broker.closed.then(() => { heard.push('closed'); ended.resolve(); });
      for (const id of [1, 2, 3]) void away(away(broker.channel.request({ type: 'drain' }, { timeoutMs: 10_000 }))).then(() => { heard.push(`answer ${id}`); });
      await ended.promise;
      t.strictSame(heard, ['answer 1', 'in_use 1', 'answer 2', 'in_use 2', 'answer 3', 'in_use 3', 'closed']);
    });

    t.test('a reader that pauses gets everything later, in order; requests to it are not lost', async (t) => {
      const [broker, worker] = await greeted(t, carrier);
      let paused = false;
      worker.onMessage = (message) => {
        worker.channel.send({ type: 'busy', id: (message as { id: number }).id, inFlight: 0 });
        if (paused) return;
        paused = true;
        worker.channel.pause();
        setImmediate(() => { setImmediate(() => { worker.channel.resume(); }); });
      };
      const answers = await Promise.all(Array.from({ length: 200 }, () => broker.channel.request(move, limit)));
      t.equal(answers.length, 200);
      t.strictSame(worker.received.map((message) => (message as { id: number }).id), Array.from({ length: 200 }, (_, index) => index + 1));
    });

    t.test('a connection that breaks inside a frame says so; one that ends between frames does not', async (t) => {
      const [broken, breaking] = await rawWorker(t, carrier);
      breaking.write(rawFrame({ type: 'ledger', id: 9 }).subarray(0, 9));
      breaking.end();
      t.match(await broken.closed, { code: 'connection_lost', message: /in the middle of a frame of \d+ bytes/, details: { how: 'mid_frame' } });
      const [ended, ending] = await rawWorker(t, carrier);
      const rejected = t.rejects(ended.channel.request(move, { timeoutMs: null }), { code: 'connection_lost' });
      ending.end();
      await rejected;
      t.match(await ended.closed, { code: 'connection_lost', details: { how: 'clean' } });
      await t.rejects(ended.channel.request(move, limit), { code: 'connection_lost' }, 'and nothing is asked on it any more');
    });

    t.test('what a side may not send ends its own session rather than reach the peer', async (t) => {
      const [broker, worker] = await greeted(t, carrier, 'client');
      await t.rejects(worker.channel.request(budget, limit), { code: 'message_unexpected' });
      t.ok(worker.channel.open, 'a request just rejects');
      worker.channel.send({ type: 'loading', lease: 'b-l1' });
      t.match(await worker.closed, { code: 'message_unexpected', message: /a client does not send it/ });
      t.match(await broker.closed, { code: 'message_unexpected' }, 'the peer was told');
      t.notOk(broker.received.some(({ type }) => type === 'loading'));
    });

    t.test('R278: any frames at all leave a session open or closed, never hanging, and every other one answers', async (t) => {
      const [other, otherWorker] = await greeted(t, carrier);
      grantAll(other);
      const frames = [...vectorsOf('control'), ...vectorsOf('data'), ...vectorsOf('invalid')].map(({ frame }) => hex(frame));
      await fc.assert(
        fc.asyncProperty(fc.array(fc.oneof({ weight: 5, arbitrary: fc.constantFrom(...frames) }, fc.uint8Array({ maxLength: 64 })), { maxLength: 12 }), async (chunks) => {
          const [broker, raw] = await rawWorker(t, carrier);
          const commands = Promise.allSettled([broker.channel.request(move, { timeoutMs: null }), broker.channel.request({ type: 'list_models' }, { timeoutMs: null })]);
          for (const chunk of chunks) raw.write(chunk);
          raw.end();
          const settled = await commands;
          await broker.closed;
          return settled.every((result) => result.status === 'fulfilled' || result.reason instanceof LeaseholdError);
        }),
        { numRuns: carrier === 'memory' ? 300 : 30 },
      );
      t.equal((await otherWorker.channel.request(budget, limit)).type, 'grant');
    });
  });
}

t.test('a memory pair behaves as a socket does', async (t) => {
  const heard = (stream: ByteStream): { readonly chunks: string[]; readonly closed: Promise<string> } => {
    const chunks: string[] = [];
    stream.onData((chunk) => { chunks.push(Buffer.from(chunk).toString()); });
    return { chunks, closed: new Promise((resolve) => { stream.onClose(resolve); }) };
  };
  t.test('what is written arrives later, in order, and counts as unsent until then', async (t) => {
    const [left, right] = memoryPair();
    const drained = new Promise<void>((resolve) => { left.onDrain(resolve); });
    for (const text of ['a', 'b', 'c'.repeat(100_000)]) left.write(Buffer.from(text));
    t.equal(left.unsentBytes, 100_002);
    const { chunks, closed } = heard(right);
    t.strictSame(chunks, [], 'not within the call');
    await drained;
    t.equal(left.unsentBytes, 0);
    left.write(Buffer.from('d'));
    left.end();
    left.write(Buffer.from('after the end'));
    t.equal(await closed, 'closed by the peer');
    t.strictSame(chunks.map((text) => text[0]), ['a', 'b', 'c', 'd']);
  });
  t.test('destroy loses what is unsent, and both ends hear of it', async (t) => {
    const [left, right] = memoryPair();
    const [atLeft, atRight] = [heard(left), heard(right)];
    left.write(Buffer.from('lost'));
    left.destroy();
    right.write(Buffer.from('lost too'));
    t.strictSame([await atLeft.closed, await atRight.closed], ['closed here', 'closed by the peer']);
    t.strictSame([atLeft.chunks, atRight.chunks], [[], []]);
  });
  t.test('an end waits for a reader that pauses, but not for ever', async (t) => {
    const [left, right] = memoryPair('slow', 50);
    const [atLeft, atRight] = [heard(left), heard(right)];
    right.pause();
    left.write(Buffer.from('never read'));
    // The pair’s own limit holds no process; this test does.
    const holding = setInterval(() => undefined, 1_000);
    left.end();
    t.equal(await atLeft.closed, 'closed here');
    t.equal(await atRight.closed, 'closed by the peer');
    clearInterval(holding);
    t.strictSame(atRight.chunks, []);
  });
});

t.test('a data session: ticket, call, tokens against credits, end', async (t) => {
  const [listening, dialling] = memoryPair();
  const worker = openEnd(listening, 'data', 'worker');
  const caller = openEnd(dialling, 'data', 'caller');
  worker.onMessage = (message) => {
    if (message.type === 'open') worker.channel.send({ type: 'opened', id: message.id, generation: 'b-w1', frameBytesMax: 1_024 * 1_024 });
    if (message.type !== 'generate') return;
    worker.channel.send({ type: 'token', id: message.id, ids: [1], text: 'a', thought: false });
    worker.channel.send({ ...(example('data', 'end') as object), id: message.id } as ReturnType<typeof example<'data'>>);
  };
  await caller.channel.request({ type: 'open', ticket: 't', caller: 'c' }, limit);
  const { id: _, ...generate } = example('data', 'generate: messages') as { id: number } & Parameters<typeof caller.channel.request>[0];
  const tokens: string[] = [];
  const end = await caller.channel.request(generate, { ...limit, onInterim: (message) => { if (message.type === 'token') tokens.push(message.text); } });
  t.equal(end.type, 'end');
  t.strictSame(tokens, ['a']);
  caller.channel.send({ type: 'credits', target: 2, tokens: 8 });
  t.strictSame(await worker.next(), { type: 'credits', target: 2, tokens: 8 });
  await t.rejects(caller.channel.request({ ...generate, prompt: 'x'.repeat(2 * 1024 * 1024) } as typeof generate, limit), { code: 'frame_too_large' }, 'the worker’s own limit holds');
  caller.channel.end();
  t.match(await worker.closed, { code: 'connection_lost' });
});
