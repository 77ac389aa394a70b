/** Bytes on a simulated card, over the control plane: what an engine on a real card gets from its driver (D26). */
import { LeaseholdError, type ControlMessage } from '../../protocol/index.js';
import type { Control, ControlChannel } from './control.js';
import type { CardAllocation, CardAllocator } from './engine.js';

type Frame = Omit<Control<'card_allocate'>, 'id'> | Omit<Control<'card_free'>, 'id'>;

export class ControlCardAllocator implements CardAllocator {
  readonly #channel: ControlChannel;
  readonly #timeoutMs: number;
  #names = 0;

  constructor(channel: ControlChannel, timeoutMs: number) {
    this.#channel = channel;
    this.#timeoutMs = timeoutMs;
  }

  /** Named, so that one whose answer was lost with the broker is not taken twice. While the broker is sought it waits for as long as that lasts, as it would for a driver. */
  async allocate(device: string, bytes: number): Promise<CardAllocation> {
    this.#names += 1;
    const name = String(this.#names);
    const answer = await this.#asked({ type: 'card_allocate', device, bytes, name });
    if (answer.type === 'card_oom') {
      throw new LeaseholdError('out_of_memory', { device, wantedBytes: answer.wantedBytes, freeBytes: answer.freeBytes });
    }
    if (answer.type !== 'card_allocated') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers card_allocate' });
    return this.#allocation(device, bytes, answer.allocation);
  }

  #allocation(device: string, bytes: number, allocation: number): CardAllocation {
    let freed: Promise<void> | null = null;
    let asked = 0;
    const free = async (): Promise<void> => {
      try {
        await this.#asked({ type: 'card_free', device, allocation }, () => { asked += 1; });
      } catch (error) {
        // Asked for the second time, it may be gone since the first.
        if (asked < 2 || LeaseholdError.from(error).code !== 'input_invalid') throw error;
      }
    };
    return { bytes, free: () => (freed ??= free()) };
  }

  /** Asks until there is an answer: the limit is for each asking, not for the time in which nobody is there. */
  async #asked(frame: Frame, onAsked: () => void = () => undefined): Promise<ControlMessage> {
    for (;;) {
      await this.#channel.reattached();
      onAsked();
      try {
        return await this.#channel.request(frame, { timeoutMs: this.#timeoutMs });
      } catch (error) {
        if (this.#channel.open) throw error;
      }
    }
  }
}
