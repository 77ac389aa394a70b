/** Sessions with a scripted broker: what a client asks, what a holder holds, and how both end. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { defaultLimits, LeaseholdError, type ControlMessage, type Limits } from '../../protocol/index.js';
import { listen, memoryPair, monotonicUs } from '../../protocol/node/index.js';
import { connectBroker, openCaller, type BrokerSession, type EvictAnswer, type EvictOrder, type HeldLease } from '../../src/client/index.js';
import { FakeBroker, type FakeBrokerOptions } from '../workers/fake-broker.js';
import { codeOf, model } from '../workers/in-process.js';

const secret = 'ef'.repeat(32);

async function session(role: 'holder' | 'client', options: FakeBrokerOptions = {}, limits: Limits = defaultLimits): Promise<{ readonly broker: FakeBroker; readonly session: BrokerSession }> {
  const [brokerEnd, ourEnd] = memoryPair('control');
  const broker = new FakeBroker(brokerEnd, options);
  return { broker, session: await connectBroker({ stream: ourEnd, secret, role, name: 'a test', limits }) };
}

/** Lets everything that is ready to happen happen. */
async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

t.test('a client', async (t) => {
  t.test('proves itself, asks, and gets typed answers', async (t) => {
    const answers = (message: ControlMessage, broker: FakeBroker): boolean => {
      const { channel } = broker;
      switch (message.type) {
        case 'place':
          channel.send({ type: 'waiting', id: message.id, position: 1, reason: 'a worker starts', explain: 'b-x1' });
          channel.send({ type: 'placed', id: message.id, generation: 'b-w1', devices: ['SIM-a'], dataSocket: '/run/d.sock', ticket: 'a ticket', explain: 'b-x2' });
          return true;
        case 'ledger':
          channel.send({ type: 'ledger_state', id: message.id, json: '{"cards":[]}' });
          return true;
        case 'explain':
          channel.send({ type: 'explanation', id: message.id, records: ['{"id":"b-x2"}'] });
          return true;
        case 'evict':
          channel.send({ type: 'evicted', id: message.id, freedBytes: 12 });
          return true;
        case 'pin':
          channel.send({ type: 'error', id: message.id, code: 'model_unknown', message: '', details: { model: message.model, known: '' } });
          return true;
        default:
          return false;
      }
    };
    const { broker, session: client } = await session('client', { onMessage: answers });
    t.match(await broker.heard('hello'), { role: 'client', spawn: null, proof: /^[0-9a-f]{64}$/, name: 'a test' });
    t.match([client.generation, client.bootId, client.open], ['b-s1', 'b', true]);
    const waited: string[] = [];
    const placed = await client.place({ model: 'm', engine: 'llama', estimateBytes: null, class: 'interactive', onWaiting: ({ reason }) => waited.push(reason) });
    t.match(placed, { generation: 'b-w1', devices: ['SIM-a'], dataSocket: '/run/d.sock', ticket: 'a ticket', explain: 'b-x2' });
    t.strictSame(waited, ['a worker starts']);
    t.match(broker.all('place'), [{ class: 'interactive', deadlineMs: 120_000, device: null, policy: { ttlMs: null, pinned: false, exclusive: false } }]);
    t.strictSame(await client.ledger(), { cards: [] });
    t.strictSame(await client.explain({ model: 'm' }), [{ id: 'b-x2' }]);
    t.strictSame(await client.evict('m'), { freedBytes: 12 });
    t.match(await client.pin('m', true).catch((error: unknown) => error), { code: 'model_unknown', details: { model: 'm' } });
    t.equal(await codeOf(client.holdLease({ model: 'm', device: 'SIM-a', bytes: 1, onEvict: () => 'busy' })), 'message_unexpected');
    t.equal(broker.all('heartbeat').length, 0, 'a client has nothing to keep');
    await client.close();
    t.equal(await codeOf(client.ledger()), 'closed');
    t.equal(await codeOf(client.subscribe()[Symbol.asyncIterator]().next()), 'closed');
  });

  t.test('an aborted wait is taken back at the broker', async (t) => {
    const { broker, session: client } = await session('client', { onMessage: (message) => message.type === 'place' });
    const stop = new AbortController();
    const placing = codeOf(client.place({ model: 'm', engine: 'llama', estimateBytes: 1, signal: stop.signal }));
    const { id } = await broker.heard('place');
    stop.abort();
    t.equal(await placing, 'request_cancelled');
    t.match(await broker.heard('cancel'), { target: id });
    await client.close();
  });

  t.test('hears events by one subscription; a slow reader loses the oldest and is told how many', async (t) => {
    const { broker, session: client } = await session('client', {
      onMessage: (message, to) => {
        if (message.type !== 'subscribe') return false;
        to.channel.send({ type: 'ok', id: message.id });
        return true;
      },
    }, { ...defaultLimits, subscriberEventsMax: 3 });
    const events = client.subscribe()[Symbol.asyncIterator]();
    const stop = new AbortController();
    const others = client.subscribe({ signal: stop.signal })[Symbol.asyncIterator]();
    const firsts = Promise.all([events.next(), others.next()]);
    await broker.heard('subscribe');
    const tell = (seq: number): void => { broker.channel.send({ type: 'event', seq, atUs: seq, name: 'granted', json: JSON.stringify({ seq }), dropped: 0 }); };
    tell(1);
    t.match(await firsts, [{ value: { seq: 1, name: 'granted', data: { seq: 1 }, dropped: 0 } }, { value: { seq: 1 } }]);
    for (let seq = 2; seq <= 6; seq++) tell(seq);
    await turns();
    t.match(await events.next(), { value: { seq: 4, dropped: 2 } }, '2 and 3 were lost');
    t.match(await events.next(), { value: { seq: 5, dropped: 0 } });
    t.equal(broker.all('subscribe').length, 1);
    stop.abort();
    for (const seq of [4, 5, 6]) t.match(await others.next(), { value: { seq } }, 'what had come is still read');
    t.match(await others.next(), { done: true });
    broker.channel.destroy();
    await events.next();
    t.match(await codeOf(events.next()), 'connection_lost');
    t.match(await client.closed, { code: 'connection_lost' });
  });

  t.test('a broker that refuses or is not there is a typed error', async (t) => {
    const [brokerEnd, ourEnd] = memoryPair();
    const broker = new FakeBroker(brokerEnd, {
      onMessage: (message, to) => {
        if (message.type === 'hello') to.channel.destroy(new LeaseholdError('hello_refused', { role: message.role }));
        return true;
      },
    });
    t.equal(await codeOf(connectBroker({ stream: ourEnd, secret, role: 'client', name: 'x' })), 'hello_refused');
    await broker.closed;
    t.equal(await codeOf(connectBroker({ socketPath: '/nonexistent/b.sock', secret, role: 'client', name: 'x' })), 'connect_failed');
    t.equal(await codeOf(openCaller({ dataSocket: '/nonexistent/d.sock', ticket: 't', caller: 'c' })), 'connect_failed');
    t.equal(await codeOf(openCaller({ ticket: 't', caller: 'c' })), 'input_invalid');
    t.equal(model().key, 'm');
  });
});

