/**
 * A scripted world for scenarios: named models of exact sizes, callers that
 * note when each thing happened, the auditor always in the room. Times are
 * virtual milliseconds from the start.
 */
import { classPolicies, defaultLimits, type Limits, type RequestClass } from '../../protocol/index.js';
import { Auditor } from './auditor/auditor.js';
import { checkView } from './auditor/rules-view.js';
import type { EffectOf } from './auditor/check.js';
import type { Client, Wish } from '../../src/scenarios/world/client.js';
import type { CallOutcome, Step } from '../../src/scenarios/world/context.js';
import type { CoreModule } from '../../src/scenarios/world/core-module.js';
import type { CardDescription } from '../../src/scenarios/world/card.js';
import { honest, noFaults, type Behaviour, type Faults } from '../../src/scenarios/world/faults.js';
import type { Holder } from '../../src/scenarios/world/holder.js';
import { gib, type EngineKnobs, type Knobs, type ModelKnobs } from '../../src/scenarios/world/knobs.js';
import { noMemoryFaults, type MemoryKnobs } from '../../src/scenarios/world/memory-knobs.js';
import { msToUs } from '../../src/scenarios/world/scheduler.js';
import { World } from '../../src/scenarios/world/world.js';

export const card24: CardDescription = { device: 'SIM-card-0', totalBytes: 24 * gib, reserveBytes: 0, confirms: 'process', floorBytes: 0 };
export const oneModelEngine: EngineKnobs = { name: 'llama', modelsPerWorker: 1, partial: false, profilesFreeMemory: false, floorBytes: 0, spawnMs: 100, memoryBytes: 0 };
export const manyModelsEngine: EngineKnobs = { name: 'python', modelsPerWorker: 8, partial: false, profilesFreeMemory: false, floorBytes: 0, spawnMs: 100, memoryBytes: 0 };

/** A model of one up-front part, so that a lease is 11/10 of `bytes` exactly. */
export function model(key: string, bytes: number, more: Partial<ModelKnobs> = {}): ModelKnobs {
  const parts = [{ name: 'weights', kind: 'weights' as const, bytes, upFront: true }];
  return {
    key, engine: 'llama', parts, peakBytes: 0, trueParts: parts, truePeakBytes: bytes, loadMs: 1_000, moveMs: 100, callMs: 100, grows: 0, addsContexts: 0, parallel: 4, cards: 1, shares: [1], parkable: false, ttlMs: null,
    pinned: false, class: 'normal', loadFails: 0, memory: null, ...more,
  };
}

export interface StageOptions {
  readonly module: CoreModule;
  readonly cards?: readonly CardDescription[];
  readonly engines?: readonly EngineKnobs[];
  readonly models: readonly ModelKnobs[];
  readonly limits?: Partial<Limits>;
  readonly faults?: Partial<Faults>;
  readonly allowLedgerOnly?: boolean;
  readonly seed?: number;
  /** The machine's memory, where a scenario leases it. */
  readonly memory?: Partial<MemoryKnobs> & { readonly totalBytes: number };
}

/** One call of a caller, with its history. */
export interface Asked {
  readonly model: string;
  readonly askedAtMs: number;
  begunAtMs: number | null;
  endedAtMs: number | null;
  outcome: CallOutcome | null;
  /** The broker's error code, when it said no to the placement. */
  code: string | null;
  readonly wish: Wish;
}

export interface AskOptions {
  readonly class?: RequestClass;
  readonly deadlineMs?: number;
  readonly callMs?: number;
  readonly device?: string;
  readonly client?: Client;
  readonly tries?: number;
  readonly contextBytes?: number;
}

export class Stage {
  readonly world: World;
  readonly auditor: Auditor;
  readonly steps: Step[] = [];
  private readonly models: ReadonlyMap<string, ModelKnobs>;
  private readonly caller: Client;

  constructor(private readonly options: StageOptions) {
    const knobs = knobsFor(options);
    this.models = new Map(options.models.map((known) => [known.key, known]));
    this.world = new World(knobs, options.module, (event, effects, core) => {
      this.steps.push({ event, effects });
      this.auditor.observe(event, effects);
      options.module.checkInvariants(core);
      checkView(this.auditor.checkNow(event, effects), this.view());
    });
    this.auditor = new Auditor(knobs, {
      card: (device) => this.world.card(device),
      at: (device, takenAtUs) => this.world.prober.truths.get(device)?.find((truth) => truth.takenAtUs === takenAtUs) ?? null,
    });
    this.world.onRestart.tell = () => this.auditor.restart();
    this.world.onOom.tell = (oom) => this.auditor.observeOom(oom);
    this.world.onMemory.tell = (generation, bytes) => this.auditor.observeMemoryShort(generation, bytes);
    this.world.behaviourOfNext = () => honest;
    this.world.start();
    this.caller = this.world.addClient();
    this.to(20);
  }

