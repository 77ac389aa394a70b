/** One generation as its reader sees it: an iterator that gives the worker credits as it is read. */
import { LeaseholdError, durationText, type DataMessage, type Limits } from '../../protocol/index.js';
import type { Channel } from '../../protocol/node/index.js';
import { Patience } from './patience.js';

type GenerateMessage = Extract<DataMessage, { readonly type: 'generate' }>;
type End = Extract<DataMessage, { readonly type: 'end' }>;
type WithoutId<M> = M extends unknown ? Omit<M, 'id'> : never;

export type CallUsage = End['usage'];
export type CallTimings = End['timings'];

/** What a call waits for or does. `progress` is 0 to 1; null: it cannot be known. */
export type CallStage = Pick<Extract<DataMessage, { readonly type: 'stage' }>, 'stage' | 'progress' | 'text' | 'explain'>;

export type CallEvent =
  | ({ readonly type: 'stage' } & CallStage)
  | { readonly type: 'token'; readonly ids: readonly number[]; readonly text: string; readonly thought: boolean }
  | { readonly type: 'end'; readonly reason: 'stop' | 'length' | 'cancelled'; readonly usage: CallUsage; readonly timings: CallTimings; readonly explain: string | null };

/** Tokens that may be on their way to a reader; more are asked for when half of them have been read. */
export const creditWindowTokens = 256;

/** Events that may be unread before of several stages in a row only the last is kept. */
const unreadStagesMax = 64;

export interface StreamOptions {
  readonly signal?: AbortSignal;
  /** `stopTimeoutMs` on top of what a worker itself bounds: by then it has answered, or its process has ended. */
  readonly limits: Pick<Limits, 'silentStreamMs' | 'stopTimeoutMs'>;
}

export class CallStream implements AsyncIterator<CallEvent, undefined> {
  readonly #channel: Channel<'data'>;
  readonly #message: WithoutId<GenerateMessage>;
  readonly #outer: AbortSignal | undefined;
  readonly #stop = new AbortController();
  #events: CallEvent[] = [];
  #wakers: (() => void)[] = [];
  /** Null: not begun. */
  #id: number | null = null;
  #state: 'new' | 'running' | 'ended' = 'new';
  #failure: LeaseholdError | null = null;
  #receivedTokens = 0;
  #readSinceCredit = 0;
  /** What the worker may still send, and what it may send in all. */
  #creditTokens: number;
  #allowedTokens: number;
  readonly #firstTokenMs: number;
  readonly #silentMs: number;
  readonly #patience = new Patience(() => { this.#giveUp(); });

  constructor(channel: Channel<'data'>, message: WithoutId<GenerateMessage>, { signal, limits }: StreamOptions) {
    this.#channel = channel;
    this.#message = message;
    this.#outer = signal;
    this.#creditTokens = message.credits;
    this.#allowedTokens = message.sampling.maxTokens + creditWindowTokens;
    this.#firstTokenMs = message.deadlineMs + limits.stopTimeoutMs;
    this.#silentMs = limits.silentStreamMs + limits.stopTimeoutMs;
  }

