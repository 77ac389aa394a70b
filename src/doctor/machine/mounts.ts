/** What is mounted where on the machine that is examined. */
import { parseMounts, type Mount } from '../../../broker/devices/index.js';
import type { Machine } from './machine.js';

export async function readMounts(machine: Machine): Promise<readonly Mount[]> {
  return parseMounts((await machine.readText('/proc/self/mountinfo')) ?? '');
}

/** The mount that an absolute path without links lies on; the last of those mounted over one another. */
export function mountOf(mounts: readonly Mount[], path: string): Mount | null {
  let found: Mount | null = null;
  for (const mount of mounts) {
    const holds = mount.folder === '/' || path === mount.folder || path.startsWith(`${mount.folder}/`);
    if (holds && mount.folder.length >= (found?.folder.length ?? 0)) found = mount;
  }
  return found;
}
