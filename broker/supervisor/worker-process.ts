/**
 * One process that we started, from its spawn to the confirmed end of its whole tree.
 *
 *   running ──terminate──► asked ──grace over──► killing ──┐
 *      │                     │                             ├─ leader's exit ─► clearing ──nobody left──► gone
 *      └──── its own exit ───┴─────────────────────────────┘
 *
 * While `asked`, what the leader leaves behind may use up the grace; in every other case it is killed at once.
 */
import type { ChildProcess } from 'node:child_process';
import type { Limits } from '../../protocol/index.js';
import { secretsOf } from './environment.js';
import { Guard } from './guard.js';
import { launch, launchFailure } from './launch.js';
import { OutputTail, type OutputLimits } from './output.js';
import { signalIdentity, type ProcessRow, type ProcessTable } from './process-table.js';
import type { Sweeper, Sweepable } from './sweeper.js';
import { membersOf, type TreeRoot } from './tree.js';
import type { Obituary, ProcessIdentity, SpawnRequest, SupervisorHandlers } from './types.js';

export type ProcessLimits = Pick<Limits, 'killConfirmMs'> & OutputLimits;

export interface WorkerProcessSetup {
  readonly request: SpawnRequest;
  readonly token: string;
  readonly handlers: SupervisorHandlers;
  readonly limits: ProcessLimits;
  readonly table: ProcessTable;
  readonly sweeper: Sweeper;
  /** Sends the worker its `shutdown`; true when it went out. Null: there is no such way. */
  readonly askFirst: ((generation: string, graceMs: number, reason: string) => boolean) | null;
  readonly onNote: (generation: string, note: string) => void;
  /** Called once, after onSpawnFailed or onExited. */
  readonly onOver: (generation: string) => void;
}

type Exit = { readonly code: number | null; readonly signal: string | null };

type Phase =
  | { readonly name: 'running' }
  /** `termDue`: SIGTERM is still to come, the worker having been asked by message first. */
  | { readonly name: 'asked'; readonly killAtMs: number; readonly termDue: boolean; readonly timers: readonly NodeJS.Timeout[] }
  | { readonly name: 'killing'; readonly sinceMs: number }
  | { readonly name: 'gone' };

/** After the leader's end and its tree's, the pipes may still be held open by somebody we cannot see. */
const lastWordsMs = 500;
const pauseFirstMs = 5;
const pauseLastMs = 250;
const pauseUnconfirmedMs = 1_000;

export class WorkerProcess implements Sweepable {
  readonly #setup: WorkerProcessSetup;
  readonly #tail: OutputTail;
  readonly #guard: Guard;
  #seen: ReadonlyMap<number, string> = new Map();
  readonly #reaped = new Map<number, ProcessIdentity>();
  #child: ChildProcess | null = null;
  #identity: ProcessIdentity | null = null;
  #outputEnded: Promise<unknown> = Promise.resolve();
  #phase: Phase = { name: 'running' };
  #exit: Exit | null = null;
  #pauseMs = pauseFirstMs;
  #unconfirmed = false;
  #settleOver: () => void = () => undefined;
  /** Resolves when the end is confirmed, or has been given up as unconfirmed. */
  readonly settled: Promise<void>;

