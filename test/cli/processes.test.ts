// The command as people run it: a daemon, and other processes that use it, on a simulated card with simulated engines.
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, cpSync, existsSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { jsonLines } from './fake-io.js';

const main = join(dirname(fileURLToPath(import.meta.url)), '../../bin/leasehold.js');
const work = mkdtempSync(join(tmpdir(), 'lh-cli-'));
const config = join(work, 'leasehold.yaml');
writeFileSync(config, `
devices: ["sim:12MiB"]
state: state
models:
  quick: { engine: simulated, source: 'sim:{"text":"as quick as a fox","loadMs":20}', preload: true, aliases: [fast] }
  other: { engine: simulated, source: 'sim:{"text":"the other one","weightsBytes":8388608}' }
  slow: { engine: simulated, source: 'sim:{"text":"on and on ","textTimes":100000,"tokensPerSecond":50}' }
  large: { engine: simulated, source: 'sim:{"weightsBytes":67108864}' }
limits: { classes: { normal: { minimumResidencyMs: 0 } } }
`);

const children = new Set<ChildProcess>();
t.teardown(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(work, { recursive: true });
});

function begin(...args: string[]) {
  const child = spawn(process.execPath, [main, ...args], { cwd: work, stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env['PATH'] ?? '', HOME: work } });
  children.add(child);
  const heard = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => { heard.out += text; });
  child.stderr.setEncoding('utf8').on('data', (text: string) => { heard.err += text; });
  const ended = once(child, 'close').then(([code]) => {
    children.delete(child);
    return { code: code as number | null, ...heard };
  });
  /** Resolves once the stream matches; rejects with what was heard when it ends before. */
  const hears = (stream: 'out' | 'err') => async (pattern: RegExp): Promise<void> => {
    while (!pattern.test(heard[stream])) {
      const over = await Promise.race([once(stream === 'out' ? child.stdout : child.stderr, 'data').then(() => null), ended]);
      if (over !== null && !pattern.test(heard[stream])) throw new Error(`it ended with ${String(over.code)}: ${over.out}${over.err}`);
    }
  };
  return { child, ended, says: hears('out'), warns: hears('err'), heard };
}

const finish = (...args: string[]) => begin(...args).ended;

