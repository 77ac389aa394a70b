/** The simulated worker as a real process, on real sockets. */
import { statSync } from 'node:fs';
import { connect as connectSocket } from 'node:net';
import t from 'tap';
import { defaultLimits, type DataMessage } from '../../protocol/index.js';
import { connect, createTicket, monotonicUs, openChannel } from '../../protocol/node/index.js';
import { openCaller } from '../../src/client/index.js';
import { until } from '../integration/support.js';
import { generation, workerKey } from './fake-broker.js';
import { ask, codeOf, model, models, read } from './in-process.js';
import { childrenOf, environmentOf, spawnWorker } from './spawned.js';

t.test('B94: a flood before ready, one line of 300 KB in it, does not keep the worker from being ready', async (t) => {
  const worker = await spawnWorker({ script: { outputBytes: 1024 * 1024, outputLineBytes: 300_000, logLines: 500 } });
  await worker.broker.heard('ready');
  t.ok(worker.output().stdoutBytes >= 1024 * 1024);
  t.ok(worker.output().stderr.length >= 1024 * 1024);
  t.equal(worker.broker.all('log').length, 500, 'and every line of the log arrived');
  await worker.end();
});

t.test('a caller is served on the data socket, and nobody else', async (t) => {
  const worker = await spawnWorker();
  t.teardown(() => worker.end());
  const { broker, dataSocket } = worker;
  await broker.heard('ready');
  t.equal(statSync(dataSocket).mode & 0o777, 0o600);
  t.match(broker.all('ready'), [{ engine: 'simulated', dataSocket, capabilities: { park: true, partial: false, embed: true, profilesFreeMemory: false } }]);

  t.test('a wrong, foreign or expired ticket is refused', async (t) => {
    const refuse = (ticket: string): Promise<string | null> => codeOf(openCaller({ dataSocket, ticket, caller: 'b-s1' }));
    t.equal(await refuse('nonsense'), 'ticket_refused');
    t.equal(await refuse(createTicket('cd'.repeat(32), { caller: 'b-s1', generation, expiresUs: monotonicUs() + 60_000_000 })), 'ticket_refused');
    t.equal(await refuse(broker.ticket('b-s2')), 'ticket_refused');
    t.equal(await refuse(createTicket(workerKey, { caller: 'b-s1', generation, expiresUs: monotonicUs() - 1 })), 'ticket_refused');
  });

  t.test('an impostor’s garbage and oversized first frame end its own connection alone', async (t) => {
    for (const bytes of [Buffer.from('GET / HTTP/1.1\r\n\r\n'), Buffer.from([0x00, 0x00, 0x20, 0x00, 1, 2, 3]), Buffer.from([0xff, 0xff, 0xff, 0xff])]) {
      const socket = connectSocket(dataSocket);
      socket.resume();
      socket.write(bytes);
      await new Promise((resolve) => socket.once('close', resolve));
    }
    const one = await worker.caller();
    t.match(await read(one.generate(ask(model(), 'still here'))), { text: 'still here' });
  });

  t.test('two callers, one of which stops reading its socket: the other proceeds, and the first gets all it is owed', async (t) => {
    const quick = await worker.caller('b-s2');
    const spec = model({ text: 'abcdefgh', textTimes: 4_000 }, { key: 'two', parallel: 2, contextTokens: 16_384 });
    const tokens: string[] = [];
    const channel = openChannel(await connect({ path: dataSocket, timeoutMs: 10_000 }), {
      plane: 'data', side: 'caller', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined },
    });
    await channel.request({ type: 'open', ticket: broker.ticket('b-s3'), caller: 'b-s3' }, { timeoutMs: 10_000 });
    let stopped: () => void = () => undefined;
    const first = new Promise<void>((resolve) => { stopped = resolve; });
    const ended = channel.request({
      type: 'generate', model: spec, messages: null, prompt: 'go', sampling: { maxTokens: 10_000, temperature: 0 }, class: 'normal', deadlineMs: 60_000, credits: 1_000_000,
    }, {
      timeoutMs: null,
      onInterim: (message: DataMessage) => {
        if (message.type !== 'token') return;
        if (tokens.push(message.text) === 1) {
          channel.pause();
          stopped();
        }
      },
    });
    await first;
    for (let call = 0; call < 5; call++) t.match(await read(quick.generate(ask(spec, 'x', { sampling: { maxTokens: 50, temperature: 0 } }))), { end: { reason: 'length' } });
    channel.resume();
    t.match(await ended, { type: 'end', reason: 'stop' });
    t.equal(tokens.join(''), 'abcdefgh'.repeat(4_000));
    channel.end();
  });

  t.test('B176: a payload full of delimiters, and one of a megabyte, arrive whole', async (t) => {
    const one = await worker.caller('b-s4');
    const spec = model({ tokenCharacters: 1_000 }, { key: 'payload', contextTokens: 100_000 });
    for (const text of ['\n#\u2028\u2029\u0000\f,]}"\\', 'ä\u{1F680}#\n'.repeat(200_000)]) t.ok((await read(one.generate(ask(spec, text)))).text === text);
  });
});

