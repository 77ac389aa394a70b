/**
 * What a listener holds for all its peers together: bytes that they do not
 * read, and frames of theirs that have not come whole. Each connection has its
 * own limit; a thousand that each stay below it could still take all memory.
 * When the sum passes its limit, whoever has most is cut off.
 */
import { LeaseholdError } from '../errors.js';

/** One connection as the sum sees it. */
export interface Holding {
  /** Bytes held for it now. */
  readonly heldBytes: number;
  /** Others are cut off before it, unless what they have is little. */
  readonly spared: boolean;
  cutOff(error: LeaseholdError): void;
}

export class HeldTotal {
  readonly #bytesMax: number;
  readonly #holdings = new Set<Holding>();
  /** The sum when it was last counted, and what has been taken since: never less than what is held. */
  #countedBytes = 0;
  #sinceBytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Until the returned function is called. */
  join(holding: Holding): () => void {
    this.#holdings.add(holding);
    return () => { this.#holdings.delete(holding); };
  }

  /** So many bytes were taken for one of them. May cut any of them off. */
  took(bytes: number): void {
    this.#sinceBytes += bytes;
    if (this.#countedBytes + this.#sinceBytes > this.#bytesMax) this.#count();
  }

  /** Below the limit by so much that the next count, a look at every connection, is some way off. */
  #count(): void {
    const wantedBytes = this.#bytesMax - this.#bytesMax / 16;
    this.#countedBytes = 0;
    this.#sinceBytes = 0;
    for (const { heldBytes } of this.#holdings) this.#countedBytes += heldBytes;
    while (this.#countedBytes > wantedBytes) {
      const holding = this.#whoHasMost();
      const bytes = holding.heldBytes;
      this.#countedBytes -= bytes;
      this.#holdings.delete(holding);
      holding.cutOff(new LeaseholdError('peers_hold_too_much', { bytes: this.#countedBytes + bytes, limitBytes: this.#bytesMax, ownBytes: bytes }));
    }
  }

  /** Who is spared is cut off only where no other has its share of the sum: to end the others would free little. */
  #whoHasMost(): Holding {
    const shareBytes = this.#countedBytes / this.#holdings.size;
    const mostOf = (holdings: Iterable<Holding>): Holding | null => {
      let most: Holding | null = null;
      for (const holding of holdings) if (holding.heldBytes > (most?.heldBytes ?? -1)) most = holding;
      return most;
    };
    const other = mostOf([...this.#holdings].filter(({ spared }) => !spared));
    const most = other !== null && other.heldBytes >= shareBytes ? other : mostOf(this.#holdings);
    if (most === null) throw new LeaseholdError('internal', { reason: 'bytes are held for nobody' });
    return most;
  }
}
