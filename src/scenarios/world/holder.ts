/** Another program that holds leases: it loads for itself, may be slow to give back, and is never killed by the broker. */
import type { Call, WorldContext } from './context.js';
import type { Behaviour } from './faults.js';
import { ModelHost } from './host.js';
import type { EngineKnobs, ModelKnobs } from './knobs.js';
import { forget } from './hosted.js';
import { msToUs } from './scheduler.js';

const holderEngine: EngineKnobs = { name: 'holder', modelsPerWorker: 8, partial: false, profilesFreeMemory: false, floorBytes: 0, spawnMs: 0 };

export class Holder extends ModelHost {
  readonly isEnding = false;
  readonly stopsLoads = false;

  constructor(world: WorldContext, generation: string, device: string, behaviour: Behaviour) {
    super(world, generation, device, behaviour, holderEngine);
  }

  attach(): void {
    this.world.tell({ type: 'session_opened', generation: this.generation, role: 'holder', name: 'app' });
    this.connect();
  }

  /** Uses a model for a while, loading it when it must. */
  use(spec: ModelKnobs, call: Call): void {
    if (this.alive) this.later(0, () => this.takeCall({ ...call, model: spec }));
  }

  /** Gives back an idle model of its own accord. */
  giveBackOne(): void {
    for (const model of this.models.values()) {
      const { lease } = model;
      if (lease === null || model.state !== 'resident' || model.running.size + model.queue.length > 0 || model.door !== null || model.asking !== null) continue;
      // Said before it is done, so that nobody takes the bytes for another's.
      this.say({ type: 'lease_released', lease, cause: 'unloaded', failure: null });
      model.state = 'unloading';
      this.later(this.world.faults.wireDelayMsMax, () => {
        this.free(model, model.takenBytes);
        forget(model);
        this.pump(model);
      });
      return;
    }
  }

  /** End of file; the process lives on and keeps its bytes (D7), then ends. */
  breakConnection(livesOnMs: number): void {
    if (!this.alive || this.connection?.open !== true) return;
    const { generation } = this;
    this.connection.break();
    this.world.scheduler.after(1_000, () => this.world.tell({ type: 'session_closed', generation, reason: 'end of file' }));
    this.world.scheduler.after(msToUs(livesOnMs), () => this.end('exit code 0'));
  }

  end(how: string): void {
    if (!this.alive) return;
    const { generation } = this;
    const wasAttached = this.connection?.open === true;
    this.leave();
    const { scheduler, random } = this.world;
    if (wasAttached) scheduler.after(500, () => this.world.tell({ type: 'session_closed', generation, reason: 'end of file' }));
    scheduler.after(msToUs(random.int(1, 60)), () => {
      this.world.dropPeer(generation);
      this.world.tell({ type: 'process_exited', generation, how });
    });
  }
}
