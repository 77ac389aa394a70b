/** The supervisor with real processes: how they start, speak and end, and that nothing of them is left. */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createSupervisor, nodeCommand, startTimeOf, supervisorNotes, type ProcessTable } from '../../../broker/supervisor/index.js';
import { parseStat, parseToken, LinuxProcessTable } from '../../../broker/supervisor/process-table-linux.js';
import { PortableProcessTable } from '../../../broker/supervisor/process-table-portable.js';
import { isAlive, signalIdentity, type ProcessRow } from '../../../broker/supervisor/process-table.js';
import { membersOf } from '../../../broker/supervisor/tree.js';
import { bench, carriers, fixture, holdings, lives, until } from './harness.js';

const atStart = holdings();

t.teardown(async () => {
  // Every test closes its own supervisor; whatever is still open here has leaked.
  await until('nothing to be left open', () => holdings().children === atStart.children, 5_000);
});

t.test('pure parts', async (t) => {
  t.test('B88: fields are counted from the last parenthesis, whatever a process calls itself', async (t) => {
    const line = `42 (a) Z 1 b) S 7 40 41 ${Array.from({ length: 11 }, () => '0').join(' ')} 0 0 3 0 777 0`;
    t.strictSame(parseStat(line), { parentPid: 7, group: 40, session: 41, startTime: '777', ended: false });
    t.equal(parseStat('42 (short) S'), null);
  });
  t.test('a zombie has ended, unless threads of it still run', async (t) => {
    const line = (state: string, threads: number): string => `42 (x) ${state} 7 40 41 ${Array.from({ length: 13 }, () => '0').join(' ')} ${threads} 0 777 0`;
    t.equal(parseStat(line('Z', 1))?.ended, true);
    t.equal(parseStat(line('Z', 4))?.ended, false);
    t.equal(parseStat(line('T', 1))?.ended, false);
  });
  t.test('a token is a whole name and value of the environment', async (t) => {
    t.equal(parseToken(Buffer.from('A=1\0LEASEHOLD_TOKEN=abc\0B=2\0')), 'abc');
    t.equal(parseToken(Buffer.from('LEASEHOLD_TOKEN=abc')), 'abc');
    t.equal(parseToken(Buffer.from('NOT_LEASEHOLD_TOKEN=abc\0')), null);
    t.equal(parseToken(Buffer.from('A=LEASEHOLD_TOKEN=abc\0')), null);
    t.equal(parseToken(Buffer.alloc(0)), null);
  });
  t.test('a tree is token, session, group, descent and memory together; a stranger with a used number is not in it', async (t) => {
    const row = (pid: number, parentPid: number, more: Partial<ProcessRow> = {}): ProcessRow => ({ pid, parentPid, group: pid, session: pid, startTime: `s${pid}`, ended: false, token: null, ...more });
    const root = { leader: { pid: 10, startTime: 's10' }, token: 'T', seen: new Map([[15, 's15'], [16, 'older']]) };
    const rows = [
      row(14, 13), row(13, 10, { group: 10, session: 10 }), row(10, 1), row(11, 1, { token: 'T' }), row(12, 1, { session: 10 }),
      row(15, 1), row(16, 1), row(17, 1, { token: 'other' }), row(18, 10, { ended: true }), row(19, 10),
    ];
    t.strictSame(membersOf(rows, root, new Set([19])).map(({ pid }) => pid).sort(), [10, 11, 12, 13, 14, 15]);
    const reused = [row(10, 1, { startTime: 'later' }), row(20, 10, { group: 10, session: 10 }), row(11, 1, { token: 'T' })];
    t.strictSame(membersOf(reused, root, new Set()).map(({ pid }) => pid), [11]);
  });
  t.test('under Electron a script runs as Node, and from the unpacked copy when there is one', async (t) => {
    const plain = nodeCommand('/x/a.js', ['1'], { execPath: '/node', electron: false });
    t.strictSame(plain, { command: '/node', args: ['/x/a.js', '1'], env: {} });
    const folder = t.testdir({ 'app.asar.unpacked': { 'a.js': '' } });
    const packed = nodeCommand(join(folder, 'app.asar', 'a.js'), [], { execPath: '/app', electron: true });
    t.strictSame(packed, { command: '/app', args: [join(folder, 'app.asar.unpacked', 'a.js')], env: { ELECTRON_RUN_AS_NODE: '1' } });
    t.strictSame(nodeCommand(join(folder, 'app.asar', 'b.js'), [], { execPath: '/app', electron: true }).args, [join(folder, 'app.asar', 'b.js')]);
  });
  t.test('other platforms say what they lack', async (t) => {
    t.strictSame(supervisorNotes('linux'), []);
    t.ok(supervisorNotes('darwin').every(({ code }) => code === 'platform_unsupported'));
    t.ok(supervisorNotes('win32').length > supervisorNotes('darwin').length);
    const table = new PortableProcessTable('darwin');
    t.strictSame(table.find(process.pid), { pid: process.pid, startTime: null });
    t.equal(table.find(4_194_303), null);
  });
});

