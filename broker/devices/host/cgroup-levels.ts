/**
 * Which cgroup folders bound this process: its own and each above it, in whichever hierarchy has memory. Paths of
 * /proc/self/cgroup are those of the cgroup namespace or, without one, of the machine, while a container sees only its
 * own part of the tree mounted; the mount's root tells which part that is.
 */
import { posix } from 'node:path';

export interface CgroupLevel {
  readonly version: 1 | 2;
  readonly folder: string;
}

interface Mount {
  readonly version: 1 | 2;
  /** The cgroup that is mounted there. */
  readonly root: string;
  readonly folder: string;
}

/** The levels from the process's own up to the mount, of v1 and v2 both: on a hybrid system only one of them has figures. */
export function cgroupLevels(mountinfo: string, selfCgroup: string): readonly CgroupLevel[] {
  const mounts = memoryMounts(mountinfo);
  return memoryPaths(selfCgroup).flatMap(({ version, path }) => {
    const candidates = mounts.filter((mount) => mount.version === version);
    const mount = candidates.find(({ root }) => isWithin(path, root)) ?? candidates[0];
    return mount === undefined ? [] : levelsBelow(mount, path);
  });
}

/** `36 35 98:0 /root /mount/point options … - type source superoptions` */
function memoryMounts(mountinfo: string): readonly Mount[] {
  return mountinfo.split('\n').flatMap((line): Mount[] => {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , root, folder] = left.split(' ');
    const [type, , superOptions = ''] = right.split(' ');
    if (root === undefined || folder === undefined) return [];
    if (type === 'cgroup2') return [{ version: 2, root: unescaped(root), folder: unescaped(folder) }];
    return type === 'cgroup' && superOptions.split(',').includes('memory') ? [{ version: 1, root: unescaped(root), folder: unescaped(folder) }] : [];
  });
}

/** `0::/path` is v2; `4:memory:/path` (perhaps with other controllers) is v1's memory. */
function memoryPaths(selfCgroup: string): readonly { readonly version: 1 | 2; readonly path: string }[] {
  return selfCgroup.split('\n').flatMap((line): { version: 1 | 2; path: string }[] => {
    const found = /^(\d+):([^:]*):(\/.*)$/.exec(line);
    if (found === null) return [];
    const [, id, controllers = '', path = '/'] = found;
    if (id === '0' && controllers === '') return [{ version: 2, path }];
    return controllers.split(',').includes('memory') ? [{ version: 1, path }] : [];
  });
}

/** A path that leads out of the namespace (`/../…`), or into a part that is not mounted, leaves the mount itself as the nearest level. */
function levelsBelow(mount: Mount, path: string): readonly CgroupLevel[] {
  const inside = isWithin(path, mount.root) && !path.split('/').includes('..') ? path.slice(mount.root === '/' ? 0 : mount.root.length) : '';
  const names = inside.split('/').filter((name) => name !== '');
  return Array.from({ length: names.length + 1 }, (_, up) => ({ version: mount.version, folder: posix.join(mount.folder, ...names.slice(0, names.length - up)) }));
}

function isWithin(path: string, root: string): boolean {
  return root === '/' || path === root || path.startsWith(`${root}/`);
}

/** Blanks and backslashes stand in mountinfo as octal. */
function unescaped(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));
}