  async next(): Promise<IteratorResult<CallEvent, undefined>> {
    if (this.#state === 'new') this.#begin();
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        this.#read(event);
        return { done: false, value: event };
      }
      if (this.#state === 'ended') break;
      await new Promise<void>((resolve) => this.#wakers.push(resolve));
    }
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure;
    return { done: true, value: undefined };
  }

  /** The reader leaves: the worker is told to stop. */
  return(): Promise<IteratorResult<CallEvent, undefined>> {
    this.#events = [];
    this.#failure = null;
    this.#state = 'ended';
    this.#patience.end();
    this.#stop.abort();
    return Promise.resolve({ done: true, value: undefined });
  }

  #begin(): void {
    this.#state = 'running';
    const abort = (): void => { this.#stop.abort(); };
    if (this.#outer?.aborted === true) this.#stop.abort();
    this.#outer?.addEventListener('abort', abort, { once: true });
    this.#id = this.#channel.nextId();
    // The worker bounds the wait, for the first token as for each that follows; so does this end, should the worker not.
    this.#patience.wait(this.#firstTokenMs);
    this.#channel
      .request(this.#message, { timeoutMs: null, signal: this.#stop.signal, onInterim: (message) => { this.#take(message); } })
      .then((message) => { this.#take(message); }, (error: unknown) => { this.#fail(error); })
      .finally(() => {
        this.#outer?.removeEventListener('abort', abort);
        this.#state = 'ended';
        this.#patience.end();
        this.#wake();
      });
  }

  #take(message: DataMessage): void {
    if (this.#state === 'ended') return;
    if (message.type === 'stage') {
      const { stage, progress, text, explain } = message;
      // A reader that lags needs the newest word of a stage alone, and far behind the newest of all.
      const last = this.#events.at(-1);
      if (last?.type === 'stage' && (last.stage === stage || this.#events.length >= unreadStagesMax)) this.#events.pop();
      this.#events.push({ type: 'stage', stage, progress, text, explain });
    } else if (message.type === 'token') {
      if (!this.#spend(Math.max(1, message.ids.length))) return;
      this.#receivedTokens += message.ids.length;
      this.#events.push({ type: 'token', ids: message.ids, text: message.text, thought: message.thought });
    } else if (message.type === 'end') {
      const { usage, timings, explain } = message;
      const reason = message.reason === 'loaded' ? 'stop' : message.reason;
      this.#events.push({ type: 'end', reason, usage, timings, explain });
    }
    this.#wake();
  }

  /** False for a token that the worker had no leave to send: nobody could say how many more it would. */
  #spend(tokens: number): boolean {
    const reason = this.#creditTokens <= 0 ? 'it was sent without credits' : this.#allowedTokens < tokens ? `more than maxTokens, ${String(this.#message.sampling.maxTokens)}, were sent` : null;
    if (reason !== null) {
      this.#channel.destroy(new LeaseholdError('message_unexpected', { type: 'token', reason }));
      return false;
    }
    this.#creditTokens -= tokens;
    this.#allowedTokens -= tokens;
    this.#expect();
    return true;
  }

  /** Without credits it is the reader that is waited for. */
  #expect(): void {
    if (this.#creditTokens > 0) this.#patience.wait(this.#silentMs);
    else this.#patience.end();
  }

  #giveUp(): void {
    const { model, deadlineMs } = this.#message;
    const error = this.#receivedTokens === 0
      ? new LeaseholdError('deadline_passed', { what: `generate with ${model.key}`, deadlineMs, reason: 'its worker gave no answer' })
      : new LeaseholdError('generation_failed', { model: model.key, reason: `its worker sent no further token for ${durationText(this.#silentMs)}` });
    this.#fail(error);
    this.#state = 'ended';
    this.#stop.abort();
    this.#wake();
  }

  #fail(error: unknown): void {
    if (this.#state === 'ended') return;
    const typed = LeaseholdError.from(error);
    // Whoever aborted wants nothing more of it, not even what has come already.
    if (this.#outer?.aborted === true) this.#events = [];
    this.#failure = new LeaseholdError(typed.code, { ...typed.details, tokensReceived: this.#receivedTokens }, { cause: typed });
  }

  /** What has been read makes room for more. */
  #read(event: CallEvent): void {
    if (event.type !== 'token') return;
    this.#readSinceCredit += Math.max(1, event.ids.length);
    if (this.#readSinceCredit < creditWindowTokens / 2 || this.#state !== 'running' || this.#id === null) return;
    this.#channel.send({ type: 'credits', target: this.#id, tokens: this.#readSinceCredit });
    this.#creditTokens += this.#readSinceCredit;
    this.#readSinceCredit = 0;
    this.#expect();
  }

  #wake(): void {
    const wakers = this.#wakers;
    this.#wakers = [];
    for (const wake of wakers) wake();
  }
}
