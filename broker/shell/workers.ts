/** The broker's worker processes: how each is started, what it may see, and how callers find it. */
import { LeaseholdError, workerExitCodes, type ControlMessage, type Limits } from '../../protocol/index.js';
import { createTicket, spawnKey } from '../../protocol/node/index.js';
import { visibilityOf, type CardDescription } from '../devices/index.js';
import type { Obituary, ProcessIdentity, Supervisor, SupervisorHandlers, Tracked } from '../supervisor/types.js';
import type { TerminateCause } from '../core/effects.js';
import type { EngineCommand } from './engines.js';
import { endOf, typedEnd } from './last-words.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { Sessions } from './session.js';
import type { ProcessRecord, ProcessRecords } from './process-records.js';
import { dataSocketPath, removeDataSocket } from './state-folder.js';
import type { ThreadShares } from './thread-shares.js';
import { monotonicUs } from '../../protocol/node/clock.js';

type Ready = Extract<ControlMessage, { type: 'ready' }>;

export interface MemoryDescription {
  readonly device: string;
  readonly totalBytes: number;
  readonly simulated: boolean;
}

interface Worker {
  readonly generation: string;
  readonly engine: string;
  readonly devices: readonly string[];
  readonly key: string;
  readonly dataSocket: string;
  readonly threads: number;
  /** An earlier broker started it. */
  readonly recorded: boolean;
  /** What was charged for it before any model when it was started. */
  readonly floors: ProcessRecord['floors'];
  attached: boolean;
  ending: boolean;
  /** Why it is ended, where that is by us. */
  cause: TerminateCause | null;
  ready: Ready | null;
}

export interface WorkersOptions {
  readonly engines: ReadonlyMap<string, EngineCommand>;
  readonly cards: ReadonlyMap<string, CardDescription>;
  /** The machine's memory; null: it is not leased. */
  readonly memory: MemoryDescription | null;
  readonly secret: string;
  readonly stateFolder: string;
  readonly socketPath: string;
  readonly limits: Limits;
  readonly threads: ThreadShares;
  readonly bootId: string;
  readonly records: ProcessRecords;
  /** What is charged for a process before any model, for its record. */
  readonly floorsOf: (generation: string) => ProcessRecord['floors'];
  readonly sessions: Sessions;
  readonly log: Log;
  readonly feed: (event: UntimedEvent) => void;
  /** Told after the core: simulated cards drop what the process held, subscribers hear how it ended. */
  readonly onGone: (generation: string, identity: ProcessIdentity | null, obituary: Obituary, cause: TerminateCause | null) => void;
}

const typedEndsMax = 64;

export class Workers {
  readonly #options: WorkersOptions;
  readonly #workers = new Map<string, Worker>();
  /** To be started, one a turn of the loop: a start keeps the loop, and a flood of them would keep it from everybody. */
  readonly #starts = new Map<string, () => void>();
  #startDue: NodeJS.Immediate | null = null;
  /** Of workers, and of holders that are watched. */
  readonly #identities = new Map<string, ProcessIdentity>();
  /** The errors that processes said they ended of before they were ready, by what the core was told. */
  readonly #typedEnds = new Map<string, LeaseholdError>();
  #supervisor: Supervisor | null = null;

  constructor(options: WorkersOptions) {
    this.#options = options;
  }

  use(supervisor: Supervisor): void {
    this.#supervisor = supervisor;
  }

