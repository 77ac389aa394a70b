/** Runs the rounds of all processes that are on their way out over one listing of the system, however many there are. */
import type { ProcessRow, ProcessTable } from './process-table.js';

export interface Sweepable {
  /** One round over a listing taken just now; null: none could be taken, so nobody's end is confirmed. Returns the pause before the next, in ms, or null: no more rounds. */
  sweep(rows: readonly ProcessRow[] | null): number | null;
}

export class Sweeper {
  readonly #table: ProcessTable;
  readonly #due = new Map<Sweepable, number>();
  #timer: NodeJS.Timeout | null = null;

  constructor(table: ProcessTable) {
    this.#table = table;
  }

  /** A round for `who` in `pauseMs`; it replaces the one that was planned. */
  plan(who: Sweepable, pauseMs: number): void {
    this.#due.set(who, performance.now() + pauseMs);
    this.#schedule();
  }

  close(): void {
    this.#due.clear();
    this.#schedule();
  }

  #schedule(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#due.size === 0) return;
    const nextMs = Math.min(...this.#due.values());
    this.#timer = setTimeout(() => this.#round(), Math.max(0, nextMs - performance.now()));
  }

  #round(): void {
    const nowMs = performance.now();
    const rows = this.#table.list();
    // Those due within a moment go along: a listing costs more than a round too early.
    const ready = [...this.#due].filter(([, dueMs]) => dueMs <= nowMs + 5).map(([who]) => who);
    for (const who of ready) this.#due.delete(who);
    for (const who of ready) {
      const pauseMs = who.sweep(rows);
      if (pauseMs !== null) this.#due.set(who, performance.now() + pauseMs);
    }
    this.#schedule();
  }
}
