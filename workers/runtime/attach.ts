/** The way in: hello with the spawn key, welcome, the engine’s start, ready; and the way back, when the broker was lost. */
import { dirname, isAbsolute } from 'node:path';
import type { ControlMessage, LeaseholdError } from '../../protocol/index.js';
import { openLine, type ByteStream, type Line, type Welcome } from '../../protocol/node/index.js';
import { learnedFolder } from '../../src/models/learned/learned-store.js';
import { ControlCardAllocator } from './card-allocator.js';
import { DataServer } from './data-server.js';
import type { Engine } from './engine.js';
import type { WorkerEnvironment } from './environment.js';
import { Heartbeats } from './heartbeats.js';
import { LearnedSizes } from './learned-sizes.js';
import { LedgerWatch } from './ledger-watch.js';
import { WorkerLog } from './log.js';
import { Worker } from './worker.js';

export interface AttachOptions {
  readonly engine: Engine;
  readonly environment: WorkerEnvironment;
  /** The connection to the broker, fresh. */
  readonly stream: ByteStream;
  /** Another one, when that is lost. Left out: the first loss is the last. */
  readonly dial?: () => Promise<ByteStream>;
  readonly onShutdown: (graceMs: number, reason: string) => void;
  /** The broker is gone, and has not come back within the grace. Called once. */
  readonly onLost: (error: LeaseholdError) => void;
  readonly fatal: (error: unknown) => void;
}

export interface AttachedWorker {
  readonly worker: Worker;
  readonly data: DataServer;
  readonly log: WorkerLog;
  /**
   * Ends calls, unloads, closes the engine and both planes, in this order, everything sent flushed. `unasked`: why, where
   * it is not the broker that wants it, which is told. A broker that is lost meanwhile is not sought.
   */
  close(unasked?: string): Promise<void>;
}

/** Learned sizes lie in the broker's private folder, where this worker's socket is; a pipe of Windows has no folder. */
function folderOf(dataSocketPath: string): string | null {
  return process.platform !== 'win32' && isAbsolute(dataSocketPath) ? learnedFolder(dirname(dataSocketPath)) : null;
}

/** Resolves when the broker has accepted `ready`. Commands are served from `welcome` on. */
export async function attachWorker(options: AttachOptions): Promise<AttachedWorker> {
  const { engine, environment, dial = null, onShutdown, fatal } = options;
  const { limits, cards, spawnId, key } = environment;
  const line = await openLine(options.stream, { limits, dial, hello: { role: 'worker', spawn: spawnId, proof: key, name: spawnId } });
  const { generation } = line.welcome;
  const log = new WorkerLog();
  log.attach(line);
  const learned = new LearnedSizes({ folder: folderOf(environment.dataSocketPath), engine, card: cards.length === 1 ? cards[0] ?? null : null, log: (...line) => { log.line(...line); } });
  const worker = new Worker({ engine, cards, channel: line, generation, limits, log, learned, onShutdown, fatal });
  const session = new WorkerSession(line, worker, engine, environment, log, options.onLost);
  const data = new DataServer({
    generation, key, limits,
    call: (request, link, onFinished) => worker.call(request, link, onFinished),
    log: (message, fields) => { log.line('warn', message, fields); },
  });
  await startEngine(engine, environment, line, session, log);
  await data.listen(environment.dataSocketPath);
  await session.ready();
  return {
    worker, data, log,
    close: async (unasked) => {
      session.leave(unasked ?? null);
      await worker.close();
      await learned.saved();
      await data.close();
      await engine.close();
      await session.end();
    },
  };
}

async function startEngine(engine: Engine, environment: WorkerEnvironment, line: Line, session: WorkerSession, log: WorkerLog): Promise<void> {
  await engine.start({
    cards: environment.cards,
    ...(environment.memory === null ? {} : { memory: environment.memory }),
    threads: Math.max(1, line.welcome.threads),
    startTimeoutMs: environment.limits.spawnTimeoutMs,
    allocator: new ControlCardAllocator(line, environment.limits.commandAnswerMs),
    log: (level, message, fields) => { log.line(level, message, fields); },
    watch: new LedgerWatch(line, line.welcome.generation, environment.limits),
    reportFloor: (device, bytes) => { session.floor(device, bytes); },
  });
}

