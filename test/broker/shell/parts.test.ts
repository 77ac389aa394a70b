/** The shell's parts one by one: folder and locks, limits, shares, readings, subscribers, last words. */
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError, defaultLimits, type ControlMessage } from '../../../protocol/index.js';
import { AdmissionDesk } from '../../../broker/shell/admission-desk.js';
import { effectiveLimits } from '../../../broker/shell/effective-limits.js';
import { lockFile, readHolder } from '../../../broker/shell/file-lock.js';
import { endOf, lastWords, typedEnd } from '../../../broker/shell/last-words.js';
import { Loop, type UntimedEvent } from '../../../broker/shell/loop.js';
import { BlockedLoops } from '../../../broker/shell/blocked-loops.js';
import { PeerLog } from '../../../broker/shell/peer-log.js';
import { Resumes } from '../../../broker/shell/resume.js';
import { Sampler } from '../../../broker/shell/sampler.js';
import { dataSocketPath, openStateFolder, readStateFolder, removeStaleDataSockets } from '../../../broker/shell/state-folder.js';
import { Subscription } from '../../../broker/shell/subscription.js';
import { ThreadShares } from '../../../broker/shell/thread-shares.js';
import { createCore } from '../../../broker/core/index.js';
import type { CardDescription, Reading } from '../../../broker/devices/index.js';
import { classPolicies } from '../../../protocol/index.js';
import { memoryPair, monotonicUs, openChannel, type Channel } from '../../../protocol/node/index.js';
import { folder, refusal, thrown, until } from '../../integration/support.js';

t.test('the state folder', async (t) => {
  t.test('is private, and its secret is made once', async (t) => {
    const path = join(folder(t), 'deep', 'state');
    const first = openStateFolder(path);
    t.match(first.secret, /^[0-9a-f]{64}$/);
    t.match(first.id, /^[0-9a-f]{8}$/);
    t.equal(statSync(path).mode & 0o777, 0o700);
    t.equal(statSync(join(path, 'secret')).mode & 0o777, 0o600);
    chmodSync(path, 0o755);
    t.strictSame(openStateFolder(path), first, 'the same every time');
    t.equal(statSync(path).mode & 0o777, 0o700, 'and closed again when somebody opened it');
  });

  t.test('is not made by who only looks for it', async (t) => {
    const path = join(folder(t), 'nobody');
    t.equal(readStateFolder(path), null);
    t.notOk(existsSync(path));
    mkdirSync(path);
    t.equal(readStateFolder(path), null, 'a folder without a secret is no state');
  });

  t.test('is refused when it is a file, and when its secret is none', async (t) => {
    const path = folder(t);
    writeFileSync(join(path, 'file'), '');
    t.equal(thrown(() => openStateFolder(join(path, 'file'))).code, 'config_unreadable');
    writeFileSync(join(path, 'secret'), 'hunter2\n');
    t.match(thrown(() => openStateFolder(path)), { code: 'config_unreadable', message: /64 hex digits/ });
    t.equal(readFileSync(join(path, 'secret'), 'utf8'), 'hunter2\n', 'and nothing is written over it');
  });

  t.test('is swept of the sockets of workers that are gone, and of nothing else', async (t) => {
    const path = folder(t);
    const stale = dataSocketPath(path, '0123456789ab-w7');
    const living = dataSocketPath(path, '0123456789ab-w8');
    for (const file of [stale, living, join(path, 'broker.sock'), join(path, 'mine-w7.sock'), join(path, 'notes')]) writeFileSync(file, '');
    removeStaleDataSockets(path, new Set(['0123456789ab-w8']));
    t.notOk(existsSync(stale));
    t.ok(existsSync(living), 'a worker that lives on keeps its own');
    t.ok(existsSync(join(path, 'broker.sock')) && existsSync(join(path, 'mine-w7.sock')) && existsSync(join(path, 'notes')));
  });
});

