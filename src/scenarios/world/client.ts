/** A caller: asks where a model should run, then talks to that worker; retries, gives up, changes its mind, disconnects. */
import type { Effect } from '../../../broker/core/effects.js';
import type { RequestClass } from '../../../protocol/index.js';
import type { Call, CallOutcome, CallTaker, Peer, WorldContext } from './context.js';
import type { Happening, Saying } from './core-module.js';
import { sumBytes } from './hosted.js';
import type { ModelKnobs } from './knobs.js';
import { msToUs } from './scheduler.js';
import { Connection } from './wire.js';

export interface Wish {
  readonly model: ModelKnobs;
  readonly class: RequestClass;
  readonly arrivedAtUs: number;
  readonly deadlineUs: number;
  readonly device: string | null;
  triesLeft: number;
  /** The call lasts the model's `callMs` exactly, not up to it. */
  readonly exactMs: boolean;
  readonly contextBytes: number | null;
  /** Set while it runs at a worker. */
  running: { readonly worker: CallTaker; readonly call: Call } | null;
  onBegun: (() => void) | null;
  onEnd: ((outcome: CallOutcome, code: string | null) => void) | null;
}

export class Client implements Peer {
  alive = true;
  private connection: Connection;
  private isAttached = false;
  private readonly placing = new Map<number, Wish>();
  private requests = 0;

  constructor(private readonly world: WorldContext, readonly generation: string) {
    this.connection = this.newConnection();
  }

  attach(): void {
    if (!this.world.brokerIsUp) {
      this.look();
      return;
    }
    this.isAttached = true;
    this.world.tell({ type: 'session_opened', generation: this.generation, role: 'client', name: 'caller' });
    this.world.addPeer(this);
    this.askAgain();
  }

  /** Calls at workers go on; what was asked is asked again, with its age, when a broker is there. */
  loseBroker(): void {
    this.connection.break();
    if (!this.alive || !this.isAttached) return;
    this.isAttached = false;
    this.look();
  }

  private look(): void {
    this.world.scheduler.after(msToUs(this.world.returns.firstLookMs()), () => {
      if (this.alive && !this.isAttached) this.attach();
    });
  }

  private askAgain(): void {
    if (!this.connection.open) this.connection = this.newConnection();
    this.requests = 0;
    const wishes = [...this.placing.values()];
    this.placing.clear();
    for (const wish of wishes) {
      if (wish.deadlineUs > this.world.scheduler.coreUs) this.place(wish);
      else finish(wish, 'denied', 'deadline_passed');
    }
  }

  private newConnection(): Connection {
    const { scheduler, random } = this.world;
    return new Connection(scheduler, random, () => msToUs(this.world.faults.wireDelayMsMax));
  }

  receive(effect: Effect): void {
    this.connection.toPeer(() => this.hear(effect));
  }

  say(saying: Saying): void {
    if (!this.isAttached) return;
    const happening = { ...saying, generation: this.generation } as Happening;
    this.connection.toBroker(() => this.world.tell(happening));
  }

  nextRequest(): number {
    return ++this.requests;
  }

  /** Returns the id of the placement asked for. */
  place(wish: Wish): number {
    const nowUs = this.world.scheduler.coreUs;
    const request = this.nextRequest();
    this.placing.set(request, wish);
    const { model } = wish;
    this.say({
      type: 'place_requested', request, model: model.key, engine: model.engine,
      estimateBytes: this.world.random.chance(0.8) ? sumBytes(model.parts) : null, class: wish.class,
      deadlineMs: Math.max(1, Math.round((wish.deadlineUs - nowUs) / 1_000)), ageMs: Math.round((nowUs - wish.arrivedAtUs) / 1_000),
      device: wish.model.cards > 1 ? null : wish.device, ...(wish.model.cards > 1 ? { cards: wish.model.cards } : {}), policy: { ttlMs: model.ttlMs, pinned: model.pinned, exclusive: false },
    });
    return request;
  }

  /** Takes a wish back, wherever it has got to. */
  cancel(wish: Wish): void {
    if (wish.running !== null) {
      wish.running.worker.dropCall(wish.running.call);
      return;
    }
    for (const [request, other] of this.placing) {
      if (other !== wish) continue;
      this.placing.delete(request);
      this.say({ type: 'request_cancelled', request });
      finish(wish, 'cancelled', null);
    }
  }

  /** End of file: what was under way is void; the calls at the workers end. */
  disconnect(): void {
    if (!this.alive) return;
    this.alive = false;
    this.connection.break();
    const { generation } = this;
    this.world.dropPeer(generation);
    if (this.isAttached) this.world.tellLater(1_000, { type: 'session_closed', generation, reason: 'end of file' });
    this.isAttached = false;
    for (const wish of this.placing.values()) finish(wish, 'cancelled', null);
    this.placing.clear();
  }

  private hear(effect: Effect): void {
    if (effect.type === 'wait' || !('request' in effect) || effect.request === null) return;
    const wish = this.placing.get(effect.request);
    this.placing.delete(effect.request);
    if (wish === undefined) return;
    if (effect.type === 'placed') this.callWorker(wish, effect.worker);
    else if (effect.type === 'deny' || effect.type === 'fail') finish(wish, 'denied', effect.code);
  }

  private callWorker(wish: Wish, generation: string): void {
    const worker = this.world.worker(generation);
    const { scheduler, random } = this.world;
    const leftUs = wish.deadlineUs - scheduler.coreUs;
    const call: Call = {
      model: wish.model, class: wish.class, arrivedAtUs: scheduler.coreUs, deadlineUs: wish.deadlineUs, durationMs: wish.exactMs ? wish.model.callMs : random.int(5, wish.model.callMs),
      contextBytes: wish.contextBytes, onBegun: wish.onBegun, onEnd: (outcome, code) => this.callEnded(wish, outcome, code),
    };
    if (worker === null) {
      this.callEnded(wish, 'worker_lost');
      return;
    }
    wish.running = { worker, call };
    scheduler.after(random.int(50, 2_000), () => worker.take(call));
    // A caller does not wait for ever for its first token.
    scheduler.after(Math.max(1, leftUs) + msToUs(10_000), () => {
      if (wish.running?.call === call) worker.dropCall(call);
    });
  }

  private callEnded(wish: Wish, outcome: CallOutcome, code: string | null = null): void {
    wish.running = null;
    const isLate = wish.deadlineUs <= this.world.scheduler.coreUs;
    const mayRetry = outcome === 'worker_lost' || outcome === 'load_failed' || outcome === 'denied' || outcome === 'out_of_memory';
    if (!mayRetry || isLate || wish.triesLeft === 0 || !this.alive) {
      finish(wish, outcome, code);
      return;
    }
    wish.triesLeft--;
    this.world.scheduler.after(msToUs(this.world.random.int(1, 500)), () => {
      if (this.alive) this.place(wish);
      else finish(wish, outcome, code);
    });
  }
}

function finish(wish: Wish, outcome: CallOutcome, code: string | null): void {
  const { onEnd } = wish;
  wish.onEnd = null;
  onEnd?.(outcome, code);
}