t.test('a daemon and those who use it', async (t) => {
  const daemon = begin('up', '--json');
  await daemon.says(/"event":"ready"/);

  t.test('answers stream, by name and by alias, and the quiet half goes to stderr', async (t) => {
    t.match(await finish('run', 'fast', 'hello'), { code: 0, out: 'as quick as a fox\n', err: /fast/ });
  });

  t.test('a model makes room for another, and explain says why', async (t) => {
    t.match(await finish('run', 'other', '-q', 'hello'), { code: 0, out: 'the other one\n', err: '' });
    const { out } = await finish('ps', '--json');
    t.match(jsonLines(out), [{ leases: [{ name: 'other', state: 'resident' }], counters: { evictions: 1 }, simulatedCards: [{ oomRefusals: 0 }] }]);
    t.match(await finish('explain', 'other'), { code: 0, out: /^GRANTED {2}other · SIM-/ });
    t.match((await finish('ps')).out, /other +resident/);
  });

  t.test('the doctor finds it and leaves it alone', async (t) => {
    const { code, out } = await finish('doctor', 'state', 'broker', 'configuration', 'engines', '--no-engines', '--json');
    const [diagnosis] = jsonLines(out) as unknown as readonly { readonly checks: readonly { readonly id: string; readonly verdict: string; readonly found: string }[] }[];
    t.match(diagnosis?.checks.find(({ id }) => id === 'broker.running'), { verdict: 'ok', found: new RegExp(`^one runs: pid ${String(daemon.child.pid)}, since .*, version \\d+\\.\\d+\\.\\d+, \\d workers?, 0 requests waiting; it owns SIM-`) });
    t.equal(code, diagnosis?.checks.some(({ verdict }) => verdict === 'problem') === true ? 1 : 0);
    t.strictSame(diagnosis?.checks.filter(({ id, verdict }) => verdict === 'problem' && !id.startsWith('configuration.')), []);
    t.match((await finish('ps', '--json')).out, /"bootId"/);
  });

  t.test('what can never fit is denied with numbers, and the status says why', async (t) => {
    const { code, out } = await finish('run', 'large', '--json', 'hello');
    t.equal(code, 4);
    t.match(jsonLines(out).at(-1), { error: { code: 'never_fits', details: { needBytes: /^\d+$/ } } });
  });

  t.test('evict frees, pin holds', async (t) => {
    t.match(jsonLines((await finish('evict', 'other', '--json')).out), [{ model: 'other', freedBytes: 8_912_896 }]);
    t.match(await finish('pin', 'quick'), { code: 0, out: /is pinned/ });
    t.match(await finish('pin', 'quick', '--off'), { code: 0 });
  });

  t.test('Ctrl-C cancels a call cleanly: the worker is free for the next', async (t) => {
    const endless = begin('run', 'slow', '-q', 'go');
    await endless.says(/on and on/);
    endless.child.kill('SIGINT');
    const { code, err } = await endless.ended;
    t.strictSame([code, err], [130, '']);
    const [state] = jsonLines((await finish('ps', '--json')).out);
    t.match((state?.['leases'] as { name: string; inFlight: number }[]).filter(({ name }) => name === 'slow'), [{ inFlight: 0 }]);
  });

  t.test('a second daemon on the same folder is refused, naming the first', async (t) => {
    const { code, out } = await finish('up', '--json');
    t.equal(code, 1);
    t.match(jsonLines(out), [{ error: { code: 'broker_running', details: { pid: String(daemon.child.pid) } } }]);
  });

  t.test('one that is stopped (SIGSTOP) is told as such, with what to do, by whoever looks for it or wants its place', async (t) => {
    const pid = String(daemon.child.pid);
    daemon.child.kill('SIGSTOP');
    const [looked, wanted] = await Promise.all([finish('ps', '--limit', 'helloTimeoutMs=2s'), finish('up')]);
    daemon.child.kill('SIGCONT');
    t.match(looked, { code: 3, err: new RegExp(`A broker is there \\(pid ${pid}\\) and is stopped\\.[^]*kill -CONT ${pid}`) });
    t.match(wanted, { code: 1, err: new RegExp(`A broker is stopped \\(pid ${pid}\\)\\.[^]*kill -CONT ${pid}`) });
    t.notMatch(looked.err + wanted.err, /explain|kill -INT/);
    t.match(await finish('ps'), { code: 0 });
  });

  t.test('stops when it is told, with all it started', async (t) => {
    const [state] = jsonLines((await finish('ps', '--json')).out);
    const pids = (state?.['workers'] as { pid: number }[]).map(({ pid }) => pid);
    t.ok(pids.length > 0);
    daemon.child.kill('SIGTERM');
    const { code, out } = await daemon.ended;
    t.strictSame([code, jsonLines(out).at(-1)?.['event']], [0, 'stopping']);
    for (const pid of pids) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' }, `worker ${pid} is gone`);
    t.match(await finish('ps'), { code: 3, out: '', err: /No broker is running here.*\n {2}help: Start one with `leasehold up`/ });
  });
});

t.test('a second Ctrl-C of a daemon cuts the call that it waits for, and leaves no worker behind', async (t) => {
  const state = mkdtempSync(join(tmpdir(), 'lh-hurry-'));
  t.teardown(() => { rmSync(state, { recursive: true, force: true }); });
  const daemon = begin('up', '--json', '--state', state, '--limit', 'shutdownDrainMs=1h');
  await daemon.says(/"event":"ready"/);
  const endless = begin('run', 'slow', '-q', 'go', '--state', state);
  await endless.says(/on and on/);
  const [ledger] = jsonLines((await finish('ps', '--json', '--state', state)).out) as unknown as readonly [{ readonly workers: readonly { readonly pid: number }[] }];
  daemon.child.kill('SIGINT');
  await daemon.says(/"event":"stopping"/);
  for (const { pid } of ledger.workers) t.doesNotThrow(() => process.kill(pid, 0), 'its call may end');
  const pid = String(daemon.child.pid);
  const told = new RegExp(`^error: The broker here \\(pid ${pid}\\) is shutting down, and takes nobody any more\\.\n {2}help: Its calls may end first\\. Wait for that, or end them at once: kill -INT ${pid}\\. Then start anew: leasehold up\n$`);
  for (const command of [['ps'], ['evict', 'slow'], ['run', 'slow', 'go', '--broker', 'attach']]) t.match(await finish(...command, '--state', state), { code: 1, out: '', err: told }, command.join(' '));
  t.match(jsonLines((await finish('explain', '--json', '--state', state)).out), [{ error: { code: 'shutting_down', details: { pid } } }]);
  const waiting = begin('run', 'slow', 'go', '--state', state, '-n', '1');
  await waiting.warns(/^The broker has been stopped; waiting up to 30\.0 s for the next\.$/m);
  daemon.child.kill('SIGINT');
  t.equal((await daemon.ended).code, 0, 'the drain of an hour is over');
  t.match(daemon.heard.out, /"event":"hurrying"/);
  t.ok(ledger.workers.length > 0);
  for (const { pid } of ledger.workers) t.throws(() => process.kill(pid, 0), { code: 'ESRCH' }, `worker ${String(pid)} is gone`);
  t.match(await endless.ended, { err: /error: / });
  t.match(await waiting.ended, { code: 0, out: /^on/ }, 'who may own one waits, and is served by its own');
});

