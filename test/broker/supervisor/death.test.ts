/** What happens to workers when their broker dies, however it dies: nothing of them is left. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { startTimeOf } from '../../../broker/supervisor/index.js';
import { Guard } from '../../../broker/supervisor/guard.js';
import { carriers, fixture, lives, patienceMs, until } from './harness.js';

const supervisorUrl = new URL('../../../broker/supervisor/index.js', import.meta.url).href;

interface BrokerLike {
  readonly child: ChildProcess;
  readonly lines: readonly string[];
  readonly mark: string;
  readonly exited: Promise<string>;
  /** Pids of workers and grandchildren that it has told of. */
  pids(): readonly number[];
}

let started = 0;

/** A process that supervises `workers` workers of three grandchildren each (one plain, one deaf in its own session, one without environment). */
function brokerLike(workers: number, manner: 'tidy' | 'bare'): BrokerLike {
  const mark = `mark${process.pid}x${++started}.`;
  const child = spawn(process.execPath, [fixture('broker-like'), supervisorUrl, String(workers), manner], {
    env: { ...process.env, TEST_MARK: mark }, stdio: ['ignore', 'pipe', 'inherit'], detached: true,
  });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  const exited = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code ?? '?'}`));
  });
  const pids = (): readonly number[] => lines.flatMap((line) => {
    const told = /^spawned \S+ (\d+)$/.exec(line)?.[1] ?? /^said \S+ ready (.+)$/.exec(line)?.[1];
    return told === undefined ? [] : told.split(' ').map(Number);
  });
  return { child, lines, mark, exited, pids };
}

const allReady = (broker: BrokerLike, workers: number): Promise<true> => (
  until('all workers of the broker-like process', () => broker.lines.filter((line) => / ready /.test(line)).length === workers && true)
);

t.test('B85: kill -9 on the broker ends its workers and all that they started within five seconds, stopped ones too', async (t) => {
  const broker = brokerLike(3, 'tidy');
  await allReady(broker, 3);
  const pids = broker.pids();
  t.equal(pids.length, 12, 'three workers with three grandchildren each');
  t.ok(carriers(broker.mark).length >= 9, 'all but the cleared ones carry the token');
  const stopped = Number(/^spawned \S+ (\d+)$/m.exec(broker.lines.join('\n'))?.[1]);
  process.kill(stopped, 'SIGSTOP');
  const startedMs = performance.now();
  broker.child.kill('SIGKILL');
  t.equal(await broker.exited, 'SIGKILL');
  // The guards carry the mark too, and end a moment after what they ended.
  await until('all of them to be gone', () => pids.every((pid) => !lives(pid)) && carriers(broker.mark).length === 0);
  const tookMs = performance.now() - startedMs;
  t.ok(tookMs < 5_000, `gone in ${tookMs.toFixed(0)} ms`);
  t.comment(`all gone ${tookMs.toFixed(0)} ms after the broker's SIGKILL`);
});

t.test('B85: so does kill -9 on its whole group, as a terminal or a test runner would', async (t) => {
  const broker = brokerLike(1, 'bare');
  await allReady(broker, 1);
  const pids = broker.pids();
  process.kill(-(broker.child.pid ?? 0), 'SIGKILL');
  await broker.exited;
  await until('all of them to be gone', () => pids.every((pid) => !lives(pid)) && carriers(broker.mark).length === 0, 5_000);
  t.equal(pids.length, 4);
});

t.test('B86: SIGTERM at ten moments of the start leaves nothing, whether the broker handles it or not', async (t) => {
  // From a seed, so that a failure can be had again: the moments spread over a start of two workers on a slow machine.
  let seed = 20_261_130;
  const chance = (): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed / 2_147_483_648;
  };
  const moments = Array.from({ length: 10 }, (_, index) => Math.round((index + chance()) * 60));
  const attempt = async (momentMs: number, manner: 'tidy' | 'bare'): Promise<void> => {
    const broker = brokerLike(2, manner);
    await pause(momentMs);
    const startedMs = performance.now();
    broker.child.kill('SIGTERM');
    const end = await broker.exited;
    t.ok(performance.now() - startedMs < 10_000, `${manner} at ${momentMs} ms: ended in time`);
    t.ok(end === 'SIGTERM' || end === 'exit code 0', `${manner} at ${momentMs} ms: ${end}`);
    await until(`nothing to be left (${manner}, ${momentMs} ms)`, () => carriers(broker.mark).length === 0 && broker.pids().every((pid) => !lives(pid)), patienceMs);
  };
  for (let at = 0; at < moments.length; at += 2) {
    await Promise.all([attempt(moments[at] ?? 0, 'tidy'), attempt(moments[at + 1] ?? 0, 'bare')]);
  }
});

t.test('B88: a guard does not kill a stranger that has the number of a group that is gone', async (t) => {
  const stranger = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  const own = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  const elsewhere = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  const [strangerPid = 0, ownPid = 0, elsewherePid = 0] = [stranger.pid, own.pid, elsewhere.pid];
  t.teardown(() => [stranger, own, elsewhere].forEach((child) => child.kill('SIGKILL')));
  const orphan = (pid: number, startTime: string, platform = 'linux'): Promise<string> => new Promise((resolve) => {
    // A guard whose broker dies: this script starts one, tells it of the group, and is gone.
    const script = `
      const { Guard } = await import(${JSON.stringify(new URL('../../../broker/supervisor/guard.js', import.meta.url).href)});
      const guard = new Guard({ token: 'nobody', graceMs: 0, platform: ${JSON.stringify(platform)}, onLost: () => undefined });
      guard.start();
      guard.watch({ pid: ${pid}, startTime: ${JSON.stringify(startTime)} });
      console.log(guard.pid);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    child.once('close', () => resolve(said.trim()));
  });
  const guards = await Promise.all([orphan(strangerPid, '1'), orphan(ownPid, startTimeOf(ownPid) ?? ''), orphan(elsewherePid, '', 'darwin')]);
  await until('the guards to have done their work', () => guards.every((pid) => !lives(Number(pid))));
  await until('what they killed to be gone', () => !lives(ownPid) && !lives(elsewherePid), 5_000).catch(() => undefined);
  t.ok(lives(strangerPid), 'the stranger lives');
  t.notOk(lives(ownPid), 'the group that was meant is ended');
  t.notOk(lives(elsewherePid), 'also by the guard of a platform without /proc');
});

t.test('a dismissed guard ends without killing, and its arguments and environment show no token', async (t) => {
  const own = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' });
  t.teardown(() => own.kill('SIGKILL'));
  const guard = new Guard({ token: 'token-of-this-test', graceMs: 0, onLost: () => t.fail('it was not lost') });
  t.ok(guard.start());
  const pid = guard.pid ?? 0;
  guard.watch({ pid: own.pid ?? 0, startTime: startTimeOf(own.pid ?? 0) });
  t.notMatch(readFileSync(`/proc/${pid}/cmdline`, 'latin1') + readFileSync(`/proc/${pid}/environ`, 'latin1'), 'token-of-this-test');
  await Promise.all([guard.dismiss(), guard.dismiss()]);
  t.notOk(lives(pid));
  t.ok(lives(own.pid ?? 0));
  t.equal(new Guard({ token: 'x', graceMs: 0, platform: 'win32', onLost: () => undefined }).start(), true, 'where there is none, none is started');
  t.equal(new Guard({ token: 'x', graceMs: 0, shell: '/no/shell', onLost: () => undefined }).start(), false);
});
