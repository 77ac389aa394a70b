/** The machine's memory, what a cgroup leaves of it, and the two settings that make it behave otherwise than one thinks. */
import { freemem, totalmem } from 'node:os';
import { posix } from 'node:path';
import { formatBytes } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, type Found } from '../finding.js';
import { cgroupLevels, figureIn, type CgroupLevel } from '../machine/cgroups.js';
import type { Machine } from '../machine/machine.js';

export interface Memory {
  readonly totalBytes: number;
  /** Null: the system does not tell. */
  readonly availableBytes: number | null;
}

/** What a broker, a gateway and one worker without a model take. */
const brokerBytes = 512 * 1024 * 1024;
const scarceShare = 0.05;

const ramCheck: Check = {
  id: 'memory.machine',
  title: 'Of the machine',
  async run({ machine }) {
    return judgeMemory(await machineMemory(machine));
  },
};

export function judgeMemory({ totalBytes, availableBytes }: Memory, whose = ''): Found {
  const found = `${availableBytes === null ? 'an unknown part' : formatBytes(availableBytes)} available of ${formatBytes(totalBytes)}${whose}`;
  if (availableBytes === null) return ok(found);
  const advice = 'Models on the CPU and copies of parked ones live there: end what is not needed, or give it more.';
  if (availableBytes < brokerBytes) return assess(found, [{ verdict: 'problem', says: 'a broker and a worker hardly fit', advice }]);
  return assess(found, [availableBytes < totalBytes * scarceShare ? { verdict: 'warning', says: '', advice } : null]);
}

export async function machineMemory(machine: Machine): Promise<Memory> {
  if (machine.platform.name !== 'linux') return { totalBytes: totalmem(), availableBytes: machine.platform.name === 'win32' ? freemem() : null };
  const text = (await machine.readText('/proc/meminfo')) ?? '';
  return { totalBytes: kibIn(text, 'MemTotal') ?? totalmem(), availableBytes: kibIn(text, 'MemAvailable') };
}

const cgroupCheck: Check = {
  id: 'memory.cgroup',
  title: 'Of the cgroup',
  async run({ machine }) {
    const bounds = await cgroupMemory(machine);
    if (bounds === null) return notApplicable('no cgroup bounds it');
    const { version, folder, ...memory } = bounds;
    const { totalBytes } = await machineMemory(machine);
    if (memory.totalBytes >= totalBytes) return ok(`cgroup v${String(version)} allows all of it`);
    return judgeMemory(memory, ` (cgroup v${String(version)}, ${folder}); past it the kernel ends processes in it`);
  },
};

/** The level with least room; null when none sets a limit. */
export async function cgroupMemory(machine: Machine): Promise<CgroupLevel & Memory | null> {
  const levels = await Promise.all((await cgroupLevels(machine, 'memory')).map(async (level) => levelMemory(machine, level)));
  const bounds = levels.filter((level) => level !== null);
  return bounds.sort((a, b) => (a.availableBytes ?? 0) - (b.availableBytes ?? 0))[0] ?? null;
}

/** v1 writes "no limit" as the largest count of pages. */
const unlimitedBytes = 2 ** 60;

async function levelMemory(machine: Machine, level: CgroupLevel): Promise<CgroupLevel & Memory | null> {
  const v2 = level.version === 2;
  const limits = await Promise.all((v2 ? ['memory.max', 'memory.high'] : ['memory.limit_in_bytes']).map((name) => figureIn(machine, level, name)));
  const totalBytes = Math.min(...limits.map((limit) => limit ?? Infinity));
  if (totalBytes >= unlimitedBytes) return null;
  const used = await figureIn(machine, level, v2 ? 'memory.current' : 'memory.usage_in_bytes');
  const stat = (await machine.readText(posix.join(level.folder, 'memory.stat'))) ?? '';
  // Pages of files come back under pressure.
  const reclaimable = (v2 ? ['inactive_file', 'active_file', 'slab_reclaimable'] : ['total_inactive_file', 'total_active_file']).reduce((sum, name) => sum + figureNamed(stat, name), 0);
  const availableBytes = used === null ? null : Math.min(totalBytes, Math.max(0, totalBytes - Math.max(0, used - reclaimable)));
  return { ...level, totalBytes, availableBytes };
}

const settingsCheck: Check = {
  id: 'memory.settings',
  title: 'Swap and overcommit',
  async run({ machine }) {
    const meminfo = await machine.readText('/proc/meminfo');
    if (meminfo === null) return notApplicable('not known on this platform');
    const overcommit = (await machine.readText('/proc/sys/vm/overcommit_memory'))?.trim() ?? '';
    const [total, free] = [kibIn(meminfo, 'SwapTotal'), kibIn(meminfo, 'SwapFree')];
    const swap = total === null || free === null ? 'swap unknown' : total === 0 ? 'no swap' : `swap ${formatBytes(total - free)} used of ${formatBytes(total)}`;
    return assess(`${swap}, vm.overcommit_memory ${overcommit === '' ? 'unknown' : overcommit}`, [
      overcommit === '2' ? { verdict: 'warning', says: 'address space is counted as memory', advice: 'CUDA and Node reserve far more than they use, and are refused: `sudo sysctl vm.overcommit_memory=0`.' } : null,
      total !== null && free !== null && total > 0 && total - free > total / 2 ? { verdict: 'warning', says: 'much is swapped out', advice: 'A model that is swapped is slower than one that is loaded anew: free memory, or bound what else runs.' } : null,
    ]);
  },
};

export const memoryChecks: readonly Check[] = [ramCheck, cgroupCheck, settingsCheck];

function kibIn(meminfo: string, name: string): number | null {
  const figure = new RegExp(`^${name}: +(\\d{1,15}) kB$`, 'm').exec(meminfo)?.[1];
  return figure === undefined ? null : Number(figure) * 1_024;
}

function figureNamed(table: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d{1,19})$`, 'm').exec(table)?.[1] ?? 0);
}