t.test('a file lock', async (t) => {
  const path = join(folder(t), 'broker.lock');
  const lock = lockFile(path, { socket: '/run/x.sock' });
  t.match(JSON.parse(readFileSync(path, 'utf8')), { pid: process.pid, socket: '/run/x.sock' });
  t.match(thrown(() => lockFile(path)), { code: 'broker_running', details: { path, pid: String(process.pid), started: /^\d{4}-\d\d-\d\dT/ } });
  lock.release();
  const again = lockFile(path);
  t.match(readHolder(path), { pid: String(process.pid) });
  again.release();
  rmSync(path);
  t.match(readHolder(path), { pid: 'unknown' }, 'who cannot be known is not guessed');
  lockFile(path).release();
});

t.test('R66: the system’s word for who the peer is counts before any proof, and no word is a refusal', { skip: process.platform === 'linux' ? false : 'no SO_PEERCRED on this system' }, async (t) => {
  const ours = process.getuid?.() ?? 0;
  for (const [uid, theirs] of [[ours + 1, String(ours + 1)], [null, 'unknown']] as const) {
    let admitted = 0;
    const desk = new AdmissionDesk(defaultLimits, { freePlaces: () => 1, admit: () => { admitted += 1; throw new Error('nobody is to come so far'); } });
    const [brokerEnd, peerEnd] = memoryPair('control');
    Object.defineProperty(brokerEnd, 'peerUid', { value: uid });
    desk.receive(brokerEnd);
    const channel = openChannel(peerEnd, { plane: 'control', side: 'client', limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
    const hello = { type: 'hello', protocol: 1, role: 'client', spawn: null, proof: '0'.repeat(64), pid: 1, name: 'x', resume: null } as const;
    t.match(await refusal(channel.request(hello, { timeoutMs: 10_000 })), { code: 'peer_uid', details: { theirs, ours: String(ours) } });
    t.equal(admitted, 0);
  }
});

t.test('a peer whose pid cannot be seen from here holds nothing; a client may come, and is nobody else', async (t) => {
  for (const role of ['holder', 'worker', 'client'] as const) {
    let admitted = 0;
    const desk = new AdmissionDesk(defaultLimits, { freePlaces: () => 1, admit: () => { admitted += 1; throw new LeaseholdError('hello_refused', { role }); } });
    const [brokerEnd, peerEnd] = memoryPair('control');
    Object.defineProperty(brokerEnd, 'peerPid', { value: 0 });
    desk.receive(brokerEnd);
    const channel = openChannel(peerEnd, { plane: 'control', side: role, limits: defaultLimits, handlers: { onMessage: () => undefined, onClose: () => undefined } });
    const hello = { type: 'hello', protocol: 1, role, spawn: role === 'worker' ? 'b-w1' : null, proof: '0'.repeat(64), pid: 1, name: 'x', resume: null } as const;
    const isAdmitted = role === 'client';
    t.match(await refusal(channel.request(hello, { timeoutMs: 10_000 })), isAdmitted ? { code: 'hello_refused' } : { code: 'peer_pid_unseen', details: { role }, help: /--pid=host/ });
    t.equal(admitted, isAdmitted ? 1 : 0, role);
  }
  const unseen = { pid: 0, startTime: null };
  const refused = thrown(() => { new Resumes('b').checkPeer('b-s1', unseen, { given: 3, identity: unseen }); });
  t.match(refused, { code: 'resume_refused', details: { generation: 'b-s1' } });
});

t.test('limits', async (t) => {
  t.strictSame(effectiveLimits({}), defaultLimits);
  t.equal(effectiveLimits({ workersMax: 3 }).workersMax, 3);
  t.strictSame(effectiveLimits({ workersMax: undefined } as object), defaultLimits, 'what is left undefined is not there');
  t.match(thrown(() => effectiveLimits({ commandAnswerMs: 60_000 })), { code: 'limit_relation', message: /commandAnswerMs <= moveTimeoutMs/, help: /Change one/ });
  for (const value of [-1, 0.5, Number.NaN, 2 ** 53, '5', null]) t.match(thrown(() => effectiveLimits({ leasesMax: value } as object)), { code: 'config_invalid', details: { where: 'leasesMax' } }, String(value));
  t.equal(thrown(() => effectiveLimits({ sampleIntervalMs: 0 })).code, 'config_invalid', 'an interval of nothing is a busy loop');
  const unknown = (name: string): string => thrown(() => effectiveLimits({ [name]: 1 })).message;
  t.equal(unknown('hartbeatIntervalMs'), 'limits: hartbeatIntervalMs: there is no such limit; did you mean heartbeatIntervalMs?', 'the nearest, not all of them');
  t.equal(unknown('heartbeat'), 'limits: heartbeat: there is no such limit; did you mean heartbeatIntervalMs, heartbeatMissesMax or stageHeartbeatMs?');
  t.equal(unknown('colour'), 'limits: colour: there is no such limit.');
  t.match(thrown(() => effectiveLimits({ colour: 1 } as object)).help, /`leasehold limits` lists every limit/);
  t.match(thrown(() => effectiveLimits({ grantConfirmMs: 99 })), { code: 'config_invalid', message: /grantConfirmMs: 99 is not a whole number from 100 to/ }, 'limit, value and minimum are named');
});

t.test('D36: threads are shared so that their sum stays below the cores while more than one is left', async (t) => {
  const shares = new ThreadShares(9, 3);
  t.strictSame(['a', 'b', 'c', 'd', 'e', 'f'].map((worker) => shares.take(worker)), [2, 2, 2, 2, 1, 1]);
  shares.giveBack('a');
  shares.giveBack('e');
  shares.giveBack('f');
  t.equal(shares.take('g'), 2);
  t.equal(new ThreadShares(1, 8).take('a'), 1);
  t.equal(new ThreadShares(16, 0).take('a'), 15);
});

t.test('last words fit into an event whatever they are, and the reason is what was said, not where', async (t) => {
  t.strictSame(lastWords(['one', 'two']), ['one', 'two']);
  t.equal(lastWords(Array.from({ length: 50 }, (_, n) => String(n)))[0], '30');
  const bell = lastWords(Array.from({ length: 20 }, () => '\u0007'.repeat(4_096)));
  t.ok(JSON.stringify(bell).length < 64 * 1024);
  t.equal(endOf('exit code 70', ['Error: no card', '    at Socket.emit (node:events:524:28)', '', 'Node.js v20.20.2']), 'exit code 70; it said last: Error: no card');
  t.equal(endOf('exit code 1', ['Error: Cannot find module x', '    at Module (node:internal)', '  code: 1', '}', '', 'Node.js v20.20.2']), 'exit code 1; it said last: Error: Cannot find module x');
  t.equal(endOf('exit code 2', ['usage: engine MODEL', '']), 'exit code 2; it said last: usage: engine MODEL');
  t.equal(endOf('SIGKILL', []), 'SIGKILL');
  const said = 'leasehold-error {"code":"engine_missing","details":{"engine":"e","reason":"not found"}}';
  t.match(typedEnd(['Error: x', said, 'and more']), { code: 'engine_missing', details: { engine: 'e', reason: 'not found' } });
  t.equal(endOf('exit code 70', ['Error: x', said]), 'exit code 70; it said last: Engine e is not installed: not found.');
  for (const line of ['', said.slice(0, 40), `x${said}`, 'leasehold-error null', 'leasehold-error {"code":7}', 'leasehold-error {"code":"no_such_code"}', 'leasehold-error {"code":"internal"}']) {
    t.equal(typedEnd([line]), null, line);
  }
});

const description: CardDescription = { device: 'SIM-x-0', name: 'x', kind: 'simulated', totalBytes: 100, confirms: 'process', display: false, floorBytes: null, visibility: {} };

/** A card that answers when it is told to. */
class SlowReader {
  readonly asked: ((reading: Reading | Error) => void)[] = [];
  read(): Promise<Reading> {
    return new Promise((resolve, reject) => { this.asked.push((reading) => { if (reading instanceof Error) reject(reading); else resolve(reading); }); });
  }
  async close(): Promise<void> { /* It holds nothing. */ }
}

function reading(takenAtUs: number): Extract<Reading, { kind: 'read' }> {
  return { kind: 'read', device: 'SIM-x-0', takenAtUs, usedBytes: 7, totalBytes: 100, truth: 'simulated', processes: [{ pid: 1, usedBytes: 3 }, { pid: 2, usedBytes: 2 }, { pid: 9, usedBytes: 2 }] };
}

t.test('the sampler', async (t) => {
  const reader = new SlowReader();
  const events: UntimedEvent[] = [];
  const sampler = new Sampler(60_000, { of: ({ pid, usedBytes }) => (pid === 9 ? [] : [{ generation: 'b-w1', usedBytes }]), pids: () => [1, 2] }, (event) => { events.push(event); });
  t.teardown(() => { sampler.stop(); });
  sampler.watch(description, reader, { reserveBytes: 5, yieldFreeBytes: 3 });
  t.equal(reader.asked.length, 1, 'looks at once');

  const wantedUs = monotonicUs();
  sampler.want('SIM-x-0', wantedUs);
  sampler.want('SIM-x-0', wantedUs - 5);
  t.equal(reader.asked.length, 1, 'one read of a card at a time');
  reader.asked[0]?.(reading(wantedUs - 10));
  await until('a second look, the first having been too early', () => reader.asked.length === 2);
  t.match(events, [{ type: 'sampled', usedBytes: 7, processes: [{ generation: 'b-w1', usedBytes: 5 }], strangers: [{ pid: 9, usedBytes: 2 }] }], 'figures by process, foreign ones by their pids');
  t.notOk('spilled' in (events[0] ?? {}), 'what the driver does not say is not told');
  reader.asked[1]?.({ ...reading(monotonicUs()), spilled: [{ pid: 1, spilledBytes: 4 }, { pid: 2, spilledBytes: 1 }, { pid: 9, spilledBytes: 8 }] });
  await until('the second to be told', () => events.length === 2);
  t.match(events[1], { spilled: [{ generation: 'b-w1', spilledBytes: 5 }] }, 'B113: what it has in host memory, likewise');
  t.equal(reader.asked.length, 2, 'what was wanted has been had: the next look comes at its time');

  sampler.want('SIM-x-0', monotonicUs());
  reader.asked[2]?.(new Error('the driver fell over'));
  await until('the failure to be told', () => events.length === 3);
  t.match(events[2], { type: 'sample_failed', reading: 'failed', reason: /the driver fell over/ }, 'a reader that throws is a reading that is missing');
  t.equal(reader.asked.length, 3, 'and is not asked again in a busy loop');
  sampler.want('SIM-elsewhere-0', 1);
});

t.test('B106: a card that its driver says is gone is told once, and again when it is read again', async (t) => {
  const reader = new SlowReader();
  const events: UntimedEvent[] = [];
  const sampler = new Sampler(1, { of: ({ usedBytes }) => [{ generation: 'b-w1', usedBytes }], pids: () => [] }, (event) => { events.push(event); });
  t.teardown(() => { sampler.stop(); });
  sampler.watch(description, reader, { reserveBytes: 5, yieldFreeBytes: 3 });
  const missing: Reading = { kind: 'missing', device: 'SIM-x-0', takenAtUs: 1, reading: 'failed', reason: 'GPU is lost' };
  const rows: readonly Reading[] = [missing, { ...missing, lost: true }, { ...missing, lost: true }, { ...missing, reading: 'timed_out' }, reading(monotonicUs()), missing];
  for (const [index, row] of rows.entries()) {
    await until('the next look', () => reader.asked.length > index);
    reader.asked[index]?.(row);
  }
  await until('the last to be told', () => events.length === 5);
  t.match(events, [
    { type: 'sample_failed', reading: 'failed' }, { type: 'card_lost', device: 'SIM-x-0', reason: 'GPU is lost' },
    { type: 'card_added', device: 'SIM-x-0', totalBytes: 100, reserveBytes: 5, yieldFreeBytes: 3, confirms: 'process' }, { type: 'sampled', usedBytes: 7 }, { type: 'sample_failed' },
  ], 'a driver that does not answer meanwhile changes nothing');
});

t.test('a subscriber that reads too slowly loses events and is told how many', async (t) => {
  const sent: ControlMessage[] = [];
  const channel = { unsentBytes: 0, send: (message: ControlMessage) => { sent.push(message); } };
  const subscription = new Subscription(channel as unknown as Channel<'control'>, 1_000);
  subscription.publish('loaded', { a: 1 });
  channel.unsentBytes = 1_001;
  subscription.publish('loaded', { a: 2 });
  subscription.publish('loaded', { a: 3 });
  channel.unsentBytes = 0;
  subscription.publish('loaded', { a: 4 });
  subscription.publish('loaded', { a: 5 });
  t.match(sent, [{ seq: 1, dropped: 0, json: '{"a":1}' }, { seq: 2, dropped: 2, json: '{"a":4}' }, { seq: 3, dropped: 0 }]);
});

t.test('the loop takes one event to its end before the next, and stops for good when the ledger is wrong', async (t) => {
  const broken: string[] = [];
  const order: string[] = [];
  const core = createCore({ bootId: '0123456789ab', startedAtUs: monotonicUs(), limits: defaultLimits, classPolicies, engines: [], allowLedgerOnly: false });
  const loop: Loop = new Loop({
    core, tickIntervalMs: 5, onTick: () => undefined, onBroken: (error) => { broken.push(error.code); },
    carryOut: (effect) => {
      order.push(effect.type);
      // Made while an event is being carried out: it waits its turn.
      if (effect.type === 'deny') loop.feed({ type: 'pin_requested', generation: 'b-s1', request: 2, model: 'm', pinned: true });
    },
  });
  t.teardown(() => { loop.stop(); });
  loop.feed({ type: 'session_opened', generation: 'b-s1', role: 'client', name: 'x' });
  loop.feed({ type: 'place_requested', generation: 'b-s1', request: 1, model: 'm', engine: 'none', estimateBytes: null, class: 'normal', deadlineMs: 1, ageMs: 0, device: null, policy: { ttlMs: null, pinned: false, exclusive: false } });
  t.ok(order.indexOf('acknowledge') > order.lastIndexOf('deny'), order.join(' '));
  loop.feed({ type: 'session_opened', generation: 'b-s1', role: 'client', name: 'twice' });
  t.strictSame(broken, ['invariant_broken']);
  order.length = 0;
  loop.feed({ type: 'pin_requested', generation: 'b-s1', request: 3, model: 'm', pinned: true });
  t.strictSame(order, [], 'nothing is decided after that');
});

t.test('R293: the loop says how late each tick was', { timeout: 60_000 }, async (t) => {
  const core = createCore({ bootId: '0123456789ab', startedAtUs: monotonicUs(), limits: defaultLimits, classPolicies, engines: [], allowLedgerOnly: false });
  const latest = await new Promise<number>((resolve) => {
    const loop = new Loop({
      core, tickIntervalMs: 5, onBroken: (error) => { t.fail(error.message); }, carryOut: () => undefined,
      onTick: (lateMs) => {
        if (lateMs >= 190) {
          loop.stop();
          resolve(lateMs);
          return;
        }
        // In a tick, which is no less a block of the loop than anything else.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
      },
    });
    loop.start();
  });
  t.ok(latest >= 190, `${String(latest)} ms`);
});

t.test('R293: a blocked loop is told at once, then once a minute with the longest of what came since, and shown as long', (t) => {
  let atMs = 0;
  const lines: string[] = [];
  const events: unknown[] = [];
  const note = (_fields: Readonly<Record<string, unknown>>, text: string): void => { lines.push(text); };
  const loops = new BlockedLoops({
    limits: { stallToleranceMs: 1_000, loopBlockedRetoldMs: 60_000 }, log: { debug: note, info: note, warn: note, error: note },
    publish: (name, data) => { events.push({ name, ...data }); }, nowUs: () => atMs * 1_000,
  });
  const at = (ms: number): void => {
    atMs = ms;
    loops.look();
  };
  const worker = { role: 'worker', generation: 'b-w1' } as const;
  loops.note(worker, 1_000);
  t.strictSame([lines, loops.shown('b-w1')], [[], null], 'what is tolerated is nothing to tell');
  loops.note(worker, 3_200);
  t.strictSame(lines, ['the loop of worker b-w1 was blocked for 3.2 s']);
  at(10_000);
  t.strictSame(loops.shown('b-w1'), { blockedMs: 3_200, agoMs: 10_000 });
  for (const lateMs of [1_500, 4_700, 2_000]) loops.note(worker, lateMs);
  loops.note({ role: 'broker', generation: null }, 1_001);
  t.strictSame(lines.splice(0), ['the loop of worker b-w1 was blocked for 3.2 s', 'the loop of the broker itself was blocked for 1.0 s'], 'each process has a minute of its own');
  t.strictSame(loops.shown('b-w1'), { blockedMs: 4_700, agoMs: 0 });
  at(59_999);
  t.strictSame(lines, []);
  at(60_000);
  t.strictSame(lines.splice(0), ['the loop of worker b-w1 was blocked for 4.7 s, and 2 more times for less'], 'though it says nothing more itself');
  at(119_999);
  t.strictSame([lines, loops.shown('b-w1'), loops.shown(null)], [[], { blockedMs: 4_700, agoMs: 109_999 }, null]);
  at(120_000);
  t.equal(loops.shown('b-w1'), null, 'what is over is forgotten');
  loops.note(worker, 2_000);
  t.equal(lines.length, 1);
  t.strictSame(events, [
    { name: 'loop_blocked', role: 'worker', generation: 'b-w1', blockedMs: 3_200, times: 1 },
    { name: 'loop_blocked', role: 'broker', generation: null, blockedMs: 1_001, times: 1 },
    { name: 'loop_blocked', role: 'worker', generation: 'b-w1', blockedMs: 4_700, times: 3 },
    { name: 'loop_blocked', role: 'worker', generation: 'b-w1', blockedMs: 2_000, times: 1 },
  ]);
  t.end();
});

t.test('what a peer says for the log is bounded by the second, whatever connection it comes by, and the rest is counted', (t) => {
  const lines: { readonly fields: Readonly<Record<string, unknown>>; readonly text: string }[] = [];
  const note = (fields: Readonly<Record<string, unknown>>, text: string): void => { lines.push({ fields, text }); };
  const peerLog = new PeerLog({ debug: note, info: note, warn: note, error: note }, 10_000);
  const say = (generation: string, pid: number, message: string, fields: Readonly<Record<string, string>> = {}): void => {
    peerLog.take({ generation, identity: { pid, startTime: '1' } }, { type: 'log', level: 'error', message, fields });
  };
  for (let count = 0; count < 1_000; count++) say(count % 2 === 0 ? 'b-s1' : 'b-s2', 7, 'x'.repeat(4_000));
  const claimed = { generation: 'b-s9', level: '10', time: '0', pid: '1', msg: 'forged', left: 'y' };
  say('b-s3', 8, 'somebody else', claimed);
  t.strictSame(lines.map(({ fields }) => fields['generation']), ['b-s1', 'b-s2', 'b-s3'], 'two lines of the flood, those of others, each under its own name');
  t.strictSame(lines[2], { fields: { generation: 'b-s3', fields: claimed }, text: 'somebody else' }, 'what it calls its own is apart from what is ours to say');
  peerLog.flush();
  t.match(lines.slice(3), [{ fields: { generation: 'b-s1', linesLeftOut: 998 }, text: /^998 lines left out: more than 10000 bytes a second/ }]);
  say('b-s2', 7, 'in the next second');
  t.equal(lines.length, 5);
  peerLog.flush();
  t.equal(lines.length, 5, 'and nothing is told where nothing was left out');
  t.end();
});
