// Readers of model files: any bytes give a value or `model_invalid` with a precise reason, in little time and memory.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { readConfigJson } from '../../src/models/formats/config-json.js';
import { fileNameFault } from '../../src/models/formats/file-name.js';
import { readGgufHeader } from '../../src/models/formats/gguf-header.js';
import { bytesOfElements } from '../../src/models/formats/gguf-types.js';
import { firstReadBytes, readSafetensorsHeader } from '../../src/models/formats/safetensors-header.js';
import { readSafetensorsIndex } from '../../src/models/formats/safetensors-index.js';
import { bytesSource, fileSource, withFile, type ByteSource } from '../../src/models/formats/source.js';
import { mergeGroups } from '../../src/models/formats/tensor-groups.js';
import { safetensorsBytes, type TensorEntry } from '../fixtures/safetensors.js';
import { reasonOf } from './reason-of.js';

const folder = mkdtempSync(join(tmpdir(), 'leasehold-formats-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const safetensors = (entries: Readonly<Record<string, TensorEntry>> | string, dataBytes?: number): ByteSource => bytesSource('m.safetensors', safetensorsBytes(entries, dataBytes));
const f32 = (begin: number, end: number, shape = [(end - begin) / 4]): TensorEntry => ({ dtype: 'F32', shape, data_offsets: [begin, end] });
const json = (value: unknown): Buffer => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));

