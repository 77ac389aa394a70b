/**
 * Files that are still arriving. Each has a name of its own: the hash that it will have, and who writes it. So nobody
 * writes into another's, and what a dead process left is continued for the same bytes alone, by one who takes it over.
 */
import { lstat, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '../store/files.js';
import { lifeOf, newHolder, type Holder } from './identity.js';

const shape = /^([0-9a-f]{40,64})\.([A-Za-z0-9-]+)\.(\d+)\.(\d+|x)\.([0-9a-f]{16})\.part$/;

interface Partial {
  readonly name: string;
  readonly hex: string;
  readonly sizeBytes: number;
  readonly abandoned: boolean;
  /** Another program's file under a name of ours, from a process that died over it: to continue it would be to write into theirs. */
  readonly isLinked: boolean;
}

export class Partials {
  readonly #folder: string;
  readonly #silentMs: number;

  /** `silentMs`: a file of another machine's process that did not grow for so long is abandoned. */
  constructor(folder: string, silentMs: number) {
    this.#folder = folder;
    this.#silentMs = silentMs;
  }

  /** A file of our own for the bytes with this hash: what a dead process left of them, else an empty one. Resolves to its path and size. */
  async claim(hex: string): Promise<{ readonly path: string; readonly sizeBytes: number }> {
    const path = join(this.#folder, nameFor(hex, newHolder()));
    const left = (await this.#all()).filter((partial) => partial.hex === hex && partial.abandoned && !partial.isLinked).sort((one, other) => other.sizeBytes - one.sizeBytes);
    for (const { name, sizeBytes } of left) {
      // Of several who want it, one gets it.
      if (await renamed(join(this.#folder, name), path)) return { path, sizeBytes };
    }
    await (await open(path, 'wx', 0o644)).close();
    return { path, sizeBytes: 0 };
  }

  /** A path of our own for a file that will be linked there. */
  freshPath(hex: string): string {
    return join(this.#folder, nameFor(hex, newHolder()));
  }

  /** Bytes of it that are there already, from a process that is dead. */
  async leftBytes(hex: string): Promise<number> {
    return Math.max(0, ...(await this.#all()).filter((partial) => partial.hex === hex && partial.abandoned && !partial.isLinked).map(({ sizeBytes }) => sizeBytes));
  }

  /** Removes what dead processes left and nobody here will continue (B209). */
  async sweep(wanted: ReadonlySet<string>): Promise<void> {
    for (const { name, hex, abandoned, isLinked } of await this.#all()) if (abandoned && (isLinked || !wanted.has(hex))) await rm(join(this.#folder, name), { force: true });
  }

  /** Leaves a file for whoever comes next, this process included: it is not written any more. */
  async leave(path: string, hex: string): Promise<void> {
    await renamed(path, join(this.#folder, nameFor(hex, { ...newHolder(), pid: leftByNobody, startTime: null })));
  }

  async #all(): Promise<readonly Partial[]> {
    const names = await readdir(this.#folder).catch((error: unknown) => {
      if (codeOf(error) === 'ENOENT') return [];
      throw error;
    });
    const found = await Promise.all(names.map(async (name): Promise<readonly Partial[]> => {
      const [, hex, machine, pid, startTime] = shape.exec(name) ?? [];
      if (hex === undefined || machine === undefined) return [];
      const seen = await lstat(join(this.#folder, name)).catch(() => null);
      // A link or a pipe is no file that anybody left: to continue it would be to write elsewhere.
      if (seen === null || !seen.isFile()) return [];
      const holder = { machine, pid: Number(pid), startTime: startTime === 'x' ? null : startTime ?? null };
      const life = holder.pid === leftByNobody ? 'dead' : lifeOf(holder);
      return [{ name, hex, sizeBytes: seen.size, abandoned: life === 'dead' || (life === 'unknown' && Date.now() - seen.mtimeMs > this.#silentMs), isLinked: seen.nlink > 1 }];
    }));
    return found.flat();
  }
}

/** No process has it. */
const leftByNobody = 0;

function nameFor(hex: string, { machine, pid, startTime, token }: Holder): string {
  return `${hex}.${machine}.${String(pid)}.${startTime ?? 'x'}.${token}.part`;
}

async function renamed(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
}
