/** What the system allows a process: descriptors, processes, locked memory, a share of the cores, shared memory, huge pages. */
import { availableParallelism, loadavg } from 'node:os';
import { statfs } from 'node:fs/promises';
import { posix } from 'node:path';
import { defaultLimits } from '../../../protocol/index.js';
import { formatBytes, formatCount } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, type Found } from '../finding.js';
import type { CgroupLevel } from '../../../broker/devices/index.js';
import { figureIn, levelsOf, smallestOf } from '../machine/cgroups.js';
import type { Machine } from '../machine/machine.js';
import { readProcessLimits } from '../machine/process-limits.js';
import type { Scene } from '../scene.js';

const notHere = 'not known on this platform';

/** Pipes of output and guard, the session, and what a spawn needs for a moment. */
const descriptorsPerWorker = 6;
const descriptorsBesides = 64;
/** Node and an engine run some twenty threads, each of which counts; the guard is one. */
const tasksPerWorker = 24;
/** With less a broker, one caller and one worker do not come up. */
const leastDescriptors = 256;
const leastTasks = 64;

const filesCheck: Check = {
  id: 'limits.nofile',
  title: 'Open files',
  async run({ machine }) {
    const limit = (await readProcessLimits(machine))?.get('Max open files');
    return limit === undefined ? notApplicable(notHere) : judgeFiles(limit.soft);
  },
};

/** Node raises the soft limit to the hard one by itself. */
export function judgeFiles(limit: number | null): Found {
  const { sessionsMax, preAuthConnectionsMax, workersMax } = defaultLimits;
  const wanted = sessionsMax + preAuthConnectionsMax + workersMax * descriptorsPerWorker + descriptorsBesides;
  if (limit === null) return ok('unlimited');
  const found = `${String(limit)}; a full house (${String(workersMax)} workers, ${String(sessionsMax)} sessions) takes ${String(wanted)}`;
  const advice = 'Raise it: `ulimit -Hn 65536`, LimitNOFILE=65536 in the unit, or `--ulimit nofile=65536` for a container.';
  return assess(found, [limit >= wanted ? null : { verdict: limit < leastDescriptors ? 'problem' : 'warning', says: '', advice }]);
}

const tasksCheck: Check = {
  id: 'limits.nproc',
  title: 'Processes and threads',
  async run({ machine }) {
    const limits = await readProcessLimits(machine);
    if (limits === null) return notApplicable(notHere);
    // The super-user is not held to the limit of a user.
    const ofUser = machine.uid === 0 ? null : limits.get('Max processes')?.soft ?? null;
    const levels = await levelsOf(machine, 'pids');
    const left = await smallestOf(levels, async (level) => {
      const [most, now] = [await figureIn(machine, level, 'pids.max'), await figureIn(machine, level, 'pids.current')];
      return most === null ? null : Math.max(0, most - (now ?? 0));
    });
    const used = ofUser === null ? 0 : await tasksOf(machine, machine.uid);
    return judgeTasks(ofUser === null ? null : Math.max(0, ofUser - used), left);
  },
};

export function judgeTasks(leftOfUser: number | null, leftOfCgroup: number | null): Found {
  const left = Math.min(leftOfUser ?? Infinity, leftOfCgroup ?? Infinity);
  if (left === Infinity) return ok('unlimited');
  const wanted = defaultLimits.workersMax * tasksPerWorker;
  const whose = left === leftOfCgroup ? 'pids.max of the cgroup' : 'ulimit -u';
  const found = `${String(left)} more may be started (${whose}); ${String(defaultLimits.workersMax)} workers take ${String(wanted)}`;
  const advice = whose === 'ulimit -u' ? 'Raise it: `ulimit -u 8192`, or LimitNPROC= in the unit.' : 'Raise it: TasksMax=8192 in the unit, or `--pids-limit 8192` for a container.';
  return assess(found, [left >= wanted ? null : { verdict: left < leastTasks ? 'problem' : 'warning', says: '', advice }]);
}

/** Threads of a user's processes, which is what counts against the limit. */
async function tasksOf(machine: Machine, uid: number | null): Promise<number> {
  const pids = (await machine.names('/proc')).filter((name) => /^\d+$/.test(name));
  const counts = await Promise.all(pids.map(async (pid) => {
    const status = await machine.readText(`/proc/${pid}/status`);
    const owner = /^Uid:\s+(\d+)/m.exec(status ?? '')?.[1];
    return owner === String(uid) ? Number(/^Threads:\s+(\d+)/m.exec(status ?? '')?.[1] ?? 1) : 0;
  }));
  return counts.reduce((sum, count) => sum + count, 0);
}

const lockedBytesOfEngines = 64 * 1024 * 1024;

