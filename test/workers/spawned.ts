/** A simulated worker as a real process, started by hand as a supervisor would, with a scripted broker on a real socket. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { listen, type Listener } from '../../protocol/node/index.js';
import { openCaller, type WorkerCaller } from '../../src/client/index.js';
import { card, FakeBroker, workerKey } from './fake-broker.js';

const program = fileURLToPath(new URL('../../workers/simulated/main.js', import.meta.url));

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Spawned {
  readonly child: ChildProcess;
  readonly broker: FakeBroker;
  /** Another one, that it comes to next. */
  readonly next: () => Promise<FakeBroker>;
  /** How often it has come. */
  readonly brokers: () => number;
  readonly dataSocket: string;
  readonly exited: Promise<Exit>;
  /** What it wrote so far. */
  readonly output: () => { readonly stdoutBytes: number; readonly stderr: string };
  readonly caller: (name?: string) => Promise<WorkerCaller>;
  /** Ends what is left and waits for it. */
  readonly end: () => Promise<void>;
}

export interface SpawnOptions {
  readonly script?: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string>>;
  /** The worker leads a process group of its own, as under a supervisor. */
  readonly detached?: boolean;
  /** How long it seeks a broker when its own is lost; default: not at all. */
  readonly reattachGraceMs?: number;
}

/** Starts it and waits for its connection; whether it becomes ready is the test's to see. */
export async function spawnWorker(options: SpawnOptions = {}): Promise<Spawned> {
  const folder = mkdtempSync(join(tmpdir(), 'lh-'));
  const dataSocket = join(folder, 'd.sock');
  let connected: (broker: FakeBroker) => void = () => undefined;
  let brokers = 0;
  const { reattachGraceMs = 0 } = options;
  const next = (): Promise<FakeBroker> => new Promise((resolve) => { connected = resolve; });
  const first = next();
  const listener: Listener = await listen({
    path: join(folder, 'b.sock'),
    onConnection: (stream) => {
      brokers += 1;
      connected(new FakeBroker(stream, { reattachGraceMs }));
    },
  });
  const child = spawn(process.execPath, [program], {
    stdio: ['ignore', 'pipe', 'pipe'], detached: options.detached ?? false,
    env: {
      PATH: process.env['PATH'], LEASEHOLD_SOCKET: listener.path, LEASEHOLD_SPAWN: 'b-w1', LEASEHOLD_KEY: workerKey, LEASEHOLD_DATA_SOCKET: dataSocket,
      LEASEHOLD_TOKEN: folder, LEASEHOLD_DEVICES: JSON.stringify([{ device: card, name: card, totalBytes: null, simulated: true }]),
      LEASEHOLD_SIMULATED: JSON.stringify(options.script ?? {}), ...options.env,
    },
  });
  const exited = new Promise<Exit>((resolve) => child.once('exit', (code, signal) => { resolve({ code, signal }); }));
  let stdoutBytes = 0;
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => { stdoutBytes += chunk.length; });
  child.stderr.on('data', (chunk: Buffer) => { stderr = (stderr + chunk.toString('latin1')).slice(-4_000_000); });
  const broker = await Promise.race([first, exited.then((exit): never => { throw new Error(`it ended at once: ${JSON.stringify(exit)} ${stderr}`); })]);
  const callers: WorkerCaller[] = [];
  return {
    child, broker, next, brokers: () => brokers, dataSocket, exited,
    output: () => ({ stdoutBytes, stderr }),
    caller: async (name = 'b-s1') => {
      const caller = await openCaller({ dataSocket, ticket: broker.ticket(name), caller: name });
      callers.push(caller);
      return caller;
    },
    end: async () => {
      for (const caller of callers) caller.close();
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
      await exited;
      await listener.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}


/** A process's environment as text; null when it is gone (or a zombie, which has none). */
export function environmentOf(pid: number): string[] | null {
  try {
    return readFileSync(`/proc/${String(pid)}/environ`, 'utf8').split('\0');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return null;
    throw error;
  }
}

/** Children of a process, by the system's own list. */
export function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${String(pid)}/task/${String(pid)}/children`, 'utf8').trim().split(' ').filter((text) => text !== '').map(Number);
}
