/** Who has a file open, as the kernel tells: an engine keeps what it has loaded open, whichever broker it is of. */
import { readFile, readdir, readlink, realpath } from 'node:fs/promises';
import { join } from 'node:path';

const processes = '/proc';

/** Processes of this user, as far as they can be looked at, that have one of these files open or mapped. Where there is no /proc nobody is known. */
export async function openersOf(paths: readonly string[]): Promise<readonly number[]> {
  const wanted = new Set(await Promise.all(paths.map((path) => realpath(path).catch(() => path))));
  const found: number[] = [];
  for (const name of wanted.size === 0 ? [] : await readdir(processes).catch(() => [])) {
    if (/^\d+$/.test(name) && ((await openFiles(name)).some((path) => wanted.has(path)) || (await mappedFiles(name)).some((path) => wanted.has(path)))) found.push(Number(name));
  }
  return found;
}

/** Another user's process, and one that has ended meanwhile, show nothing. */
async function openFiles(pid: string): Promise<readonly string[]> {
  const folder = join(processes, pid, 'fd');
  const names = await readdir(folder).catch(() => []);
  return Promise.all(names.map((name) => readlink(join(folder, name)).catch(() => '')));
}

async function mappedFiles(pid: string): Promise<readonly string[]> {
  const maps = await readFile(join(processes, pid, 'maps'), 'utf8').catch(() => '');
  return maps.split('\n').flatMap((line) => (line.includes('/') ? [line.slice(line.indexOf('/'))] : []));
}
