/** The whole simulated machine: cards, processes, callers, and the broker's loop, on one virtual clock. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Effect } from '../../../broker/core/effects.js';
import { noLag, SimCard, type FreeLag } from './card.js';
import { Client } from './client.js';
import type { CallTaker, HeldState, OutOfMemory, Peer, WorldContext, WorldCounters } from './context.js';
import type { Core, CoreModule, Happening } from './core-module.js';
import { behaviourOf, noFaults, type Behaviour, type Faults } from './faults.js';
import { Holder } from './holder.js';
import type { Knobs } from './knobs.js';
import { memoryBehaviourOf, memoryDevice, noMemoryFaults, type MemoryFaults } from './memory-knobs.js';
import { Prng } from './prng.js';
import { Prober } from './probes.js';
import { Returns } from './returns.js';
import { msToUs, Scheduler } from './scheduler.js';
import { Shell, type SpawnEffect } from './shell.js';
import { Supervisor } from './supervisor.js';
import { Worker } from './worker.js';

export type Observe = (event: CoreEvent, effects: readonly Effect[], core: Core) => void;

export class World implements WorldContext {
  readonly scheduler = new Scheduler();
  readonly random: Prng;
  readonly cards: readonly SimCard[];
  readonly memory: SimCard | null;
  /** Told before somebody is killed for want of memory. */
  readonly onMemory: { tell: ((generation: string, bytes: number) => void) | null } = { tell: null };
  private memoryFaults: MemoryFaults;
  private readonly allocators: Prng;
  readonly counters: WorldCounters = { calls: 0, answered: 0, failed: 0, crashes: 0, ooms: 0, memoryShort: 0, loads: 0, restarts: 0, returned: 0 };
  readonly onOom: { tell: ((oom: OutOfMemory) => void) | null } = { tell: null };
  /** Another broker is about to start: told to whoever keeps a book of the last. */
  readonly onRestart: { tell: (() => void) | null } = { tell: null };
  readonly returns: Returns;
  readonly prober: Prober;
  readonly supervisor: Supervisor;
  readonly shell: Shell;
  readonly workers = new Map<string, Worker>();
  readonly holders = new Set<Holder>();
  readonly clients: Client[] = [];
  faults: Faults;
  /** How the next spawned process behaves; scripted by scenarios, drawn from the faults otherwise. */
  behaviourOfNext: (engine: string) => Behaviour;
  /** Scripted by scenarios; drawn from the faults otherwise. */
  lag: (after: 'free' | 'exit') => FreeLag;
  /** The faults have stopped. */
  isCalm = false;
  private sessions = 0;
  private readonly byDevice = new Map<string, SimCard>();

  constructor(readonly knobs: Knobs, module: CoreModule, observe: Observe) {
    this.random = new Prng(knobs.seed, 'world');
    this.allocators = new Prng(knobs.seed, 'allocators');
    this.faults = knobs.faults;
    this.cards = knobs.cards.map((about) => new SimCard(about, this.scheduler));
    this.returns = new Returns(knobs.seed);
    this.memory = knobs.memory === null ? null : new SimCard({ ...knobs.memory, device: memoryDevice, floorBytes: null }, this.scheduler);
    for (const card of [...this.cards, ...(this.memory === null ? [] : [this.memory])]) this.byDevice.set(card.about.device, card);
    this.memoryFaults = knobs.memory?.faults ?? noMemoryFaults;
    const remembers = new Prng(knobs.seed, 'memory behaviour');
    this.behaviourOfNext = () => ({ ...behaviourOf(this.faults, this.random), ...memoryBehaviourOf(this.memoryFaults, remembers) });
    this.lag = (after) => lagUpTo(this.random, after === 'free' ? this.faults.freeLagMsMax : this.faults.exitLagMsMax);
    this.prober = new Prober(this);
    this.supervisor = new Supervisor(this);
    this.shell = new Shell(this, { module, prober: this.prober, supervisor: this.supervisor, spawn: (effect) => this.spawn(effect), observe });
  }

  start(): void {
    this.shell.start();
  }

  card(device: string): SimCard {
    const card = this.byDevice.get(device);
    if (card === undefined) throw new Error(`the world has no card ${device}`);
    return card;
  }

  memoryLag(): FreeLag {
    return lagUpTo(this.allocators, this.memoryFaults.freeLagMsMax);
  }

  onMemoryShort(generation: string, bytes: number): void {
    this.counters.memoryShort++;
    this.onMemory.tell?.(generation, bytes);
  }

  tell(happening: Happening): void {
    this.shell.take(happening);
  }

  tellLater(delayUs: number, happening: Happening): void {
    const { boot } = this;
    this.scheduler.after(delayUs, () => { if (this.boot === boot) this.tell(happening); });
  }

  get brokerIsUp(): boolean {
    return this.shell.isUp;
  }

  get boot(): number {
    return this.shell.boot;
  }

  knows(generation: string): boolean {
    return this.shell.knows(generation);
  }

  /** kill -9 of the broker, and a start of another after a while. Whoever lives on is on record, workers and holders of leases. */
  restartBroker(downMs: number): void {
    if (!this.shell.isUp) return;
    this.counters.restarts++;
    const records = this.shell.kill([...this.workers.values()], [...this.holders]);
    this.supervisor.forget();
    this.prober.forget();
    for (const peer of [...this.workers.values(), ...this.holders, ...this.clients]) peer.loseBroker();
    this.scheduler.after(msToUs(downMs), () => {
      this.onRestart.tell?.();
      this.shell.startAnew(records.filter(({ process }) => process.alive).map(({ happening }) => happening));
    });
  }

  leaseOfAnother(generation: string): HeldState | null {
    const others = [...this.workers.values(), ...this.holders].filter((process) => process.alive && process.generation !== generation);
    const held = others.flatMap((process) => process.held());
    return held.length === 0 ? null : this.returns.oneOf(held);
  }

  worker(generation: string): CallTaker | null {
    const worker = this.workers.get(generation);
    return worker?.alive === true ? worker : null;
  }

  addPeer(peer: Peer): void {
    this.shell.addPeer(peer);
  }

  dropPeer(generation: string): void {
    this.shell.dropPeer(generation);
  }

  addClient(): Client {
    const client = new Client(this, this.nextSession());
    client.attach();
    this.clients.push(client);
    return client;
  }

  addHolder(device: string, behaviour: Behaviour): Holder {
    const holder = new Holder(this, this.nextSession(), device, behaviour);
    holder.attach();
    this.holders.add(holder);
    return holder;
  }

  /** Runs the world until `isOver` or until the clock has passed `untilUs`. */
  runUntil(untilUs: number, isOver: () => boolean = () => false): void {
    while (this.scheduler.nowUs < untilUs && !isOver()) if (!this.scheduler.runNext()) return;
  }

  /** From now on nothing new goes wrong; those who are stopped or lie must be got rid of by the broker, holders mend themselves. */
  stopFaults(): void {
    this.isCalm = true;
    this.faults = noFaults;
    for (const card of this.cards) {
      card.foreignBytes = 0;
      this.regainCard(card);
    }
    this.memoryFaults = noMemoryFaults;
    if (this.memory !== null) this.memory.foreignBytes = 0;
    for (const holder of this.holders) {
      if (holder.isStopped) holder.goOn();
      if (holder.isGone) holder.end('exit code 0');
      const { ackLies, freesShort, ignoresCommands, leaksOnFailure, beginsLateMs } = holder.behaviour;
      if (ackLies || freesShort || ignoresCommands || leaksOnFailure || beginsLateMs > 0) holder.end('exit code 0');
    }
  }

  /** It has fallen off the bus: nothing can be taken there, and nobody reads it. */
  loseCard(card: SimCard): void {
    card.isLost = true;
    this.tell({ type: 'card_lost', device: card.about.device, reason: 'GPU is lost' });
  }

  /** It is back, with what it had. */
  regainCard(card: SimCard): void {
    if (!card.isLost) return;
    card.isLost = false;
    this.shell.addCard(card.about);
  }

  private nextSession(): string {
    return `sim${this.knobs.seed}-s${++this.sessions}`;
  }

  private spawn(effect: SpawnEffect): void {
    const { generation } = effect;
    const engine = this.knobs.engines.find((candidate) => candidate.name === effect.engine);
    const { devices } = effect;
    if (engine === undefined || devices.length === 0 || this.random.chance(this.faults.spawnFails)) {
      this.scheduler.after(20_000, () => this.tell({ type: 'spawn_failed', generation, code: 'spawn_failed', reason: 'cannot be started' }));
      return;
    }
    const worker = new Worker(this, generation, devices, this.behaviourOfNext(engine.name), engine, this.supervisor);
    this.workers.set(generation, worker);
    worker.start(this.random.chance(this.faults.spawnHangs));
  }
}

function lagUpTo(random: Prng, msMax: number): FreeLag {
  if (msMax === 0 || random.chance(0.3)) return noLag;
  const toMs = random.int(1, msMax);
  return { fromUs: msToUs(random.int(0, toMs)), toUs: msToUs(toMs), steps: random.pick([1, 4]) };
}
