/** A spawned worker: floor first, then ready; serves clients' calls; ends when it is told to, when its connection breaks, or badly. */
import type { Call, CallTaker, WorldContext } from './context.js';
import type { Behaviour } from './faults.js';
import { ModelHost } from './host.js';
import type { EngineKnobs } from './knobs.js';
import { tellCaller } from './hosted.js';
import { msToUs } from './scheduler.js';
import type { Ended, Supervisor } from './supervisor.js';

export class Worker extends ModelHost implements CallTaker, Ended {
  isReady = false;
  private ending = false;

  constructor(world: WorldContext, generation: string, device: string, behaviour: Behaviour, engine: EngineKnobs, private readonly supervisor: Supervisor) {
    super(world, generation, device, behaviour, engine);
    supervisor.watch(this);
  }

  get isEnding(): boolean {
    return this.ending;
  }

  get stopsLoads(): boolean {
    return !this.engine.profilesFreeMemory;
  }

  get heedsSigterm(): boolean {
    return !this.behaviour.ignoresSigterm;
  }

  /** The process has started: its context is made on the card, then it attaches. A hang never gets so far. */
  start(hangs: boolean): void {
    const { floorBytes, spawnMs } = this.engine;
    this.later(spawnMs * 0.6, () => {
      if (!this.world.card(this.device).allocate(this.generation, floorBytes)) {
        this.world.counters.ooms++;
        this.end('out of memory at start');
        return;
      }
      if (hangs) return;
      this.later(spawnMs * 0.4, () => this.ready());
    });
  }

  private ready(): void {
    this.isReady = true;
    this.connect();
    const { partial, profilesFreeMemory, floorBytes } = this.engine;
    const reports = this.world.random.chance(0.8);
    this.say({
      type: 'process_ready', capabilities: { park: true, partial, embed: false, profilesFreeMemory },
      floors: reports ? [{ device: this.device, bytes: floorBytes }] : [],
    });
  }

  take(call: Call): void {
    const mayTake = this.alive && !this.ending && call.model.engine === this.engine.name;
    if (!mayTake) {
      tellCaller(call, 'worker_lost');
      return;
    }
    this.later(0, () => this.takeCall(call));
  }

  dropCall(call: Call): void {
    const model = this.models.get(call.model.key);
    if (model !== undefined) this.endCall(model, call, 'cancelled');
  }

  /** SIGTERM. */
  askToEnd(): void {
    this.ending = true;
    if (this.heedsSigterm && !this.isStopped) this.later(this.world.random.int(5, 300), () => this.end('exit code 0'));
  }

  unkillableMs(): number {
    return this.world.faults.unkillable > 0 ? this.behaviour.unkillableMs : 0;
  }

  /** Without its broker a worker ends (grace 0). */
  breakConnection(): void {
    if (!this.alive || this.connection?.open !== true) return;
    this.connection.break();
    const { generation } = this;
    this.world.scheduler.after(1_000, () => this.world.tell({ type: 'session_closed', generation, reason: 'connection reset' }));
    this.later(this.world.random.int(10, 800), () => this.end('its broker was gone'));
  }

  end(how: string): void {
    if (!this.alive) return;
    const { generation } = this;
    const { scheduler, random, faults } = this.world;
    const wasAttached = this.connection?.open === true;
    const lease = [...this.models.values()].find((model) => model.lease !== null)?.lease;
    this.leave();
    const confirmUs = msToUs(random.int(1, 60));
    if (wasAttached) scheduler.after(500, () => this.world.tell({ type: 'session_closed', generation, reason: 'end of file' }));
    this.supervisor.ended(generation, how, confirmUs);
    if (lease === undefined || lease === null || !random.chance(faults.staleMessages)) return;
    scheduler.after(confirmUs + random.int(0, 500_000), () => {
      this.world.tell({ type: 'lease_released', generation, lease, cause: 'unloaded', failure: null });
      this.world.tell({ type: 'use_reported', generation, lease, seq: 1_000_000, inFlight: 0, queued: 0 });
    });
  }
}
