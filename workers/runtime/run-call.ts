/** One call on a resident model: what the engine yields, as messages to its caller. */
import { LeaseholdError, durationText, type ModelSpec } from '../../protocol/index.js';
import type { Call } from './call.js';
import { nowUs } from './clock.js';
import type { EngineWatch } from './engine-watch.js';
import type { GenerateEvent, LoadedContext, LoadedModel } from './engine.js';

/** How a call went, before its caller is told. */
export type Outcome =
  | { readonly kind: 'ended'; readonly reason: 'stop' | 'length' | 'loaded' }
  | { readonly kind: 'embedded'; readonly vectors: readonly (readonly number[])[]; readonly promptTokens: number }
  | { readonly kind: 'counted'; readonly tokens: number }
  | { readonly kind: 'failed'; readonly error: LeaseholdError };

/** What bounds a stream once it flows: its reader's silence, and its engine's. */
export interface StreamBounds {
  readonly unreadStreamMs: number;
  readonly watch: Pick<EngineWatch, 'owing'>;
}

/** Runs it to its end or its abort. Never rejects: whatever the engine throws is a typed outcome, and the worker lives on. */
export async function runCall(call: Call, model: LoadedModel, context: LoadedContext | null, bounds: StreamBounds): Promise<Outcome> {
  try {
    const outcome = await run(call, model, context, bounds);
    call.generatedAtUs = nowUs();
    return outcome;
  } catch (error) {
    call.generatedAtUs = nowUs();
    return { kind: 'failed', error: LeaseholdError.from(error, 'generation_failed', { model: call.spec.key }) };
  }
}

async function run(call: Call, model: LoadedModel, context: LoadedContext | null, bounds: StreamBounds): Promise<Outcome> {
  const { request } = call;
  switch (request.type) {
    case 'load':
      return { kind: 'ended', reason: 'loaded' };
    case 'count_tokens':
      return { kind: 'counted', tokens: await model.countTokens({ messages: request.messages, prompt: request.prompt }) };
    case 'embed': {
      if (model.embed === null) throw new LeaseholdError('embedding_unsupported', { model: call.spec.key });
      const { vectors, promptTokens } = await model.embed(request.inputs, call.signal);
      return { kind: 'embedded', vectors, promptTokens };
    }
    case 'generate': {
      if (context === null) throw new LeaseholdError('input_invalid', { field: 'model', reason: `${call.spec.key} generates no text` });
      const { messages, prompt, sampling } = request;
      return generate(call, context.generate({ messages, prompt, sampling }, call.signal), bounds);
    }
  }
}

async function generate(call: Call, events: AsyncIterable<GenerateEvent>, { unreadStreamMs, watch }: StreamBounds): Promise<Outcome> {
  let outcome: Outcome | null = null;
  let came: () => void = () => undefined;
  try {
    for await (const event of events) {
      came();
      if (call.signal.aborted) break;
      if (event.type === 'end') {
        const { promptTokens, cachedTokens, completionTokens, thoughtTokens } = event;
        Object.assign(call.usage, { promptTokens, cachedTokens, completionTokens, thoughtTokens });
        outcome = { kind: 'ended', reason: event.reason };
        break;
      }
      takeEvent(call, event);
      while (call.outbox.full) await readerMoves(call, unreadStreamMs);
      // Up to its first token the call has its deadline.
      if (call.firstTokenAtUs !== null) came = watch.owing((limitMs) => { call.leave(silent(call, limitMs)); });
    }
  } finally {
    came();
  }
  call.signal.throwIfAborted();
  if (outcome === null) throw new LeaseholdError('generation_failed', { model: call.spec.key, reason: 'the engine stopped without an end' });
  return outcome;
}

function silent(call: Call, limitMs: number): LeaseholdError {
  return new LeaseholdError('generation_failed', { model: call.spec.key, reason: `its engine gave no further token for ${durationText(limitMs)} (limits.silentStreamMs)` });
}

function takeEvent(call: Call, event: Exclude<GenerateEvent, { type: 'end' }>): void {
  if (event.type === 'prefill') {
    call.usage.promptTokens = event.totalTokens;
    call.stage('prefill', event.totalTokens > 0 ? event.doneTokens / event.totalTokens : null, 'reading the prompt');
    return;
  }
  if (call.firstTokenAtUs === null) call.stage('generating', null, 'generating');
  call.firstToken();
  call.usage.completionTokens += event.ids.length;
  if (event.thought) call.usage.thoughtTokens += event.ids.length;
  call.outbox.push({ type: 'token', id: call.request.id, ids: event.ids, text: event.text, thought: event.thought });
}

/** Waits until the reader has taken something; one that takes nothing for too long loses this call, and no other. */
async function readerMoves(call: Call, unreadStreamMs: number): Promise<void> {
  const timer = setTimeout(() => {
    call.leave(new LeaseholdError('stream_unread', { model: call.spec.key, limitMs: unreadStreamMs }));
  }, unreadStreamMs);
  await call.outbox.changed();
  clearTimeout(timer);
}

/** Tells the caller, after everything generated before has left. */
export async function deliver(call: Call, outcome: Outcome, unreadStreamMs: number): Promise<void> {
  if (!call.signal.aborted && outcome.kind === 'ended') {
    while (!call.outbox.empty) await readerMoves(call, unreadStreamMs);
  }
  if (call.signal.aborted) {
    call.finishLeft();
    return;
  }
  switch (outcome.kind) {
    case 'ended':
      call.end(outcome.reason);
      return;
    case 'embedded':
      call.finish({ type: 'embedding', id: call.request.id, vectors: outcome.vectors, promptTokens: outcome.promptTokens });
      return;
    case 'counted':
      call.finish({ type: 'token_count', id: call.request.id, tokens: outcome.tokens });
      return;
    case 'failed':
      call.fail(outcome.error);
      return;
  }
}

/** Checks what the schema cannot say: exactly one of messages and prompt. */
export function checkRequest(call: Call): LeaseholdError | null {
  const { request } = call;
  if ((request.type === 'generate' || request.type === 'count_tokens') && (request.messages === null) === (request.prompt === null)) {
    return new LeaseholdError('input_invalid', { field: 'messages', reason: 'give either messages or a prompt' });
  }
  return checkEmbedding(request.type, call.spec);
}

function checkEmbedding(type: Call['request']['type'], spec: ModelSpec): LeaseholdError | null {
  return type === 'generate' && spec.embedding
    ? new LeaseholdError('input_invalid', { field: 'model', reason: `${spec.key} makes embeddings, no text` })
    : null;
}
