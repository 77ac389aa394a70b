// The llama engine on real inference: small models written here, and the tiny ones that are shipped. Always one thread.
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { createLlamaEngine } from '../../workers/llama/engine.js';
import type { GgufValue } from '../../workers/llama/gguf-writer.js';
import { tinyModels, tinyModelsFolder, type TinyModelName } from '../../workers/models/index.js';
import type { GenerateEvent, LoadedContext, LoadedModel } from '../../workers/runtime/engine.js';
import { chain, endOfTextId, firstPieceId, imEndId, randomModel, scriptedModel, smallShape, thinkEndId, thinkId, writeModel } from '../fixtures/gguf-models.js';
import { cardId, chatCall, collect, CountingCard, engineContext, never, promptCall, specOf, type ContextNotes } from '../fixtures/llama-engine.js';

const folder = await mkdtemp(join(tmpdir(), 'leasehold-llama-'));
const card = new CountingCard();
const notes: ContextNotes = { lines: [], floors: [] };
const engine = createLlamaEngine({ vetModels: false });
await engine.start(engineContext(card, notes));
t.teardown(async () => {
  await engine.close();
  await rm(folder, { recursive: true, force: true });
});
// What is on the card must be gone after each test.
t.afterEach(() => {
  if (card.usedBytes !== 0) throw new Error(`${String(card.usedBytes)} bytes are still on the card`);
});

const randomPath = await writeModel(join(folder, 'random.gguf'), randomModel());
const lineFeed = 10;
const [hello, wor, ld, bang, plan, more] = [0, 1, 2, 3, 4, 5].map((index) => firstPieceId + index) as [number, number, number, number, number, number];
const pieces = ['Hello', ' wor', 'ld', '!!', 'a plan', ' and more'];
/** A model that says `ids` after the line feed with which its template opens the answer. */
const scripted = (name: string, ids: readonly number[], overrides: ReadonlyMap<string, GgufValue> = new Map()): Promise<string> =>
  writeModel(join(folder, `${name}.gguf`), scriptedModel(pieces, chain(lineFeed, ...ids), overrides));
const helloPath = await scripted('hello', [hello, wor, ld, bang, imEndId]);

/** Loads a model with one context for as long as `use` takes. */
async function withContext<T>(source: string, use: (context: LoadedContext, model: LoadedModel) => Promise<T>, options: Readonly<Record<string, string>> = {}): Promise<T> {
  const model = await engine.load(specOf(source, { options }), cardId, () => undefined, never);
  try {
    return await use(await model.openContext('context:1', 512, never), model);
  } finally {
    await model.unload();
  }
}

t.test('the estimate is what is measured', async (t) => {
  t.match(engine.versions, { 'node-llama-cpp': '3.21.1', 'llama.cpp': /./, 'backend': 'cpu' });
  t.same(engine.floors, [], 'a simulated card states its own floor');
  for (const source of [randomPath, helloPath, tinyModels['tiny-facts'].ggufPath]) {
    const estimate = await engine.estimate(specOf(source), never);
    t.match(estimate, { source: 'estimated', parkable: false, peakBytes: 0 });
    const model = await engine.load(specOf(source), cardId, () => undefined, never);
    t.same(model.measuredParts, estimate.parts, 'weights, to the byte');
    for (const tokens of [200, 512, 1_000, 1_500, 2_048]) {
      const context = await model.openContext(`context:${String(tokens)}`, tokens, never);
      const estimated = estimate.contextBytes(tokens);
      const over = estimated / context.measuredBytes - 1;
      t.ok(over >= 0 && over <= (tokens === 512 ? 0 : 0.05), `${String(tokens)} tokens: ${String(estimated)} of ${String(context.measuredBytes)}`);
      t.ok(context.tokens >= tokens);
      t.equal(model.residentBytes(), card.usedBytes, 'what the model says is what the card has');
      await context.close();
    }
    t.same([model.park, model.resume, model.freePart, model.embed, model.hostBytes()], [null, null, null, null, 0]);
    await model.unload();
  }
});

