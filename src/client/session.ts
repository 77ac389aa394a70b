/** A session with the broker: place, look, explain, listen, evict, pin, and for holders: hold. */
import { LeaseholdError, defaultLimits, deniedError, protocolVersion, type ControlMessage, type Limits, type ModelPolicy, type RequestClass } from '../../protocol/index.js';
import { connect, monotonicUs, openChannel, roleProof, type ByteStream, type Channel } from '../../protocol/node/index.js';
import { defaultPolicy } from './default-policy.js';
import { Feed, type BrokerEvent } from './feed.js';
import { Holdings, type HeldLease, type HoldOptions } from './holdings.js';

type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;

interface PeerOptions {
  /** 64 hex digits, from the state folder. */
  readonly secret: string;
  /** What the broker's log calls this peer. */
  readonly name: string;
  readonly limits?: Limits;
  readonly signal?: AbortSignal;
}

export type ConnectOptions = PeerOptions & { readonly role: 'holder' | 'client' } & (
  | { readonly socketPath: string }
  /** A connection that is there already, such as one end of a memory pair. */
  | { readonly stream: ByteStream }
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

export interface EvictOptions extends AskOptions {
  /** `host` keeps a copy where the engine can. Default `none`. */
  readonly target?: 'host' | 'none';
  readonly deadlineMs?: number;
}

/** Longest wait for an answer that the broker gives at once. */
const answerMs = 30_000;

/** Connects and proves itself; rejects with `connect_failed`, `hello_refused`, or whatever else the broker says. */
export async function connectBroker(options: ConnectOptions): Promise<BrokerSession> {
  const limits = options.limits ?? defaultLimits;
  if (options.signal?.aborted === true) throw new LeaseholdError('request_cancelled', { what: 'Connecting' });
  const stream = 'stream' in options ? options.stream : await connect({ path: options.socketPath, timeoutMs: limits.helloTimeoutMs });
  const desk = new Desk();
  const channel = openChannel(stream, {
    plane: 'control', side: options.role, limits,
    handlers: {
      onMessage: (message) => { desk.take(message); },
      onStray: (message) => { desk.stray(message); },
      onClose: (error) => { desk.close(error); },
    },
  });
  try {
    const welcome = await channel.request({
      type: 'hello', protocol: protocolVersion, role: options.role, spawn: null, proof: roleProof(options.secret, options.role),
      pid: process.pid, name: options.name, resume: null,
    }, { timeoutMs: limits.helloTimeoutMs, ...withSignal(options.signal) });
    if (welcome.type !== 'welcome') throw new LeaseholdError('message_unexpected', { type: welcome.type, reason: 'it answers hello' });
    const session = new BrokerSession(channel, welcome, options.role, limits);
    desk.staff(session);
    return session;
  } catch (error) {
    channel.destroy();
    throw error;
  }
}

/** What arrives in the same breath as `welcome` waits here for the session. */
class Desk {
  #session: BrokerSession | null = null;
  #early: ControlMessage[] = [];
  #closed: LeaseholdError | null = null;

  staff(session: BrokerSession): void {
    this.#session = session;
    for (const message of this.#early.splice(0)) session.take(message);
    if (this.#closed !== null) session.end(this.#closed);
  }

  take(message: ControlMessage): void {
    if (this.#session === null) this.#early.push(message);
    else this.#session.take(message);
  }

  stray(message: ControlMessage): void {
    this.#session?.stray(message);
  }

  close(error: LeaseholdError): void {
    this.#closed = error;
    this.#session?.end(error);
  }
}

/** An open session. Every method rejects with a LeaseholdError; once closed, with `connection_lost` or `closed`. */
export class BrokerSession {
  readonly role: 'holder' | 'client';
  /** This session's own name in the ledger; also the `caller` that its tickets are made for. */
  readonly generation: string;
  readonly bootId: string;
  readonly devices: Control<'welcome'>['devices'];
  /** Resolves, once, when the session has ended, with why. */
  readonly closed: Promise<LeaseholdError>;
  readonly #channel: Channel<'control'>;
  readonly #limits: Limits;
  readonly #feed: Feed;
  readonly #holdings: Holdings;
  #heartbeats: NodeJS.Timeout | null = null;
  #tellClosed: (error: LeaseholdError) => void = () => undefined;

  constructor(channel: Channel<'control'>, welcome: Control<'welcome'>, role: 'holder' | 'client', limits: Limits) {
    this.#channel = channel;
    this.#limits = limits;
    this.role = role;
    this.generation = welcome.generation;
    this.bootId = welcome.bootId;
    this.devices = welcome.devices;
    this.closed = new Promise((resolve) => { this.#tellClosed = resolve; });
    this.#feed = new Feed(() => this.#ask({ type: 'subscribe' }, {}).then(() => undefined), limits.subscriberEventsMax);
    this.#holdings = new Holdings(channel, welcome.generation, limits);
    if (role === 'holder') this.#beat(welcome.heartbeatIntervalMs);
  }

  get open(): boolean {
    return this.#channel.open;
  }

  /** Finds or starts a worker for a model. Rejects with the typed refusal and its numbers. */
  async place(options: PlaceOptions): Promise<Placement> {
    const deadlineMs = options.deadlineMs ?? this.#limits.requestDeadlineMs;
    const answer = await this.#channel.request({
      type: 'place', model: options.model, engine: options.engine, estimateBytes: options.estimateBytes, class: options.class ?? 'normal', deadlineMs,
      ...(options.ageMs === undefined ? {} : { ageMs: options.ageMs }), device: options.device ?? null, policy: options.policy ?? defaultPolicy,
    }, {
      timeoutMs: deadlineMs + answerMs, ...withSignal(options.signal),
      onInterim: (message) => { if (message.type === 'waiting') options.onWaiting?.({ position: message.position, reason: message.reason, explain: message.explain }); },
    });
    if (answer.type === 'deny') throw deniedError(answer, { model: options.model, device: options.device ?? 'any card', deadlineMs });
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
    const question = { type: 'evict', model, target: options.target ?? 'none', deadlineMs } as const;
    const answer = await this.#channel.request(question, { timeoutMs: deadlineMs + answerMs, ...withSignal(options.signal) });
    if (answer.type !== 'evicted') throw unexpected(answer, 'evict');
    return { freedBytes: answer.freedBytes };
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
    this.#channel.end();
    await this.closed;
  }

  /** Lets the process end although the session is open, whatever is asked. */
  unref(): void {
    this.#channel.unref();
  }

  /** From now on the session keeps the process only while something is asked on it, it holds a lease, or `hold` says so. */
  relax(): void {
    this.#channel.relax();
  }

  /** Keeps the process until the function it returns is called. */
  hold(): () => void {
    return this.#channel.hold();
  }

  /** @internal */
  take(message: ControlMessage): void {
    if (message.type === 'event') this.#feed.push(message);
    else this.#holdings.take(message);
  }

  /** @internal */
  stray(message: ControlMessage): void {
    this.#holdings.stray(message);
  }

  /** @internal */
  end(error: LeaseholdError): void {
    if (this.#heartbeats !== null) clearInterval(this.#heartbeats);
    this.#feed.end(error);
    this.#holdings.end(error);
    this.#tellClosed(error);
  }

  #ask(message: Parameters<Channel<'control'>['request']>[0], options: AskOptions): Promise<ControlMessage> {
    return this.#channel.request(message, { timeoutMs: answerMs, ...withSignal(options.signal) });
  }

  #beat(intervalMs: number): void {
    let expectedUs = monotonicUs();
    const beat = (): void => {
      const atUs = monotonicUs();
      const loopDelayMs = Math.max(0, Math.round((atUs - expectedUs) / 1000));
      expectedUs = atUs + intervalMs * 1000;
      this.#channel.send({ type: 'heartbeat', atUs, reserved: this.#holdings.reserved, inFlight: this.#holdings.inFlight, loopDelayMs });
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
