/** Watches processes that we did not start: one look at all of them from time to time, and one word when one is gone. */
import { isAlive, type ProcessTable } from './process-table.js';
import type { ProcessIdentity } from './types.js';

export class Watcher {
  readonly #table: ProcessTable;
  readonly #intervalMs: number;
  readonly #onGone: (generation: string) => void;
  readonly #speaks: (generation: string) => boolean;
  readonly #watched = new Map<string, ProcessIdentity>();
  #timer: NodeJS.Timeout | null = null;

  /** `speaks`: whoever has its connection is heard on it; then something of it lives on, whatever became of its pid. */
  constructor(table: ProcessTable, intervalMs: number, onGone: (generation: string) => void, speaks: (generation: string) => boolean = () => false) {
    this.#table = table;
    this.#speaks = speaks;
    this.#intervalMs = intervalMs;
    this.#onGone = onGone;
  }

  identityOf(generation: string): ProcessIdentity | null {
    return this.#watched.get(generation) ?? null;
  }

  /** A start time that is not known yet is taken now: from here on that process is meant, and no later one of its pid. */
  watch(generation: string, identity: ProcessIdentity): void {
    const startTime = identity.startTime ?? this.#table.find(identity.pid)?.startTime ?? null;
    this.#watched.set(generation, { pid: identity.pid, startTime });
    if (this.#timer !== null) return;
    this.#timer = setInterval(() => this.#look(), this.#intervalMs);
    this.#timer.unref();
  }

  unwatch(generation: string): void {
    this.#watched.delete(generation);
    if (this.#watched.size === 0) this.close();
  }

  close(): void {
    this.#watched.clear();
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  #look(): void {
    for (const [generation, identity] of this.#watched) {
      if (isAlive(this.#table, identity) || this.#speaks(generation)) continue;
      this.unwatch(generation);
      this.#onGone(generation);
    }
  }
}
