// Any bytes: a value or `model_invalid`, in under 100 ms of work and 50 MiB, while the loop that asked goes on.
import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { findCodeNames } from '../../src/models/formats/code-names.js';
import { readConfigJson } from '../../src/models/formats/config-json.js';
import { readGgufHeader } from '../../src/models/formats/gguf-header.js';
import { readSafetensorsHeader, readSafetensorsNames } from '../../src/models/formats/safetensors-header.js';
import { readIndexNames, readSafetensorsIndex } from '../../src/models/formats/safetensors-index.js';
import { bytesSource, type ByteSource } from '../../src/models/formats/source.js';
import { createReading, type Reading } from '../../src/models/reading/reading.js';
import { encodeHeader } from '../../workers/llama/gguf-writer.js';
import { randomModel } from '../fixtures/gguf-models.js';
import { safetensorsBytes } from '../fixtures/safetensors.js';
import { reasonOf } from './reason-of.js';

type Format = keyof Omit<Reading, 'close'>;

const readers: Readonly<Record<Format, (bytes: Uint8Array) => unknown>> = {
  ggufHeader: (bytes) => readGgufHeader(bytesSource('f', bytes)),
  safetensorsHeader: (bytes) => readSafetensorsHeader(bytesSource('f', bytes)),
  safetensorsNames: (bytes) => readSafetensorsNames(bytesSource('f', bytes)),
  safetensorsIndex: (bytes) => readSafetensorsIndex(bytes, 'f'),
  indexNames: (bytes) => readIndexNames(bytes, 'f', ['x.safetensors']),
  configJson: (bytes) => readConfigJson(bytes, 'f'),
  codeNames: (bytes) => findCodeNames(bytes, 'f'),
};

/** What this thread has worked, whatever else the machine does; a clock on the wall would measure that. */
function workedMs(): number {
  if (process.platform !== 'linux') return process.cpuUsage().user / 1_000;
  return Number(readFileSync('/proc/thread-self/schedstat', 'latin1').split(' ')[0]) / 1e6;
}

const number = (bytes: number) => (value: number): Buffer => {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUInt32LE(value);
  return buffer;
};
const [u32, u64] = [number(4), number(8)];
const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
const gguf = (tensors: number, keys: number, items: readonly Buffer[], dataBytes = 0): Buffer => Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors), u64(keys), ...items, Buffer.alloc(dataBytes)]);
const safetensors = (json: string, dataBytes = 0): Buffer => Buffer.concat([u64(json.length), Buffer.from(json), Buffer.alloc(dataBytes)]);
const times = <T>(count: number, item: (index: number) => T): T[] => Array.from({ length: count }, (_, index) => item(index));
const name = (index: number): string => index.toString(36);
const tensor = (index: number, shape: string, offsets: string): string => `"${name(index)}":{"dtype":"U8","shape":[${shape}],"data_offsets":[${offsets}]}`;
const map = (entries: readonly string[]): string => `{${entries.join(',')}}`;

/** A megabyte each of what costs a reader most for its bytes. */
const expensive: readonly (readonly [what: string, Format, Buffer])[] = [
  ['as many keys as are read', 'ggufHeader', gguf(0, 16_384, times(16_384, (index) => Buffer.concat([text(name(index).padEnd(50)), u32(0), Buffer.alloc(1)])))],
  ['more keys than are read', 'ggufHeader', gguf(0, 60_000, times(60_000, (index) => Buffer.concat([text(name(index)), u32(0), Buffer.alloc(1)])))],
  ['short texts', 'ggufHeader', gguf(0, 1, [text('tokenizer.ggml.tokens'), u32(9), u32(8), u64(100_000), ...times(100_000, (index) => text(name(index).padEnd(3).slice(0, 3)))])],
  ['empty texts', 'ggufHeader', gguf(0, 1, [text('x'), u32(9), u32(8), u64(130_000), Buffer.alloc(130_000 * 8)])],
  ['arrays that are kept', 'ggufHeader', gguf(0, 1_000, times(1_000, (index) => Buffer.concat([text(name(index)), u32(9), u32(0), u64(1_024), Buffer.alloc(1_024)])))],
  ['tensors', 'ggufHeader', gguf(30_000, 0, times(30_000, (index) => Buffer.concat([text(name(index)), u32(0), u32(0), u64(index * 4)])), 120_064)],
  ['tensors of four dimensions', 'ggufHeader', gguf(17_000, 0, times(17_000, (index) => Buffer.concat([text(name(index)), u32(4), ...times(4, () => u64(1)), u32(0), u64(index * 4)])), 68_064)],
  ['empty tensors', 'safetensorsHeader', safetensors(map(times(20_000, (index) => tensor(index, '0', '0,0'))))],
  ['tensors back to front', 'safetensorsHeader', safetensors(map(times(18_000, (index) => tensor(index, '1', `${String(17_999 - index)},${String(18_000 - index)}`))), 18_000)],
  ['an overlap at the end', 'safetensorsHeader', safetensors(map(times(18_000, (index) => tensor(index, '1', `${String(Math.max(0, 17_998 - index))},${String(Math.max(1, 17_999 - index))}`))), 18_000)],
  ['long shapes', 'safetensorsHeader', safetensors(map(times(5_200, (index) => tensor(index, Array(64).fill(1).join(), `${String(index)},${String(index + 1)}`))), 5_200)],
  ['long names', 'safetensorsHeader', safetensors(map(times(900, (index) => tensor(0, '0', '0,0').replace('"0"', `"${`${String(index)}.`.padEnd(1_020, '1.')}"`))))],
  ['metadata', 'safetensorsHeader', safetensors(`{"__metadata__":${map(times(80_000, (index) => `"${name(index)}":""`))}}`)],
  ['fields that nobody asked for', 'safetensorsHeader', safetensors(`{"a":{"x":[${Array(500_000).fill(0).join()}]}}`)],
  ['tensors', 'safetensorsIndex', Buffer.from(`{"weight_map":${map(times(38_000, (index) => `"${name(index)}":"a.safetensors"`))}}`)],
  ['files', 'safetensorsIndex', Buffer.from(`{"weight_map":${map(times(9_999, (index) => `"${name(index)}":"${'a/'.repeat(15)}${String(index)}.safetensors"`))}}`)],
  ['escapes', 'safetensorsIndex', Buffer.from(`{"weight_map":${map(times(30_000, (index) => `"\\u00e9${name(index)}":"a.safetensors"`))}}`)],
  ['as many keys as are kept', 'configJson', Buffer.from(map(times(32_768, (index) => `"${name(index).padEnd(24)}":0`)))],
  ['keys', 'configJson', Buffer.from(map(times(99_000, (index) => `"${name(index)}":0`)))],
  ['keys that are numbers', 'configJson', Buffer.from(map(times(90_000, (index) => `"${String(index * 40_000)}":0`)))],
  ['objects', 'configJson', Buffer.from(`{"a":[${Array(340_000).fill('{}').join()}]}`)],
  ['numbers', 'configJson', Buffer.from(`{"a":[${Array(99_000).fill('1.5').join()}]}`)],
  ['keys', 'codeNames', Buffer.from(map(times(110_000, (index) => `"${name(index)}":0`)))],
  ['objects', 'codeNames', Buffer.from(`{"a":[${Array(340_000).fill('{}').join()}]}`)],
  ['a text', 'configJson', Buffer.from(`{"a":"${'\\n'.repeat(500_000)}"}`)],
  ['brackets', 'configJson', Buffer.from('['.repeat(1_048_576))],
  ['space', 'configJson', Buffer.alloc(1_048_576, 32)],
];