t.test('a worker gets a clean environment, its key by that alone, and the key shows in no log and no argument list', async (t) => {
  const key = 'a5'.repeat(32);
  process.env['LEASEHOLD_SECRET'] = 'ours alone';
  process.env['LEASEHOLD_STATE'] = '/somewhere';
  t.teardown(() => {
    delete process.env['LEASEHOLD_SECRET'];
    delete process.env['LEASEHOLD_STATE'];
  });
  const { supervisor, told, spawn, ended } = bench({ limits: { outputLineBytesMax: 1_000_000 } });
  const node = nodeCommand(fixture('shows-environment'), ['argument']);
  spawn('env-w1', node.command, node.args, { LEASEHOLD_KEY: key, LEASEHOLD_SOCKET: '/run/socket', CUDA_VISIBLE_DEVICES: 'GPU-x' });
  const obituary = await ended('env-w1');
  const said = JSON.parse(told.lines.find(({ stream }) => stream === 'stdout')?.line ?? '{}') as { environment: Record<string, string>; args: string[] };
  t.strictSame(said.args, ['argument']);
  t.strictSame(Object.keys(said.environment).filter((name) => name.startsWith('LEASEHOLD_')).sort(), ['LEASEHOLD_KEY', 'LEASEHOLD_SOCKET', 'LEASEHOLD_TOKEN']);
  t.equal(said.environment['CUDA_VISIBLE_DEVICES'], 'GPU-x');
  t.equal(said.environment['PATH'], process.env['PATH']);
  t.equal(said.environment['NODE_CHANNEL_FD'], undefined);
  t.notMatch(JSON.stringify([told.lines, obituary.lastLines]), key, 'what it says is handed on without its key');
  t.match(told.lines.find(({ stream }) => stream === 'stderr')?.line, 'my key is [hidden]');
  await supervisor.close(0);
});

t.test('what cannot be started fails typed, and its name is spent', async (t) => {
  const folder = t.testdir({ 'not-executable': 'text', 'not-a-program': 'text' });
  const { supervisor, told, spawn } = bench();
  spawn('fail-w1', '/no/such/program');
  spawn('fail-w2', join(folder, 'not-executable'));
  spawn('fail-w3', process.execPath, ['x'.repeat(4_000_000)]);
  await until('three failures', () => told.failed.size === 3);
  t.match(told.failed.get('fail-w1'), /no such file \(ENOENT\)/);
  t.match(told.failed.get('fail-w2'), /may not be executed \(EACCES\)/);
  t.match(told.failed.get('fail-w3'), /E2BIG/);
  t.equal(told.exits, 0, 'what never lived does not end');
  t.strictSame(supervisor.pidsOf('fail-w1'), []);
  t.throws(() => spawn('fail-w1', 'sleep', ['1']), { code: 'internal' });
  await supervisor.close(0);
  t.throws(() => spawn('fail-w4', 'sleep', ['1']), { code: 'closed' });
});

t.test('the end of a worker tells its code and its last words, also those without a newline', async (t) => {
  const { supervisor, told, spawn, ended } = bench();
  const node = nodeCommand(fixture('last-words'));
  spawn('last-w1', node.command, node.args);
  const obituary = await ended('last-w1');
  t.strictSame({ exitCode: obituary.exitCode, signal: obituary.signal, how: obituary.how, reaped: obituary.reaped }, { exitCode: 3, signal: null, how: 'exit code 3', reaped: [] });
  t.strictSame([...obituary.lastLines].sort(), ['first', 'second', 'the reason, without a newline']);
  t.equal(told.exits, 1);
  t.equal(supervisor.identityOf('last-w1'), null);
  await supervisor.close(0);
});

