/** Workers that outlive their broker: found again by what was recorded, taken over, and ended when nobody comes; strangers are never touched. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import t from 'tap';
import { startTimeOf } from '../../../broker/supervisor/index.js';
import type { AdoptRequest, Tracked } from '../../../broker/supervisor/types.js';
import { bench, carriers, fixture, lives, until } from './harness.js';

const supervisorUrl = new URL('../../../broker/supervisor/index.js', import.meta.url).href;
let started = 0;

interface Dying {
  readonly mark: string;
  /** The whole tree: the worker, three grandchildren. */
  readonly pids: readonly number[];
  readonly leader: number;
  readonly request: AdoptRequest;
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>;
}

/** A process with one worker of three grandchildren, started or taken over, which is going to die. */
async function dying(graceMs: number, adopts: AdoptRequest | null = null): Promise<Dying> {
  const mark = `adopt${process.pid}x${++started}.`;
  const lines: string[] = [];
  const child: ChildProcess = spawn(process.execPath, [fixture('broker-like'), supervisorUrl, adopts === null ? '1' : '0', 'bare'], {
    env: { ...process.env, TEST_MARK: mark, TEST_GRACE_MS: String(graceMs), ...(adopts === null ? {} : { TEST_ADOPT: JSON.stringify([adopts]) }) },
    stdio: ['ignore', 'pipe', 'inherit'], detached: true,
  });
  createInterface({ input: child.stdout ?? process.stdin }).on('line', (line) => lines.push(line));
  const told = (word: string): string | undefined => lines.filter((line) => line.startsWith(`${word} `)).at(-1)?.split(' ').slice(2).join(' ');
  await until('the worker to be there', () => (adopts === null ? told('said')?.startsWith('ready') : told('tracked')));
  const { token, identity, guard } = JSON.parse(told('tracked') ?? '') as Tracked;
  const leader = identity?.pid ?? 0;
  const exited = new Promise<void>((resolve) => { child.once('exit', () => { resolve(); }); });
  return {
    mark, leader,
    pids: [leader, ...(told('said') ?? '').split(' ').slice(1).map(Number)],
    request: { generation: 'like-w1', token, identity, guard },
    kill: async () => {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

const gone = (pids: readonly number[]): Promise<true> => until('all of them to be gone', () => pids.every((pid) => !lives(pid)));

function sleeper(t: { teardown(done: () => void): void }, env: Readonly<Record<string, string>> = {}): { readonly pid: number; readonly startTime: string } {
  const child = spawn('sleep', ['300'], { detached: true, stdio: 'ignore', env: { PATH: process.env['PATH'] ?? '', ...env } });
  t.teardown(() => { child.kill('SIGKILL'); });
  const pid = child.pid ?? 0;
  return { pid, startTime: startTimeOf(pid) ?? '' };
}

t.test('within its grace a worker outlives its broker; the next one takes it over with a guard of its own, and ends it with all that it started', async (t) => {
  const first = await dying(60_000);
  const { supervisor, told, ended } = bench({ limits: { reattachGraceMs: 60_000 } });
  await first.kill();
  const oldGuard = first.request.guard?.pid ?? 0;
  t.ok(lives(oldGuard), 'its guard waits');
  t.equal(supervisor.adopt(first.request), true);
  await until('the old guard to be gone', () => !lives(oldGuard));
  t.ok(first.pids.every(lives), 'and nothing else is');
  const known = supervisor.pidsOf('like-w1');
  t.ok(first.pids.every((pid) => known.includes(pid)), 'its whole tree is known');
  t.match(supervisor.identityOf('like-w1'), first.request.identity);
  t.equal(supervisor.adopt(first.request), false, 'once');
  supervisor.terminate('like-w1', 100, 'test');
  t.match(await ended('like-w1'), { exitCode: null, signal: null, how: /^gone/ });
  await gone(first.pids);
  t.strictSame(carriers(first.mark), []);
  t.equal(told.exits, 1);
  await supervisor.close(0);
});

t.test('B85: a worker that nobody takes over ends when its grace is over, with all that it started, stopped as it may be', async (t) => {
  const first = await dying(600);
  process.kill(first.leader, 'SIGSTOP');
  const killedMs = performance.now();
  await first.kill();
  await gone(first.pids);
  const tookMs = performance.now() - killedMs;
  t.ok(tookMs >= 500, `not before (${tookMs.toFixed(0)} ms)`);
  await until('its guard to be gone', () => !lives(first.request.guard?.pid ?? 0));
  t.strictSame(carriers(first.mark), []);
});

t.test('a broker that took over and dies is outlived in the same way', async (t) => {
  const first = await dying(60_000);
  await first.kill();
  const second = await dying(60_000, first.request);
  t.not(second.request.guard?.pid, first.request.guard?.pid);
  await second.kill();
  t.ok(first.pids.every(lives), 'the worker lives on');
  const third = await dying(400, second.request);
  await third.kill();
  await gone(first.pids);
  t.strictSame(carriers(first.mark), [], 'and ends when at last nobody comes');
});

t.test('a leader that ends while there is no broker takes its tree with it, grace or not', async (t) => {
  const first = await dying(600_000);
  await first.kill();
  process.kill(first.leader, 'SIGKILL');
  await gone(first.pids);
  // A child between leader and grandchildren would rightly be found, and ended.
  await until('nothing to carry its token', () => carriers(first.mark).length === 0);
  const { supervisor } = bench();
  t.equal(supervisor.adopt(first.request), false, 'and the next broker finds nothing');
  await supervisor.close(0);
});

t.test('R101: what a dead leader left behind is ended by the next broker, and told', async (t) => {
  const first = await dying(600_000);
  await first.kill();
  process.kill(first.request.guard?.pid ?? 0, 'SIGKILL');
  process.kill(first.leader, 'SIGKILL');
  await until('the leader to be gone', () => !lives(first.leader));
  const { supervisor, ended } = bench();
  t.equal(supervisor.adopt(first.request), true);
  const { reaped } = await ended('like-w1');
  t.ok(reaped.length >= 2, 'those that carry its token at least');
  await supervisor.close(0);
  for (const pid of first.pids.filter(lives)) process.kill(pid, 'SIGKILL');
});

t.test('a record that was written before its process lived finds it by its token', async (t) => {
  const first = await dying(60_000);
  await first.kill();
  const { supervisor, ended } = bench();
  t.equal(supervisor.adopt({ ...first.request, identity: null }), true);
  t.equal(supervisor.identityOf('like-w1')?.pid, first.leader);
  await supervisor.close(0);
  await ended('like-w1');
  await gone(first.pids);
  t.equal(bench().supervisor.adopt({ ...first.request, identity: null }), false);
});

t.test('B88: a record that names a stranger ends nobody', async (t) => {
  const { supervisor, told } = bench({ limits: { killConfirmMs: 50 } });
  const adopt = (generation: string, identity: AdoptRequest['identity'], guard: AdoptRequest['guard'] = null): boolean => supervisor.adopt({ generation, token: 'forged', identity, guard });
  const plain = sleeper(t);
  t.equal(adopt('x-w1', { ...plain, startTime: '1' }), false, 'another start time: it is gone');
  t.equal(adopt('x-w2', sleeper(t, { LEASEHOLD_TOKEN: 'another' })), false, 'another token: it is somebody else’s');
  t.equal(adopt('x-w3', { pid: process.pid, startTime: startTimeOf(process.pid) }), false, 'we ourselves');
  t.equal(adopt('x-w4', plain), true, 'no token at all: it may be ours, and is watched');
  supervisor.terminate('x-w4', 0, 'test');
  t.match(await until('word that it is not ended', () => told.unconfirmed.get('x-w4')), /does not prove to be ours/);
  t.ok(lives(plain.pid), 'but not signalled');
  supervisor.vouch('x-w4');
  const victim = sleeper(t);
  const own = sleeper(t, { LEASEHOLD_TOKEN: 'forged' });
  t.equal(adopt('x-w5', own, victim), true);
  supervisor.terminate('x-w5', 0, 'test');
  await until('it to be gone', () => told.exited.has('x-w5'));
  t.notOk(lives(own.pid), 'what proves to be ours is ended');
  t.ok(lives(victim.pid), 'what a record calls its guard and is none is not');
  await until('the one that came with the key to be ended, too', () => told.exited.has('x-w4'));
  await supervisor.close(0);
});
