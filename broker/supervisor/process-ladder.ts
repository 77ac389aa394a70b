/**
 * The end of one process and everything that it started, whoever started it: us, or a broker before us.
 *
 *   running ──terminate──► asked ──grace over──► killing ──┐
 *      │                     │                             ├─ leader's exit ─► clearing ──nobody left──► gone
 *      └──── its own exit ───┴─────────────────────────────┘
 *
 * While `asked`, what the leader leaves behind may use up the grace; in every other case it is killed at once.
 */
import { durationText } from '../../protocol/index.js';
import type { LeaseholdError, Limits } from '../../protocol/index.js';
import type { OutputLimits } from './output.js';
import { signalIdentity, type ProcessRow, type ProcessTable } from './process-table.js';
import type { Sweepable, Sweeper } from './sweeper.js';
import { membersOf, type TreeRoot } from './tree.js';
import type { Obituary, ProcessIdentity, SupervisorHandlers } from './types.js';

export type ProcessLimits = Pick<Limits, 'killConfirmMs' | 'reattachGraceMs'> & OutputLimits;

export interface LadderSetup {
  readonly generation: string;
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

export interface Exit {
  readonly code: number | null;
  readonly signal: string | null;
}

type Phase =
  | { readonly name: 'running' }
  /** `termDue`: SIGTERM is still to come, the worker having been asked by message first. */
  | { readonly name: 'asked'; readonly killAtMs: number; readonly termDue: boolean; readonly timers: readonly NodeJS.Timeout[] }
  | { readonly name: 'killing'; readonly sinceMs: number }
  | { readonly name: 'gone' };

const pauseFirstMs = 5;
const pauseLastMs = 250;
const pauseUnconfirmedMs = 1_000;

export abstract class ProcessLadder implements Sweepable {
  protected readonly setup: LadderSetup;
  #seen: ReadonlyMap<number, string> = new Map();
  readonly #reaped = new Map<number, ProcessIdentity>();
  #leader: ProcessIdentity | null = null;
  #phase: Phase = { name: 'running' };
  #exit: Exit | null = null;
  #pauseMs = pauseFirstMs;
  #unconfirmed = false;
  #settleOver: () => void = () => undefined;
  /** Resolves when the end is confirmed, or has been given up as unconfirmed. */
  readonly settled: Promise<void>;

  constructor(setup: LadderSetup) {
    this.setup = setup;
    this.settled = new Promise((resolve) => {
      this.#settleOver = resolve;
    });
  }

  get generation(): string {
    return this.setup.generation;
  }

  /** Null before it lives and after it is gone. */
  get identity(): ProcessIdentity | null {
    return this.#phase.name === 'gone' ? null : this.#leader;
  }

