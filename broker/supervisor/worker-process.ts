/** One process that we started: its guard, its spawn, its output, its last words. How it ends: process-ladder.ts. */
import type { ChildProcess } from 'node:child_process';
import { LeaseholdError } from '../../protocol/index.js';
import { secretsOf } from './environment.js';
import { Guard } from './guard.js';
import { failedStart, launch, shortageOf, type WhyNot } from './launch.js';
import { preferAsVictim } from './oom-score.js';
import { OutputTail } from './output.js';
import { ProcessLadder, type Exit, type LadderSetup } from './process-ladder.js';
import type { Obituary, SpawnRequest } from './types.js';

export interface WorkerProcessSetup extends LadderSetup {
  readonly request: SpawnRequest;
}

/** After the leader's end and its tree's, the pipes may still be held open by somebody we cannot see. */
const lastWordsMs = 500;

export class WorkerProcess extends ProcessLadder {
  readonly #request: SpawnRequest;
  readonly #tail: OutputTail;
  readonly #guard: Guard;
  #child: ChildProcess | null = null;
  #outputEnded: Promise<unknown> = Promise.resolve();

  constructor(setup: WorkerProcessSetup) {
    super(setup);
    const { request, token, limits, onNote } = setup;
    this.#request = request;
    this.#tail = new OutputTail(limits, secretsOf(request.env));
    this.#guard = new Guard({
      token,
      graceMs: limits.reattachGraceMs,
      onLost: (replaced) => {
        onNote(request.generation, replaced ? 'its guard ended and was replaced' : 'its guard ended and could not be replaced: the worker would outlive the broker');
        this.#noteTracked();
      },
    });
  }

  /** Guard first, then its record, then the process, then word to the guard: at no moment does it live unguarded, or unknown. */
  start(): void {
    const refusal = this.#prepare();
    if (refusal !== null) {
      process.nextTick(() => void this.neverLived(...refusal()));
      return;
    }
    const launched = launch(this.#request, this.setup.token);
    if ('failure' in launched) {
      process.nextTick(() => void this.neverLived(...failedStart(this.#request.command, launched.failure)));
      return;
    }
    const { child } = launched;
    child.once('error', (error: NodeJS.ErrnoException) => {
      if (child.pid === undefined) void this.neverLived(...failedStart(this.#request.command, error));
      else this.setup.onNote(this.generation, `signal not delivered: ${error.message}`);
    });
    if (child.pid !== undefined) this.#lives(child, child.pid);
  }

  abandon(): void {
    this.#child?.unref();
    this.#child?.stdout?.destroy();
    this.#child?.stderr?.destroy();
  }

  /** It cannot be reaped before we have seen its exit. */
  protected mayBeSignalled(): boolean {
    return true;
  }

  protected get mayBeEnded(): boolean {
    return true;
  }

  protected spared(): ReadonlySet<number> {
    const guard = this.#guard.pid;
    return new Set(guard === null ? [process.pid] : [process.pid, guard]);
  }

  protected async lastWords({ code, signal }: Exit): Promise<Pick<Obituary, 'how' | 'lastLines'>> {
    const cut = setTimeout(() => {
      this.#child?.stdout?.destroy();
      this.#child?.stderr?.destroy();
    }, lastWordsMs);
    await this.#outputEnded;
    clearTimeout(cut);
    return { how: signal ?? `exit code ${code ?? 'unknown'}`, lastLines: [...this.#tail.lines] };
  }

  protected dismissed(): Promise<void> {
    return this.#guard.dismiss();
  }

  /** Null when it may be started; else why not, to be asked in the next tick. */
  #prepare(): (() => WhyNot) | null {
    if (!this.#guard.start()) return () => ['its guard (/bin/sh) could not be started', shortageOf(this.#guard.failure)];
    try {
      this.#tellTracked();
      return null;
    } catch (error) {
      const typed = LeaseholdError.from(error);
      return () => [typed.message, typed];
    }
  }

  #tellTracked(): void {
    this.setup.handlers.onTracked?.(this.generation, { token: this.setup.token, identity: this.identity, guard: this.#guard.identity(this.setup.table) });
  }

  #lives(child: ChildProcess, pid: number): void {
    this.#child = child;
    // It cannot be reaped before we return to the loop, so this is its own start time even if it is dead already.
    const identity = { pid, startTime: this.setup.table.startTime(pid) };
    this.live(identity);
    this.#guard.watch(identity);
    const unraised = preferAsVictim(pid);
    if (unraised !== null) this.setup.onNote(this.generation, `its oom_score_adj could not be raised (${unraised}): short of memory, the kernel may as well end the broker`);
    const { handlers } = this.setup;
    const streams = [['stdout', child.stdout], ['stderr', child.stderr]] as const;
    this.#outputEnded = Promise.all(streams.map(([name, stream]) => (
      stream === null ? Promise.resolve() : this.#tail.drain(stream, (line) => handlers.onOutput(this.generation, name, line))
    )));
    child.once('exit', (code, signal) => this.exited({ code, signal }));
    handlers.onSpawned(this.generation, identity);
    this.#noteTracked();
  }

  /** By its token it is found again all the same. */
  #noteTracked(): void {
    try {
      this.#tellTracked();
    } catch (error) {
      this.setup.onNote(this.generation, `its record is not up to date: ${LeaseholdError.from(error).message}`);
    }
  }
}
