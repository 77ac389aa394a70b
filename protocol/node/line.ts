/**
 * A control session that outlives its connection. When the broker is gone, or
 * the connection alone, whoever had it seeks the broker for the grace that the
 * welcome told, and says whom it was (`resume`); only then is the line lost.
 *
 *   attached ──connection lost──► seeking ──welcome──► attached
 *                                    └── refused, or the grace over ──► lost
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseholdError } from '../errors.js';
import type { ControlMessage } from '../messages/control.js';
import { protocolVersion } from '../version.js';
import type { Channel, RequestOptions, WithoutId } from './channel-types.js';
import { openChannel, type ChannelLimits } from './channel.js';
import type { ByteStream } from './stream.js';

export type Welcome = Extract<ControlMessage, { readonly type: 'welcome' }>;
type Hello = Extract<ControlMessage, { readonly type: 'hello' }>;

export interface LineOptions {
  readonly limits: ChannelLimits;
  readonly hello: Pick<Hello, 'role' | 'spawn' | 'proof' | 'name'>;
  /** A new connection to whoever answers there now. Null: there is no way back, and the first loss is the last. */
  readonly dial: (() => Promise<ByteStream>) | null;
  readonly signal?: AbortSignal;
}

export interface AskOptions extends RequestOptions<'control'> {
  /** Default `timeoutMs`. */
  readonly seekMs?: number;
}

export interface LineHandlers {
  onMessage(message: ControlMessage): void;
  onStray(message: ControlMessage): void;
  /** The connection is lost, and sought again: every open request has been rejected, every command of the broker is void. */
  onDetached(error: LeaseholdError): void;
  /** Welcome again. What it resolves to when all is said that has to be said before anything may be asked. */
  onReattached(welcome: Welcome): Promise<void>;
  /** Called once: closed by us, refused, or not found within the grace. */
  onLost(error: LeaseholdError): void;
}

/** Told so, there is no use in asking again. */
const finalRefusals: ReadonlySet<string> = new Set(['hello_refused', 'resume_refused', 'protocol_version', 'peer_uid', 'peer_pid_unseen', 'message_unexpected', 'message_invalid', 'generation_stale']);
const seekPauseMs = 100;

/** Connects and is greeted; rejects with what the broker says against it. Until `staff` is called what comes is kept. */
export async function openLine(stream: ByteStream, options: LineOptions): Promise<Line> {
  const attached = await greet(stream, options, null);
  return new Line(options, attached);
}

/** One connection that was greeted: what came in the same breath waits until it is somebody's. */
interface Attached {
  readonly stream: ByteStream;
  readonly channel: Channel<'control'>;
  readonly welcome: Welcome;
  readonly desk: Desk;
}

async function greet(stream: ByteStream, { hello, limits, signal }: LineOptions, resume: string | null): Promise<Attached> {
  const desk = new Desk();
  const channel = openChannel(stream, {
    plane: 'control', side: hello.role, limits,
    handlers: {
      onMessage: (message) => { desk.take(message); },
      onStray: (message) => { desk.stray(message); },
      onClose: (error) => { desk.close(error); },
    },
  });
  try {
    const welcome = await channel.request({ type: 'hello', protocol: protocolVersion, pid: process.pid, resume, ...hello }, { timeoutMs: limits.helloTimeoutMs, ...(signal === undefined ? {} : { signal }) });
    if (welcome.type !== 'welcome') throw new LeaseholdError('message_unexpected', { type: welcome.type, reason: 'it answers hello' });
    if (welcome.protocol !== protocolVersion) throw new LeaseholdError('protocol_version', { theirs: welcome.protocol, ours: protocolVersion });
    if (resume !== null && welcome.generation !== resume) throw new LeaseholdError('generation_stale', { generation: resume, current: welcome.generation });
    return { stream, channel, welcome, desk };
  } catch (error) {
    const typed = LeaseholdError.from(error);
    // Who it is that says nothing is known only while there is a connection.
    const told = typed.code === 'deadline_passed' ? new LeaseholdError(typed.code, { ...typed.details, pid: String(stream.peerPid ?? '') }, { cause: typed }) : typed;
    channel.destroy();
    throw told;
  }
}

type Taker = Pick<LineHandlers, 'onMessage' | 'onStray'> & { onClose(error: LeaseholdError): void };

/** Where a connection's messages go: kept until somebody is there to take them. */
class Desk {
  #taker: Taker | null = null;
  #early: ControlMessage[] = [];
  #closed: LeaseholdError | null = null;

