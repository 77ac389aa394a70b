/** What all simulated processes share: a life, a connection, heartbeats, and being stopped for a while. */
import type { Effect } from '../../../broker/core/effects.js';
import type { Peer, WorldContext } from './context.js';
import type { Happening, Saying } from './core-module.js';
import type { Behaviour } from './faults.js';
import { msToUs, type Timer } from './scheduler.js';
import { Connection } from './wire.js';

export abstract class SimProcess implements Peer {
  alive = true;
  protected connection: Connection | null = null;
  private stopped = false;
  private readonly frozen: (() => void)[] = [];

  constructor(readonly world: WorldContext, readonly generation: string, readonly device: string, readonly behaviour: Behaviour) {}

  /** The broker's effects reach the process over its connection. */
  receive(effect: Effect): void {
    this.connection?.toPeer(() => this.run(() => this.obey(effect)));
  }

  /** Lost when the connection breaks before it has arrived. */
  say(saying: Saying): void {
    if (!this.alive || this.connection === null) return;
    const happening = { ...saying, generation: this.generation } as Happening;
    this.connection.toBroker(() => this.world.tell(happening));
  }

  /** Runs after the delay while the process lives; while it is stopped (SIGSTOP), when it goes on. */
  later(delayMs: number, run: () => void): Timer {
    return this.world.scheduler.after(msToUs(delayMs), () => this.run(run));
  }

  stop(): void {
    this.stopped = true;
  }

  goOn(): void {
    this.stopped = false;
    for (const run of this.frozen.splice(0)) if (this.alive) run();
  }

  get isStopped(): boolean {
    return this.stopped;
  }

  protected abstract obey(effect: Effect): void;

  protected connect(): void {
    const { scheduler, random } = this.world;
    this.connection = new Connection(scheduler, random, () => msToUs(this.world.faults.wireDelayMsMax));
    this.world.addPeer(this);
    this.beat();
  }

  private beat(): void {
    const { knobs } = this.world;
    this.say({ type: 'heartbeat', reserved: [{ device: this.device, bytes: this.world.card(this.device).bytesOf(this.generation) }] });
    this.later(knobs.limits.heartbeatIntervalMs, () => this.beat());
  }

  private run(run: () => void): void {
    if (!this.alive) return;
    if (this.stopped) this.frozen.push(run);
    else run();
  }
}
