/**
 * Typed messages over a byte stream: what arrives is framed, decoded, checked
 * against its schema and against the session's table, and only then handed on;
 * what is sent is counted and bounded. What goes wrong is one of:
 *
 * 1. The bytes are no message, or anything at all before the greeting is over:
 *    the peer is told `error {id: null}` and the connection ends.
 * 2. A request that can be read but not accepted: it is answered with `error`
 *    and the connection lives.
 * 3. An answer that fits nothing: counted, and ignored; one that fits an open
 *    request wrongly ends that request with an error.
 * 4. A notification that cannot be accepted: as 1, since nobody would learn of it.
 */
import { LeaseholdError } from '../errors.js';
import type { LimitName } from '../limits.js';
import type { Sender } from '../messages/define.js';
import { answerKind, Session, type MessageRule, type SessionState } from '../session.js';
import { validateMessage, type MessageOn, type Plane } from '../validate.js';
import { BodyReader } from './body-reader.js';
import type { Channel, ChannelHandlers, RequestOptions, WithoutId } from './channel-types.js';
import { createCodec } from './codec.js';
import { FrameWriter } from './frame-writer.js';
import type { HeldTotal, Holding } from './held-total.js';
import { OpenRequests } from './open-requests.js';
import { closedByPeer, type ByteStream } from './stream.js';
import { errorMessage } from './wire-error.js';

export type ChannelLimits = Readonly<
  Record<
    Extract<LimitName, 'frameBytesMax' | 'preAuthFrameBytesMax' | 'outgoingBytesMax' | 'openRequestsPerSessionMax' | 'helloTimeoutMs'>,
    number
  >
>;

export interface ChannelOptions<P extends Plane> {
  readonly plane: P;
  /** Who this side is. A broker (control) and a worker (data) listen: they wait to be greeted. */
  readonly side: Sender;
  readonly limits: ChannelLimits;
  readonly handlers: ChannelHandlers<P>;
  /** For errors and logs; default: the stream's. */
  readonly name?: string;
  /** What is held for it counts there; the sum may cut it off. */
  readonly total?: HeldTotal;
}

/** Begins reading at once. On a listening side a peer that has not been greeted within helloTimeoutMs is closed with `hello_timeout`. */
export function openChannel<P extends Plane>(stream: ByteStream, options: ChannelOptions<P>): Channel<P> {
  return new StreamChannel(stream, options);
}

class StreamChannel<P extends Plane> implements Channel<P>, Holding {
  readonly plane: P;
  readonly name: string;
  spared = false;
  readonly #stream: ByteStream;
  readonly #limits: ChannelLimits;
  readonly #handlers: ChannelHandlers<P>;
  readonly #session: Session;
  readonly #codec = createCodec();
  readonly #reader: BodyReader;
  readonly #writer: FrameWriter;
  readonly #asked: OpenRequests<P>;
  /** Requests of the peer that have no final answer yet. */
  readonly #owed = new Map<number, MessageRule>();
  #nextId = 1;
  #strays = 0;
  /** Null while open; then why it no longer is. */
  #ended: LeaseholdError | null = null;
  #told = false;
  /** Whether what goes on on it keeps the process now; null: the connection does by itself. */
  #keeps: boolean | null = null;
  readonly #holds = new Set<object>();
  #helloTimer: NodeJS.Timeout | null = null;

