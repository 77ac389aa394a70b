/** The machine's memory as it is read: /proc/meminfo, cgroups v1 and v2 at every level, processes; each from files of a machine that is not this one. */
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { HostMemory, defaultHostReserveBytes, hostDevice, isUnified, type Reading } from '../../../broker/devices/index.js';
import { parseStatus } from '../../../broker/devices/host/process-memory.js';

const gib = 1_024 ** 3;
const mib = 1_024 ** 2;

interface Machine {
  readonly meminfo?: string | null;
  readonly mountinfo?: string;
  readonly cgroup?: string;
  /** Files by path below the root. */
  readonly files?: Readonly<Record<string, string>>;
}

const meminfo = (totalBytes: number, availableBytes: number, more = ''): string =>
  `MemTotal:       ${totalBytes / 1_024} kB\nMemFree:         1024 kB\nMemAvailable:   ${availableBytes / 1_024} kB\nSwapTotal:      ${64 * mib} kB\nSwapFree:       ${64 * mib} kB\n${more}`;
const v2Mount = (folder = '/sys/fs/cgroup', root = '/'): string => `31 23 0:28 ${root} ${folder} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate`;
const v1Mount = (folder = '/sys/fs/cgroup/memory', root = '/'): string => `35 31 0:32 ${root} ${folder} rw shared:9 - cgroup cgroup rw,memory`;
const v2Stat = (inactive: number, active: number, more = ''): string => `anon 1\nfile ${inactive + active}\nslab_reclaimable 0\ninactive_file ${inactive}\nactive_file ${active}\n${more}`;

function folderOf(t: Test, machine: Machine): string {
  const files: Record<string, string> = { 'proc/self/mountinfo': machine.mountinfo ?? '', 'proc/self/cgroup': machine.cgroup ?? '', ...machine.files };
  if (machine.meminfo !== null) files['proc/meminfo'] = machine.meminfo ?? meminfo(64 * gib, 48 * gib);
  const tree: Record<string, unknown> = {};
  for (const [path, text] of Object.entries(files)) {
    const names = path.split('/');
    let folder = tree;
    for (const name of names.slice(0, -1)) folder = (folder[name] ??= {}) as Record<string, unknown>;
    folder[names.at(-1) ?? ''] = text;
  }
  return t.testdir(tree as Parameters<typeof t.testdir>[0]);
}

function read(t: Test, machine: Machine, pids: readonly number[] = []): Reading {
  return new HostMemory({ platform: 'linux', root: folderOf(t, machine), nowUs: () => 7 }).readNow(pids);
}

const found = (totalBytes: number, availableBytes: number) => ({ kind: 'read', device: hostDevice, takenAtUs: 7, totalBytes, usedBytes: totalBytes - availableBytes, truth: 'system' });

t.test('M: a machine without limits is as large as it says; what it could reclaim is available, swap is not', async (t) => {
  t.match(read(t, {}), found(64 * gib, 48 * gib));
  t.match(read(t, { cgroup: '0::/', mountinfo: v2Mount() }), found(64 * gib, 48 * gib), 'the root of v2 has no memory.max');
  t.match(read(t, { cgroup: '0::/user.slice', mountinfo: v2Mount(), files: { 'sys/fs/cgroup/user.slice/memory.max': 'max\n', 'sys/fs/cgroup/user.slice/memory.current': '1\n' } }), found(64 * gib, 48 * gib));
});

t.test('M: cgroup v2: the smallest of every level up to the root, page cache on the file lists given back, tmpfs and locked pages not', async (t) => {
  const cgroup = '0::/kube/pod/app';
  const level = (path: string, max: string, current: number, stat: string, high = 'max'): Record<string, string> => {
    const folder = `sys/fs/cgroup${path}`;
    return { [`${folder}/memory.max`]: `${max}\n`, [`${folder}/memory.high`]: `${high}\n`, [`${folder}/memory.current`]: `${String(current)}\n`, [`${folder}/memory.stat`]: stat };
  };
  const files = {
    ...level('/kube/pod/app', 'max', 3 * gib, v2Stat(0, 0)),
    // 10 GiB used, of which 4 are files; 2 more GiB of `file` are tmpfs (shmem) and 1 is locked: those stay.
    ...level('/kube/pod', String(16 * gib), 10 * gib, v2Stat(3 * gib, gib, `shmem ${2 * gib}\nunevictable ${gib}\n`)),
    ...level('/kube', String(40 * gib), 38 * gib, v2Stat(gib, 0)),
  };
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files }), found(16 * gib, 3 * gib), 'the pod sets the size, the level above it what is left');
  const roomier = { ...files, ...level('/kube', String(40 * gib), 12 * gib, v2Stat(gib, 0)) };
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files: roomier }), found(16 * gib, 10 * gib));
  const throttled = { ...roomier, ...level('/kube/pod', String(16 * gib), 10 * gib, v2Stat(3 * gib, gib), String(12 * gib)) };
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files: throttled }), found(12 * gib, 6 * gib), 'above memory.high there is no room either');
  const full = { ...roomier, ...level('/kube/pod', String(4 * gib), 10 * gib, v2Stat(0, 0)) };
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files: full }), found(4 * gib, 0), 'a limit below what is used leaves nothing, never less');
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files: roomier, meminfo: meminfo(64 * gib, 2 * gib) }), found(16 * gib, 2 * gib), 'the machine itself may have less left');
  const slabs = { ...files, ...level('/kube/pod', String(16 * gib), 10 * gib, v2Stat(0, 0).replace('slab_reclaimable 0', `slab_reclaimable ${5 * gib}`)), ...level('/kube', 'max', 0, '') };
  t.match(read(t, { cgroup, mountinfo: v2Mount(), files: slabs }), found(16 * gib, 11 * gib));
});

