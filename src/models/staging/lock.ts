/**
 * One stager a snapshot, among processes and machines. It saves downloads and is no part of what makes them right: files
 * get their names only whole and checked, so two who stage at once do twice the work, and the same.
 */
import { open, rename, link, rm, stat, utimes } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError, type Limits } from '../../../protocol/index.js';
import { codeOf, readTextIfThere } from '../store/files.js';
import { isFull, writeFault } from '../store/volume.js';
import { lifeOf, newHolder, type Holder } from './identity.js';

export type LockLimits = Pick<Limits, 'stageLockWaitMs' | 'stageHeartbeatMs' | 'stageHolderSilentMs'>;

export interface LockOptions {
  readonly path: string;
  /** What messages call it. */
  readonly repository: string;
  readonly limits: LockLimits;
  readonly signal?: AbortSignal;
  /** Somebody else has it. */
  readonly onWaiting?: (holder: string) => void;
  /** On a full volume nobody gets a lock: whoever makes room there goes on without one. */
  readonly makesRoom?: boolean;
}

const firstPollMs = 50;
const lastPollMs = 2_000;

/** Runs `work` while holding the lock. Rejects with `stage_lock_timeout` when another, living, holds it for too long. */
export async function withLock<T>(options: LockOptions, work: () => Promise<T>): Promise<T> {
  const { path, limits } = options;
  const own = newHolder();
  try {
    await acquire(options, own);
  } catch (error) {
    if (options.makesRoom === true && isFull(error)) return work();
    throw error;
  }
  const heartbeat = setInterval(() => { beat(path, own).catch(() => { clearInterval(heartbeat); }); }, limits.stageHeartbeatMs);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    await removeIf(path, own, ({ token }) => token === own.token);
  }
}

/** Who holds a lock and lives, or might; null when nobody does. */
export async function lockHolder(path: string): Promise<string | null> {
  const holder = await readHolder(path);
  return holder === null || lifeOf(holder) === 'dead' ? null : nameOf(holder);
}

async function acquire({ path, repository, limits, signal, onWaiting }: LockOptions, own: Holder): Promise<void> {
  const deadlineMs = performance.now() + limits.stageLockWaitMs;
  const silence = new Silence();
  for (let pollMs = firstPollMs; ; pollMs = Math.min(lastPollMs, pollMs * 1.5)) {
    signal?.throwIfAborted();
    if (await create(path, own)) return;
    const holder = await readHolder(path);
    const stale = holder !== null && (lifeOf(holder) === 'dead' || (lifeOf(holder) === 'unknown' && await silence.ofMs(path) > limits.stageHolderSilentMs));
    if (stale) {
      await removeIf(path, own, ({ token }) => token === holder.token);
      continue;
    }
    if (holder !== null) onWaiting?.(nameOf(holder));
    if (performance.now() >= deadlineMs) {
      throw new LeaseholdError('stage_lock_timeout', { repository, holder: holder === null ? 'another process' : nameOf(holder), limitMs: limits.stageLockWaitMs, lock: path });
    }
    await pause(Math.min(pollMs, Math.max(1, deadlineMs - performance.now())), undefined, signal === undefined ? {} : { signal });
  }
}

/** How long a lock has shown no sign of life, by our own clock: the other machine's may go wrong. */
class Silence {
  #seen = '';
  #sinceMs = performance.now();

  async ofMs(path: string): Promise<number> {
    const seen = await stat(path).then(({ mtimeMs, ino }) => `${String(mtimeMs)} ${String(ino)}`, () => '');
    if (seen !== this.#seen) {
      this.#seen = seen;
      this.#sinceMs = performance.now();
    }
    return performance.now() - this.#sinceMs;
  }
}

async function create(path: string, own: Holder): Promise<boolean> {
  const text = JSON.stringify(own);
  try {
    const file = await open(path, 'wx', 0o644);
    try {
      await file.writeFile(text);
    } catch (error) {
      // A lock that says nothing of its owner would be waited for.
      await rm(path, { force: true });
      throw error;
    } finally {
      await file.close();
    }
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw writeFault(error, path, text.length);
  }
}

/** Null: there is none, or its holder has not finished writing it. One that never will is known by its age alone. */
async function readHolder(path: string): Promise<Holder | null> {
  try {
    const text = await readTextIfThere(path);
    if (text === null) return null;
    const holder = JSON.parse(text) as Partial<Holder>;
    return typeof holder.token === 'string' && typeof holder.machine === 'string' && typeof holder.pid === 'number' ? { startTime: null, ...holder } as Holder : unreadable;
  } catch (error) {
    if (error instanceof SyntaxError) return unreadable;
    // A link or a pipe in its place is nobody's lock, and no wait ends it.
    throw error;
  }
}

/** Whoever died between making a lock and writing it: told from one that writes just now by silence. */
const unreadable: Holder = { token: '', machine: 'unknown', pid: 0, startTime: null };

/** Signs of life; a lock that is another's by now is left alone. Where they cannot be given, others judge by the process. */
async function beat(path: string, own: Holder): Promise<void> {
  const now = new Date();
  if ((await readHolder(path))?.token === own.token) await utimes(path, now, now).catch((error: unknown) => { if (codeOf(error) !== 'ENOENT') throw error; });
}

/** Takes the lock away and looks at what was taken: should it be another's meanwhile, it is put back. */
async function removeIf(path: string, own: Holder, is: (holder: Holder) => boolean): Promise<void> {
  const aside = `${path}.${own.token}`;
  try {
    await rename(path, aside);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return;
    throw error;
  }
  const taken = await readHolder(aside);
  if (taken !== null && !is(taken)) await link(aside, path).catch((error: unknown) => { if (codeOf(error) !== 'EEXIST') throw error; });
  await rm(aside, { force: true });
}

function nameOf({ pid, machine }: Holder): string {
  return machine === newHolder().machine ? `process ${String(pid)}` : `process ${String(pid)} of another machine`;
}
