/** A system that does not let us look (EMFILE, ENOMEM): nobody is taken for gone, nobody else is signalled, nothing throws. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { isAlive, signalIdentity, type ProcessTable } from '../../../broker/supervisor/index.js';
import { LinuxProcessTable } from '../../../broker/supervisor/process-table-linux.js';
import { bench, lives, until } from './harness.js';

const real = new LinuxProcessTable();

/** The real table, except that it is blind while `blind()`. */
function clouded(blind: () => boolean): ProcessTable {
  return {
    lists: true,
    list: () => (blind() ? null : real.list()),
    find: (pid) => (blind() ? { pid, startTime: null } : real.find(pid)),
    startTime: (pid) => (blind() ? null : real.startTime(pid)),
    variable: (pid, name) => (blind() ? null : real.variable(pid, name)),
    signal: (pid, signal) => real.signal(pid, signal),
    signalGroup: (group, signal) => real.signalGroup(group, signal),
  };
}

t.test('an end is confirmed only by a look, and a tree that cannot be seen is as it was', async (t) => {
  let blind = false;
  const { supervisor, told, run, ended } = bench({ table: clouded(() => blind), watchIntervalMs: 10, limits: { killConfirmMs: 60_000 } });
  const children = await run('dim-w1', 'grandchildren', ['plain']);
  const seen = await until('its tree', () => { const pids = supervisor.pidsOf('dim-w1'); return pids.length > 1 ? pids : null; });
  supervisor.watch('dim-s1', { pid: process.pid, startTime: real.startTime(process.pid) });
  blind = true;
  await until('blindness to be noted', () => { t.same([...supervisor.pidsOf('dim-w1')].sort(), [...seen].sort()); return told.notes.some((note) => /cannot be listed/.test(note)); });
  supervisor.terminate('dim-w1', 0, 'test');
  await until('the group to be killed all the same', () => !children.some(lives));
  t.equal(told.exits, 0, 'neither its end nor a holder\'s is told of');
  blind = false;
  t.match(await ended('dim-w1'), { how: 'SIGKILL' });
  supervisor.unwatch('dim-s1');
  await supervisor.close(0);
  t.equal(told.exits, 1);
});

t.test('a process whose start time cannot be seen counts as alive and is not signalled', async (t) => {
  const table = clouded(() => true);
  const identity = { pid: process.pid, startTime: '1' };
  t.ok(isAlive(table, identity));
  t.equal(signalIdentity(table, identity, 'SIGKILL'), 'refused');
  t.equal(signalIdentity(real, identity, 'SIGKILL'), 'gone', 'a pid that is somebody else\'s by now is never signalled');
});

t.test('a listing that is not whole is none', async (t) => {
  const root = t.testdir({ 7: { stat: '7 (a) S 1 7 7 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 42', environ: '' } });
  const table = new LinuxProcessTable(root);
  t.match(table.list(), [{ pid: 7, startTime: '42' }]);
  rmSync(root, { recursive: true });
  writeFileSync(root, '');
  t.throws(() => table.list(), { code: 'ENOTDIR' }, 'a /proc that is none is a fault of ours, not a shortage');
  rmSync(root);
  mkdirSync(join(root, '7'), { recursive: true });
  t.strictSame(table.list(), [], 'a process without figures is one that ended as we looked');
});

t.test('without a descriptor left nothing throws: no listing, living pids live, and a worker is refused by word', async (t) => {
  const url = (name: string): string => JSON.stringify(new URL(`../../../broker/supervisor/${name}.js`, import.meta.url).href);
  const program = `
    const { createSupervisor } = await import(${url('index')});
    const { LinuxProcessTable } = await import(${url('process-table-linux')});
    const { runBounded } = await import(${JSON.stringify(new URL('../../../broker/devices/bounded-run.js', import.meta.url).href)});
    const { HelperProcess } = await import(${JSON.stringify(new URL('../../../broker/devices/nvml-helper-process.js', import.meta.url).href)});
    const { openSync, closeSync } = await import('node:fs');
    const table = new LinuxProcessTable();
    const failed = [];
    const supervisor = createSupervisor({ onSpawned() {}, onSpawnFailed: (_, reason, typed) => failed.push(reason, typed?.code, typed?.details), onExited() {}, onKillUnconfirmed() {}, onOutput() {} });
    const held = [];
    try { for (;;) held.push(openSync('/dev/null')); } catch {}
    const list = table.list();
    const [mine, nobody] = [table.find(process.pid), table.find(2 ** 22 + 1)];
    supervisor.spawn({ generation: 'w1', spawnId: 'w1', command: 'sleep', args: ['100'], env: {} });
    const ran = await runBounded('true', [], {}, { timeoutMs: 1000, outputBytesMax: 10 }).outcome;
    const helper = await new HelperProcess({ command: 'true', args: [], env: {} }, 1000, () => {}).opened;
    for (const file of held) closeSync(file);
    await supervisor.close(0);
    console.log(JSON.stringify({ list, mine: mine.startTime, nobody, failed, ran: ran.kind, helper: helper.reading, again: table.list().length > 0 }));`;
  const { stdout, stderr } = spawnSync('bash', ['-c', 'ulimit -n 100; exec "$0" --input-type=module -e "$1"', process.execPath, program], { encoding: 'utf8' });
  t.equal(stderr, '');
  t.match(JSON.parse(stdout), { list: null, mine: null, nobody: null, failed: [/guard/, 'too_many_open_files', { whose: 'a process', code: 'EMFILE' }], ran: 'not_started', helper: 'failed', again: true });
});
