/**
 * Bodies out of chunks, one at a time, to whoever reads; reading can be stopped
 * between any two of them, also in the middle of a chunk, and nothing is lost.
 * Of one peer only so many are handed out before the others have their turn.
 */
import type { LeaseholdError } from '../errors.js';
import { FrameDecoder, type FrameEnd } from '../frame.js';

export interface BodyReaderEvents {
  /** May pause or stop the reader. */
  onBody(body: Uint8Array): void;
  /** A length above the limit: once, after the bodies before it. */
  onFault(fault: LeaseholdError): void;
  /** The rest comes in the next turn of the loop: until `onNextTurn` nothing need be read. */
  onTurnSpent(): void;
  onNextTurn(): void;
}

/** Bodies of one peer in one turn of the loop, which is some milliseconds of the broker's: more wait until others were heard. */
export const bodiesPerTurnMax = 64;

export class BodyReader {
  readonly #decoder: FrameDecoder;
  readonly #events: BodyReaderEvents;
  /** Bodies that have come, and the first of them that was not handed out. */
  #bodies: Uint8Array[] = [];
  #next = 0;
  #waitingBytes = 0;
  #state: 'reading' | 'yielding' | 'spent' | 'paused' | 'stopped' = 'reading';
  /** Bodies that may still be handed out in this turn. */
  #left = bodiesPerTurnMax;

  constructor(bodyBytesMax: number, events: BodyReaderEvents) {
    this.#decoder = new FrameDecoder(bodyBytesMax);
    this.#events = events;
  }

  get reading(): boolean {
    return this.#state === 'reading';
  }

  /** What has come and is not handed out. */
  get heldBytes(): number {
    return this.#decoder.heldBytes + this.#waitingBytes;
  }

  get paused(): boolean {
    return this.#state === 'paused';
  }

  setBodyBytesMax(bytes: number): void {
    this.#decoder.setBodyBytesMax(bytes);
  }

  push(chunk: Uint8Array): void {
    if (this.#state === 'stopped') return;
    for (const body of this.#decoder.push(chunk)) {
      this.#bodies.push(body);
      this.#waitingBytes += body.length;
    }
    if (this.reading) this.#left = bodiesPerTurnMax;
    this.#handOut();
  }

  /** What was handed out last was work enough for one turn. */
  spendTurn(): void {
    if (this.#state !== 'reading') return;
    this.#state = 'spent';
    this.#events.onTurnSpent();
    setImmediate(() => {
      // It may have been paused and resumed meanwhile, or have ended.
      if (this.#state === 'spent') this.#resume();
      if (this.#state !== 'spent') this.#events.onNextTurn();
    });
  }

  pause(): void {
    if (this.#state !== 'stopped') this.#state = 'paused';
  }

  /**
   * What is handed out next comes after everything that promises settled by now
   * lead to: who awaits an answer acts on it before whoever hears what was sent
   * after it. Within this turn of the loop, so that no tick comes between.
   */
  yield(): void {
    if (this.#state !== 'reading') return;
    this.#state = 'yielding';
    // From within a microtask: a tick asked for there comes when no microtask is left, however long their chain.
    queueMicrotask(() => process.nextTick(() => { if (this.#state === 'yielding') this.#resume(); }));
  }

  /** Hands out what was held back first. */
  resume(): void {
    if (this.#state === 'paused') this.#resume();
  }

  /** Hands out what there is, because nothing more will come; what is paused again by it stays. */
  flush(): void {
    if (this.#state !== 'stopped') this.#resume(Infinity);
  }

  /** For good: nothing is handed out any more. */
  stop(): void {
    this.#state = 'stopped';
    this.#forget();
  }

  /** How the stream ended, to be asked at its end. */
  end(): FrameEnd {
    return this.#decoder.end();
  }

  #resume(left = bodiesPerTurnMax): void {
    this.#state = 'reading';
    this.#left = left;
    this.#handOut();
  }

  #handOut(): void {
    // Looked at anew each time: handing one out may change it, and may hand out those after it.
    while (this.reading && this.#next < this.#bodies.length) {
      if (this.#left-- === 0) {
        this.spendTurn();
        return;
      }
      const body = this.#bodies[this.#next++] as Uint8Array;
      this.#waitingBytes -= body.length;
      this.#events.onBody(body);
    }
    if (this.#next < this.#bodies.length) return;
    this.#forget();
    if (this.reading && this.#decoder.fault !== null) this.#events.onFault(this.#decoder.fault);
  }

  #forget(): void {
    this.#bodies = [];
    this.#next = 0;
    this.#waitingBytes = 0;
  }
}
