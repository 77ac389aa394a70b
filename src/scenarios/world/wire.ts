/**
 * One connection between the broker and a peer: each direction keeps its
 * order, however late; what is under way when it breaks is lost, and nothing
 * else ever is.
 */
import type { Prng } from './prng.js';
import type { Scheduler } from './scheduler.js';

export class Connection {
  open = true;
  private toBrokerAtUs = 0;
  private toPeerAtUs = 0;

  constructor(
    private readonly scheduler: Scheduler,
    private readonly random: Prng,
    private readonly delayUsMax: () => number,
  ) {}

  toBroker(deliver: () => void): void {
    this.toBrokerAtUs = this.carry(this.toBrokerAtUs, deliver);
  }

  toPeer(deliver: () => void): void {
    this.toPeerAtUs = this.carry(this.toPeerAtUs, deliver);
  }

  break(): void {
    this.open = false;
  }

  private carry(lastUs: number, deliver: () => void): number {
    if (!this.open) return lastUs;
    const atUs = Math.max(lastUs, this.scheduler.nowUs + this.random.int(20, Math.max(20, this.delayUsMax())));
    this.scheduler.at(atUs, () => {
      if (this.open) deliver();
    });
    return atUs;
  }
}