const memlockCheck: Check = {
  id: 'limits.memlock',
  title: 'Locked memory',
  async run(scene) {
    const limit = (await readProcessLimits(scene.machine))?.get('Max locked memory');
    if (limit === undefined) return notApplicable(notHere);
    if (limit.soft === null || scene.machine.uid === 0) return ok(limit.soft === null ? 'unlimited' : `${formatBytes(limit.soft)}, to which the super-user is not held`);
    const found = `${formatBytes(limit.soft)} for mlock and RDMA; what CUDA pins does not count`;
    return assess(found, [
      limit.soft < lockedBytesOfEngines && await hasOwnEngines(scene) ? { verdict: 'warning', says: '', advice: 'Engines that talk over InfiniBand (NCCL) need more: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit.' } : null,
    ]);
  },
};

const cpuCheck: Check = {
  id: 'limits.cpu',
  title: 'Processor',
  async run({ machine }) {
    const levels = await levelsOf(machine, 'cpu');
    return judgeCpu(availableParallelism(), await smallestOf(levels, (level) => quotaOf(machine, level)), loadavg()[0] ?? 0);
  },
};

/** `quota`: cores' worth of time that the cgroup may use. Threads are handed out by cores, which the quota does not change. */
export function judgeCpu(cores: number, quota: number | null, load: number): Found {
  const threads = Math.max(1, cores - 1);
  const found = `${formatCount(cores, 'core')}, ${formatCount(threads, 'thread')} for all workers together, load ${load.toFixed(1)}${quota === null ? '' : `, a quota of ${quota.toFixed(1)} cores`}`;
  return assess(found, [
    quota !== null && quota < threads ? { verdict: quota < threads / 2 ? 'problem' : 'warning', says: 'the quota is below the threads, which then stand still for most of each period', advice: `Give it whole cores instead of a share of all: \`--cpuset-cpus 0-${String(Math.max(0, Math.ceil(quota) - 1))}\`, or CPUAffinity= in the unit.` } : null,
    load > cores * 2 ? { verdict: 'warning', says: 'more runs than the cores can carry', advice: 'Times measured below are no measure, and engines on the CPU slow down out of proportion: let it come to rest.' } : null,
  ]);
}

async function quotaOf(machine: Machine, level: CgroupLevel): Promise<number | null> {
  if (level.version === 2) {
    const [, quota, period] = /^(\d+) (\d+)/.exec((await machine.readText(posix.join(level.folder, 'cpu.max'))) ?? '') ?? [];
    return quota === undefined ? null : Number(quota) / Number(period);
  }
  const [quota, period] = [await figureIn(machine, level, 'cpu.cfs_quota_us'), await figureIn(machine, level, 'cpu.cfs_period_us')];
  return quota === null || period === null || period === 0 ? null : quota / period;
}

/** What Docker gives by default is the least that is of any use. */
const smallShmBytes = 64 * 1024 * 1024;

const shmCheck: Check = {
  id: 'limits.shm',
  title: 'Shared memory',
  async run(scene) {
    if (scene.machine.platform.name !== 'linux') return notApplicable(notHere);
    const { blocks, bavail, bsize } = await statfs('/dev/shm');
    return judgeShm(blocks * bsize, bavail * bsize, await hasOwnEngines(scene));
  },
};

export function judgeShm(totalBytes: number, freeBytes: number, ownEngines: boolean): Found {
  const found = `${formatBytes(freeBytes)} free of ${formatBytes(totalBytes)} in /dev/shm`;
  if (totalBytes > smallShmBytes) return ok(found);
  return assess(found, [ownEngines ? { verdict: 'warning', says: '', advice: 'Engines in Python pass tensors through it: give the container more (`--shm-size 1g`).' } : null]);
}

const pagesCheck: Check = {
  id: 'limits.thp',
  title: 'Transparent huge pages',
  async run({ machine }) {
    const text = await machine.readText('/sys/kernel/mm/transparent_hugepage/enabled');
    return text === null ? notApplicable('not on this kernel') : judgePages(text);
  },
};

export function judgePages(text: string): Found {
  const chosen = /\[(\w+)\]/.exec(text)?.[1] ?? text.trim();
  return assess(chosen, [
    chosen === 'never' ? { verdict: 'warning', says: 'copies of parked models are made page by page', advice: 'Let those who ask have them: `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`.' } : null,
  ]);
}

/** Engines that come with a program of their own, whose needs are not known here. */
async function hasOwnEngines(scene: Scene): Promise<boolean> {
  const seen = await scene.configuration();
  return seen.kind === 'loaded' && (seen.config.options.engines ?? []).some(({ command }) => command !== undefined);
}

export const limitChecks: readonly Check[] = [filesCheck, tasksCheck, memlockCheck, cpuCheck, shmCheck, pagesCheck];