const workMsMax = 100;
/** Of a thread's heap: what is asked for here, and 32 MiB for what is young. */
const oldHeapBytes = 18 * 1024 * 1024;

t.test('a megabyte that was made to be expensive is read, or refused, within its bounds', async (t) => {
  const reading = createReading({ threads: 1, memoryBytesMax: oldHeapBytes });
  t.teardown(() => reading.close());
  for (const [what, format, bytes] of expensive) {
    const beforeMs = workedMs();
    const reason = await reasonOf(() => readers[format](bytes));
    const tookMs = workedMs() - beforeMs;
    t.ok(tookMs < workMsMax, `${format} of ${what}: ${tookMs.toFixed(1)} ms of work${reason === null ? '' : ` until: ${reason.slice(0, 80)}`}`);
    let turns = 0;
    const turned = (): NodeJS.Immediate => setImmediate(() => {
      turns++;
      next = turned();
    });
    let next = turned();
    const inThread = await reasonOf(() => (reading[format] as (source: ByteSource) => Promise<unknown>)(bytesSource('f', bytes)));
    clearImmediate(next);
    t.equal(inThread, reason, 'a thread of 50 MiB is enough for it');
    t.ok(turns > 0, 'the loop goes on meanwhile');
  }
});

t.test('fuzz: any bytes give a value or model_invalid', async (t) => {
  const header = safetensorsBytes({ a: { dtype: 'F32', shape: [4], data_offsets: [0, 16] }, b: { dtype: 'F32', shape: [4], data_offsets: [16, 32] }, __metadata__: { format: 'pt' } });
  const index = Buffer.from(JSON.stringify({ metadata: { total_size: 5 }, weight_map: { a: 'x.safetensors', b: 'y.safetensors' } }));
  const good: Readonly<Record<Format, Uint8Array>> = {
    ggufHeader: encodeHeader(randomModel()),
    safetensorsHeader: header,
    safetensorsNames: header,
    safetensorsIndex: index,
    indexNames: index,
    codeNames: Buffer.from(JSON.stringify({ a: [1, { auto_map: null }], auto_map: { AutoModel: 'x.Y' } })),
    configJson: Buffer.from(JSON.stringify({ a: [1, -2.5e3, null, true, { b: 'ü' }], text_config: {} })),
  };
  for (const [format, read] of Object.entries(readers) as readonly (readonly [Format, (bytes: Uint8Array) => unknown])[]) {
    const whole = good[format];
    const edits = fc.array(fc.tuple(fc.nat(whole.length - 1), fc.nat(255)), { maxLength: 6 });
    const damaged = fc.tuple(edits, fc.nat(whole.length)).map(([changes, cut]) => {
      const bytes = Uint8Array.from(whole);
      for (const [at, byte] of changes) bytes[at] = byte;
      return changes.length % 2 === 0 ? bytes : bytes.subarray(0, cut);
    });
    const prefixed = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.concat([whole.subarray(0, 24), bytes]));
    let mostMs = 0;
    await fc.assert(fc.asyncProperty(fc.oneof(damaged, prefixed, fc.uint8Array({ maxLength: 400 })), async (bytes) => {
      const beforeMs = workedMs();
      await reasonOf(() => read(bytes));
      mostMs = Math.max(mostMs, workedMs() - beforeMs);
    }), { numRuns: 1_000, seed: 20_261_130 });
    t.ok(mostMs < workMsMax, `${format}: at most ${mostMs.toFixed(1)} ms of work for one of a thousand`);
  }
});
