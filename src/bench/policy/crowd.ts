/**
 * A trace through the broker's own core, by a crowd: so many callers, each of
 * whom takes the next call of the trace when his last one was answered. What is
 * resident is served while others wait, and those who wait for the same model
 * share its load; so the order is not that of arrival any more.
 */
import * as core from '../../../broker/core/index.js';
import { classPolicies, defaultLimits, type Limits } from '../../../protocol/index.js';
import { honest, noFaults } from '../../scenarios/world/faults.js';
import type { Knobs, ModelKnobs } from '../../scenarios/world/knobs.js';
import { secondsToUs } from '../../scenarios/world/scheduler.js';
import { World } from '../../scenarios/world/world.js';
import type { Trace } from './traces.js';

/** A short answer: what a reload of some seconds weighs against. */
const callMs = 1_000;
const device = 'SIM-card-0';

export interface Crowd {
  readonly callers: number;
  /** How many models a worker hosts. */
  readonly modelsPerWorker: number;
  /** Of the times that messages, spawns and readings take. */
  readonly seed: number;
  readonly limits?: Partial<Limits>;
}

export interface CrowdFigures {
  readonly reloadMs: number;
  /** From asking to the first token, in virtual milliseconds. */
  readonly waitsMs: readonly number[];
}

/** Runs the whole trace on a virtual clock; throws when a call is not answered. */
export function crowdReload(trace: Trace, crowd: Crowd): CrowdFigures {
  let reloadMs = 0;
  const waitsMs: number[] = [];
  const models = modelsOf(trace);
  const world = new World(knobsOf(trace, models, crowd), core, (_event, effects) => {
    for (const effect of effects) if (effect.type === 'publish' && effect.name === 'loaded') reloadMs += Number(effect.data['loadMs']);
  });
  world.behaviourOfNext = () => honest;
  world.start();
  let next = 0;
  let answered = 0;
  const ask = (): void => {
    const call = trace.calls[next++];
    const model = call === undefined ? undefined : models[call.model];
    if (model === undefined) return;
    const { coreUs } = world.scheduler;
    world.clients[0]?.place({
      model, class: 'normal', arrivedAtUs: coreUs, deadlineUs: coreUs + secondsToUs(3_600), device: null, triesLeft: 0, running: null, exactMs: true, contextBytes: null,
      onBegun: () => { waitsMs.push((world.scheduler.coreUs - coreUs) / 1_000); },
      onEnd: (outcome, code) => {
        if (outcome !== 'answered') throw new Error(`a call on ${model.key} ended with ${outcome} (${code ?? 'no code'})`);
        answered++;
        ask();
      },
    });
  };
  world.addClient();
  world.scheduler.after(secondsToUs(1), () => { for (let caller = 0; caller < crowd.callers; caller++) ask(); });
  world.runUntil(secondsToUs(3_600_000), () => answered === trace.calls.length);
  if (answered !== trace.calls.length) throw new Error(`${trace.calls.length - answered} calls were not answered`);
  return { reloadMs, waitsMs };
}

function modelsOf(trace: Trace): ModelKnobs[] {
  return trace.models.map(({ bytes, loadMs }, index) => {
    const parts = [{ name: 'weights', kind: 'weights' as const, bytes, upFront: true }];
    return {
      key: `model-${index}`, engine: 'python', parts, peakBytes: 0, trueParts: parts, truePeakBytes: bytes, loadMs, moveMs: 50, callMs,
      grows: 0, addsContexts: 0, parallel: 4, cards: 1, shares: [1], parkable: false, ttlMs: null, pinned: false, class: 'normal', loadFails: 0, memory: null,
    };
  });
}

/** The card holds what the trace's card holds, with the headroom that the broker adds to every lease. */
function knobsOf(trace: Trace, models: readonly ModelKnobs[], { callers, modelsPerWorker, seed, limits = {} }: Crowd): Knobs {
  return {
    seed, models, clients: 1, holders: 0, arrivalMs: 1, zipf: 1, floodMs: 0, twins: 0, deadlineMs: [1, 1], limits: { ...defaultLimits, queuedRequestsPerCardMax: Math.max(callers, defaultLimits.queuedRequestsPerCardMax), ...limits },
    cards: [{ device, totalBytes: Math.ceil(trace.cardBytes * 1.1), reserveBytes: 0, confirms: 'process', floorBytes: 0 }],
    engines: [{ name: 'python', modelsPerWorker, partial: false, profilesFreeMemory: false, floorBytes: 0, spawnMs: 500, memoryBytes: 0 }],
    classPolicies, allowLedgerOnly: false, faults: noFaults, memory: null,
  };
}
