/** Learned sizes on disk: a file for each, whole or not there. One that cannot be read is none. */
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { LearnedKey, LearnedSize } from './learned-size.js';

const version = 1;
const fileBytesMax = 256 * 1024;
/** Above it, the one that was not renewed for longest goes. */
const filesMax = 1_000;
const fileName = /^size-[0-9a-f]{32}\.json$/;
let lastTemporary = 0;

/** In the state folder. */
export function learnedFolder(stateFolder: string): string {
  return join(stateFolder, 'learned');
}

export async function readLearned(folder: string, key: LearnedKey): Promise<LearnedSize | null> {
  const found = await readFileOrNull(pathOf(folder, key));
  return found !== null && keyText(found.key) === keyText(key) ? found : null;
}

/** Written beside and renamed: a reader sees the old or the new one. Rejects when the folder cannot be written. */
export async function writeLearned(folder: string, size: LearnedSize): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const path = pathOf(folder, size.key);
  const temporary = `${path}.${String(process.pid)}-${String(++lastTemporary)}`;
  const file = await open(temporary, 'wx', 0o600);
  try {
    await file.writeFile(JSON.stringify({ version, size }));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await prune(folder);
}

/** All that is known, the latest first. */
export async function listLearned(folder: string): Promise<readonly LearnedSize[]> {
  const names = await readdir(folder).catch(() => []);
  const sizes = await Promise.all(names.filter((name) => fileName.test(name)).map((name) => readFileOrNull(join(folder, name))));
  return sizes.filter((size) => size !== null).sort((a, b) => (a.updatedAt < b.updatedAt ? 1 : -1));
}

async function prune(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => fileName.test(name));
  if (names.length <= filesMax) return;
  const aged = await Promise.all(names.map(async (name) => ({ name, ms: (await stat(join(folder, name)).catch(() => ({ mtimeMs: 0 }))).mtimeMs })));
  for (const { name } of aged.sort((a, b) => a.ms - b.ms).slice(0, names.length - filesMax)) await rm(join(folder, name), { force: true });
}

function pathOf(folder: string, key: LearnedKey): string {
  return join(folder, `size-${createHash('sha256').update(keyText(key)).digest('hex').slice(0, 32)}.json`);
}

function keyText({ model, engine, versions, card, cardBytes, driver }: LearnedKey): string {
  return JSON.stringify([model, engine, Object.entries(versions).sort(), card, cardBytes, driver]);
}

async function readFileOrNull(path: string): Promise<LearnedSize | null> {
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null || text.length > fileBytesMax) return null;
  try {
    const found = JSON.parse(text) as { readonly version?: unknown; readonly size?: unknown } | null;
    return found?.version === version && isLearned(found.size) ? found.size : null;
  } catch {
    // Not one of ours: it is measured anew, and replaced.
    return null;
  }
}

function isLearned(value: unknown): value is LearnedSize {
  const size = value as Partial<LearnedSize> | null | undefined;
  const isBytes = (bytes: unknown): boolean => Number.isSafeInteger(bytes) && Number(bytes) >= 0;
  const arePairs = (list: unknown): boolean => Array.isArray(list) && (list as readonly Partial<Record<'estimatedBytes' | 'measuredBytes', unknown>>[]).every((pair) => isBytes(pair.estimatedBytes) && isBytes(pair.measuredBytes));
  return typeof size === 'object' && size !== null && typeof size.key === 'object' && typeof size.key.versions === 'object' && typeof size.source === 'string' && typeof size.updatedAt === 'string'
    && isBytes(size.grownBytes) && isBytes(size.loads) && arePairs(size.parts) && arePairs(size.contexts);
}
