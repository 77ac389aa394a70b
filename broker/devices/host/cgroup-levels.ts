/**
 * Which cgroup folders bound this process by one controller: its own and each above it. Paths of /proc/self/cgroup are
 * those of the cgroup namespace or, without one, of the machine, while a container sees only its own part of the tree
 * mounted; the mount's root tells which part that is.
 */
import { posix } from 'node:path';
import { parseMounts, type Mount } from './mounts.js';

export type CgroupController = 'memory' | 'cpu' | 'pids';

export interface CgroupLevel {
  readonly version: 1 | 2;
  readonly folder: string;
}

/** The levels from the process's own up to the mount, of v1 and v2 both: on a hybrid system only one of them has figures. */
export function cgroupLevels(mountinfo: string, selfCgroup: string, controller: CgroupController): readonly CgroupLevel[] {
  const mounts = parseMounts(mountinfo);
  return pathsOf(selfCgroup, controller).flatMap(({ version, path }) => {
    const candidates = mounts.filter(({ type, superOptions }) => (version === 2 ? type === 'cgroup2' : type === 'cgroup' && superOptions.includes(controller)));
    const mount = candidates.find(({ root }) => isWithin(path, root)) ?? candidates[0];
    return mount === undefined ? [] : levelsBelow(mount, path).map((folder) => ({ version, folder }));
  });
}

/** `0::/path` is v2; `4:memory:/path` (perhaps with other controllers) is v1's. */
function pathsOf(selfCgroup: string, controller: CgroupController): readonly { readonly version: 1 | 2; readonly path: string }[] {
  return selfCgroup.split('\n').flatMap((line): { version: 1 | 2; path: string }[] => {
    const [, id, controllers = '', path = '/'] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (id === undefined) return [];
    if (id === '0' && controllers === '') return [{ version: 2, path }];
    return controllers.split(',').includes(controller) ? [{ version: 1, path }] : [];
  });
}

/** A path that leads out of the namespace (`/../…`), or into a part that is not mounted, leaves the mount itself as the nearest level. */
function levelsBelow({ root, folder }: Mount, path: string): readonly string[] {
  const inside = isWithin(path, root) && !path.split('/').includes('..') ? path.slice(root === '/' ? 0 : root.length) : '';
  const names = inside.split('/').filter((name) => name !== '');
  return Array.from({ length: names.length + 1 }, (_, up) => posix.join(folder, ...names.slice(0, names.length - up)));
}

function isWithin(path: string, root: string): boolean {
  return root === '/' || path === root || path.startsWith(`${root}/`);
}
