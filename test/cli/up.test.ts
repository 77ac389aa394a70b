// The daemon's terminal, against an orchestrator without processes: what it says it owns, loads and sees, and how it ends.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { displayWidth } from '../../src/cli/terminal/width.js';
import { LeaseholdError } from '../../protocol/index.js';
import { finish, start, work } from './command-world.js';
import { jsonLines } from './fake-io.js';

t.test('up', async (t) => {
  const config = join(work, 'up.yaml');
  writeFileSync(config, 'devices: [sim:26MiB]\nmodels:\n  tiny-tales: { source: tiny-tales, preload: true }\n  tiny-sums: { source: tiny-sums }\n  tiny-facts: { source: tiny-facts, preload: true }\n');

  t.test('owns the broker, says what it owns and where it listens, loads what is wanted, and stops when told', async (t) => {
    const { io, orchestrators, ended } = start(['up', '--config', config, '--log-level', 'silent']);
    await io.wrote('loaded tiny-facts');
    t.match(io.stdout.text, /^Leasehold \d.*pid \d+, .*up\.yaml\n {2}owns SIM-0a1b2c3d-0 {2}simulated card, 26\.0 MiB, 0 kept free\n {2}listens at \/run\/leasehold\/broker\.sock\n/);
    t.match(io.stdout.text, /\nReady\. Ctrl-C stops it\. Loading 2 models meanwhile:\n {2}loaded tiny-tales {2}\d+ ms\n {2}loaded tiny-facts/);
    const [fake] = orchestrators;
    t.match(fake, { closed: false, options: { broker: 'own', devices: ['sim:26MiB'], models: { 'tiny-tales': { preload: false } } } });
    t.strictSame(fake?.calls.map(({ method, args }) => [method, args[0]]), [['load', 'tiny-tales'], ['load', 'tiny-facts']]);
    io.stop('SIGTERM');
    t.strictSame([await ended, fake?.closed], [0, true], 'being stopped is no failure');
    t.match(io.stdout.text, /Stopping: calls have 10.0 s to end, then workers 5.0 s\. Ctrl-C again ends them at once\.\nStopped; every worker has ended\.\n$/);
  });

  t.test('a second Ctrl-C ends the workers at once and then itself; only a third ends it without them', async (t) => {
    const { io, orchestrators, ended } = start(['up', '--config', config, '--log-level', 'silent'], { busy: true });
    await io.wrote('Ready.');
    io.stop('SIGINT');
    await io.wrote('Stopping:');
    io.stop('SIGHUP');
    t.equal(orchestrators[0]?.closed, false, 'a call may still end; a terminal that closes is nobody who asks again');
    io.stop('SIGINT');
    t.equal(await ended, 0);
    t.match(io.stdout.text, /\nEnding the workers at once; calls are cut\. Once more, and this process ends without them: they live on for their grace\.\nStopped; every worker has ended\.\n$/);
    t.strictSame([orchestrators[0]?.closed, io.exits], [true, []]);
    const json = start(['up', '--config', config, '--json', '--log-level', 'silent'], { busy: true, loadMs: 300 });
    await json.io.wrote('"event":"up"');
    for (const time of [1, 2, 3]) {
      json.io.stop('SIGINT');
      t.equal(json.io.exits.length, time === 3 ? 1 : 0, `Ctrl-C number ${String(time)}`);
    }
    t.strictSame([json.io.exits, jsonLines(json.io.stdout.text).at(-1)], [[130], { event: 'hurrying' }]);
    await json.ended;
  });

  t.test('takes no signals before its configuration is read: until then it ends as any process does', async (t) => {
    for (const args of [['up'], ['run', 'tiny-facts', 'q'], ['ps'], ['evict', 'tiny-facts']]) {
      const heard: [string, boolean][] = [];
      const refuse = new LeaseholdError('broker_running', { path: 'x', pid: 1, started: 'now' });
      const { io, ended } = start(args, {}, { refuse, onOpen: () => { heard.push(['opens', io.listensForStop]); } });
      Object.defineProperty(io.env, 'LEASEHOLD_CONFIG', { get: () => { heard.push(['reads', io.listensForStop]); return config; } });
      t.equal(await ended, 1);
      t.strictSame([...new Set(heard.map(([what, listens]) => `${what} ${listens}`))], ['reads false', 'opens true'], args.join(' '));
    }
  });

  t.test('logs a readable line on a terminal, above the line that says what it does, and nothing secret', async (t) => {
    const { io, orchestrators, ended } = start(['up', '--config', config, '--log-level', 'info'], { loadMs: 300 }, { terminal: true, env: { NO_COLOR: '1' } });
    await io.wrote('loading tiny-tales');
    const [fake] = orchestrators;
    fake?.options.log?.warn({ notes: `nvml: ${'no such library; '.repeat(40)}`, key: 'abc', worker: { secret: 'def', generation: '0123456789ab-w7' } }, 'no card found');
    fake?.options.log?.debug({}, 'too much');
    await io.wrote('Ready.');
    io.stop('SIGINT');
    t.equal(await ended, 0);
    const entry = /\r\u001B\[K(\d\d:\d\d:\d\d warn {2}no card found [^\r]*)\n(loading tiny-tales[^\r]*)\r/.exec(io.stderr.text);
    const lines = entry?.[1]?.split('\n') ?? [];
    t.ok(lines.length > 1 && lines.every((line) => displayWidth(line) <= io.stderr.columns), 'within the terminal');
    const told = lines.join(' ').replaceAll(/ {2,}(?!no card)/g, ' ');
    t.match(told, /notes="nvml: no such library; .*…" key=\[redacted\] secret=\[redacted\] generation=w7$/);
    t.ok(told.length < 220, 'short enough to be read');
    t.notMatch(io.stderr.text, /abc|def|too much/);
  });

  t.test('tells what happens in a plain line each, unless the log tells it already or nothing is to be said', async (t) => {
    const event = (name: string, data: object) => ({ name, atUs: 1, dropped: 0, data: { device: 'SIM-1', generation: '0123456789ab-w1', ...data } });
    const events = [event('granted', { model: 'tales', name: 'tales' }), event('evicted', { model: 'tales', name: 'tales', freedBytes: 3 * 1024 ** 2, reason: 'room for sums' }), event('process_ended', { generation: '0123456789ab-w7', how: 'SIGKILL', cause: 'session_lost', models: 'tales' })];
    const story = async (...args: string[]) => {
      const { io, ended } = start(['up', ...args], { events });
      await io.wrote('Ready.');
      io.stop('SIGINT');
      t.equal(await ended, 0);
      return io.stdout.text.split('\n').filter((line) => /^\d\d:/.test(line)).map((line) => line.slice(10));
    };
    t.strictSame(await story(), ['tales put away: 3.0 MiB of SIM-1 free again (room for sums)', 'process w7 ended by itself (SIGKILL), and with it tales']);
    t.strictSame(await story('--log-level', 'silent'), []);
    t.strictSame(await story('--log-level', 'info'), []);
    t.equal((await story('--log-level', 'info', '--log-file', join(work, 'up.log'))).length, 2);
  });

  t.test('goes on when a model cannot be loaded, and says so', async (t) => {
    const failure = new LeaseholdError('load_failed', { model: 'tiny-tales', reason: 'the file is cut' });
    const { io, ended } = start(['up', '--config', config, '--log-level', 'silent'], { failure });
    await io.wrote('Loading tiny-tales failed');
    t.match(io.stdout.text, /Ready\./);
    t.match(io.stderr.text, /error: Loading tiny-tales failed: the file is cut\./);
    io.stop('SIGINT');
    t.equal(await ended, 0);
  });

  t.test('fails when its broker ends by itself', async (t) => {
    const { io, orchestrators, ended } = start(['up', '--log-level', 'silent']);
    await io.wrote('Ready.');
    orchestrators[0]?.die();
    t.equal(await ended, 3);
    t.match(io.stderr.text, /The broker is gone: it ended by itself/);
  });

  t.test('is refused by name when another broker owns the cards', async (t) => {
    const refuse = new LeaseholdError('broker_running', { path: '/run/x/broker.lock', pid: 7, started: 'now' });
    const { code, err } = await finish(['up'], {}, { refuse });
    t.equal(code, 1);
    t.equal(err, 'error: A broker runs already (pid 7).\n  help: Use it: leasehold ps; stop it: kill -INT 7; or run a second one, with cards of its own: --state FOLDER\n');
    const card = new LeaseholdError('broker_running', { path: '/run/locks/GPU-5f3c9a1e.lock', pid: 7, started: 'now' });
    t.match((await finish(['up'], {}, { refuse: card })).err, /A broker runs already \(pid 7\) and owns GPU-5f3c9a1e\.\n {2}help: .*--device\n$/);
  });

  t.test('with --json tells everything that happens, a line each', async (t) => {
    const { io, ended } = start(['up', '--config', config, '--json', '--log-level', 'silent']);
    await io.wrote('"event":"ready"');
    io.stop('SIGINT');
    t.equal(await ended, 0);
    const lines = jsonLines(io.stdout.text);
    t.match(lines[0], { event: 'up', pid: process.pid, socket: '/run/leasehold/broker.sock', config, cards: [{ device: 'SIM-0a1b2c3d-0', kind: 'simulated', totalBytes: 26 * 1024 ** 2 }] });
    t.match(lines.find(({ event }) => event === 'granted'), { event: 'granted', atUs: Number, dropped: 0, data: { model: 'tiny-tales@llama#0' } });
    t.match(lines.filter(({ event }) => event === 'preloaded'), [{ model: 'tiny-tales', loadMs: Number }, { model: 'tiny-facts' }]);
    t.equal(lines.at(-1)?.['event'], 'stopping');
  });
});

t.test('what is wrong with a model of a file is told at its place, when only the library finds it', async (t) => {
  const cases: readonly (readonly [yaml: string, refuse: LeaseholdError, told: RegExp])[] = [
    ['models:\n  x: { source: tiny-facs }\n', new LeaseholdError('model_invalid', { source: 'tiny-facs', reason: 'there is no such file', option: 'models.x.source' }), /line 2, column 16 \(models\.x\.source\): tiny-facs cannot be used: there is no such file\.$/],
    ['models:\n  a.b: { source: tiny-facts, engine: vllm }\n', new LeaseholdError('engine_unknown', { engine: 'vllm', known: 'llama', option: 'models.a.b.engine' }), /line 2, column 38 \(models\.a\.b\.engine\): there is no engine vllm; known: llama\.$/],
    ['models:\n  x: { source: tiny-facts, pin: true }\n', new LeaseholdError('config_invalid', { path: 'models', where: 'x', reason: 'it must be so', option: 'models.x.pinned' }), /line 2, column 33 \(models\.x\.pin\): it must be so\.$/],
    ['reserve: 30MiB\n', new LeaseholdError('config_invalid', { path: 'reserveBytes', where: 'SIM', reason: 'too much', option: 'reserveBytes' }), /line 1, column 10 \(reserve\): too much\.$/],
    ['workers:\n  mine: { command: ./x }\n', new LeaseholdError('config_invalid', { path: 'engines', where: 'mine', reason: 'no', option: 'engines.mine' }), /line 2, column 9 \(workers\.mine\): no\.$/],
    ['{}\n', new LeaseholdError('config_invalid', { path: 'devices', where: 'x', reason: 'no card', option: 'devices' }), /^error: devices: x: no card\.$/],
  ];
  for (const [yaml, refuse, told] of cases) {
    const path = join(work, 'placed.yaml');
    writeFileSync(path, yaml);
    const { code, err } = await finish(['up', '--config', path], {}, { refuse });
    t.equal(code, 2);
    t.match(err.split('\n')[0], told);
  }
  const byOption = await finish(['up', '--reserve', '30MiB'], {}, { refuse: cases[3]![1] });
  t.match(byOption.err, /^error: command line: --reserve: too much\.\n {2}help: .*--help/);
});
