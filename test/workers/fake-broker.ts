/** A broker that does what a test scripts: it welcomes, grants, commands, and keeps one simulated card. */
import { defaultLimits, type LeaseholdError, type ControlMessage, type Limits } from '../../protocol/index.js';
import { createTicket, monotonicUs, openChannel, type ByteStream, type Channel } from '../../protocol/node/index.js';

export type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;

export const generation = 'b-w1';
export const workerKey = 'ab'.repeat(32);
export const card = 'SIM-card';

export interface FakeBrokerOptions {
  readonly limits?: Limits;
  /** What the simulated card holds. */
  readonly cardBytes?: number;
  /** Told with the welcome; default 0: who loses it need not look for another. */
  readonly reattachGraceMs?: number;
  /** Takes a request for room; default: granted at once under a new lease. Return false to leave it to the default. */
  readonly onBudget?: (message: Control<'request_vram_budget'>, broker: FakeBroker) => boolean;
  /** Takes any other message; true: it has been answered. */
  readonly onMessage?: (message: ControlMessage, broker: FakeBroker) => boolean;
}

/** Everything that one connected peer said, in order, and a way to wait for what it will say. */
export class FakeBroker {
  readonly said: ControlMessage[] = [];
  readonly channel: Channel<'control'>;
  readonly closed: Promise<LeaseholdError>;
  /** Bytes on the card by allocation, as its driver would know them. */
  readonly allocations = new Map<number, number>();
  cardBytes: number;
  /** On which device each allocation is. */
  readonly #places = new Map<number, string>();
  readonly #peaks = new Map<string, number>();
  #granted = 0;
  #allocated = 0;
  readonly #options: FakeBrokerOptions;
  #watchers: (() => void)[] = [];
  /** Residency reports are acknowledged only when this is true. */
  acknowledges = true;
  readonly #unacknowledged: number[] = [];

  constructor(stream: ByteStream, options: FakeBrokerOptions = {}) {
    this.#options = options;
    this.cardBytes = options.cardBytes ?? 2 ** 40;
    let tellClosed: (error: LeaseholdError) => void = () => undefined;
    this.closed = new Promise((resolve) => { tellClosed = resolve; });
    this.channel = openChannel(stream, {
      plane: 'control', side: 'broker', limits: options.limits ?? defaultLimits,
      handlers: {
        onMessage: (message) => { this.#take(message); },
        onClose: (error) => {
          tellClosed(error);
          this.#wake();
        },
      },
    });
  }

  get usedBytes(): number {
    return [...this.allocations.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  takenOn(device: string): number {
    return [...this.allocations].reduce((sum, [allocation, bytes]) => sum + (this.#places.get(allocation) === device ? bytes : 0), 0);
  }

  /** The most that was ever taken there. */
  peakOn(device: string): number {
    return this.#peaks.get(device) ?? 0;
  }

  get lastLease(): string {
    return `b-l${String(this.#granted)}`;
  }

  all<T extends ControlMessage['type']>(type: T): Control<T>[] {
    return this.said.filter((message): message is Control<T> => message.type === type);
  }

  /** The first message of that type that matches, said already or to come. */
  async heard<T extends ControlMessage['type']>(type: T, matches: (message: Control<T>) => boolean = () => true): Promise<Control<T>> {
    for (;;) {
      const found = this.all(type).find(matches);
      if (found !== undefined) return found;
      if (!this.channel.open) throw new Error(`the peer went without saying ${type}`);
      await new Promise<void>((resolve) => this.#watchers.push(resolve));
    }
  }

  grant(message: Control<'request_vram_budget'>): string {
    let lease = message.lease;
    if (lease === null) {
      this.#granted += 1;
      lease = this.lastLease;
    }
    const chargedBytes = message.parts.reduce((sum, part) => sum + part.bytes, 0);
    this.channel.send({ type: 'grant', id: message.id, lease, device: message.device, chargedBytes, explain: 'b-x1' });
    return lease;
  }

  deny(message: Control<'request_vram_budget'>, code: string): void {
    const numbers = {
      requestedBytes: 1, needBytes: 22, floorBytes: 0, totalBytes: 20, reserveBytes: 3, chargedBytes: 0, holdBytes: 0, foreignBytes: null,
      sampledUsedBytes: null, sampleAgeMs: null, availableBytes: 5, evictableBytes: 0, truth: 'simulated',
    } as const;
    this.channel.send({ type: 'deny', id: message.id, code, message: `denied: ${code}`, numbers, couldHaveBytes: 4, roomElsewhere: ['SIM-other'], retryAfterMs: null, explain: 'b-x2' });
  }

  /** Sends a command; `interim` collects what comes before its answer. */
  move(command: Partial<Omit<Control<'model_to_device'>, 'id' | 'type'>> = {}): { readonly id: number; readonly interim: ControlMessage[]; readonly answer: Promise<ControlMessage> } {
    const id = this.channel.nextId();
    const interim: ControlMessage[] = [];
    const answer = this.channel.request({
      type: 'model_to_device', lease: this.lastLease, model: 'm', generation, target: 'none', device: null, bytes: null, when: 'drained', waiterSinceUs: null,
      sentUs: monotonicUs(), expiresMs: 60_000, reason: 'a test', ...command,
    }, { timeoutMs: 30_000, onInterim: (message) => { interim.push(message); } });
    return { id, interim, answer };
  }

  ticket(caller: string): string {
    return createTicket(workerKey, { caller, generation, expiresUs: monotonicUs() + 60_000_000 });
  }

  /** Acknowledges the residency reports held back so far. */
  acknowledge(): void {
    for (const id of this.#unacknowledged.splice(0)) this.channel.send({ type: 'ok', id });
  }

  #take(message: ControlMessage): void {
    this.said.push(message);
    this.#answer(message);
    this.#wake();
  }

  #answer(message: ControlMessage): void {
    if (this.#options.onMessage?.(message, this) === true) return;
    switch (message.type) {
      case 'hello':
        this.channel.send({
          type: 'welcome', id: message.id, protocol: 1, bootId: 'b', generation: message.role === 'worker' ? generation : 'b-s1',
          heartbeatIntervalMs: 1_000, frameBytesMax: 8 * 1024 * 1024, threads: 1,
          reattachGraceMs: this.#options.reattachGraceMs ?? 0, devices: [],
        });
        return;
      case 'ready':
        this.channel.send({ type: 'ok', id: message.id });
        return;
      case 'request_vram_budget':
        if (this.#options.onBudget?.(message, this) !== true) this.grant(message);
        return;
      case 'residency':
        if (this.acknowledges) this.channel.send({ type: 'ok', id: message.id });
        else this.#unacknowledged.push(message.id);
        return;
      case 'card_allocate':
        this.#allocate(message);
        return;
      case 'card_free':
        this.allocations.delete(message.allocation);
        this.channel.send({ type: 'ok', id: message.id });
        return;
      default:
        return;
    }
  }

  #allocate(message: Control<'card_allocate'>): void {
    const freeBytes = this.cardBytes - this.usedBytes;
    if (message.bytes > freeBytes) {
      this.channel.send({ type: 'card_oom', id: message.id, wantedBytes: message.bytes, freeBytes });
      return;
    }
    this.#allocated += 1;
    this.allocations.set(this.#allocated, message.bytes);
    this.#places.set(this.#allocated, message.device);
    this.#peaks.set(message.device, Math.max(this.peakOn(message.device), this.takenOn(message.device)));
    this.channel.send({ type: 'card_allocated', id: message.id, allocation: this.#allocated });
  }

  #wake(): void {
    for (const watcher of this.#watchers.splice(0)) watcher();
  }
}