interface Held {
  readonly broker: FakeBroker;
  readonly holder: BrokerSession;
  readonly lease: HeldLease;
  readonly orders: EvictOrder[];
}

/** A holder with one lease whose handler answers as given. */
async function holding(answer: (order: EvictOrder) => Promise<EvictAnswer> | EvictAnswer, options: FakeBrokerOptions = {}, limits: Limits = defaultLimits): Promise<Held> {
  const { broker, session: holder } = await session('holder', options, limits);
  const orders: EvictOrder[] = [];
  const lease = await holder.holdLease({
    model: 'm', device: 'SIM-a', bytes: 1_000, parkable: true,
    onEvict: (order) => {
      orders.push(order);
      return answer(order);
    },
  });
  await lease.loaded({ residentBytes: 900, loadMs: 3 });
  return { broker, holder, lease, orders };
}

const order = { generation: 'b-s1' } as const;

t.test('whoever closes a session hears so of what is still asked, over a socket as well, whose end takes a while', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'lh-'));
  t.teardown(() => { rmSync(folder, { recursive: true }); });
  const path = join(folder, 's');
  const brokers: FakeBroker[] = [];
  const listener = await listen({ path, onConnection: (stream) => { brokers.push(new FakeBroker(stream)); } });
  t.teardown(() => listener.close());
  const client = await connectBroker({ socketPath: path, secret, role: 'client', name: 'a test' });
  const asked = codeOf(client.ledger());
  await brokers[0]?.heard('ledger');
  await client.close();
  t.equal(await asked, 'closed');
});