  constructor(stream: ByteStream, { plane, side, limits, handlers, name, total }: ChannelOptions<P>) {
    this.plane = plane;
    this.name = name ?? stream.name;
    this.#stream = stream;
    this.#limits = limits;
    this.#handlers = handlers;
    this.#session = new Session(plane, side);
    this.#asked = new OpenRequests((id) => this.#sendCancel(id), () => this.#weigh());
    this.#writer = new FrameWriter(stream, this.#codec, { bodyBytesMax: limits.frameBytesMax, outgoingBytesMax: limits.outgoingBytesMax }, total);
    // The side that dials knows where it went; only the one that listens must beware before it knows who came.
    this.#reader = new BodyReader(this.#session.listens ? limits.preAuthFrameBytesMax : limits.frameBytesMax, {
      onBody: (body) => this.#take(body),
      onFault: (fault) => this.destroy(fault),
      onTurnSpent: () => { this.#stream.pause(); },
      onNextTurn: () => { if (!this.#reader.paused && this.open) this.#stream.resume(); },
    });
    if (this.#session.listens) this.#awaitHello(limits.helloTimeoutMs);
    const leave = total?.join(this);
    stream.onClose((reason) => {
      leave?.();
      this.#streamClosed(reason);
    });
    stream.onData((chunk) => {
      this.#reader.push(chunk);
      total?.took(chunk.length);
    });
  }

  get open(): boolean {
    return this.#ended === null;
  }

  get state(): SessionState {
    return this.#session.state;
  }

  get strays(): number {
    return this.#strays;
  }

  get unsentBytes(): number {
    return this.#stream.unsentBytes;
  }

  get heldBytes(): number {
    return this.#stream.unsentBytes + this.#reader.heldBytes;
  }

  nextId(): number {
    return this.#nextId;
  }

  onDrain(listener: () => void): void {
    this.#stream.onDrain(listener);
  }

  setFrameBytesMax(bytes: number): void {
    this.#reader.setBodyBytesMax(bytes);
  }

  send(message: MessageOn<P>): void {
    if (this.#ended !== null) return;
    const rule = this.#ruleOf(message.type);
    const refusal = this.#session.refuseSending(rule);
    if (refusal !== null) {
      this.destroy(refusal);
    } else if (rule.kind === 'answer' && (message as { readonly id: number | null }).id !== null) {
      this.#sendAnswer(message);
    } else {
      const fault = this.#write(message);
      if (fault !== null) this.destroy(fault);
    }
  }

  request(message: WithoutId<MessageOn<P>>, options: RequestOptions<P>): Promise<MessageOn<P>> {
    const id = this.#nextId;
    const whole = { ...message, id } as unknown as MessageOn<P>;
    const rule = this.#ruleOf(whole.type);
    const refusal = this.#ended ?? this.#session.refuseSending(rule) ?? this.#tooManyAsked();
    if (refusal !== null) return Promise.reject(refusal);
    if (options.signal?.aborted === true) return Promise.reject(new LeaseholdError('request_cancelled', { what: rule.type }));
    this.#nextId += 1;
    const answer = this.#asked.add(id, rule, options);
    const fault = this.#write(whole);
    if (fault !== null) this.#asked.fail(id, fault);
    return answer;
  }

  pause(): void {
    this.#reader.pause();
    this.#stream.pause();
  }

  resume(): void {
    this.#reader.resume();
    // A handler may have stopped it again.
    if (!this.#reader.paused) this.#stream.resume();
  }

  spendTurn(): void {
    this.#reader.spendTurn();
  }

  end(): void {
    if (this.#ended !== null) return;
    this.#finish(new LeaseholdError('closed', { what: `the connection to ${this.name}` }));
    // Whoever closes waits for the end of it, and must be there to see it.
    if (this.#keeps === false) this.#stream.ref();
    this.#stream.end();
  }

  destroy(error?: LeaseholdError): void {
    if (this.#ended !== null) return;
    // A peer that was never welcomed keeps no descriptor of ours, however it takes the news.
    const lingers = !this.#session.listens || this.#session.greeted;
    const told = error !== undefined && this.#tellFault(error);
    // Telling may have been one write too many for a peer that does not read.
    if (!this.open) return;
    this.#finish(error ?? new LeaseholdError('closed', { what: `the connection to ${this.name}` }));
    if (!told) this.#stream.destroy();
    else if (lingers) this.#stream.end();
    else this.#stream.endNow();
    // Not from within the call: whoever calls may be in the middle of something.
    queueMicrotask(() => this.#tellClosed());
  }

  /** Also when it has ended and only hands over what was sent: that is held, too. */
  cutOff(error: LeaseholdError): void {
    const wasOpen = this.open;
    if (wasOpen) this.#finish(error);
    this.#stream.destroy();
    if (wasOpen) queueMicrotask(() => this.#tellClosed());
  }

  unref(): void {
    this.#stream.unref();
    this.#asked.unref();
    this.#helloTimer?.unref();
  }

  relax(): void {
    this.#keeps ??= true;
    this.#weigh();
  }

  hold(): () => void {
    const mark = {};
    this.#holds.add(mark);
    this.#weigh();
    return () => {
      if (this.#holds.delete(mark)) this.#weigh();
    };
  }

  #weigh(): void {
    if (this.#keeps === null || this.#ended !== null) return;
    const keeps = this.#asked.size > 0 || this.#holds.size > 0;
    if (keeps === this.#keeps) return;
    this.#keeps = keeps;
    if (keeps) this.#stream.ref();
    else this.#stream.unref();
  }

  // ── Receiving ──────────────────────────────────────────────────────────

  #take(body: Uint8Array): void {
    const value = this.#codec.decode(body);
    if (value instanceof LeaseholdError) {
      this.destroy(value);
      return;
    }
    const message = validateMessage(this.plane, value);
    if (message instanceof LeaseholdError) {
      this.#refuse(message, value);
      return;
    }
    const rule = this.#ruleOf(message.type);
    const refusal = this.#session.refuseReceiving(rule);
    if (refusal !== null) this.#refuse(refusal, message);
    else if (rule.kind === 'answer') this.#takeAnswer(message);
    else if (rule.kind === 'request') this.#takeRequest(message as MessageOn<P> & { readonly id: number }, rule);
    else this.#handOn(message);
  }

  #takeAnswer(message: MessageOn<P>): void {
    const { id } = message as { readonly id: number | null };
    if (id === null) {
      this.#failedByPeer(message);
      return;
    }
    // Before the promise is settled: its owner may send at once what the new state allows.
    if (this.#asked.rule(id)?.final.has(message.type) === true) this.#advanceOnAnswer(message);
    const outcome = this.#asked.answer(id, message);
    if (outcome === 'stray') this.#stray(message);
    else if (outcome !== 'interim') this.#reader.yield();
  }

  #takeRequest(message: MessageOn<P> & { readonly id: number }, rule: MessageRule): void {
    const open = this.#owed.get(message.id);
    if (open !== undefined) {
      if (open === rule && rule.repeatable) this.#handlers.onMessage(message);
      else this.#answerError(message.id, new LeaseholdError('id_in_use', { id: message.id }));
      return;
    }
    const limit = this.#limits.openRequestsPerSessionMax;
    if (this.#owed.size >= limit) {
      this.#answerError(message.id, new LeaseholdError('too_many_requests', { limit }));
      return;
    }
    this.#owed.set(message.id, rule);
    this.#handOn(message);
  }

  #handOn(message: MessageOn<P>): void {
    this.#session.advance(message.type, message.type === 'hello' ? message.role : null);
    this.#handlers.onMessage(message);
  }

  #stray(message: MessageOn<P>): void {
    this.#strays += 1;
    this.#handlers.onStray?.(message);
  }

  #failedByPeer(message: MessageOn<P>): void {
    this.#finish(LeaseholdError.fromWire(message as Extract<MessageOn<P>, { readonly type: 'error' }>));
    if (this.#session.listens && !this.#session.greeted) this.#stream.endNow();
    else this.#stream.end();
    queueMicrotask(() => this.#tellClosed());
  }

  /** `value` was decoded but is not acceptable; see the four cases at the top. */
  #refuse(error: LeaseholdError, value: unknown): void {
    const { type, id } = (typeof value === 'object' && value !== null ? value : {}) as { readonly type?: unknown; readonly id?: unknown };
    const rule = typeof type === 'string' ? this.#session.rule(type) : undefined;
    const hasId = typeof id === 'number' && Number.isSafeInteger(id) && id >= 1;
    if (!this.#session.greeted || !hasId || rule?.kind === 'notification') {
      this.destroy(error);
    } else if (rule?.kind === 'answer') {
      if (!this.#asked.fail(id, error)) this.#strays += 1;
    } else {
      this.#answerError(id, error);
    }
  }

  // ── Sending ────────────────────────────────────────────────────────────

  #sendAnswer(message: MessageOn<P>): void {
    const { id } = message as { readonly id: number };
    const asked = this.#owed.get(id);
    // Answered before, or never asked here: the peer would have to ignore it.
    if (asked === undefined) return;
    const kind = answerKind(asked, message.type);
    if (kind !== 'interim') this.#owed.delete(id);
    if (kind === null) {
      const reason = `it does not answer ${asked.type}`;
      this.#answerError(id, new LeaseholdError('message_unexpected', { type: message.type, reason }));
      return;
    }
    const fault = this.#write(message);
    if (fault === null) return;
    this.#owed.delete(id);
    this.#answerError(id, fault);
  }

  /** Answers with `error`, whether or not a request of that id is open here. */
  #answerError(id: number, error: LeaseholdError): void {
    const message = errorMessage(this.plane, id, error);
    const fault = this.#session.refuseSending(this.#ruleOf('error')) ?? this.#write(message);
    if (fault !== null) this.destroy(error);
  }

  /** Null when the frame is on its way or the peer was cut off; else why there is no such frame. */
  #write(message: MessageOn<P>): LeaseholdError | null {
    const fault = this.#writer.write(message);
    if (fault === null) this.#advanceOnSent(message);
    if (fault?.code !== 'peer_too_slow') return fault;
    this.cutOff(fault);
    return null;
  }

  #advanceOnSent(message: MessageOn<P>): void {
    this.#session.advance(message.type, message.type === 'hello' ? message.role : null);
    if (message.type !== 'welcome' && message.type !== 'opened') return;
    if (this.#helloTimer !== null) clearTimeout(this.#helloTimer);
    this.#helloTimer = null;
    this.setFrameBytesMax(this.#limits.frameBytesMax);
  }

  #advanceOnAnswer(message: MessageOn<P>): void {
    this.#session.advance(message.type, null);
    if (message.type === 'welcome' || message.type === 'opened') this.#writer.setBodyBytesMax(message.frameBytesMax);
  }

  #sendCancel(target: number): void {
    const message = { type: 'cancel', target } as MessageOn<P>;
    if (this.#ended === null && this.#session.refuseSending(this.#ruleOf('cancel')) === null) this.#write(message);
  }

  // ── Ending ─────────────────────────────────────────────────────────────

  #awaitHello(limitMs: number): void {
    // Judged after the loop has read once more: what came while it was busy came in time.
    const judge = (): void => { if (this.#helloTimer !== null) this.destroy(new LeaseholdError('hello_timeout', { limitMs })); };
    this.#helloTimer = setTimeout(() => { setImmediate(judge); }, limitMs);
  }

  /** True when the peer may be told, and was. */
  #tellFault(error: LeaseholdError): boolean {
    if (this.#session.refuseSending(this.#ruleOf('error')) !== null) return false;
    return this.#write(errorMessage(this.plane, null, error)) === null;
  }

  /** From here on nothing is taken or sent. */
  #finish(error: LeaseholdError): void {
    this.#ended = error;
    if (this.#helloTimer !== null) clearTimeout(this.#helloTimer);
    this.#reader.stop();
    this.#owed.clear();
    this.#asked.failAll(error);
  }

  #streamClosed(reason: string): void {
    // What came before the end counts, also when reading was stopped, however often it is stopped again.
    while (this.open && !this.#reader.reading) this.#reader.flush();
    if (this.open) this.#finish(this.#lost(reason));
    this.#tellClosed();
  }

  #lost(reason: string): LeaseholdError {
    const end = this.#reader.end();
    if (end.kind === 'clean') {
      const how = reason === closedByPeer ? 'clean' : 'error';
      return new LeaseholdError('connection_lost', { peer: this.name, reason, how });
    }
    const of = end.announcedBytes === null ? 'a length' : `a frame of ${String(end.announcedBytes)} bytes`;
    return new LeaseholdError('connection_lost', { peer: this.name, reason: `${reason} in the middle of ${of}`, how: 'mid_frame' });
  }

  #tellClosed(): void {
    if (this.#told || this.#ended === null) return;
    this.#told = true;
    this.#handlers.onClose(this.#ended);
  }

  #tooManyAsked(): LeaseholdError | null {
    const limit = this.#limits.openRequestsPerSessionMax;
    return this.#asked.size < limit ? null : new LeaseholdError('too_many_requests', { limit });
  }

  #ruleOf(type: string): MessageRule {
    const rule = this.#session.rule(type);
    if (rule === undefined) throw new LeaseholdError('message_unknown', { type });
    return rule;
  }
}
