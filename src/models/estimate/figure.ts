/** A number of bytes that says how sure it is and where it comes from. */

export interface Figure {
  /** What to lease: the most, where the engine's behaviour is not known exactly. */
  readonly bytes: number;
  /** The least that it can be. */
  readonly leastBytes: number;
  readonly how: string;
}

export function exact(bytes: number, how: string): Figure {
  return { bytes, leastBytes: bytes, how };
}

export function between(leastBytes: number, bytes: number, how: string): Figure {
  return { bytes: Math.max(leastBytes, bytes), leastBytes: Math.min(leastBytes, bytes), how };
}

export const nothing = (how: string): Figure => exact(0, how);

export function sum(figures: readonly Figure[]): Figure {
  return {
    bytes: figures.reduce((total, { bytes }) => total + bytes, 0),
    leastBytes: figures.reduce((total, { leastBytes }) => total + leastBytes, 0),
    how: figures.map(({ how }) => how).join('; '),
  };
}
