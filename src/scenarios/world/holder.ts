/** Another program that holds leases: it loads for itself, may be slow to give back, and is never killed by the broker. */
import type { Call, WorldContext } from './context.js';
import { sendAsking } from './asking.js';
import type { Behaviour } from './faults.js';
import { ModelHost } from './host.js';
import type { EngineKnobs, ModelKnobs } from './knobs.js';
import { forget, leadLease } from './hosted.js';
import { leaveMemory } from './memory.js';
import { msToUs } from './scheduler.js';

const holderEngine: EngineKnobs = { name: 'holder', modelsPerWorker: 8, partial: false, profilesFreeMemory: false, floorBytes: 0, spawnMs: 0, memoryBytes: 0 };

export class Holder extends ModelHost {
  readonly isEnding = false;
  readonly stopsLoads = false;

  constructor(world: WorldContext, generation: string, device: string, behaviour: Behaviour) {
    super(world, generation, [device], behaviour, holderEngine);
  }

  attach(): void {
    if (!this.world.brokerIsUp) {
      this.loseBroker();
      return;
    }
    this.world.tell({ type: 'session_opened', generation: this.generation, role: 'holder', name: 'app' });
    this.connect();
  }

  protected override resume(): void {
    if (this.world.knows(this.generation)) {
      this.comeBack();
      return;
    }
    this.attach();
    for (const model of this.models.values()) {
      sendAsking(this, model);
      this.pump(model);
    }
  }

  /** It goes on with what it has, and ends in its own time: it is never ended by us (D7). */
  protected override graceOver(): void {
    this.isLost = true;
    this.world.scheduler.after(msToUs(this.world.returns.endsAfterMs()), () => this.end('exit code 0'));
  }

  /** Uses a model for a while, loading it when it must. */
  use(spec: ModelKnobs, call: Call): void {
    if (this.alive) this.later(0, () => this.takeCall({ ...call, model: spec }));
  }

  /** Gives back an idle model of its own accord. */
  giveBackOne(): void {
    for (const model of this.models.values()) {
      const lease = leadLease(model);
      if (lease === null || model.state !== 'resident' || model.running.size + model.queue.length > 0 || model.door !== null || model.asking !== null) continue;
      // Said before it is done, so that nobody takes the bytes for another's.
      this.say({ type: 'lease_released', lease, cause: 'unloaded', failure: null });
      model.state = 'unloading';
      this.later(this.world.faults.wireDelayMsMax, () => {
        for (const slice of model.slices) this.free(slice, slice.takenBytes);
        leaveMemory(this, model);
        forget(model);
        this.pump(model);
      });
      return;
    }
  }

  /** End of file; the process lives on and keeps its bytes (D7), then ends, unless it finds its way back. */
  breakConnection(livesOnMs: number): void {
    if (!this.alive || !this.isAttached) return;
    const { generation, world } = this;
    this.connection?.break();
    world.tellLater(1_000, { type: 'session_closed', generation, reason: 'end of file' });
    if (world.knobs.limits.reattachGraceMs > 0) this.loseBroker();
    else world.scheduler.after(msToUs(livesOnMs), () => this.end('exit code 0'));
  }

  end(how: string): void {
    if (!this.alive) return;
    const { generation } = this;
    const wasAttached = this.isAttached;
    this.leave();
    if (wasAttached) this.world.tellLater(500, { type: 'session_closed', generation, reason: 'end of file' });
    const confirmUs = msToUs(this.world.random.int(1, 60));
    this.world.scheduler.after(confirmUs, () => this.world.dropPeer(generation));
    this.world.tellLater(confirmUs, { type: 'process_exited', generation, how });
  }
}
