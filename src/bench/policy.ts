/**
 * `policy`: the reload time that the choice of victims costs on seeded traces,
 * against what no schedule can beat that serves the same calls in the order of
 * their arrival. Once the choice alone, beside the least recently used and
 * GreedyDual-Size-Frequency; once the broker's core with a crowd of callers.
 * Virtual time: the figures are the same on every machine.
 */
import { longestWaitBehindOthersMs, residencyMaxMs } from '../../broker/core/index.js';
import { classes, classPolicies, defaultLimits, type RequestClass } from '../../protocol/index.js';
import { percentilesOf, round } from './percentiles.js';
import { leastReloadMs } from './policy/bound.js';
import { crowdReload } from './policy/crowd.js';
import { compareDamping, type Damping } from './policy/damping.js';
import { expectedCost, greedyDualSizeFrequency, leastRecent, reloadMs } from './policy/replay.js';
import { tracesOf, type Trace } from './policy/traces.js';

export interface PolicyFigures {
  /** Reload time of a crowd on popularity by rank, through the core, over the bound; the worst of all traces, layouts and seeds. */
  readonly worstRatioToBound: number;
  /** The same by how the models are spread over workers, and their mean. */
  readonly crowds: Readonly<Record<string, { readonly worst: number; readonly mean: number }>>;
  /** Reload time of our choice over that of the least recently used, calls in order, all traces of a kind together; the worst kind. */
  readonly worstRatioToLru: number;
  /** Waits of those crowds for a first token, in virtual milliseconds. */
  readonly crowdWaitP50Ms: number;
  readonly crowdWaitP99Ms: number;
  readonly callers: number;
  /** Reload time over the bound by kind of trace, calls in order of arrival: what the choice alone can do. */
  readonly inOrder: Readonly<Record<string, PolicyRatios>>;
  /** The longest that a request may wait behind others, in seconds by class, behind loads of 10 s: with none that is older, and with three. */
  readonly longestWaitSeconds: Readonly<Record<string, readonly [alone: number, behindThree: number]>>;
  /** Reload time and 95th percentile of the waits where models take turns, with damping over without: the worst of all scenarios and classes. */
  readonly worstReloadWithDamping: number;
  readonly worstWaitWithDamping: number;
  readonly damping: Readonly<Record<string, Damping>>;
}

export interface PolicyRatios {
  readonly ours: number;
  readonly leastRecent: number;
  readonly greedyDual: number;
}

export const policyLimits = { worstRatioToBound: 1.25, worstRatioToLru: 1, worstReloadWithDamping: 1, worstWaitWithDamping: 1.1 };

const seeds = [1, 2, 3, 4];
const callers = 64;
/** Whether a release is seen at once or only when a load beside it has ended, and the times that messages take, change who waits for what: no single run tells. */
const layouts: Readonly<Record<string, (models: number) => number>> = { 'one worker': (models) => models, 'a worker each': () => 1 };
const crowdSeeds = [1, 2, 3];

interface Sums {
  bound: number;
  ours: number;
  leastRecent: number;
  greedyDual: number;
}

export async function benchPolicy(): Promise<PolicyFigures> {
  const sums = new Map<string, Sums>();
  const waitsMs: number[] = [];
  const ratios = new Map<string, number[]>(Object.keys(layouts).map((layout) => [layout, []]));
  for (const trace of tracesOf(seeds)) {
    const boundMs = await leastReloadMs(trace);
    addTo(sums, trace, boundMs);
    if (trace.kind !== 'zipf') continue;
    for (const [layout, modelsPerWorker] of Object.entries(layouts)) {
      for (const seed of crowdSeeds) {
        const crowd = crowdReload(trace, { callers, modelsPerWorker: modelsPerWorker(trace.models.length), seed });
        ratios.get(layout)?.push(crowd.reloadMs / boundMs);
        for (const waitMs of crowd.waitsMs) waitsMs.push(waitMs);
      }
    }
  }
  const crowds = [...ratios].map(([layout, each]) => [layout, { worst: round(Math.max(...each)), mean: round(each.reduce((sum, ratio) => sum + ratio, 0) / each.length) }] as const);
  const { worstReload, worstWait, scenarios } = await compareDamping();
  const { p50, p99 } = percentilesOf(Float64Array.from(waitsMs));
  return {
    worstRatioToBound: Math.max(...crowds.map(([, { worst }]) => worst)), crowds: Object.fromEntries(crowds),
    worstRatioToLru: round(Math.max(...[...sums.values()].map(({ ours, leastRecent: lru }) => ours / lru))),
    crowdWaitP50Ms: Math.round(p50), crowdWaitP99Ms: Math.round(p99), callers,
    inOrder: Object.fromEntries([...sums].map(([kind, { bound, ours, leastRecent: lru, greedyDual }]) => [kind, { ours: round(ours / bound), leastRecent: round(lru / bound), greedyDual: round(greedyDual / bound) }])),
    longestWaitSeconds: longestWaits(), worstReloadWithDamping: round(worstReload), worstWaitWithDamping: round(worstWait), damping: scenarios,
  };
}

function longestWaits(): PolicyFigures['longestWaitSeconds'] {
  const residencyMs = residencyMaxMs(Object.values(classPolicies));
  const seconds = (name: RequestClass, older: number): number => longestWaitBehindOthersMs({ longestWaitMs: classPolicies[name].longestWaitMs, older, loadMs: 10_000, residencyMs, rounds: 2 }, defaultLimits) / 1_000;
  return Object.fromEntries(classes.map((name) => [name, [seconds(name, 0), seconds(name, 3)]]));
}

function addTo(sums: Map<string, Sums>, trace: Trace, boundMs: number): void {
  const sum = sums.get(trace.kind) ?? { bound: 0, ours: 0, leastRecent: 0, greedyDual: 0 };
  sum.bound += boundMs;
  sum.ours += reloadMs(trace, expectedCost(trace));
  sum.leastRecent += reloadMs(trace, leastRecent(trace));
  sum.greedyDual += reloadMs(trace, greedyDualSizeFrequency(trace));
  sums.set(trace.kind, sum);
}
