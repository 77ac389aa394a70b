/**
 * Bodies out of chunks, one at a time, to whoever reads; reading can be stopped
 * between any two of them, also in the middle of a chunk, and nothing is lost.
 */
import type { LeaseholdError } from '../errors.js';
import { FrameDecoder, type FrameEnd } from '../frame.js';

export interface BodyReaderEvents {
  /** May pause or stop the reader. */
  onBody(body: Uint8Array): void;
  /** A length above the limit: once, after the bodies before it. */
  onFault(fault: LeaseholdError): void;
}

export class BodyReader {
  readonly #decoder: FrameDecoder;
  readonly #events: BodyReaderEvents;
  /** Bodies that came in one chunk with the one at which reading was stopped. */
  #backlog: Uint8Array[] = [];
  #state: 'reading' | 'paused' | 'stopped' = 'reading';

  constructor(bodyBytesMax: number, events: BodyReaderEvents) {
    this.#decoder = new FrameDecoder(bodyBytesMax);
    this.#events = events;
  }

  get reading(): boolean {
    return this.#state === 'reading';
  }

  setBodyBytesMax(bytes: number): void {
    this.#decoder.setBodyBytesMax(bytes);
  }

  push(chunk: Uint8Array): void {
    if (this.#state === 'stopped') return;
    const bodies = this.#decoder.push(chunk);
    if (this.#state === 'paused') this.#backlog.push(...bodies);
    else this.#handOut(bodies);
  }

  pause(): void {
    if (this.#state === 'reading') this.#state = 'paused';
  }

  /** Hands out what was held back first. */
  resume(): void {
    if (this.#state !== 'paused') return;
    this.#state = 'reading';
    const bodies = this.#backlog;
    this.#backlog = [];
    this.#handOut(bodies);
  }

  /** For good: nothing is handed out any more. */
  stop(): void {
    this.#state = 'stopped';
    this.#backlog = [];
  }

  /** How the stream ended, to be asked at its end. */
  end(): FrameEnd {
    return this.#decoder.end();
  }

  #handOut(bodies: readonly Uint8Array[]): void {
    for (let index = 0; index < bodies.length; index++) {
      // Looked at anew each time: handing one out may change it.
      if (!this.reading) {
        if (this.#state === 'paused') this.#backlog = [...bodies.slice(index), ...this.#backlog];
        return;
      }
      this.#events.onBody(bodies[index] as Uint8Array);
    }
    if (this.reading && this.#decoder.fault !== null) this.#events.onFault(this.#decoder.fault);
  }
}
