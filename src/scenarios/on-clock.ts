/** A scenario on the simulated machine: the broker's own core, everything else simulated, on a virtual clock. The same seed gives the same run. */
import { setImmediate as turn } from 'node:timers/promises';
import * as core from '../../broker/core/index.js';
import { classPolicies, defaultLimits, type LeasePart } from '../../protocol/index.js';
import type { AskedCall, AskedCallback, Machine, MachineEvent } from './machine.js';
import { Play } from './play.js';
import { Recorder } from './recorder.js';
import type { FaultAct, LieName, Scenario, ScenarioModel } from './scenario.js';
import { behaviourOf, noFaults, type Faults } from './world/faults.js';
import type { Knobs, ModelKnobs } from './world/knobs.js';
import { Prng } from './world/prng.js';
import { msToUs } from './world/scheduler.js';
import { World } from './world/world.js';

/** After the last caller has left, everything under way has this long to come to rest. */
const restMs = 900_000;
/** The ledger is looked at after a step that told something, but not more often than this. */
const lookEveryMs = 20;

export interface Played {
  readonly recorder: Recorder;
  readonly refusals: number;
  readonly tookMs: number;
}

/** So many steps, some tens of milliseconds, and the loop has its turn: a signal that asks to stop is heard. */
const stepsPerTurn = 2_000;

/** Runs to the end: callers stop coming after `durationMs`, and those inside are seen out. Rejects with the signal's reason once that has aborted. */
export async function playOnClock(scenario: Scenario, signal?: AbortSignal): Promise<Played> {
  const recorder = new Recorder();
  const machine = new ClockMachine(scenario, recorder);
  const play = new Play(scenario, machine, recorder);
  machine.start();
  play.start();
  await machine.runUntil(scenario.durationMs, () => false, signal);
  await machine.runUntil(scenario.durationMs + restMs, () => play.done, signal);
  machine.look();
  return { recorder, refusals: machine.refusals(), tookMs: machine.nowMs() };
}

class ClockMachine implements Machine {
  private readonly world: World;
  private readonly random: Prng;
  private readonly models: ReadonlyMap<string, ModelKnobs>;
  private readonly startedUs: number;
  private lookedAtMs = -1;
  private readonly probeScripts = new Map<string, 'fails' | 'hangs'>();

  constructor(scenario: Scenario, private readonly recorder: Recorder) {
    const knobs = knobsOf(scenario);
    this.random = new Prng(scenario.seed, 'strikes');
    this.models = new Map(knobs.models.map((model) => [model.key, model]));
    this.world = new World(knobs, core, (_event, effects) => {
      if (effects.some(({ type }) => type === 'grant')) recorder.granted(this.ledger());
      for (const effect of effects) if (effect.type === 'publish') this.hear({ name: effect.name, data: effect.data, atMs: this.nowMs() });
    });
    this.startedUs = this.world.scheduler.nowUs;
    const draws = new Prng(scenario.seed, 'behaviour');
    this.world.behaviourOfNext = () => behaviourOf(knobs.faults, draws);
    this.world.prober.script = (device) => {
      const how = this.probeScripts.get(device);
      if (how === undefined) return null;
      return { reading: how === 'hangs' ? 'timed_out' : 'failed', reason: how === 'hangs' ? 'no answer' : 'exit code 9', afterMs: how === 'hangs' ? knobs.limits.probeTimeoutMs : 2 };
    };
  }

  start(): void {
    this.world.start();
    this.world.addClient();
  }

  nowMs(): number {
    return (this.world.scheduler.nowUs - this.startedUs) / 1_000;
  }

  after(delayMs: number, run: () => void): void {
    this.world.scheduler.after(msToUs(delayMs), run);
  }

  async runUntil(untilMs: number, isOver: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    for (;;) {
      let stepsLeft = stepsPerTurn;
      this.world.runUntil(this.startedUs + msToUs(untilMs), () => isOver() || stepsLeft-- === 0);
      if (stepsLeft >= 0) return;
      await turn();
      signal?.throwIfAborted();
    }
  }

  ask(call: AskedCall, callback: AskedCallback): () => void {
    const model = this.models.get(call.model);
    if (model === undefined) throw new RangeError(`the scenario has no model ${call.model}`);
    const { coreUs } = this.world.scheduler;
    const client = this.world.clients[0] ?? this.world.addClient();
    const wish = {
      model, class: call.class, arrivedAtUs: coreUs, deadlineUs: coreUs + msToUs(call.deadlineMs), device: null, triesLeft: 3, running: null, exactMs: true, contextBytes: null,
      onBegun: () => { callback.begun(); },
      onEnd: (outcome: string, code: string | null) => { callback.ended(code ?? outcome); },
    };
    client.place(wish);
    return () => { client.cancel(wish); };
  }