t.test('a safetensors header', async (t) => {
  t.test('B08: gives bytes from its offsets, never from parameters times a nominal type', async (t) => {
    const header = await readSafetensorsHeader(safetensors({
      'model.layers.0.q_proj.qweight': { dtype: 'I32', shape: [4096, 512], data_offsets: [0, 8_388_608] },
      'model.layers.0.q_proj.scales': { dtype: 'F16', shape: [32, 4096], data_offsets: [8_388_608, 8_650_752] },
      'model.layers.1.q_proj.qweight': { dtype: 'I32', shape: [4096, 512], data_offsets: [8_650_752, 17_039_360] },
    }));
    t.equal(header.tensorBytes, 17_039_360);
    t.equal(header.tensors, 3);
    t.same(header.groups.find(({ pattern }) => pattern === 'model.layers.#.q_proj.qweight'), {
      pattern: 'model.layers.#.q_proj.qweight', dtype: 'I32', dimensions: 2, shape: [4096, 512], tensors: 2, elements: 4_194_304, bytes: 16_777_216, largestBytes: 8_388_608,
    });
    t.equal(mergeGroups([header.groups, header.groups]).reduce((sum, { bytes }) => sum + bytes, 0), 2 * 17_039_360);
  });
  t.test('B158: of any length around the first read parses, by at most one more read', async (t) => {
    for (const headerLength of [-17, -9, -8, -7, -1, 0, 1, 50_000].map((offset) => firstReadBytes + offset)) {
      const entry = JSON.stringify({ a: f32(0, 4) });
      const source = safetensors(entry.padEnd(headerLength, ' '), 4);
      let reads = 0;
      const header = await readSafetensorsHeader({ ...source, read: (offset, length) => (reads++, source.read(offset, length)) });
      t.same([header.tensorBytes, header.headerBytes, reads], [4, headerLength + 8, headerLength + 8 > firstReadBytes ? 2 : 1]);
    }
  });
  t.test('B161: with overlaps, gaps, cut ends, impossible numbers or doubled keys is refused with a precise reason', async (t) => {
    const bad: readonly (readonly [ByteSource, RegExp])[] = [
      [safetensors({ k_proj: f32(0, 16), v_proj: f32(0, 16) }), /tensors k_proj and v_proj overlap/],
      [safetensors({ a: { dtype: 'F32', shape: [1], data_offsets: [8, 4] } }, 8), /tensor a ends at byte 4, before it begins at 8/],
      [safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9007199254740993]}}', 8), /beyond 2\^53/],
      [safetensors({ a: f32(0, 16), b: f32(32, 48) }, 48), /16 bytes before tensor b belong to no tensor/],
      [safetensors({ a: f32(0, 16) }, 20), /the last 4 bytes belong to no tensor/],
      [safetensors({ a: f32(0, 16) }, 12), /cut short: tensor a ends at byte 16 of the data, which has 12/],
      [safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8), /tensor a stands there twice/],
      [safetensors('{"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}}', 4), /tensor a has dtype twice/],
      [safetensors({ a: { dtype: 'F32', shape: [4_294_967_296, 4_294_967_296], data_offsets: [0, 4] } }), /does not have the 4 bytes/],
      [safetensors({ a: { dtype: 'F32', shape: [1000, 1000], data_offsets: [0, 4] } }), /shape \[1000, 1000\] and dtype F32 does not have the 4 bytes/],
      [safetensors({ a: { dtype: 'F4', shape: [3], data_offsets: [0, 2] } }), /does not have the 2 bytes/],
      [safetensors({ a: { dtype: 'Q9', shape: [1], data_offsets: [0, 4] } }), /unknown dtype "Q9"/],
      [safetensors({ a: { dtype: 'F32', shape: [1.5], data_offsets: [0, 4] } }), /no whole number/],
      [safetensors({ a: { dtype: 'F32', shape: [-1], data_offsets: [0, 4] } }), /no whole number/],
      [safetensors('{"a":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}', 4), /no whole number/],
      [safetensors('{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}', 4), /no whole number/],
      [safetensors('{"a":{"dtype":"F32","data_offsets":[0,4]}}', 4), /lacks dtype, shape or data_offsets/],
      [safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', 4), /more than 2 items/],
      [safetensors('{"__metadata__":{"a":"1","a":"2"}}', 0), /__metadata__ has "a" twice/],
      [safetensors('{"__metadata__":{"a":1}}', 0), /where a text should be/],
      [safetensors('{} x', 0), /where its end should be/],
      [safetensors('{"a', 0), /the end of a text/],
      [safetensors('[]', 0), /where "\{" should be/],
      [safetensors(`{"a":{"x":${'['.repeat(5000)}`, 0), /nested deeper than 32/],
      [bytesSource('m', Buffer.from('GGUF....')), /no safetensors file: it begins with 474755462e2e2e2e/],
      [bytesSource('m', Buffer.from([255, 0, 0, 0, 0, 0, 0, 0, 1])), /header should have 255 bytes, and the file has 9/],
      [bytesSource('m', Buffer.alloc(3)), /it has 3 bytes/],
    ];
    for (const [source, reason] of bad) t.match(await reasonOf(() => readSafetensorsHeader(source)), reason);
  });
  t.test('of tensors in any order, empty ones among them, is read', async (t) => {
    const header = await readSafetensorsHeader(safetensors({ b: f32(8, 16), none: f32(8, 8, [0, 7]), a: f32(0, 8), __metadata__: { format: 'pt', 'ü\n"': 'é' } }));
    t.same([header.tensors, header.tensorBytes, header.metadata], [3, 16, { format: 'pt', 'ü\n"': 'é' }]);
    t.same((await readSafetensorsHeader(safetensors('{}', 0))).groups, []);
  });
});

