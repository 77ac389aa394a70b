/** A connection to one worker's data plane: calls out, tokens in, paced by who reads them. */
import { LeaseholdError, defaultLimits, type ChatMessage, type DataMessage, type Limits, type ModelSpec, type RequestClass } from '../../protocol/index.js';
import { connect, openChannel, type ByteStream, type Channel } from '../../protocol/node/index.js';
import { CallStream, creditWindowTokens, type CallEvent, type CallStage, type CallTimings } from './call-stream.js';

type GenerateMessage = Extract<DataMessage, { readonly type: 'generate' }>;
type CallMessage = Extract<DataMessage, { readonly type: 'load' | 'embed' | 'count_tokens' }>;
type Stage = Extract<DataMessage, { readonly type: 'stage' }>;
type WithoutId<M> = M extends unknown ? Omit<M, 'id'> : never;

export type Sampling = GenerateMessage['sampling'];

export interface OpenCallerOptions {
  /** The worker's socket and the ticket, both from `place`. */
  readonly dataSocket?: string;
  /** Instead of a socket: a connection that is there already. */
  readonly stream?: ByteStream;
  readonly ticket: string;
  /** The name that the ticket was made for: the session's generation. */
  readonly caller: string;
  readonly limits?: Limits;
  readonly signal?: AbortSignal;
  /** The worker that must answer there; another one is `generation_stale`. Left out: whichever answers. */
  readonly generation?: string;
}

/** What every call may say. */
export interface CallOptions {
  /** Default `normal`. */
  readonly class?: RequestClass;
  /** How long the call may wait for its first token or its result. Default `requestDeadlineMs`. */
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal;
  readonly onStage?: (stage: CallStage) => void;
}

/** Exactly one of the two: messages go through the model's own chat template, a prompt goes as it is. */
export interface Input {
  readonly messages?: readonly ChatMessage[];
  readonly prompt?: string;
}

export interface Embeddings {
  readonly vectors: readonly (readonly number[])[];
  readonly promptTokens: number;
}

export interface GenerateOptions extends CallOptions, Input {
  readonly model: ModelSpec;
  readonly sampling: Sampling;
}

export interface LoadedInfo {
  readonly timings: CallTimings;
  readonly explain: string | null;
}

/** Calls on one worker. Closing it, or losing it, ends all its calls there within 200 ms. */
export interface WorkerCaller {
  readonly generation: string;
  readonly open: boolean;
  /**
   * Generates when iterated: stages, tokens, one `end`. Reading slowly slows
   * the worker's engine; leaving the loop, or aborting, stops it. Failures
   * throw; their details tell `tokensReceived`, 0 when a retry repeats nothing.
   */
  generate(options: GenerateOptions): AsyncIterable<CallEvent, undefined>;
  /** Makes the model resident. */
  load(model: ModelSpec, options?: CallOptions): Promise<LoadedInfo>;
  embed(model: ModelSpec, inputs: readonly string[], options?: CallOptions): Promise<Embeddings>;
  countTokens(model: ModelSpec, input: Input, options?: CallOptions): Promise<number>;
  /** Resolves, once, when the connection has ended, with why. */
  readonly closed: Promise<LeaseholdError>;
  /** From now on it keeps the process only while a call is open. */
  relax(): void;
  close(): void;
}

/** Opens the connection; rejects with `connect_failed` or `ticket_refused`. */
export async function openCaller(options: OpenCallerOptions): Promise<WorkerCaller> {
  const limits = options.limits ?? defaultLimits;
  const { signal } = options;
  if (signal?.aborted === true) throw cancelled('Opening a caller');
  const stream = options.stream ?? await connectWorker(required(options.dataSocket), limits.helloTimeoutMs);
  let tellClosed: (error: LeaseholdError) => void = () => undefined;
  const closed = new Promise<LeaseholdError>((resolve) => { tellClosed = resolve; });
  const channel = openChannel(stream, {
    plane: 'data', side: 'caller', limits,
    handlers: { onMessage: () => undefined, onClose: (error) => { tellClosed(error); } },
  });
  try {
    const answer = await channel.request({ type: 'open', ticket: options.ticket, caller: options.caller }, { timeoutMs: limits.helloTimeoutMs, ...withSignal(signal) });
    if (answer.type !== 'opened') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers open' });
    const { generation = answer.generation } = options;
    if (answer.generation !== generation) throw new LeaseholdError('generation_stale', { generation, current: answer.generation });
    return new Caller(channel, generation, closed, limits);
  } catch (error) {
    channel.destroy();
    throw error instanceof LeaseholdError && error.code === 'deadline_passed' ? silentWorker(error, limits.helloTimeoutMs) : error;
  }
}