t.test('a simulated card is asked for what the engine took, and its refusal takes everything back', async (t) => {
  const estimate = await engine.estimate(specOf(randomPath), never);
  const weightsBytes = estimate.parts[0]?.bytes ?? 0;
  t.teardown(() => { card.totalBytes = 256 * 1024 * 1024; });
  card.totalBytes = weightsBytes - 1;
  const details = { device: cardId, wantedBytes: String(weightsBytes), freeBytes: String(weightsBytes - 1) };
  await t.rejects(engine.load(specOf(randomPath), cardId, () => undefined, never), { code: 'out_of_memory', details });
  t.equal(card.usedBytes, 0);

  card.totalBytes = weightsBytes + estimate.contextBytes(512);
  const model = await engine.load(specOf(randomPath), cardId, () => undefined, never);
  const first = await model.openContext('context:1', 512, never);
  await t.rejects(model.openContext('context:2', 512, never), { code: 'out_of_memory', details: { freeBytes: '0' } });
  t.equal(model.residentBytes(), card.totalBytes, 'the first is still there');
  t.equal((await collect(first, promptCall('still here', { maxTokens: 4 }))).ids.length, 4, 'and works');
  await first.close();
  t.equal(card.usedBytes, weightsBytes, 'a context can be given back alone');
  await (await model.openContext('context:2', 512, never)).close();
  await Promise.all([model.unload(), model.unload()]);
  t.equal(card.usedBytes, 0);
  await t.rejects(model.openContext('context:3', 512, never), { code: 'closed' });
});

t.test('B194: a load that is aborted at any point leaves nothing, and the next one works', async (t) => {
  const big = await writeModel(join(folder, 'big.gguf'), randomModel({ ...smallShape, layers: 40 }, 3));
  const fractions: (number | null)[] = [];
  const whole = await engine.load(specOf(big), cardId, (fraction) => fractions.push(fraction), never);
  await whole.unload();
  t.same(fractions, [...fractions].sort((one, other) => (one ?? 0) - (other ?? 0)), 'progress never falls');
  t.equal(fractions.at(-1), 1);
  let aborted = 0;
  for (let point = 0; point < 10; point++) {
    const stop = new AbortController();
    const reason = new Error(`stop at ${String(point)}`);
    const load = engine.load(specOf(big), cardId, (fraction) => { if ((fraction ?? 0) >= point / 10) stop.abort(reason); }, stop.signal);
    if (point === 0) stop.abort(reason);
    // Either it was aborted and gave back what it had, or it was ready first and is unloaded now.
    const model = await load.catch((error: unknown) => { t.equal(error, reason); return null; });
    if (model === null) aborted++;
    else await model.unload();
    t.equal(card.usedBytes, 0);
  }
  t.ok(aborted > 0, `${String(aborted)} of 10 were aborted`);
  await withContext(big, async (context) => t.equal((await collect(context, promptCall('again', { maxTokens: 3 }))).ids.length, 3));
});

