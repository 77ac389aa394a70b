/** Real sockets by node-ipc: real bytes, private files, bounded waits, no thefts, no leaks, and nothing that keeps a process alive. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, connect as netConnect } from 'node:net';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { defaultLimits, LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import {
  checkSocketPath, connect, createCodec, createSecret, createTicket, listen, openChannel, peerCredentialsSupported, removeStaleSocket, roleProof,
  socketIsAlive, socketPathBytesMax, spawnKey, verifyHello, verifyTicket, type ByteStream,
} from '../../protocol/node/index.js';
import { socketStream } from '../../protocol/node/socket-stream.js';
import { hello, hex, promise, root, socketFolder, streams, welcome } from './support.js';

const nodeIndex = pathToFileURL(join(root, 'dist/protocol/node/index.js')).href;
const limit = { timeoutMs: 10_000 } as const;

/** Runs a module's text in a process of its own to its end; returns what it printed. */
function runScript(script: string): string {
  return execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8', timeout: 60_000 });
}

interface Held {
  readonly descriptors: number;
  readonly resources: readonly string[];
}

function held(): Held {
  return {
    descriptors: existsSync('/proc/self/fd') ? readdirSync('/proc/self/fd').length : 0,
    resources: process.getActiveResourcesInfo().filter((resource) => resource !== 'Immediate').sort(),
  };
}

/** What is held once it is no more than `before`; or after a thousand turns of the loop, in which closed handles are let go. */
async function heldAtLast(before: Held): Promise<Held> {
  for (let turn = 0; turn < 1_000 && held().resources.length > before.resources.length; turn++) {
    await new Promise((resolve) => { setImmediate(resolve); });
  }
  return held();
}

function collect(stream: ByteStream, bytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let received = 0;
  return new Promise((resolve) => {
    stream.onData((chunk) => {
      chunks.push(chunk);
      received += chunk.length;
      if (received >= bytes) resolve(Buffer.concat(chunks));
    });
  });
}

t.test('every byte value arrives as it was sent, both ways, and chunks are Buffers', async (t) => {
  const [listening, dialling] = await streams(t, 'socket');
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7) & 0xff));
  const [there, back] = [collect(listening, bytes.length), collect(dialling, bytes.length)];
  listening.write(bytes);
  dialling.write(bytes);
  t.ok((await there).equals(bytes) && (await back).equals(bytes));
});

t.test('chunks that came before anybody listened are kept, and an end that came too', async (t) => {
  const [listening, dialling] = await streams(t, 'socket');
  dialling.write(Buffer.from('early'));
  dialling.end();
  await new Promise((resolve) => { dialling.onClose(resolve); setImmediate(() => { listening.onData(() => undefined); }); });
  const reason = await new Promise((resolve) => { listening.onClose(resolve); });
  t.equal(reason, 'closed by the peer');
});

t.test('the socket is 0600 from its first moment', async (t) => {
  const path = join(socketFolder(t), 's');
  const before = process.umask(0o022);
  const listening = listen({ path, onConnection: () => undefined });
  // Before anything else could run: the call has bound it already.
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(process.umask(before), 0o022, 'and the umask is as it was');
  const listener = await listening;
  t.equal(listener.path, path);
  await listener.close();
  t.notOk(existsSync(path), 'gone with its listener');
});

t.test('a worker thread, which has no umask, listens as privately', async (t) => {
  const path = join(socketFolder(t), 's');
  const thread = new Worker(`
    const { parentPort } = require('node:worker_threads');
    import(${JSON.stringify(nodeIndex)}).then(({ listen }) => listen({ path: ${JSON.stringify(path)}, onConnection(stream) { stream.onData((chunk) => stream.write(chunk)); } }))
      .then((listener) => { parentPort.postMessage('up'); parentPort.once('message', () => listener.close().then(() => parentPort.close())); });`, { eval: true });
  t.strictSame(await once(thread, 'message'), ['up']);
  t.equal(statSync(path).mode & 0o777, 0o600);
  const stream = await connect({ path, ...limit });
  const echoed = collect(stream, 3);
  stream.write(Buffer.from([1, 255, 0]));
  t.strictSame(await echoed, Buffer.from([1, 255, 0]));
  stream.destroy();
  thread.postMessage('end');
  await once(thread, 'exit');
});

