/** A spawned worker: floor first, then ready; serves clients' calls; ends when it is told to, when its broker is gone for good, or badly. */
import type { Effect } from '../../../broker/core/effects.js';
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
  private tellsFloor = false;

  constructor(world: WorldContext, generation: string, devices: readonly string[], behaviour: Behaviour, engine: EngineKnobs, private readonly supervisor: Supervisor) {
    super(world, generation, devices, behaviour, engine);
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
      if (!this.devices.every((device) => this.world.card(device).allocate(this.generation, floorBytes))) {
        this.world.counters.ooms++;
        this.end('out of memory at start');
        return;
      }
      if (this.world.memory?.allocate(this.generation, this.engine.memoryBytes) === false) {
        this.world.onMemoryShort(this.generation, this.engine.memoryBytes);
        this.end('killed: out of memory');
        return;
      }
      if (!hangs) this.later(spawnMs * 0.4, () => this.ready());
    });
    if (hangs) this.isLost = true;
  }

  private ready(): void {
    this.isReady = true;
    this.tellsFloor = this.world.random.chance(0.8);
    // One whose broker is gone says it when it has found the next.
    if (this.lostAtUs !== null) return;
    if (!this.isAttached) this.connect();
    this.sayReady();
  }

  private sayReady(): void {
    const { partial, profilesFreeMemory, floorBytes } = this.engine;
    this.say({
      type: 'process_ready', capabilities: { park: true, partial, embed: false, profilesFreeMemory },
      floors: this.tellsFloor ? this.devices.map((device) => ({ device, bytes: floorBytes + (this.residualTold.has(device) ? this.behaviour.residualBytes : 0) })) : [],
    });
  }

  protected override resume(): void {
    // It has not heard whether it may go on living.
    if (this.ending) return;
    this.comeBack();
    if (this.isReady) this.sayReady();
  }

  /** One that hangs, or is stopped, is left to whoever watches it: its guard, or the next broker. */
  protected override graceOver(): void {
    if (!this.isLost && !this.isStopped) this.end('its broker was gone');
    else if (!this.world.brokerIsUp) this.end('ended by its guard');
  }

  override receive(effect: Effect): void {
    if (effect.type === 'grant' && this.world.returns.isLost(this.world.faults.breaksAtGrant)) this.breakConnection();
    super.receive(effect);
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

  /** SIGTERM from somebody else: it says so to its broker, where it has one. */
  leaveUnasked(): void {
    this.later(0, () => {
      if (this.ending) return;
      if (this.isReady) this.say({ type: 'process_ending', reason: 'SIGTERM' });
      this.askToEnd();
    });
  }

  unkillableMs(): number {
    return this.world.faults.unkillable > 0 ? this.behaviour.unkillableMs : 0;
  }

  /** The connection alone is lost: with no grace that is the end of a worker. */
  breakConnection(): void {
    if (!this.alive || !this.isAttached) return;
    const { generation, world } = this;
    this.connection?.break();
    world.tellLater(1_000, { type: 'session_closed', generation, reason: 'connection reset' });
    if (world.knobs.limits.reattachGraceMs > 0) this.loseBroker();
    else this.later(world.random.int(10, 800), () => this.end('its broker was gone'));
  }

  end(how: string): void {
    if (!this.alive) return;
    const { generation } = this;
    const { random, faults } = this.world;
    const wasAttached = this.isAttached;
    const lease = [...this.models.values()].flatMap((model) => model.slices).find((slice) => slice.lease !== null)?.lease;
    this.leave();
    const confirmUs = msToUs(random.int(1, 60));
    if (wasAttached) this.world.tellLater(500, { type: 'session_closed', generation, reason: 'end of file' });
    this.supervisor.ended(generation, how, confirmUs);
    if (lease === undefined || lease === null || !random.chance(faults.staleMessages)) return;
    const staleUs = confirmUs + random.int(0, 500_000);
    this.world.tellLater(staleUs, { type: 'lease_released', generation, lease, cause: 'unloaded', failure: null });
    this.world.tellLater(staleUs, { type: 'use_reported', generation, lease, seq: 1_000_000, inFlight: 0, queued: 0 });
  }
}
