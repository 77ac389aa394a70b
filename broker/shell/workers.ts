/** The broker's worker processes: how each is started, what it may see, and how callers find it. */
import { LeaseholdError, workerExitCodes, type ControlMessage, type Limits } from '../../protocol/index.js';
import { createTicket, spawnKey } from '../../protocol/node/index.js';
import type { CardDescription } from '../devices/types.js';
import type { Obituary, ProcessIdentity, Supervisor, SupervisorHandlers } from '../supervisor/types.js';
import type { TerminateCause } from '../core/effects.js';
import type { EngineCommand } from './engines.js';
import { endOf, typedEnd } from './last-words.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { Sessions } from './session.js';
import { dataSocketPath, removeDataSocket } from './state-folder.js';
import { monotonicUs } from '../../protocol/node/clock.js';

type Ready = Extract<ControlMessage, { type: 'ready' }>;

interface Worker {
  readonly generation: string;
  readonly engine: string;
  readonly devices: readonly string[];
  readonly key: string;
  readonly dataSocket: string;
  readonly threads: number;
  attached: boolean;
  ready: Ready | null;
}

export interface WorkersOptions {
  readonly engines: ReadonlyMap<string, EngineCommand>;
  readonly cards: ReadonlyMap<string, CardDescription>;
  readonly secret: string;
  readonly stateFolder: string;
  readonly socketPath: string;
  readonly limits: Limits;
  readonly threads: ThreadShares;
  readonly sessions: Sessions;
  readonly log: Log;
  readonly feed: (event: UntimedEvent) => void;
  /** Told after the core: simulated cards drop what the process held, subscribers hear how it ended. */
  readonly onGone: (generation: string, identity: ProcessIdentity | null, obituary: Obituary) => void;
}

/** Hands each worker its share of CPU threads; the sum stays at most max(1, cores - 1) while more than one thread is left (D36). */
export class ThreadShares {
  readonly #total: number;
  readonly #share: number;
  readonly #taken = new Map<string, number>();

  constructor(cores: number, expectedWorkers: number) {
    this.#total = Math.max(1, cores - 1);
    this.#share = Math.max(1, Math.floor(this.#total / Math.max(1, expectedWorkers)));
  }

  take(generation: string): number {
    const used = [...this.#taken.values()].reduce((sum, threads) => sum + threads, 0);
    const threads = Math.max(1, Math.min(this.#share, this.#total - used));
    this.#taken.set(generation, threads);
    return threads;
  }

  giveBack(generation: string): void {
    this.#taken.delete(generation);
  }
}

const typedEndsMax = 64;

export class Workers {
  readonly #options: WorkersOptions;
  readonly #workers = new Map<string, Worker>();
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
    onSpawnFailed: (generation, reason) => { this.#spawnFailed(generation, 'spawn_failed', reason); },
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
    const worker: Worker = {
      generation, engine, devices, attached: false, ready: null,
      key: spawnKey(this.#options.secret, generation),
      dataSocket: dataSocketPath(this.#options.stateFolder, generation),
      threads: this.#options.threads.take(generation),
    };
    this.#workers.set(generation, worker);
    try {
      this.#supervisor.spawn({ generation, spawnId: generation, command: command.command, args: command.args, env: this.#environment(worker, command) });
    } catch (error) {
      // Asked for while the broker is being closed.
      if (LeaseholdError.from(error).code !== 'closed') throw error;
      this.#spawnFailed(generation, 'shutting_down', 'the broker is shutting down');
    }
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
    const session = this.#options.sessions.get(generation);
    session?.channel.request({ type: 'shutdown', graceMs, reason: cause }, { timeoutMs: graceMs }).catch((error: unknown) => {
      this.#options.log.debug({ generation, reason: LeaseholdError.from(error).message }, 'shutdown was not answered');
    });
    this.#supervisor?.terminate(generation, graceMs, cause);
  }

  /** The worker that a hello names, when it is one that we started, that lives and has not attached yet. */
  expected(spawnId: string): { readonly generation: string; readonly key: string; readonly threads: number; readonly devices: readonly string[] } | null {
    const worker = this.#workers.get(spawnId);
    return worker === undefined || worker.attached ? null : worker;
  }

  attach(generation: string): void {
    const worker = this.#workers.get(generation);
    if (worker !== undefined) worker.attached = true;
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

  identityOf(generation: string): ProcessIdentity | null {
    return this.#identities.get(generation) ?? null;
  }

  generations(): IterableIterator<string> {
    return this.#workers.keys();
  }

  describe(): readonly Readonly<Record<string, unknown>>[] {
    return [...this.#workers.values()].map((worker) => ({
      generation: worker.generation, engine: worker.engine, pid: this.#identities.get(worker.generation)?.pid ?? null,
      threads: worker.threads, versions: worker.ready?.versions ?? null,
    }));
  }

  #environment(worker: Worker, command: EngineCommand): Record<string, string> {
    const cards = worker.devices.map((device) => this.#options.cards.get(device)).filter((card) => card !== undefined);
    const visible = cards.map(({ device, name, totalBytes, kind }) => ({ device, name, totalBytes: totalBytes > 0 ? totalBytes : null, simulated: kind === 'simulated' }));
    return {
      ...command.env,
      ...Object.assign({}, ...cards.map((card) => card.visibility)) as Record<string, string>,
      LEASEHOLD_SOCKET: this.#options.socketPath,
      LEASEHOLD_SPAWN: worker.generation,
      LEASEHOLD_KEY: worker.key,
      LEASEHOLD_DATA_SOCKET: worker.dataSocket,
      LEASEHOLD_DEVICES: JSON.stringify(visible),
      LEASEHOLD_LIMITS: JSON.stringify(this.#options.limits),
    };
  }

  #spawnFailed(generation: string, code: string, reason: string): void {
    this.#forget(generation);
    this.#options.feed({ type: 'spawn_failed', generation, code, reason });
  }

  #exited(generation: string, obituary: Obituary): void {
    const identity = this.#identities.get(generation) ?? null;
    const wasReady = (this.#workers.get(generation)?.ready ?? null) !== null;
    this.#options.log.info({ generation, how: obituary.how, lastLines: obituary.lastLines, reaped: obituary.reaped.length }, 'process ended');
    this.#forget(generation);
    this.#options.onGone(generation, identity, obituary);
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
  }
}