  /** See Supervisor.terminate. A second call can only shorten what is left of the grace. */
  terminate(graceMs: number, reason: string): void {
    const phase = this.#phase;
    if (this.#leader === null || phase.name === 'gone' || phase.name === 'killing') return;
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
    const told = this.#exit === null && (this.setup.askFirst?.(this.generation, graceMs, reason) ?? false);
    if (!told) this.#sendTerm();
    // Asked by message, it has half the grace to go by itself before the signal comes.
    this.#askUntil(killAtMs, told ? graceMs / 2 : null);
  }

  /** Living members of its tree in this listing; remembers them, so that they are found when they have left it. */
  members(rows: readonly ProcessRow[]): readonly ProcessRow[] {
    const root = this.#root();
    if (root === null || this.#phase.name === 'gone') return [];
    const found = membersOf(rows, root, this.spared());
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
    if (rows !== null && this.#exit !== null && !members.some(({ pid }) => pid !== this.#leader?.pid)) {
      this.#enter({ name: 'gone' });
      void this.#finish(this.#exit);
      return null;
    }
    if (phase.name === 'asked') return pauseLastMs / 5;
    if (phase.name === 'running') return null;
    this.#killMembers(members);
    if (rows === null) this.#killGroup();
    const leftMs = phase.sinceMs + this.setup.limits.killConfirmMs - performance.now();
    if (leftMs <= 0) {
      this.#giveUp(members);
      return pauseUnconfirmedMs;
    }
    this.#pauseMs = Math.min(pauseLastMs, this.#pauseMs * 2);
    return Math.min(this.#pauseMs, leftMs + 1);
  }

  /** After close(): its end was given up, and nothing of it may keep our process alive. Its guard stays on. */
  abstract abandon(): void;

  /** Whether the leader, whose exit we have not seen, is surely the one whose number we have: only then is its group signalled. */
  protected abstract mayBeSignalled(leader: ProcessIdentity): boolean;

  /** Whether a member of its tree may be signalled at all. */
  protected abstract get mayBeEnded(): boolean;

  /** Never a member of its tree: we ourselves, the guard. */
  protected abstract spared(): ReadonlySet<number>;

  /** Its last words, once it and its tree are gone. */
  protected abstract lastWords(exit: Exit): Promise<Pick<Obituary, 'how' | 'lastLines'>>;

  /** Whatever outlives it, ended. */
  protected abstract dismissed(): Promise<void>;

  /** It lives. */
  protected live(leader: ProcessIdentity): void {
    this.#leader = leader;
  }

  /** The leader has ended; what it left is looked for. */
  protected exited(exit: Exit): void {
    if (this.#exit !== null) return;
    this.#exit = exit;
    this.#pauseMs = pauseFirstMs;
    if (this.#phase.name === 'running') this.#enter({ name: 'killing', sinceMs: performance.now() });
    // Where trees cannot be followed the group is all that can be ended, and only now is its number surely ours.
    if (!this.setup.table.lists && this.#leader !== null && this.mayBeEnded) this.setup.table.signalGroup(this.#leader.pid, 'SIGKILL');
    this.setup.sweeper.plan(this, 0);
  }

  /** It never lived. */
  protected async neverLived(reason: string, typed: LeaseholdError | null): Promise<void> {
    this.#enter({ name: 'gone' });
    this.setup.handlers.onSpawnFailed(this.generation, reason, typed);
    await this.#over();
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
    // A wrapper shell passes no signal on, so the whole group is told; a stopped process would keep the signal waiting.
    for (const signal of ['SIGTERM', 'SIGCONT'] as const) this.#signalGroup(signal);
  }

  #kill(): void {
    this.#enter({ name: 'killing', sinceMs: performance.now() });
    this.#pauseMs = pauseFirstMs;
    if (this.#leader !== null && this.#exit === null) {
      // Who belongs to it is seen best while it lives: afterwards its children have another parent.
      const rows = this.setup.table.list();
      if (rows !== null) this.members(rows);
    }
    this.#killGroup();
    this.setup.sweeper.plan(this, 0);
  }

  #killGroup(): void {
    this.#signalGroup('SIGKILL');
  }

  /** Once the leader is reaped its number may be somebody else's: then its members are ended one by one. */
  #signalGroup(signal: NodeJS.Signals): void {
    if (this.#leader === null || this.#exit !== null || !this.mayBeEnded || !this.mayBeSignalled(this.#leader)) return;
    this.setup.table.signalGroup(this.#leader.pid, signal);
  }

  #killMembers(members: readonly ProcessRow[]): void {
    if (!this.mayBeEnded) return;
    for (const { pid, startTime } of members) {
      const isLeader = pid === this.#leader?.pid;
      if (isLeader && this.#exit !== null) continue;
      const outcome = signalIdentity(this.setup.table, { pid, startTime }, 'SIGKILL');
      if (!isLeader && outcome !== 'gone') this.#reaped.set(pid, { pid, startTime });
    }
    if (!this.setup.table.lists) this.#killGroup();
  }

  #giveUp(members: readonly ProcessRow[]): void {
    if (this.#unconfirmed) return;
    this.#unconfirmed = true;
    const left = members.map(({ pid }) => pid).join(', ');
    const what = left === '' ? 'its end was not seen' : `pid ${left} still lives`;
    const sent = this.mayBeEnded ? `SIGKILL was sent ${durationText(this.setup.limits.killConfirmMs)} ago` : 'it does not prove to be ours, and is not signalled';
    this.setup.handlers.onKillUnconfirmed(this.generation, `${sent} and ${what}`);
    this.#settleOver();
  }

  async #finish(exit: Exit): Promise<void> {
    const words = await this.lastWords(exit);
    this.setup.handlers.onExited(this.generation, { exitCode: exit.code, signal: exit.signal, ...words, reaped: [...this.#reaped.values()] });
    await this.#over();
  }

  async #over(): Promise<void> {
    this.setup.onOver(this.generation);
    await this.dismissed();
    this.#settleOver();
  }

  #root(): TreeRoot | null {
    return this.#leader === null ? null : { leader: this.#leader, token: this.setup.token, seen: this.#seen };
  }
}
