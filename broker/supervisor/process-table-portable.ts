/** Processes where there is no /proc: a pid lives or it does not. Start times and trees are unknown, and said to be. */
import { sendSignal, type ProcessRow, type ProcessTable, type SignalOutcome } from './process-table.js';
import type { ProcessIdentity } from './types.js';

export class PortableProcessTable implements ProcessTable {
  readonly lists = false;
  readonly #groups: boolean;

  constructor(platform: NodeJS.Platform) {
    this.#groups = platform !== 'win32';
  }

  list(): readonly ProcessRow[] {
    return [];
  }

  find(pid: number): ProcessIdentity | null {
    return sendSignal(pid, 0) === 'gone' ? null : { pid, startTime: null };
  }

  startTime(): string | null {
    return null;
  }

  variable(): string | null {
    return null;
  }

  signal(pid: number, signal: NodeJS.Signals): SignalOutcome {
    return sendSignal(pid, signal);
  }

  /** Windows has no process groups to signal: there the leader alone is ended. */
  signalGroup(group: number, signal: NodeJS.Signals): SignalOutcome {
    return sendSignal(this.#groups ? -group : group, signal);
  }
}
