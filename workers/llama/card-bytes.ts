/**
 * One model's bytes on its card, by name. A real card is charged by the driver as the engine allocates, so there this
 * only keeps count; a simulated card is allocated from, and may refuse; without a card every figure is zero. On several
 * simulated cards each holds its share.
 */
import type { LeasePart } from '../../protocol/index.js';
import type { CardAllocation, CardFigures, EngineContext } from '../runtime/engine.js';
import { readShares, splitBytes } from '../runtime/shares.js';
import { onCardBytes, type Shape } from './inspect.js';
import { spreadOver } from './spread.js';
import type { StartedLlama } from './started.js';

export interface MemoryUsage {
  readonly ram: number;
  readonly vram: number;
}

/** What is held under one name: on each card, in their order. */
interface Held {
  readonly bytesByCard: readonly number[];
  readonly allocations: CardAllocation[];
}

export class CardBytes {
  readonly #held = new Map<string, Held>();
  readonly #devices: readonly string[];
  readonly #shares: readonly number[];

  /** Throws `input_invalid` for a split that is not one share a card. */
  constructor(private readonly started: StartedLlama, device: string, split: string | null, private readonly layers: Shape['layers']) {
    const spread = spreadOver(started);
    this.#devices = spread.length > 1 ? spread : [device];
    this.#shares = this.#devices.length > 1 ? readShares(split, this.#devices.length, 'options.tensorSplit') : [1];
  }

  /** What of `usage` counts on this card. */
  countOf(usage: MemoryUsage): number {
    const { card, backend } = this.started;
    if (card === null) return 0;
    return backend === 'cpu' ? onCardBytes(this.layers, usage.ram) : Math.ceil(usage.vram);
  }

  /** Takes what `usage` says under `name`. Rejects with the card's `out_of_memory`; then nothing is held under it. */
  async take(name: string, usage: MemoryUsage): Promise<number> {
    const bytes = this.countOf(usage);
    const held: Held = { bytesByCard: splitBytes(bytes, this.#shares), allocations: [] };
    try {
      for (const [index, device] of this.#devices.entries()) await this.#allocate(held, device, held.bytesByCard[index] ?? 0);
    } catch (error) {
      await freeAll(held);
      throw error;
    }
    this.#held.set(name, held);
    return bytes;
  }

  /** On each card, in their order; undefined where there is one. */
  byCard(name: string): readonly number[] | undefined {
    return this.#devices.length > 1 ? this.#held.get(name)?.bytesByCard : undefined;
  }

  /** What is on each card, of which `parts` are the model’s own; undefined where there is one. */
  figures(parts: readonly LeasePart[]): readonly CardFigures[] | undefined {
    if (this.#devices.length < 2) return undefined;
    return this.#devices.map((_, index) => ({
      measuredParts: parts.map((part) => ({ ...part, bytes: this.#held.get(part.name)?.bytesByCard[index] ?? 0 })),
      residentBytes: () => [...this.#held.values()].reduce((sum, { bytesByCard }) => sum + (bytesByCard[index] ?? 0), 0),
    }));
  }

  /** Gives back what is held under `name`. */
  async give(name: string): Promise<void> {
    const held = this.#held.get(name);
    if (held === undefined) return;
    await freeAll(held);
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
    for (const { bytesByCard } of this.#held.values()) for (const bytes of bytesByCard) total += bytes;
    return total;
  }

  async #allocate(held: Held, device: string, bytes: number): Promise<void> {
    if (this.started.card?.simulated === true && bytes > 0) held.allocations.push(await this.#allocator.allocate(device, bytes));
  }

  get #allocator(): EngineContext['allocator'] {
    return this.started.context.allocator;
  }
}

/** All of it is tried, then the first refusal is thrown. */
async function freeAll({ allocations }: Held): Promise<void> {
  const results = await Promise.allSettled(allocations.map((allocation) => allocation.free()));
  const refused = results.find((result) => result.status === 'rejected');
  if (refused !== undefined) throw refused.reason;
}