t.test('one engine’s end is one worker’s end, told by how it ended', async (t) => {
  const cases = [
    ['exits', { how: 'exit', exitCode: 9 }, { code: 9, signal: null }],
    ['is killed', { how: 'kill' }, { code: null, signal: 'SIGKILL' }],
    ['aborts', { how: 'abort' }, { code: null, signal: 'SIGABRT' }],
    ['throws where nobody catches', { how: 'uncaught', message: 'engine thread died' }, { code: 70, signal: null }],
  ] as const;
  for (const [name, fault, exit] of cases) {
    t.test(`when it ${name} in mid-stream its caller learns at once how much had come`, async (t) => {
      const worker = await spawnWorker();
      await worker.broker.heard('ready');
      const one = await worker.caller();
      const spec = model({ text: 'x'.repeat(400), tokensPerSecond: 500, faults: [{ at: 'generate', afterTokens: 5, ...fault }] });
      const error: unknown = await read(one.generate(ask(spec))).catch((thrown: unknown) => thrown);
      t.match(error, { code: 'connection_lost', details: { tokensReceived: /^[45]$/ } }, 'the fifth may have gone with the process');
      t.strictSame(await worker.exited, exit);
      if (name.startsWith('throws')) t.match(worker.output().stderr, /engine thread died/);
      await worker.end();
    });
  }
  t.test('B31, B193: stopped while an order to leave expires, it refuses the order when it goes on, and the model is as it was', async (t) => {
    const worker = await spawnWorker();
    const { broker, child } = worker;
    await broker.heard('ready');
    const one = await worker.caller();
    const spec = model();
    await one.load(spec);
    child.kill('SIGSTOP');
    const sentUs = monotonicUs();
    const moves = (['now', 'drained'] as const).map((when) => broker.move({ when, sentUs, expiresMs: 100 }));
    await until('the order to expire', () => monotonicUs() >= sentUs + 100_000);
    child.kill('SIGCONT');
    for (const { answer, interim } of moves) {
      t.match(await answer, { type: 'failed', code: 'command_expired', residentBytes: null });
      t.strictSame(interim, []);
    }
    t.match(await read(one.generate(ask(spec))), { text: 'hello there' });
    t.match(await models(broker), [{ state: 'resident', lease: 'b-l1' }]);
    t.strictSame([broker.all('loading').length, broker.all('release_lease').length], [1, 0], 'it was loaded once and given back never');
    t.match(await broker.move({ when: 'now' }).answer, { type: 'done', target: 'none' }, 'an order that is read in time is carried out');
    await worker.end();
  });
  t.test('B76: killed in the middle of a load, all who wait learn it', async (t) => {
    const worker = await spawnWorker();
    await worker.broker.heard('ready');
    const one = await worker.caller();
    const spec = model({ loadMs: 10, faults: [{ at: 'load', how: 'kill', afterFraction: 0.5 }] });
    t.strictSame(await Promise.all(Array.from({ length: 20 }, () => codeOf(one.load(spec)))), Array.from({ length: 20 }, () => 'connection_lost'));
    t.equal((await worker.exited).signal, 'SIGKILL');
    await worker.end();
  });
  t.test('a start that fails is an end with a line', async (t) => {
    const worker = await spawnWorker({ script: { faults: [{ at: 'start', how: 'throw', message: 'no driver' }] } });
    t.strictSame(await worker.exited, { code: 70, signal: null });
    t.match(worker.output().stderr, /no driver/);
    await worker.end();
  });
});

