/** A worker that does not keep to the wire, as its caller meets it: every call ends typed, in bounded time, with bounded memory. */
import t, { type Test } from 'tap';
import { defaultLimits, type DataMessage } from '../../protocol/index.js';
import { memoryPair, openChannel, type Channel } from '../../protocol/node/index.js';
import { openCaller, type WorkerCaller } from '../../src/client/index.js';
import { ask, begun, codeOf, model, read, readOn, turns } from '../workers/in-process.js';

type Asked = Extract<DataMessage, { readonly type: 'generate' | 'embed' }>;

const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 1, thoughtTokens: 0 };
const timings = { queuedMs: 0, loadMs: 0, prefillMs: 0, generateMs: 0 };
const limits = { ...defaultLimits, silentStreamMs: 60, stopTimeoutMs: 60 };

/** A caller of a worker that opens as it should and then does as `answer` says. */
async function liar(t: Test, answer: (asked: Asked, channel: Channel<'data'>) => void, generation = 'b-w1'): Promise<{ readonly caller: Promise<WorkerCaller>; readonly heard: DataMessage[] }> {
  const [theirs, ours] = memoryPair('data');
  const heard: DataMessage[] = [];
  const channel = openChannel(theirs, {
    plane: 'data', side: 'worker', limits: defaultLimits,
    handlers: {
      onMessage: (message) => {
        heard.push(message);
        if (message.type === 'open') channel.send({ type: 'opened', id: message.id, generation, frameBytesMax: defaultLimits.frameBytesMax });
        else if (message.type === 'generate' || message.type === 'embed') answer(message, channel);
      },
      onClose: () => undefined,
    },
  });
  t.teardown(() => { channel.destroy(); });
  return { caller: openCaller({ stream: ours, ticket: 'a ticket', caller: 'b-s1', generation: 'b-w1', limits }), heard };
}

const token = ({ id }: Asked, text: string, ids: readonly number[] = [1]): DataMessage => ({ type: 'token', id, ids, text, thought: false });

/** What a call fails with. */
async function failure(work: Promise<unknown>): Promise<unknown> {
  return work.then(() => null, (error: unknown) => error);
}

t.test('a worker that never says a word loses the call when its deadline and its time to stop are over', async (t) => {
  const { caller, heard } = await liar(t, () => undefined);
  t.match(await failure(read((await caller).generate(ask(model(), 'x', { deadlineMs: 30 })))), {
    code: 'deadline_passed', message: /generate with m .*30 ms: its worker gave no answer/, details: { tokensReceived: '0' },
  });
  await turns();
  t.match(heard.at(-1), { type: 'cancel', target: 2 });
});

t.test('stages without end move no deadline, and one that lags is told the newest alone', async (t) => {
  let flooding: NodeJS.Timeout | null = null;
  t.teardown(() => { if (flooding !== null) clearInterval(flooding); });
  const { caller } = await liar(t, ({ id }, channel) => {
    flooding = setInterval(() => {
      for (let step = 1; step <= 50; step++) channel.send({ type: 'stage', id, stage: 'loading', progress: step / 100, text: `step ${String(step)}`, explain: null });
      for (let each = 0; each < 200; each++) channel.send({ type: 'stage', id, stage: each % 2 === 0 ? 'waiting' : 'loading', progress: null, text: each === 199 ? 'last' : 'other', explain: null });
    }, 5);
  });
  const stages: string[] = [];
  // A breath of 250: the last of the fifty, and of the others at most 64 with the very last.
  const error = await failure((async () => {
    for await (const event of (await caller).generate(ask(model(), 'x', { deadlineMs: 40 }))) if (event.type === 'stage') stages.push(event.text);
  })());
  t.match(error, { code: 'deadline_passed' });
  const breaths = stages.filter((text) => text === 'last').length;
  t.ok(breaths > 0);
  t.equal(stages.filter((text) => text.startsWith('step')).length, stages.filter((text) => text === 'step 50').length);
  t.ok(stages.length <= breaths * 64, `${String(stages.length)} of ${String(breaths * 250)}`);
});

t.test('a worker that stops in the middle of a stream loses the call; while its reader takes nothing it is not waited for', async (t) => {
  const { caller } = await liar(t, (asked, channel) => { channel.send(token(asked, 'a', Array.from({ length: 256 }, () => 1))); });
  const unread = await begun((await caller).generate(ask(model())));
  // The first read gave credits for all that had come: from here on a token is owed.
  t.match(await failure(readOn(unread)), { code: 'generation_failed', message: /its worker sent no further token for 120 ms/, details: { tokensReceived: '256' } });

  let first: Asked | null = null;
  const { caller: other } = await liar(t, (asked, channel) => {
    first = asked;
    for (let each = 0; each < 256; each++) channel.send(token(asked, 'b'));
  });
  const held = await begun((await other).generate(ask(model())));
  const waitedUntilMs = performance.now() + 4 * (limits.silentStreamMs + limits.stopTimeoutMs);
  while (performance.now() < waitedUntilMs) await new Promise((resolve) => setTimeout(resolve, 10));
  let tokens = 1;
  for (; tokens < 128; tokens++) t.match(await held.next(), { value: { type: 'token' } });
  t.not(first, null);
  await held.return?.();
});

t.test('tokens without credits, or more than were asked for, end the connection', async (t) => {
  const unasked = await liar(t, (asked, channel) => { for (let each = 0; each < 1_000; each++) channel.send(token(asked, 'flood')); });
  const one = await unasked.caller;
  const unread = await begun(one.generate(ask(model())));
  await turns();
  t.match(await failure(readOn(unread)), { code: 'message_unexpected', message: /without credits/, details: { tokensReceived: '256' } });
  t.match(await one.closed, { code: 'message_unexpected' });

  const more = await liar(t, (asked, channel) => { channel.send(token(asked, 'x', Array.from({ length: 300 }, () => 1))); });
  const error = await failure(read((await more.caller).generate(ask(model(), 'x', { sampling: { maxTokens: 8, temperature: 0 } }))));
  t.match(error, { code: 'message_unexpected', message: /more than maxTokens, 8/ });
});

t.test('an honest stream of exactly what it has credits for is read to its end', async (t) => {
  const { caller } = await liar(t, (asked, channel) => {
    for (let each = 0; each < 256; each++) channel.send(token(asked, 'y'));
    channel.send({ type: 'end', id: asked.id, reason: 'length', usage, timings, explain: null });
  });
  const { text, end } = await read((await caller).generate(ask(model(), 'x', { sampling: { maxTokens: 256, temperature: 0 } })));
  t.equal(text, 'y'.repeat(256));
  t.match(end, { reason: 'length' });
});

t.test('vectors that are not one for each input are no answer', async (t) => {
  const { caller } = await liar(t, ({ id }, channel) => { channel.send({ type: 'embedding', id, vectors: [[0.5]], promptTokens: 2 }); });
  const one = await caller;
  t.match(await failure(one.embed(model({}, { embedding: true }), ['a', 'b'])), { code: 'message_invalid', message: /one for each of 2 inputs, not 1/ });
  t.strictSame(await one.embed(model({}, { embedding: true }), ['a']), { vectors: [[0.5]], promptTokens: 2 });
});

t.test('another worker than the one that was placed is not called', async (t) => {
  const { caller } = await liar(t, () => undefined, 'b-w9');
  t.equal(await codeOf(caller), 'generation_stale');
});
