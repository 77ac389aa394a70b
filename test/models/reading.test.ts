// Headers read in threads: within time and memory, and never at the expense of the loop that asked.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { readSafetensorsIndex } from '../../src/models/formats/safetensors-index.js';
import { bytesSource, withFile, type ByteSource } from '../../src/models/formats/source.js';
import { createReading } from '../../src/models/reading/reading.js';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomModel, writeModel } from '../fixtures/gguf-models.js';
import { safetensorsBytes } from '../fixtures/safetensors.js';

const reading = createReading({ threads: 1 });
t.teardown(() => reading.close());
const folder = mkdtempSync(join(tmpdir(), 'leasehold-reading-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const source = (text: string): ByteSource => bytesSource('f', Buffer.from(text));

/** 1,000 files, 300 tensors each. */
function largeIndex(): Uint8Array {
  const entries: string[] = [];
  for (let shard = 0; shard < 1_000; shard++) {
    for (let tensor = 0; tensor < 300; tensor++) entries.push(`"model.layers.${shard}.mlp.experts.${tensor}.down_proj.weight":"model-${String(shard + 1).padStart(5, '0')}-of-01000.safetensors"`);
  }
  return Buffer.from(`{"metadata":{"total_size":1},"weight_map":{${entries.join(',')}}}`);
}

t.test('an index of 1,000 files and 300,000 tensors is read while the loop goes on', async (t) => {
  const bytes = largeIndex();
  await reading.configJson(source('{}'));
  const delay = monitorEventLoopDelay({ resolution: 2 });
  const before = process.memoryUsage().rss;
  delay.enable();
  const startedMs = performance.now();
  const index = await reading.safetensorsIndex(bytesSource('index', bytes));
  const tookMs = performance.now() - startedMs;
  delay.disable();
  const grownMiB = (process.memoryUsage().rss - before) / 1024 / 1024;
  t.same([index.shards.length, index.tensors], [1_000, 300_000]);
  t.comment(`${(bytes.length / 1e6).toFixed(1)} MB in ${tookMs.toFixed(0)} ms; loop delay p50 ${(delay.percentile(50) / 1e6).toFixed(1)} ms, most ${(delay.max / 1e6).toFixed(1)} ms; ${grownMiB.toFixed(0)} MiB more`);
  // Whatever else the machine does: the best of three.
  const tookMsOf = async (): Promise<number> => {
    const againMs = performance.now();
    await reading.safetensorsIndex(bytesSource('index', bytes));
    return performance.now() - againMs;
  };
  const bestMs = tookMs < 2_000 ? tookMs : Math.min(await tookMsOf(), await tookMsOf());
  t.ok(bestMs < 2_000, `${bestMs.toFixed(0)} ms`);
  t.ok(grownMiB < 300);
  const peakMiB = process.resourceUsage().maxRSS / 1024 - before / 1024 / 1024;
  t.ok(peakMiB < 300, `at no moment, either: ${peakMiB.toFixed(0)} MiB`);
  t.ok(delay.percentile(50) < 20e6 && delay.mean < 20e6, 'the loop turns all the while');
  const directMs = performance.now();
  readSafetensorsIndex(bytes, 'index');
  const blockedMs = performance.now() - directMs;
  t.ok(delay.max / 1e6 < Math.max(20, blockedMs / 2), `never for as long as it would if it read that itself: ${(delay.max / 1e6).toFixed(1)} ms, ${blockedMs.toFixed(0)} ms`);
});

t.test('all formats come back as they were read', async (t) => {
  const path = await writeModel(join(folder, 'm.gguf'), randomModel());
  const header = await withFile(path, (file) => reading.ggufHeader(file));
  t.equal(header.scalars.get('general.architecture'), 'qwen3');
  t.equal(header.arrays.get('tokenizer.ggml.tokens')?.length, 261);
  t.equal((await reading.safetensorsHeader(bytesSource('s', safetensorsBytes({ a: { dtype: 'BF16', shape: [2], data_offsets: [0, 4] } })))).tensorBytes, 4);
  t.same(await reading.configJson(source('{"a": NaN}')), { a: null });
});

t.test('what is at fault is told apart', async (t) => {
  await t.rejects(reading.configJson(source('[')), { code: 'model_invalid', message: /f cannot be used: its JSON is broken/ });
  await t.rejects(reading.safetensorsIndex({ ...source('{}'), sizeBytes: 1e12 }), { code: 'model_invalid', message: /1000000000000 bytes/ });
  const gone = new LeaseholdError('connection_lost', { peer: 'the hub', reason: 'reset' });
  await t.rejects(reading.configJson({ ...source('{}'), read: () => Promise.reject(gone) }), gone, 'the error of the source itself');
  const stop = new AbortController();
  const never: ByteSource = { ...source('{}'), read: () => new Promise(() => stop.abort(new Error('not wanted'))) };
  await t.rejects(reading.configJson(never, stop.signal), /not wanted/);
  await t.rejects(reading.configJson(source('{}'), stop.signal), /not wanted/);
  t.same(await reading.configJson(source('{"still": "here"}')), { still: 'here' });
});

t.test('a file that takes too long or too much memory ends its thread alone', async (t) => {
  const quick = createReading({ threads: 1, timeoutMs: 200 });
  t.teardown(() => quick.close());
  await t.rejects(quick.configJson({ ...source('{}'), read: () => new Promise(() => undefined) }), { code: 'model_invalid', message: /within 200 ms/ });
  const small = createReading({ threads: 1, timeoutMs: 20_000, memoryBytesMax: 12 * 1024 * 1024 });
  t.teardown(() => small.close());
  await t.rejects(small.safetensorsIndex(bytesSource('index', largeIndex())), { code: 'model_invalid', message: /within .*(12582912 bytes of memory|20000 ms)/ });
  // Where it has no core to itself it may still be looking for memory when its time is over.
  t.same(await reading.configJson(source('{"next": 1}')), { next: 1 });
});