t.test('endings', async (t) => {
  t.test('SIGTERM and shutdown unload, give back, and end with 0', async (t) => {
    for (const how of ['signal', 'message']) {
      const worker = await spawnWorker();
      const { broker, child } = worker;
      await broker.heard('ready');
      const one = await worker.caller();
      await one.load(model());
      if (how === 'signal') child.kill('SIGTERM');
      else t.match(await broker.channel.request({ type: 'shutdown', graceMs: 10_000, reason: 'idle' }, { timeoutMs: 10_000 }), { type: 'ok' });
      t.strictSame(await worker.exited, { code: 0, signal: null });
      await broker.closed;
      t.match(broker.all('release_lease'), [{ lease: 'b-l1', cause: 'unloaded' }], `by ${how}: all that was said arrived before the end`);
      t.equal(broker.usedBytes, 0);
      t.strictSame(broker.all('ending').map(({ reason }) => reason), how === 'signal' ? ['SIGTERM'] : [], 'the broker is told of what it did not order');
      await worker.end();
    }
  });

  t.test('one that is ending seeks no other broker when its own is lost: it would be taken for a host', async (t) => {
    for (const how of ['signal', 'message']) {
      const worker = await spawnWorker({ reattachGraceMs: 600_000 });
      const { broker, child } = worker;
      await broker.heard('ready');
      const one = await worker.caller();
      await one.load(model({ unloadMs: 300 }));
      if (how === 'message') await broker.channel.request({ type: 'shutdown', graceMs: 600_000, reason: 'shutdown' }, { timeoutMs: 10_000 });
      else {
        child.kill('SIGTERM');
        await broker.heard('ending');
      }
      broker.channel.destroy();
      t.strictSame(await worker.exited, { code: 0, signal: null }, how);
      t.equal(worker.brokers(), 1, 'nobody was greeted again');
      await worker.end();
    }
  });

  t.test('to take no new calls is an order of one broker: the next has not given it', async (t) => {
    const worker = await spawnWorker({ reattachGraceMs: 600_000 });
    await worker.broker.heard('ready');
    const one = await worker.caller();
    t.match(await worker.broker.channel.request({ type: 'drain' }, { timeoutMs: 10_000 }), { type: 'ok' });
    t.equal(await codeOf(read(one.generate(ask(model())))), 'shutting_down');
    const next = worker.next();
    worker.broker.channel.destroy();
    await (await next).heard('ready');
    t.match(await read(one.generate(ask(model({ text: 'served again' })))), { text: 'served again' });
    await worker.end();
  });

  t.test('an unload that hangs at the end is cut off by the grace', async (t) => {
    const worker = await spawnWorker();
    await worker.broker.heard('ready');
    const one = await worker.caller();
    await one.load(model({ faults: [{ at: 'unload', how: 'hang' }] }));
    void worker.broker.channel.request({ type: 'shutdown', graceMs: 50, reason: 'idle' }, { timeoutMs: 10_000 });
    t.strictSame(await worker.exited, { code: 75, signal: null });
    await worker.end();
  });

  t.test('a deaf one lives through SIGTERM and still ends with its broker', async (t) => {
    const worker = await spawnWorker({ script: { ignoreSigterm: true } });
    await worker.broker.heard('ready');
    worker.child.kill('SIGTERM');
    t.match(await worker.broker.channel.request({ type: 'list_models' }, { timeoutMs: 10_000 }), { models: [] });
    worker.broker.channel.destroy();
    t.strictSame(await worker.exited, { code: 69, signal: null });
    await worker.end();
  });

  t.test('when the broker’s connection ends it ends with its children, which never saw its key', async (t) => {
    const worker = await spawnWorker({ script: { grandchildren: 2 }, detached: true });
    await worker.broker.heard('ready');
    const children = childrenOf(worker.child.pid ?? 0);
    t.equal(children.length, 2);
    for (const child of children) {
      const environment = environmentOf(child) ?? [];
      t.ok(environment.some((entry) => entry.startsWith('LEASEHOLD_TOKEN=')), 'the guard finds it by this');
      t.notOk(environment.some((entry) => entry.startsWith('LEASEHOLD_KEY=')));
    }
    worker.broker.channel.destroy();
    t.strictSame(await worker.exited, { code: null, signal: 'SIGKILL' }, 'the whole group at once');
    for (let alive = children; alive.length > 0;) {
      await new Promise((resolve) => setImmediate(resolve));
      alive = alive.filter((pid) => (environmentOf(pid) ?? []).length > 1);
    }
    await worker.end();
  });
});