t.test('B76, B58: kill -9 on a loading worker is told in under a second, frees its name to nobody, and starts nothing anew', async (t) => {
  const { supervisor, told, run, ended } = bench();
  const [pid = 0] = await run('kill-w1', 'idle', [], { CUDA_VISIBLE_DEVICES: 'GPU-granted' });
  const identity = supervisor.identityOf('kill-w1');
  t.strictSame(identity, { pid, startTime: startTimeOf(pid) });
  t.strictSame(supervisor.pidsOf('kill-w1'), [pid]);
  t.match(readFileSync(`/proc/${pid}/environ`, 'latin1'), 'CUDA_VISIBLE_DEVICES=GPU-granted');
  const startedMs = performance.now();
  process.kill(pid, 'SIGKILL');
  const obituary = await ended('kill-w1');
  t.ok(performance.now() - startedMs < 1_000, 'told in time');
  t.equal(obituary.how, 'SIGKILL');
  t.equal(obituary.exitCode, null);
  t.strictSame(supervisor.pidsOf('kill-w1'), []);
  t.equal(supervisor.identityOf('kill-w1'), null);
  t.strictSame(carriers('kill-w1'), [], 'no successor was started');
  supervisor.terminate('kill-w1', 0, 'late');
  t.equal(told.exits, 1, 'a late terminate is nothing');
  await supervisor.close(0);
});

t.test('the ladder: a clean end within the grace, SIGKILL after it, SIGKILL of a stopped one, and at once without a grace', async (t) => {
  const { supervisor, told, run, ended } = bench();
  await Promise.all([
    run('clean-w1', 'ends-cleanly', ['20']), run('deaf-w1', 'ignores-sigterm'), run('deaf-w2', 'ignores-sigterm'), run('stop-w1', 'ends-cleanly', ['1']), run('stop-w2', 'ignores-sigterm'),
  ]);
  for (const name of ['stop-w1', 'stop-w2']) {
    const pid = supervisor.identityOf(name)?.pid ?? 0;
    process.kill(pid, 'SIGSTOP');
    await until('it to be stopped', () => /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'latin1')));
  }
  supervisor.terminate('clean-w1', 30_000, 'test');
  supervisor.terminate('clean-w1', 60_000, 'again: changes nothing');
  supervisor.terminate('deaf-w1', 200, 'test');
  supervisor.terminate('deaf-w2', 600_000, 'test');
  supervisor.terminate('deaf-w2', 0, 'a shorter grace counts');
  supervisor.terminate('stop-w1', 30_000, 'test');
  supervisor.terminate('stop-w2', 200, 'test');
  t.match(await ended('clean-w1'), { exitCode: 0, how: 'exit code 0' });
  t.ok((await ended('clean-w1')).lastLines.includes('put away'));
  t.match(await ended('deaf-w1'), { how: 'SIGKILL' });
  t.ok((await ended('deaf-w1')).lastLines.includes('ignored SIGTERM'), 'it was asked first');
  t.match(await ended('deaf-w2'), { how: 'SIGKILL' });
  t.match(await ended('stop-w1'), { exitCode: 0 }, 'a stopped worker is woken to hear the signal');
  t.match(await ended('stop-w2'), { how: 'SIGKILL' }, 'a stopped and deaf one is killed');
  t.equal(told.exits, 5);
  t.equal(told.unconfirmed.size, 0);
  await supervisor.close(0);
});

t.test('a worker that is asked by message first gets half its grace before the signal', async (t) => {
  const asked: string[] = [];
  const { supervisor, run, ended } = bench({ askFirst: (generation, graceMs, reason) => asked.push(`${generation} ${graceMs} ${reason}`) > 0 });
  await run('ask-w1', 'ends-cleanly', ['1']);
  const startedMs = performance.now();
  supervisor.terminate('ask-w1', 300, 'idle');
  t.match(await ended('ask-w1'), { exitCode: 0 });
  t.ok(performance.now() - startedMs >= 140, 'the signal came after half the grace');
  t.strictSame(asked, ['ask-w1 300 idle']);
  await supervisor.close(0);
});

