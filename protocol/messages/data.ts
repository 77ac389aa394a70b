/**
 * The data plane: a caller and a worker, with no broker between. The worker
 * listens; a caller opens a connection with a ticket and may run many calls
 * on it. Tokens flow against credits, so a caller that stops reading stops
 * only its own streams.
 */
import { boolean, choice, count, durationMs, id, integer, list, map, nullable, number, object, optional, string } from '../schema.js';
import { message, type MessageOf } from './define.js';
import { generationId, modelSpec, requestClass, shortText } from './shared.js';

const chatMessage = () =>
  object({ role: choice('system', 'user', 'assistant', 'tool'), content: string(4 * 1024 * 1024) });

const sampling = () =>
  object({
    maxTokens: count(16_777_216),
    /** 0: greedy. */
    temperature: number(0, 100),
    topK: optional(count(1_000_000)),
    topP: optional(number(0, 1)),
    minP: optional(number(0, 1)),
    repeatPenalty: optional(number(0, 100)),
    /** A decimal string: seeds reach 2^63 - 1, which no JavaScript number holds (R287). */
    seed: optional(string(20, /^\d{1,19}$/)),
    stop: optional(list(string(256), 16)),
    /** The chat template’s thinking switch; left out: the template’s default. */
    thinking: optional(boolean()),
  });

export const dataMessages = {
  open: message('The first frame: the ticket from `placed`.', ['caller'], {
    id: id(),
    ticket: string(512),
    caller: string(128),
  }, ['opened', 'error']),
  opened: message('Calls are taken.', ['worker'], { id: id(), generation: generationId(), frameBytesMax: count() }),
  generate: message('Generate text: messages through the model’s own chat template, or a bare prompt.', ['caller'], {
    id: id(),
    model: modelSpec(),
    /** Exactly one of the two is not null. */
    messages: nullable(list(chatMessage(), 10_000)),
    prompt: nullable(string(8 * 1024 * 1024)),
    sampling: sampling(),
    class: requestClass(),
    deadlineMs: durationMs(),
    /** Tokens that may be sent before more credits come. */
    credits: count(1_000_000),
  }, ['end', 'error'], ['stage', 'token']),
  load: message('Make the model resident; ends when it is.', ['caller'], {
    id: id(),
    model: modelSpec(),
    class: requestClass(),
    deadlineMs: durationMs(),
  }, ['end', 'error'], ['stage']),
  embed: message('Vectors for texts.', ['caller'], {
    id: id(),
    model: modelSpec(),
    inputs: list(string(1024 * 1024), 2_048),
    class: requestClass(),
    deadlineMs: durationMs(),
  }, ['embedding', 'error'], ['stage']),
  embedding: message('One vector an input.', ['worker'], {
    id: id(),
    vectors: list(list(number(-3.5e38, 3.5e38), 65_536), 2_048),
    promptTokens: count(),
  }),
  count_tokens: message('How many tokens is this?', ['caller'], {
    id: id(),
    model: modelSpec(),
    messages: nullable(list(chatMessage(), 10_000)),
    prompt: nullable(string(8 * 1024 * 1024)),
    class: requestClass(),
    deadlineMs: durationMs(),
  }, ['token_count', 'error'], ['stage']),
  token_count: message('So many.', ['worker'], { id: id(), tokens: count() }),
  credits: message('I have read; send this many more.', ['caller'], {
    /** The id of the `generate` that they are for. */
    target: id(),
    tokens: count(1_000_000),
  }),
  cancel: message('Stop this call.', ['caller'], {
    /** The id under which it was asked. */
    target: id(),
  }),
  stage: message('What a call is waiting for or doing.', ['worker'], {
    id: id(),
    stage: choice('queued', 'estimating', 'waiting', 'loading', 'resuming', 'prefill', 'generating'),
    /** Null when it cannot be known; never guessed. */
    progress: nullable(number(0, 1)),
    text: shortText(),
    explain: nullable(string(64)),
  }),
  token: message('Tokens, and the text they add. A token inside a character adds none yet.', ['worker'], {
    id: id(),
    ids: list(integer(0, 4_294_967_295, 'token id'), 4_096),
    text: string(1024 * 1024),
    /** True while the model thinks, where its template marks thought. */
    thought: boolean(),
  }),
  end: message('The call ended.', ['worker'], {
    id: id(),
    reason: choice('stop', 'length', 'cancelled', 'loaded'),
    usage: object({ promptTokens: count(), cachedTokens: count(), completionTokens: count(), thoughtTokens: count() }),
    timings: object({ queuedMs: durationMs(), loadMs: durationMs(), prefillMs: durationMs(), generateMs: durationMs() }),
    explain: nullable(string(64)),
  }),
  error: message('The call failed (id null: the connection did). tokensSent tells whether a retry is safe.', ['worker'], {
    id: nullable(id()),
    code: string(64, /^[a-z][a-z0-9_]*$/),
    message: shortText(),
    details: map(string(2_000), 32),
    retryable: boolean(),
    tokensSent: count(),
  }),
} as const;

export type DataMessage = MessageOf<typeof dataMessages>;
export type DataMessageType = DataMessage['type'];
export type ChatMessage = { readonly role: 'system' | 'user' | 'assistant' | 'tool'; readonly content: string };
