/** Random arrivals: calls, cancellations, evictions by hand, pins, callers that come and go, holders that use and give back. */
import type { Call } from './context.js';
import type { Client, Wish } from './client.js';
import { behaviourOf } from './faults.js';
import type { Holder } from './holder.js';
import { shareOf } from './hosted.js';
import type { ModelKnobs } from './knobs.js';
import { Prng } from './prng.js';
import { msToUs } from './scheduler.js';
import type { World } from './world.js';

const classes = ['interactive', 'normal', 'background'] as const;

export class Demand {
  private stopped = false;
  private readonly random: Prng;
  private readonly flood: Prng;
  private readonly twins: Prng;

  constructor(private readonly world: World) {
    this.random = new Prng(world.knobs.seed, 'demand');
    this.flood = new Prng(world.knobs.seed, 'flood');
    this.twins = new Prng(world.knobs.seed, 'twin');
  }

  start(): void {
    const { knobs } = this.world;
    for (let index = 0; index < knobs.clients; index++) this.world.addClient();
    for (let index = 0; index < knobs.holders; index++) this.newHolder();
    this.nextArrival();
    if (knobs.holders > 0) this.nextHolderDecision();
    if (knobs.floodMs > 0) this.nextFlood(this.world.addClient(), 1);
  }

  /** No new calls; those under way end in their time. */
  stop(): void {
    this.stopped = true;
  }

  private nextArrival(): void {
    this.world.scheduler.after(msToUs(this.random.exponential(this.world.knobs.arrivalMs)), () => {
      if (this.stopped) return;
      this.decide();
      this.nextArrival();
    });
  }

  private decide(): void {
    const { random, world } = this;
    const client = random.pick(world.clients);
    const model = this.pickModel();
    const what = random.unit();
    if (what < 0.03) {
      client.say({ type: 'evict_requested', request: client.nextRequest(), model: model.key, target: random.pick(['host', 'none']), deadlineMs: random.int(100, 20_000) });
    } else if (what < 0.05) {
      this.pinForAWhile(client, model);
    } else if (what < 0.06) {
      client.disconnect();
      world.clients.splice(world.clients.indexOf(client), 1);
      world.addClient();
    } else {
      this.wish(client, model);
    }
  }

  private pinForAWhile(client: Client, model: ModelKnobs): void {
    client.say({ type: 'pin_requested', request: client.nextRequest(), model: model.key, pinned: true });
    this.world.scheduler.after(msToUs(this.random.int(500, 20_000)), () => {
      const other = client.alive ? client : this.world.clients[0];
      other?.say({ type: 'pin_requested', request: other.nextRequest(), model: model.key, pinned: model.pinned });
    });
  }

  private wish(client: Client, model: ModelKnobs): void {
    const { random, world } = this;
    const nowUs = world.scheduler.coreUs;
    const { counters } = world;
    counters.calls++;
    const wish: Wish = {
      model, class: random.chance(0.7) ? model.class : random.pick(classes), arrivedAtUs: nowUs,
      deadlineUs: nowUs + msToUs(random.int(...world.knobs.deadlineMs)),
      device: random.chance(0.15) ? random.pick(world.cards).about.device : null, triesLeft: random.int(0, 2), running: null, exactMs: false, contextBytes: this.contextFor(model), onBegun: null,
      onEnd: (outcome) => {
        if (outcome === 'answered') counters.answered++;
        else counters.failed++;
      },
    };
    client.place(wish);
    if (random.chance(0.06)) world.scheduler.after(msToUs(random.int(1, 8_000)), () => client.cancel(wish));
  }

  /** Few calls are longer than the declared context holds. */
  private contextFor(model: ModelKnobs): number | null {
    const context = model.parts.find((part) => part.kind === 'context');
    return context !== undefined && this.random.chance(0.03) ? Math.floor(context.bytes * 1.5) : null;
  }

  private pickModel(): ModelKnobs {
    const { models, zipf } = this.world.knobs;
    return models[this.random.zipf(models.length, zipf)] ?? this.random.pick(models);
  }

  private newHolder(): void {
    const { world, random } = this;
    world.addHolder(random.pick(world.cards).about.device, behaviourOf(world.faults, random));
  }

  private nextHolderDecision(): void {
    const { world, random } = this;
    world.scheduler.after(msToUs(random.exponential(world.knobs.arrivalMs * 4)), () => {
      if (this.stopped) return;
      const holders = [...world.holders].filter((holder) => holder.alive);
      if (holders.length < world.knobs.holders && random.chance(0.2)) this.newHolder();
      const holder = holders.length === 0 ? null : random.pick(holders);
      if (holder !== null) this.decideFor(holder);
      this.nextHolderDecision();
    });
  }

  /** A caller that places more models than it will ever use, and a program that asks for many at once. */
  private nextFlood(client: Client, number: number): void {
    const { world, flood } = this;
    world.scheduler.after(msToUs(flood.exponential(world.knobs.floodMs)), () => {
      if (this.stopped) return;
      const count = flood.int(2, 8);
      for (let index = 0; index < count; index++) this.floodOne(client, `flood-${number + index}`);
      this.nextFlood(client.alive ? client : world.addClient(), number + count);
    });
  }

  private floodOne(client: Client, key: string): void {
    const { world, flood } = this;
    const deadlineMs = flood.int(1_000, 20_000);
    const holder = flood.chance(0.5) ? [...world.holders].find((candidate) => candidate.alive) : undefined;
    if (holder === undefined) {
      client.say({
        type: 'place_requested', request: client.nextRequest(), model: key, engine: flood.pick(world.knobs.engines).name, estimateBytes: null, class: flood.pick(classes),
        deadlineMs, ageMs: 0, device: null, policy: { ttlMs: null, pinned: false, exclusive: false },
      });
      return;
    }
    const nowUs = world.scheduler.coreUs;
    const model = { ...flood.pick(world.knobs.models), key, pinned: false };
    holder.use(model, { model, class: flood.pick(classes), arrivedAtUs: nowUs, deadlineUs: nowUs + msToUs(deadlineMs), durationMs: 5, contextBytes: null, onBegun: null, onEnd: null });
  }

  private decideFor(holder: Holder): void {
    const { random } = this;
    const what = random.unit();
    if (what < 0.25) {
      holder.giveBackOne();
      return;
    }
    if (what < 0.27) {
      holder.breakConnection(random.int(100, 15_000));
      return;
    }
    if (what < 0.29) {
      holder.end('exit code 0');
      return;
    }
    const model = this.pickModel();
    const nowUs = this.world.scheduler.coreUs;
    const call: Call = {
      model, class: random.pick(classes), arrivedAtUs: nowUs, deadlineUs: nowUs + msToUs(random.int(...this.world.knobs.deadlineMs)),
      durationMs: random.int(5, model.callMs), contextBytes: null, onBegun: null, onEnd: null,
    };
    const own = { ...model, ...onOneCard(model), key: `app-${model.key}`, pinned: false };
    holder.use(own, call);
    if (this.twins.chance(this.world.knobs.twins)) holder.use({ ...own, copy: 2 }, call);
  }
}

/** What a holder uses of a model over several cards is what one of them has of it. */
function onOneCard({ cards, parts, trueParts, peakBytes, truePeakBytes }: ModelKnobs): Partial<ModelKnobs> {
  if (cards === 1) return {};
  return { cards: 1, parts: shareOf(parts, 1 / cards), trueParts: shareOf(trueParts, 1 / cards), peakBytes: Math.floor(peakBytes / cards), truePeakBytes: Math.ceil(truePeakBytes / cards) };
}
