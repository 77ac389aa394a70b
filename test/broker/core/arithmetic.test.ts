// The core's arithmetic: headroom, the delegated offset (R30-R33 with the vectors of R20), victim sets, timers.
import fc from 'fast-check';
import t, { type Test } from 'tap';
import {
  cheapestSet, evictionTarget, isBytes, leasableBytesMax, leastRecentlyUsed, withHeadroom, withoutHeadroom, type VictimCandidate,
} from '../../../broker/core/index.js';
import { Timers } from '../../../broker/core/timers.js';
import { GiB, MiB, plusTenth } from './harness.js';

/** A property as an assertion of its own: the counterexample is in its message. */
function holds<T>(test: Test, property: fc.IProperty<T>): void {
  test.doesNotThrow(() => {
    fc.assert(property);
  });
}

const bytes = fc.integer({ min: 0, max: leasableBytesMax });

t.test('headroom is ceil(11/10 x bytes), exact over the whole range', (test) => {
  holds(test, fc.property(bytes, (value) => withHeadroom(value) === plusTenth(value)));
  holds(test, fc.property(fc.integer({ min: leasableBytesMax - 1_000, max: leasableBytesMax }), (value) => withHeadroom(value) === plusTenth(value)));
  test.equal(withHeadroom(0), 0);
  test.equal(withHeadroom(1), 2);
  test.ok(withHeadroom(leasableBytesMax) <= Number.MAX_SAFE_INTEGER);
  test.ok(BigInt(leasableBytesMax + 1) * 11n > BigInt(Number.MAX_SAFE_INTEGER) * 10n, 'one byte more and its headroom is no exact integer');
  test.end();
});

t.test('what could be had is the largest count whose headroom fits', (test) => {
  holds(test, fc.property(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), (room) => {
    const most = withoutHeadroom(room);
    return plusTenth(most) <= room && (most === leasableBytesMax || plusTenth(most + 1) > room);
  }));
  test.equal(withoutHeadroom(-5), 0, 'an overshoot leaves nothing');
  test.end();
});

t.test('only integers with an exact headroom are byte counts', (test) => {
  for (const wrong of [-1, 0.5, Number.NaN, Infinity, 2 ** 53, leasableBytesMax + 1]) test.notOk(isBytes(wrong), String(wrong));
  for (const right of [0, 1, leasableBytesMax]) test.ok(isBytes(right), String(right));
  test.end();
});

t.test('R20: the delegated target frees exactly the true shortfall in both bias regimes', (test) => {
  const need = withHeadroom(4 * GiB) + 1_278_423_859 + 250 * MiB;
  test.equal(need, 6_265_031_885);
  const base = { needBytes: need, trueFreeBytes: 2 * GiB, reusableCacheBytes: 0, hostFreeIsDeviceWide: false };
  test.match(evictionTarget({ ...base, blindFreeBytes: 15 * GiB }), { targetBytes: 20_223_675_597, willFreeBytes: 4_117_548_237 });
  const idle = evictionTarget({ ...base, blindFreeBytes: 2 * GiB - 583 * MiB });
  test.match(idle, { targetBytes: 5_653_712_077, willFreeBytes: 4_117_548_237 });
  test.equal(idle.offsetBytes, -611_319_808, 'signed: clamped at zero it would ask so much too much (R32)');
  test.end();
});

t.test('R30-R33: the manager frees need - true free whatever it believes, and the switch takes the term out', (test) => {
  const amount = fc.integer({ min: 0, max: 2 ** 45 });
  holds(test, fc.property(amount, amount, amount, amount, (needBytes, blindFreeBytes, trueFreeBytes, reusableCacheBytes) => {
    const target = evictionTarget({ needBytes, blindFreeBytes, trueFreeBytes, reusableCacheBytes, hostFreeIsDeviceWide: false });
    return target.willFreeBytes === Math.max(0, needBytes - trueFreeBytes);
  }));
  holds(test, fc.property(amount, amount, (needBytes, freeBytes) => {
    const target = evictionTarget({ needBytes, blindFreeBytes: freeBytes, trueFreeBytes: freeBytes, reusableCacheBytes: 0, hostFreeIsDeviceWide: true });
    return target.offsetBytes === 0 && target.willFreeBytes === Math.max(0, needBytes - freeBytes);
  }));
  test.equal(evictionTarget({ needBytes: 5, blindFreeBytes: 9, trueFreeBytes: 9, reusableCacheBytes: 0, hostFreeIsDeviceWide: false }).willFreeBytes, 0, 'nothing is freed without a shortfall');
  test.end();
});