/** The worker's standing with its broker: signs of life, `ready`, and both anew whenever the broker is. */
class WorkerSession {
  #leaving = false;
  readonly #line: Line;
  readonly #worker: Worker;
  readonly #engine: Engine;
  readonly #environment: WorkerEnvironment;
  readonly #heartbeats: Heartbeats;
  readonly #floors = new Map<string, number>();
  readonly #over: Promise<void>;
  /** The broker has been told, once, that the engine is up. */
  #isReady = false;

  constructor(line: Line, worker: Worker, engine: Engine, environment: WorkerEnvironment, log: WorkerLog, onLost: (error: LeaseholdError) => void) {
    this.#line = line;
    this.#worker = worker;
    this.#engine = engine;
    this.#environment = environment;
    this.#heartbeats = new Heartbeats(line, () => ({ reserved: worker.reserved, inFlight: worker.inFlight }));
    this.#heartbeats.start(line.welcome.heartbeatIntervalMs);
    this.#over = new Promise((resolve) => {
      line.staff({
        onMessage: (message) => { worker.take(message); },
        onStray: (message) => { worker.stray(message); },
        onDetached: () => {
          this.#heartbeats.stop();
          worker.detached();
          // Another broker would take it for a host.
          if (this.#leaving) line.end();
        },
        onReattached: (welcome) => {
          log.line('info', 'back with a broker', { bootId: welcome.bootId });
          return this.#reattached(welcome);
        },
        onLost: (error) => {
          this.#heartbeats.stop();
          resolve();
          if (!this.#leaving) onLost(error);
        },
      });
    });
  }

  /** What the process costs is kept, so that another broker learns it too. */
  floor(device: string, bytes: number): void {
    this.#floors.set(device, bytes);
    this.#line.send({ type: 'floor', device, bytes });
  }

  /** Resolves when a broker has accepted it: the one that started us, or, should that be gone by now, the next. */
  async ready(): Promise<void> {
    for (const { device, bytes } of this.#engine.floors) this.#floors.set(device, Math.max(bytes, this.#floors.get(device) ?? 0));
    for (;;) {
      await this.#line.reattached();
      try {
        await this.#sayReady();
        break;
      } catch (error) {
        if (this.#line.open) throw error;
      }
    }
    this.#isReady = true;
  }

  /** It ends: the broker of now may know, and no other is sought. */
  leave(unasked: string | null): void {
    this.#leaving = true;
    if (!this.#line.open) this.#line.end();
    else if (unasked !== null) this.#line.send({ type: 'ending', reason: unasked });
  }

  async end(): Promise<void> {
    this.#heartbeats.stop();
    this.#line.end();
    await this.#over;
  }

  /** An engine that is still starting says `ready` when it is up, to whichever broker is there then. */
  async #reattached(welcome: Welcome): Promise<void> {
    this.#heartbeats.start(welcome.heartbeatIntervalMs);
    if (!this.#isReady) return;
    const ready = this.#sayReady();
    const told = this.#worker.reattached();
    await ready;
    await told;
  }

  #sayReady(): Promise<ControlMessage> {
    const { cards, dataSocketPath, limits } = this.#environment;
    const { name, versions, capabilities: { park, partial, embed, profilesFreeMemory } } = this.#engine;
    return this.#line.request({
      type: 'ready', engine: name, versions, capabilities: { park, partial, embed, profilesFreeMemory }, dataSocket: dataSocketPath,
      devices: cards.map(({ device, name: cardName, totalBytes }) => ({ device, name: cardName, totalBytes })),
      floors: [...this.#floors].map(([device, bytes]) => ({ device, bytes })),
    }, { timeoutMs: limits.spawnTimeoutMs });
  }
}
