/**
 * What a call has generated and its reader has not been sent yet. Tokens go
 * out against the reader's credits; the engine may run a bounded number ahead,
 * then it is held. A reader that stops stops only its own calls.
 */
import type { DataMessage } from '../../protocol/index.js';

export type TokenMessage = Extract<DataMessage, { readonly type: 'token' }>;

/** Where messages go: one caller's connection. */
export interface CallerLink {
  readonly open: boolean;
  send(message: DataMessage): void;
  /** True while the connection holds more than it should for a reader that does not take it. */
  readonly congested: boolean;
}

export class Outbox {
  readonly #link: CallerLink;
  readonly #aheadTokensMax: number;
  #waiting: TokenMessage[] = [];
  #waitingTokens = 0;
  #credits: number;
  #sentTokens = 0;
  #listeners: (() => void)[] = [];
  #closed = false;

  constructor(link: CallerLink, credits: number, aheadTokensMax: number) {
    this.#link = link;
    this.#credits = credits;
    this.#aheadTokensMax = aheadTokensMax;
  }

  get sentTokens(): number {
    return this.#sentTokens;
  }

  /** True when the reader has taken too little for the engine to go on. */
  get full(): boolean {
    return !this.#closed && this.#waitingTokens >= this.#aheadTokensMax;
  }

  get empty(): boolean {
    return this.#closed || this.#waiting.length === 0;
  }

  push(message: TokenMessage): void {
    if (this.#closed) return;
    this.#waiting.push(message);
    this.#waitingTokens += message.ids.length;
    this.flow();
  }

  credit(tokens: number): void {
    // Credits are a promise to read; more than this says nothing more.
    this.#credits = Math.min(this.#credits + tokens, Number.MAX_SAFE_INTEGER);
    this.flow();
  }

  /** Sends what may be sent. A message is never split: one larger than the credits left goes whole and is owed. */
  flow(): void {
    let sent = 0;
    while (this.#credits > 0 && !this.#link.congested) {
      const message = this.#waiting[sent];
      if (message === undefined) break;
      sent += 1;
      this.#credits -= Math.max(1, message.ids.length);
      this.#waitingTokens -= message.ids.length;
      this.#sentTokens += message.ids.length;
      this.#link.send(message);
    }
    if (sent === 0) return;
    this.#waiting.splice(0, sent);
    this.#changed();
  }

  /** The next time something was sent, or the end. */
  changed(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => this.#listeners.push(resolve));
  }

  /** Drops what waits: nobody reads it any more. */
  close(): void {
    this.#closed = true;
    this.#waiting = [];
    this.#waitingTokens = 0;
    this.#changed();
  }

  #changed(): void {
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener();
  }
}