const candidate: fc.Arbitrary<VictimCandidate> = fc.record({
  freesBytes: fc.integer({ min: 1, max: 100 }), costMs: fc.integer({ min: 0, max: 100 }), lastUsedUs: fc.integer({ min: 0, max: 50 }),
});

t.test('the victim set is the cheapest that suffices, compared with all sets', (test) => {
  holds(test, fc.property(fc.array(candidate, { maxLength: 10 }), fc.integer({ min: 1, max: 400 }), (candidates, shortfall) => {
    const chosen = cheapestSet(shortfall, candidates);
    const best = cheapestByAll(shortfall, candidates);
    return chosen === null ? best === null : freed(candidates, chosen) >= shortfall && cost(candidates, chosen) === best;
  }));
  test.end();
});

t.test('among many candidates the set suffices, has nobody in it who is not needed, and costs no more than LRU or any single one', (test) => {
  holds(test, fc.property(fc.array(candidate, { minLength: 20, maxLength: 60 }), fc.integer({ min: 1, max: 900 }), (candidates, shortfall) => {
    const chosen = cheapestSet(shortfall, candidates);
    const total = candidates.reduce((sum, one) => sum + one.freesBytes, 0);
    if (chosen === null) return total < shortfall;
    const superfluous = chosen.filter((place) => candidates[place]!.costMs > 0 && freed(candidates, chosen) - candidates[place]!.freesBytes >= shortfall);
    const singles = candidates.filter((one) => one.freesBytes >= shortfall).map((one) => one.costMs);
    return freed(candidates, chosen) >= shortfall && superfluous.length === 0 && (singles.length === 0 || cost(candidates, chosen) <= Math.min(...singles));
  }));
  test.end();
});

t.test('victim policies change nothing and give the same answer twice', (test) => {
  holds(test, fc.property(fc.array(candidate, { maxLength: 30 }), fc.integer({ min: 0, max: 500 }), (candidates, shortfall) => {
    const frozen = Object.freeze(candidates.map((one) => Object.freeze({ ...one })));
    return [cheapestSet, leastRecentlyUsed].every((policy) => JSON.stringify(policy(shortfall, frozen)) === JSON.stringify(policy(shortfall, frozen)));
  }));
  test.same(leastRecentlyUsed(5, [{ freesBytes: 4, costMs: 1, lastUsedUs: 9 }, { freesBytes: 3, costMs: 9, lastUsedUs: 1 }, { freesBytes: 3, costMs: 9, lastUsedUs: 2 }]), [1, 2]);
  test.end();
});

t.test('timers fall due in order, each key once, whatever was set, moved and dropped before', (test) => {
  const act = fc.record({ kind: fc.constantFrom('job' as const, 'ttl' as const), key: fc.constantFrom('a', 'b', 'c', 'd', 'e'), due: fc.integer({ min: 0, max: 40 }), drop: fc.boolean() });
  holds(test, fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
    const timers = new Timers();
    const model = new Map<string, number>();
    for (const { kind, key, due, drop } of acts) {
      if (drop) timers.drop(kind, key);
      else timers.set(kind, key, due);
      if (drop) model.delete(`${kind} ${key}`);
      else model.set(`${kind} ${key}`, due);
    }
    const fell: number[] = [];
    for (let timer = timers.takeDue(20); timer !== null; timer = timers.takeDue(20)) {
      if (model.get(`${timer.kind} ${timer.key}`) !== timer.dueUs) return false;
      fell.push(timer.dueUs);
    }
    const expected = [...model.values()].filter((due) => due <= 20).sort((a, b) => a - b);
    return JSON.stringify(fell) === JSON.stringify(expected) && timers.size === model.size - fell.length;
  }));
  test.end();
});

function freed(candidates: readonly VictimCandidate[], places: readonly number[]): number {
  return places.reduce((sum, place) => sum + candidates[place]!.freesBytes, 0);
}

function cost(candidates: readonly VictimCandidate[], places: readonly number[]): number {
  return places.reduce((sum, place) => sum + candidates[place]!.costMs, 0);
}

function cheapestByAll(shortfall: number, candidates: readonly VictimCandidate[]): number | null {
  let best: number | null = null;
  for (let mask = 0; mask < 1 << candidates.length; mask++) {
    const places = candidates.map((_, place) => place).filter((place) => (mask & (1 << place)) !== 0);
    if (freed(candidates, places) >= shortfall) best = Math.min(best ?? Infinity, cost(candidates, places));
  }
  return best;
}
