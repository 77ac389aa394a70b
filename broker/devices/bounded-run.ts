/** Runs a small tool to its end: never longer than a limit, never more output than a limit, never blocking. */
import { spawn, type ChildProcess } from 'node:child_process';
import { isShortage, sendSignal } from '../supervisor/process-table.js';
import { startDeadline } from './deadline.js';

export type RunOutcome =
  | { readonly kind: 'ended'; readonly exitCode: number | null; readonly signal: string | null; readonly stdout: string; readonly stderr: string }
  | { readonly kind: 'timed_out' }
  | { readonly kind: 'too_much_output' }
  | { readonly kind: 'not_started'; readonly reason: string };

export interface BoundedRun {
  /** Settles within the limit, whatever the tool does. */
  readonly outcome: Promise<RunOutcome>;
  /** False once the process is reaped; a tool stuck in the driver survives its SIGKILL. */
  alive(): boolean;
}

export interface RunLimits {
  readonly timeoutMs: number;
  readonly outputBytesMax: number;
}

export function runBounded(command: string, args: readonly string[], env: Readonly<Record<string, string>>, limits: RunLimits): BoundedRun {
  const child = start(command, args, env);
  if (typeof child === 'string') return { outcome: Promise.resolve({ kind: 'not_started', reason: child }), alive: () => false };
  let gone = child.pid === undefined;
  child.once('exit', () => {
    gone = true;
  });
  return { outcome: collect(child, limits), alive: () => !gone };
}

/** The child, or why the system has no means for one. */
function start(command: string, args: readonly string[], env: Readonly<Record<string, string>>): ChildProcess | string {
  try {
    // A group of its own, so that a tool that is a script goes with what it started.
    return spawn(command, args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true, windowsHide: true });
  } catch (error) {
    if (!isShortage(error)) throw error;
    return String(error);
  }
}

function collect(child: ChildProcess, { timeoutMs, outputBytesMax }: RunLimits): Promise<RunOutcome> {
  return new Promise((resolve) => {
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    let sizeBytes = 0;
    const settle = (outcome: RunOutcome): void => {
      cancel();
      resolve(outcome);
    };
    const abandon = (outcome: RunOutcome): void => {
      settle(outcome);
      if (child.pid === undefined || process.platform === 'win32') child.kill('SIGKILL');
      else sendSignal(-child.pid, 'SIGKILL');
      // It may live on inside the driver; nothing of it may keep us waiting or alive.
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
    };
    const cancel = startDeadline(timeoutMs, () => abandon({ kind: 'timed_out' }));
    const take = (into: Buffer[]) => (chunk: Buffer): void => {
      sizeBytes += chunk.length;
      if (sizeBytes > outputBytesMax) abandon({ kind: 'too_much_output' });
      else into.push(chunk);
    };
    child.stdout?.on('data', take(stdout));
    child.stderr?.on('data', take(stderr));
    child.on('error', (error) => settle({ kind: 'not_started', reason: error.message }));
    child.on('close', (exitCode, signal) => {
      settle({ kind: 'ended', exitCode, signal, stdout: Buffer.concat(stdout).toString('utf8'), stderr: Buffer.concat(stderr).toString('utf8') });
    });
  });
}