t.test('a socket whose decoder could not be removed still carries every byte', async (t) => {
  const path = join(socketFolder(t), 's');
  const server = createServer((socket) => { socket.pipe(socket); }).listen(path);
  await once(server, 'listening');
  const socket = netConnect(path);
  await once(socket, 'connect');
  socket.setEncoding('latin1');
  const stream = socketStream(socket, 'latin1', 1_000);
  const bytes = Buffer.from(Array.from({ length: 1_024 }, (_, index) => index & 0xff));
  const echoed = collect(stream, bytes.length);
  stream.write(bytes);
  t.strictSame(await echoed, bytes);
  stream.destroy();
  server.close();
});

t.test('the kernel says who the peer is', { skip: peerCredentialsSupported ? false : 'no SO_PEERCRED on this system' }, async (t) => {
  const path = join(socketFolder(t), 's');
  const accepted = promise<ByteStream>();
  const listener = await listen({ path, onConnection: accepted.resolve });
  t.teardown(() => listener.close());
  const script = `const { connect } = await import(${JSON.stringify(nodeIndex)}); await connect({ path: ${JSON.stringify(path)}, timeoutMs: 10000 });`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' });
  const stream = await accepted.promise;
  t.equal(stream.peerPid, child.pid);
  t.equal(stream.peerUid, process.getuid?.());
  stream.destroy();
  await once(child, 'exit');
  t.equal(stream.peerPid, child.pid, 'also after the end: it is asked once');
});

t.test('B181: a path too long for a socket is refused with its length and the limit, never cut', async (t) => {
  const folder = join(socketFolder(t), 'd'.repeat(120));
  mkdirSync(folder);
  const path = join(folder, 'leasehold.sock');
  const error = { code: 'socket_path_too_long', details: { path, bytes: String(Buffer.byteLength(path)), limitBytes: String(socketPathBytesMax) } };
  await t.rejects(listen({ path, onConnection: () => undefined }), error);
  await t.rejects(connect({ path, ...limit }), error);
  t.strictSame(readdirSync(folder), []);
  t.strictSame(readdirSync(join(folder, '..')), ['d'.repeat(120)], 'nothing under a shortened name');
  t.throws(() => { checkSocketPath('é'.repeat(60)); }, { code: 'socket_path_too_long' }, 'bytes count, not characters');
  t.throws(() => { checkSocketPath('\0abstract'); }, { code: 'input_invalid' }, 'an abstract socket has no mode');
  t.throws(() => { checkSocketPath(''); }, { code: 'input_invalid' });
});

t.test('B181: the longest path that is allowed works', async (t) => {
  const folder = socketFolder(t);
  const path = join(folder, 'x'.repeat(socketPathBytesMax - Buffer.byteLength(folder) - 1));
  const listener = await listen({ path, onConnection: (stream) => { stream.destroy(); } });
  t.ok(statSync(path).isSocket());
  t.ok(await socketIsAlive(path));
  await listener.close();
});

t.test('a live socket is never stolen, nor a stale one taken without being asked to', async (t) => {
  const folder = socketFolder(t);
  const path = join(folder, 's');
  const listener = await listen({ path, onConnection: () => undefined });
  await t.rejects(listen({ path, onConnection: () => undefined }), { code: 'socket_in_use', message: /it answers/ });
  await t.rejects(removeStaleSocket(path), { code: 'socket_in_use' });
  t.ok(await socketIsAlive(path), 'the first still answers');
  await listener.close();
  runScript(`
    const { listen } = await import(${JSON.stringify(nodeIndex)});
    await listen({ path: ${JSON.stringify(path)}, onConnection() {} });
    process.reallyExit(0);`);
  t.ok(existsSync(path), 'what a process leaves that ends without a word');
  t.notOk(await socketIsAlive(path));
  await t.rejects(listen({ path, onConnection: () => undefined }), { code: 'socket_in_use', message: /stale/ });
  await removeStaleSocket(path);
  await removeStaleSocket(path);
  const again = await listen({ path, onConnection: () => undefined });
  await again.close();
});

