/** What is mounted where, by /proc/self/mountinfo. */
import type { Machine } from './machine.js';

export interface Mount {
  /** The part of the file system that is mounted. */
  readonly root: string;
  readonly folder: string;
  readonly type: string;
  readonly options: readonly string[];
  readonly superOptions: readonly string[];
}

export async function readMounts(machine: Machine): Promise<readonly Mount[]> {
  return parseMounts((await machine.readText('/proc/self/mountinfo')) ?? '');
}

/** `36 35 98:0 /root /mount/point options … - type source superoptions` */
export function parseMounts(mountinfo: string): readonly Mount[] {
  return mountinfo.split('\n').flatMap((line): Mount[] => {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , root, folder, options = ''] = left.split(' ');
    const [type = '', , superOptions = ''] = right.split(' ');
    if (root === undefined || folder === undefined) return [];
    return [{ root: unescaped(root), folder: unescaped(folder), type, options: options.split(','), superOptions: superOptions.split(',') }];
  });
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

/** Blanks and backslashes stand in mountinfo as octal. */
function unescaped(text: string): string {
  return text.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8)));
}
