/** What one cgroup level allows, and what of that is taken. */
import { dirname, join } from 'node:path';
import type { CgroupLevel } from './cgroup-levels.js';
import { Unreadable, figureIn, figureNamed, textOf } from './files.js';

export interface LevelMemory {
  readonly limitBytes: number;
  /** Of the limit: what is not used, and what the kernel would reclaim before it refuses or kills. */
  readonly availableBytes: number;
}

/** v1 writes "no limit" as the largest count of pages, which differs by page size; nothing real comes near. */
const v1UnlimitedBytes = 2 ** 60;

/** Null: this level sets no limit. Throws `Unreadable` when it has one and a figure of it cannot be had. */
export function levelMemory({ version, folder }: CgroupLevel): LevelMemory | null {
  const limitBytes = version === 2 ? v2LimitBytes(folder) : v1LimitBytes(folder);
  if (limitBytes === null) return null;
  const used = version === 2 ? v2UsedBytes(folder) : v1UsedBytes(folder);
  return { limitBytes, availableBytes: Math.min(limitBytes, Math.max(0, limitBytes - used)) };
}

/** Above `memory.high` everything in the cgroup is slowed down until it is below again: no room to plan with. */
function v2LimitBytes(folder: string): number | null {
  const limits = ['memory.max', 'memory.high'].flatMap((name) => {
    const path = join(folder, name);
    const text = textOf(path)?.trim();
    return text === undefined || text === 'max' ? [] : [figureIn(path)];
  });
  return limits.length === 0 ? null : Math.min(...limits);
}

function v1LimitBytes(folder: string): number | null {
  const path = join(folder, 'memory.limit_in_bytes');
  if (textOf(path) === null) return null;
  const limitBytes = figureIn(path);
  return limitBytes >= v1UnlimitedBytes ? null : limitBytes;
}

/**
 * Pages on the two file lists come back under pressure, clean or once written; slabs that say so, too. tmpfs and shared
 * memory are on the anonymous lists and locked pages on the unevictable one: all of these stay, though `file` counts some.
 */
function v2UsedBytes(folder: string): number {
  const path = join(folder, 'memory.stat');
  const stat = textOf(path);
  if (stat === null) throw new Unreadable('unknown', `${path} is not there`);
  const reclaimableBytes = ['inactive_file', 'active_file', 'slab_reclaimable'].reduce((sum, name) => sum + figureNamed(stat, name, path), 0);
  return Math.max(0, figureIn(join(folder, 'memory.current')) - reclaimableBytes);
}

/** The `total_` figures are those of the whole subtree, as the usage is. */
function v1UsedBytes(folder: string): number {
  const path = join(folder, 'memory.stat');
  const stat = textOf(path);
  if (stat === null) throw new Unreadable('unknown', `${path} is not there`);
  const reclaimableBytes = figureNamed(stat, 'total_inactive_file', path) + figureNamed(stat, 'total_active_file', path);
  return Math.max(0, figureIn(join(folder, 'memory.usage_in_bytes')) - reclaimableBytes);
}

/** In v1 a cgroup's children count against it only where it says `use_hierarchy`; always in v2. */
export function boundsChildren({ version, folder }: CgroupLevel): boolean {
  return version === 2 || textOf(join(folder, 'memory.use_hierarchy'))?.trim() !== '0';
}

/** The levels whose limits bind: each until one above does not count its children. */
export function bindingLevels(levels: readonly CgroupLevel[]): readonly CgroupLevel[] {
  const binding: CgroupLevel[] = [];
  for (const [index, level] of levels.entries()) {
    const below = levels[index - 1];
    const isAbove = below?.version === level.version && dirname(below.folder) === level.folder;
    // Once a level is left out, those above it are too.
    if (isAbove && (!binding.includes(below) || !boundsChildren(level))) continue;
    binding.push(level);
  }
  return binding;
}
