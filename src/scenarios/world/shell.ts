/**
 * The broker's loop as the real shell runs it: one queue of events, ticks
 * after the sockets have been polled, effects carried out in order. It can
 * stall, and then takes everything that came meanwhile before it looks at the
 * clock.
 */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import type { CardDescription } from './card.js';
import type { Peer, WorldContext } from './context.js';
import type { Core, CoreModule, Happening } from './core-module.js';
import type { Holder } from './holder.js';
import type { Prober } from './probes.js';
import { msToUs } from './scheduler.js';
import type { Supervisor } from './supervisor.js';
import { Worker } from './worker.js';

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
  /** Of the broker that is there, or was last. */
  core: Core;
  isUp = true;
  /** Which start this is, from 1. */
  boot = 1;
  steps = 0;
  private readonly peers = new Map<string, Peer>();
  private readonly waitingEvents: Happening[] = [];
  private stalled = false;

  constructor(private readonly world: WorldContext, private readonly parts: ShellParts) {
    this.core = this.newCore();
  }

  private newCore(): Core {
    const { knobs, scheduler } = this.world;
    return this.parts.module.createCore({
      bootId: this.boot === 1 ? `sim${knobs.seed}` : `sim${knobs.seed}r${this.boot}`,
      startedAtUs: scheduler.coreUs,
      limits: knobs.limits,
      classPolicies: knobs.classPolicies,
      engines: knobs.engines.map(({ name, modelsPerWorker }) => ({ name, modelsPerWorker })),
      allowLedgerOnly: knobs.allowLedgerOnly,
      allowHostUnknown: knobs.memory?.allowUnknown ?? false,
    });
  }

  start(): void {
    this.addCards();
    this.parts.prober.start();
    this.nextTick();
  }

  /** Those that are there. */
  private addCards(): void {
    for (const card of this.world.cards) if (!card.isLost) this.addCard(card.about);
    const { memory } = this.world;
    if (memory !== null) {
      const { device, totalBytes, reserveBytes, confirms } = memory.about;
      this.take({ type: 'card_added', device, name: 'memory', kind: 'host', totalBytes, reserveBytes, confirms, floorBytes: null });
    }
  }

  /** The broker is gone at once, with all that it knew and all that was on its way. Returns what is on record of the others. */
  kill(workers: readonly Worker[], holders: readonly Holder[]): { readonly process: Worker | Holder; readonly happening: Happening }[] {
    const { module } = this.parts;
    this.isUp = false;
    this.boot++;
    this.stalled = false;
    this.waitingEvents.length = 0;
    this.peers.clear();
    const all = [...workers, ...holders.filter(({ generation }) => module.mayHold(this.core, generation))];
    return all.filter(({ alive }) => alive).map((process) => {
      const { generation, devices } = process;
      const isWorker = process instanceof Worker;
      const floors = module.floorsOf(this.core, generation);
      return { process, happening: { type: 'process_recorded', generation, role: isWorker ? 'worker' : 'holder', name: isWorker ? generation : 'app', engine: isWorker ? process.engine.name : null, devices, floors } };
    });
  }

  /** Another broker: it knows its cards, and who lives on. */
  startAnew(recorded: readonly Happening[]): void {
    this.isUp = true;
    this.core = this.newCore();
    this.addCards();
    for (const happening of recorded) this.take(happening);
  }

  knows(generation: string): boolean {
    return this.isUp && this.parts.module.ledgerView(this.core, this.world.scheduler.coreUs).processes.some((process) => process.generation === generation);
  }

  addCard(about: CardDescription): void {
    this.take({
      type: 'card_added', device: about.device, name: 'simulated', kind: 'simulated', totalBytes: about.totalBytes,
      reserveBytes: about.reserveBytes, confirms: about.confirms, floorBytes: about.floorBytes, yieldFreeBytes: about.yieldFreeBytes ?? null,
    });
  }

  addPeer(peer: Peer): void {
    this.peers.set(peer.generation, peer);
  }

  dropPeer(generation: string): void {
    this.peers.delete(generation);
  }

  take(happening: Happening): void {
    if (!this.isUp) return;
    if (this.stalled) this.waitingEvents.push(happening);
    else this.step(happening);
  }

  /** The loop is busy elsewhere for so long. */
  stall(durationUs: number): void {
    if (this.stalled || !this.isUp) return;
    this.stalled = true;
    const { boot } = this;
    this.world.scheduler.after(durationUs, () => {
      if (this.boot !== boot) return;
      this.stalled = false;
      for (const happening of this.waitingEvents.splice(0)) this.step(happening);
      this.step({ type: 'ticked' });
    });
  }

  private nextTick(): void {
    const { scheduler, random, knobs } = this.world;
    const jitter = random.chance(0.2) ? random.int(0, knobs.limits.tickIntervalMs) : random.int(0, 10);
    scheduler.after(msToUs(knobs.limits.tickIntervalMs + jitter), () => {
      if (this.isUp && !this.stalled) this.step({ type: 'ticked' });
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
