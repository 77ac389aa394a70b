/** Bytes on a simulated card, over the control plane: what an engine on a real card gets from its driver (D26). */
import { LeaseholdError } from '../../protocol/index.js';
import type { ControlChannel } from './control.js';
import type { CardAllocation, CardAllocator } from './engine.js';

export class ControlCardAllocator implements CardAllocator {
  readonly #channel: ControlChannel;
  readonly #timeoutMs: number;

  constructor(channel: ControlChannel, timeoutMs: number) {
    this.#channel = channel;
    this.#timeoutMs = timeoutMs;
  }

  async allocate(device: string, bytes: number): Promise<CardAllocation> {
    const answer = await this.#channel.request({ type: 'card_allocate', device, bytes }, { timeoutMs: this.#timeoutMs });
    if (answer.type === 'card_oom') {
      throw new LeaseholdError('out_of_memory', { device, wantedBytes: answer.wantedBytes, freeBytes: answer.freeBytes });
    }
    if (answer.type !== 'card_allocated') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers card_allocate' });
    return this.#allocation(device, bytes, answer.allocation);
  }

  #allocation(device: string, bytes: number, allocation: number): CardAllocation {
    let freed: Promise<void> | null = null;
    const free = async (): Promise<void> => {
      await this.#channel.request({ type: 'card_free', device, allocation }, { timeoutMs: this.#timeoutMs });
    };
    return { bytes, free: () => (freed ??= free()) };
  }
}
