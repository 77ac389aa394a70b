/** What all simulated processes share: a life, a connection, heartbeats, being stopped for a while, and looking for a broker that is gone. */
import type { Effect } from '../../../broker/core/effects.js';
import type { Peer, WorldContext } from './context.js';
import type { Happening, Saying } from './core-module.js';
import type { Behaviour } from './faults.js';
import { msToUs, type Timer } from './scheduler.js';
import { Connection } from './wire.js';

const lookEveryMs = 100;

export abstract class SimProcess implements Peer {
  alive = true;
  protected connection: Connection | null = null;
  /** Since when it has had no broker; null while it has one, or has not had one yet. */
  protected lostAtUs: number | null = null;
  /** It will not look for a broker again. */
  protected isLost = false;
  private stopped = false;
  private readonly frozen: (() => void)[] = [];

  constructor(readonly world: WorldContext, readonly generation: string, readonly devices: readonly string[], readonly behaviour: Behaviour) {}

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

  get isAttached(): boolean {
    return this.connection?.open === true;
  }

  /** It has lost its broker and will not look for another. */
  get isGone(): boolean {
    return this.lostAtUs !== null && this.isLost;
  }

  /** Its broker is gone, or the connection to it: it looks for one, for as long as it was told to. */
  loseBroker(): void {
    this.connection?.break();
    if (!this.alive || this.lostAtUs !== null) return;
    const { scheduler, returns, faults, knobs } = this.world;
    const lostAtUs = scheduler.nowUs;
    this.lostAtUs = lostAtUs;
    this.isLost ||= returns.isLost(faults.neverReturns);
    this.detached();
    scheduler.after(msToUs(knobs.limits.reattachGraceMs), () => { if (this.alive && this.lostAtUs === lostAtUs) this.graceOver(); });
    this.look(returns.firstLookMs());
  }

  protected abstract obey(effect: Effect): void;

  /** What was asked of it and by it is void. */
  protected abstract detached(): void;

  /** The broker that it has found hears who it is. */
  protected abstract resume(): void;

  /** It has not found one. */
  protected abstract graceOver(): void;

  protected connect(): void {
    const { scheduler, random } = this.world;
    this.lostAtUs = null;
    const connection = new Connection(scheduler, random, () => msToUs(this.world.faults.wireDelayMsMax));
    this.connection = connection;
    this.world.addPeer(this);
    this.beat(connection);
  }

  private look(afterMs: number): void {
    if (this.isLost) return;
    this.later(afterMs, () => {
      if (this.lostAtUs === null || this.isLost) return;
      if (this.world.brokerIsUp) this.resume();
      else this.look(lookEveryMs);
    });
  }

  private beat(connection: Connection): void {
    if (this.connection !== connection) return;
    const { knobs } = this.world;
    this.say({ type: 'heartbeat', reserved: this.devices.map((device) => ({ device, bytes: this.world.card(device).bytesOf(this.generation) })) });
    this.later(knobs.limits.heartbeatIntervalMs, () => this.beat(connection));
  }

  private run(run: () => void): void {
    if (!this.alive) return;
    if (this.stopped) this.frozen.push(run);
    else run();
  }
}
