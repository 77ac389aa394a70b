/** Program, limits, memory and system, on machines made of files. */
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { judgeCpu, judgeFiles, judgePages, judgeShm, judgeTasks } from '../../src/doctor/checks/limits.js';
import { judgeMemory } from '../../src/doctor/checks/memory.js';
import { isOlder, judgeNode } from '../../src/doctor/checks/program.js';
import { judgeClock } from '../../src/doctor/checks/system.js';
import { parseMounts } from '../../broker/devices/index.js';
import { mountOf } from '../../src/doctor/machine/mounts.js';
import { parseProcessLimits } from '../../src/doctor/machine/process-limits.js';
import { findingBy, fixtureMachine, fixtureScene, gibibyte, mebibyte } from './fixture.js';

const limitsFile = (files: string, tasks: string, locked: string): string => [
  'Limit                     Soft Limit           Hard Limit           Units     ',
  `Max processes             ${tasks.padEnd(20)} ${tasks.padEnd(20)} processes `,
  `Max open files            ${files.padEnd(20)} ${files.padEnd(20)} files     `,
  `Max locked memory         ${locked.padEnd(20)} ${locked.padEnd(20)} bytes     `, '',
].join('\n');

const meminfo = (totalKib: number, availableKib: number, swapKib = 0, swapFreeKib = 0): string =>
  `MemTotal:       ${totalKib} kB\nMemFree:        1 kB\nMemAvailable:   ${availableKib} kB\nSwapTotal:      ${swapKib} kB\nSwapFree:       ${swapFreeKib} kB\n`;

const v2 = { 'proc/self/mountinfo': '30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n', 'proc/self/cgroup': '0::/app/inner\n' };
const v1 = {
  'proc/self/mountinfo': '31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n33 25 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n',
  'proc/self/cgroup': '9:pids:/app\n4:memory:/app\n3:cpu,cpuacct:/app\n0::/\n',
};

t.test('program', async (t) => {
  t.match(judgeNode({ ...process.versions, node: '18.19.1' }, '>=20.20'), { verdict: 'problem', found: /^18\.19\.1/, advice: /20\.20/ });
  t.match(judgeNode({ ...process.versions, node: '20.19.9' }, '>=20.20'), { verdict: 'problem' });
  t.match(judgeNode({ ...process.versions, node: '20.20.0' }, '>=20.20'), { verdict: 'ok' });
  t.match(judgeNode({ ...process.versions, node: '24.1.0', electron: '40.0.0' }, '>=20.20'), { verdict: 'ok', found: /Electron 40/ });
  t.match(judgeNode({ ...process.versions, node: '20.20.0' }, '>=20.20', '--inspect=9229'), { verdict: 'warning', found: /NODE_OPTIONS --inspect=9229; every worker/ });
  t.match(judgeNode({ ...process.versions, node: '20.20.0' }, '>=20.20', '--max-old-space-size=512'), { verdict: 'ok', found: /NODE_OPTIONS --max/ });
  t.strictSame([isOlder('1.2.3', '1.2.3'), isOlder('1.10.0', '1.9'), isOlder('2.0', '2.0.1')], [false, false, true]);

  const packageRoot = join(t.testdir(), 'package');
  const write = (path: string, text: string): void => {
    mkdirSync(join(packageRoot, path, '..'), { recursive: true });
    writeFileSync(join(packageRoot, path), text);
  };
  write('package.json', JSON.stringify({ name: 'leasehold', version: '9.9.9', engines: { node: '>=1' }, dependencies: { 'node-ipc': '12.0.0', 'koffi': '3.3.4', 'no-such-package': '2.9.1' } }));
  write('node_modules/node-ipc/package.json', '{"version":"11.0.0"}');
  write('node_modules/koffi/package.json', '{"version":"3.3.4"}');
  const folder = t.testdirName;
  const scene = fixtureScene(folder, { packageRoot, builtRoot: join(packageRoot, 'dist'), files: { 'proc/self/mountinfo': '1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / ' + folder.replaceAll(' ', '\\040') + ' rw,noexec - tmpfs t rw\n' } });
  t.match(await findingBy(scene, 'program.dependencies'), { verdict: 'problem', found: 'node-ipc is 11.0.0 and must be 12.0.0, no-such-package is not installed and must be 2.9.1' });
  t.match(await findingBy(scene, 'program.package'), { verdict: 'problem', found: /9\.9\.9 at .*bin\/leasehold\.js, .*are not there/, advice: /npm run build/ });
  t.match(await findingBy(scene, 'program.mount'), { verdict: 'problem', found: /tmpfs at .*noexec/, advice: /remount,exec/ });
  t.match(await findingBy(fixtureScene(join(folder, 'mac'), { platform: { name: 'darwin', wsl: false, firstPidNamespace: true } }), 'program.platform'), { verdict: 'warning', found: /it lacks NVML/ });
  t.match(await findingBy(fixtureScene(join(folder, 'here')), 'program.package'), { found: /^\d+\.\d+\.\d+ at / });
  t.match(await findingBy(fixtureScene(join(folder, 'here')), 'program.fingerprint'), { verdict: 'ok', found: /^[0-9a-f]{64}, compatibility policy 1$/ });
});