class Caller implements WorkerCaller {
  readonly #channel: Channel<'data'>;
  readonly generation: string;
  readonly closed: Promise<LeaseholdError>;
  readonly #limits: Limits;

  constructor(channel: Channel<'data'>, generation: string, closed: Promise<LeaseholdError>, limits: Limits) {
    this.#channel = channel;
    this.generation = generation;
    this.closed = closed;
    this.#limits = limits;
  }

  get open(): boolean {
    return this.#channel.open;
  }

  generate(options: GenerateOptions): AsyncIterable<CallEvent, undefined> {
    const { messages = null, prompt = null, model, sampling } = options;
    const message: WithoutId<GenerateMessage> = { type: 'generate', model, messages, prompt, sampling, ...this.#common(options), credits: creditWindowTokens };
    return { [Symbol.asyncIterator]: () => new CallStream(this.#channel, message, { limits: this.#limits, ...withSignal(options.signal) }) };
  }

  async load(model: ModelSpec, options: CallOptions = {}): Promise<LoadedInfo> {
    const answer = await this.#call({ type: 'load', model, ...this.#common(options) }, options);
    if (answer.type !== 'end') throw unexpected(answer, 'load');
    if (answer.reason === 'cancelled') throw cancelled(`Loading ${model.key}`);
    return { timings: answer.timings, explain: answer.explain };
  }

  async embed(model: ModelSpec, inputs: readonly string[], options: CallOptions = {}): Promise<Embeddings> {
    const answer = await this.#call({ type: 'embed', model, inputs, ...this.#common(options) }, options);
    if (answer.type !== 'embedding') throw unexpected(answer, 'embed');
    if (answer.vectors.length !== inputs.length) {
      throw new LeaseholdError('message_invalid', { type: 'embedding', field: 'vectors', expected: `one for each of ${String(inputs.length)} inputs, not ${String(answer.vectors.length)}` });
    }
    return { vectors: answer.vectors, promptTokens: answer.promptTokens };
  }

  async countTokens(model: ModelSpec, input: Input, options: CallOptions = {}): Promise<number> {
    const { messages = null, prompt = null } = input;
    const answer = await this.#call({ type: 'count_tokens', model, messages, prompt, ...this.#common(options) }, options);
    if (answer.type !== 'token_count') throw unexpected(answer, 'count_tokens');
    return answer.tokens;
  }

  relax(): void {
    this.#channel.relax();
  }

  close(): void {
    this.#channel.end();
  }

  #common(options: CallOptions): { readonly class: RequestClass; readonly deadlineMs: number } {
    return { class: options.class ?? 'normal', deadlineMs: options.deadlineMs ?? this.#limits.requestDeadlineMs };
  }

  #call(message: WithoutId<CallMessage>, options: CallOptions): Promise<DataMessage> {
    const { signal, onStage } = options;
    return this.#channel.request(message, {
      timeoutMs: message.deadlineMs + this.#limits.stopTimeoutMs,
      ...withSignal(signal),
      onInterim: (interim) => { if (interim.type === 'stage') onStage?.(toStage(interim)); },
    });
  }
}

async function connectWorker(path: string, timeoutMs: number): Promise<ByteStream> {
  try {
    return await connect({ path, timeoutMs });
  } catch (error) {
    if (!(error instanceof LeaseholdError) || error.code !== 'connect_failed') throw error;
    throw new LeaseholdError('connect_failed', error.details, { cause: error, help: 'A worker said that it takes calls there, and does not: it has just ended, or its engine must listen at LEASEHOLD_DATA_SOCKET before it says `ready`.' });
  }
}

/** It listens, and says nothing. */
function silentWorker(cause: LeaseholdError, waitedMs: number): LeaseholdError {
  return new LeaseholdError('deadline_passed', { ...cause.details, what: 'reaching its worker', deadlineMs: waitedMs, waitedMs, reason: 'it does not answer' }, { cause });
}

function withSignal(signal: AbortSignal | undefined): { readonly signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function toStage({ stage, progress, text, explain }: Stage): CallStage {
  return { stage, progress, text, explain };
}

function cancelled(what: string): LeaseholdError {
  return new LeaseholdError('request_cancelled', { what });
}

function unexpected(answer: DataMessage, asked: string): LeaseholdError {
  return new LeaseholdError('message_unexpected', { type: answer.type, reason: `it does not answer ${asked}` });
}

function required(dataSocket: string | undefined): string {
  if (dataSocket === undefined) throw new LeaseholdError('input_invalid', { field: 'dataSocket', reason: 'give a dataSocket or a stream' });
  return dataSocket;
}
