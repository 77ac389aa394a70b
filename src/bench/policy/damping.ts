/** What damping does to a card that thrashes: the same scenarios without and with it, on the virtual clock. */
import { classes } from '../../../protocol/index.js';
import { playOnClock } from '../../scenarios/on-clock.js';
import { readScenario } from '../../scenarios/read.js';
import type { Figures } from '../../scenarios/recorder.js';
import type { Arrivals, Scenario } from '../../scenarios/scenario.js';

/** The mean of as many runs as there are seeds. Waits are [p50, p95] for a first token, in seconds, by class. */
export interface Run {
  readonly answered: number;
  readonly loads: number;
  readonly reloadSeconds: number;
  readonly waitSeconds: Readonly<Record<string, readonly [p50: number, p95: number]>>;
}

/** Beside the seed of each scenario: of a single run chance decides more than damping does. */
const moreSeeds = [1, 2, 3];

export interface Damping {
  readonly without: Run;
  readonly with: Run;
}

/** The pair as it ships, with more calls than it can serve between loads, by so many callers who wait for each answer; and two files with more models. */
async function scenariosOf(): Promise<ReadonlyMap<string, Scenario>> {
  const pair = await readScenario('thrash-pair');
  const asked = (how: Arrivals['how']): Scenario => ({ ...pair, arrivals: pair.arrivals.map((arrivals) => ({ ...arrivals, how, deadlineMs: 600_000 })) });
  return new Map([
    ['thrash-pair', pair],
    ['pair, every 700 ms', asked({ kind: 'every', meanMs: 700 })],
    ['pair, every 350 ms', asked({ kind: 'every', meanMs: 350 })],
    ['pair, 1 caller', asked({ kind: 'callers', count: 1, thinkMs: 100 })],
    ['pair, 16 callers', asked({ kind: 'callers', count: 16, thinkMs: 100 })],
    ['pair, 64 callers', asked({ kind: 'callers', count: 64, thinkMs: 100 })],
    ['starvation', await readScenario('starvation')],
    ['day', await readScenario('day')],
  ]);
}

export async function compareDamping(): Promise<{ readonly worstReload: number; readonly worstWait: number; readonly scenarios: Readonly<Record<string, Damping>> }> {
  const compared: [string, Damping][] = [];
  for (const [name, scenario] of await scenariosOf()) compared.push([name, { without: await play(scenario, { thrashDampedPercent: 100 }), with: await play(scenario, {}) }]);
  const ratios = compared.map(([, damping]) => damping);
  return {
    // Callers who wait for their answers ask more when they get them sooner.
    worstReload: Math.max(...ratios.map((damping) => (damping.with.reloadSeconds / damping.with.answered) / (damping.without.reloadSeconds / damping.without.answered))),
    worstWait: Math.max(...ratios.flatMap((damping) => Object.entries(damping.with.waitSeconds).map(([name, [, p95]]) => p95 / (damping.without.waitSeconds[name]?.[1] ?? p95)))),
    scenarios: Object.fromEntries(compared),
  };
}

async function play(scenario: Scenario, limits: Scenario['limits']): Promise<Run> {
  const runs: Figures[] = [];
  for (const seed of [scenario.seed, ...moreSeeds]) {
    const { recorder, refusals, tookMs } = await playOnClock({ ...scenario, seed, limits: { ...scenario.limits, ...limits } });
    runs.push(recorder.figures(refusals, tookMs));
  }
  const mean = (name: string): number => runs.reduce((sum, figures) => sum + (figures[name] ?? 0), 0) / runs.length;
  const seconds = (name: string): number => Math.round(mean(name) / 100) / 10;
  const seen = classes.filter((name) => runs.some((figures) => figures[`waitMs.${name}.p50`] !== undefined));
  return {
    answered: Math.round(mean('answered')), loads: Math.round(mean('loads')), reloadSeconds: seconds('reloadMs'),
    waitSeconds: Object.fromEntries(seen.map((name) => [name, [seconds(`waitMs.${name}.p50`), seconds(`waitMs.${name}.p95`)]])),
  };
}
