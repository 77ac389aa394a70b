/**
 * What this process costs on its card besides its models, while it computes. The first token of a process is in the floor
 * that was measured at its start; real contexts take more with the first prompt of a size (work space of the driver's
 * libraries) and give it back when they close. None of that is in any lease: models and contexts are leased as the engine
 * counts them, and what it counts is taken off here.
 */

export interface FloorSources {
  /** Used bytes of the whole card, as this process reads them. */
  usedBytes(): Promise<number>;
  /** What the engine counts as taken for models and contexts. */
  leasedBytes(): Promise<number>;
  /** Equal texts: nothing of others on the card has moved between. Null: something moves. Never rejects. */
  neighbours(): Promise<string | null>;
  /** The whole floor has risen to so much. */
  report(bytes: number): void;
}

interface Place {
  /** The most tokens that were computed at once. */
  tokens: number;
  riseBytes: number;
}

/** More at once is somebody else's. */
const riseBytesMax = 2 * 1024 * 1024 * 1024;

export class FloorMeter {
  readonly #places = new Map<string, Place>();
  #toldBytes: number;

  /** `startBytes`: measured at the start, with the first token. */
  constructor(private readonly startBytes: number, private readonly sources: FloorSources) {
    this.#toldBytes = startBytes;
  }

  /**
   * To be waited for before `place` (a context) computes `tokens` at once; what it resolves to is called right after.
   * Looks only where that is more than ever before there. A card on which others moved meanwhile tells nothing: then the
   * headroom of the lease and the driver's figure for the process have to do. Never rejects.
   */
  async begin(place: string, tokens: number): Promise<() => void> {
    const known = this.#places.get(place) ?? { tokens: 0, riseBytes: 0 };
    if (tokens <= known.tokens) return () => undefined;
    this.#places.set(place, known);
    const before = await this.#look();
    return () => {
      known.tokens = Math.max(known.tokens, tokens);
      void this.#look().then((after) => riseBetween(before, after)).then((riseBytes) => {
        if (riseBytes <= 0 || this.#places.get(place) !== known) return;
        known.riseBytes += riseBytes;
        this.#tell();
      });
    };
  }

  /** The context has been closed, and what it took with it. */
  forget(place: string): void {
    this.#places.delete(place);
  }

  #tell(): void {
    const bytes = [...this.#places.values()].reduce((sum, { riseBytes }) => sum + riseBytes, this.startBytes);
    if (bytes <= this.#toldBytes) return;
    this.#toldBytes = bytes;
    this.sources.report(bytes);
  }

  /** The neighbours are asked for and not waited for: a call must not wait for the broker. */
  async #look(): Promise<Look> {
    const neighbours = this.sources.neighbours();
    try {
      const [usedBytes, leasedBytes] = await Promise.all([this.sources.usedBytes(), this.sources.leasedBytes()]);
      return { besideBytes: usedBytes - leasedBytes, neighbours };
    } catch {
      // The engine is being closed, or its card has gone: whoever computes there hears of it, and this look tells nothing.
      return { besideBytes: NaN, neighbours };
    }
  }
}

interface Look {
  readonly besideBytes: number;
  readonly neighbours: Promise<string | null>;
}

/** 0 when nothing is known of it. */
async function riseBetween(before: Look, after: Look): Promise<number> {
  const [first, last] = await Promise.all([before.neighbours, after.neighbours]);
  const bytes = Math.ceil(after.besideBytes - before.besideBytes);
  return first !== null && first === last && bytes <= riseBytesMax ? bytes : 0;
}