t.test('the command that npm links is a file of the repository: executable, and it says when nothing is built', async (t) => {
  const launcher = join(dirname(main), '../../src/cli/leasehold.mjs');
  t.equal(statSync(launcher).mode & 0o111, 0o111);
  const run = async (path: string, ...args: string[]) => {
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const heard = { out: '', err: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => { heard.out += text; });
    child.stderr.setEncoding('utf8').on('data', (text: string) => { heard.err += text; });
    const [code] = await once(child, 'close') as [number | null];
    return { code, ...heard };
  };
  t.match(await run(launcher, '--version'), { code: 0, out: /^\d+\.\d+\.\d+\n$/, err: '' });
  const bare = join(work, 'bare/src/cli/leasehold.mjs');
  mkdirSync(dirname(bare), { recursive: true });
  cpSync(launcher, bare);
  t.match(await run(bare, 'ps'), { code: 1, out: '', err: 'error: leasehold is not built here.\n  help: npm run build\n' });
});

t.test('without a daemon, run owns the cards itself and leaves nothing behind', async (t) => {
  t.match(await finish('run', 'quick', '-q', 'hello'), { code: 0, out: 'as quick as a fox\n', err: '' });
  t.equal((await finish('ps')).code, 3);
});

t.test('a run in the gap between two daemons waits for the next: what the first left is not ended with the run', async (t) => {
  // A folder of its own: nobody waits for what other tests leave.
  const state = mkdtempSync(join(tmpdir(), 'lh-gap-'));
  t.teardown(() => { rmSync(state, { recursive: true, force: true }); });
  const first = begin('up', '--json', '--state', state);
  await first.says(/"event":"ready"/);
  const [before] = jsonLines((await finish('ps', '--json', '--state', state)).out) as unknown as readonly [{ readonly workers: readonly { readonly pid: number }[] }];
  first.child.kill('SIGKILL');
  await first.ended;
  const pid = before.workers[0]?.pid ?? 0;
  t.match(await finish('ps', '--state', state), {
    code: 3, out: '',
    err: `error: No broker is running in ${state} any more: it has ended without stopping, and 1 worker lives on (pid ${String(pid)}), for the next one.\n`
      + '  help: Start it again with `leasehold up`: it takes it over with what it has loaded. Else it ends by itself, within 30 s at the latest.\n',
  });
  t.match(jsonLines((await finish('ps', '--json', '--state', state)).out), [{ error: { code: 'broker_lost', details: { workerPids: String(pid), graceMs: '30000' } } }]);
  const run = begin('run', 'fast', 'hello', '--state', state);
  while (!run.heard.err.includes('waiting up to')) await once(run.child.stderr, 'data');
  const next = begin('up', '--json', '--state', state);
  t.match(await run.ended, { code: 0, out: 'as quick as a fox\n' });
  const [after] = jsonLines((await finish('ps', '--json', '--state', state)).out) as unknown as readonly [typeof before & { readonly broker: { readonly pid: number } }];
  t.equal(after.broker.pid, next.child.pid);
  t.strictSame(after.workers.map(({ pid }) => pid), before.workers.map(({ pid }) => pid), 'the worker of before lives on');
  next.child.kill('SIGTERM');
  await next.ended;
});

t.test('a scenario on processes that is stopped ends, however much was still to come', async (t) => {
  const { child, ended, heard } = begin('stress', 'yield', '--on', 'processes');
  while (!heard.err.includes('callers come for 480 s')) await once(child.stderr, 'data');
  child.kill('SIGINT');
  t.match(await ended, { code: 130, out: '', err: /Stopped: yield was not played to its end/ });
});

