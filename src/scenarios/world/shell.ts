/**
 * The broker's loop as the real shell runs it: one queue of events, ticks
 * after the sockets have been polled, effects carried out in order. It can
 * stall, and then takes everything that came meanwhile before it looks at the
 * clock.
 */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { Peer, WorldContext } from './context.js';
import type { Core, CoreModule, Happening } from './core-module.js';
import type { Prober } from './probes.js';
import { msToUs } from './scheduler.js';
import type { Supervisor } from './supervisor.js';

export type SpawnEffect = Extract<Effect, { type: 'spawn' }>;

export interface ShellParts {
  readonly module: CoreModule;
  readonly prober: Prober;
  readonly supervisor: Supervisor;
  spawn(effect: SpawnEffect): void;
  /** Called after every step; may throw to end the run. */
  observe(event: CoreEvent, effects: readonly Effect[], core: Core): void;
}

export class Shell {
  readonly core: Core;
  steps = 0;
  private readonly peers = new Map<string, Peer>();
  private readonly waitingEvents: Happening[] = [];
  private stalled = false;

  constructor(private readonly world: WorldContext, private readonly parts: ShellParts) {
    const { knobs, scheduler } = world;
    this.core = parts.module.createCore({
      bootId: `sim${knobs.seed}`,
      startedAtUs: scheduler.coreUs,
      limits: knobs.limits,
      classPolicies: knobs.classPolicies,
      engines: knobs.engines.map(({ name, modelsPerWorker }) => ({ name, modelsPerWorker })),
      allowLedgerOnly: knobs.allowLedgerOnly,
    });
  }

  start(): void {
    for (const { about } of this.world.cards) {
      this.take({
        type: 'card_added', device: about.device, name: 'simulated', kind: 'simulated', totalBytes: about.totalBytes,
        reserveBytes: about.reserveBytes, confirms: about.confirms, floorBytes: about.floorBytes,
      });
    }
    this.parts.prober.start();
    this.nextTick();
  }

  addPeer(peer: Peer): void {
    this.peers.set(peer.generation, peer);
  }

  dropPeer(generation: string): void {
    this.peers.delete(generation);
  }

  take(happening: Happening): void {
    if (this.stalled) this.waitingEvents.push(happening);
    else this.step(happening);
  }

  /** The loop is busy elsewhere for so long. */
  stall(durationUs: number): void {
    if (this.stalled) return;
    this.stalled = true;
    this.world.scheduler.after(durationUs, () => {
      this.stalled = false;
      for (const happening of this.waitingEvents.splice(0)) this.step(happening);
      this.step({ type: 'ticked' });
    });
  }

  private nextTick(): void {
    const { scheduler, random, knobs } = this.world;
    const jitter = random.chance(0.2) ? random.int(0, knobs.limits.tickIntervalMs) : random.int(0, 10);
    scheduler.after(msToUs(knobs.limits.tickIntervalMs + jitter), () => {
      if (!this.stalled) this.step({ type: 'ticked' });
      this.nextTick();
    });
  }

  private step(happening: Happening): void {
    const event: CoreEvent = { atUs: this.world.scheduler.coreUs, ...happening };
    this.steps++;
    const effects = this.parts.module.step(this.core, event);
    this.parts.observe(event, effects, this.core);
    for (const effect of effects) this.carryOut(effect);
  }

  private carryOut(effect: Effect): void {
    switch (effect.type) {
      case 'spawn':
        this.parts.spawn(effect);
        return;
      case 'terminate':
        this.parts.supervisor.terminate(effect.generation, effect.graceMs);
        return;
      case 'sample':
        this.parts.prober.request(effect.device, effect.notBeforeUs);
        return;
      case 'explain':
      case 'publish':
        return;
      default:
        this.peers.get(effect.generation)?.receive(effect);
    }
  }
}
