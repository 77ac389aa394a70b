/** Seeded traces of calls on models of different size and cost, of the kinds that policies are known to fail at. */
import { Prng } from '../../scenarios/world/prng.js';

export interface TracedModel {
  readonly bytes: number;
  readonly loadMs: number;
}

export interface TracedCall {
  readonly model: number;
  readonly atUs: number;
}

export interface Trace {
  readonly kind: 'zipf' | 'shift' | 'bursts' | 'loop' | 'pair' | 'day';
  readonly models: readonly TracedModel[];
  readonly calls: readonly TracedCall[];
  readonly cardBytes: number;
}

const gib = 1024 ** 3;
const length = 1_200;
const meanGapMs = 10_000;

/** Three traces of each kind, the same ones each time. */
export function tracesOf(seeds: readonly number[]): Trace[] {
  return seeds.flatMap((seed) => [
    zipf(seed, 12, 48, 1), zipf(seed, 20, 80, 1.2), zipf(seed, 40, 139, 0.8),
    shift(seed), bursts(seed), loop(seed), pair(seed), day(seed),
  ]);
}

/** Popularity by rank, the same all the time. */
function zipf(seed: number, models: number, cardGib: number, exponent: number): Trace {
  const random = new Prng(seed, `zipf ${models}`);
  return trace('zipf', random, modelsOf(random, models), cardGib, () => random.zipf(models, exponent));
}

/** Popularity by rank, and the ranks are dealt anew every 250 calls. */
function shift(seed: number): Trace {
  const random = new Prng(seed, 'shift');
  let ranks: number[] = [];
  return trace('shift', random, modelsOf(random, 16), 60, (call) => {
    if (call % 250 === 0) ranks = shuffled(random, 16);
    return ranks[random.zipf(16, 1.2)] ?? 0;
  });
}

/** Three models at a time, each for a while and then not for long: what favours the least recently used. */
function bursts(seed: number): Trace {
  const random = new Prng(seed, 'bursts');
  const busy: number[] = [];
  return trace('bursts', random, modelsOf(random, 20), 56, () => {
    if (busy.length < 3 || random.chance(0.05)) busy.push(random.int(0, 19));
    if (busy.length > 3) busy.shift();
    return random.pick(busy);
  });
}

/** One after the other, round and round: what the least recently used fails at. */
function loop(seed: number): Trace {
  const random = new Prng(seed, 'loop');
  return trace('loop', random, modelsOf(random, 10), 64, (call) => call % 10);
}

/** Two that take turns on a card for one, and now and then a third: nothing can be done, and nothing may be made worse. */
function pair(seed: number): Trace {
  const random = new Prng(seed, 'pair');
  const models = Array.from({ length: 6 }, () => ({ bytes: 15 * gib, loadMs: 8_000 }));
  return trace('pair', random, models, 20, (call) => (random.chance(0.9) ? call % 2 : random.int(0, 5)));
}

/** A working day: some models by day, others by night, a few always. */
function day(seed: number): Trace {
  const random = new Prng(seed, 'day');
  return trace('day', random, modelsOf(random, 18), 64, (call) => {
    if (random.chance(0.4)) return random.zipf(6, 1);
    return 6 + random.zipf(6, 1) + (Math.floor(call / 200) % 2 === 0 ? 0 : 6);
  });
}

function trace(kind: Trace['kind'], random: Prng, models: readonly TracedModel[], cardGib: number, next: (call: number) => number): Trace {
  let atUs = 0;
  const calls = Array.from({ length }, (_, call) => {
    atUs += random.exponential(meanGapMs) * 1_000;
    return { model: next(call), atUs };
  });
  return { kind, models, calls, cardBytes: cardGib * gib };
}

/** 2 to 20 GiB, more small ones than large; a load costs a second and then 2 GiB a second, give or take half. */
function modelsOf(random: Prng, count: number): TracedModel[] {
  return Array.from({ length: count }, () => {
    const bytes = Math.round((2 + 18 * random.unit() ** 2) * gib);
    return { bytes, loadMs: Math.round(1_000 + (bytes / gib) * 500 * (0.5 + random.unit())) };
  });
}

function shuffled(random: Prng, count: number): number[] {
  const items = Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last--) {
    const other = random.int(0, last);
    [items[last], items[other]] = [items[other] ?? 0, items[last] ?? 0];
  }
  return items;
}
