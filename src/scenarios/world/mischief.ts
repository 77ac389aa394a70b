/** What goes wrong by itself: crashes, stops, broken connections, strangers on the card, a busy loop, a suspended machine. */
import type { Faults } from './faults.js';
import type { ModelHost } from './host.js';
import { Prng } from './prng.js';
import { msToUs } from './scheduler.js';
import type { World } from './world.js';

type Rate = { [K in keyof Faults]: K extends `${string}Ms` ? K : never }[keyof Faults];

export class Mischief {
  private readonly random: Prng;
  private readonly memory: Prng;

  constructor(private readonly world: World) {
    this.random = new Prng(world.knobs.seed, 'mischief');
    this.memory = new Prng(world.knobs.seed, 'foreign memory');
  }

  start(): void {
    this.repeat('foreignMs', () => this.changeForeign());
    this.repeat('cardLostMs', () => this.loseCard());
    this.repeat('crashMs', () => this.crashOne());
    this.repeat('stallMs', () => this.stopOne());
    this.repeat('breakMs', () => this.breakOne());
    this.repeat('leaveMs', () => this.tellOneToEnd());
    this.repeat('restartMs', () => this.world.restartBroker(this.world.returns.downMs(this.world.knobs.limits.reattachGraceMs)));
    this.repeat('loopStallMs', () => this.world.shell.stall(msToUs(this.random.int(50, this.world.faults.loopStallMsMax))));
    this.repeatForeignMemory();
    this.repeat('clockJumpMs', () => this.world.scheduler.jump(msToUs(this.random.pick([2_000, 60_000, 8 * 3_600_000]))));
    this.repeat('clockBackMs', () => this.world.scheduler.jump(-msToUs(this.random.pick([1, 300, 2_000, 30_000]))));
  }

  private repeat(rate: Rate, happen: () => void): void {
    const meanMs = this.world.knobs.faults[rate];
    if (meanMs === 0) return;
    this.world.scheduler.after(msToUs(this.random.exponential(meanMs)), () => {
      if (this.world.faults[rate] === 0) return;
      happen();
      this.repeat(rate, happen);
    });
  }

  /** Other programs take and leave the machine's memory. */
  private repeatForeignMemory(): void {
    const { world } = this;
    const { memory } = world;
    const faults = world.knobs.memory?.faults;
    if (memory === null || faults === undefined || faults.foreignMs === 0) return;
    world.scheduler.after(msToUs(this.memory.exponential(faults.foreignMs)), () => {
      if (world.isCalm) return;
      const wantedBytes = this.memory.chance(0.3) ? 0 : this.memory.int(0, Math.floor(memory.about.totalBytes * faults.foreignShareMax));
      memory.foreignBytes = Math.min(wantedBytes, memory.foreignBytes + memory.freeBytes());
      this.repeatForeignMemory();
    });
  }

  private changeForeign(): void {
    const { random, world } = this;
    const card = random.pick(world.cards);
    const wantedBytes = random.chance(0.3) ? 0 : random.int(0, Math.floor(card.about.totalBytes * world.faults.foreignShareMax));
    // Where nothing is refused it may take what others have, and the driver makes them give way.
    card.foreignBytes = card.about.spills === true ? wantedBytes : Math.min(wantedBytes, card.foreignBytes + card.freeBytes());
  }

  private loseCard(): void {
    const { random, world } = this;
    const card = random.pick(world.cards);
    if (card.isLost) return;
    world.loseCard(card);
    world.scheduler.after(msToUs(random.int(500, 30_000)), () => world.regainCard(card));
  }

  private crashOne(): void {
    const { random, world } = this;
    const living = this.living();
    if (living.length === 0) return;
    world.counters.crashes++;
    random.pick(living).end('exit code 139');
  }

  private stopOne(): void {
    const living = this.living();
    if (living.length === 0) return;
    const victim = this.random.pick(living);
    victim.stop();
    if (this.random.chance(0.6)) this.world.scheduler.after(msToUs(this.random.int(200, 20_000)), () => victim.goOn());
  }

  private breakOne(): void {
    const { random, world } = this;
    const living = this.living();
    if (living.length === 0) return;
    const victim = random.pick(living);
    const worker = world.workers.get(victim.generation);
    if (worker !== undefined) {
      worker.breakConnection();
      return;
    }
    for (const holder of world.holders) if (holder.generation === victim.generation) holder.breakConnection(random.int(100, 20_000));
  }

  /** Not by the broker, which hears of it from the worker alone. */
  private tellOneToEnd(): void {
    const workers = [...this.world.workers.values()].filter((worker) => worker.alive && !worker.isEnding);
    if (workers.length > 0) this.random.pick(workers).leaveUnasked();
  }

  private living(): ModelHost[] {
    return [...this.world.workers.values(), ...this.world.holders].filter((process) => process.alive);
  }
}