  staff(taker: Taker): void {
    this.#taker = taker;
    for (const message of this.#early.splice(0)) taker.onMessage(message);
    if (this.#closed !== null) taker.onClose(this.#closed);
  }

  take(message: ControlMessage): void {
    if (this.#taker === null) this.#early.push(message);
    else this.#taker.onMessage(message);
  }

  stray(message: ControlMessage): void {
    this.#taker?.onStray(message);
  }

  close(error: LeaseholdError): void {
    this.#closed = error;
    this.#taker?.onClose(error);
  }
}

export class Line {
  readonly #options: LineOptions;
  #attached: Attached;
  #handlers: LineHandlers | null = null;
  /** Null: lines of communication are up. Else since when, on performance.now(), the broker is sought. */
  #seekingSinceMs: number | null = null;
  /** Back, and not yet said what has to be said first. */
  #returning = false;
  #over: LeaseholdError | null = null;
  #ended = false;
  #waiting: { resolve(): void; reject(error: LeaseholdError): void }[] = [];
  readonly #stop = new AbortController();
  #unrefed = false;
  #relaxed = false;
  /** Who keeps the process, and how the connection of now lets go of each. */
  readonly #holds = new Map<object, () => void>();

  constructor(options: LineOptions, attached: Attached) {
    this.#options = options;
    this.#attached = attached;
  }

  /** From here on messages and news go to `handlers`. */
  staff(handlers: LineHandlers): void {
    this.#handlers = handlers;
    this.#staffDesk(this.#attached, handlers);
  }

  /** As last told. The generation is the same for the life of the line. */
  get welcome(): Welcome {
    return this.#attached.welcome;
  }

  /** True while a message that is sent now goes somewhere. */
  get open(): boolean {
    return this.#attached.channel.open;
  }

  /** Null while the line is up or its broker sought; else why it is no more. */
  get over(): LeaseholdError | null {
    return this.#over;
  }

  /** Of whoever listens at the other end; null where the system does not tell. */
  get peerPid(): number | null {
    return this.#attached.stream.peerPid;
  }

  get unsentBytes(): number {
    return this.#attached.channel.unsentBytes;
  }

  nextId(): number {
    return this.#attached.channel.nextId();
  }

  /** While the broker is sought it is dropped: what we hold is told as a whole when it is found. */
  send(message: ControlMessage): void {
    this.#attached.channel.send(message);
  }

  /** Rejects with `connection_lost` while the broker is sought; see `ask`. */
  request(message: WithoutId<ControlMessage>, options: RequestOptions<'control'>): Promise<ControlMessage> {
    return this.#over === null ? this.#attached.channel.request(message, options) : Promise.reject(this.#over);
  }

  /**
   * A request that is asked again, with its age, when the connection was lost
   * before its answer came (D3). `build` is given the milliseconds since it was
   * first asked. `timeoutMs` bounds all of it, `seekMs` how long a broker is waited for.
   */
  async ask(build: (ageMs: number) => WithoutId<ControlMessage>, options: AskOptions): Promise<ControlMessage> {
    const startedMs = performance.now();
    const seekMs = options.seekMs ?? options.timeoutMs;
    const leftMs = (): number | null => (seekMs === null ? null : seekMs - (performance.now() - startedMs));
    for (;;) {
      if (this.#returning) await this.#reattachedWithin(leftMs(), options.signal);
      const ageMs = Math.round(performance.now() - startedMs);
      const timeoutMs = options.timeoutMs === null ? null : Math.max(1, options.timeoutMs - ageMs);
      try {
        return await this.request(build(ageMs), { ...options, timeoutMs });
      } catch (error) {
        if (this.open || this.#ended || this.#over !== null || options.signal?.aborted === true) throw this.#over ?? error;
      }
    }
  }

  /** Resolves when the line is up and may be used: at once, or when the broker has been found and told everything. Rejects when it is over, or `signal` aborts. */
  reattached(signal?: AbortSignal): Promise<void> {
    return this.#reattachedWithin(null, signal);
  }

  /** Sends what was sent, and ends it for good; `onLost` (`closed`) follows. Idempotent. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#stop.abort();
    if (this.#seekingSinceMs === null) this.#attached.channel.end();
    else this.#lose(new LeaseholdError('closed', { what: `the connection to ${this.#attached.channel.name}` }));
  }

  unref(): void {
    this.#unrefed = true;
    this.#attached.channel.unref();
  }

  /** From now on it keeps the process only while something is asked, or `hold` says so; over every connection of it. */
  relax(): void {
    this.#relaxed = true;
    this.#attached.channel.relax();
  }

  /** Keeps the process until the function it returns is called, while the broker is sought too. */
  hold(): () => void {
    const mark = {};
    this.#holds.set(mark, this.#attached.channel.hold());
    return () => {
      this.#holds.get(mark)?.();
      this.#holds.delete(mark);
    };
  }

  get #keepsProcess(): boolean {
    return !this.#unrefed && (!this.#relaxed || this.#holds.size > 0 || this.#waiting.length > 0);
  }

  async #reattachedWithin(withinMs: number | null, signal: AbortSignal | undefined): Promise<void> {
    if (this.#over !== null) throw this.#over;
    if (!this.#returning) return;
    let forget: () => void = () => undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        const waiter = { resolve, reject };
        this.#waiting.push(waiter);
        const giveUp = (error: LeaseholdError): void => { reject(error); };
        const abort = (): void => { giveUp(new LeaseholdError('request_cancelled', { what: 'The request' }, { cause: signal?.reason })); };
        const timer = withinMs === null ? null : setTimeout(() => { giveUp(new LeaseholdError('deadline_passed', { what: 'reaching the broker', deadlineMs: Math.round(withinMs), reason: 'it is gone, and no other has come yet' })); }, Math.max(1, withinMs));
        if (signal?.aborted === true) abort();
        else signal?.addEventListener('abort', abort, { once: true });
        forget = () => {
          this.#waiting = this.#waiting.filter((other) => other !== waiter);
          if (timer !== null) clearTimeout(timer);
          signal?.removeEventListener('abort', abort);
        };
      });
    } finally {
      forget();
    }
  }

  #staffDesk(attached: Attached, handlers: LineHandlers): void {
    attached.desk.staff({
      onMessage: (message) => { handlers.onMessage(message); },
      onStray: (message) => { handlers.onStray(message); },
      onClose: (error) => { if (this.#attached === attached) this.#closed(handlers, error); },
    });
  }

  #closed(handlers: LineHandlers, error: LeaseholdError): void {
    const { dial } = this.#options;
    const graceMs = this.welcome.reattachGraceMs;
    if (this.#ended || dial === null || graceMs === 0 || finalRefusals.has(error.code)) {
      this.#lose(error);
      return;
    }
    this.#seekingSinceMs ??= performance.now();
    this.#returning = true;
    handlers.onDetached(error);
    void this.#seek(handlers, dial, error, this.#seekingSinceMs + graceMs);
  }

  /** Tries until it is found, refuses us, or the grace is over. */
  async #seek(handlers: LineHandlers, dial: () => Promise<ByteStream>, loss: LeaseholdError, untilMs: number): Promise<void> {
    const generation = this.welcome.generation;
    while (!this.#ended) {
      try {
        const attached = await greet(await dial(), this.#options, generation);
        if (!this.#stop.signal.aborted) this.#found(handlers, attached);
        else attached.channel.destroy();
        return;
      } catch (error) {
        const typed = LeaseholdError.from(error);
        if (finalRefusals.has(typed.code)) {
          this.#lose(typed);
          return;
        }
      }
      if (performance.now() >= untilMs) {
        this.#lose(loss);
        return;
      }
      // Unreferenced: whoever waits for nothing else than a broker that is gone may end.
      await pause(seekPauseMs, undefined, { ref: this.#keepsProcess });
    }
  }

  #found(handlers: LineHandlers, attached: Attached): void {
    this.#attached = attached;
    if (this.#unrefed) attached.channel.unref();
    if (this.#relaxed) attached.channel.relax();
    for (const mark of this.#holds.keys()) this.#holds.set(mark, attached.channel.hold());
    const told = handlers.onReattached(attached.welcome);
    this.#staffDesk(attached, handlers);
    told.then(() => {
      if (this.#attached !== attached || !attached.channel.open) return;
      this.#seekingSinceMs = null;
      this.#returning = false;
      for (const waiter of this.#waiting.splice(0)) waiter.resolve();
    }, (error: unknown) => { attached.channel.destroy(LeaseholdError.from(error)); });
  }

  #lose(error: LeaseholdError): void {
    if (this.#over !== null) return;
    this.#over = error;
    this.#stop.abort();
    for (const waiter of this.#waiting.splice(0)) waiter.reject(error);
    this.#handlers?.onLost(error);
  }
}