t.test('M: a container sees its own part of the tree', async (t) => {
  const limit = { 'memory.max': `${8 * gib}\n`, 'memory.current': `${2 * gib}\n`, 'memory.stat': v2Stat(0, gib) };
  const at = (folder: string): Record<string, string> => Object.fromEntries(Object.entries(limit).map(([name, text]) => [`${folder}/${name}`, text]));
  t.match(read(t, { cgroup: '0::/', mountinfo: v2Mount(), files: at('sys/fs/cgroup') }), found(8 * gib, 7 * gib), 'in a cgroup namespace its root has the limit');
  t.match(read(t, { cgroup: '0::/docker/abc', mountinfo: v2Mount('/sys/fs/cgroup', '/docker/abc'), files: at('sys/fs/cgroup') }), found(8 * gib, 7 * gib), 'without one the mount says which part it is');
  t.match(read(t, { cgroup: '0::/docker/abc/in', mountinfo: v2Mount('/sys/fs/cgroup', '/docker/abc'), files: at('sys/fs/cgroup/in') }), found(8 * gib, 7 * gib));
  t.match(read(t, { cgroup: '0::/../other', mountinfo: v2Mount(), files: at('sys/fs/cgroup') }), found(8 * gib, 7 * gib), 'a path out of the namespace leaves the mount');
  t.match(read(t, { cgroup: '0::/a', mountinfo: v2Mount('/sys/fs/my\\040cgroup'), files: at('sys/fs/my cgroup/a') }), found(8 * gib, 7 * gib));
});

t.test('M: cgroup v1 and hybrid: no limit is the largest number, children count only where the level above says so', async (t) => {
  const cgroup = '5:cpu,cpuacct:/x\n4:memory:/sys/job\n0::/elsewhere\n';
  const mountinfo = `${v1Mount()}\n${v2Mount('/sys/fs/cgroup/unified')}`;
  const level = (path: string, limit: string, used: number, files: number, hierarchy = '1'): Record<string, string> => {
    const folder = `sys/fs/cgroup/memory${path}`;
    return {
      [`${folder}/memory.limit_in_bytes`]: `${limit}\n`, [`${folder}/memory.usage_in_bytes`]: `${used}\n`, [`${folder}/memory.use_hierarchy`]: `${hierarchy}\n`,
      [`${folder}/memory.stat`]: `cache 1\nrss 2\ninactive_file 3\nactive_file 4\ntotal_inactive_file ${files}\ntotal_active_file 0\ntotal_shmem 9\n`,
    };
  };
  const none = '9223372036854771712';
  const root = level('', none, 40 * gib, 0);
  t.match(read(t, { cgroup, mountinfo, files: { ...level('/sys/job', none, gib, 0), ...level('/sys', none, gib, 0), ...root } }), found(64 * gib, 48 * gib));
  t.match(read(t, { cgroup, mountinfo, files: { ...level('/sys/job', String(6 * gib), 5 * gib, 2 * gib), ...level('/sys', String(20 * gib), 18 * gib, gib), ...root } }), found(6 * gib, 3 * gib));
  t.match(read(t, { cgroup, mountinfo, files: { ...level('/sys/job', none, 5 * gib, 0), ...level('/sys', String(20 * gib), 18 * gib, gib), ...root } }), found(20 * gib, 3 * gib));
  t.match(read(t, { cgroup, mountinfo, files: { ...level('/sys/job', none, 5 * gib, 0), ...level('/sys', String(20 * gib), 18 * gib, gib, '0'), ...root } }), found(64 * gib, 48 * gib), 'a level that does not count its children does not bind them');
});

