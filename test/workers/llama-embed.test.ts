// Embeddings by the llama engine: whole or piece by piece, in turns, and stopped. Always one thread.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getLlama } from 'node-llama-cpp';
import t from 'tap';
import { createLlamaEngine } from '../../workers/llama/engine.js';
import type { GgufValue } from '../../workers/llama/gguf-writer.js';
import { randomModel, smallShape, writeModel } from '../fixtures/gguf-models.js';
import { cardId, CountingCard, engineContext, never, specOf } from '../fixtures/llama-engine.js';

const folder = await mkdtemp(join(tmpdir(), 'leasehold-embed-'));
const card = new CountingCard();
const engine = createLlamaEngine({ vetModels: false });
await engine.start(engineContext(card));
const llama = await getLlama({ gpu: false, build: 'never', skipDownload: true, progressLogs: false, maxThreads: 1 });
t.teardown(async () => {
  await engine.close();
  await llama.dispose();
  await rm(folder, { recursive: true, force: true });
});
// What is on the card must be gone after each test.
t.afterEach(() => {
  if (card.usedBytes !== 0) throw new Error(`${String(card.usedBytes)} bytes are still on the card`);
});

const randomPath = await writeModel(join(folder, 'random.gguf'), randomModel());

t.test('an embedding model makes vectors on a context of its own, which is a part of it', async (t) => {
  const spec = specOf(randomPath, { embedding: true, contextTokens: 256 });
  const estimate = await engine.estimate(spec, never);
  const model = await engine.load(spec, cardId, () => undefined, never);
  t.same(model.measuredParts, estimate.parts);
  t.same(estimate.parts.map(({ name }) => name), ['weights', 'embedding']);
  t.equal(estimate.contextBytes(4_096), 0);
  t.equal(card.usedBytes, model.residentBytes());
  const { embed } = model;
  if (embed === null) throw new Error('it makes no embeddings');
  const [first, other] = await Promise.all([embed(['a cat', 'a dog', 'a cat'], never), embed(['a dog'], never)]);
  t.equal(first.promptTokens, 15);
  t.same(first.vectors.map((vector) => vector.length), [128, 128, 128]);
  t.same(first.vectors[0], first.vectors[2]);
  t.same(first.vectors[1], other.vectors[0]);
  t.strictNotSame(first.vectors[0], first.vectors[1]);
  await t.rejects(embed(['fine', 'x'.repeat(256)], never), { code: 'context_too_small' });
  await t.rejects(embed([''], never), { code: 'input_invalid' });
  await t.rejects(embed(['a'], AbortSignal.abort(new Error('left'))), /left/);
  await t.rejects(model.openContext('context:1', 256, never), { code: 'input_invalid' });
  await model.unload();
  await t.rejects(embed(['late'], never), { code: 'closed' });
});

t.test('embeddings of a model that looks back alone are made piece by piece; of others, whole', async (t) => {
  const text = Array.from({ length: 300 }, (_, index) => String.fromCharCode(97 + (index * 7) % 26)).join('');
  const embedding = (pooling: readonly (readonly [string, GgufValue])[]): Promise<string> =>
    writeModel(join(folder, `pooling-${String(pooling.length)}-${JSON.stringify(pooling[0]?.[1].value ?? 0)}.gguf`), randomModel(smallShape, 1, new Map(pooling)));
  const vectorOf = async (source: string, options: Readonly<Record<string, string>> = {}): Promise<readonly number[]> => {
    const model = await engine.load(specOf(source, { embedding: true, contextTokens: 512, options }), cardId, () => undefined, never);
    const made = await model.embed?.([text], never);
    await model.unload();
    return made?.vectors[0] ?? [];
  };
  const none = await embedding([]);
  const last = await embedding([['qwen3.pooling_type', { kind: 'u32', value: 3 }]]);
  const mean = await embedding([['qwen3.pooling_type', { kind: 'u32', value: 1 }]]);
  const ahead = await embedding([['qwen3.pooling_type', { kind: 'u32', value: 1 }], ['qwen3.attention.causal', { kind: 'bool', value: false }]]);
  const wholeLast = await bindingsVector(last, text);
  for (const [name, source, whole] of [['none', none, await bindingsVector(none, text)], ['last', last, wholeLast]] as const) {
    for (const options of [{}, { prefillTokens: '7' }, { prefillTokens: '512' }]) t.ok(likeness(await vectorOf(source, options), whole) > 0.9999, `${name} in pieces: ${JSON.stringify(options)}`);
  }
  for (const [name, source] of [['mean', mean], ['looking ahead', ahead]] as const) {
    t.same(await vectorOf(source, { prefillTokens: '7' }), await bindingsVector(source, text), `${name}: whole, to the bit`);
    t.ok(likeness(await vectorOf(source), wholeLast) < 0.99, 'and it is another vector');
  }
  const bytesOf = async (source: string): Promise<number> => (await engine.estimate(specOf(source, { embedding: true, contextTokens: 2_048 }), never)).parts[1]?.bytes ?? 0;
  t.ok(await bytesOf(last) < await bytesOf(mean) / 2, 'and pieces need less of the card');
});

/** What the bindings make of a text by themselves, in one evaluation. */
async function bindingsVector(modelPath: string, text: string): Promise<readonly number[]> {
  const model = await llama.loadModel({ modelPath, gpuLayers: 0, defaultContextFlashAttention: true });
  const context = await model.createEmbeddingContext({ contextSize: 512, batchSize: 512, threads: 1 });
  const { vector } = await context.getEmbeddingFor(text);
  await model.dispose();
  return vector;
}

/** The cosine of the angle between two vectors. */
function likeness(one: readonly number[], other: readonly number[]): number {
  const product = (a: readonly number[], b: readonly number[]): number => a.reduce((sum, value, index) => sum + value * (b[index] ?? NaN), 0);
  return product(one, other) / Math.sqrt(product(one, one) * product(other, other));
}

t.test('an embedding that is not wanted any more rejects at once, waiting or running, and the next one is right', async (t) => {
  const big = await writeModel(join(folder, 'slow-embedding.gguf'), randomModel({ ...smallShape, layers: 12 }, 3));
  const long = 'x y z '.repeat(300);
  for (const [kind, pooling] of [['in pieces', 3], ['whole', 1]] as const) {
    const source = kind === 'whole' ? await writeModel(join(folder, 'slow-mean.gguf'), randomModel({ ...smallShape, layers: 12 }, 3, new Map([['qwen3.pooling_type', { kind: 'u32', value: pooling }]]))) : big;
    const model = await engine.load(specOf(source, { embedding: true, contextTokens: 2_048 }), cardId, () => undefined, never);
    const { embed } = model;
    if (embed === null) throw new Error('it makes no embeddings');
    const [fresh] = (await embed(['a cat'], never)).vectors;
    const [running, waiting] = [new AbortController(), new AbortController()];
    const first = t.rejects(embed([long, long], running.signal), /enough/);
    const second = t.rejects(embed(['never begun'], waiting.signal), /left/);
    const third = embed(['a cat'], never);
    // The first is being evaluated, the others wait for their turn.
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
    const abortedMs = performance.now();
    waiting.abort(new Error('left'));
    await second;
    running.abort(new Error('enough'));
    await first;
    t.ok(performance.now() - abortedMs < 200, kind);
    t.same((await third).vectors[0], fresh, `${kind}: what comes after it is as on a fresh context`);
    const closing = embed([long], never);
    const unloading = model.unload();
    t.equal((await closing).vectors.length, 1, 'an unload waits for what runs');
    await unloading;
  }
});
