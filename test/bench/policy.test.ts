/** The policy benchmark's own parts: the bound is one, and the figures it is there for hold on one seed. */
import t from 'tap';
import { countUse, likelihoodOfUse, newPace, noGaps, soonUs } from '../../broker/core/eviction/use-forecast.js';
import { leastReloadMs } from '../../src/bench/policy/bound.js';
import type { Limits } from '../../protocol/index.js';
import { crowdReload } from '../../src/bench/policy/crowd.js';
import { expectedCost, greedyDualSizeFrequency, leastRecent, reloadMs } from '../../src/bench/policy/replay.js';
import { tracesOf, type Trace } from '../../src/bench/policy/traces.js';

const gib = 1024 ** 3;
const secondUs = 1_000_000;

function traceOf(cardGib: number, sizes: readonly (readonly [gib: number, loadMs: number])[], calls: readonly number[]): Trace {
  return {
    kind: 'pair', cardBytes: cardGib * gib, models: sizes.map(([size, loadMs]) => ({ bytes: size * gib, loadMs })),
    calls: calls.map((model, index) => ({ model, atUs: (index + 1) * 10 * secondUs })),
  };
}

t.test('the bound is what can be worked out by hand', async (t) => {
  const equal = [[10, 5_000], [10, 5_000], [10, 5_000]] as const;
  t.equal(await leastReloadMs(traceOf(30, equal, [0, 1, 2, 0, 1, 2])), 15_000, 'all fit: each is loaded once');
  t.equal(await leastReloadMs(traceOf(10, equal, [0, 1, 0, 1])), 20_000, 'one fits: each call is a load');
  t.equal(await leastReloadMs(traceOf(20, equal, [0, 1, 2, 0, 1, 2])), 20_000, 'two fit: beside the one that is called one may stay');
  t.equal(await leastReloadMs(traceOf(20, [[10, 9_000], [10, 1_000], [10, 1_000]], [0, 1, 2, 1, 0])), 12_000, 'the dear one stays');
  t.equal(await leastReloadMs(traceOf(20, equal, [0])), 5_000, 'nothing comes twice');
});

t.test('no policy is below the bound, and ours costs no more than the least recently used', async (t) => {
  for (const trace of tracesOf([1])) {
    const bound = await leastReloadMs(trace);
    const [ours, lru, greedyDual] = [expectedCost(trace), leastRecent(trace), greedyDualSizeFrequency(trace)].map((chooser) => reloadMs(trace, chooser)) as [number, number, number];
    t.ok(Math.min(ours, lru, greedyDual) >= bound - 1, `${trace.kind}: nothing is below ${Math.round(bound)} ms`);
    t.ok(ours <= lru, `${trace.kind}: ${ours} ms against ${lru} ms of the least recently used`);
  }
});

t.test('a crowd is served by the core for less than the least recently used costs in order', async (t) => {
  const trace = tracesOf([1]).find(({ kind }) => kind === 'zipf');
  if (trace === undefined) throw new Error('there is no such trace');
  const crowd = crowdReload(trace, { callers: 64, modelsPerWorker: trace.models.length, seed: 1 });
  t.equal(crowd.waitsMs.length, trace.calls.length, 'every call got its first token');
  t.ok(crowd.reloadMs < reloadMs(trace, leastRecent(trace)));
});

t.test('patience serves a crowd sooner and with a fifth less of loading again, in one worker and in a worker each', async (t) => {
  const traces = tracesOf([2]).filter(({ kind }) => kind === 'zipf');
  const play = (limits: Partial<Limits>) => {
    const crowds = traces.flatMap((trace) => [1, 40].map((modelsPerWorker) => crowdReload(trace, { callers: 64, modelsPerWorker, seed: 1, limits })));
    return { reloadMs: crowds.reduce((sum, crowd) => sum + crowd.reloadMs, 0), waitMs: crowds.flatMap(({ waitsMs }) => waitsMs).reduce((sum, waitMs) => sum + waitMs, 0) };
  };
  const [patient, impatient] = [play({}), play({ thrashDampedPercent: 100 })];
  t.ok(patient.reloadMs < 0.8 * impatient.reloadMs, `${patient.reloadMs} ms of loading against ${impatient.reloadMs} ms`);
  t.ok(patient.waitMs < 0.95 * impatient.waitMs, `${patient.waitMs} ms of waiting against ${impatient.waitMs} ms`);
});

t.test('a model is likely to come back when those that rested as long came back', (t) => {
  const pace = newPace();
  const own = noGaps();
  t.ok(likelihoodOfUse(pace, own, secondUs, 30 * secondUs) > likelihoodOfUse(pace, own, 3_600 * secondUs, 30 * secondUs), 'knowing nothing, the longest idle is the least likely');
  let nowUs = 0;
  for (let use = 0; use < 12; use++) {
    nowUs += 10 * secondUs;
    countUse(pace, own, use === 0 ? null : 10 * secondUs, nowUs);
  }
  const soon = likelihoodOfUse(pace, own, 9 * secondUs, 10 * secondUs);
  const late = likelihoodOfUse(pace, own, 60 * secondUs, 10 * secondUs);
  t.ok(soon > 0.8, `used every ten seconds, idle for nine: ${soon}`);
  t.ok(late < 0.5, `idle for a minute, which it never was: ${late}`);
  for (const likelihood of [soon, late, likelihoodOfUse(pace, own, 1e15, 1)]) t.ok(likelihood > 0 && likelihood < 1);
  t.ok(soonUs(pace) >= secondUs && soonUs(pace) <= 600 * secondUs, 'soon is between a second and ten minutes');
  t.end();
});

t.test('a model of two habits is not expected back once it has rested longer than a burst', (t) => {
  const pace = newPace();
  const own = noGaps();
  let nowUs = 0;
  for (let burst = 0; burst < 4; burst++) {
    for (const gapUs of [3_600, 2, 2, 2].map((seconds) => seconds * secondUs)) {
      nowUs += gapUs;
      countUse(pace, own, gapUs, nowUs);
    }
  }
  const within = likelihoodOfUse(pace, own, secondUs, 5 * secondUs);
  const after = likelihoodOfUse(pace, own, 60 * secondUs, 5 * secondUs);
  t.ok(within > 5 * after, `${within} within a burst, ${after} after it`);
  t.end();
});