t.test('what is not a socket is neither alive nor removed', async (t) => {
  const folder = socketFolder(t);
  const [file, link] = [join(folder, 'file'), join(folder, 'link')];
  writeFileSync(file, 'precious');
  symlinkSync(file, link);
  for (const path of [file, link]) {
    t.notOk(await socketIsAlive(path));
    await t.rejects(removeStaleSocket(path), { code: 'socket_in_use', message: /no socket/ });
    await t.rejects(listen({ path, onConnection: () => undefined }), { code: 'socket_in_use' });
    t.ok(existsSync(path));
  }
});

t.test('a listener in a folder that is not there, and a connection to nobody, are typed errors', async (t) => {
  const folder = socketFolder(t);
  await t.rejects(listen({ path: join(folder, 'none', 's'), onConnection: () => undefined }), { code: 'listen_failed', details: { path: join(folder, 'none', 's') } });
  await t.rejects(connect({ path: join(folder, 's'), ...limit }), { code: 'connect_failed', details: { reason: 'ENOENT' }, retryable: true });
  const path = join(folder, 'full');
  const server = createServer();
  server.listen(path);
  await once(server, 'listening');
  server.close();
  await t.rejects(connect({ path, ...limit }), { code: 'connect_failed' });
});

t.test('a listener whose backlog is full is waited for, and no longer than may be', { skip: process.platform === 'linux' ? false : 'the backlog is told by EAGAIN on Linux' }, async (t) => {
  const path = join(socketFolder(t), 'crowded.sock');
  const script = `require('node:net').createServer(() => undefined).listen({ path: ${JSON.stringify(path)}, backlog: 2 }, () => process.stdout.write('up'))`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => { child.kill('SIGKILL'); });
  await once(child.stdout, 'data');
  child.kill('SIGSTOP');
  const crowd = Array.from({ length: 20 }, () => netConnect(path));
  t.teardown(() => { for (const socket of crowd) socket.destroy(); });
  const codes = await Promise.all(crowd.map((socket) => new Promise((resolve) => { socket.on('connect', () => { resolve('connected'); }).on('error', (error: NodeJS.ErrnoException) => { resolve(error.code); }); })));
  t.ok(codes.includes('EAGAIN'), 'it is full');
  await t.rejects(connect({ path, timeoutMs: 60 }), { code: 'connect_failed', details: { reason: 'EAGAIN' } });
  const patient = connect({ path, timeoutMs: 30_000 });
  child.kill('SIGCONT');
  (await patient).destroy();
});

t.test('a close ends all connections of the listener, and each end hears of it', async (t) => {
  const path = join(socketFolder(t), 's');
  const listener = await listen({ path, onConnection: (stream) => { stream.onData(() => undefined); } });
  const reasons = await Promise.all(Array.from({ length: 20 }, async () => {
    const stream = await connect({ path, ...limit });
    stream.onData(() => undefined);
    return new Promise<string>((resolve) => { stream.onClose(resolve); });
  }).concat([listenerClosedAfter(20)]));
  t.equal(reasons.length, 21);
  t.notOk(existsSync(path));
  await listener.close();

  async function listenerClosedAfter(count: number): Promise<string> {
    // All twenty dial before this one's turn comes.
    for (let turn = 0; turn < count; turn++) await new Promise((resolve) => { setImmediate(resolve); });
    await listener.close();
    return 'closed';
  }
});

t.test('a close removes its own socket, and not the one of somebody who listens at its path by now', async (t) => {
  const path = join(socketFolder(t), 's.sock');
  const first = await listen({ path, onConnection: () => undefined });
  rmSync(path);
  const second = await listen({ path, onConnection: () => undefined });
  t.teardown(() => second.close());
  await first.close();
  t.ok(await socketIsAlive(path), 'the second is still there to be found');
  t.strictSame(readdirSync(dirname(path)), ['s.sock'], 'and nothing beside it');
  await second.close();
  t.notOk(existsSync(path));
});

