/** The way in: hello with the spawn key, welcome, the engine’s start, ready. */
import { LeaseholdError, protocolVersion, type ControlMessage } from '../../protocol/index.js';
import { openChannel, type ByteStream, type Channel } from '../../protocol/node/index.js';
import { ControlCardAllocator } from './card-allocator.js';
import type { Control } from './control.js';
import { DataServer } from './data-server.js';
import type { Engine } from './engine.js';
import type { WorkerEnvironment } from './environment.js';
import { Heartbeats } from './heartbeats.js';
import { LedgerWatch } from './ledger-watch.js';
import { WorkerLog } from './log.js';
import { Worker } from './worker.js';

export interface AttachOptions {
  readonly engine: Engine;
  readonly environment: WorkerEnvironment;
  /** The connection to the broker, fresh. */
  readonly stream: ByteStream;
  readonly onShutdown: (graceMs: number, reason: string) => void;
  /** The broker is gone. Called once. */
  readonly onLost: (error: LeaseholdError) => void;
  readonly fatal: (error: unknown) => void;
}

export interface AttachedWorker {
  readonly worker: Worker;
  readonly data: DataServer;
  readonly log: WorkerLog;
  /** Ends calls, unloads, closes the engine and both planes, in this order, everything sent flushed. */
  close(): Promise<void>;
}

/** Resolves when the broker has accepted `ready`. Commands are served from `welcome` on. */
export async function attachWorker(options: AttachOptions): Promise<AttachedWorker> {
  const { engine, environment } = options;
  const desk = new MessageDesk();
  let closing = false;
  const lost = deferred();
  const channel = openChannel(options.stream, {
    plane: 'control', side: 'worker', limits: environment.limits,
    handlers: {
      onMessage: (message) => { desk.take(message); },
      onStray: (message) => { desk.stray(message); },
      onClose: (error) => {
        heartbeats.stop();
        lost.resolve();
        if (!closing) options.onLost(error);
      },
    },
  });
  const heartbeats = new Heartbeats(channel, () => ({ reserved: desk.worker?.reserved ?? [], inFlight: desk.worker?.inFlight ?? 0 }));
  const welcome = await hello(channel, environment);
  const log = new WorkerLog();
  log.attach(channel);
  const { limits, cards } = environment;
  const { onShutdown, fatal } = options;
  const { generation } = welcome;
  const worker = new Worker({ engine, cards, channel, generation, limits, log, onShutdown, fatal });
  desk.staff(worker);
  heartbeats.start(welcome.heartbeatIntervalMs);
  await startEngine(options, welcome, channel, log);
  const data = new DataServer({
    generation, key: environment.key, limits,
    call: (request, link, onFinished) => worker.call(request, link, onFinished),
    log: (message, fields) => { log.line('warn', message, fields); },
  });
  await data.listen(environment.dataSocketPath);
  await ready(channel, engine, environment);
  return {
    worker, data, log,
    close: async () => {
      closing = true;
      await worker.close();
      await data.close();
      await engine.close();
      heartbeats.stop();
      channel.end();
      await lost.promise;
    },
  };
}

async function hello(channel: Channel<'control'>, { limits, spawnId, key }: WorkerEnvironment): Promise<Control<'welcome'>> {
  const answer = await channel.request(
    { type: 'hello', protocol: protocolVersion, role: 'worker', spawn: spawnId, proof: key, pid: process.pid, name: spawnId, resume: null },
    { timeoutMs: limits.helloTimeoutMs },
  );
  if (answer.type !== 'welcome') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers hello' });
  if (answer.protocol !== protocolVersion) throw new LeaseholdError('protocol_version', { theirs: answer.protocol, ours: protocolVersion });
  return answer;
}

async function startEngine({ engine, environment }: AttachOptions, welcome: Control<'welcome'>, channel: Channel<'control'>, log: WorkerLog): Promise<void> {
  await engine.start({
    cards: environment.cards,
    threads: Math.max(1, welcome.threads),
    startTimeoutMs: environment.limits.spawnTimeoutMs,
    allocator: new ControlCardAllocator(channel, environment.limits.commandAnswerMs),
    log: (level, message, fields) => { log.line(level, message, fields); },
    watch: new LedgerWatch(channel, welcome.generation, environment.limits),
    reportFloor: (device, bytes) => { channel.send({ type: 'floor', device, bytes }); },
  });
}

async function ready(channel: Channel<'control'>, engine: Engine, environment: WorkerEnvironment): Promise<void> {
  await channel.request({
    type: 'ready', engine: engine.name, versions: engine.versions, capabilities: engine.capabilities,
    devices: environment.cards.map(({ device, name, totalBytes }) => ({ device, name, totalBytes })),
    dataSocket: environment.dataSocketPath, floors: engine.floors.map(({ device, bytes }) => ({ device, bytes })),
  }, { timeoutMs: environment.limits.spawnTimeoutMs });
}

/** Messages that come in the same breath as `welcome` wait here for the worker that serves them. */
class MessageDesk {
  #early: ControlMessage[] = [];
  worker: Worker | null = null;

  staff(worker: Worker): void {
    this.worker = worker;
    for (const message of this.#early.splice(0)) worker.take(message);
  }

  take(message: ControlMessage): void {
    if (this.worker === null) this.#early.push(message);
    else this.worker.take(message);
  }

  stray(message: ControlMessage): void {
    this.worker?.stray(message);
  }
}

function deferred(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((settle) => { resolve = settle; });
  return { promise, resolve };
}
