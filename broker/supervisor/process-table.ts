/** What the system knows of its processes, and how to signal them: the one place where the supervisor meets the platform. */
import type { ProcessIdentity } from './types.js';

export interface ProcessRow {
  readonly pid: number;
  readonly parentPid: number;
  readonly group: number;
  readonly session: number;
  readonly startTime: string;
  /** Dead and not yet reaped by its parent: it holds nothing any more. */
  readonly ended: boolean;
  /** The value of LEASEHOLD_TOKEN in its environment; null when it has none or is not ours to look into. */
  readonly token: string | null;
}

/** `refused`: it lives and is not ours to signal. */
export type SignalOutcome = 'sent' | 'gone' | 'refused';

export interface ProcessTable {
  /** False where the platform does not list processes with their parents: then trees cannot be followed. */
  readonly lists: boolean;
  /** Every process that can be seen, at this moment; empty where `lists` is false. Null when the system has no means left to look (`isShortage`): then nothing is known. */
  list(): readonly ProcessRow[] | null;
  /** The living process of that pid; null when there is none (a zombie is none). Start time null: the platform does not tell, or cannot now. */
  find(pid: number): ProcessIdentity | null;
  /** The start time of a process, dead or alive, that has not been reaped; null when it is not known. */
  startTime(pid: number): string | null;
  /** A variable in the environment that a living process was started with; null: it has none, or is not ours to look into. */
  variable(pid: number, name: string): string | null;
  signal(pid: number, signal: NodeJS.Signals): SignalOutcome;
  signalGroup(group: number, signal: NodeJS.Signals): SignalOutcome;
}

/** True while that very process lives: the pid, started at that time (B88). */
export function isAlive(table: ProcessTable, identity: ProcessIdentity): boolean {
  const found = table.find(identity.pid);
  return found !== null && (identity.startTime === null || found.startTime === null || found.startTime === identity.startTime);
}

/** Signals that very process and no other that has its pid by now. Between the look and the signal lie microseconds. */
export function signalIdentity(table: ProcessTable, identity: ProcessIdentity, signal: NodeJS.Signals): SignalOutcome {
  const found = table.find(identity.pid);
  if (found === null) return 'gone';
  // Whose pid it is by now cannot be seen at the moment: a stranger is never signalled.
  if (found.startTime === null && identity.startTime !== null) return 'refused';
  return identity.startTime === null || found.startTime === identity.startTime ? table.signal(identity.pid, signal) : 'gone';
}

const shortages = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN', 'EACCES', 'EPERM', 'EIO']);

/** The system could not look: out of descriptors or memory, or /proc is closed to us. It says nothing of any process. */
export function isShortage(error: unknown): boolean {
  return error instanceof Error && 'code' in error && shortages.has(String(error.code));
}

/** kill(2), with its two expected refusals as values. A negative pid is a group. */
export function sendSignal(pid: number, signal: NodeJS.Signals | 0): SignalOutcome {
  try {
    process.kill(pid, signal);
    return 'sent';
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'ESRCH') return 'gone';
    if (code === 'EPERM') return 'refused';
    throw error;
  }
}
