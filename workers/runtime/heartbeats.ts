/** Signs of life on a timer of their own, apart from any call: late only when this process's loop is. */
import { nowUs } from './clock.js';
import type { Control, ControlChannel } from './control.js';

export class Heartbeats {
  readonly #channel: ControlChannel;
  readonly #read: () => Pick<Control<'heartbeat'>, 'reserved' | 'inFlight'>;
  #timer: NodeJS.Timeout | null = null;
  #expectedAtUs = 0;

  constructor(channel: ControlChannel, read: () => Pick<Control<'heartbeat'>, 'reserved' | 'inFlight'>) {
    this.#channel = channel;
    this.#read = read;
  }

  start(intervalMs: number): void {
    this.#expectedAtUs = nowUs();
    this.#beat(intervalMs);
    this.#timer = setInterval(() => { this.#beat(intervalMs); }, intervalMs);
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  #beat(intervalMs: number): void {
    const atUs = nowUs();
    const loopDelayMs = Math.max(0, Math.round((atUs - this.#expectedAtUs) / 1000));
    this.#expectedAtUs = atUs + intervalMs * 1000;
    this.#channel.send({ type: 'heartbeat', atUs, loopDelayMs, ...this.#read() });
  }
}