t.test('an index', async (t) => {
  const index = (map: unknown): (() => unknown) => () => readSafetensorsIndex(json({ metadata: {}, weight_map: map }), 'index');
  t.test('B10: names the files that count, each once', async (t) => {
    const read = readSafetensorsIndex(json({ metadata: { total_size: 8_589_934_592 }, weight_map: { a: 'model-00001-of-00002.safetensors', b: 'model-00002-of-00002.safetensors', c: 'model-00001-of-00002.safetensors' } }), 'index');
    t.match(read, { tensors: 3, statedBytes: 8_589_934_592, shards: [{ name: 'model-00001-of-00002.safetensors', tensors: 2 }, { name: 'model-00002-of-00002.safetensors', tensors: 1 }] });
    t.equal(read.shards.length, 2);
    t.equal(readSafetensorsIndex(json({ metadata: { total_size: 1.5 }, weight_map: { a: 'x.safetensors' } }), 'index').statedBytes, null);
  });
  t.test('B160: with a file name that leads elsewhere is refused whole', async (t) => {
    for (const name of ['../x.safetensors', '../../../../other/private/resolve/main/x.safetensors', '/etc/passwd', 'a/../../b', 'a/../../b.safetensors', '%2e%2e/x.safetensors', 'http://evil/x', 'http://evil/x.safetensors', 'x.safetensors?y', 'a\\x.safetensors', 'x\u0000.safetensors', 'x.bin', 'x.SAFETENSORS', '']) {
      t.match(await reasonOf(index({ good: 'model.safetensors', bad: name })), /the index puts tensor bad into/, name);
    }
    t.match(await reasonOf(index({})), /weight_map of the index is empty/);
    t.match(await reasonOf(index({ a: 7 })), /where a text should be/);
    t.match(await reasonOf(() => readSafetensorsIndex(json({}), 'index')), /no weight_map/);
    t.match(await reasonOf(() => readSafetensorsIndex(json('{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}'), 'index')), /tensor a twice/);
    t.match(await reasonOf(() => readSafetensorsIndex(json('{"weight_map":{"a":"x.safetensors"},"weight_map":{}}'), 'index')), /"weight_map" twice/);
  });
});

t.test('B173: a file name is refused by one rule on every system', async (t) => {
  for (const name of ['../x', 'a/..\\..\\x', 'C:x', 'C:\\x', '\\\\srv\\share\\x', '/abs', 'a//b', 'CON', 'con.txt', 'a/Lpt1.safetensors', 'x:ads', 'x.', 'a./b', 'x ', '.', 'a/./b', '', 'a\u0007', 'x'.repeat(256), 'a/'.repeat(17)]) {
    t.type(fileNameFault(name), 'string', name);
  }
  for (const name of ['model.safetensors', 'sub/model-00001-of-00002.safetensors', '.hidden', 'console.txt', 'ü/ß.gguf', 'x'.repeat(255)]) t.equal(fileNameFault(name), null, name);
});

t.test('B167: NaN and Infinity outside texts become null, and texts are untouched', async (t) => {
  t.same(readConfigJson(json('{"time_step_limit": [0.0, Infinity], "n": NaN, "m": -Infinity, "text": "Infinity, NaN", "e": -1.5e3}'), 'config.json'), { time_step_limit: [0, null], n: null, m: null, text: 'Infinity, NaN', e: -1500 });
  for (const [text, reason] of [
    ['[]', /no JSON object/], ['{"a": Infinit}', /where a value should be/], ['{"a": 1e999}', /beyond any double/], ['{"a": 1, "a": 2}', /"a" twice/], ['{"a": +1}', /a value/], ['{"a": .5}', /a value/], ['', /it ends at byte 0/], ['{"a": "\\x"}', /broken text/], ['{"a":1,}', /a text/],
    [`{"a":${'{"a":'.repeat(100)}`, /nested deeper/], [`{"a":"${'x'.repeat(5_000_000)}"}`, /at most 4194304 are sensible/],
  ] as const) t.match(await reasonOf(() => readConfigJson(json(text), 'config.json')), reason, text.slice(0, 40));
  t.same(Object.keys(readConfigJson(json('{"__proto__": {"x": 1}}'), 'config.json')), ['__proto__'], 'a key is only a key');
});

t.test('a file is opened only when it is one, and closed', async (t) => {
  writeFileSync(join(folder, 'a'), 'abc');
  const source = await fileSource(join(folder, 'a'));
  t.same([source.sizeBytes, Buffer.from(await source.read(1, 2)).toString()], [3, 'bc']);
  writeFileSync(join(folder, 'a'), '');
  t.match(await reasonOf(() => source.read(1, 2)), /shrank/);
  await source.close?.();
  for (const [path, reason] of [[join(folder, 'none'), /no such file/], [folder, /a directory/], ['/dev/null', /not a regular file/]] as const) t.match(await reasonOf(() => withFile(path, readGgufHeader)), reason);
});

t.test('quantised elements take whole blocks', async (t) => {
  t.same([bytesOfElements('q8_0', 64), bytesOfElements('Q4_0', 33), bytesOfElements('f16', 3), bytesOfElements('nonsense', 3)], [68, 36, 6, null]);
});
