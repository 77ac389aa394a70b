/** Puts a broker together: state folder and locks, cards and rungs, core and loop, processes and sessions. */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { LeaseholdError, classPolicies, type ClassPolicy, type Limits, type RequestClass } from '../../protocol/index.js';
import { errorMessage, listen, memoryPair, removeStaleSocket, type ByteStream, type Listener } from '../../protocol/node/index.js';
import { callsInside, createCore, floorsOf, isHeard, mayHold, shareReading, type Core } from '../core/index.js';
import { SimulatedCard, type CardDescription } from '../devices/index.js';
import { createSupervisor, isAlive, processTable, startTimeOf, type Supervisor } from '../supervisor/index.js';
import { AdmissionDesk, shuttingDown } from './admission-desk.js';
import { BlockedLoops } from './blocked-loops.js';
import { drainCalls } from './drain.js';
import { CardDesk } from './card-desk.js';
import { checkBrokerOptions, checkCards } from './check-options.js';
import { effectiveLimits } from './effective-limits.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import type { EngineCommand } from './engines.js';
import { lockFile, type FileLock } from './file-lock.js';
import { Holders } from './holders.js';
import { Keeper } from './keeper.js';
import { lastWords } from './last-words.js';
import { FrugalLog } from './frugal-log.js';
import { silentLog, steadyLog, type Log } from './log.js';
import { Loop } from './loop.js';
import { Outbound } from './outbound.js';
import { PeerLog } from './peer-log.js';
import { ProcessRecords } from './process-records.js';
import { Queries } from './queries.js';
import { recallProcesses, rememberCards, type Kept, type Lives } from './recall.js';
import { Reception } from './reception.js';
import { Resumes } from './resume.js';
import { Sampler, cardAdded, type CardReader, type KeptFree, type Owners } from './sampler.js';
import { Sessions, type Session } from './session.js';
import { noNames, type ModelNames } from './told.js';
import { cardLocksPath, defaultStatePath, makePrivateFolder, openStateFolder, removeStaleDataSockets, type StateFolder } from './state-folder.js';
import { ThreadShares } from './thread-shares.js';
import { Workers, type MemoryDescription } from './workers.js';

/** A card this broker owns, or the machine's memory (of kind `host`): what it is, who reads it, what is kept free there. */
export interface OwnedCard extends KeptFree {
  readonly card: CardDescription;
  readonly reader: CardReader;
}

export interface BrokerOptions {
  /** Finds the cards to own, and the machine's memory where that is to be leased too; given the state folder's id, which simulated cards carry. */
  readonly discover: (stateId: string) => Promise<readonly OwnedCard[]>;
  readonly engines: readonly EngineCommand[];
  /** Default: $LEASEHOLD_STATE, else the user's runtime directory. */
  readonly stateFolder?: string;
  readonly limits?: Partial<Limits>;
  readonly classPolicies?: Readonly<Record<RequestClass, ClassPolicy>>;
  /** Default false: when no probe answers, nothing that relies on measurement is granted. */
  readonly allowLedgerOnly?: boolean;
  /** Default false: while the machine's memory cannot be read, nothing that takes of it is granted. */
  readonly allowHostUnknown?: boolean;
  /** Workers that CPU threads are shared among. Default 1. */
  readonly expectedWorkers?: number;
  /** Facts to show with the ledger, such as the catalogue of models. */
  readonly facts?: () => Readonly<Record<string, unknown>>;
  /** What people call models: for the log, and for programs that hold memory themselves. */
  readonly names?: ModelNames;
  readonly log?: Log;
}

export interface Broker {
  readonly bootId: string;
  readonly socketPath: string;
  readonly stateFolder: string;
  readonly secret: string;
  readonly devices: readonly CardDescription[];
  readonly limits: Limits;
  /** The client end of an in-memory connection: the embedding process attaches with the same frames as any other (D10). */
  attachInMemory(): ByteStream;
  /**
   * Lets calls end for at most `shutdownDrainMs`, ends every worker and its children, then the sessions, then the socket and the locks. Idempotent.
   * `hurry`, when it aborts: calls are cut, and what is left of the workers is killed.
   */
  close(hurry?: AbortSignal): Promise<void>;
  /** Resolves when the broker has ended: null after close(), else why it could not go on. */
  readonly ended: Promise<LeaseholdError | null>;
}

