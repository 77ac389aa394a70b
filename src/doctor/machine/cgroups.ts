/**
 * Which cgroup folders bound this process for one controller: its own and each above it. Paths of /proc/self/cgroup are
 * those of the cgroup namespace or of the machine, while a container sees only its own part of the tree mounted.
 */
import { posix } from 'node:path';
import type { Machine } from './machine.js';
import { readMounts } from './mounts.js';

export type Controller = 'memory' | 'cpu' | 'pids';

export interface CgroupLevel {
  readonly version: 1 | 2;
  readonly folder: string;
}

/** From the process's own level up to the mount, of v1 and v2 both: on a hybrid system only one of them has figures. */
export async function cgroupLevels(machine: Machine, controller: Controller): Promise<readonly CgroupLevel[]> {
  const mounts = await readMounts(machine);
  const paths = pathsOf((await machine.readText('/proc/self/cgroup')) ?? '', controller);
  return paths.flatMap(({ version, path }) => {
    const candidates = mounts.filter(({ type, superOptions }) => (version === 2 ? type === 'cgroup2' : type === 'cgroup' && superOptions.includes(controller)));
    const mount = candidates.find(({ root }) => isWithin(path, root)) ?? candidates[0];
    return mount === undefined ? [] : levelsBelow(mount.folder, mount.root, path).map((folder) => ({ version, folder }));
  });
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

/** `0::/path` is v2; `4:memory:/path` (perhaps with other controllers) is v1's. */
function pathsOf(selfCgroup: string, controller: Controller): readonly { readonly version: 1 | 2; readonly path: string }[] {
  return selfCgroup.split('\n').flatMap((line): { version: 1 | 2; path: string }[] => {
    const [, id, controllers = '', path = '/'] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (id === undefined) return [];
    if (id === '0' && controllers === '') return [{ version: 2, path }];
    return controllers.split(',').includes(controller) ? [{ version: 1, path }] : [];
  });
}

/** A path that leads into a part that is not mounted leaves the mount itself as the nearest level. */
function levelsBelow(folder: string, root: string, path: string): readonly string[] {
  const inside = isWithin(path, root) && !path.split('/').includes('..') ? path.slice(root === '/' ? 0 : root.length) : '';
  const names = inside.split('/').filter((name) => name !== '');
  return Array.from({ length: names.length + 1 }, (_, up) => posix.join(folder, ...names.slice(0, names.length - up)));
}

function isWithin(path: string, root: string): boolean {
  return root === '/' || path === root || path.startsWith(`${root}/`);
}
