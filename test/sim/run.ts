/** One seed, from its first event to its verdict: a phase with faults, then none, after which everything must come to rest. */
import { createHash, type Hash } from 'node:crypto';
import type { CoreEvent } from '../../broker/core/events.js';
import type { Effect } from '../../broker/core/effects.js';
import { Auditor } from './auditor/auditor.js';
import type { Violation } from './auditor/check.js';
import { checkView } from './auditor/rules-view.js';
import { unrest } from './auditor/unrest.js';
import type { Step, WorldCounters } from '../../src/scenarios/world/context.js';
import type { Core, CoreModule } from '../../src/scenarios/world/core-module.js';
import { Demand } from '../../src/scenarios/world/demand.js';
import { knobsOf, type Knobs } from '../../src/scenarios/world/knobs.js';
import { Mischief } from '../../src/scenarios/world/mischief.js';
import { secondsToUs } from '../../src/scenarios/world/scheduler.js';
import { World } from '../../src/scenarios/world/world.js';
import { Timeline, lastOf } from './timeline.js';

export interface RunOptions {
  readonly seed: number;
  /** Core events of the first phase. */
  readonly steps: number;
  readonly module: CoreModule;
  /** Instead of those of the seed. */
  readonly knobs?: Knobs;
  /** Also computes a hash over the whole log. */
  readonly hashes?: boolean;
  /** Hears every step. */
  readonly trace?: (step: Step) => void;
}

export interface RunResult {
  readonly seed: number;
  readonly steps: number;
  readonly settlingSteps: number;
  readonly violations: readonly Violation[];
  /** What had not come to rest, and where; null: all had. */
  readonly stuck: string | null;
  readonly counters: Auditor['counters'] & WorldCounters;
  readonly lastSteps: readonly Step[];
  /** The largest share of its bound that anybody has waited behind others. */
  readonly worstWaitToBound: number;
  readonly hash: string | null;
  readonly virtualSeconds: number;
}

const stepsKept = 40;
const viewEverySteps = 8;
/** After the faults have stopped, everything must rest within this (D32). Longer than the longest deadline of all limits together. */
const settlingSeconds = 400;

class Run {
  private readonly auditor: Auditor;
  private readonly world: World;
  private readonly timeline: Timeline;
  private readonly lastSteps: Step[] = [];
  private readonly hash: Hash | null;

  constructor(private readonly options: RunOptions) {
    const knobs = options.knobs ?? knobsOf(options.seed);
    this.hash = options.hashes === true ? createHash('sha256') : null;
    this.world = new World(knobs, options.module, (event, effects, core) => this.observe(event, effects, core));
    this.timeline = new Timeline(knobs.limits.probeTimeoutMs, (device, takenAtUs) => lastOf(this.world.prober.truths.get(device) ?? [], takenAtUs));
    this.auditor = new Auditor(knobs, { card: (device) => this.world.card(device), at: (device, takenAtUs) => this.timeline.truthAt(device, takenAtUs) });
    this.world.onRestart.tell = () => {
      this.auditor.restart();
      this.timeline.restart();
    };
    this.world.onOom.tell = (oom) => this.auditor.observeOom(oom);
    this.world.onMemory.tell = (generation, bytes) => this.auditor.observeMemoryShort(generation, bytes);
  }

  go(): RunResult {
    const { world, options } = this;
    const demand = new Demand(world);
    let stuck: string | null = null;
    let firstSteps = 0;
    try {
      world.start();
      demand.start();
      new Mischief(world).start();
      world.runUntil(Infinity, () => world.shell.steps >= options.steps || this.isBroken());
      // What the moment of the last one causes besides counts to what follows.
      firstSteps = Math.min(options.steps, world.shell.steps);
      if (!this.isBroken()) stuck = this.settle(demand);
    } catch (error) {
      this.auditor.violations.push({ rule: ruleOfThrown(error), text: String(error instanceof Error ? (error.stack ?? error.message) : error) });
    }
    return {
      seed: options.seed, steps: firstSteps, settlingSteps: world.shell.steps - firstSteps, violations: this.auditor.violations, stuck,
      counters: { ...this.auditor.counters, ...world.counters }, lastSteps: this.lastSteps, worstWaitToBound: this.auditor.book.worstWaitToBound, hash: this.hash?.digest('hex') ?? null,
      virtualSeconds: Math.round(world.scheduler.nowUs / 1_000_000),
    };
  }

  private isBroken(): boolean {
    return this.auditor.violations.length > 0;
  }

  private settle(demand: Demand): string | null {
    const { world } = this;
    demand.stop();
    world.stopFaults();
    const untilUs = world.scheduler.nowUs + secondsToUs(settlingSeconds);
    let unresting: string | null = 'not looked yet';
    let lookedAtStep = 0;
    world.runUntil(untilUs, () => {
      if (world.shell.steps - lookedAtStep < 4) return this.isBroken();
      lookedAtStep = world.shell.steps;
      unresting = world.brokerIsUp ? unrest(this.auditor.book, this.view()) : 'the broker is down';
      return unresting === null || this.isBroken();
    });
    return unresting;
  }

  private view(): ReturnType<CoreModule['ledgerView']> {
    return this.options.module.ledgerView(this.world.shell.core, this.world.scheduler.coreUs);
  }

  private observe(event: CoreEvent, effects: readonly Effect[], core: Core): void {
    const step = { event, effects };
    this.options.trace?.(step);
    this.hash?.update(JSON.stringify(step));
    if (event.type !== 'heartbeat' || effects.length > 0) {
      this.lastSteps.push(step);
      if (this.lastSteps.length > stepsKept) this.lastSteps.shift();
    }
    const seen = this.timeline.see(event);
    const seenEffects = this.timeline.seeEffects(effects);
    this.auditor.observe(seen, seenEffects);
    const broken = this.options.module.checkInvariants(core);
    if (Array.isArray(broken) && broken.length > 0) this.auditor.violations.push({ rule: 'invariant', text: broken.join('; ') });
    if (this.world.shell.steps % viewEverySteps === 0 || event.type === 'models_announced') checkView(this.auditor.checkNow(seen, seenEffects), this.view());
  }
}

/** The core's own assertions are a verdict; anything else thrown is a crash. */
function ruleOfThrown(error: unknown): string {
  return error instanceof Error && 'code' in error && error.code === 'invariant_broken' ? 'invariant' : 'crash';
}

export function runSeed(options: RunOptions): RunResult {
  return new Run(options).go();
}
