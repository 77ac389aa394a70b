/**
 * The data plane’s listening side: one connection a caller, opened with a
 * ticket that the broker made and this worker alone checks; many calls a
 * connection. A caller that stops reading stops only its own calls.
 */
import { LeaseholdError, type DataMessage, type Limits } from '../../protocol/index.js';
import { Anteroom, HeldTotal, errorMessage, listen, openChannel, verifyTicket, type ByteStream, type Channel, type Listener } from '../../protocol/node/index.js';
import type { Call, CallRequest } from './call.js';
import { nowUs } from './clock.js';
import type { CallerLink } from './outbox.js';

type Open = Extract<DataMessage, { readonly type: 'open' }>;

export interface DataServerOptions {
  readonly generation: string;
  /** The spawn key: only the broker and this worker have it. */
  readonly key: string;
  readonly limits: Limits;
  readonly call: (request: CallRequest, link: CallerLink, onFinished: (call: Call) => void) => Call;
  readonly log: (message: string, fields: Readonly<Record<string, string>>) => void;
}

/** Unsent bytes above which a connection is not given more tokens; far below where it would be cut off. */
const congestedBytes = 1024 * 1024;

export class DataServer {
  readonly #options: DataServerOptions;
  readonly #waiting: Anteroom<Caller>;
  readonly #callers = new Set<Caller>();
  readonly #total: HeldTotal;
  #listener: Listener | null = null;
  #checks: NodeJS.Timeout | null = null;

  constructor(options: DataServerOptions) {
    this.#options = options;
    this.#total = new HeldTotal(options.limits.heldTotalBytesMax);
    this.#waiting = new Anteroom({ limits: options.limits, freePlaces: () => this.#freePlaces });
  }

  async listen(path: string): Promise<void> {
    const listener = this.#listener = await listen({ path, onConnection: (stream) => { this.accept(stream); } });
    this.#checks = setInterval(() => { void this.#keep(listener); }, this.#options.limits.stateCheckMs);
    this.#checks.unref();
  }

  /** Whoever tidies up temporary files may take the socket; without it no new caller finds its way here. */
  async #keep(listener: Listener): Promise<void> {
    const { path, place } = listener;
    if (place === 'own') return;
    try {
      await listener.renew();
      this.#options.log('the data socket was gone and has been put back', { path });
    } catch (error) {
      this.#options.log('the data socket is gone and cannot be put back', { path, reason: LeaseholdError.from(error).message });
    }
  }

  /** Takes a fresh connection; nobody until its ticket has been checked. */
  accept(stream: ByteStream): void {
    const caller: Caller = new Caller(stream, {
      ...this.#options,
      total: this.#total,
      checkPlace: () => { this.#checkPlace(stream.peerPid); },
      onOpened: () => {
        this.#waiting.leave(caller);
        this.#callers.add(caller);
      },
      onClosed: () => {
        this.#waiting.leave(caller);
        this.#callers.delete(caller);
      },
    });
    this.#waiting.enter(caller);
  }

  get #freePlaces(): number {
    return this.#options.limits.sessionsMax - this.#callers.size;
  }

  /** `pid`: null where the system does not tell. */
  #checkPlace(pid: number | null): void {
    const { sessionsMax, sessionsPerProcessMax } = this.#options.limits;
    if (this.#freePlaces <= 0) throw new LeaseholdError('too_many_sessions', { limit: sessionsMax });
    if (pid === null) return;
    const own = [...this.#callers].filter(({ peerPid }) => peerPid === pid).length;
    if (own >= sessionsPerProcessMax) throw new LeaseholdError('too_many_own_sessions', { limit: sessionsPerProcessMax, pid });
  }

  async close(): Promise<void> {
    if (this.#checks !== null) clearInterval(this.#checks);
    for (const caller of [...this.#waiting, ...this.#callers]) caller.end();
    await this.#listener?.close();
  }
}

interface CallerOptions extends DataServerOptions {
  readonly total: HeldTotal;
  /** Throws where no place is left, for anybody or for that process. */
  readonly checkPlace: () => void;
  readonly onOpened: () => void;
  readonly onClosed: () => void;
}

/** One caller’s connection. */
class Caller implements CallerLink {
  readonly #options: CallerOptions;
  readonly #channel: Channel<'data'>;
  /** As the system tells it, or null. */
  readonly peerPid: number | null;
  /** Calls without their final answer, by the caller’s ids. */
  readonly #calls = new Map<number, Call>();

  constructor(stream: ByteStream, options: CallerOptions) {
    this.#options = options;
    this.peerPid = stream.peerPid;
    this.#channel = openChannel(stream, {
      plane: 'data',
      side: 'worker',
      limits: options.limits,
      total: options.total,
      handlers: {
        onMessage: (message) => { this.#take(message); },
        onClose: (error) => { this.#closed(error); },
      },
    });
    this.#channel.onDrain(() => { for (const call of this.#calls.values()) call.outbox.flow(); });
  }

  get open(): boolean {
    return this.#channel.open;
  }

  get congested(): boolean {
    return this.#channel.unsentBytes > congestedBytes;
  }

  send(message: DataMessage): void {
    this.#channel.send(message);
  }

  destroy(error: LeaseholdError): void {
    this.#channel.destroy(error);
  }

  end(): void {
    this.#channel.end();
  }

  #take(message: DataMessage): void {
    switch (message.type) {
      case 'open':
        this.#opened(message);
        return;
      case 'generate':
      case 'load':
      case 'embed':
      case 'count_tokens':
        this.#call(message);
        return;
      case 'credits':
        this.#calls.get(message.target)?.outbox.credit(message.tokens);
        return;
      case 'cancel':
        this.#calls.get(message.target)?.leave(new LeaseholdError('request_cancelled', { what: 'The call' }));
        return;
      default:
        // Answers come from this side; the channel lets none through.
        return;
    }
  }

  #opened(message: Open): void {
    const { key, generation, limits, checkPlace } = this.#options;
    try {
      verifyTicket(key, message.ticket, { caller: message.caller, generation, nowUs: nowUs() });
      checkPlace();
    } catch (error) {
      const refused = LeaseholdError.from(error);
      this.#options.log('a caller was refused', { caller: message.caller, reason: refused.message });
      this.#channel.send(errorMessage('data', message.id, refused));
      this.#channel.end();
      return;
    }
    this.#channel.send({ type: 'opened', id: message.id, generation, frameBytesMax: limits.frameBytesMax });
    this.#options.onOpened();
  }

  #call(request: CallRequest): void {
    // Registered before it can end: a refusal finishes within the call.
    const call = this.#options.call(request, this, (ended) => {
      if (this.#calls.get(request.id) === ended) this.#calls.delete(request.id);
    });
    this.#calls.set(request.id, call);
  }

  #closed(error: LeaseholdError): void {
    for (const call of this.#calls.values()) call.leave(new LeaseholdError('request_cancelled', { what: 'The call' }, { cause: error }));
    this.#options.onClosed();
  }
}