t.test('a benchmark says how it is used instead of failing with a stack', async (t) => {
  const bench = async (...args: string[]) => {
    const child = spawn(process.execPath, [join(dirname(main), '../src/bench/main.js'), ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    const heard = { out: '', err: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => { heard.out += text; });
    child.stderr.setEncoding('utf8').on('data', (text: string) => { heard.err += text; });
    const [code] = await once(child, 'close') as [number | null];
    return { code, ...heard };
  };
  t.match(await bench('--help'), { code: 0, out: /^Usage: npm run bench[^]*lease[^]*core[^]*startup/, err: '' });
  for (const [args, what] of [[['--bogus'], /Unknown option '--bogus'/], [[], /the name of a benchmark is missing/], [['quick'], /no benchmark "quick"/], [['lease', '--grants', '-1'], /--grants/], [['lease', '--grants=0'], /--grants must be a whole number from 1/], [['core', 'lease'], /one benchmark at a time/]] as const) {
    const { code, out, err } = await bench(...args);
    t.strictSame([code, out], [2, '']);
    t.match(err, new RegExp(`^error: .*${what.source}.*\\n\\nUsage: `));
    t.notMatch(err, /\n +at /);
  }
});

t.test('a reader that has seen enough is no failure', async (t) => {
  const { child, ended } = begin('run', 'slow', '-q', 'go');
  await once(child.stdout, 'data');
  child.stdout.destroy();
  t.equal((await ended).code, 0);
});

t.test('output that cannot be written is a failure in a line, not a stack', { skip: existsSync('/dev/full') ? false : 'no /dev/full here' }, async (t) => {
  const full = openSync('/dev/full', 'w');
  t.teardown(() => { closeSync(full); });
  // Also what is written last, after which there is nothing to stop.
  for (const args of [['run', 'quick', '-q', 'hello'], ['--help'], ['limits']]) {
    const child = spawn(process.execPath, [main, ...args], { cwd: work, stdio: ['ignore', full, 'pipe'], env: { PATH: process.env['PATH'] ?? '', HOME: work } });
    children.add(child);
    let err = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => { err += text; });
    const [code] = await once(child, 'close') as [number | null];
    children.delete(child);
    t.equal(code, 1, args.join(' '));
    t.match(err, /^error: standard output cannot be written: ENOSPC.*\.\n$/);
  }
});

t.test('a folder that is gone, too few files, a pipe that nobody reads: a line and what to do, no stack and no wait', { skip: process.platform === 'win32' ? 'no such folders, limits and pipes here' : false }, async (t) => {
  const pipe = join(work, 'pipe.log');
  execFileSync('mkfifo', [pipe]);
  const link = join(dirname(fileURLToPath(import.meta.url)), '../../../src/cli/leasehold.mjs');
  const cases: readonly (readonly [script: string, code: number, err: RegExp])[] = [
    [`mkdir gone && cd gone && rmdir ../gone && exec "$0" '${main}' ps`, 2, /^error: working folder: it is not there any more\.\n {2}help: Go to a folder/],
    [`ulimit -n 20 && exec "$0" '${link}' ps`, 1, /^error: The limit of a process on open files is reached \(EMFILE\)\.\n {2}help: Raise it: `ulimit -n/],
    // As far as it comes each time: the command itself, its broker, the worker that it starts.
    ...[26, 34, 42, 50].map((files) => [`ulimit -n ${files} && exec "$0" '${main}' run tiny-facts -q hi`, 1, /^error: The limit of a process on open files is reached \(EMFILE\)\.\n {2}help: Raise it: `ulimit -n 65536`/] as const),
    [`exec "$0" '${main}' up --log-file '${pipe}'`, 2, /^error: log: file: .*pipe\.log cannot be written: it is a FIFO that nobody reads\.\n/],
    [`exec "$0" '${main}' stress gang --svg '${pipe}'`, 2, /^error: --svg: .*pipe\.log cannot be written: it is a FIFO that nobody reads\.\n/],
    [`cat '${pipe}' >read.svg & "$0" '${main}' stress gang --svg '${pipe}' >/dev/null && wait && grep -q '</svg>' read.svg`, 0, /^$/],
  ];
  for (const [script, code, err] of cases) {
    const done = spawnSync('sh', ['-c', script, process.execPath], { cwd: work, encoding: 'utf8', timeout: 60_000, env: { PATH: process.env['PATH'] ?? '', HOME: work } });
    t.match(done, { status: code, stderr: err }, script);
    t.notMatch(done.stderr, /\n +at /);
  }
});
