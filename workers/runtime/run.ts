/** A worker as a process: environment, signals, the broker’s end, and how each ending looks from outside. */
import { readFileSync, writeSync } from 'node:fs';
import { LeaseholdError, errorEnd, workerExitCodes, durationText } from '../../protocol/index.js';
import { connect, type ByteStream } from '../../protocol/node/index.js';
import { attachWorker, type AttachedWorker } from './attach.js';
import type { Engine } from './engine.js';
import { readEnvironment } from './environment.js';

/**
 * Runs `engine` as a worker of the broker that started this process; resolves
 * when the broker has accepted it. Ends the process, with one of
 * `workerExitCodes`; with all its children when the broker is gone and no
 * other came within the grace. `wire` stands between it and the broker, on
 * every connection: for those that try brokers out.
 */
export async function runWorker(engine: Engine, wire: (stream: ByteStream) => ByteStream = (stream) => stream): Promise<void> {
  // Before anything else: a signal during the start must already find its handler (B86).
  const end = new Ending();
  process.on('SIGTERM', () => { end.gracefully(null, 'SIGTERM'); });
  process.on('uncaughtException', (error) => { end.fatally(error); });
  process.on('unhandledRejection', (error) => { end.fatally(error); });
  // Nobody reads any more when the broker is dead (D38); its connection's end is what ends us.
  process.stdout.on('error', () => undefined);
  process.stderr.on('error', () => undefined);
  try {
    const environment = readEnvironment(process.env);
    end.graceMs = environment.limits.terminateGraceMs;
    const dial = async (): Promise<ByteStream> => wire(await connect({ path: environment.socketPath, timeoutMs: environment.limits.helloTimeoutMs }));
    end.attached(await attachWorker({
      engine, environment, stream: await dial(), dial,
      onShutdown: (graceMs, reason) => { end.gracefully(graceMs, reason); },
      onLost: (error) => { end.brokerLost(error); },
      fatal: (error) => { end.fatally(error); },
    }));
  } catch (error) {
    end.fatally(error);
  }
}

/** The one way out. The first ending decides, save that a fatal one overrides a graceful one. */
class Ending {
  graceMs = 5_000;
  #attached: AttachedWorker | null = null;
  #asked = false;
  /** Why it ends, where nobody but a signal told it to. */
  #unasked: string | undefined;

  attached(worker: AttachedWorker): void {
    this.#attached = worker;
    if (this.#asked) this.#close(worker);
  }

  gracefully(graceMs: number | null, reason: string): void {
    if (this.#asked) return;
    this.#asked = true;
    if (graceMs === null) this.#unasked = reason;
    this.#attached?.log.line('info', 'ending', { reason });
    setTimeout(() => {
      report(`not everything was unloaded within ${durationText(graceMs ?? this.graceMs)}`);
      process.exit(workerExitCodes.gracePassed);
    }, graceMs ?? this.graceMs).unref();
    // Still starting: there is nothing to unload, and the start is not waited for.
    if (this.#attached === null) process.exit(workerExitCodes.ended);
    this.#close(this.#attached);
  }

  brokerLost(error: LeaseholdError): void {
    report(`the broker is gone: ${error.message}`);
    endChildren();
    process.exit(workerExitCodes.brokerLost);
  }

  fatally(error: unknown): void {
    if (error instanceof LeaseholdError && error.code === 'engine_hung') {
      report(`LeaseholdError: ${error.message}`);
      process.exit(workerExitCodes.engineHung);
    }
    report(error instanceof Error ? error.stack ?? error.message : String(error));
    if (error instanceof LeaseholdError) reportError(error);
    process.exit(workerExitCodes.failed);
  }

  #close(worker: AttachedWorker): void {
    worker.close(this.#unasked).then(() => process.exit(workerExitCodes.ended), (error: unknown) => { this.fatally(error); });
  }
}

/** One line for the obituary. */
function report(text: string): void {
  writeLine(`leasehold worker: ${text}`);
}

/** The same for programs: the broker refuses whoever waited for this worker with the error itself. */
function reportError({ code, details }: LeaseholdError): void {
  const short = Object.fromEntries(Object.entries(details).map(([name, value]) => [name, value.slice(0, 300)]));
  writeLine(`${errorEnd}${JSON.stringify({ code, details: short })}`);
}

/** Synchronous, since the process is about to end. */
function writeLine(text: string): void {
  try {
    writeSync(2, `${text}\n`);
  } catch (error) {
    // stderr is a closed pipe when the broker is dead: there is nobody left to tell.
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
  }
}

/** Ends the process group that we lead, ourselves included. Where we lead none, the broker's guard ends our descendants. */
function endChildren(): void {
  if (process.platform !== 'linux') return;
  const stat = readFileSync('/proc/self/stat', 'utf8');
  // Fields after the last parenthesis: state, parent, group.
  const group = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]);
  if (group === process.pid) process.kill(-group, 'SIGKILL');
}
