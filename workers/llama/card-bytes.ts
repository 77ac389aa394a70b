/**
 * One model's bytes on its card, by name. A real card is charged by the driver as the engine allocates, so there this
 * only keeps count; a simulated card is allocated from, and may refuse; without a card every figure is zero.
 */
import type { CardAllocation, EngineContext } from '../runtime/engine.js';
import type { StartedLlama } from './started.js';

export interface MemoryUsage {
  readonly ram: number;
  readonly vram: number;
}

export class CardBytes {
  readonly #held = new Map<string, { readonly bytes: number; readonly allocation: CardAllocation | null }>();

  constructor(private readonly started: StartedLlama, private readonly device: string) {}

  /** What of `usage` counts on this card. */
  countOf(usage: MemoryUsage): number {
    const { card, backend } = this.started;
    if (card === null) return 0;
    return Math.ceil(backend === 'cpu' ? usage.ram : usage.vram);
  }

  /** Takes what `usage` says under `name`. Rejects with the card's `out_of_memory`; then nothing is held under it. */
  async take(name: string, usage: MemoryUsage): Promise<number> {
    const bytes = this.countOf(usage);
    const simulated = this.started.card?.simulated === true && bytes > 0;
    const allocation = simulated ? await this.#allocator.allocate(this.device, bytes) : null;
    this.#held.set(name, { bytes, allocation });
    return bytes;
  }

  /** Gives back what is held under `name`. */
  async give(name: string): Promise<void> {
    const held = this.#held.get(name);
    if (held === undefined) return;
    await held.allocation?.free();
    this.#held.delete(name);
  }

  /** Gives everything back: all of it is tried, then the first refusal is thrown. */
  async giveAll(): Promise<void> {
    const results = await Promise.allSettled([...this.#held.keys()].map((name) => this.give(name)));
    const refused = results.find((result) => result.status === 'rejected');
    if (refused !== undefined) throw refused.reason;
  }

  get totalBytes(): number {
    let total = 0;
    for (const { bytes } of this.#held.values()) total += bytes;
    return total;
  }

  get #allocator(): EngineContext['allocator'] {
    return this.started.context.allocator;
  }
}
