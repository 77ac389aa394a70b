/** Events to one subscriber. One that reads too slowly loses the newest and is told how many; it never holds up the loop. */
import type { Channel } from '../../protocol/node/index.js';
import { monotonicUs } from '../../protocol/node/clock.js';

export class Subscription {
  readonly #channel: Channel<'control'>;
  readonly #unsentBytesMax: number;
  #seq = 0;
  #dropped = 0;

  constructor(channel: Channel<'control'>, unsentBytesMax: number) {
    this.#channel = channel;
    this.#unsentBytesMax = unsentBytesMax;
  }

  publish(name: string, data: Readonly<Record<string, unknown>>): void {
    if (this.#channel.unsentBytes > this.#unsentBytesMax) {
      this.#dropped += 1;
      return;
    }
    this.#seq += 1;
    this.#channel.send({ type: 'event', seq: this.#seq, atUs: monotonicUs(), name, json: JSON.stringify(data), dropped: this.#dropped });
    this.#dropped = 0;
  }
}