t.test('a reader that stops is felt by the writer, and lets go when it reads on', async (t) => {
  const [listening, dialling] = await streams(t, 'socket');
  let received = 0;
  dialling.onData((chunk) => { received += chunk.length; });
  dialling.pause();
  const drained = new Promise<void>((resolve) => { listening.onDrain(resolve); });
  const bytes = 8 * 1024 * 1024;
  listening.write(Buffer.alloc(bytes));
  await new Promise((resolve) => { setImmediate(resolve); });
  t.ok(listening.unsentBytes > bytes / 2, 'most of it waits here');
  dialling.resume();
  await drained;
  t.equal(listening.unsentBytes, 0);
  listening.end();
  await new Promise((resolve) => { dialling.onClose(resolve); });
  t.equal(received, bytes);
});

t.test('an end does not wait for ever for a peer that does not read', async (t) => {
  const path = join(socketFolder(t), 's');
  const accepted = promise<ByteStream>();
  const listener = await listen({ path, flushTimeoutMs: 50, onConnection: accepted.resolve });
  t.teardown(() => listener.close());
  const dialling = await connect({ path, ...limit });
  t.teardown(() => { dialling.destroy(); });
  dialling.pause();
  const stream = await accepted.promise;
  const closed = new Promise((resolve) => { stream.onClose(resolve); });
  stream.write(Buffer.alloc(8 * 1024 * 1024));
  stream.end();
  t.equal(await closed, 'closed here');
});

t.test('nothing is left of 300 opens and closes', async (t) => {
  const path = join(socketFolder(t), 's');
  const cycle = async (times: number): Promise<void> => {
    const listener = await listen({ path, onConnection: (stream) => { stream.onData((chunk) => { stream.write(chunk); }); } });
    for (let index = 0; index < times; index++) {
      const stream = await connect({ path, ...limit });
      const echoed = collect(stream, 3);
      stream.write(Buffer.from('abc'));
      await echoed;
      const closed = new Promise((resolve) => { stream.onClose(resolve); });
      if (index % 2 === 0) stream.end();
      else stream.destroy();
      await closed;
    }
    await listener.close();
  };
  await cycle(3);
  const before = await heldAtLast({ descriptors: 0, resources: [] });
  for (let round = 0; round < 30; round++) await cycle(10);
  t.strictSame(await heldAtLast(before), before);
});

t.test('closed or unreferenced, nothing keeps a process alive', async (t) => {
  const folder = socketFolder(t);
  const script = (end: string, name: string): string => `
    const { listen, connect, memoryPair, openChannel } = await import(${JSON.stringify(nodeIndex)});
    const { defaultLimits: limits } = await import(${JSON.stringify(pathToFileURL(join(root, 'dist/protocol/index.js')).href)});
    const path = ${JSON.stringify(folder)} + '/${name}';
    const channels = [];
    const open = (stream, side) => channels.push(openChannel(stream, { plane: 'control', side, limits, handlers: { onMessage() {}, onClose() {} } }));
    let accepted; const arrived = new Promise((resolve) => { accepted = resolve; });
    const listener = await listen({ path, onConnection(stream) { open(stream, 'broker'); accepted(); } });
    open(await connect({ path, timeoutMs: 10000 }), 'worker');
    const [a, b] = memoryPair();
    open(a, 'broker'); open(b, 'worker');
    await arrived;
    channels[0].request({ type: 'hello', protocol: 1, role: 'worker', spawn: null, proof: '${'0'.repeat(64)}', pid: 1, name: '', resume: null }, { timeoutMs: 3600000 }).catch(() => {});
    ${end}
    process.on('exit', () => { process.stdout.write('ended by itself'); });`;
  t.equal(runScript(script('listener.unref(); for (const channel of channels) channel.unref();', 'a')), 'ended by itself');
  t.equal(runScript(script('for (const channel of channels) channel.destroy(); await listener.close();', 'b')), 'ended by itself');
  t.equal(runScript(script('for (const channel of channels) channel.end(); await listener.close();', 'c')), 'ended by itself');
});