/** Starts the one broker of this machine's cards. Rejects with `broker_running` when another owns the folder or a card. */
export async function createBroker(options: BrokerOptions): Promise<Broker> {
  checkBrokerOptions(options);
  const limits = effectiveLimits(options.limits ?? {});
  const locks: FileLock[] = [];
  let owned: readonly OwnedCard[] = [];
  try {
    const state = openStateFolder(options.stateFolder ?? defaultStatePath(), ({ lockPath, socketPath }) => { locks.push(lockFile(lockPath, { socket: socketPath })); });
    owned = await options.discover(state.id);
    checkCards(owned.map(({ card }) => card));
    for (const { card } of owned) if (card.kind === 'gpu') locks.push(lockCard(card.device, state));
    return await new RunningBroker(options, limits, state, owned, locks).start();
  } catch (error) {
    // Whatever reads the cards may have helper processes.
    await closeReaders(owned);
    for (const lock of locks) lock.release();
    throw error;
  }
}

/** Several cards may share one reader. */
async function closeReaders(owned: readonly OwnedCard[]): Promise<void> {
  await Promise.all([...new Set(owned.map(({ reader }) => reader))].map((reader) => reader.close()));
}

function lockCard(device: string, state: StateFolder): FileLock {
  const folder = cardLocksPath();
  makePrivateFolder(folder);
  return lockFile(join(folder, `${device.replaceAll('/', '_')}.lock`), { socket: state.socketPath, device });
}

const table = processTable();
const lives: Lives = (identity) => isAlive(table, identity);

class RunningBroker implements Broker {
  readonly bootId = randomBytes(6).toString('hex');
  readonly socketPath: string;
  readonly stateFolder: string;
  readonly secret: string;
  readonly devices: readonly CardDescription[];
  readonly limits: Limits;
  readonly ended: Promise<LeaseholdError | null>;

  readonly #options: BrokerOptions;
  readonly #owned: readonly OwnedCard[];
  readonly #memory: OwnedCard | null;
  readonly #state: StateFolder;
  /** Of the state folder, then of the cards. */
  readonly #locks: readonly FileLock[];
  readonly #log: FrugalLog;
  /** Lines of peers are counted apart: they keep none of ours out. */
  readonly #peerLines: FrugalLog;
  readonly #peerLog: PeerLog;
  readonly #blockedLoops: BlockedLoops;
  readonly #core: Core;
  readonly #loop: Loop;
  readonly #sampler: Sampler;
  readonly #sessions = new Sessions();
  readonly #workers: Workers;
  readonly #supervisor: Supervisor;
  readonly #cardDesk: CardDesk;
  readonly #simulated: ReadonlyMap<string, SimulatedCard>;
  readonly #records: ProcessRecords;
  readonly #holders: Holders;
  readonly #resumes = new Resumes(this.bootId);
  readonly #desk: AdmissionDesk;
  readonly #reception: Reception;
  readonly #startedAtUs = monotonicUs();
  #listener: Listener | null = null;
  #keeper: Keeper | null = null;
  /** Aborted: nobody is waited for any more. */
  readonly #hurry = new AbortController();
  #closing: Promise<void> | null = null;
  #end: (why: LeaseholdError | null) => void = () => undefined;