t.test('a holder', async (t) => {
  t.test('asks, confirms, reports, beats, and gives back', async (t) => {
    const { broker, holder, lease } = await holding(() => 'busy');
    t.match(broker.all('request_vram_budget'), [{ model: 'm', device: 'SIM-a', lease: null, parts: [{ name: 'held', bytes: 1_000, upFront: false }], source: 'declared', parkable: true }]);
    t.match(broker.all('loading'), [{ lease: 'b-l1' }]);
    t.match(broker.all('residency'), [{ state: 'resident', residentBytes: 900, loadMs: 3, parts: [{ name: 'held', bytes: 1_000 }] }]);
    t.ok(broker.all('heartbeat').length >= 1, 'it lives, and says so');
    t.match([lease.chargedBytes, lease.held, lease.explain], [1_000, true, 'b-x1']);
    const done = lease.use();
    const again = lease.use();
    done();
    done();
    t.equal(lease.inFlight, 1, 'ending a use twice ends it once');
    again();
    await turns();
    t.strictSame(broker.all('in_use').map(({ inFlight }) => inFlight), [1, 2, 1, 0]);
    t.match(await broker.channel.request({ type: 'list_models' }, { timeoutMs: 10_000 }), { models: [{ model: 'm', lease: 'b-l1', state: 'resident', residentBytes: 900 }] });
    t.match(await broker.channel.request({ type: 'recall_lease', lease: 'b-l1' }, { timeoutMs: 10_000 }), { begun: true });
    lease.release();
    lease.release();
    await turns();
    t.match(broker.all('release_lease'), [{ lease: 'b-l1', cause: 'unloaded' }]);
    t.match(await lease.loaded({ residentBytes: 1 }).catch((error: unknown) => error), { code: 'closed', message: 'The lease of m (it was released) has been closed.', help: 'Ask for a new lease.' });
    t.match(await lease.ended, { code: 'closed' });
    t.match(await broker.channel.request({ type: 'recall_lease', lease: 'b-l1' }, { timeoutMs: 10_000 }), { begun: false });
    await holder.close();
  });

  t.test('is told to evict when nothing uses it, and says what is left', async (t) => {
    const { broker, holder, lease, orders } = await holding(() => ({ residentBytes: 0 }));
    const done = lease.use();
    t.match(await broker.move({ ...order, when: 'now' }).answer, { type: 'busy', inFlight: 1 });
    const move = broker.move({ ...order, when: 'drained', target: 'none' });
    await turns();
    t.match(move.interim, [{ type: 'draining', inFlight: 1 }]);
    t.equal(orders.length, 0, 'not while it is in use');
    done();
    t.match(await move.answer, { type: 'done', target: 'none', freedBytes: 900, residentBytes: 0, newModels: { added: [{ state: 'absent' }] } });
    t.match(orders, [{ target: 'none', bytes: null, when: 'drained' }]);
    t.notOk(lease.held);
    t.throws(() => lease.use(), { code: 'closed', message: /\(it was evicted: a test\)/ });
    await holder.close();
  });

  t.test('may keep a copy, free a part, refuse, fail, or be busy; each is told as it is', async (t) => {
    const answers: (() => EvictAnswer)[] = [
      () => ({ residentBytes: 400, hostBytes: 0 }), () => ({ residentBytes: 0, hostBytes: 900 }), () => 'unsupported', () => 'busy', () => { throw new Error('the driver said no'); },
    ];
    const { broker, holder, lease } = await holding(() => (answers.shift() ?? (() => 'busy'))());
    t.match(await broker.move({ ...order, bytes: 500 }).answer, { type: 'done', target: 'host', freedBytes: 500, residentBytes: 400 });
    t.match(await broker.move({ ...order, target: 'host' }).answer, { type: 'done', target: 'host', freedBytes: 400, residentBytes: 0, hostBytes: 900 });
    t.equal(lease.state.state, 'parked');
    t.match(await broker.move(order).answer, { type: 'unsupported' });
    t.match(await broker.move(order).answer, { type: 'busy' });
    t.match(await broker.move(order).answer, { type: 'failed', code: 'move_failed', message: /driver said no/ });
    t.match(await broker.move({ ...order, lease: 'b-l7' }).answer, { type: 'failed', code: 'lease_unknown' });
    t.match(await broker.move({ ...order, generation: 'b-s9' }).answer, { type: 'failed', code: 'generation_stale' });
    t.ok(lease.held);
    await holder.close();
  });

  t.test('warns its own program of a handler that throws, answers nothing, or frees nothing; the lease stays and the broker is told', async (t) => {
    const warnings: (Error & { readonly code?: string; readonly detail?: string })[] = [];
    const onWarning = (warning: Error): void => { warnings.push(warning); };
    process.on('warning', onWarning);
    const answers: (() => unknown)[] = [
      () => { throw new TypeError('free is not a function'); }, () => undefined, () => 'later', () => ({ residentBytes: 900 }), () => ({ residentBytes: Number.NaN }), async () => Promise.reject(new LeaseholdError('request_cancelled', { what: 'It' })),
    ];
    const { broker, holder, lease } = await holding(() => (answers.shift() ?? (() => 'busy'))() as EvictAnswer);
    const reasons = [/free is not a function/, /onEvict: it must return \{ residentBytes \}, 'busy' or 'unsupported', not undefined/, /not "later"/, /residentBytes 900: all of it is still there/, /what onEvict returns: residentBytes: it must be/, /It was cancelled/];
    for (const reason of reasons) {
      t.match(await broker.move(order).answer, { type: 'failed', code: 'move_failed', message: reason, residentBytes: 900 });
      lease.use()();
    }
    await turns();
    process.off('warning', onWarning);
    t.strictSame(warnings.map(({ name, code }) => [name, code]), reasons.map(() => ['LeaseholdWarning', 'move_failed']));
    t.match(warnings[0], { message: 'Moving m failed: free is not a function.', detail: /a second failure in a row[^]*TypeError: free[^]*client\.test/ }, 'with the place where it was thrown');
    t.ok(lease.held);
    await holder.close();
  });

  t.test('warns its own program of a handler that does not settle, once; what it answers later counts', async (t) => {
    const warned = new Promise<Error>((resolve) => { process.once('warning', resolve); });
    let settle: (answer: EvictAnswer) => void = () => undefined;
    const { broker, holder } = await holding(() => new Promise((resolve) => { settle = resolve; }), {}, { ...defaultLimits, leavingSlowMs: 20 });
    const { answer } = broker.move(order);
    t.match(await warned, { name: 'LeaseholdWarning', code: 'move_failed', message: 'Moving m failed: its onEvict has not settled for 20 ms.', detail: /stay charged/ });
    settle({ residentBytes: 0 });
    t.match(await answer, { type: 'done', residentBytes: 0 });
    await holder.close();
  });

  t.test('whose lease is quarantined may not use it any more, and may still give it back', async (t) => {
    const { broker, holder, lease } = await holding(() => 'busy');
    broker.channel.send({ type: 'lease_quarantined', lease: 'b-l1', bytes: 990, reason: 'the move took too long' });
    t.match(await lease.ended, { code: 'quarantined', message: '990 bytes on SIM-a could not be freed and are quarantined: m: the move took too long.', help: /release\(\)/ });
    t.throws(() => lease.use(), { code: 'quarantined' });
    t.equal(lease.held, false);
    lease.release();
    lease.release();
    t.match(await broker.heard('release_lease'), { lease: 'b-l1' });
    t.equal(broker.all('release_lease').length, 1);
    t.throws(() => lease.use(), { code: 'closed' });
    await holder.close();
  });

  t.test('B193: an order that expires or is taken back before it begins is not carried out', async (t) => {
    const { broker, holder, lease, orders } = await holding(() => ({ residentBytes: 0 }));
    const done = lease.use();
    t.match(await broker.move({ ...order, expiresMs: 1 }).answer, { type: 'failed', code: 'command_expired' });
    const late = broker.move({ ...order, when: 'now', sentUs: monotonicUs() - 5_000_000, expiresMs: 5_000 });
    t.match(await late.answer, { type: 'failed', code: 'command_expired' }, 'B31: counted from its sending');
    t.strictSame(late.interim, []);
    const move = broker.move(order);
    await turns();
    broker.channel.send({ type: 'cancel', target: move.id });
    t.match(await move.answer, { type: 'failed', code: 'request_cancelled' });
    done();
    await turns();
    t.equal(orders.length, 0);
    const again = lease.use();
    const sentUs = monotonicUs();
    const stalled = broker.move({ ...order, sentUs, expiresMs: 500 });
    await turns();
    t.match(stalled.interim, [{ type: 'draining', inFlight: 1 }]);
    while (monotonicUs() < sentUs + 500_000);
    again();
    t.match(await stalled.answer, { type: 'failed', code: 'command_expired' }, 'the last use ends after its time, and before any timer is looked at');
    t.equal(orders.length, 0);
    t.ok(lease.held);
    await holder.close();
  });

  t.test('grows at once or is refused with numbers; wrong bytes never reach the wire', async (t) => {
    const { broker, holder, lease } = await holding(() => 'busy', {
      onMessage: (message, to) => {
        if (message.type !== 'resize_lease') return false;
        const bytes = message.parts.reduce((sum, part) => sum + part.bytes, 0);
        if (bytes <= 5_000) to.channel.send({ type: 'grant', id: message.id, lease: message.lease, device: 'SIM-a', chargedBytes: bytes, explain: null });
        else to.channel.send({ type: 'deny', id: message.id, code: 'resize_denied', message: '', numbers: null, couldHaveBytes: 5_000, roomElsewhere: [], retryAfterMs: null, explain: null });
        return true;
      },
    });
    await lease.resize([{ name: 'held', kind: 'other', bytes: 4_000, upFront: false }]);
    t.equal(lease.chargedBytes, 4_000);
    t.match(await lease.resize([{ name: 'held', kind: 'other', bytes: 9_000, upFront: false }]).catch((error: unknown) => error), { code: 'resize_denied', details: { couldHaveBytes: '5000', model: 'm' } });
    t.equal(lease.chargedBytes, 4_000);
    for (const bytes of [-1, 1.5, Number.NaN, 2 ** 53]) t.equal(await codeOf(holder.holdLease({ model: 'n', device: 'SIM-a', bytes, onEvict: () => 'busy' })), 'bytes_invalid');
    const twice = ['held', 'other', 'held'].map((name) => ({ name, kind: 'other' as const, bytes: 1_000, upFront: false }));
    const refused = { code: 'input_invalid', message: /parts:? ?\[2\]\.name: it must be another than that of an item before it: "held" is there twice/ };
    await t.rejects(holder.holdLease({ model: 'n', device: 'SIM-a', parts: twice, onEvict: () => 'busy' }), refused, 'two parts of one name are no lease');
    await t.rejects(lease.resize(twice), refused);
    await t.rejects(lease.loaded({ residentBytes: 1, parts: twice }), refused);
    t.equal(broker.all('request_vram_budget').length, 1);
    await holder.close();
  });

  t.test('figures that are none cost the call that gave them, and never the session', async (t) => {
    const answers: unknown[] = [undefined, {}, { residentBytes: Number.NaN }, { residentBytes: 0, hostBytes: -1 }, { residentBytes: () => 1 }, 'later'];
    const { broker, holder, lease } = await holding(() => answers.shift() as EvictAnswer);
    for (const residentBytes of [-1, 1.5, Number.NaN, 2 ** 53, '5', () => 1, Symbol('s')]) t.equal(await codeOf(lease.loaded({ residentBytes } as unknown as { residentBytes: number })), 'input_invalid');
    for (const measured of [undefined, null, { residentBytes: 1, hostBytes: Number.NaN }, { residentBytes: 1, parts: 'all' }, { residentBytes: 1, loadMs: -1 }]) t.equal(await codeOf(lease.loaded(measured as unknown as { residentBytes: number })), 'input_invalid');
    for (const parts of [undefined, 'all', [{ name: 'held' }], [Symbol('s')]]) t.equal(await codeOf(lease.resize(parts as unknown as [])), 'input_invalid');
    for (let each = answers.length; each > 0; each--) t.match(await broker.move(order).answer, { type: 'failed', code: 'move_failed', message: /onEvict.* must/, residentBytes: 900 });
    t.match([lease.held, lease.residentBytes, lease.state.state], [true, 900, 'resident'], 'nothing of it was kept');
    t.ok(holder.open);
    t.equal(broker.all('residency').length, 1);
    const other = await holder.holdLease({ model: 'n', device: 'SIM-a', bytes: 1, onEvict: () => 'busy' });
    await lease.loaded({ residentBytes: Number.MAX_SAFE_INTEGER });
    await other.loaded({ residentBytes: Number.MAX_SAFE_INTEGER });
    const beats = broker.all('heartbeat').length;
    while (holder.open && broker.all('heartbeat').length === beats) await new Promise((resolve) => setTimeout(resolve, 10));
    t.strictSame(broker.all('heartbeat').at(-1)?.reserved, [{ device: 'SIM-a', bytes: Number.MAX_SAFE_INTEGER }], 'a sum that the wire carries');
    await holder.close();
  });

  t.test('a grant that comes after its request was given up is given back', async (t) => {
    const { broker, session: holder } = await session('holder', { onBudget: () => true });
    const stop = new AbortController();
    const held = codeOf(holder.holdLease({ model: 'm', device: 'SIM-a', bytes: 5, onEvict: () => 'busy', signal: stop.signal }));
    const request = await broker.heard('request_vram_budget');
    stop.abort();
    t.equal(await held, 'request_cancelled');
    broker.grant(request);
    t.match(await broker.heard('release_lease'), { lease: 'b-l1', cause: 'unused' });
    await holder.close();
  });

  t.test('loses its leases with the session, and an order underway is aborted', async (t) => {
    let aborted: () => void = () => undefined;
    const abort = new Promise<void>((resolve) => { aborted = resolve; });
    const { broker, holder, lease } = await holding(({ signal }) => new Promise((resolve) => {
      signal.addEventListener('abort', () => {
        aborted();
        resolve('busy');
      });
    }));
    void broker.move(order).answer.catch(() => undefined);
    await turns();
    broker.channel.destroy();
    await abort;
    t.equal(await codeOf(lease.loaded({ residentBytes: 1 })), 'connection_lost');
    t.match(await holder.closed, { code: 'connection_lost' });
  });
});
