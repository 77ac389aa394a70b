/** What a policy costs on a trace when calls are served in the order of their arrival: the reload time, nothing else. */
import { countUse, likelihoodOfUse, newPace, noGaps, soonUs, type Gaps, type Pace } from '../../../broker/core/eviction/use-forecast.js';
import { cheapestSet, leastRecentlyUsed, type VictimCandidate, type VictimPolicy } from '../../../broker/core/eviction/victim-policy.js';
import type { Trace } from './traces.js';

export interface Resident {
  readonly model: number;
  readonly lastUsedUs: number;
}

/** Chooses who goes, by their place among the residents. */
export interface Chooser {
  used(model: number, nowUs: number): void;
  choose(shortBytes: number, residents: readonly Resident[], nowUs: number): readonly number[];
}

/** Total time of the loads that the chooser causes. The first load of each model counts: no policy can save it. */
export function reloadMs(trace: Trace, chooser: Chooser): number {
  const residents = new Map<number, Resident>();
  let usedBytes = 0;
  let costMs = 0;
  for (const { model, atUs } of trace.calls) {
    const about = modelAt(trace, model);
    if (!residents.has(model)) {
      costMs += about.loadMs;
      const shortBytes = usedBytes + about.bytes - trace.cardBytes;
      const present = [...residents.values()];
      for (const place of shortBytes <= 0 ? [] : chooser.choose(shortBytes, present, atUs)) {
        const victim = present[place];
        if (victim === undefined) throw new RangeError(`there is no resident ${place}`);
        residents.delete(victim.model);
        usedBytes -= modelAt(trace, victim.model).bytes;
      }
      usedBytes += about.bytes;
      if (usedBytes > trace.cardBytes) throw new RangeError('the chooser freed too little');
    }
    residents.set(model, { model, lastUsedUs: atUs });
    chooser.used(model, atUs);
  }
  return costMs;
}

/** The broker's own: the set of least expected cost, by its forecast of use. */
export function expectedCost(trace: Trace): Chooser {
  const pace: Pace = newPace();
  const memory = new Map<number, { readonly gaps: Gaps; lastUsedUs: number | null }>();
  return {
    used: (model, nowUs) => {
      const own = memory.get(model) ?? { gaps: noGaps(), lastUsedUs: null };
      countUse(pace, own.gaps, own.lastUsedUs === null ? null : nowUs - own.lastUsedUs, nowUs);
      own.lastUsedUs = nowUs;
      memory.set(model, own);
    },
    choose: (shortBytes, residents, nowUs) => chosen(cheapestSet, shortBytes, residents.map(({ model, lastUsedUs }) => {
      const { bytes, loadMs } = modelAt(trace, model);
      return { freesBytes: bytes, lastUsedUs, costMs: loadMs * likelihoodOfUse(pace, memory.get(model)?.gaps ?? noGaps(), nowUs - lastUsedUs, soonUs(pace)) };
    })),
  };
}

export function leastRecent(trace: Trace): Chooser {
  return {
    used: () => undefined,
    choose: (shortBytes, residents) => chosen(leastRecentlyUsed, shortBytes, residents.map(({ model, lastUsedUs }) => ({ freesBytes: modelAt(trace, model).bytes, costMs: 0, lastUsedUs }))),
  };
}

/** GreedyDual-Size-Frequency: uses times cost by size, above a floor that rises with every victim. */
export function greedyDualSizeFrequency(trace: Trace): Chooser {
  const uses = new Map<number, number>();
  const worth = new Map<number, number>();
  let floor = 0;
  return {
    used: (model) => {
      const { bytes, loadMs } = modelAt(trace, model);
      const count = (uses.get(model) ?? 0) + 1;
      uses.set(model, count);
      worth.set(model, floor + count * loadMs / bytes);
    },
    choose: (shortBytes, residents) => {
      const places = residents.map((_, place) => place).sort((a, b) => worthOf(worth, residents[a]) - worthOf(worth, residents[b]) || a - b);
      const victims: number[] = [];
      for (let freed = 0; freed < shortBytes;) {
        const place = places.shift();
        if (place === undefined) break;
        victims.push(place);
        floor = Math.max(floor, worthOf(worth, residents[place]));
        freed += modelAt(trace, residents[place]?.model ?? 0).bytes;
      }
      return victims;
    },
  };
}

function worthOf(worth: ReadonlyMap<number, number>, resident: Resident | undefined): number {
  return worth.get(resident?.model ?? -1) ?? 0;
}

function chosen(policy: VictimPolicy, shortBytes: number, candidates: readonly VictimCandidate[]): readonly number[] {
  const places = policy(shortBytes, candidates);
  if (places === null) throw new RangeError('the card holds too little for one model');
  return places;
}

function modelAt(trace: Trace, model: number): Trace['models'][number] {
  const about = trace.models[model];
  if (about === undefined) throw new RangeError(`the trace has no model ${model}`);
  return about;
}
