/**
 * One process that a broker before us started. It is not our child: its exit is seen by looking, its output went with
 * the dead broker, and its number may be somebody else's at any time. It is signalled only while it is surely ours: the
 * pid, started at that time, with the spawn's token in its environment, or vouched for by the key that it came back with.
 */
import { LeaseholdError } from '../../protocol/index.js';
import { Guard, guardMark, guardName } from './guard.js';
import { ProcessLadder, type LadderSetup } from './process-ladder.js';
import { tokenName } from './process-table-linux.js';
import { isAlive, signalIdentity, type ProcessTable } from './process-table.js';
import type { AdoptRequest, Obituary, ProcessIdentity } from './types.js';
import type { Watcher } from './watcher.js';

export interface AdoptedProcessSetup extends LadderSetup {
  readonly request: AdoptRequest;
  /** Looks at leaders, and calls `ended` here by way of the supervisor. */
  readonly watcher: Watcher;
}

/** The leader as it lives, or lived, and whether it proves to be ours; null: nothing of it is left. */
export interface FoundLeader {
  readonly leader: ProcessIdentity;
  readonly lives: boolean;
  readonly isProven: boolean;
}

/** Looks for what a record tells of. A pid alone, or a pid and a start time with another token, is a stranger's. */
export function findLeader(table: ProcessTable, { identity, token }: AdoptRequest): FoundLeader | null {
  if (identity?.pid === process.pid) return null;
  if (identity !== null && isAlive(table, identity)) {
    const found = table.variable(identity.pid, tokenName);
    if (found === null || found === token) return { leader: identity, lives: true, isProven: found === token };
  }
  const carriers = (table.list() ?? []).filter((row) => row.token === token && !row.ended);
  const own = carriers.find((row) => row.pid === row.group && identity === null) ?? null;
  if (own !== null) return { leader: { pid: own.pid, startTime: own.startTime }, lives: true, isProven: true };
  const [first] = carriers;
  // Descendants without their leader: they go, and with them the last of it.
  return first === undefined ? null : { leader: identity ?? { pid: first.pid, startTime: first.startTime }, lives: false, isProven: true };
}

export class AdoptedProcess extends ProcessLadder {
  readonly #setup: AdoptedProcessSetup;
  #guard: Guard | null = null;
  #proven: boolean;

  constructor(setup: AdoptedProcessSetup, { leader, isProven }: FoundLeader) {
    super(setup);
    this.#setup = setup;
    this.#proven = isProven;
    this.live(leader);
  }

  /** From here on it is guarded for us, and watched. */
  start(lives: boolean): void {
    const leader = this.identity;
    if (leader === null || !lives) {
      this.ended();
      return;
    }
    this.#setup.watcher.watch(this.generation, leader);
    if (this.#proven) this.#takeOver(leader);
  }

  /** It has proven to be ours by the key that only it was given. */
  vouch(): void {
    if (this.#proven || this.identity === null) return;
    this.#proven = true;
    this.#takeOver(this.identity);
  }

  /** Its leader is gone. */
  ended(): void {
    this.exited({ code: null, signal: null });
  }

  abandon(): void {
    this.#setup.watcher.unwatch(this.generation);
  }

  protected mayBeSignalled(leader: ProcessIdentity): boolean {
    const found = this.setup.table.find(leader.pid);
    return found !== null && found.startTime === leader.startTime;
  }

  protected get mayBeEnded(): boolean {
    return this.#proven;
  }

  protected spared(): ReadonlySet<number> {
    const guard = this.#guard?.pid ?? null;
    return new Set(guard === null ? [process.pid] : [process.pid, guard]);
  }

  protected async lastWords(): Promise<Pick<Obituary, 'how' | 'lastLines'>> {
    return { how: 'gone; what it said went with the broker that started it', lastLines: [] };
  }

  protected async dismissed(): Promise<void> {
    this.#setup.watcher.unwatch(this.generation);
    await this.#guard?.dismiss();
  }

  /** Our guard first, then our record of it, then the end of the old one, whose time is running: at no moment is there none. */
  #takeOver(leader: ProcessIdentity): void {
    const { token, limits, table, onNote, handlers, request } = this.#setup;
    const tell = (): void => {
      try {
        handlers.onTracked?.(this.generation, { token, identity: leader, guard: guard.identity(table) });
      } catch (error) {
        onNote(this.generation, `its record is not up to date: ${LeaseholdError.from(error).message}`);
      }
    };
    const guard = new Guard({
      token, graceMs: limits.reattachGraceMs,
      onLost: (replaced) => {
        onNote(this.generation, replaced ? 'its guard ended and was replaced' : 'its guard ended and could not be replaced: the worker would outlive the broker');
        tell();
      },
    });
    if (!guard.start()) {
      onNote(this.generation, 'no guard could be started for it: the one of the last broker ends it when its time is over');
      return;
    }
    this.#guard = guard;
    guard.watch(leader);
    tell();
    if (request.guard !== null && table.variable(request.guard.pid, guardName) === guardMark(token)) signalIdentity(table, request.guard, 'SIGKILL');
  }
}
