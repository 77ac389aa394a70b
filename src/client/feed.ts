/** The broker's events for any number of readers: one subscription on the wire, a bounded queue for each reader. */
import type { LeaseholdError, ControlMessage } from '../../protocol/index.js';

export interface BrokerEvent {
  readonly seq: number;
  /** CLOCK_MONOTONIC, microseconds. */
  readonly atUs: number;
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** Events that this reader lost just before this one, because it read too slowly. */
  readonly dropped: number;
}

export class Feed {
  readonly #subscribe: () => Promise<void>;
  readonly #eventsMax: number;
  readonly #readers = new Set<Reader>();
  #subscribed: Promise<void> | null = null;
  #ended: LeaseholdError | null = null;

  /** `subscribe` asks the broker; it is called once, with the first reader, and again for each broker after the first. */
  constructor(subscribe: () => Promise<void>, eventsMax: number) {
    this.#subscribe = subscribe;
    this.#eventsMax = eventsMax;
  }

  /** A reader begins to hear when it is first asked for an event, and goes when its loop is left. */
  subscribe(signal: AbortSignal | undefined): AsyncIterable<BrokerEvent, undefined> {
    return { [Symbol.asyncIterator]: () => this.#reader(signal) };
  }

  push(event: Extract<ControlMessage, { readonly type: 'event' }>): void {
    const { seq, atUs, name, dropped } = event;
    const data = JSON.parse(event.json) as BrokerEvent['data'];
    for (const reader of this.#readers) reader.push({ seq, atUs, name, data, dropped });
  }

  /** The broker is another: it is asked anew. What happened meanwhile nobody tells. */
  resubscribe(): void {
    if (this.#subscribed === null) return;
    this.#subscribed = this.#subscribe();
    // One that fails is asked for again by the next reader; a session that has ended tells its readers itself.
    this.#subscribed.catch(() => { this.#subscribed = null; });
  }

  /** A session that we closed ends its readers' loops; one that was lost fails them. */
  end(error: LeaseholdError): void {
    this.#ended = error;
    for (const reader of this.#readers) reader.end(error.code === 'closed' ? null : error);
    this.#readers.clear();
  }

  #reader(signal: AbortSignal | undefined): AsyncIterator<BrokerEvent, undefined> {
    const reader = new Reader(this.#eventsMax);
    let begun: Promise<void> | null = null;
    const leave = (): void => {
      this.#readers.delete(reader);
      signal?.removeEventListener('abort', leave);
      reader.end(null);
    };
    const begin = async (): Promise<void> => {
      if (this.#ended !== null) throw this.#ended;
      if (signal?.aborted === true) {
        reader.end(null);
        return;
      }
      this.#readers.add(reader);
      signal?.addEventListener('abort', leave, { once: true });
      // A subscription that failed is asked for again by the next reader.
      this.#subscribed ??= this.#subscribe().catch((error: unknown) => {
        this.#subscribed = null;
        throw error;
      });
      await this.#subscribed;
    };
    return {
      next: async () => {
        await (begun ??= begin());
        return reader.next();
      },
      return: () => {
        leave();
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }
}

class Reader {
  readonly #eventsMax: number;
  #events: BrokerEvent[] = [];
  #dropped = 0;
  #wakers: (() => void)[] = [];
  /** Undefined: open; null: left. */
  #ended: LeaseholdError | null | undefined = undefined;

  constructor(eventsMax: number) {
    this.#eventsMax = eventsMax;
  }

  push(event: BrokerEvent): void {
    if (this.#events.length >= this.#eventsMax) {
      const lost = this.#events.shift();
      this.#dropped += 1 + (lost?.dropped ?? 0);
    }
    this.#events.push(event);
    this.#wake();
  }

  end(error: LeaseholdError | null): void {
    if (this.#ended === undefined) this.#ended = error;
    this.#wake();
  }

  async next(): Promise<IteratorResult<BrokerEvent, undefined>> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        const dropped = event.dropped + this.#dropped;
        this.#dropped = 0;
        return { done: false, value: { ...event, dropped } };
      }
      if (this.#ended !== undefined) {
        const error = this.#ended;
        this.#ended = null;
        if (error !== null) throw error;
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => this.#wakers.push(resolve));
    }
  }

  #wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }
}
