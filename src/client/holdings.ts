/** The leases of one holder session: asked for, reported, and given back when the broker says so. */
import { LeaseholdError, deniedError, type ControlMessage, type HostNeed, type LeasePart, type Limits, type ModelPolicy, type ModelState, type RequestClass } from '../../protocol/index.js';
import { refusedUnbegun, takeOrder, type Line, type Orders } from '../../protocol/node/index.js';
import { defaultPolicy } from './default-policy.js';
import { answerGraceMs, patiently } from './silence.js';
import { HeldLease, type EvictHandler } from './held-lease.js';
import { checkParts } from './measured.js';

export { HeldLease, type EvictAnswer, type EvictHandler, type EvictOrder, type Measured } from './held-lease.js';

type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;

export interface HoldOptions {
  /** What it is, in the ledger. */
  readonly model: string;
  /** A card by UUID. */
  readonly device: string;
  /** What it will take, in parts; or `bytes`, as one part. */
  readonly parts?: readonly LeasePart[];
  readonly bytes?: number;
  /** Highest total while it is being loaded, when above the sum of parts. */
  readonly peakBytes?: number;
  /** Default `normal`. */
  readonly class?: RequestClass;
  /** Default `requestDeadlineMs`. */
  readonly deadlineMs?: number;
  readonly policy?: ModelPolicy;
  /** `onEvict` can park: keep a copy in host RAM and say so. Default false. */
  readonly parkable?: boolean;
  /** What it takes of the machine's memory besides, in bytes: as long as it is held, a copy that it would keep, highest totals of a load and of a park. */
  readonly host?: Partial<HostNeed>;
  /** Called when the broker wants the bytes and nothing uses them; frees them and answers. */
  readonly onEvict: EvictHandler;
  readonly signal?: AbortSignal;
  /** `position`: requests before it. */
  readonly onWaiting?: (waiting: { readonly position: number; readonly reason: string; readonly explain: string | null }) => void;
  /** Puts the broker's sentences into this program's words; default: as they are. */
  readonly tell?: (text: string) => string;
}

export class Holdings {
  readonly #line: Line;
  readonly #limits: Limits;
  readonly #leases = new Map<string, HeldLease>();
  /** Models that the broker has been told of. */
  readonly #told = new Set<string>();
  #announced = 0;
  #onTold: (() => void) | null = null;

  constructor(line: Line, limits: Limits) {
    this.#line = line;
    this.#limits = limits;
  }

  get reserved(): { readonly device: string; readonly bytes: number }[] {
    const byDevice = new Map<string, number>();
    // Each figure fits the wire; so must their sum.
    for (const { device, residentBytes } of this.#leases.values()) byDevice.set(device, Math.min(Number.MAX_SAFE_INTEGER, (byDevice.get(device) ?? 0) + residentBytes));
    return [...byDevice].map(([device, bytes]) => ({ device, bytes }));
  }

  get inFlight(): number {
    return [...this.#leases.values()].reduce((sum, lease) => sum + lease.inFlight, 0);
  }

  /** Asks for room; resolves with the lease, or rejects with the refusal and its numbers. */
  async hold(options: HoldOptions): Promise<HeldLease> {
    const deadlineMs = options.deadlineMs ?? this.#limits.requestDeadlineMs;
    const parts = partsOf(options);
    const host = options.host === undefined ? null : { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null, ...options.host };
    const { model, device, signal } = options;
    const answer = await patiently(() => this.#line.ask((ageMs) => ({
      type: 'request_vram_budget', model, device, lease: null, parts, peakBytes: options.peakBytes ?? 0, class: options.class ?? 'normal', deadlineMs: Math.max(0, deadlineMs - ageMs),
      ...(ageMs === 0 ? {} : { ageMs }), parkable: options.parkable ?? false, profilesFreeMemory: false, source: 'declared', policy: options.policy ?? defaultPolicy, gang: null,
      ...(host === null ? {} : { host }),
    }), {
      timeoutMs: deadlineMs + answerGraceMs, seekMs: deadlineMs, ...(signal === undefined ? {} : { signal }),
      onInterim: (message) => { if (message.type === 'waiting') options.onWaiting?.({ position: message.position, reason: options.tell?.(message.reason) ?? message.reason, explain: message.explain }); },
    }), () => this.#line.peerPid);
    if (answer.type === 'deny') throw deniedError(answer, { model, device, deadlineMs });
    if (answer.type !== 'grant') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers request_vram_budget' });
    return this.#keep(answer, options, parts, host);
  }

