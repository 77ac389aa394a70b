/** The supervisor: worker processes by generation, watched holders, and the clean end of all of them. */
import { randomBytes } from 'node:crypto';
import { LeaseholdError, defaultLimits, type Limits } from '../../protocol/index.js';
import { AdoptedProcess, findLeader } from './adopted-process.js';
import { processTable } from './platform.js';
import type { ProcessTable } from './process-table.js';
import { Sweeper } from './sweeper.js';
import type { AdoptRequest, ProcessIdentity, SpawnRequest, Supervisor, SupervisorHandlers } from './types.js';
import { Watcher } from './watcher.js';
import type { LadderSetup, ProcessLadder, ProcessLimits } from './process-ladder.js';
import { WorkerProcess } from './worker-process.js';

export interface SupervisorOptions {
  readonly limits?: Partial<Limits>;
  /** Begins every token, for people who look at a process's environment. Default: nothing. */
  readonly tokenPrefix?: string;
  /** Sends a worker its `shutdown`; true when it went out. SIGTERM then follows after half the grace instead of at once. */
  readonly askFirst?: (generation: string, graceMs: number, reason: string) => boolean;
  /** Things that need no decision, for the log. */
  readonly onNote?: (generation: string, note: string) => void;
  /** How often holders are looked at. Default 500 ms. */
  readonly watchIntervalMs?: number;
  /** Whether a process that is watched is heard by another way than its pid: a fork of it may have its connection. Default: never. */
  readonly speaks?: (generation: string) => boolean;
  readonly outputLinesPerSecondMax?: number;
  readonly table?: ProcessTable;
}

/** `ownerOf` is asked for every pid of a driver's list: within this time it answers from one listing… */
const treeMaxAgeMs = 250;
/** …unless a pid is not in it, which may be a child that was just started. */
const treeMinAgeMs = 10;

/** Who belonged to whom when the processes were listed. */
interface Trees {
  readonly takenAtMs: number;
  readonly pids: ReadonlyMap<string, readonly number[]>;
  readonly owners: ReadonlyMap<number, string>;
  /** All that were there; null: it could not be seen. */
  readonly listed: ReadonlySet<number> | null;
}

/** How often processes of an earlier broker are looked at: one small read each. */
const leadersIntervalMs = 100;

export function createSupervisor(handlers: SupervisorHandlers, options: SupervisorOptions = {}): Supervisor {
  return new ProcessSupervisor(handlers, options);
}

class ProcessSupervisor implements Supervisor {
  readonly #handlers: SupervisorHandlers;
  readonly #options: SupervisorOptions;
  readonly #limits: ProcessLimits;
  readonly #table: ProcessTable;
  readonly #sweeper: Sweeper;
  readonly #watcher: Watcher;
  /** Looks at leaders that are not our children. */
  readonly #leaders: Watcher;
  readonly #processes = new Map<string, ProcessLadder>();
  /** Everything that close() must see end; a process stays here until its guard is gone too. */
  readonly #open = new Set<Promise<void>>();
  readonly #used = new Set<string>();
  #trees: Trees | null = null;
  /** The listing before: a child that has ended since a driver was asked is still whose it was. */
  #treesBefore: Trees | null = null;
  #sees = true;
  #closing: Promise<void> | null = null;

