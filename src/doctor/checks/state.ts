/** The folder of socket, secret and lock: where it is, whose, how open, on what. Looked at with nothing opened for writing. */
import { constants } from 'node:fs';
import { access, lstat, readdir, realpath, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { stateNames } from '../../../broker/shell/index.js';
import { socketPathBytesMax } from '../../../protocol/node/index.js';
import { formatBytes } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, warning, type Fault, type Found } from '../finding.js';
import { mountOf, readMounts } from '../machine/mounts.js';
import { readSmall } from '../small-file.js';
import type { Scene } from '../scene.js';

const elsewhere = 'Name another state folder (--state, LEASEHOLD_STATE).';

const pathCheck: Check = {
  id: 'state.path',
  title: 'Path',
  async run(scene) {
    const path = await scene.statePath();
    if (process.platform === 'win32') return ok(path);
    const bytes = Buffer.byteLength(stateNames(path).longestSocketPath);
    const found = `${path}; its longest socket path has ${String(bytes)} of ${String(socketPathBytesMax)} bytes`;
    return bytes > socketPathBytesMax ? problem(found, `Sockets cannot have names that long, and the system would cut them silently. ${elsewhere}`) : ok(found);
  },
};

const folderCheck: Check = {
  id: 'state.folder',
  title: 'Folder',
  async run(scene) {
    const path = await scene.statePath();
    const stat = await lstat(path).catch(() => null);
    if (stat === null) return judgeParent(path);
    if (stat.isSymbolicLink()) return problem('it is a symbolic link, which is not followed', `Give the folder itself. ${elsewhere}`);
    if (!stat.isDirectory()) return problem('it is no folder', `Remove it. ${elsewhere}`);
    return assess(`mode ${octal(stat.mode)}${scene.machine.uid === null ? '' : `, uid ${String(stat.uid)}`}`, ownerFaults(scene, path, stat));
  },
};

/** It is made at the first start, if it can be. */
async function judgeParent(path: string): Promise<Found> {
  let parent = dirname(path);
  while ((await lstat(parent).catch(() => null)) === null && dirname(parent) !== parent) parent = dirname(parent);
  const found = 'not there yet; the first start makes it with mode 0700';
  const may = await access(parent, constants.W_OK | constants.X_OK).then(() => true, () => false);
  return may ? ok(found) : problem(`not there, and this user may not write in ${parent}`, elsewhere);
}

interface Owned {
  readonly mode: number;
  readonly uid: number;
}

function ownerFaults({ machine: { uid } }: Scene, path: string, { mode, uid: owner }: Owned): readonly (Fault | null)[] {
  if (uid === null) return [];
  return [
    owner === uid ? null : { verdict: 'problem', says: `it belongs to uid ${String(owner)}, and this is uid ${String(uid)}`, advice: `Run as that user. ${elsewhere}` },
    owner === uid && (mode & 0o077) !== 0 ? { verdict: 'warning', says: `open to others until the next start closes it`, advice: `Close it now: \`chmod ${octal(mode & 0o700)} ${path}\`; whoever read the secret meanwhile can pass for you.` } : null,
  ];
}

/** What a broker would refuse to open, and what is more open than it should be. */
const filesCheck: Check = {
  id: 'state.files',
  title: 'Files',
  async run(scene) {
    const { path, secretPath, lockPath, socketPath } = stateNames(await scene.statePath());
    const names = await readdir(path).catch(() => null);
    if (names === null) return notApplicable('there are none yet');
    const faults = (await Promise.all(names.map((name) => judgeFile(scene, join(path, name), [secretPath, lockPath], socketPath)))).flat();
    const secret = await readSmall(secretPath);
    if (names.includes('secret') && secret !== null && !/^[0-9a-f]{64}$/.test(secret.trim())) {
      faults.push({ verdict: 'problem', says: 'the secret does not hold 64 hex digits', advice: `Remove ${secretPath} while no broker runs; a new one is made.` });
    }
    return assess(`${String(names.length)} entries: ${names.slice(0, 6).join(', ')}${names.length > 6 ? ', …' : ''}`, faults);
  },
};

async function judgeFile(scene: Scene, path: string, plain: readonly string[], socketPath: string): Promise<readonly Fault[]> {
  const stat = await lstat(path).catch(() => null);
  if (stat === null) return [];
  const kindFault = (plain.includes(path) && !stat.isFile()) || (path === socketPath && !stat.isSocket());
  if (kindFault) return [{ verdict: 'problem', says: `${path} is ${stat.isSymbolicLink() ? 'a symbolic link' : stat.isDirectory() ? 'a folder' : 'something else'} and must be a ${path === socketPath ? 'socket' : 'file'}`, advice: `Remove ${path}.` }];
  return ownerFaults(scene, path, stat).flatMap((fault) => (fault === null ? [] : [{ ...fault, says: `${path}: ${fault.says}` }]));
}

const diskBytesMin = 1024 * 1024;
const diskBytesEnough = 64 * 1024 * 1024;
const filesEnough = 1_000;

const diskCheck: Check = {
  id: 'state.disk',
  title: 'Room on its disk',
  async run(scene) {
    const { bavail, bsize, files, ffree } = await statfs(await nearest(await scene.statePath()));
    // File systems without a fixed number of files say 0 of 0.
    return judgeRoom(bavail * bsize, files === 0 ? null : ffree);
  },
};

export function judgeRoom(freeBytes: number, freeFiles: number | null): Found {
  const found = `${formatBytes(freeBytes)} free${freeFiles === null ? '' : `, ${String(freeFiles)} files can be made`}`;
  const advice = `Make room there. ${elsewhere}`;
  if (freeBytes < diskBytesMin || freeFiles === 0) return problem(`${found}: a broker could not start`, advice);
  return freeBytes < diskBytesEnough || (freeFiles !== null && freeFiles < filesEnough) ? warning(found, advice) : ok(found);
}

/** Across machines a lock of one may not be seen by another, and a socket works on the one that made it alone. */
const networked = new Set(['nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', '9p', 'ceph', 'glusterfs', 'lustre', 'afs', 'fuse.sshfs', 'fuse.glusterfs', 'beegfs', 'gpfs']);
/** No sockets, or no modes. */
const strange = new Set(['vfat', 'msdos', 'exfat', 'ntfs', 'ntfs3', 'fuseblk', 'iso9660', 'squashfs', 'drvfs']);

const mountCheck: Check = {
  id: 'state.mount',
  title: 'File system',
  async run(scene) {
    const mount = mountOf(await readMounts(scene.machine), await nearest(await scene.statePath()));
    if (mount === null) return notApplicable('not known on this platform');
    const { type, folder, options } = mount;
    const noexec = options.includes('noexec') ? ', noexec (which does no harm there)' : '';
    return assess(`${type} at ${folder}${noexec}`, [
      options.includes('ro') ? { verdict: 'problem', says: 'read-only', advice: elsewhere } : null,
      networked.has(type) ? { verdict: 'warning', says: 'it is shared over a network, where locks may not hold and sockets work on one machine alone', advice: `Take a local one. ${elsewhere}` } : null,
      strange.has(type) ? { verdict: 'problem', says: 'it has no sockets or no modes', advice: `Take another. ${elsewhere}` } : null,
    ]);
  },
};

export const stateChecks: readonly Check[] = [pathCheck, folderCheck, filesCheck, diskCheck, mountCheck];

/** The path without links of the nearest thing above that is there. */
async function nearest(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const real = await realpath(at).catch(() => null);
    if (real !== null) return real;
    if (dirname(at) === at) return at;
  }
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0');
}
