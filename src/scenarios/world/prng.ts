/** A small seeded generator (sfc32): the same seed gives the same run on every machine. Never used for secrets. */
export class Prng {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  constructor(seed: number, stream = '') {
    this.a = seed >>> 0;
    this.b = Math.floor(seed / 0x1_0000_0000) >>> 0;
    this.c = hashText(stream);
    for (let round = 0; round < 15; round++) this.next();
  }

  /** An unsigned 32-bit integer. */
  next(): number {
    const sum = (this.a + this.b + this.counter) >>> 0;
    this.counter = (this.counter + 1) >>> 0;
    this.a = (this.b ^ (this.b >>> 9)) >>> 0;
    this.b = (this.c + (this.c << 3)) >>> 0;
    this.c = (((this.c << 21) | (this.c >>> 11)) + sum) >>> 0;
    return sum;
  }

  /** At least 0, below 1. */
  unit(): number {
    return this.next() / 0x1_0000_0000;
  }

  /** An integer from `minimum` to `maximum`, both included; good up to 2^53. */
  int(minimum: number, maximum: number): number {
    const span = maximum - minimum + 1;
    if (span <= 0x1_0000_0000) return minimum + Math.floor(this.unit() * span);
    return minimum + Math.floor(((this.next() * 0x20_0000 + (this.next() >>> 11)) / Number.MAX_SAFE_INTEGER) * (span - 1));
  }

  chance(probability: number): boolean {
    return probability > 0 && this.unit() < probability;
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.int(0, items.length - 1)];
    if (item === undefined) throw new RangeError('nothing to pick from');
    return item;
  }

  /** An index below `count`; index 0 is the likeliest, as 1 / rank^exponent. */
  zipf(count: number, exponent: number): number {
    let total = 0;
    for (let rank = 1; rank <= count; rank++) total += 1 / rank ** exponent;
    let left = this.unit() * total;
    for (let rank = 1; rank < count; rank++) {
      left -= 1 / rank ** exponent;
      if (left < 0) return rank - 1;
    }
    return count - 1;
  }

  /** Waiting times of independent arrivals with this mean; at least 1. */
  exponential(mean: number): number {
    return Math.max(1, Math.round(-Math.log(1 - this.unit()) * mean));
  }
}

function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x0100_0193) >>> 0;
  return hash;
}