  constructor(handlers: SupervisorHandlers, options: SupervisorOptions) {
    this.#handlers = handlers;
    this.#options = options;
    this.#limits = { ...defaultLimits, outputLinesPerSecondMax: options.outputLinesPerSecondMax ?? 1_000, ...options.limits };
    this.#table = options.table ?? processTable();
    this.#sweeper = new Sweeper(this.#table);
    this.#leaders = new Watcher(this.#table, leadersIntervalMs, (generation) => {
      const known = this.#processes.get(generation);
      if (known instanceof AdoptedProcess) known.ended();
    });
    this.#watcher = new Watcher(this.#table, options.watchIntervalMs ?? 500, (generation) => {
      handlers.onExited(generation, { exitCode: null, signal: null, how: 'gone', lastLines: [], reaped: [] });
    }, options.speaks);
  }

  spawn(request: SpawnRequest): void {
    if (this.#closing !== null) throw new LeaseholdError('closed', { what: 'the supervisor' });
    // A generation is one start of one process: two would share a name in the ledger.
    if (this.#used.has(request.generation)) throw new LeaseholdError('internal', { reason: `generation ${request.generation} was started before` });
    this.#used.add(request.generation);
    const worker = new WorkerProcess({ request, ...this.#ladder(request.generation, `${this.#options.tokenPrefix ?? ''}${request.spawnId}.${randomBytes(12).toString('hex')}`) });
    this.#keep(worker);
    worker.start();
  }

  adopt(request: AdoptRequest): boolean {
    const found = findLeader(this.#table, request);
    if (found === null || this.#used.has(request.generation)) return false;
    this.#used.add(request.generation);
    const adopted = new AdoptedProcess({ request, watcher: this.#leaders, ...this.#ladder(request.generation, request.token) }, found);
    this.#keep(adopted);
    adopted.start(found.lives);
    return true;
  }

  vouch(generation: string): void {
    const known = this.#processes.get(generation);
    if (known instanceof AdoptedProcess) known.vouch();
  }

  #ladder(generation: string, token: string): LadderSetup {
    return {
      generation, token,
      handlers: this.#handlers,
      limits: this.#limits,
      table: this.#table,
      sweeper: this.#sweeper,
      askFirst: this.#options.askFirst ?? null,
      onNote: this.#options.onNote ?? (() => undefined),
      onOver: (ended) => this.#processes.delete(ended),
    };
  }

  #keep(process: ProcessLadder): void {
    this.#processes.set(process.generation, process);
    const settled = process.settled.finally(() => this.#open.delete(settled));
    this.#open.add(settled);
    this.#trees = null;
  }

  terminate(generation: string, graceMs: number, reason: string): void {
    this.#processes.get(generation)?.terminate(graceMs, reason);
  }

  watch(generation: string, identity: ProcessIdentity): void {
    this.#watcher.watch(generation, identity);
  }

  unwatch(generation: string): void {
    this.#watcher.unwatch(generation);
  }

  pidsOf(generation: string): readonly number[] {
    const worker = this.#processes.get(generation);
    if (worker === undefined || worker.identity === null) return [];
    if (!this.#table.lists) return [worker.identity.pid];
    return this.#treesNow(treeMaxAgeMs).pids.get(generation) ?? [];
  }

  ownerOf(pid: number): string | null {
    if (!this.#table.lists) return [...this.#processes].find(([, worker]) => worker.identity?.pid === pid)?.[0] ?? null;
    const known = this.#treesNow(treeMaxAgeMs);
    const trees = known.listed?.has(pid) === false ? this.#treesNow(treeMinAgeMs) : known;
    return trees.owners.get(pid) ?? this.#treesBefore?.owners.get(pid) ?? null;
  }

  identityOf(generation: string): ProcessIdentity | null {
    return this.#processes.get(generation)?.identity ?? this.#watcher.identityOf(generation);
  }

  close(graceMs: number): Promise<void> {
    this.#closing ??= this.#closeAll();
    for (const worker of this.#processes.values()) worker.terminate(graceMs, 'the broker closes');
    return this.#closing;
  }

  async #closeAll(): Promise<void> {
    this.#watcher.close();
    while (this.#open.size > 0) await Promise.all(this.#open);
    this.#leaders.close();
    this.#sweeper.close();
    for (const worker of this.#processes.values()) worker.abandon();
  }

  #treesNow(ageMsMax: number): Trees {
    const nowMs = performance.now();
    if (this.#trees !== null && nowMs - this.#trees.takenAtMs <= ageMsMax) return this.#trees;
    const rows = this.#table.list();
    const pidsOf = (worker: ProcessLadder): readonly number[] => (rows === null ? worker.lastSeen() : worker.members(rows).map(({ pid }) => pid));
    const pids = new Map([...this.#processes].map(([generation, worker]) => [generation, pidsOf(worker)] as const));
    const owners = new Map([...pids].flatMap(([generation, members]) => members.map((pid) => [pid, generation] as const)));
    this.#noteSight(rows !== null);
    this.#treesBefore = this.#trees ?? this.#treesBefore;
    this.#trees = { takenAtMs: nowMs, pids, owners, listed: rows === null ? null : new Set(rows.map(({ pid }) => pid)) };
    return this.#trees;
  }

  /** Once when the system no longer lets us look, and once when it does again. */
  #noteSight(sees: boolean): void {
    if (sees === this.#sees) return;
    this.#sees = sees;
    const note = sees ? 'processes can be listed again' : 'processes cannot be listed (out of descriptors or memory): their trees are taken as last seen, and no end is confirmed';
    this.#options.onNote?.('supervisor', note);
  }
}