t.test('R57: unknown is not zero: what cannot be read or understood is no reading, and says why', async (t) => {
  const missing = (reading: string, reason: RegExp) => ({ kind: 'missing', device: hostDevice, takenAtUs: 7, reading, reason });
  t.match(read(t, { meminfo: null }), missing('unknown', /no \/proc\/meminfo/));
  t.match(read(t, { meminfo: 'MemTotal: 1 kB\nMemFree: 1 kB\n' }), missing('unknown', /MemAvailable/));
  t.match(read(t, { meminfo: meminfo(gib, 2 * gib) }), missing('unknown', /available of/), 'more available than there is');
  const limited = (files: Record<string, string>): Machine => ({ cgroup: '0::/a', mountinfo: v2Mount(), files: Object.fromEntries(Object.entries(files).map(([name, text]) => [`sys/fs/cgroup/a/${name}`, text])) });
  t.match(read(t, limited({ 'memory.max': 'lots' })), missing('unknown', /memory\.max has no figure: "lots"/));
  t.match(read(t, limited({ 'memory.max': '4096' })), missing('unknown', /memory\.stat is not there/));
  t.match(read(t, limited({ 'memory.max': '4096', 'memory.stat': 'inactive_file 1\n', 'memory.current': '1' })), missing('unknown', /no active_file/));
  t.match(read(t, limited({ 'memory.max': '4096', 'memory.stat': v2Stat(0, 0) })), missing('unknown', /memory\.current has no figure: null/));
  t.match(read(t, limited({ 'memory.max': '0', 'memory.stat': v2Stat(0, 0), 'memory.current': '0' })), missing('unknown', /no memory at all/));
  const root = folderOf(t, {});
  if (process.getuid?.() !== 0) {
    chmodSync(join(root, 'proc/meminfo'), 0o000);
    t.match(new HostMemory({ platform: 'linux', root, nowUs: () => 7 }).readNow([]), missing('failed', /EACCES/));
  }
  t.match(new HostMemory({ platform: 'darwin', nowUs: () => 7 }).readNow([]), missing('unsupported', /darwin/));
  t.equal(new HostMemory({ platform: 'darwin' }).describe().totalBytes, 0);
  t.match(new HostMemory({ platform: 'win32' }).readNow([1]), { kind: 'read', processes: null });
});

t.test('B211: a process counts with what only it can give back, not with its pages of files', async (t) => {
  const status = (anonymous: number, file: number, shared: number): string => `Name:\tnode\nVmRSS:\t${anonymous + file + shared} kB\nRssAnon:\t   ${anonymous} kB\nRssFile:\t ${file} kB\nRssShmem:\t${shared} kB\nThreads:\t9\n`;
  t.equal(parseStatus(status(2_048, 1_048_576, 512)), 2_560 * 1_024);
  t.equal(parseStatus('Name:\tkthreadd\nThreads:\t1\n'), null);
  t.equal(parseStatus('VmRSS:\t100 kB\n'), 102_400);
  t.match(read(t, { files: { 'proc/5/status': status(1_024, 0, 0), 'proc/6/status': status(0, 7, 0), 'proc/7/status': 'Name:\tgone\n' } }, [5, 6, 7, 8]), {
    processes: [{ pid: 5, usedBytes: mib }, { pid: 6, usedBytes: 0 }],
  });
  const own = new HostMemory().readNow([process.pid]);
  if (process.platform === 'linux') t.match(own, { kind: 'read', truth: 'system', processes: [{ pid: process.pid, usedBytes: Number }] }, 'and so it is on this machine');
  else t.match(own, { kind: /read|missing/ });
});

t.test('B104: memory is unified by name or by the same total to the byte, and near is not the same', async (t) => {
  const machine = 31 * gib;
  for (const name of ['Orin (nvgpu)', 'NVIDIA Jetson AGX Xavier', 'NVIDIA GB10', 'NVIDIA Thor']) t.ok(isUnified({ name, totalBytes: null }, machine), name);
  t.ok(isUnified({ name: 'AMD Radeon Graphics', totalBytes: machine }, machine));
  t.notOk(isUnified({ name: 'NVIDIA GeForce RTX 5090', totalBytes: 32 * gib - 161 * mib }, 32 * gib - 160 * mib));
  t.notOk(isUnified({ name: 'NVIDIA GH200 480GB', totalBytes: 96 * gib }, 480 * gib), 'its card has memory of its own');
  t.notOk(isUnified({ name: 'NVIDIA H200', totalBytes: null }, machine));
});

t.test('the reserve of a machine is a tenth, at least 1 GiB, at most half', async (t) => {
  for (const [totalBytes, reserveBytes] of [[512 * mib, 256 * mib], [gib, gib / 2], [4 * gib, gib], [24 * gib, Math.floor(2.4 * gib)], [512 * gib, Math.floor(51.2 * gib)]] as const) {
    t.equal(defaultHostReserveBytes(totalBytes), reserveBytes, `${totalBytes / gib} GiB`);
  }
});