  constructor(options: BrokerOptions, limits: Limits, state: StateFolder, owned: readonly OwnedCard[], locks: readonly FileLock[]) {
    this.#options = options;
    this.#owned = owned;
    this.#state = state;
    this.#locks = locks;
    this.limits = limits;
    this.socketPath = state.socketPath;
    this.stateFolder = state.path;
    this.secret = state.secret;
    this.devices = owned.flatMap(({ card }) => (card.kind === 'host' ? [] : [card]));
    this.#memory = owned.find(({ card }) => card.kind === 'host') ?? null;
    const log = steadyLog(options.log ?? silentLog);
    this.#log = new FrugalLog(log, limits.logLinesPerKindMax);
    this.#peerLines = new FrugalLog(log, limits.logLinesPerKindMax);
    this.#peerLog = new PeerLog(this.#peerLines, limits.peerLogBytesPerSecondMax);
    this.#blockedLoops = new BlockedLoops({ limits, log: this.#log, publish: (name, data) => { this.#publish(name, data); } });
    this.ended = new Promise((resolve) => { this.#end = resolve; });
    this.#core = this.#createCore();
    this.#loop = this.#createLoop();
    this.#simulated = new Map(owned.flatMap(({ card, reader }) => (reader instanceof SimulatedCard ? [[card.device, reader] as const] : [])));
    this.#cardDesk = new CardDesk(this.#simulated, this.#memory?.card.device ?? null);
    this.#records = new ProcessRecords(this.stateFolder, this.#log);
    this.#holders = this.#createHolders();
    this.#workers = this.#createWorkers();
    this.#supervisor = createSupervisor(this.#workers.handlers, { limits, tokenPrefix: this.bootId, speaks: (generation) => this.#sessions.get(generation) !== undefined && isHeard(this.#core, generation), onNote: (generation, note) => { this.#log.warn({ generation }, note); } });
    this.#workers.use(this.#supervisor);
    this.#sampler = new Sampler(limits.sampleIntervalMs, this.#owners(), (event) => { this.#loop.feed(event); });
    this.#reception = this.#createReception();
    this.#desk = new AdmissionDesk(limits, this.#reception);
  }

  /** A start that fails half way leaves nothing that listens or ticks. */
  async start(): Promise<this> {
    try {
      return await this.#open();
    } catch (error) {
      this.#loop.stop();
      this.#sampler.stop();
      this.#keeper?.stop();
      await this.#listener?.close();
      throw error;
    }
  }

  async #open(): Promise<this> {
    // Under the lock: whatever is left at the path belonged to a broker that is gone.
    await removeStaleSocket(this.socketPath);
    const journals = rememberCards(this.stateFolder, this.#simulated.values(), lives, this.#log);
    this.#addCards();
    const { records, workers, holders, log } = { records: this.#records, workers: this.#workers, holders: this.#holders, log: this.#log };
    const living = recallProcesses({ records, workers, holders, lives, log, feed: (event) => { this.#loop.feed(event); } });
    removeStaleDataSockets(this.stateFolder, living);
    this.#listener = await listen({ path: this.socketPath, onConnection: (stream) => { this.#desk.receive(stream); } });
    this.#keeper = this.#createKeeper(this.#listener, [this.#records, ...journals]);
    this.#loop.start();
    this.#log.info({ bootId: this.bootId, socket: this.socketPath, cards: this.devices.map(({ device }) => device) }, 'broker started');
    return this;
  }

  #addCards(): void {
    for (const owned of this.#owned) {
      this.#loop.feed(cardAdded(owned.card, owned));
      if (owned.card.kind !== 'cpu') this.#sampler.watch(owned.card, owned.reader, owned);
    }
  }

  attachInMemory(): ByteStream {
    const [ours, theirs] = memoryPair('embedded');
    this.#desk.receive(ours);
    return theirs;
  }

  close(hurry?: AbortSignal): Promise<void> {
    if (hurry?.aborted === true) this.#hurry.abort();
    else hurry?.addEventListener('abort', () => { this.#hurry.abort(); }, { once: true });
    this.#closing ??= this.#shutDown(null);
    return this.#closing;
  }

  async #shutDown(why: LeaseholdError | null): Promise<void> {
    this.#desk.close();
    this.#keeper?.stop();
    if (why === null && this.limits.shutdownDrainMs > 0) {
      const { shutdownDrainMs: drainMs } = this.limits;
      await drainCalls({ sessions: this.#sessions, workers: this.#workers.generations(), callsInside: () => callsInside(this.#core), drainMs, hurry: this.#hurry.signal, log: this.#log });
    }
    const graceMs = (): number => (this.#hurry.signal.aborted ? 0 : this.limits.terminateGraceMs);
    // Workers first, while they can still say that they give their cards back.
    for (const generation of [...this.#workers.generations()]) {
      this.#workers.terminate(generation, 'shutdown', graceMs());
    }
    this.#hurry.signal.addEventListener('abort', () => { void this.#supervisor.close(0); }, { once: true });
    await this.#supervisor.close(graceMs());
    this.#loop.stop();
    this.#sampler.stop();
    this.#holders.close();
    this.#peerLog.flush();
    this.#peerLines.flush();
    this.#log.flush();
    const reason = new LeaseholdError('broker_lost', { reason: why === null ? 'it was closed' : why.message });
    for (const session of [...this.#sessions]) session.channel.destroy(reason);
    await this.#listener?.close();
    await closeReaders(this.#owned);
    for (const lock of this.#locks) lock.release();
    this.#log.info({ bootId: this.bootId, reason: why?.message ?? 'closed' }, 'broker ended');
    this.#end(why);
  }

  #createCore(): Core {
    return createCore({
      bootId: this.bootId,
      startedAtUs: monotonicUs(),
      limits: this.limits,
      classPolicies: this.#options.classPolicies ?? classPolicies,
      engines: this.#options.engines.map(({ name, modelsPerWorker, floorBytes = 0 }) => ({ name, modelsPerWorker, floorBytes })),
      allowLedgerOnly: this.#options.allowLedgerOnly ?? false,
      allowHostUnknown: this.#options.allowHostUnknown ?? false,
    });
  }

  #createLoop(): Loop {
    return new Loop({
      core: this.#core,
      tickIntervalMs: this.limits.tickIntervalMs,
      onTick: (lateMs) => {
        this.#blockedLoops.note({ role: 'broker', generation: null }, lateMs);
        this.#blockedLoops.look();
      },
      carryOut: (effect) => { this.#outbound.carryOut(effect); },
      onBroken: (error) => {
        this.#log.error({ code: error.code, reason: error.message, cause: (error.cause as Error | undefined)?.stack ?? '' }, 'the core broke');
        this.#closing ??= this.#shutDown(error);
      },
    });
  }

  readonly #outbound = new Outbound({
    sessions: this.#sessions,
    names: { name: (key) => (this.#options.names ?? noNames).name(key), inText: (text) => (this.#options.names ?? noNames).inText(text) },
    log: { debug: (f, m) => { this.#log.debug(f, m); }, info: (f, m) => { this.#log.info(f, m); }, warn: (f, m) => { this.#log.warn(f, m); }, error: (f, m) => { this.#log.error(f, m); } },
    feed: (event) => { this.#loop.feed(event); },
    granting: (generation, device) => { this.#holders.granting(generation, device); },
    spawn: (effect) => {
      // It will look for our socket, and listen in our folder.
      void this.#keeper?.look();
      this.#workers.spawn(effect.generation, effect.engine, effect.devices);
    },
    terminate: (effect) => { this.#workers.terminate(effect.generation, effect.cause, effect.graceMs); },
    typedEnd: (reason) => this.#workers.typedEnd(reason),
    closing: () => (this.#desk.closed ? shuttingDown() : null),
    sample: (device, notBeforeUs) => { this.#sampler.want(device, notBeforeUs); },
    placed: ({ generation, request, worker, explain }) => {
      const session = this.#sessions.get(generation);
      const admission = this.#workers.admission(worker, generation);
      const gone = new LeaseholdError('worker_exited', { generation: worker, how: 'before it could be reached' });
      session?.channel.send(admission === null
        ? errorMessage('control', request, gone)
        : { type: 'placed', id: request, generation: worker, explain, ...admission });
    },
  });

  #createKeeper(listener: Listener, records: readonly Kept[]): Keeper {
    const [lock, ...cardLocks] = this.#locks;
    if (lock === undefined) throw new LeaseholdError('internal', { reason: 'a broker without the lock of its state' });
    return new Keeper({
      state: this.#state, lock, cardLocks, listener, records, everyMs: this.limits.stateCheckMs, log: this.#log,
      publish: (name, data) => { this.#publish(name, data); },
      onOutlived: (error) => { this.#endFor(error); },
    });
  }

  #publish(name: string, data: Readonly<Record<string, unknown>>): void {
    for (const session of this.#sessions) session.subscription?.publish(name, data);
  }

  #endFor(error: LeaseholdError): void {
    this.#log.error({ code: error.code, reason: error.message }, 'the broker ends by itself');
    this.#closing ??= this.#shutDown(error);
  }

  #createWorkers(): Workers {
    return new Workers({
      engines: new Map(this.#options.engines.map((engine) => [engine.name, engine])),
      cards: new Map(this.devices.map((card) => [card.device, card])),
      memory: memoryDescription(this.#memory),
      secret: this.secret,
      stateFolder: this.stateFolder,
      socketPath: this.socketPath,
      limits: this.limits,
      threads: new ThreadShares(availableParallelism(), this.#options.expectedWorkers ?? 1),
      sessions: this.#sessions,
      bootId: this.bootId,
      records: this.#records,
      floorsOf: (generation) => floorsOf(this.#core, generation),
      log: this.#log,
      feed: (event) => { this.#loop.feed(event); },
      onGone: (generation, identity, obituary, cause) => {
        this.#resumes.died(generation);
        this.#holders.forget(generation);
        // What it has on simulated cards is its pid's: another session of that may live on.
        if (identity !== null && this.#workers.watchedBy(identity.pid).length === 0) this.#cardDesk.gone(identity.pid);
        this.#reception.gone(generation);
        const { heartbeatIntervalMs, heartbeatMissesMax } = this.limits;
        const silentMs = cause === 'silent' ? heartbeatIntervalMs * heartbeatMissesMax : null;
        const facts = { generation, how: obituary.how, lastLines: lastWords(obituary.lastLines), brokerEnds: this.#desk.closed, silentMs };
        this.#publish('obituary', facts);
      },
    });
  }

  #createHolders(): Holders {
    return new Holders({
      bootId: this.bootId, records: this.#records, sessions: this.#sessions, log: this.#log,
      holdsAnything: (generation) => mayHold(this.#core, generation),
      floorsOf: (generation) => floorsOf(this.#core, generation),
    });
  }

  #createReception(): Reception {
    return new Reception({
      bootId: this.bootId,
      secret: this.secret,
      limits: this.limits,
      sessions: this.#sessions,
      workers: this.#workers,
      cards: this.#cardDesk,
      holders: this.#holders,
      resumes: this.#resumes,
      closing: () => this.#desk.closed,
      queries: new Queries(this.#core, () => this.#facts(), this.limits.frameBytesMax),
      devices: this.devices.map(({ device, name, totalBytes }) => ({ device, name, totalBytes: totalBytes > 0 ? totalBytes : null })),
      log: this.#log,
      peerLog: this.#peerLog,
      blockedLoops: this.#blockedLoops,
      feed: (event) => { this.#loop.feed(event); },
      startTimeOf,
      isInLedger: (generation) => this.#core.processes.has(generation),
    });
  }

  #facts(): Readonly<Record<string, unknown>> {
    return {
      broker: { pid: process.pid, socket: this.socketPath, startedMsAgo: Math.floor((monotonicUs() - this.#startedAtUs) / 1_000), loopBlocked: this.#blockedLoops.shown(null) },
      workers: this.#workers.describe().map((worker) => ({ ...worker, loopBlocked: this.#blockedLoops.shown(worker.generation) })),
      holders: [...this.#core.processes.values()].flatMap(({ generation, role }) => this.#holder(generation, role)),
      simulatedCards: this.#cardDesk.facts(),
      ...this.#options.facts?.(),
    };
  }

  /** One that has lost its connection is still the same process. */
  #holder(generation: string, role: string): readonly { readonly generation: string; readonly pid: number }[] {
    const identity = role === 'holder' ? this.#sessions.get(generation)?.identity ?? this.#workers.identityOf(generation) : null;
    return identity === null ? [] : [{ generation, pid: identity.pid }];
  }

  /** Driver figures come by pid; ours are the workers' (with their children) and the attached holders'. */
  #owners(): Owners {
    const holders = (): Session[] => [...this.#sessions].filter(({ role }) => role === 'holder');
    return {
      of: ({ pid, usedBytes }, device) => {
        const worker = this.#workers.ownerOf(pid);
        if (worker !== null) return [{ generation: worker, usedBytes }];
        const sessions = holders().filter(({ identity }) => identity.pid === pid).map(({ generation }) => generation);
        // One whose connection is lost, or that an earlier broker served, holds what it holds.
        return shareReading(this.#core, device, [...new Set([...sessions, ...this.#workers.watchedBy(pid)])], usedBytes);
      },
      pids: () => [...new Set([...this.#workers.pids(), ...holders().map(({ identity }) => identity.pid)])],
    };
  }
}

function memoryDescription(memory: OwnedCard | null): MemoryDescription | null {
  if (memory === null) return null;
  const { card: { device, totalBytes }, reader } = memory;
  return { device, totalBytes, simulated: reader instanceof SimulatedCard };
}