t.test('B178: a process that ends its channel, waits for the close and exits has handed over its last MiB', async (t) => {
  const path = join(socketFolder(t), 's');
  const accepted = promise<ByteStream>();
  const listener = await listen({ path, onConnection: accepted.resolve });
  t.teardown(() => listener.close());
  const script = `
    const { connect, openChannel } = await import(${JSON.stringify(nodeIndex)});
    const { defaultLimits: limits } = await import(${JSON.stringify(pathToFileURL(join(root, 'dist/protocol/index.js')).href)});
    const channel = openChannel(await connect({ path: ${JSON.stringify(path)}, timeoutMs: 10000 }), { plane: 'control', side: 'holder', limits, handlers: {
      onMessage() {}, onClose() { process.exit(0); } } });
    await channel.request({ ...${JSON.stringify({ ...hello, role: 'holder' })} }, { timeoutMs: 10000 });
    for (let line = 0; line < 400; line++) channel.send({ type: 'log', level: 'info', message: String(line).padEnd(4000, 'x'), fields: {} });
    channel.end();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' });
  const lines: string[] = [];
  const closed = promise<LeaseholdError>();
  const channel = openChannel(await accepted.promise, {
    plane: 'control', side: 'broker', limits: defaultLimits,
    handlers: {
      onMessage: (message: ControlMessage) => {
        if (message.type === 'hello') channel.send({ ...welcome, id: message.id });
        if (message.type === 'log') lines.push(message.message);
      },
      onClose: closed.resolve,
    },
  });
  t.match(await closed.promise, { code: 'connection_lost', details: { how: 'clean' } });
  t.strictSame(lines.map((line) => line.length), Array.from({ length: 400 }, () => 4_000));
  await once(child, 'exit');
  t.equal(child.exitCode, 0);
});

t.test('R276: impostors that come first cost the genuine worker nothing', async (t) => {
  const secret = createSecret();
  const path = join(socketFolder(t), 's');
  const refused: string[] = [];
  const attached = promise<ControlMessage>();
  const limits = { ...defaultLimits, helloTimeoutMs: 3_000 };
  const listener = await listen({ path, onConnection: (stream) => {
    const channel = openChannel(stream, { plane: 'control', side: 'broker', limits, handlers: {
      onMessage: (message) => {
        if (message.type !== 'hello') return;
        try {
          verifyHello(secret, message);
          channel.send({ ...welcome, id: message.id });
          attached.resolve(message);
        } catch (error) {
          channel.destroy(LeaseholdError.from(error));
        }
      },
      onClose: (error) => { refused.push(error.code); },
    } });
  } });
  t.teardown(() => listener.close());
  const wrongKey = createCodec().encode({ ...hello, id: 1, proof: spawnKey(createSecret(), hello.spawn) });
  const impostors: readonly (readonly [string, Uint8Array])[] = [
    ['frame_malformed', Buffer.concat([hex('00000007'), Buffer.from('garbage')])], ['hello_refused', wrongKey], ['frame_too_large', hex('06400000')], ['frame_too_large', hex('ffffffff')],
    ['connection_lost', hex('000000')], ['connection_lost', Buffer.alloc(0)], ['frame_too_large', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
  ];
  const before = process.memoryUsage();
  const sockets = impostors.flatMap(([code, bytes]) => Array.from({ length: 10 }, () => {
    const socket = netConnect(path);
    socket.on('error', () => undefined).resume();
    if (code === 'connection_lost') socket.end(bytes);
    else socket.write(bytes);
    return socket;
  }));
  const silent = Array.from({ length: 10 }, () => netConnect(path).on('error', () => undefined).resume());
  const genuine = openChannel(await connect({ path, ...limit }), { plane: 'control', side: 'worker', limits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
  const answer = await genuine.request({ ...hello, proof: spawnKey(secret, hello.spawn) }, limit);
  t.equal(answer.type, 'welcome', 'while the silent ones still sit there');
  t.equal((await attached.promise as typeof hello).proof, spawnKey(secret, hello.spawn));
  for (const socket of [...sockets, ...silent]) if (!socket.closed) await once(socket, 'close');
  const counted = (code: string): number => refused.filter((each) => each === code).length;
  t.strictSame(['frame_malformed', 'hello_refused', 'frame_too_large', 'connection_lost', 'hello_timeout'].map(counted), [10, 10, 30, 20, 10]);
  t.ok(genuine.open);
  const after = process.memoryUsage();
  t.ok(after.heapUsed - before.heapUsed + after.arrayBuffers - before.arrayBuffers < 32 * 1024 * 1024, 'memory stays bounded');
  genuine.destroy();
});

t.test('a hello that came while the listener was busy came in time, though it is read after its time', async (t) => {
  const path = join(socketFolder(t), 's');
  const accepted = promise<undefined>();
  const listener = await listen({ path, onConnection: (stream) => {
    const channel = openChannel(stream, { plane: 'control', side: 'broker', limits: { ...defaultLimits, helloTimeoutMs: 50 }, handlers: {
      onMessage: (message) => { if (message.type === 'hello') channel.send({ ...welcome, id: message.id }); },
      onClose: () => undefined,
    } });
    accepted.resolve(undefined);
  } });
  t.teardown(() => listener.close());
  const peer = openChannel(await connect({ path, ...limit }), { plane: 'control', side: 'worker', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
  t.teardown(() => { peer.destroy(); });
  await accepted.promise;
  const answer = peer.request(hello, limit);
  // It leaves at the end of this turn; the loop then stands still until long after its time.
  setImmediate(() => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300); });
  t.equal((await answer).type, 'welcome');
});

t.test('proofs and tickets are bound to what they were made for', async (t) => {
  const secret = '00'.repeat(32);
  const worker = { role: 'worker', spawn: 'b-w1', proof: '' } as const;
  // Computed elsewhere: printf 'spawn:b-w1' | openssl dgst -sha256 -mac HMAC -macopt hexkey:00…
  t.equal(spawnKey(secret, 'b-w1'), '79d1a26f577900eaf171e05bc8a1ffe14cefc58216e20c37cabbe11a41ba2854');
  t.equal(roleProof(secret, 'client'), '5b00d6261237430a6f30d5a87f7b7e5e4d83630081362df99f49657948dc0dde');
  verifyHello(secret, { ...worker, proof: spawnKey(secret, 'b-w1') });
  verifyHello(secret, { role: 'holder', spawn: null, proof: roleProof(secret, 'holder') });
  const refusals = [
    { ...worker, proof: spawnKey(secret, 'b-w2') }, { ...worker, proof: spawnKey(createSecret(), 'b-w1') }, { ...worker, proof: roleProof(secret, 'client') },
    { role: 'holder', spawn: null, proof: roleProof(secret, 'client') } as const, { role: 'client', spawn: 'b-w1', proof: spawnKey(secret, 'b-w1') } as const,
    { ...worker, spawn: null, proof: spawnKey(secret, '') }, { ...worker, proof: '' }, { ...worker, proof: 'é'.repeat(64) },
  ];
  for (const wrong of refusals) t.throws(() => { verifyHello(secret, wrong); }, { code: 'hello_refused', details: { role: wrong.role } });
  t.throws(() => spawnKey('no key', 'b-w1'), { code: 'input_invalid' });

  const key = spawnKey(secret, 'b-w1');
  const claims = { caller: 'b-s2: über', generation: 'b-w1', expiresUs: 1_000 };
  const ticket = createTicket(key, claims);
  verifyTicket(key, ticket, { ...claims, nowUs: 999 });
  const refusedTicket = (reason: string, change: object, given = ticket, by = key): unknown =>
    t.throws(() => { verifyTicket(by, given, { ...claims, nowUs: 999, ...change }); }, { code: 'ticket_refused', details: { reason } }, reason);
  refusedTicket('expired', { nowUs: 1_000 });
  refusedTicket('not for this caller and worker', { caller: 'b-s3' });
  refusedTicket('not for this caller and worker', { generation: 'b-w2' });
  refusedTicket('not for this caller and worker', {}, `2000${ticket.slice(4)}`);
  refusedTicket('not for this caller and worker', {}, ticket, spawnKey(secret, 'b-w2'));
  for (const malformed of ['', 'x', ticket.slice(0, -1), `${ticket}0`, `9007199254740993${ticket.slice(4)}`, `1e3${ticket.slice(4)}`]) refusedTicket('malformed', {}, malformed);
  t.ok(createTicket(key, { ...claims, expiresUs: Number.MAX_SAFE_INTEGER }).length <= 512);
});
