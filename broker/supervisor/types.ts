/** What the supervisor is asked and what it tells. One file a phase: spawn, guard, output, terminate, descendants, watch. */
import type { LeaseholdError } from '../../protocol/index.js';

/** A process is named by pid and start time (field 22 of /proc/PID/stat): a pid alone may be somebody else by now (B88). */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks since boot as text; null where the platform does not tell. */
  readonly startTime: string | null;
}

export interface SpawnRequest {
  readonly generation: string;
  readonly spawnId: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Added to a cleaned copy of our environment; holds the key, the socket, the visible cards. Never in argv, never logged. */
  readonly env: Readonly<Record<string, string>>;
}

/** A process of an earlier broker, as its record has it. */
export interface AdoptRequest {
  readonly generation: string;
  readonly token: string;
  /** Null: the record was written before the process lived; it is found by its token. */
  readonly identity: ProcessIdentity | null;
  readonly guard: ProcessIdentity | null;
}

/** What another broker must know to find a process of ours. */
export interface Tracked {
  readonly token: string;
  /** Null: it is about to be started. */
  readonly identity: ProcessIdentity | null;
  /** The shell that ends it when we are gone for too long; null where there is none. */
  readonly guard: ProcessIdentity | null;
}

/** How a process ended, for people and for the core. */
export interface Obituary {
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** "exit code 3", "SIGKILL", … */
  readonly how: string;
  /** The last lines of its output, bounded. */
  readonly lastLines: readonly string[];
  /** Descendants found alive after it and ended. */
  readonly reaped: readonly ProcessIdentity[];
}

export interface SupervisorHandlers {
  onSpawned(generation: string, identity: ProcessIdentity): void;
  /** To be put on record; called before the process is started, when it lives, and when its guard is another. A throw before the start is why there is none. */
  onTracked?(generation: string, tracked: Tracked): void;
  /** The executable could not be started at all. */
  /** `typed`: the error behind it, where it is one that says what to do. */
  onSpawnFailed(generation: string, reason: string, typed: LeaseholdError | null): void;
  /** Confirmed: the process, its group and every process carrying its token are gone. */
  onExited(generation: string, obituary: Obituary): void;
  /** SIGKILL went out and the end is not confirmed within killConfirmMs. It is watched on; onExited may still follow. */
  onKillUnconfirmed(generation: string, reason: string): void;
  onOutput(generation: string, stream: 'stdout' | 'stderr', line: string): void;
}

export interface Supervisor {
  /** Starts a process in a group of its own with a guard that ends the tree when we die (D37). */
  spawn(request: SpawnRequest): void;
  /** Takes over what a broker before us started: guarded, watched and ended like one of ours. False: nothing of it lives. What its leader left behind is ended, and told as its exit. */
  adopt(request: AdoptRequest): boolean;
  /** It has proven itself by its key: from now on it may be signalled, though its environment no longer tells whose it is. */
  vouch(generation: string): void;
  /** Idempotent ladder: `askFirst` (the shutdown message), SIGTERM, graceMs, SIGKILL of the whole tree, confirmation. */
  terminate(generation: string, graceMs: number, reason: string): void;
  /** Tells once when a process that we did not spawn (a holder) is gone by pid and start time. */
  watch(generation: string, identity: ProcessIdentity): void;
  unwatch(generation: string): void;
  /** Pids of this generation's tree: itself and its descendants. */
  pidsOf(generation: string): readonly number[];
  /** The generation whose tree a pid is in, or was when a driver was asked just before; null: none of ours. For a driver's figures by pid. */
  ownerOf(pid: number): string | null;
  identityOf(generation: string): ProcessIdentity | null;
  /** Ends everything, in parallel, and resolves when each end is confirmed or given up. */
  close(graceMs: number): Promise<void>;
}
