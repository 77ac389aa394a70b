/** Hands each worker its share of CPU threads; the sum stays at most max(1, cores - 1) while more than one thread is left (D36). */
export class ThreadShares {
  readonly #total: number;
  readonly #share: number;
  readonly #taken = new Map<string, number>();

  constructor(cores: number, expectedWorkers: number) {
    this.#total = Math.max(1, cores - 1);
    this.#share = Math.max(1, Math.floor(this.#total / Math.max(1, expectedWorkers)));
  }

  take(generation: string): number {
    const used = [...this.#taken.values()].reduce((sum, threads) => sum + threads, 0);
    const threads = Math.max(1, Math.min(this.#share, this.#total - used));
    this.#taken.set(generation, threads);
    return threads;
  }

  /** A worker of an earlier broker goes on with what it has. */
  keep(generation: string, threads: number): void {
    this.#taken.set(generation, threads);
  }

  giveBack(generation: string): void {
    this.#taken.delete(generation);
  }
}