  constructor(setup: WorkerProcessSetup) {
    this.#setup = setup;
    const { request, token, limits, onNote } = setup;
    this.#tail = new OutputTail(limits, secretsOf(request.env));
    this.settled = new Promise((resolve) => {
      this.#settleOver = resolve;
    });
    this.#guard = new Guard({
      token,
      onLost: (replaced) => onNote(request.generation, replaced ? 'its guard ended and was replaced' : 'its guard ended and could not be replaced: the worker would outlive the broker'),
    });
  }

  get generation(): string {
    return this.#setup.request.generation;
  }

  /** Null before it lives and after it is gone. */
  get identity(): ProcessIdentity | null {
    return this.#phase.name === 'gone' ? null : this.#identity;
  }

  /** Guard first, then the process, then word to the guard: at no moment does it live unguarded. */
  start(): void {
    const { request, token } = this.#setup;
    if (!this.#guard.start()) {
      process.nextTick(() => void this.#failStart('its guard (/bin/sh) could not be started'));
      return;
    }
    const launched = launch(request, token);
    if ('failure' in launched) {
      process.nextTick(() => void this.#failStart(launched.failure));
      return;
    }
    const { child } = launched;
    child.once('error', (error: NodeJS.ErrnoException) => {
      if (child.pid === undefined) void this.#failStart(launchFailure(request.command, error));
      else this.#setup.onNote(this.generation, `signal not delivered: ${error.message}`);
    });
    if (child.pid !== undefined) this.#live(child, child.pid);
  }

  /** See Supervisor.terminate. A second call can only shorten what is left of the grace. */
  terminate(graceMs: number, reason: string): void {
    const phase = this.#phase;
    if (this.#child === null || phase.name === 'gone' || phase.name === 'killing') return;
    const killAtMs = performance.now() + graceMs;
    if (phase.name === 'asked') {
      if (killAtMs >= phase.killAtMs) return;
      if (phase.termDue) this.#sendTerm();
      this.#askUntil(killAtMs, null);
      return;
    }
    if (graceMs <= 0) {
      this.#kill();
      return;
    }
    const told = this.#exit === null && (this.#setup.askFirst?.(this.generation, graceMs, reason) ?? false);
    if (!told) this.#sendTerm();
    // Asked by message, it has half the grace to go by itself before the signal comes.
    this.#askUntil(killAtMs, told ? graceMs / 2 : null);
  }

  /** Living members of its tree in this listing; remembers them, so that they are found when they have left it. */
  members(rows: readonly ProcessRow[]): readonly ProcessRow[] {
    const root = this.#root();
    if (root === null || this.#phase.name === 'gone') return [];
    const found = membersOf(rows, root, this.#spared());
    this.#seen = new Map(found.map(({ pid, startTime }) => [pid, startTime]));
    return found;
  }

  /** Pids of its tree as it was last seen, for when it cannot be looked at. */
  lastSeen(): readonly number[] {
    return this.identity === null ? [] : [...new Set([this.identity.pid, ...this.#seen.keys()])];
  }

  /** A round on the way out; see Sweepable. */
  sweep(rows: readonly ProcessRow[] | null): number | null {
    const phase = this.#phase;
    if (phase.name === 'gone') return null;
    const members = rows === null ? [] : this.members(rows);
    if (rows !== null && this.#exit !== null && !members.some(({ pid }) => pid !== this.#identity?.pid)) {
      this.#enter({ name: 'gone' });
      void this.#finish(this.#exit);
      return null;
    }
    if (phase.name === 'asked') return pauseLastMs / 5;
    if (phase.name === 'running') return null;
    this.#killMembers(members);
    if (rows === null) this.#killGroup();
    const leftMs = phase.sinceMs + this.#setup.limits.killConfirmMs - performance.now();
    if (leftMs <= 0) {
      this.#giveUp(members);
      return pauseUnconfirmedMs;
    }
    this.#pauseMs = Math.min(pauseLastMs, this.#pauseMs * 2);
    return Math.min(this.#pauseMs, leftMs + 1);
  }

  /** After close(): its end was given up, and nothing of it may keep our process alive. Its guard stays on. */
  abandon(): void {
    this.#child?.unref();
    this.#child?.stdout?.destroy();
    this.#child?.stderr?.destroy();
  }

  #live(child: ChildProcess, pid: number): void {
    this.#child = child;
    // It cannot be reaped before we return to the loop, so this is its own start time even if it is dead already.
    this.#identity = { pid, startTime: this.#setup.table.startTime(pid) };
    this.#guard.watch(this.#identity);
    const { handlers } = this.#setup;
    const streams = [['stdout', child.stdout], ['stderr', child.stderr]] as const;
    this.#outputEnded = Promise.all(streams.map(([name, stream]) => (
      stream === null ? Promise.resolve() : this.#tail.drain(stream, (line) => handlers.onOutput(this.generation, name, line))
    )));
    child.once('exit', (code, signal) => this.#exited({ code, signal }));
    handlers.onSpawned(this.generation, this.#identity);
  }

  #exited(exit: Exit): void {
    this.#exit = exit;
    this.#pauseMs = pauseFirstMs;
    if (this.#phase.name === 'running') this.#enter({ name: 'killing', sinceMs: performance.now() });
    // Where trees cannot be followed the group is all that can be ended, and only now is its number surely ours.
    if (!this.#setup.table.lists && this.#identity !== null) this.#setup.table.signalGroup(this.#identity.pid, 'SIGKILL');
    this.#setup.sweeper.plan(this, 0);
  }

  #askUntil(killAtMs: number, termAfterMs: number | null): void {
    const timers = [setTimeout(() => this.#kill(), Math.max(0, killAtMs - performance.now()))];
    if (termAfterMs !== null) timers.push(setTimeout(() => this.#sendTerm(), termAfterMs));
    this.#enter({ name: 'asked', killAtMs, termDue: termAfterMs !== null, timers });
  }

  /** The one place where the phase changes; a grace that is over leaves no timer behind. */
  #enter(phase: Phase): void {
    if (this.#phase.name === 'asked') for (const timer of this.#phase.timers) clearTimeout(timer);
    this.#phase = phase;
  }

  #sendTerm(): void {
    const pid = this.#identity?.pid;
    // Once the leader is reaped its number may be somebody else's: then its members are ended one by one.
    if (pid === undefined || this.#exit !== null) return;
    // A wrapper shell passes no signal on, so the whole group is told.
    this.#setup.table.signalGroup(pid, 'SIGTERM');
    // A stopped process would keep the signal waiting.
    this.#setup.table.signalGroup(pid, 'SIGCONT');
  }

  #kill(): void {
    this.#enter({ name: 'killing', sinceMs: performance.now() });
    this.#pauseMs = pauseFirstMs;
    if (this.#identity !== null && this.#exit === null) {
      // Who belongs to it is seen best while it lives: afterwards its children have another parent.
      const rows = this.#setup.table.list();
      if (rows !== null) this.members(rows);
    }
    this.#killGroup();
    this.#setup.sweeper.plan(this, 0);
  }

  /** Once the leader is reaped its number may be somebody else's. */
  #killGroup(): void {
    if (this.#identity !== null && this.#exit === null) this.#setup.table.signalGroup(this.#identity.pid, 'SIGKILL');
  }

  #killMembers(members: readonly ProcessRow[]): void {
    for (const { pid, startTime } of members) {
      const isLeader = pid === this.#identity?.pid;
      if (isLeader && this.#exit !== null) continue;
      const outcome = signalIdentity(this.#setup.table, { pid, startTime }, 'SIGKILL');
      if (!isLeader && outcome !== 'gone') this.#reaped.set(pid, { pid, startTime });
    }
    if (!this.#setup.table.lists) this.#killGroup();
  }

  #giveUp(members: readonly ProcessRow[]): void {
    if (this.#unconfirmed) return;
    this.#unconfirmed = true;
    const left = members.map(({ pid }) => pid).join(', ');
    this.#setup.handlers.onKillUnconfirmed(this.generation, `SIGKILL was sent ${this.#setup.limits.killConfirmMs} ms ago and ${left === '' ? 'its end was not seen' : `pid ${left} still lives`}`);
    this.#settleOver();
  }

  async #finish({ code, signal }: Exit): Promise<void> {
    const cut = setTimeout(() => {
      this.#child?.stdout?.destroy();
      this.#child?.stderr?.destroy();
    }, lastWordsMs);
    await this.#outputEnded;
    clearTimeout(cut);
    const obituary: Obituary = {
      exitCode: code,
      signal,
      how: signal ?? `exit code ${code ?? 'unknown'}`,
      lastLines: [...this.#tail.lines],
      reaped: [...this.#reaped.values()],
    };
    this.#setup.handlers.onExited(this.generation, obituary);
    await this.#over();
  }

  async #failStart(reason: string): Promise<void> {
    this.#enter({ name: 'gone' });
    this.#setup.handlers.onSpawnFailed(this.generation, reason);
    await this.#over();
  }

  async #over(): Promise<void> {
    this.#setup.onOver(this.generation);
    await this.#guard.dismiss();
    this.#settleOver();
  }

  #root(): TreeRoot | null {
    return this.#identity === null ? null : { leader: this.#identity, token: this.#setup.token, seen: this.#seen };
  }

  #spared(): ReadonlySet<number> {
    const guard = this.#guard.pid;
    return new Set(guard === null ? [process.pid] : [process.pid, guard]);
  }
}
