/**
 * Connections of nobody yet: those that have not said who they are. A crowd that comes at once is read before anybody is
 * judged, and leaves by saying hello; only of those that are silent too many are dropped, and the longest silent first.
 */
import { LeaseholdError } from '../errors.js';
import type { Limits } from '../limits.js';

export interface AnteroomOptions {
  readonly limits: Pick<Limits, 'preAuthConnectionsMax' | 'helloPatienceMs'>;
  /** Places for greeted peers that nobody has: those here may use them meanwhile. */
  readonly freePlaces: () => number;
}

export class Anteroom<C extends { destroy(reason: LeaseholdError): void }> {
  readonly #options: AnteroomOptions;
  /** When each came, the longest silent first. */
  readonly #sinceMs = new Map<C, number>();
  #judging = false;
  /** Looks again when the longest silent has had its time. */
  #again: NodeJS.Timeout | null = null;

  constructor(options: AnteroomOptions) {
    this.#options = options;
  }

  enter(connection: C): void {
    this.#sinceMs.set(connection, performance.now());
    if (this.#sinceMs.size > this.#options.limits.preAuthConnectionsMax) this.#judgeSoon();
  }

  /** It has said who it is, or is gone. */
  leave(connection: C): void {
    this.#sinceMs.delete(connection);
  }

  [Symbol.iterator](): IterableIterator<C> {
    return this.#sinceMs.keys();
  }

  /** After the loop has read what those who came in this turn have sent, in the next one: what was sent in time counts, however late we are. */
  #judgeSoon(): void {
    if (this.#judging) return;
    this.#judging = true;
    setImmediate(() => {
      setImmediate(() => {
        this.#judging = false;
        this.#judge();
      });
    });
  }

  /** Of more than there may be, the longest silent go: at once where no place is left, else when they have had time for a hello. */
  #judge(): void {
    const { limits: { preAuthConnectionsMax, helloPatienceMs }, freePlaces } = this.#options;
    for (const [connection, sinceMs] of this.#sinceMs) {
      if (this.#sinceMs.size <= preAuthConnectionsMax) return;
      const hasPlace = this.#sinceMs.size <= preAuthConnectionsMax + Math.max(0, freePlaces());
      const leftMs = sinceMs + helloPatienceMs - performance.now();
      if (hasPlace && leftMs > 0) {
        this.#again ??= setTimeout(() => {
          this.#again = null;
          this.#judgeSoon();
        }, leftMs).unref();
        return;
      }
      this.#sinceMs.delete(connection);
      connection.destroy(new LeaseholdError('too_many_sessions', { limit: preAuthConnectionsMax }));
    }
  }
}
