/**
 * A channel is typed messages over a byte stream: framing, codec, validation,
 * ids, open requests, bounded sending. Both planes and both sides use it.
 */
import type { LeaseholdError } from '../errors.js';
import type { SessionState } from '../session.js';
import type { MessageOn, Plane } from '../validate.js';

export type { MessageOn, Plane } from '../validate.js';
/** A message as it is handed to `request`: the channel adds the id. */
export type WithoutId<M> = M extends { readonly id: number } ? Omit<M, 'id'> : never;

export interface RequestOptions<P extends Plane> {
  /** Reject with `deadline_passed` after this; the request is cancelled at the peer. Null: no limit of the channel's own. */
  readonly timeoutMs: number | null;
  /** Cancels at the peer (`cancel {target}`) and rejects with `request_cancelled`. */
  readonly signal?: AbortSignal;
  /** Interim answers (`waiting`, `draining`, `stage`, `token`), in order. */
  readonly onInterim?: (message: MessageOn<P>) => void;
}

export interface ChannelHandlers<P extends Plane> {
  /** Requests and notifications of the peer, validated and in order. Answers go to whoever asked. May not throw. */
  onMessage(message: MessageOn<P>): void;
  /** Called once. All open requests have been rejected with `connection_lost` (or the fault) by then. */
  onClose(error: LeaseholdError): void;
  /** An answer to nothing, a late answer: ignored and counted (B182). For logs. */
  onStray?(message: MessageOn<P>): void;
}

export interface Channel<P extends Plane> {
  readonly plane: P;
  readonly name: string;
  readonly open: boolean;
  /** How far the session is: until its greeting is over, any fault ends the connection. */
  readonly state: SessionState;
  /** Answers to nothing and late answers that came (B182). */
  readonly strays: number;
  /** Send as it is: answers, notifications. Never throws, never blocks; a peer that does not read is cut off at outgoingBytesMax. */
  send(message: MessageOn<P>): void;
  /**
   * Send a request and wait for the answer that ends it. Answers of type
   * `error` reject as LeaseholdError; every other final answer (deny, busy…)
   * resolves: they are results.
   */
  request(message: WithoutId<MessageOn<P>>, options: RequestOptions<P>): Promise<MessageOn<P>>;
  /** The id that the next request will have, for callers that must know it first. */
  nextId(): number;
  /** Bytes sent and not yet taken by the peer. */
  readonly unsentBytes: number;
  /** Where what is held for all peers is limited: others are cut off before this one. Default false. */
  spared: boolean;
  onDrain(listener: () => void): void;
  /** After authentication: the frame limit goes up. */
  setFrameBytesMax(bytes: number): void;
  /** Stop and go on reading. While stopped, the peer's end may go unnoticed too. */
  pause(): void;
  resume(): void;
  /** What came last was work enough: what this peer has sent after it is heard in the next turn of the loop, after the others. */
  spendTurn(): void;
  /** Send what was sent, then close; what still comes is dropped. `onClose` (`closed`) tells that all was handed over or flushTimeoutMs passed. */
  end(): void;
  /**
   * Stop taking and sending at once: open requests are rejected and `onClose`
   * is called soon, without waiting for the peer. When an error is given the
   * peer is told (`error`, id null) as far as it reads.
   */
  destroy(error?: LeaseholdError): void;
  /** Let the process end although this is open, whatever is asked. */
  unref(): void;
  /** From now on it keeps the process only while a request of this side is open, or `hold` says so. */
  relax(): void;
  /** Keeps the process until the function it returns is called. */
  hold(): () => void;
}
