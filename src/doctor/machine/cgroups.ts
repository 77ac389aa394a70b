/** Figures of the cgroups that bound the examined process. */
import { posix } from 'node:path';
import { cgroupLevels, type CgroupController, type CgroupLevel } from '../../../broker/devices/index.js';
import type { Machine } from './machine.js';

export async function levelsOf(machine: Machine, controller: CgroupController): Promise<readonly CgroupLevel[]> {
  const [mountinfo, selfCgroup] = await Promise.all(['/proc/self/mountinfo', '/proc/self/cgroup'].map((path) => machine.readText(path)));
  return cgroupLevels(mountinfo ?? '', selfCgroup ?? '', controller);
}

/** The smallest of what the levels say by `read`; null when none says anything. */
export async function smallestOf(levels: readonly CgroupLevel[], read: (level: CgroupLevel) => Promise<number | null>): Promise<number | null> {
  const figures = (await Promise.all(levels.map(read))).filter((figure) => figure !== null);
  return figures.length === 0 ? null : Math.min(...figures);
}

/** A whole number in a file of a level; null for `max`, -1, anything else and no file. */
export async function figureIn(machine: Machine, level: CgroupLevel, name: string): Promise<number | null> {
  const text = (await machine.readText(posix.join(level.folder, name)))?.trim() ?? '';
  return /^\d{1,19}$/.test(text) ? Number(text) : null;
}
