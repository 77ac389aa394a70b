/** A session with the broker: place, look, explain, listen, evict, pin, and for holders: hold. */
import { evictAll, type EvictedModel, type EvictOptions } from './evict-all.js';
import { LeaseholdError, defaultLimits, deniedError, type ControlMessage, type Limits, type ModelPolicy, type RequestClass } from '../../protocol/index.js';
import { connect, monotonicUs, openLine, roleProof, type ByteStream, type Line, type Welcome, type WithoutId } from '../../protocol/node/index.js';
import { defaultPolicy } from './default-policy.js';
import { Feed, type BrokerEvent } from './feed.js';
import { answerGraceMs, answerMs, patiently } from './silence.js';
import { Holdings, type HeldLease, type HoldOptions } from './holdings.js';

interface PeerOptions {
  /** 64 hex digits, from the state folder. */
  readonly secret: string;
  /** What the broker's log calls this peer. */
  readonly name: string;
  readonly limits?: Limits;
  readonly signal?: AbortSignal;
  /** Called each time the broker is lost and sought: for so long at most. */
  readonly onDetached?: (graceMs: number, why: LeaseholdError) => void;
}

export type ConnectOptions = PeerOptions & { readonly role: 'holder' | 'client' } & (
  | { readonly socketPath: string }
  /** A connection that is there already, such as one end of a memory pair; `dial` opens another when that is lost, and left out the first loss is the last. */
  | { readonly stream: ByteStream; readonly dial?: () => Promise<ByteStream> }
);

export interface PlaceOptions {
  readonly model: string;
  readonly engine: string;
  /** Null: unknown; the worker's own estimate decides. */
  readonly estimateBytes: number | null;
  /** Default `normal`. */
  readonly class?: RequestClass;
  /** Default `requestDeadlineMs`. */
  readonly deadlineMs?: number;
  /** How long it has waited already, when it is asked again. */
  readonly ageMs?: number;
  /** Left out: the broker chooses. */
  readonly device?: string;
  /** The cards that it may use, in place of `device`. */
  readonly devices?: readonly string[];
  /** Over how many of them it is spread; left out: one. */
  readonly cards?: number;
  readonly policy?: ModelPolicy;
  readonly signal?: AbortSignal;
  readonly onWaiting?: (waiting: Waiting) => void;
}

export interface Waiting {
  readonly position: number;
  readonly reason: string;
  readonly explain: string | null;
}

/** Where a model runs, and the way in. */
export interface Placement {
  readonly generation: string;
  readonly devices: readonly string[];
  readonly dataSocket: string;
  readonly ticket: string;
  readonly explain: string | null;
}

export interface AskOptions {
  /** Default: 30 s, for what a broker answers at once. */
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
}

export interface ExplainQuestion {
  /** One record by its id. */
  readonly explain?: string;
  /** Records of one model. */
  readonly model?: string;
  /** Records at most; default 1. */
  readonly count?: number;
}

/** Connects and proves itself; rejects with `connect_failed`, `hello_refused`, or whatever else the broker says. */
export async function connectBroker(options: ConnectOptions): Promise<BrokerSession> {
  const { role, name, secret, signal } = options;
  const limits = options.limits ?? defaultLimits;
  if (signal?.aborted === true) throw new LeaseholdError('request_cancelled', { what: 'Connecting' });
  const dial = 'stream' in options ? (options.dial ?? null) : (): Promise<ByteStream> => connect({ path: options.socketPath, timeoutMs: limits.helloTimeoutMs });
  const stream = 'stream' in options ? options.stream : await connect({ path: options.socketPath, timeoutMs: limits.helloTimeoutMs });
  const line = await patiently(() => openLine(stream, { limits, dial, hello: { role, spawn: null, proof: roleProof(secret, role), name }, ...withSignal(signal) }), () => null);
  return new BrokerSession(line, role, limits, options.onDetached);
}

/**
 * An open session. Every method rejects with a LeaseholdError; once closed,
 * with `connection_lost` or `closed`. When the broker is lost and was told to
 * be waited for, the session lives on: it seeks the broker, what is asked waits
 * for it within its own deadline, leases are held, and calls on workers go on.
 */
