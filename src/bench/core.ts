/**
 * `core`: one step of the broker's core with 10,000 live leases on 8 cards, the
 * choice of victims among 1,000 idle models, and how the cost of a grant grows
 * with the number of leases. Pure computing: no sockets, no clock of its own.
 */
import { CoreLoad, type HeldByLoad } from './core-load.js';
import { microsecondsSince, percentilesOf, round } from './percentiles.js';

export interface CoreFigures {
  readonly stepP50Us: number;
  readonly stepP99Us: number;
  readonly victimsMs: number;
  /** Median cost of a grant among 10,000 leases over that among 1,000, over log(10,000)/log(1,000). */
  readonly grantGrowthOverLog: number;
  readonly leases: number;
}

export const coreLimits = { stepP99Us: 100, victimsMs: 2, grantGrowthOverLog: 1 };

const mebibyte = 1024 * 1024;
const roomyCardBytes = 1024 * 1024 * mebibyte;
const repeats = 5;
/** One choice is over before the engine has compiled it: a run makes so many, each on a card filled anew, and counts their median. */
const choicesPerRun = 9;

export function benchCore(): CoreFigures {
  const mixes = Array.from({ length: repeats }, () => measureMix(10_000, 40_000));
  const victims = Array.from({ length: repeats }, () => medianOf(Array.from({ length: choicesPerRun }, () => measureVictims(1_000))));
  const growth = Array.from({ length: repeats }, () => measureGrants(10_000) / measureGrants(1_000) / (Math.log(10_000) / Math.log(1_000)));
  return {
    stepP50Us: round(Math.min(...mixes.map(({ p50 }) => p50))),
    stepP99Us: round(Math.min(...mixes.map(({ p99 }) => p99))),
    victimsMs: round(Math.min(...victims)),
    grantGrowthOverLog: round(Math.min(...growth)),
    leases: 10_000,
  };
}

/** 40 % grants, 40 % releases, 10 % samples, 10 % residency reports; only the step itself is timed. */
function measureMix(leases: number, steps: number): { readonly p50: number; readonly p99: number } {
  const load = filled(leases);
  const durations = new Float64Array(steps);
  for (let index = 0; index < steps; index++) durations[index] = mixedStep(load, index);
  return percentilesOf(durations);
}

function mixedStep(load: CoreLoad, index: number): number {
  const device = load.devices[index % load.devices.length] ?? '';
  const turn = (index * 7) % 10;
  const held = load.held[(index * 31) % load.held.length];
  if (turn < 4 || held === undefined) return timedGrant(load, device, index);
  if (turn < 8) {
    load.held.splice(load.held.indexOf(held), 1);
    return timed(() => { load.release(held); });
  }
  return turn === 8 ? timed(() => { load.sample(device); }) : timed(() => { load.report(held); });
}

/** The request's step is timed; confirming it and loading are not part of the mix. */
function timedGrant(load: CoreLoad, device: string, index: number): number {
  const start = process.hrtime.bigint();
  const { effects, generation, model } = load.ask(device, mebibyte, index);
  const duration = microsecondsSince(start);
  const lease = CoreLoad.granted(effects);
  if (lease !== null) load.settle({ lease, model, device, generation, bytes: mebibyte });
  return duration;
}

/** One card full of idle models; a request that needs a tenth of it must choose whom to evict. */
function measureVictims(models: number): number {
  const cardBytes = Math.ceil(models * mebibyte * 1.1) + mebibyte;
  const load = new CoreLoad({ cards: 1, holdersPerCard: models, cardBytes });
  const [device = ''] = load.devices;
  for (let index = 0; index < models; index++) grantOne(load, device, index);
  // Past the minimum residency, and a fresh sample after it.
  for (let second = 0; second < 3; second++) load.passSecond();
  load.sample(device);
  const start = process.hrtime.bigint();
  const { effects } = load.ask(device, 100 * mebibyte, 0);
  const durationMs = microsecondsSince(start) / 1000;
  if (CoreLoad.granted(effects) !== null) throw new Error('the full card had room: the benchmark measures nothing');
  if (!effects.some((effect) => effect.type === 'move')) throw new Error(`nothing was evicted: ${JSON.stringify(effects).slice(0, 300)}`);
  return durationMs;
}

function medianOf(durations: readonly number[]): number {
  return percentilesOf(Float64Array.from(durations)).p50;
}

function measureGrants(leases: number): number {
  const load = filled(leases);
  const durations = new Float64Array(4_000);
  for (let index = 0; index < durations.length; index++) durations[index] = timedGrant(load, load.devices[index % 8] ?? '', index);
  return percentilesOf(durations).p50;
}

function filled(leases: number): CoreLoad {
  const load = new CoreLoad({ cards: 8, holdersPerCard: 16, cardBytes: roomyCardBytes });
  for (let index = 0; index < leases; index++) grantOne(load, load.devices[index % 8] ?? '', index);
  for (const device of load.devices) load.sample(device);
  return load;
}

function grantOne(load: CoreLoad, device: string, index: number): void {
  const { effects, generation, model } = load.ask(device, mebibyte, index);
  const lease = CoreLoad.granted(effects);
  if (lease === null) throw new Error(`no grant: ${JSON.stringify(effects).slice(0, 300)}`);
  const held: HeldByLoad = { lease, model, device, generation, bytes: mebibyte };
  load.settle(held);
}

function timed(run: () => void): number {
  const start = process.hrtime.bigint();
  run();
  return microsecondsSince(start);
}