t.test('files of /proc', async (t) => {
  const limits = parseProcessLimits(limitsFile('1024', 'unlimited', '65536'));
  t.strictSame([limits.get('Max open files'), limits.get('Max processes')], [{ soft: 1024, hard: 1024 }, { soft: null, hard: null }]);
  const mounts = parseMounts('1 0 8:1 / / rw,relatime - ext4 /dev/sda rw\n2 1 0:2 / /a\\040b rw,noexec - tmpfs t rw\n3 1 0:3 / /a rw - nfs4 s rw\nnonsense\n');
  t.equal(mountOf(mounts, '/a b/c')?.type, 'tmpfs', 'a blank in a name');
  t.equal(mountOf(mounts, '/ab')?.type, 'ext4', 'the beginning of a name is not the name');
  t.equal(mountOf(mounts, '/a/b')?.type, 'nfs4');
  t.equal(mountOf([], '/a'), null);
});

t.test('limits', async (t) => {
  t.match(judgeFiles(null), { verdict: 'ok', found: 'unlimited' });
  t.match(judgeFiles(65_536), { verdict: 'ok', found: /^65536; a full house \(64 workers, 1024 sessions\) takes 1536$/ });
  t.match(judgeFiles(1_024), { verdict: 'warning', advice: /LimitNOFILE/ });
  t.match(judgeFiles(128), { verdict: 'problem' });
  t.match(judgeTasks(null, null), { verdict: 'ok', found: 'unlimited' });
  t.match(judgeTasks(4_000, 100), { verdict: 'warning', found: /^100 more .*pids\.max/, advice: /--pids-limit/ });
  t.match(judgeTasks(20, 100), { verdict: 'problem', found: /^20 more .*ulimit -u/ });
  t.match(judgeCpu(16, null, 1), { verdict: 'ok', found: '16 cores, 15 threads for all workers together, load 1.0' });
  t.match(judgeCpu(64, 2, 1), { verdict: 'problem', found: /a quota of 2\.0 cores; the quota is below the threads/, advice: /--cpuset-cpus 0-1/ });
  t.match(judgeCpu(4, 2, 1), { verdict: 'warning' });
  t.match(judgeCpu(2, 2, 9), { verdict: 'warning', found: /more runs than the cores can carry/ });
  t.match(judgeShm(64 * mebibyte, mebibyte, true), { verdict: 'warning', advice: /--shm-size/ });
  t.match(judgeShm(64 * mebibyte, mebibyte, false), { verdict: 'ok' });
  t.match(judgeShm(gibibyte, mebibyte, true), { verdict: 'ok' });
  t.match(judgePages('always madvise [never]\n'), { verdict: 'warning', found: /^never/ });
  t.match(judgePages('always [madvise] never\n'), { verdict: 'ok', found: 'madvise' });

  t.test('are read from the files that say so', async (t) => {
    const scene = fixtureScene(t.testdir(), { uid: 1000, files: {
      ...v2, 'proc/self/limits': limitsFile('4096', '3000', '65536'),
      'proc/10/status': 'Name:\tx\nUid:\t1000\t1000\t1000\t1000\nThreads:\t2950\n', 'proc/11/status': 'Name:\ty\nUid:\t0\t0\t0\t0\nThreads:\t9\n',
      'sys/fs/cgroup/app/inner/pids.max': 'max\n', 'sys/fs/cgroup/app/pids.max': '1000\n', 'sys/fs/cgroup/app/pids.current': '10\n',
      'sys/fs/cgroup/app/cpu.max': '50000 100000\n', 'sys/fs/cgroup/app/inner/cpu.max': 'max 100000\n',
      'sys/kernel/mm/transparent_hugepage/enabled': '[always] madvise never\n',
    } });
    t.match(await findingBy(scene, 'limits.nofile'), { verdict: 'ok', found: /^4096;/ });
    t.match(await findingBy(scene, 'limits.nproc'), { verdict: 'problem', found: /^50 more may be started \(ulimit -u\)/ });
    t.match(await findingBy(scene, 'limits.memlock'), { verdict: 'ok', found: /^64\.0 KiB for mlock/ });
    t.match(await findingBy(scene, 'limits.cpu'), { found: /a quota of 0\.5 cores/ });
    t.match(await findingBy(scene, 'limits.thp'), { verdict: 'ok', found: 'always' });
  });

  t.test('of cgroup v1, and of a machine that shows nothing', async (t) => {
    const folder = t.testdir();
    const scene = fixtureScene(join(folder, 'v1'), { uid: 0, files: {
      ...v1, 'proc/self/limits': limitsFile('4096', '3000', '65536'), 'sys/fs/cgroup/pids/app/pids.max': '40\n', 'sys/fs/cgroup/pids/app/pids.current': '10\n',
      'sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us': '150000\n', 'sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us': '100000\n', 'sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us': '-1\n',
    } });
    t.match(await findingBy(scene, 'limits.nproc'), { verdict: 'problem', found: /^30 more may be started \(pids\.max/ });
    t.match(await findingBy(scene, 'limits.cpu'), { found: /a quota of 1\.5 cores/ });
    t.match(await findingBy(scene, 'limits.memlock'), { verdict: 'ok', found: /super-user/ });
    const bare = fixtureScene(join(folder, 'bare'), { uid: 1000 });
    for (const id of ['limits.nofile', 'limits.nproc', 'limits.memlock', 'limits.thp', 'memory.cgroup', 'memory.settings', 'program.mount', 'state.mount']) t.match(await findingBy(bare, id), { verdict: 'not_applicable' }, id);
  });

  t.test('engines of the user\'s own want more', async (t) => {
    const folder = t.testdir();
    writeFileSync(join(folder, 'leasehold.yaml'), 'workers:\n  mine:\n    command: /bin/true\n');
    const scene = fixtureScene(folder, { uid: 1000, flags: { config: 'leasehold.yaml' }, files: { 'proc/self/limits': limitsFile('4096', '3000', '65536') } });
    t.match(await findingBy(scene, 'limits.memlock'), { verdict: 'warning', advice: /LimitMEMLOCK/ });
  });
});

t.test('memory', async (t) => {
  t.match(judgeMemory({ totalBytes: 64 * gibibyte, availableBytes: 32 * gibibyte }), { verdict: 'ok', found: '32.0 GiB available of 64.0 GiB' });
  t.match(judgeMemory({ totalBytes: 64 * gibibyte, availableBytes: 2 * gibibyte }), { verdict: 'warning' });
  t.match(judgeMemory({ totalBytes: 64 * gibibyte, availableBytes: 100 * mebibyte }), { verdict: 'problem', found: /hardly fit/ });
  t.match(judgeMemory({ totalBytes: 64 * gibibyte, availableBytes: null }), { verdict: 'ok', found: /an unknown part/ });

  t.test('of a machine with a cgroup v2', async (t) => {
    const mib = mebibyte;
    const scene = fixtureScene(t.testdir(), { files: {
      ...v2, 'proc/meminfo': meminfo(64 * 1024 ** 2, 50 * 1024 ** 2, 1_000, 100), 'proc/sys/vm/overcommit_memory': '2\n',
      'sys/fs/cgroup/app/inner/memory.max': 'max\n', 'sys/fs/cgroup/app/memory.max': `${2_048 * mib}\n`, 'sys/fs/cgroup/app/memory.high': `${1_024 * mib}\n`,
      'sys/fs/cgroup/app/memory.current': `${900 * mib}\n`, 'sys/fs/cgroup/app/memory.stat': `anon 1\ninactive_file ${100 * mib}\nactive_file ${50 * mib}\nslab_reclaimable ${10 * mib}\n`,
    } });
    t.match(await findingBy(scene, 'memory.machine'), { verdict: 'ok', found: '50.0 GiB available of 64.0 GiB' });
    t.match(await findingBy(scene, 'memory.cgroup'), { verdict: 'problem', found: /^284\.0 MiB available of 1\.0 GiB \(cgroup v2, \/sys\/fs\/cgroup\/app\)/ }, 'what is reclaimed is available, and memory.high counts');
    t.match(await findingBy(scene, 'memory.settings'), { verdict: 'warning', found: /overcommit_memory 2; address space.*; much is swapped out/, advice: /vm\.overcommit_memory=0.*swapped/ });
  });

  t.test('of a machine with a cgroup v1, or with one that allows all', async (t) => {
    const folder = t.testdir();
    const stat = `total_inactive_file ${gibibyte}\ntotal_active_file 0\n`;
    const machine = fixtureMachine(join(folder, 'v1'), { files: { ...v1, 'sys/fs/cgroup/memory/app/memory.limit_in_bytes': `${4 * gibibyte}\n`, 'sys/fs/cgroup/memory/app/memory.usage_in_bytes': `${3 * gibibyte}\n`, 'sys/fs/cgroup/memory/app/memory.stat': stat, 'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n' } });
    t.match(machine.memory.limits(), [{ version: 1, folder: '/sys/fs/cgroup/memory/app', limitBytes: 4 * gibibyte, availableBytes: 2 * gibibyte }]);
    const roomy = fixtureScene(join(folder, 'all'), { files: { ...v2, 'proc/meminfo': meminfo(1024 ** 2, 1024 ** 2), 'sys/fs/cgroup/memory.max': `${8 * gibibyte}\n`, 'sys/fs/cgroup/memory.current': '0\n', 'sys/fs/cgroup/memory.stat': 'inactive_file 0\nactive_file 0\nslab_reclaimable 0\n' } });
    t.match(await findingBy(roomy, 'memory.cgroup'), { verdict: 'ok', found: 'cgroup v2 allows all of it' });
    const hidden = fixtureScene(join(folder, 'hidden'), { files: { ...v2, 'proc/meminfo': meminfo(1024 ** 2, 1024 ** 2), 'sys/fs/cgroup/memory.max': `${8 * gibibyte}\n` } });
    t.match(await findingBy(hidden, 'memory.cgroup'), { verdict: 'problem', found: /figures cannot be read: .*memory\.stat is not there/, advice: /hostMemory/ });
  });
});

t.test('system', async (t) => {
  const sane = { sleptMs: 50.4, monotonicMs: 1e6, sinceBootMs: 1e6, year: 2026 };
  t.match(judgeClock(sane), { verdict: 'ok', found: 'a nap of 50 ms took 50.4 ms' });
  t.match(judgeClock({ ...sane, sinceBootMs: 1e6 + 3_600_000 }), { verdict: 'ok', found: /suspended for 1 h 00 m/ });
  t.match(judgeClock({ ...sane, sleptMs: 2_000 }), { verdict: 'warning', found: /timers are late/ });
  t.match(judgeClock({ ...sane, sleptMs: 1 }), { verdict: 'problem', found: /CLOCK_MONOTONIC/ });
  t.match(judgeClock({ ...sane, year: 1970 }), { verdict: 'warning', advice: /set-ntp/ });
  const folder = t.testdir();
  const hidden = fixtureScene(folder, { files: { 'proc/self/mountinfo': '22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible\n' } });
  t.match(await findingBy(hidden, 'system.processes'), { verdict: 'ok', found: /hidden \(hidepid\)/ });
  t.match(await findingBy(hidden, 'system.koffi'), { verdict: 'ok', found: /answers right/ });
});

t.test('what this user may use is asked of the system', async (t) => {
  const folder = t.testdir();
  const machine = fixtureMachine(folder, { files: { 'dev/a': '', 'dev/b': '' } });
  chmodSync(join(folder, 'root/dev/b'), 0o000);
  t.ok(await machine.mayUse('/dev/a'));
  t.equal(await machine.mayUse('/dev/b'), process.getuid?.() === 0, 'the super-user may all');
  t.notOk(await machine.mayUse('/dev/c'));
  t.equal(await machine.readText('/dev/c'), null);
  t.strictSame(await machine.names('/nowhere'), []);
});