t.test('text, ids and usage of a generation', async (t) => {
  await withContext(helloPath, async (context, model) => {
    const said = await collect(context, chatCall('Hi'));
    t.same(said.ids, [hello, wor, ld, bang, imEndId]);
    t.same(said.pieces, ['Hello', ' wor', 'ld', '!!', ''], 'the end is a token without text');
    const promptTokens = await model.countTokens({ messages: [{ role: 'user', content: 'Hi' }], prompt: null });
    t.same(said.end, { type: 'end', reason: 'stop', promptTokens, cachedTokens: 0, completionTokens: 5, thoughtTokens: 0 });
    t.same(said.prefills, [0, promptTokens]);

    const again = await collect(context, chatCall('Hi'));
    t.equal(again.end.cachedTokens, promptTokens - 1, 'what the two prompts share is not evaluated again');
    t.same(again.ids, said.ids);
    const conversation = [{ role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Hello' }, { role: 'user', content: 'Hi' }] as const;
    const third = await collect(context, { messages: conversation, prompt: null, sampling: { maxTokens: 16, temperature: 0 } });
    t.equal(third.end.cachedTokens, promptTokens, 'a conversation goes on from where it was');
    t.equal(third.answer, 'Hello world!!');

    const cut = await collect(context, chatCall('Hi', { maxTokens: 2 }));
    t.match(cut, { answer: 'Hello wor', end: { reason: 'length', completionTokens: 2 } });
    const none = await collect(context, chatCall('Hi', { maxTokens: 0 }));
    t.match(none, { ids: [], end: { reason: 'length', completionTokens: 0, promptTokens } });
  });
});

t.test('stop strings end the answer across tokens, and what was held back comes out when they do not', async (t) => {
  await withContext(helloPath, async (context) => {
    t.match(await collect(context, chatCall('Hi', { stop: ['world'] })), { answer: 'Hello ', end: { reason: 'stop', completionTokens: 3 } });
    t.match(await collect(context, chatCall('Hi', { stop: ['world?', 'd!!?'] })), { answer: 'Hello world!!', end: { reason: 'stop', completionTokens: 5 } });
    t.match(await collect(context, chatCall('Hi', { stop: ['world!'], maxTokens: 3 })), { answer: 'Hello world', end: { reason: 'length' } });
    await t.rejects(collect(context, chatCall('Hi', { stop: [''] })), { code: 'input_invalid' });
  });
});

t.test('a token inside a character adds no text until the character is whole', async (t) => {
  const bytes = [...Buffer.from('é👍', 'utf8')];
  await withContext(await scripted('characters', [...bytes, imEndId]), async (context) => {
    const said = await collect(context, chatCall('Hi'));
    t.same(said.ids, [...bytes, imEndId]);
    t.same(said.pieces, ['', 'é', '', '', '', '👍', '']);
    t.same((await collect(context, chatCall('Hi', { maxTokens: 3 }))).pieces, ['', 'é', '\ufffd'], 'cut short it is what the bytes say');
  });
});

t.test('thought is told by token, whoever opened it', async (t) => {
  t.test('by the model', async (t) => {
    await withContext(await scripted('thinks', [thinkId, plan, more, thinkEndId, hello, imEndId]), async (context) => {
      t.match(await collect(context, chatCall('Hi')), { thought: 'a plan and more', answer: 'Hello', end: { thoughtTokens: 2, completionTokens: 6 } });
      t.match(await collect(context, chatCall('Hi', { maxTokens: 3 })), { thought: 'a plan and more', answer: '', end: { thoughtTokens: 2, reason: 'length' } });
      t.match(await collect(context, chatCall('Hi', { stop: ['plan', 'Hel'] })), { thought: 'a plan and more', answer: '', end: { reason: 'stop', completionTokens: 5 } });
    });
  });
  const chatTemplate = '{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>'
    + '{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}{{ "\\n" }}';
  t.test('by the template, which the switch decides', async (t) => {
    await withContext(await scripted('opened', [plan, thinkEndId, hello, imEndId]), async (context) => {
      t.match(await collect(context, chatCall('Hi')), { thought: 'a plan', answer: 'Hello', end: { thoughtTokens: 1 } });
      t.match(await collect(context, chatCall('Hi', { thinking: true })), { thought: 'a plan', answer: 'Hello' });
      t.match(await collect(context, chatCall('Hi', { thinking: false })), { thought: '', answer: 'a plan</think>Hello', end: { thoughtTokens: 0 } });
      t.match(await collect(context, promptCall('<|im_start|>x<|im_end|><|im_start|><think>\n')), { thought: 'a plan', answer: 'Hello' }, 'in a bare prompt too');
    }, { chatTemplate });
  });
  t.test('never by a user’s message', async (t) => {
    await withContext(helloPath, async (context) => {
      t.match(await collect(context, chatCall('What does <think> mean?')), { thought: '', answer: 'Hello world!!' });
    });
  });
});

t.test('a message cannot speak for the template', async (t) => {
  await withContext(helloPath, async (_, model) => {
    const count = (content: string): Promise<number> => model.countTokens({ messages: [{ role: 'user', content }], prompt: null });
    const plain = await count('ab');
    t.equal(await count('a<|im_end|>b'), plain + '<|im_end|>'.length, 'as plain text it has a token for each of its characters');
    t.equal(await model.countTokens({ messages: null, prompt: 'a<|im_end|>b' }), 3, 'in a bare prompt it is the token');
  });
});

t.test('a prompt that does not fit is refused before anything is evaluated, and a full context ends the answer', async (t) => {
  const loop = await writeModel(join(folder, 'loop.gguf'), scriptedModel(pieces, new Map([[lineFeed, hello], [hello, wor], [wor, hello]])));
  await withContext(loop, async (context) => {
    t.equal(context.tokens, 512);
    await t.rejects(collect(context, promptCall('x'.repeat(512))), { code: 'context_too_small', details: { promptTokens: '512', contextTokens: '512' } });
    await t.rejects(collect(context, promptCall('x'.repeat(5_000_000))), { code: 'context_too_small', details: { promptTokens: /^at least \d+$/ } }, 'one far too long is not even made tokens');
    const last = await collect(context, promptCall(`${'x'.repeat(510)}\n`, { maxTokens: 100 }));
    t.match(last, { ids: [hello], end: { reason: 'length', promptTokens: 511, completionTokens: 1 } });
    const full = await collect(context, promptCall(`${'x'.repeat(499)}\n`, { maxTokens: 100 }));
    t.match(full.end, { reason: 'length', promptTokens: 500, completionTokens: 12, cachedTokens: 499 });
    t.equal(full.ids.length, 12);
    await t.rejects(collect(context, promptCall('')), { code: 'input_invalid', details: { field: 'prompt' } });
    await t.rejects(collect(context, { messages: null, prompt: null, sampling: { maxTokens: 1, temperature: 0 } }), { code: 'input_invalid' });
  });
});

t.test('a run of letters, spaces or signs without end does not end the process, whatever finds its words', async (t) => {
  const shape = { ...smallShape, contextTokens: 131_072 };
  for (const pre of ['tekken', 'gpt-4o', 'deepseek-llm', 'default']) {
    const path = await writeModel(join(folder, `${pre}.gguf`), randomModel(shape, 1, new Map([['tokenizer.ggml.pre', { kind: 'string', value: pre }]])));
    await withContext(path, async (_, model) => {
      for (const [letter, bytes] of [['a', 1], ['1', 1], [' ', 1], ['!', 1], ['\n', 1], ['漢', 3], ['👍', 4]] as const) {
        t.equal(await model.countTokens({ messages: null, prompt: letter.repeat(60_000) }), 60_000 * bytes, `${pre}: ${JSON.stringify(letter)}`);
      }
    });
  }
});

t.test('a seed gives the same text whatever ran before, another one another, and temperature 0 needs none', async (t) => {
  const prompt = 'The quick brown fox jumps over the lazy dog, then it looks for another dog that is less lazy than the first.';
  await withContext(randomPath, async (context) => {
    const ids = async (sampling: Parameters<typeof promptCall>[1]): Promise<readonly number[]> => (await collect(context, promptCall(prompt, { maxTokens: 24, ...sampling }))).ids;
    const warm = { temperature: 1, seed: '9223372036854775807' };
    const first = await ids(warm);
    t.same(await ids(warm), first);
    await ids({ temperature: 0 });
    t.same(await ids(warm), first, 'after another call on the same prompt');
    await collect(context, promptCall('Something else altogether.'));
    t.same(await ids(warm), first, 'after another prompt');
    t.strictNotSame(await ids({ ...warm, seed: '9223372036854775806' }), first);
    t.strictNotSame(await ids({ temperature: 1 }), await ids({ temperature: 1 }), 'without a seed each call has its own');
    const greedy = await ids({ temperature: 0 });
    t.same(await ids({ temperature: 0, topK: 3, topP: 0.1, seed: '5' }), greedy);
    t.same(await ids({ temperature: 5, topK: 1 }), greedy, 'the most likely of one');
    t.strictNotSame(await ids({ temperature: 0, repeatPenalty: 1.8 }), greedy, 'a penalty counts for greedy sampling too');
  });
});

t.test('an abort at any stage stops soon and leaves a context like a fresh one', async (t) => {
  const long = Array.from({ length: 450 }, (_, index) => String.fromCharCode(97 + (index * 7) % 26)).join('');
  const call = promptCall(long, { maxTokens: 24 });
  const fresh = await withContext(randomPath, (context) => collect(context, call));
  const stopWhen = async (context: LoadedContext, when: (event: GenerateEvent) => boolean): Promise<void> => {
    const stop = new AbortController();
    const reason = new Error('enough');
    let abortedMs = NaN;
    await t.rejects(async () => {
      for await (const event of context.generate(call, stop.signal)) {
        if (!when(event)) continue;
        abortedMs = performance.now();
        stop.abort(reason);
      }
    }, reason);
    t.ok(performance.now() - abortedMs < 200);
  };
  await withContext(randomPath, async (context) => {
    await stopWhen(context, (event) => event.type === 'prefill' && event.doneTokens > 64);
    const afterPrefill = await collect(context, call);
    t.same(afterPrefill.ids, fresh.ids);
    t.ok(afterPrefill.end.cachedTokens >= 64, 'what had been evaluated is not lost');
    await collect(context, promptCall('unrelated'));
    let tokens = 0;
    await stopWhen(context, (event) => event.type === 'token' && ++tokens === 5);
    t.same((await collect(context, call)).ids, fresh.ids);
    for await (const event of context.generate(call, never)) if (event.type === 'token') break;
    t.same((await collect(context, call)).ids, fresh.ids, 'after a caller that just left');
    const early = AbortSignal.abort(new Error('before it began'));
    await t.rejects(collect(context, call, early), /before it began/);
    t.same((await collect(context, call)).ids, fresh.ids);
  });
});

t.test('contexts', async (t) => {
  await withContext(randomPath, async (one, model) => {
    const two = await model.openContext('context:2', 512, never);
    const alone = await collect(one, promptCall('side by side', { maxTokens: 20 }));
    const both = await Promise.all([collect(one, promptCall('side by side', { maxTokens: 20 })), collect(two, promptCall('side by side', { maxTokens: 20 }))]);
    t.same(both.map(({ ids }) => ids), [alone.ids, alone.ids], 'run at once');

    const running = one.generate(promptCall('busy'), never)[Symbol.asyncIterator]();
    await running.next();
    await t.rejects(collect(one, promptCall('me too')), { code: 'busy' }, 'one call at a time on each');

    // The unload that follows finds this call suspended in the middle, and two being closed.
    const closing = two.close();
    t.equal(two.close(), closing);
    await closing;
    await t.rejects(collect(two, promptCall('gone')), { code: 'closed' });
    await one.close();
    await t.rejects(running.next(), { code: 'request_cancelled' });
  });
  await withContext(randomPath, async (context) => {
    const evaluating = collect(context, promptCall('x'.repeat(500), { maxTokens: 10 }));
    const refused = t.rejects(evaluating, { code: 'request_cancelled' });
    await context.close();
    await refused;
  });
  t.pass('a context that is closed while it evaluates does not take the process with it');
});

t.test('a context that could not be opened does not hold its model back', async (t) => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const model = await engine.load(specOf(randomPath), cardId, () => undefined, never);
  const stop = new AbortController();
  const opening = t.rejects(model.openContext('context:1', 512, stop.signal), /never mind/);
  setImmediate(() => stop.abort(new Error('never mind')));
  await opening;
  // What the bindings would have disposed by its weak reference is gone now; an unload would wait for it for ever.
  await new Promise(setImmediate);
  collectGarbage();
  await model.unload();
  t.equal(card.usedBytes, 0);
});

t.test('a model without a template takes prompts, and messages where its vocabulary has ChatML', async (t) => {
  const bare = randomModel();
  const without = new Map([...bare.metadata].filter(([key]) => key !== 'tokenizer.chat_template'));
  const chatml = await writeModel(join(folder, 'chatml.gguf'), { ...bare, metadata: without });
  await withContext(chatml, async (_, model) => {
    t.equal(await model.countTokens({ messages: [{ role: 'user', content: 'Hi' }], prompt: null }), 1 + 'user\nHi'.length + 2 + 1 + 'assistant\n'.length);
  });
  const tokens = without.get('tokenizer.ggml.tokens') as Extract<GgufValue, { kind: 'strings' }>;
  const renamed = tokens.value.map((token) => (token === '<|im_start|>' ? '<|other|>' : token));
  const plain = await writeModel(join(folder, 'plain.gguf'), { ...bare, metadata: new Map([...without, ['tokenizer.ggml.tokens', { kind: 'strings', value: renamed }]]) });
  await withContext(plain, async (context) => {
    await t.rejects(collect(context, chatCall('Hi')), { code: 'input_invalid', message: /no chat template/ });
    t.equal((await collect(context, promptCall('Hi', { maxTokens: 2 }))).ids.length, 2);
  });
  await withContext(plain, async (context) => {
    await t.rejects(collect(context, chatCall('Hi')), { code: 'input_invalid', message: /cannot be read/ });
  }, { chatTemplate: '{% if %}' });
  t.not(endOfTextId, imEndId);
});

interface GreedyCase {
  readonly model: TinyModelName;
  readonly question: string;
  readonly thinking: boolean;
  readonly promptIds: readonly number[];
  readonly generatedIds: readonly number[];
}

t.test('the shipped models say, token for token, what Transformers recorded, from messages', async (t) => {
  const cases = (JSON.parse(readFileSync(join(tinyModelsFolder, 'evaluation', 'greedy-ids.json'), 'utf8')) as GreedyCase[]).slice(1);
  const byModel = new Map<TinyModelName, GreedyCase[]>();
  for (const each of cases) byModel.set(each.model, [...byModel.get(each.model) ?? [], each]);
  for (const [name, ofModel] of byModel) {
    await withContext(tinyModels[name].ggufPath, async (context) => {
      for (const { question, thinking, promptIds, generatedIds } of ofModel.slice(0, 3)) {
        const said = await collect(context, chatCall(question, { maxTokens: 256, thinking }));
        t.same(said.ids, generatedIds, `${name}: ${question}`);
        t.equal(said.end.promptTokens, promptIds.length);
        t.notMatch(said.answer, /think>/, 'no tag in the answer');
      }
    });
  }
});

t.test('a closed engine unloads what is there and takes nothing more', async (t) => {
  const other = createLlamaEngine({ vetModels: false });
  await t.rejects(other.estimate(specOf(randomPath), never), { code: 'closed' }, 'nor does one that was not started');
  await other.start(engineContext(card));
  const model = await other.load(specOf(randomPath), cardId, () => undefined, never);
  await model.openContext('context:1', 256, never);
  const loading = other.load(specOf(randomPath, { key: 'second' }), cardId, () => undefined, never);
  const settled = loading.then(() => 'loaded', (error: unknown) => error);
  await other.close();
  t.equal(card.usedBytes, 0);
  t.match(await settled, { code: 'closed' });
  await t.rejects(other.load(specOf(randomPath), cardId, () => undefined, never), { code: 'closed' });
});
