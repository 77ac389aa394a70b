/**
 * A running broker’s place on the disk, kept while it runs. Its state may lie
 * under /tmp, where whoever tidies up takes files that look old: without the
 * socket no worker can start any more, without the secret nobody is welcomed,
 * and without the lock a second broker could start beside it. Every so often,
 * and before each start of a worker, it looks, in this order:
 *
 * 1. The folder: gone, it is made again, where what is above it is ours or the system’s.
 * 2. The locks, of the state and of each card: each is on a file, and whoever comes looks for it by its path. Gone, they are
 *    made and taken again; whose place another broker has taken ends.
 * 3. The records of who may hold bytes, and what simulated cards have given out: what is gone is written again.
 * 4. The secret: gone or another, it is written again, for who holds the lock says what it is.
 * 5. The socket: gone, it is listened anew at the same path; whoever is connected stays.
 * 6. The age of everything in the folder that is ours.
 *
 * What somebody laid in place of any of them (a link, a folder, a file of
 * another user) is told and left alone, and what comes after it waits: nothing
 * is done in the folder without its lock.
 */
import { lstatSync, lutimesSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { LeaseholdError } from '../../protocol/index.js';
import { removeStaleSocket, socketIsAlive, type Listener } from '../../protocol/node/index.js';
import type { FileLock } from './file-lock.js';
import type { Log } from './log.js';
import { unreadable } from './private-file.js';
import type { Kept } from './recall.js';
import { keepSecret } from './secret-file.js';
import { makePrivateFolder, type StateFolder } from './state-folder.js';

export interface KeeperOptions {
  readonly state: StateFolder;
  /** Of the state folder. */
  readonly lock: FileLock;
  readonly cardLocks: readonly FileLock[];
  readonly listener: Listener;
  /** The records of processes, and what is on simulated cards. */
  readonly records: readonly Kept[];
  readonly everyMs: number;
  readonly log: Log;
  readonly publish: (name: string, data: Readonly<Record<string, unknown>>) => void;
  /** Another broker is where this one was: it is to end. */
  readonly onOutlived: (error: LeaseholdError) => void;
}

/** While something is not as it should be it is looked at more often. */
const hurryMs = 1_000;

type What = 'folder' | 'lock' | 'records' | 'secret' | 'socket';

export class Keeper {
  readonly #options: KeeperOptions;
  readonly #uid = process.getuid?.();
  #timer: NodeJS.Timeout | null = null;
  #looking: Promise<void> | null = null;
  /** What was told last of each that could not be put right, by its path. */
  readonly #faults = new Map<string, LeaseholdError>();
  /** Since when another has the lock of a card. */
  readonly #contestedSinceMs = new Map<string, number>();
  #stopped = false;

  constructor(options: KeeperOptions) {
    this.#options = options;
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  /** Looks now; what can be put right is put right before the first wait, the socket included. Never rejects. */
  look(): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
      this.#schedule();
    });
    return this.#looking;
  }

  #schedule(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#stopped) return;
    const { everyMs } = this.#options;
    this.#timer = setTimeout(() => { void this.look(); }, this.#faults.size === 0 ? everyMs : Math.min(everyMs, hurryMs));
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    const { state, lock, cardLocks, listener, records } = this.#options;
    for (const cardLock of cardLocks) this.#keep('lock', cardLock.path, () => this.#keepLock(cardLock));
    this.#checkCards();
    const ours = this.#keep('folder', state.path, () => keepFolder(state.path)) && this.#keep('lock', lock.path, () => this.#keepLock(lock));
    if (!ours) {
      await this.#checkPlace();
      return;
    }
    for (const record of records) this.#keep('records', record.path, () => record.keep());
    this.#keep('secret', state.secretPath, () => keepSecret(state.secretPath, state.secret));
    if (listener.place !== 'own') await this.#listenAnew();
    else this.#faults.delete(listener.path);
    this.#touch();
  }

  /** Whether it is as it should be now. `restore` says whether it had to do anything for that. */
  #keep(what: What, path: string, restore: () => boolean): boolean {
    try {
      if (restore()) this.#restored(what, path);
      this.#faults.delete(path);
      return true;
    } catch (error) {
      this.#fault(what, path, LeaseholdError.from(error, 'internal'));
      return false;
    }
  }

  #keepLock(lock: FileLock): boolean {
    const folder = dirname(lock.path);
    const made = keepFolder(folder);
    if (made) this.#restored('folder', folder);
    return lock.keep();
  }

  async #listenAnew(): Promise<void> {
    const { listener } = this.#options;
    try {
      // Asked only of what is there: the usual case, a path with nothing at it, is put right at once.
      if (listener.place === 'other') await removeStaleSocket(listener.path);
      await listener.renew();
      this.#restored('socket', listener.path);
      this.#faults.delete(listener.path);
    } catch (error) {
      this.#fault('socket', listener.path, LeaseholdError.from(error, 'listen_failed', { path: listener.path }));
    }
  }

  /**
   * The state’s lock is in other hands. Another broker that comes to start has it for a while, too, and gives it back when it
   * finds our socket or our cards: only one that answers where we did has taken our place, and then nobody can find us any more.
   */
  async #checkPlace(): Promise<void> {
    const { lock, listener } = this.#options;
    const taken = this.#takenBy(lock.path);
    if (taken !== null && listener.place === 'other' && await socketIsAlive(listener.path)) this.#outlived('its place', taken);
  }

  /** Two brokers that both grant the bytes of one card would overfill it. One that only tries to start has it for a moment. */
  #checkCards(): void {
    for (const { path } of this.#options.cardLocks) {
      const taken = this.#takenBy(path);
      if (taken === null) this.#contestedSinceMs.delete(path);
      else if (!this.#contestedSinceMs.has(path)) this.#contestedSinceMs.set(path, performance.now());
      else if (performance.now() - (this.#contestedSinceMs.get(path) ?? 0) >= hurryMs) this.#outlived('a card of it', taken);
    }
  }

  #takenBy(path: string): LeaseholdError | null {
    const fault = this.#faults.get(path);
    return fault?.code === 'broker_running' ? fault : null;
  }

  #outlived(what: string, by: LeaseholdError): void {
    this.#options.onOutlived(new LeaseholdError('broker_lost', { reason: `another broker has taken ${what}: ${by.message}` }, { cause: by }));
  }

  /** Links are touched, not followed; what is another’s cannot be. */
  #touch(): void {
    const { path } = this.#options.state;
    const now = new Date();
    try {
      for (const each of [path, ...readdirSync(path).map((name) => join(path, name))]) {
        if (lstatSync(each, { throwIfNoEntry: false })?.uid === this.#uid) lutimesSync(each, now, now);
      }
    } catch (error) {
      this.#options.log.debug({ path, reason: String(error) }, 'the age of what is there could not be set');
    }
  }

  #restored(what: What, path: string): void {
    this.#options.log.warn({ what, path }, 'it was gone and has been put back');
    this.#options.publish('state_restored', { what, path });
  }

  /** Told once as long as it stays the same. */
  #fault(what: What, path: string, error: LeaseholdError): void {
    if (this.#faults.get(path)?.message === error.message) return;
    this.#faults.set(path, error);
    this.#options.log.error({ what, path, code: error.code, help: error.help }, error.message);
    this.#options.publish('state_lost', { what, path, code: error.code, reason: error.message });
  }
}

/** True when it had to be made. Throws `config_unreadable` where another could take away what is made, or has put something there. */
function keepFolder(path: string): boolean {
  const missing = lstatSync(path, { throwIfNoEntry: false }) === undefined;
  if (missing) checkAbove(path);
  makePrivateFolder(path);
  return missing;
}

function checkAbove(path: string): void {
  const above = dirname(resolve(path));
  const stat = lstatSync(above, { throwIfNoEntry: false });
  if (stat === undefined) {
    checkAbove(above);
    return;
  }
  const ours = process.getuid?.();
  if (ours !== undefined && stat.uid !== ours && stat.uid !== 0) throw unreadable(path, `it is gone, and ${above} belongs to uid ${String(stat.uid)}: nothing is made there; remove it`);
}