t.test('B40, B85: what a worker leaves behind is found, ended and named, wherever it went', async (t) => {
  const { supervisor, run, spawn, told, ended } = bench();
  const left = await run('tree-w1', 'grandchildren', ['plain', 'setsid', 'cleared', 'deaf']);
  const leader = supervisor.identityOf('tree-w1')?.pid ?? 0;
  await until('all to be seen as its own', () => [leader, ...left].every((pid) => supervisor.pidsOf('tree-w1').includes(pid)));
  process.kill(leader, 'SIGKILL');
  const obituary = await ended('tree-w1');
  t.ok(left.every((pid) => obituary.reaped.some((each) => each.pid === pid)), 'each is reported');
  t.ok(obituary.reaped.every(({ startTime }) => startTime !== null));
  t.strictSame(left.filter(lives), []);

  t.comment('a shell that starts the real worker and passes no signal on');
  spawn('wrap-w1', '/bin/sh', ['-c', `"${process.execPath}" "${fixture('ends-cleanly')}" 100; echo wrapper`]);
  await until('the wrapped one to be ready', () => told.lines.some(({ generation, line }) => generation === 'wrap-w1' && line.startsWith('ready')));
  supervisor.terminate('wrap-w1', 30_000, 'test');
  const wrapped = await ended('wrap-w1');
  t.ok(wrapped.lastLines.includes('put away'), 'it had its grace although its wrapper was gone');
  t.strictSame(carriers('wrap-w1'), []);
  await supervisor.close(0);
});

t.test('whose a pid is: the tree that it is in, however young it is, and just after its end', async (t) => {
  const real = new LinuxProcessTable();
  let listings = 0;
  const table: ProcessTable = {
    lists: true,
    list: () => { listings += 1; return real.list(); },
    find: (pid) => real.find(pid), startTime: (pid) => real.startTime(pid), variable: (pid, name) => real.variable(pid, name), signal: (pid, signal) => real.signal(pid, signal), signalGroup: (group, signal) => real.signalGroup(group, signal),
  };
  const { supervisor, told, spawn, ended } = bench({ table });
  spawn('own-w1', process.execPath, ['-e', `process.stdin.resume(); setInterval(() => undefined, 60000); process.on('SIGUSR2', () => { const child = require('node:child_process').spawn('sleep', ['300'], { stdio: 'ignore' }); console.log('child ' + child.pid); }); console.log('ready')`]);
  await until('it to be up', () => told.lines.some(({ line }) => line === 'ready'));
  const leader = supervisor.identityOf('own-w1')?.pid ?? 0;
  t.equal(supervisor.ownerOf(leader), 'own-w1');
  t.equal(supervisor.ownerOf(process.pid), null, 'the broker is nobody’s');
  const before = listings;
  for (let turn = 0; turn < 100; turn++) supervisor.ownerOf(process.ppid);
  t.ok(listings - before < 10, 'a stranger that is known as one costs no listing');
  process.kill(leader, 'SIGUSR2');
  const pid = await until('a child', () => Number(/^child (\d+)$/.exec(told.lines.at(-1)?.line ?? '')?.[1] ?? 0) || null);
  await until('it to be its parent’s, though it is younger than the last listing', () => supervisor.ownerOf(pid) === 'own-w1', 200);
  process.kill(pid, 'SIGKILL');
  await until('its end', () => !lives(pid));
  t.equal(supervisor.ownerOf(pid), 'own-w1', 'a figure that was read while it lived is still its');
  supervisor.terminate('own-w1', 0, 'test');
  await ended('own-w1');
  await supervisor.close(0);
});