  get nowMs(): number {
    return this.world.scheduler.nowUs / 1_000;
  }

  view(): ReturnType<CoreModule['ledgerView']> {
    return this.options.module.ledgerView(this.world.shell.core, this.world.scheduler.coreUs);
  }

  /** Runs until that moment. */
  to(ms: number): this {
    let reached = false;
    this.world.scheduler.at(msToUs(ms), () => (reached = true));
    this.world.runUntil(Infinity, () => reached);
    return this;
  }

  at(ms: number, act: () => void): void {
    this.world.scheduler.at(msToUs(ms), act);
  }

  /** Runs until it is so; throws when it is not so within the limit. */
  until(isSo: () => boolean, withinMs = 120_000): this {
    const untilUs = this.world.scheduler.nowUs + msToUs(withinMs);
    this.world.runUntil(untilUs, isSo);
    if (!isSo()) throw new Error(`not so within ${withinMs} ms`);
    return this;
  }

  /** A caller wants one call on the model. */
  ask(key: string, options: AskOptions = {}): Asked {
    const known = this.modelOf(key);
    const nowUs = this.world.scheduler.coreUs;
    const asked: Asked = {
      model: key, askedAtMs: this.nowMs, begunAtMs: null, endedAtMs: null, outcome: null, code: null,
      wish: {
        model: options.callMs === undefined ? known : { ...known, callMs: options.callMs }, class: options.class ?? known.class, arrivedAtUs: nowUs,
        deadlineUs: nowUs + msToUs(options.deadlineMs ?? 60_000), device: options.device ?? null, triesLeft: options.tries ?? 0, running: null, exactMs: true, contextBytes: options.contextBytes ?? null,
        onBegun: () => (asked.begunAtMs = this.nowMs),
        onEnd: (outcome, code) => Object.assign(asked, { outcome, code, endedAtMs: this.nowMs }),
      },
    };
    (options.client ?? this.caller).place(asked.wish);
    return asked;
  }

  cancel(asked: Asked): void {
    this.caller.cancel(asked.wish);
  }

  /** A program that holds leases itself. */
  holder(behaviour: Partial<Behaviour> = {}, device = this.world.cards[0]!.about.device): Holder {
    return this.world.addHolder(device, { ...honest, ...behaviour });
  }

  modelOf(key: string): ModelKnobs {
    const known = this.models.get(key);
    if (known === undefined) throw new Error(`the stage has no model ${key}`);
    return known;
  }

  /** How processes spawned from now on behave. */
  behave(behaviour: Partial<Behaviour>): void {
    this.world.behaviourOfNext = () => ({ ...honest, ...behaviour });
  }

  /** Effects of one type so far, with the time of their step. */
  effects<K extends AnyEffect['type']>(type: K): (EffectOf<K> & { readonly atMs: number })[] {
    const found: (EffectOf<K> & { readonly atMs: number })[] = [];
    const startUs = this.world.scheduler.coreUs - this.world.scheduler.nowUs;
    for (const { event, effects } of this.steps) {
      for (const effect of effects) if (isType(effect, type)) found.push({ ...(effect as EffectOf<K>), atMs: (event.atUs - startUs) / 1_000 });
    }
    return found;
  }

  lease(key: string): ReturnType<Stage['view']>['leases'][number] | null {
    return this.view().leases.find((lease) => lease.model === key) ?? null;
  }
}

type AnyEffect = Step['effects'][number];
function isType(effect: AnyEffect, type: AnyEffect['type']): boolean {
  return effect.type === type;
}

function knobsFor(options: StageOptions): Knobs {
  return {
    seed: options.seed ?? 1, cards: options.cards ?? [card24], engines: options.engines ?? [oneModelEngine, manyModelsEngine], models: options.models,
    clients: 0, holders: 0, arrivalMs: 1_000, zipf: 1, floodMs: 0, twins: 0, deadlineMs: [1_000, 1_000], limits: { ...defaultLimits, ...options.limits }, classPolicies,
    allowLedgerOnly: options.allowLedgerOnly ?? false, faults: { ...noFaults, ...options.faults },
    memory: options.memory === undefined ? null : { reserveBytes: 0, confirms: 'process', allowUnknown: false, faults: noMemoryFaults, ...options.memory },
  };
}
