/** The guard of one worker: a small shell outside our process group that outlives us by the worker's grace, and the moment it needs to end the worker's tree. */
import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import { createHash } from 'node:crypto';
import { guardScript } from './guard-script.js';
import { isShortage, type ProcessTable } from './process-table.js';
import type { ProcessIdentity } from './types.js';

/** A guard that somebody kills is replaced this many times. */
const replacementsMax = 5;
/** Told `done`, a guard ends at once; past this it is killed. */
const dismissTimeoutMs = 2_000;

/** Names the worker that a guard guards, in the guard's own environment: by it another broker knows that it ends a guard and nothing else. */
export const guardName = 'LEASEHOLD_GUARD';

export interface GuardOptions {
  readonly token: string;
  /** How long the worker may live on without its broker. */
  readonly graceMs: number;
  readonly platform?: NodeJS.Platform;
  readonly shell?: string;
  /** A guard ended that should not have; it has been replaced, or (false) could not be. */
  readonly onLost: (replaced: boolean) => void;
}

/** What says whose guard it is without telling the token. */
export function guardMark(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

export class Guard {
  readonly #options: GuardOptions;
  readonly #script: string | null;
  #child: ChildProcess | null = null;
  #group: ProcessIdentity | null = null;
  #replacements = 0;
  #failure: unknown = null;
  #dismissed: Promise<void> | null = null;

  constructor(options: GuardOptions) {
    this.#options = options;
    this.#script = guardScript(options.platform ?? process.platform);
  }

  /** What the system said of the last start that failed, a tick after it; null: nothing. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Its pid; null where the platform has no guard. */
  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /**
   * Starts it; must come before the worker, so that there is no moment at which a worker lives unguarded. Returns false
   * when no guard can be started here at all; true also on a platform that has none.
   */
  start(): boolean {
    if (this.#script === null) return true;
    const child = this.#spawn(this.#script);
    // Its pid says that it did not start, the reason comes a tick later, and an end is seen by `exit`. Out of descriptors it has no pipes either.
    child?.on('error', (error) => { this.#failure = error; });
    child?.stdin?.on('error', () => undefined);
    if (child?.pid === undefined || child.stdin === null) return false;
    this.#child = child;
    child.once('exit', () => this.#ended(child));
    child.stdin.write(`${this.#options.token}\n${String(this.#options.graceMs)}\n`);
    if (this.#group !== null) this.#tellGroup(this.#group);
    // It lives for our sake, not we for its.
    child.unref();
    (child.stdin as { unref?: () => void }).unref?.();
    return true;
  }

  #spawn(script: string): ChildProcess | null {
    const options: SpawnOptions = {
      stdio: ['pipe', 'ignore', 'ignore'],
      // A session of its own: what is sent to our group, or a closing terminal, does not reach it.
      detached: true,
      // Nothing of ours but the way to its tools; above all no LEASEHOLD_TOKEN, by which it would find itself.
      env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin', [guardName]: guardMark(this.#options.token) },
    };
    try {
      return spawn(this.#options.shell ?? '/bin/sh', ['-c', script], options);
    } catch (error) {
      if (!isShortage(error)) throw error;
      this.#failure = error;
      return null;
    }
  }

  /** Pid and start time, by which another broker finds it; null where there is none. */
  identity(table: Pick<ProcessTable, 'startTime'>): ProcessIdentity | null {
    return this.pid === null ? null : { pid: this.pid, startTime: table.startTime(this.pid) };
  }

  /** The worker lives: its group, and the start time by which that number is known to be its own. */
  watch(leader: ProcessIdentity): void {
    this.#group = leader;
    this.#tellGroup(leader);
  }

  /** The worker is gone for certain: the guard ends without killing. Resolves when it has ended. Idempotent. */
  dismiss(): Promise<void> {
    this.#dismissed ??= this.#dismissNow();
    return this.#dismissed;
  }

  async #dismissNow(): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => child.kill('SIGKILL'), dismissTimeoutMs);
      child.once('exit', () => {
        clearTimeout(timer);
        resolve();
      });
      child.ref();
      child.stdin?.end('done\n');
    });
  }

  #tellGroup({ pid, startTime }: ProcessIdentity): void {
    this.#child?.stdin?.write(`group ${pid} ${startTime ?? ''}\n`);
  }

  #ended(child: ChildProcess): void {
    if (this.#dismissed !== null || this.#child !== child) return;
    this.#child = null;
    this.#replacements += 1;
    this.#options.onLost(this.#replacements <= replacementsMax && this.start());
  }
}