t.test('B94: output is drained, cut and bounded, and ready is seen behind a flood', async (t) => {
  const limits = { outputLinesMax: 50, outputLineBytesMax: 1_000 };
  const linesWritten = 2 * 16 * 1_024 + 3;
  const { supervisor, told, run, ended } = bench({ limits, outputLinesPerSecondMax: 1_000_000 });
  await run('flood-w1', 'flood');
  supervisor.terminate('flood-w1', 0, 'test');
  const obituary = await ended('flood-w1');
  t.ok(obituary.lastLines.length <= 50);
  t.ok(obituary.lastLines.every((line) => line.length < 1_100));
  // Which of the last lines of two streams came last is nobody's to say: of this one it is that it was handed on.
  t.ok(told.lines.some(({ line }) => line === `${'y'.repeat(1_000)}… [299000 bytes cut]`));
  t.ok(obituary.lastLines.includes(`${'z'.repeat(1_000)}… [1047576 bytes cut]`), 'also the line that never ended');
  t.equal(told.lines.length, linesWritten);
  await supervisor.close(0);

  t.comment('the same with a limit of lines a second');
  const slow = bench({ limits, outputLinesPerSecondMax: 500 });
  const node = nodeCommand(fixture('flood'), ['end']);
  slow.spawn('flood-w2', node.command, node.args);
  const { exitCode, lastLines } = await slow.ended('flood-w2');
  t.equal(exitCode, 0, 'it was never blocked');
  t.ok(lastLines.some((line) => line.startsWith('ready')), 'what is not handed on is kept in its turn');
  const hidden = slow.told.lines.map(({ line }) => /^\[(\d+) lines more/.exec(line)?.[1]).filter((count) => count !== undefined).map(Number);
  const hiddenLines = hidden.reduce((sum, count) => sum + count, 0);
  t.ok(hiddenLines > 0);
  t.equal(slow.told.lines.length - hidden.length + hiddenLines, linesWritten, 'every line is shown or counted');
  await slow.supervisor.close(0);
});

t.test('a guard that is killed is replaced, and the worker lives on', async (t) => {
  const { supervisor, told, run, ended } = bench();
  const [pid = 0] = await run('guard-w1', 'idle');
  const table = new LinuxProcessTable();
  const guards = (): readonly number[] => (table.list() ?? []).filter(({ parentPid, pid: each, ended: over }) => parentPid === process.pid && each !== pid && !over).map(({ pid: each }) => each);
  const [first = 0] = guards();
  process.kill(first, 'SIGKILL');
  await until('another guard', () => told.notes.length > 0 && guards().some((each) => each !== first));
  t.match(told.notes, [/guard ended and was replaced/]);
  t.ok(lives(pid));
  supervisor.terminate('guard-w1', 0, 'test');
  await ended('guard-w1');
  await supervisor.close(0);
  t.strictSame(guards(), [], 'guards go with their workers');
});

t.test('B88: a process is watched and signalled by pid and start time; a stranger with the pid is not touched', async (t) => {
  const stranger = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  t.teardown(() => stranger.kill('SIGKILL'));
  const pid = stranger.pid ?? 0;
  const table = new LinuxProcessTable();
  const stale = { pid, startTime: '1' };
  t.equal(isAlive(table, stale), false);
  t.equal(signalIdentity(table, stale, 'SIGKILL'), 'gone');

  const { supervisor, told } = bench({ watchIntervalMs: 10 });
  supervisor.watch('hold-s1', stale);
  supervisor.watch('hold-s2', { pid, startTime: startTimeOf(pid) });
  supervisor.watch('hold-s3', { pid, startTime: null });
  supervisor.watch('hold-s4', { pid, startTime: null });
  t.strictSame(supervisor.identityOf('hold-s3'), { pid, startTime: startTimeOf(pid) }, 'the start time is taken when it was not told');
  await until('the stale one to be told gone', () => told.exited.has('hold-s1'));
  t.match(told.exited.get('hold-s1'), { how: 'gone', exitCode: null, signal: null });
  t.ok(lives(pid), 'the stranger lives');
  t.equal(told.exits, 1);
  supervisor.unwatch('hold-s4');
  stranger.kill('SIGKILL');
  await until('the others to be told gone', () => told.exited.has('hold-s2') && told.exited.has('hold-s3'));
  t.notOk(told.exited.has('hold-s4'), 'who is not watched is not told of');
  t.equal(told.exits, 3);
  await supervisor.close(0);
});

t.test('an end that cannot be confirmed is told, watched on, and told when it comes', async (t) => {
  const real = new LinuxProcessTable();
  let held = true;
  // The kernel that does not act on SIGKILL: a process stuck in a driver.
  const stuck: ProcessTable = {
    lists: true,
    list: () => real.list(),
    find: (pid) => real.find(pid),
    startTime: (pid) => real.startTime(pid),
    variable: (pid, name) => real.variable(pid, name),
    signal: (pid, signal) => (held && signal === 'SIGKILL' ? 'sent' : real.signal(pid, signal)),
    signalGroup: (group, signal) => (held && signal === 'SIGKILL' ? 'sent' : real.signalGroup(group, signal)),
  };
  const { supervisor, told, run, ended } = bench({ table: stuck, limits: { killConfirmMs: 100 } });
  const [pid = 0] = await run('stuck-w1', 'ignores-sigterm');
  supervisor.terminate('stuck-w1', 10, 'test');
  const reason = await until('word of it', () => told.unconfirmed.get('stuck-w1'));
  t.match(reason, new RegExp(`pid ${pid} still lives`));
  t.equal(told.exits, 0, 'unconfirmed is not an exit');
  t.ok(lives(pid));
  held = false;
  t.match(await ended('stuck-w1'), { how: 'SIGKILL' });
  t.equal(told.unconfirmed.size, 1, 'told once');
  await supervisor.close(0);
});

t.test('without a process list (macOS, Windows) the ladder works on the process and its group alone', async (t) => {
  const { supervisor, told, run, ended } = bench({ table: new PortableProcessTable('darwin') });
  await run('plain-w1', 'ends-cleanly', ['1']);
  await run('plain-w2', 'ignores-sigterm');
  const left = await run('plain-w3', 'grandchildren', ['plain']);
  const { pid = 0 } = supervisor.identityOf('plain-w1') ?? {};
  t.strictSame(supervisor.identityOf('plain-w1'), { pid, startTime: null });
  t.strictSame(supervisor.pidsOf('plain-w1'), [pid]);
  supervisor.terminate('plain-w1', 30_000, 'test');
  supervisor.terminate('plain-w2', 50, 'test');
  process.kill(supervisor.identityOf('plain-w3')?.pid ?? 0, 'SIGKILL');
  t.match(await ended('plain-w1'), { exitCode: 0, reaped: [] });
  t.match(await ended('plain-w2'), { how: 'SIGKILL' });
  t.match(await ended('plain-w3'), { how: 'SIGKILL' });
  await until('the grandchild in its group to be gone', () => !left.some(lives));
  t.equal(told.exits, 3);
  await supervisor.close(0);
});

t.test('fifty workers are started and stopped at once, and nothing of them is left', async (t) => {
  // What the test before this one has closed may still be listed.
  const before = await until('earlier children to be gone', () => (holdings().children === atStart.children && holdings().resources['ProcessWrap'] === atStart.resources['ProcessWrap'] ? holdings() : null));
  const { supervisor, told, spawn } = bench();
  const names = Array.from({ length: 50 }, (_, index) => `many-w${index + 1}`);
  for (const name of names) spawn(name, '/bin/sh', ['-c', 'echo ready; exec sleep 300']);
  await until('all to be ready', () => told.lines.filter(({ line }) => line === 'ready').length === 50);
  t.ok(names.every((name) => supervisor.pidsOf(name).length === 1));
  for (const name of names.slice(0, 10)) process.kill(supervisor.identityOf(name)?.pid ?? 0, 'SIGKILL');
  for (const name of names.slice(10, 30)) supervisor.terminate(name, 5_000, 'test');
  await supervisor.close(5_000);
  t.equal(told.exited.size, 50, 'close resolves after the last end');
  t.equal(told.exits, 50);
  t.equal(told.unconfirmed.size, 0);
  t.strictSame(carriers('many-w'), []);
  // A handle that has been closed is listed until the loop has turned.
  await until('everything to be closed', () => JSON.stringify(holdings()) === JSON.stringify(before)).catch(() => undefined);
  t.strictSame(holdings(), before, 'no descriptor, child, zombie or handle is left');
});

t.test('a supervisor closes idempotently, and one without workers at once', async (t) => {
  const empty = createSupervisor({ onSpawned: () => undefined, onSpawnFailed: () => undefined, onExited: () => undefined, onKillUnconfirmed: () => undefined, onOutput: () => undefined });
  await empty.close(1_000);
  const { supervisor, told, run } = bench();
  await run('close-w1', 'ignores-sigterm');
  const first = supervisor.close(600_000);
  const second = supervisor.close(0);
  t.equal(first, second);
  await second;
  t.equal(told.exits, 1);
  writeFileSync(join(t.testdir(), 'written-after-close'), '', { flag: 'w' });
  t.strictSame(carriers('close-w1'), []);
});
