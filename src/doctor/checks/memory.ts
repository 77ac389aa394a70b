/** The machine's memory, what a cgroup leaves of it, and the two settings that make it behave otherwise than one thinks. */
import { totalmem } from 'node:os';
import { Unreadable } from '../../../broker/devices/index.js';
import { formatBytes } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, type Found } from '../finding.js';
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
    return judgeMemory(machineMemory(machine));
  },
};

export function judgeMemory({ totalBytes, availableBytes }: Memory, whose = ''): Found {
  const found = `${availableBytes === null ? 'an unknown part' : formatBytes(availableBytes)} available of ${formatBytes(totalBytes)}${whose}`;
  if (availableBytes === null) return ok(found);
  const advice = 'Models on the CPU and copies of parked ones live there: end what is not needed, or give it more.';
  if (availableBytes < brokerBytes) return assess(found, [{ verdict: 'problem', says: 'a broker and a worker hardly fit', advice }]);
  return assess(found, [availableBytes < totalBytes * scarceShare ? { verdict: 'warning', says: '', advice } : null]);
}

export function machineMemory({ memory }: Machine): Memory {
  return orUnknown<Memory>(() => memory.machine(), () => ({ totalBytes: totalmem(), availableBytes: null }));
}

const cgroupCheck: Check = {
  id: 'memory.cgroup',
  title: 'Of the cgroup',
  async run({ machine }) {
    return orUnknown(() => judgeLimits(machine), (reason) => assess('', [{
      verdict: 'problem', says: `a cgroup has a limit whose figures cannot be read: ${reason}`,
      advice: 'A broker here grants nothing of the machine\'s memory: let it see /sys/fs/cgroup, or set hostMemory.lease to off.',
    }]));
  },
};

function judgeLimits(machine: Machine): Found {
  const [least] = [...machine.memory.limits()].sort((a, b) => a.availableBytes - b.availableBytes);
  if (least === undefined) return notApplicable('no cgroup bounds it');
  const { version, folder, limitBytes, availableBytes } = least;
  if (limitBytes >= machineMemory(machine).totalBytes) return ok(`cgroup v${String(version)} allows all of it`);
  return judgeMemory({ totalBytes: limitBytes, availableBytes }, ` (cgroup v${String(version)}, ${folder}); past it the kernel ends processes in it`);
}

function orUnknown<T>(read: () => T, otherwise: (reason: string) => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Unreadable) return otherwise(error.message);
    throw error;
  }
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