  strike(act: FaultAct): void {
    const { world, random } = this;
    switch (act.kind) {
      case 'kill': this.kill(act.whom); return;
      case 'stop': {
        const victim = pickFrom(random, [...world.workers.values()].filter(({ alive, isStopped }) => alive && !isStopped));
        victim?.stop();
        this.after(act.forMs, () => victim?.goOn());
        return;
      }
      case 'squat': {
        const card = this.cardAt(act.device);
        const takenBytes = Math.min(act.bytes, card.freeBytes());
        card.foreignBytes += takenBytes;
        this.recorder.refusedStranger(act.bytes - takenBytes);
        this.after(act.forMs, () => { card.foreignBytes -= takenBytes; });
        return;
      }
      case 'probe': {
        const { device } = this.cardAt(act.device).about;
        this.probeScripts.set(device, act.how);
        this.after(act.forMs, () => { this.probeScripts.delete(device); });
        return;
      }
      case 'lose': {
        const card = this.cardAt(act.device);
        world.loseCard(card);
        this.after(act.forMs, () => { world.regainCard(card); });
        return;
      }
      case 'suspend': world.scheduler.jump(msToUs(act.forMs)); return;
      case 'stall': world.shell.stall(msToUs(act.forMs)); return;
    }
  }

  ledger(): ReturnType<typeof core.ledgerView> {
    return core.ledgerView(this.world.shell.core as Parameters<typeof core.ledgerView>[0], this.world.scheduler.coreUs);
  }

  refusals(): number {
    return this.world.cards.reduce((sum, card) => sum + card.refusals, 0);
  }

  look(): void {
    this.recorder.saw(this.ledger(), this.nowMs());
  }

  private hear(event: MachineEvent): void {
    this.recorder.heard(event);
    if (event.atMs - this.lookedAtMs < lookEveryMs) return;
    this.lookedAtMs = event.atMs;
    // The step is not over while its effects are told.
    this.world.scheduler.after(0, () => { this.look(); });
  }

  private kill(whom: 'worker' | 'client'): void {
    const { world, random } = this;
    if (whom === 'worker') {
      pickFrom(random, [...world.workers.values()].filter(({ alive }) => alive))?.end('SIGKILL');
      return;
    }
    const client = world.clients.shift();
    world.addClient();
    client?.disconnect();
  }

  private cardAt(index: number): World['cards'][number] {
    const card = this.world.cards[index];
    if (card === undefined) throw new RangeError(`there is no card ${index}`);
    return card;
  }
}

function pickFrom<T>(random: Prng, items: readonly T[]): T | null {
  return items.length === 0 ? null : random.pick(items);
}

function knobsOf(scenario: Scenario): Knobs {
  return {
    seed: scenario.seed, clients: 1, holders: 0, arrivalMs: 1, zipf: 1, floodMs: 0, twins: 0, deadlineMs: [1, 1],
    cards: scenario.devices.map((device, index) => ({ device: `SIM-card-${index}`, ...device })),
    engines: Object.entries(scenario.engines).map(([name, engine]) => ({ name, memoryBytes: 0, ...engine })),
    models: Object.entries(scenario.models).map(([key, model]) => modelKnobs(key, model)),
    limits: { ...defaultLimits, ...scenario.limits }, classPolicies,
    allowLedgerOnly: scenario.devices.some(({ confirms }) => confirms === 'none'),
    faults: faultsOf(scenario), memory: null,
  };
}

function modelKnobs(key: string, model: ScenarioModel): ModelKnobs {
  const context: LeasePart[] = model.contextBytes === 0 ? [] : [{ name: 'context:1', kind: 'context', bytes: model.contextBytes, upFront: true }];
  const parts = [{ name: 'weights', kind: 'weights' as const, bytes: model.weightsBytes, upFront: true }, ...context];
  const trueParts = [{ name: 'weights', kind: 'weights' as const, bytes: model.trueWeightsBytes, upFront: true }, ...context];
  return {
    key, engine: model.engine, parts, trueParts, peakBytes: model.peakBytes, truePeakBytes: Math.max(model.peakBytes, model.trueWeightsBytes + model.contextBytes),
    loadMs: model.loadMs, moveMs: model.moveMs, callMs: model.callMs, grows: 0, addsContexts: 0, parallel: model.parallel, cards: model.shares.length, shares: model.shares, parkable: model.parkable,
    ttlMs: model.ttlMs, pinned: model.pinned, class: model.class, loadFails: model.loadFails, memory: null,
  };
}

const lieFaults: Readonly<Record<LieName, keyof Faults>> = {
  acknowledgesEarly: 'ackEarly', freesNothing: 'ackLies', freesLess: 'freesShort', takesMore: 'overAllocates', ignores: 'ignoresCommands', answersLate: 'answersLate',
  answersTwice: 'answersTwice', answersWrong: 'answersWrong', ignoresSigterm: 'ignoresSigterm', leaksOnFailure: 'leaksOnFailure',
};

function faultsOf(scenario: Scenario): Faults {
  const faults: Partial<Record<keyof Faults, number>> = {};
  for (const fault of scenario.faults) {
    if (fault.when !== null) continue;
    if (fault.lagMs > 0) Object.assign(faults, { freeLagMsMax: fault.lagMs, exitLagMsMax: fault.lagMs });
    for (const [name, share] of Object.entries(fault.lies)) faults[lieFaults[name as LieName]] = share;
  }
  return { ...noFaults, ...faults };
}
