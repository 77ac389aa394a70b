/**
 * Requests that this side has asked on one connection and that are not yet
 * answered. An answer is looked up here by its id and by nothing else: one
 * that came by another connection, twice, or too late finds nothing (B182).
 */
import { LeaseholdError } from '../errors.js';
import { answerKind, type MessageRule } from '../session.js';
import type { MessageOn, Plane } from '../validate.js';
import type { RequestOptions } from './channel-types.js';

/** Timers reach no further (24 days); a longer limit is as good as this one. */
const timerMsMax = 2 ** 31 - 1;

interface OpenRequest<P extends Plane> {
  readonly rule: MessageRule;
  readonly onInterim: ((message: MessageOn<P>) => void) | undefined;
  readonly resolve: (answer: MessageOn<P>) => void;
  readonly reject: (error: LeaseholdError) => void;
  timer: NodeJS.Timeout | null;
  /** Takes the listener off the caller's signal. */
  forget: (() => void) | null;
}

export class OpenRequests<P extends Plane> {
  readonly #open = new Map<number, OpenRequest<P>>();
  readonly #cancel: (id: number) => void;
  readonly #changed: () => void;
  #unrefed = false;

  /** `cancel` tells the peer that a request is taken back; `changed` is called when there is one more or one less. */
  constructor(cancel: (id: number) => void, changed: () => void) {
    this.#cancel = cancel;
    this.#changed = changed;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The request with this id that is open, or undefined. */
  rule(id: number): MessageRule | undefined {
    return this.#open.get(id)?.rule;
  }

  /** Resolves or rejects as `Channel.request` says. The request itself is sent by the caller, after this. */
  add(id: number, rule: MessageRule, options: RequestOptions<P>): Promise<MessageOn<P>> {
    return new Promise((resolve, reject) => {
      const request: OpenRequest<P> = { rule, onInterim: options.onInterim, resolve, reject, timer: null, forget: null };
      this.#open.set(id, request);
      this.#changed();
      if (options.timeoutMs !== null) request.timer = this.#limit(id, rule.type, options.timeoutMs);
      const { signal } = options;
      if (signal === undefined) return;
      const abort = (): void => this.#giveUp(id, new LeaseholdError('request_cancelled', { what: rule.type }, { cause: signal.reason }));
      signal.addEventListener('abort', abort, { once: true });
      request.forget = () => signal.removeEventListener('abort', abort);
    });
  }

  /** Takes in an answer to an open request; false when it answers nothing. */
  answer(id: number, message: MessageOn<P>): 'final' | 'interim' | 'wrong' | 'stray' {
    const request = this.#open.get(id);
    if (request === undefined) return 'stray';
    const kind = answerKind(request.rule, message.type);
    if (kind === 'interim') {
      this.#tell(id, request, message);
      return kind;
    }
    this.#remove(id, request);
    if (kind === 'final') {
      if (message.type === 'error') request.reject(LeaseholdError.fromWire(message));
      else request.resolve(message);
      return kind;
    }
    const reason = `it does not answer ${request.rule.type}`;
    request.reject(new LeaseholdError('message_unexpected', { type: message.type, reason }));
    return 'wrong';
  }

  /** Rejects one request, if it is open. */
  fail(id: number, error: LeaseholdError): boolean {
    const request = this.#open.get(id);
    if (request === undefined) return false;
    this.#remove(id, request);
    request.reject(error);
    return true;
  }

  failAll(error: LeaseholdError): void {
    for (const id of [...this.#open.keys()]) this.fail(id, error);
  }

  unref(): void {
    this.#unrefed = true;
    for (const request of this.#open.values()) request.timer?.unref();
  }

  #limit(id: number, type: string, timeoutMs: number): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#giveUp(id, new LeaseholdError('deadline_passed', { what: type, deadlineMs: timeoutMs, reason: 'no answer came' }));
    }, Math.min(timeoutMs, timerMsMax));
    if (this.#unrefed) timer.unref();
    return timer;
  }

  /** A listener that throws loses its own request; thrown on, it would end the process in the middle of a chunk. */
  #tell(id: number, request: OpenRequest<P>, message: MessageOn<P>): void {
    try {
      request.onInterim?.(message);
    } catch (error) {
      this.#giveUp(id, LeaseholdError.from(error, 'input_invalid', { field: `what listens to ${message.type}` }));
    }
  }

  #giveUp(id: number, error: LeaseholdError): void {
    if (this.fail(id, error)) this.#cancel(id);
  }

  #remove(id: number, request: OpenRequest<P>): void {
    this.#open.delete(id);
    if (request.timer !== null) clearTimeout(request.timer);
    request.forget?.();
    this.#changed();
  }
}
