/** One call of one caller, from its arrival to its one final answer. */
import { LeaseholdError, type DataMessage, type ModelSpec, type RequestClass } from '../../protocol/index.js';
import { errorMessage } from '../../protocol/node/index.js';
import { nowUs } from './clock.js';
import type { DoorCall } from './door-types.js';
import { Outbox, type CallerLink } from './outbox.js';
import { topicOf } from './topic.js';

/** Timers reach no further (24 days); a longer deadline is as good as this one. */
const timerMsMax = 2 ** 31 - 1;

export type CallRequest = Extract<DataMessage, { readonly type: 'generate' | 'load' | 'embed' | 'count_tokens' }>;
type Stage = Extract<DataMessage, { readonly type: 'stage' }>;
type Final = Extract<DataMessage, { readonly type: 'end' | 'embedding' | 'token_count' | 'error' }>;

export interface Usage {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  thoughtTokens: number;
}

export interface CallOptions {
  /** Unique in this process: two callers may use the same wire id. */
  readonly id: number;
  readonly request: CallRequest;
  readonly link: CallerLink;
  readonly creditTokensMax: number;
  /** To be waited for before the final answer leaves (D25); bounded. */
  readonly beforeFinal: () => Promise<void>;
  /** The call asks to end early: by its deadline, or because its caller left. */
  readonly onLeave: (call: Call) => void;
  /** The final answer has been sent, or nobody is there to take it. */
  readonly onFinished: (call: Call) => void;
}

export class Call {
  readonly id: number;
  readonly request: CallRequest;
  readonly arrivedAtUs = nowUs();
  readonly outbox: Outbox;
  readonly usage: Usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, thoughtTokens: 0 };
  /** When it began on a slot, sent its first token, and when generating ended. */
  beganAtUs: number | null = null;
  firstTokenAtUs: number | null = null;
  generatedAtUs: number | null = null;
  /** Time of the load that it waited for, as far as it waited for one. */
  loadMs = 0;
  explain: string | null = null;
  readonly #options: CallOptions;
  readonly #abort = new AbortController();
  #deadline: NodeJS.Timeout | null;
  #stage: Stage | null = null;
  #finishing = false;

  constructor(options: CallOptions) {
    this.id = options.id;
    this.request = options.request;
    this.#options = options;
    this.outbox = new Outbox(options.link, options.request.type === 'generate' ? options.request.credits : 0, options.creditTokensMax);
    this.#deadline = setTimeout(() => { this.leave(this.#deadlineError()); }, Math.min(options.request.deadlineMs, timerMsMax));
  }

  get spec(): ModelSpec {
    return this.request.model;
  }

  get class(): RequestClass {
    return this.request.class;
  }

  /** Aborts when the call is to end early; its reason is what the caller is told. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** True once its final answer is decided. */
  get finishing(): boolean {
    return this.#finishing;
  }

  get deadlineAtUs(): number {
    return this.arrivedAtUs + this.request.deadlineMs * 1000;
  }

  /** As the door sees it. */
  forDoor(): DoorCall {
    const { type, model } = this.request;
    const needs = type === 'generate' || type === 'embed' ? 'slot' : 'model';
    return { id: this.id, arrivedAtUs: this.arrivedAtUs, needs, tokens: model.embedding ? 0 : model.contextTokens, topic: topicOf(this.request) };
  }

  /** Ends it early, once: aborts whatever runs for it. The first reason stands. */
  leave(reason: LeaseholdError): void {
    if (this.#abort.signal.aborted || this.#finishing) return;
    this.#clearDeadline();
    this.#abort.abort(reason);
    this.outbox.close();
    this.#options.onLeave(this);
  }

  /** From its first token on a call is no longer bounded by its deadline: it streams, and its caller can end it. */
  firstToken(): void {
    if (this.firstTokenAtUs !== null) return;
    this.firstTokenAtUs = nowUs();
    this.#clearDeadline();
  }

  /** Tells what it waits for or does; equal neighbours are told once, progress never runs backwards. */
  stage(stage: Stage['stage'], progress: number | null, text: string, explain: string | null = null): void {
    const { link } = this.#options;
    if (this.#finishing || !link.open) return;
    const last = this.#stage?.stage === stage ? this.#stage : null;
    const told = last?.progress ?? null;
    const same = last !== null && last.text === text && last.explain === explain;
    if (same && !isNewProgress(progress, told)) return;
    // A reader that takes nothing needs no progress.
    if (link.congested && last !== null) return;
    this.#stage = { type: 'stage', id: this.request.id, stage, progress: clamp(progress, told), text, explain };
    link.send(this.#stage);
  }

  /** The final answer, once: reports are flushed, then it is sent. */
  finish(message: Final): void {
    if (this.#finishing) return;
    this.#finishing = true;
    this.#clearDeadline();
    void this.#options.beforeFinal().then(() => {
      if (this.#options.link.open) this.#options.link.send(message);
      this.#options.onFinished(this);
    });
  }

  fail(error: LeaseholdError): void {
    this.outbox.close();
    this.finish(errorMessage('data', this.request.id, error, this.outbox.sentTokens) as Final);
  }

  /** Ends it for the reason of its abort: a caller’s own cancel is no error of a stream or a load. */
  finishLeft(): void {
    const reason = LeaseholdError.from(this.signal.reason);
    const { type } = this.request;
    if (reason.code === 'request_cancelled' && (type === 'generate' || type === 'load')) this.end('cancelled');
    else this.fail(reason);
  }

  end(reason: Extract<Final, { readonly type: 'end' }>['reason']): void {
    this.finish({ type: 'end', id: this.request.id, reason, usage: { ...this.usage }, timings: this.#timings(), explain: this.explain });
  }

  #timings(): Extract<Final, { readonly type: 'end' }>['timings'] {
    const now = nowUs();
    const began = this.beganAtUs ?? now;
    const first = this.firstTokenAtUs ?? this.generatedAtUs ?? now;
    const until = this.generatedAtUs ?? now;
    const ms = (us: number): number => Math.max(0, Math.round(us / 1000));
    const ran = this.beganAtUs !== null;
    return {
      queuedMs: Math.max(0, ms(began - this.arrivedAtUs) - this.loadMs),
      loadMs: this.loadMs,
      prefillMs: ran ? ms(first - began) : 0,
      generateMs: ran ? ms(until - first) : 0,
    };
  }

  #deadlineError(): LeaseholdError {
    const doing = this.#stage?.text ?? 'it had not begun';
    return new LeaseholdError('deadline_passed', { what: `${this.request.type} with ${this.spec.key}`, deadlineMs: this.request.deadlineMs, reason: doing });
  }

  #clearDeadline(): void {
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    this.#deadline = null;
  }
}

/** A hundred steps are enough for anybody; the last is always told. */
function isNewProgress(progress: number | null, told: number | null): boolean {
  if (progress === null) return false;
  return told === null || progress >= told + 0.01 || (progress >= 1 && told < 1);
}

function clamp(progress: number | null, told: number | null): number | null {
  if (progress === null || !Number.isFinite(progress)) return told;
  return Math.min(1, Math.max(0, told ?? 0, progress));
}