  /** What the supervisor tells, for the core and for us. */
  readonly handlers: SupervisorHandlers = {
    onSpawned: (generation, identity) => {
      this.#identities.set(generation, identity);
      this.#options.log.info({ generation, pid: identity.pid }, 'worker started');
    },
    onTracked: (generation, tracked) => { this.#record(generation, tracked); },
    onSpawnFailed: (generation, reason, typed) => {
      if (typed !== null) this.#rememberEnd(reason, typed);
      this.#spawnFailed(generation, 'spawn_failed', reason);
    },
    onExited: (generation, obituary) => { this.#exited(generation, obituary); },
    onKillUnconfirmed: (generation, reason) => { this.#options.feed({ type: 'kill_unconfirmed', generation, reason }); },
    onOutput: (generation, stream, line) => { this.#options.log.debug({ generation, stream }, line); },
  };

  spawn(generation: string, engine: string, devices: readonly string[]): void {
    const command = this.#options.engines.get(engine);
    if (command === undefined || this.#supervisor === null) {
      this.#spawnFailed(generation, 'engine_unknown', `there is no engine ${engine}`);
      return;
    }
    const supervisor = this.#supervisor;
    const worker = this.#keep({ generation, engine, devices, recorded: false, threads: this.#options.threads.take(generation), floors: this.#options.floorsOf(generation) });
    this.#starts.set(generation, () => { this.#start(supervisor, worker, command); });
    this.#startDue ??= setImmediate(() => { this.#startNext(); });
  }

  #startNext(): void {
    this.#startDue = null;
    const [next] = this.#starts;
    if (next === undefined) return;
    const [generation, start] = next;
    this.#starts.delete(generation);
    if (this.#starts.size > 0) this.#startDue = setImmediate(() => { this.#startNext(); });
    start();
  }

  #start(supervisor: Supervisor, worker: Worker, command: EngineCommand): void {
    const { generation } = worker;
    try {
      supervisor.spawn({ generation, spawnId: generation, command: command.command, args: command.args, env: this.#environment(worker, command) });
    } catch (error) {
      // Asked for while the broker is being closed.
      if (LeaseholdError.from(error).code !== 'closed') throw error;
      this.#spawnFailed(generation, 'shutting_down', 'the broker is shutting down');
    }
  }

  /** Takes over a worker that an earlier broker started; false when nothing of it lives. */
  adopt(record: ProcessRecord): boolean {
    const { generation, token, identity, guard, engine, devices, threads, floors } = record;
    if (token === null || engine === null || this.#supervisor === null) return false;
    this.#keep({ generation, engine, devices, recorded: true, threads, floors });
    this.#options.threads.keep(generation, threads);
    const lives = this.#supervisor.adopt({ generation, token, identity, guard });
    if (!lives) this.#forget(generation);
    const found = this.#supervisor.identityOf(generation) ?? identity;
    if (lives && found !== null) this.#identities.set(generation, found);
    return lives;
  }

  #keep(known: Pick<Worker, 'generation' | 'engine' | 'devices' | 'recorded' | 'threads' | 'floors'>): Worker {
    const { secret, stateFolder } = this.#options;
    const { generation } = known;
    const worker: Worker = { ...known, attached: false, ending: false, cause: null, ready: null, key: spawnKey(secret, generation), dataSocket: dataSocketPath(stateFolder, generation) };
    this.#workers.set(generation, worker);
    return worker;
  }

  /** Throws `state_unwritable`: one that is about to be started is not; of one that lives it is written as soon as it can be. */
  #record(generation: string, { token, identity, guard }: Tracked): void {
    const { records, bootId, limits } = this.#options;
    const worker = this.#workers.get(generation);
    if (worker === undefined) return;
    const record: ProcessRecord = {
      version: 1, role: 'worker', generation, bootId, machine: records.machine, name: worker.engine, engine: worker.engine, spawnId: generation, token,
      devices: worker.devices, floors: worker.floors, threads: worker.threads, identity, guard, graceMs: limits.reattachGraceMs,
    };
    if (identity === null) records.write(record);
    else records.writeOrOwe(record);
  }

  /** What has this pid, of what we did not start, and watch: a process may have several sessions. */
  watchedBy(pid: number): readonly string[] {
    return [...this.#identities].filter(([generation, identity]) => identity.pid === pid && !this.#workers.has(generation)).map(([generation]) => generation);
  }

  /** A process that we did not start: told of by `onGone` when it has ended. */
  watch(generation: string, identity: ProcessIdentity): void {
    this.#identities.set(generation, identity);
    this.#supervisor?.watch(generation, identity);
  }

  /** Idempotent; for workers of ours it does nothing. */
  unwatch(generation: string): void {
    if (this.#workers.has(generation)) return;
    this.#identities.delete(generation);
    this.#supervisor?.unwatch(generation);
  }

  /** The error behind a reason that the core was given for a start that failed; null: there was none with a code. */
  typedEnd(reason: string): LeaseholdError | null {
    return this.#typedEnds.get(reason) ?? null;
  }

  /** SIGTERM is what `shutdown` means to a worker that no longer reads; both are sent, the ladder does the rest. */
  terminate(generation: string, cause: TerminateCause, graceMs: number): void {
    if (this.#starts.delete(generation)) {
      this.#spawnFailed(generation, cause === 'shutdown' ? 'shutting_down' : 'spawn_failed', `it was to end (${cause}) before it was started`);
      return;
    }
    const worker = this.#workers.get(generation);
    if (worker !== undefined) {
      worker.ending = true;
      worker.cause ??= cause;
    }
    const session = this.#options.sessions.get(generation);
    session?.channel.request({ type: 'shutdown', graceMs, reason: cause }, { timeoutMs: graceMs }).catch((error: unknown) => {
      this.#options.log.debug({ generation, reason: LeaseholdError.from(error).message }, 'shutdown was not answered');
    });
    this.#supervisor?.terminate(generation, graceMs, cause);
  }

  /** The living worker that a hello names; null: there is none. */
  named(spawnId: string): Pick<Worker, 'generation' | 'threads' | 'devices' | 'recorded' | 'attached' | 'ending'> | null {
    return this.#workers.get(spawnId) ?? null;
  }

  /** It has proven itself; `pid` is who speaks for it. True when it was here, or elsewhere, before. */
  attach(generation: string, pid: number): boolean {
    const worker = this.#workers.get(generation);
    if (worker === undefined) return false;
    const isBack = worker.attached || worker.recorded;
    worker.attached = true;
    // Only the process that was started has the key, unless it gave it to a child.
    if (this.#identities.get(generation)?.pid === pid) this.#supervisor?.vouch(generation);
    return isBack;
  }

  /** Takes `ready` in; throws when it claims what it was not given. */
  ready(generation: string, message: Ready): void {
    const worker = this.#workers.get(generation);
    if (worker === undefined) throw new LeaseholdError('generation_stale', { generation, current: 'none' });
    if (message.dataSocket !== worker.dataSocket) {
      throw new LeaseholdError('message_invalid', { type: 'ready', field: 'dataSocket', expected: `the path it was given, ${worker.dataSocket}` });
    }
    const strange = message.devices.find(({ device }) => !worker.devices.includes(device));
    if (strange !== undefined) throw new LeaseholdError('device_unknown', { device: strange.device, known: worker.devices.join(', ') });
    worker.ready = message;
  }

  /** Address and ticket of a ready worker for one caller. */
  admission(generation: string, caller: string): { readonly dataSocket: string; readonly ticket: string; readonly devices: readonly string[] } | null {
    const worker = this.#workers.get(generation);
    if (worker === undefined || worker.ready === null) return null;
    const expiresUs = monotonicUs() + this.#options.limits.ticketTtlMs * 1000;
    return { dataSocket: worker.dataSocket, devices: worker.devices, ticket: createTicket(worker.key, { caller, generation, expiresUs }) };
  }

  /** The worker whose tree a pid is in; null: none. */
  ownerOf(pid: number): string | null {
    return this.#supervisor?.ownerOf(pid) ?? null;
  }

  /** The pids of all workers' trees, and of the processes that are watched. */
  pids(): readonly number[] {
    const watched = [...this.#identities].flatMap(([generation, { pid }]) => (this.#workers.has(generation) ? [] : [pid]));
    return [...[...this.#workers.keys()].flatMap((generation) => this.#supervisor?.pidsOf(generation) ?? []), ...watched];
  }

  identityOf(generation: string): ProcessIdentity | null {
    return this.#identities.get(generation) ?? null;
  }

  generations(): IterableIterator<string> {
    return this.#workers.keys();
  }

  describe(): readonly { readonly generation: string; readonly engine: string; readonly pid: number | null; readonly threads: number; readonly versions: Ready['versions'] | null }[] {
    return [...this.#workers.values()].map((worker) => ({
      generation: worker.generation, engine: worker.engine, pid: this.#identities.get(worker.generation)?.pid ?? null,
      threads: worker.threads, versions: worker.ready?.versions ?? null,
    }));
  }

  #environment(worker: Worker, command: EngineCommand): Record<string, string> {
    const cards = worker.devices.map((device) => this.#options.cards.get(device)).filter((card) => card !== undefined);
    const visible = cards.map(({ device, name, totalBytes, kind }) => ({ device, name, totalBytes: totalBytes > 0 ? totalBytes : null, simulated: kind === 'simulated' }));
    const { memory } = this.#options;
    return {
      ...command.env,
      ...visibilityOf(cards),
      LEASEHOLD_SOCKET: this.#options.socketPath,
      LEASEHOLD_SPAWN: worker.generation,
      LEASEHOLD_KEY: worker.key,
      LEASEHOLD_DATA_SOCKET: worker.dataSocket,
      LEASEHOLD_DEVICES: JSON.stringify(visible),
      ...(memory === null ? {} : { LEASEHOLD_MEMORY: JSON.stringify(memory) }),
      LEASEHOLD_LIMITS: JSON.stringify(this.#options.limits),
    };
  }

  #spawnFailed(generation: string, code: string, reason: string): void {
    this.#forget(generation);
    this.#options.feed({ type: 'spawn_failed', generation, code, reason });
  }

  #exited(generation: string, obituary: Obituary): void {
    const identity = this.#identities.get(generation) ?? null;
    const { ready = null, cause = null } = this.#workers.get(generation) ?? {};
    const wasReady = ready !== null;
    this.#options.log.info({ generation, how: obituary.how, lastLines: obituary.lastLines, reaped: obituary.reaped.length }, 'process ended');
    this.#forget(generation);
    this.#options.onGone(generation, identity, obituary, cause);
    const how = wasReady ? obituary.how : endOf(obituary.how, obituary.lastLines);
    const typed = wasReady ? null : typedEnd(obituary.lastLines);
    if (typed !== null) this.#rememberEnd(how, typed);
    this.#options.feed({ type: 'process_exited', generation, how, engineHung: obituary.exitCode === workerExitCodes.engineHung });
  }

  #rememberEnd(how: string, error: LeaseholdError): void {
    this.#typedEnds.set(how, error);
    if (this.#typedEnds.size > typedEndsMax) for (const oldest of this.#typedEnds.keys()) { this.#typedEnds.delete(oldest); break; }
  }

  #forget(generation: string): void {
    const worker = this.#workers.get(generation);
    if (worker !== undefined) removeDataSocket(worker.dataSocket);
    this.#workers.delete(generation);
    this.#identities.delete(generation);
    this.#options.threads.giveBack(generation);
    this.#options.records.remove(generation);
  }
}
