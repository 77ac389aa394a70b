/** The ladder that ends a process: asked, SIGTERM, grace, SIGKILL, confirmation; and the news of every end. */
import type { WorldContext } from './context.js';
import { msToUs } from './scheduler.js';

/** A process as the supervisor sees it. */
export interface Ended {
  readonly generation: string;
  readonly alive: boolean;
  /** True when it will end by itself on SIGTERM. */
  readonly heedsSigterm: boolean;
  readonly unkillableMs: () => number;
  askToEnd(): void;
  end(how: string): void;
}

export class Supervisor {
  private readonly processes = new Map<string, Ended>();
  private readonly ending = new Set<string>();

  constructor(private readonly world: WorldContext) {}

  watch(process: Ended): void {
    this.processes.set(process.generation, process);
  }

  living(): readonly Ended[] {
    return [...this.processes.values()];
  }

  terminate(generation: string, graceMs: number): void {
    const process = this.processes.get(generation);
    if (process === undefined || this.ending.has(generation)) return;
    this.ending.add(generation);
    const { scheduler, boot } = this.world;
    scheduler.after(200, () => {
      if (process.alive && this.world.boot === boot) process.askToEnd();
    });
    scheduler.after(msToUs(graceMs), () => { if (this.world.boot === boot) this.kill(process); });
  }

  /** The ladders end with the broker that had begun them. */
  forget(): void {
    this.ending.clear();
  }

  private kill(process: Ended): void {
    if (!process.alive) return;
    const { scheduler, knobs } = this.world;
    const unkillableMs = process.unkillableMs();
    scheduler.after(msToUs(unkillableMs) + 5_000, () => {
      if (process.alive) process.end('SIGKILL');
    });
    const { boot } = this.world;
    scheduler.after(msToUs(knobs.limits.killConfirmMs), () => {
      if (process.alive && this.world.boot === boot) this.world.tell({ type: 'kill_unconfirmed', generation: process.generation, reason: 'still in the kernel' });
    });
  }

  /** The process is gone: its end is confirmed a moment later. */
  ended(generation: string, how: string, afterUs: number): void {
    if (!this.processes.delete(generation)) return;
    const { boot } = this.world;
    this.world.scheduler.after(afterUs, () => {
      this.world.dropPeer(generation);
      if (this.world.boot !== boot) return;
      this.ending.delete(generation);
      this.world.tell({ type: 'process_exited', generation, how });
    });
  }
}