export class BrokerSession {
  readonly role: 'holder' | 'client';
  /** This session's own name in the ledger, whichever broker's; also the `caller` that its tickets are made for. */
  readonly generation: string;
  /** Resolves, once, when the session has ended, with why. */
  readonly closed: Promise<LeaseholdError>;
  readonly #line: Line;
  readonly #limits: Limits;
  readonly #feed: Feed;
  readonly #holdings: Holdings;
  #heartbeats: NodeJS.Timeout | null = null;

  constructor(line: Line, role: 'holder' | 'client', limits: Limits, onDetached: (graceMs: number, why: LeaseholdError) => void = () => undefined) {
    this.#line = line;
    this.#limits = limits;
    this.role = role;
    this.generation = line.welcome.generation;
    this.#feed = new Feed(() => this.#ask({ type: 'subscribe' }, {}).then(() => undefined), limits.subscriberEventsMax);
    this.#holdings = new Holdings(line, limits);
    this.closed = new Promise((resolve) => {
      line.staff({
        onMessage: (message) => {
          if (message.type === 'event') this.#feed.push(message);
          else this.#holdings.take(message);
        },
        onStray: (message) => { this.#holdings.stray(message); },
        onDetached: (error) => {
          this.#stopBeating();
          this.#holdings.detached(error);
          onDetached(line.welcome.reattachGraceMs, error);
        },
        onReattached: () => this.#reattached(),
        onLost: (error) => {
          this.#stopBeating();
          this.#feed.end(error);
          this.#holdings.end(error);
          resolve(error);
        },
      });
    });
    if (role === 'holder') this.#beat();
  }

  /** False once it has ended. While the broker is sought it has not. */
  get open(): boolean {
    return this.#line.over === null;
  }

  /** Of the broker that it was attached to last. */
  get bootId(): string {
    return this.#line.welcome.bootId;
  }

  get devices(): Welcome['devices'] {
    return this.#line.welcome.devices;
  }

  /** Finds or starts a worker for a model. Rejects with the typed refusal and its numbers. */
  async place(options: PlaceOptions): Promise<Placement> {
    const deadlineMs = options.deadlineMs ?? this.#limits.requestDeadlineMs;
    const answer = await this.#within((ageMs) => ({
      type: 'place', model: options.model, engine: options.engine, estimateBytes: options.estimateBytes, class: options.class ?? 'normal', deadlineMs: Math.max(0, deadlineMs - ageMs),
      ...(options.ageMs === undefined && ageMs === 0 ? {} : { ageMs: (options.ageMs ?? 0) + ageMs }), device: options.device ?? null, policy: options.policy ?? defaultPolicy,
      ...(options.devices === undefined ? {} : { devices: options.devices }), ...(options.cards === undefined ? {} : { cards: options.cards }),
    }), {
      timeoutMs: deadlineMs + answerGraceMs, seekMs: deadlineMs, ...withSignal(options.signal),
      onInterim: (message) => { if (message.type === 'waiting') options.onWaiting?.({ position: message.position, reason: message.reason, explain: message.explain }); },
    });
    if (answer.type === 'deny') throw deniedError(answer, { model: options.model, device: options.device ?? options.devices?.join(', ') ?? 'any card', deadlineMs });
    if (answer.type !== 'placed') throw unexpected(answer, 'place');
    const { generation, devices, dataSocket, ticket, explain } = answer;
    return { generation, devices, dataSocket, ticket, explain };
  }

  /** The whole ledger at one moment; its shape is LedgerView. */
  async ledger<View = unknown>(options: AskOptions = {}): Promise<View> {
    const answer = await this.#ask({ type: 'ledger' }, options);
    if (answer.type !== 'ledger_state') throw unexpected(answer, 'ledger');
    return JSON.parse(answer.json) as View;
  }

  /** Why? By record or model, newest first; neither: the latest. The records' shape is ExplainRecord. */
  async explain<Explained = unknown>(wanted: ExplainQuestion = {}, options: AskOptions = {}): Promise<Explained[]> {
    const { explain = null, model = null, count = 1 } = wanted;
    const answer = await this.#ask({ type: 'explain', explain, model, count }, options);
    if (answer.type !== 'explanation') throw unexpected(answer, 'explain');
    return answer.records.map((record) => JSON.parse(record) as Explained);
  }

  /** What happens, as it happens, until the loop is left, the signal aborts or the session ends. A slow reader loses the oldest and is told how many. */
  subscribe(options: AskOptions = {}): AsyncIterable<BrokerEvent, undefined> {
    return this.#feed.subscribe(options.signal);
  }

  /** Frees a model's card bytes once its calls have ended; resolves when that is confirmed. */
  async evict(model: string, options: EvictOptions = {}): Promise<{ readonly freedBytes: number }> {
    const deadlineMs = options.deadlineMs ?? this.#limits.requestDeadlineMs;
    const question = (ageMs: number) => ({ type: 'evict', model, target: options.target ?? 'none', deadlineMs: Math.max(0, deadlineMs - ageMs) }) as const;
    const answer = await this.#within(question, { timeoutMs: deadlineMs + answerGraceMs, seekMs: deadlineMs, ...withSignal(options.signal) });
    if (answer.type !== 'evicted') throw unexpected(answer, 'evict');
    return { freedBytes: answer.freedBytes };
  }

  /** The same of every model that holds anything; who stays is told with why. */
  evictAll(options: EvictOptions = {}): Promise<readonly EvictedModel[]> {
    return evictAll(this, options);
  }

  /** Never, or no longer never, a victim. */
  async pin(model: string, pinned: boolean, options: AskOptions = {}): Promise<void> {
    await this.#ask({ type: 'pin', model, pinned }, options);
  }

  /** Holders only: room on a card for something that this process keeps there itself. */
  holdLease(options: HoldOptions): Promise<HeldLease> {
    if (this.role === 'holder') return this.#holdings.hold(options);
    const reason = 'a client holds nothing: connect as holder';
    return Promise.reject(new LeaseholdError('message_unexpected', { type: 'request_vram_budget', reason }));
  }

  /** Ends the session. A holder's leases stay charged until their bytes are released, or its process has ended (D7). */
  async close(): Promise<void> {
    this.#line.end();
    await this.closed;
  }

  /** Lets the process end although the session is open, whatever is asked. */
  unref(): void {
    this.#line.unref();
  }

  /** From now on the session keeps the process only while something is asked on it, it holds a lease, or `hold` says so. */
  relax(): void {
    this.#line.relax();
  }

  /** Keeps the process until the function it returns is called. */
  hold(): () => void {
    return this.#line.hold();
  }

  #ask(message: WithoutId<ControlMessage>, options: AskOptions): Promise<ControlMessage> {
    return this.#within(() => message, { timeoutMs: Math.min(answerMs, options.deadlineMs ?? answerMs), ...withSignal(options.signal) });
  }

  #within(build: Parameters<Line['ask']>[0], options: Parameters<Line['ask']>[1]): Promise<ControlMessage> {
    return patiently(() => this.#line.ask(build, options), () => this.#line.peerPid);
  }

  /** What is held is told before anything is asked. */
  async #reattached(): Promise<void> {
    if (this.role === 'holder') this.#beat();
    await this.#holdings.reattached();
    this.#feed.resubscribe();
  }

  #stopBeating(): void {
    if (this.#heartbeats !== null) clearInterval(this.#heartbeats);
    this.#heartbeats = null;
  }

  #beat(): void {
    this.#stopBeating();
    const intervalMs = this.#line.welcome.heartbeatIntervalMs;
    let expectedUs = monotonicUs();
    const beat = (): void => {
      const atUs = monotonicUs();
      const loopDelayMs = Math.max(0, Math.round((atUs - expectedUs) / 1000));
      expectedUs = atUs + intervalMs * 1000;
      this.#line.send({ type: 'heartbeat', atUs, reserved: this.#holdings.reserved, inFlight: this.#holdings.inFlight, loopDelayMs });
    };
    beat();
    this.#heartbeats = setInterval(beat, intervalMs);
    // The session's connection keeps the process, unless it was told not to.
    this.#heartbeats.unref();
  }
}

function withSignal(signal: AbortSignal | undefined): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function unexpected(answer: ControlMessage, asked: string): LeaseholdError {
  return new LeaseholdError('message_unexpected', { type: answer.type, reason: `it does not answer ${asked}` });
}