  #keep(grant: Control<'grant'>, options: HoldOptions, parts: readonly LeasePart[], host: HostNeed | null): HeldLease {
    // A program that holds something is not over because nothing is asked at the moment.
    const letGo = this.#line.hold();
    const lease: HeldLease = new HeldLease({
      line: this.#line, limits: this.#limits, grant, parts, model: options.model, parkable: options.parkable ?? false, onEvict: options.onEvict, tell: options.tell ?? ((text) => text),
      class: options.class ?? 'normal', policy: options.policy ?? defaultPolicy, host,
      announce: () => this.#announce(),
      onReleased: () => {
        this.#leases.delete(grant.lease);
        letGo();
      },
    });
    this.#leases.set(grant.lease, lease);
    this.#line.send({ type: 'loading', lease: grant.lease });
    return lease;
  }

  /** A message of the broker to this holder. */
  take(message: ControlMessage): void {
    if (message.type === 'lease_quarantined') this.#leases.get(message.lease)?.quarantine(message);
    else takeOrder(message, 'holder', this.#orders);
  }

  readonly #orders: Orders = {
    move: (order) => { this.#move(order); },
    trim: ({ id }) => { this.#answer({ type: 'unsupported', id, message: 'this holder keeps no host copy that could be given back alone' }); },
    cancel: (id) => { for (const lease of this.#leases.values()) lease.cancelCommand(id); },
    recall: ({ id, lease }) => { this.#answer({ type: 'recalled', id, lease, begun: this.#leases.has(lease) }); },
    list: ({ id }) => {
      this.#announced += 1;
      this.#line.send({ type: 'models', id, seq: this.#announced, models: [...this.#leases.values()].map((lease) => ({ ...lease.state, terms: lease.terms })) });
      this.#toldAll();
    },
    // The broker ends workers, not holders; that it goes is told by the connection's end.
    drain: ({ id }) => { this.#answer({ type: 'ok', id }); },
    shutdown: ({ id }) => { this.#answer({ type: 'ok', id }); },
    refuse: (error) => { this.#answer(error); },
  };

  /** A grant that came after its request was given up: nobody holds it. */
  stray(message: ControlMessage): void {
    if (message.type === 'grant' && !this.#leases.has(message.lease)) this.#line.send({ type: 'release_lease', lease: message.lease, cause: 'unused', failure: null });
  }

  /** The broker is gone; what is held is held, what it ordered is void. */
  detached(error: LeaseholdError): void {
    for (const lease of this.#leases.values()) lease.detached(error);
  }

  /** A broker is there again; resolves when it has been told what is held, or does not ask. */
  async reattached(): Promise<void> {
    this.#announced = 0;
    this.#told.clear();
    if (this.#leases.size === 0) return;
    const told = new Promise<void>((resolve) => { this.#onTold = resolve; });
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.#limits.commandAnswerMs);
      timer.unref();
    });
    await Promise.race([told, patience]);
    clearTimeout(timer);
  }

  #toldAll(): void {
    if (this.#onTold === null) return;
    for (const lease of this.#leases.values()) lease.retell();
    this.#onTold();
    this.#onTold = null;
  }

  end(error: LeaseholdError): void {
    for (const lease of this.#leases.values()) lease.lost(error);
    this.#leases.clear();
  }

  #move(message: Control<'model_to_device'>): void {
    const lease = this.#leases.get(message.lease);
    const refusal = refusedUnbegun(message, this.#line.welcome.generation, lease !== undefined);
    if (refusal === null) lease?.command(message);
    else this.#answer(refusal);
  }

  /** What has changed rides on every answer. */
  #answer(answer: Control<'ok' | 'error' | 'recalled' | 'unsupported' | 'failed'>): void {
    this.#line.send({ ...answer, newModels: this.#announce() });
  }

  #announce(): { readonly seq: number; readonly added: readonly ModelState[]; readonly removed: readonly string[] } {
    this.#announced += 1;
    const added = this.#states().slice(0, 256);
    const held = new Set([...this.#leases.values()].map((lease) => lease.model));
    const removed = [...this.#told].filter((model) => !held.has(model)).slice(0, 256);
    for (const model of removed) this.#told.delete(model);
    for (const { model } of added) this.#told.add(model);
    return { seq: this.#announced, added, removed };
  }

  #states(): ModelState[] {
    return [...this.#leases.values()].map((lease) => lease.state);
  }
}

/** Throws `bytes_invalid` also for a lease of nothing: no bytes on a card, and none of the machine's memory; `input_invalid` for parts that are none, or two of one name. */
function partsOf(options: HoldOptions): readonly LeasePart[] {
  if (options.parts !== undefined) checkParts(options.parts);
  const { host, peakBytes = 0 } = options;
  const minimum = Math.max(peakBytes, host?.neededBytes ?? 0, host?.copyBytes ?? 0, host?.peakBytes ?? 0) > 0 ? 0 : 1;
  const bytes = options.parts === undefined ? (options.bytes ?? Number.NaN) : options.parts.reduce((sum, part) => sum + part.bytes, 0);
  const isWrong = options.parts === undefined ? !Number.isSafeInteger(bytes) || bytes < minimum : bytes === 0 && minimum > 0;
  if (isWrong) throw new LeaseholdError('bytes_invalid', { field: 'bytes', value: String(options.parts === undefined ? options.bytes : bytes), minimum, maximum: Number.MAX_SAFE_INTEGER });
  if (options.parts !== undefined) return options.parts;
  return [{ name: 'held', kind: 'other', bytes, upFront: false }];
}
