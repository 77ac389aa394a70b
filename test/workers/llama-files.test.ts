// Broken model files, and what is asked of children: typed errors with a reason, and this process lives.
import fc from 'fast-check';
import { readFileSync, writeFileSync } from 'node:fs';
import { cp, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { createLlamaEngine } from '../../workers/llama/engine.js';
import { partPaths } from '../../src/models/formats/gguf-parts.js';
import { checkModel } from '../../workers/llama/gguf-checks.js';
import { unusableReason } from '../../src/models/formats/fault.js';
import { readGgufHeader, type GgufHeader } from '../../src/models/formats/gguf-header.js';
import { withFile } from '../../src/models/formats/source.js';
import { encodeHeader, toHalf, type GgufValue } from '../../workers/llama/gguf-writer.js';
import { probeBackend } from '../../workers/llama/probe.js';
import { openVerdicts } from '../../workers/llama/verdicts.js';
import { randomModel, scriptedModel, writeModel, type Qwen3Shape } from '../fixtures/gguf-models.js';
import { cardId, CountingCard, engineContext, never, specOf } from '../fixtures/llama-engine.js';

const shape: Qwen3Shape = { embedding: 64, feedForward: 64, layers: 1, heads: 2, kvHeads: 1, headSize: 32, contextTokens: 512 };
const folder = await mkdtemp(join(tmpdir(), 'leasehold-files-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));

const goodPath = await writeModel(join(folder, 'good.gguf'), randomModel(shape));
const good = readFileSync(goodPath);
const headerBytes = encodeHeader(randomModel(shape)).length;

let written = 0;
const fileOf = (bytes: Uint8Array): string => {
  const path = join(folder, `case-${String(written++)}.gguf`);
  writeFileSync(path, bytes);
  return path;
};
const headerOf = (path: string): Promise<GgufHeader> => withFile(path, (source) => readGgufHeader(source, never));
/** The fault that a file is refused with; null when it is taken. */
const faultOf = async (path: string): Promise<string | null> => {
  try {
    await headerOf(path);
    return null;
  } catch (error) {
    const reason = unusableReason(error);
    if (reason === null) throw error;
    return reason;
  }
};
const u64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
};
const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const text = (value: string): Buffer => Buffer.concat([u64(BigInt(value.length)), Buffer.from(value)]);
const start = (tensors: bigint, keys: bigint): Buffer => Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors), u64(keys)]);

t.test('the header of a model file', async (t) => {
  t.test('of a good one is read in whole', async (t) => {
    const header = await headerOf(goodPath);
    t.equal(header.scalars.get('general.architecture'), 'qwen3');
    t.equal(header.arrays.get('tokenizer.ggml.tokens')?.length, 261);
    t.equal(header.tensors, 13);
    t.equal(header.tensorBytes, randomModel(shape).tensors.reduce((sum, tensor) => sum + tensor.dimensions.reduce((product, size) => product * size, 1) * (tensor.type === 'f16' ? 2 : 4), 0));
  });
  t.test('B163: a file cut at any byte of its beginning, at its middle or by one byte is refused with a reason', async (t) => {
    const cuts = [...Array(201).keys(), Math.floor(headerBytes / 2), headerBytes - 1, headerBytes, good.length - 33, good.length - 1];
    const startedMs = performance.now();
    const faults = await Promise.all(cuts.map((cut) => faultOf(fileOf(good.subarray(0, cut)))));
    t.same(faults.filter((fault) => fault === null), []);
    t.match(faults.at(-1), /cut short: tensor .* ends at byte \d+, the file at byte/);
    t.ok(performance.now() - startedMs < 5_000);
  });
  t.test('B163 B164: counts and lengths are compared with the file before anything is allocated', async (t) => {
    const before = process.memoryUsage.rss();
    const hostile: readonly (readonly [Buffer, RegExp])[] = [
      [start(1n << 63n, 1n), /announces 9223372036854775808 tensors/],
      [start(0n, 1n << 63n), /announces 9223372036854775808 keys/],
      [Buffer.concat([start(0n, 1n), u64(1n << 62n), Buffer.alloc(64)]), /bytes of key 0/],
      [Buffer.concat([start(0n, 1n), text('k'), u32(8), u64(1n << 62n), Buffer.alloc(64)]), /bytes of the value of k/],
      [Buffer.concat([start(0n, 1n), text('k'), u32(9), u32(0), u64(4_000_000_000n), Buffer.alloc(64)]), /announces 4000000000 items of k/],
      [Buffer.concat([start(0n, 1n), text('k'), u32(9), u32(8), u64(1n << 40n), Buffer.alloc(64)]), /texts of k/],
      [Buffer.concat([start(0n, 1n), text('k'), u32(9), u32(9), u64(1n), Buffer.alloc(64)]), /array of arrays/],
      [Buffer.concat([start(0n, 1n), text('k'), u32(77), Buffer.alloc(64)]), /unknown type 77/],
      [Buffer.concat([start(0n, 1n), text(''), u32(4), Buffer.alloc(64)]), /key 0 is empty/],
      [Buffer.concat([start(0n, 2n), text('k'), u32(4), u32(1), text('k'), u32(4), u32(1), Buffer.alloc(64)]), /key k stands there twice/],
      [Buffer.concat([start(1n, 0n), text('t'), u32(9), Buffer.alloc(96)]), /9 dimensions/],
      [Buffer.concat([start(1n, 0n), text('t'), u32(2), u64(1n << 32n), u64(1n << 32n), u32(0), u64(0n), Buffer.alloc(96)]), /cut short: tensor t ends at byte/],
      [Buffer.concat([start(1n, 0n), text('t'), u32(1), u64(0n), u32(0), u64(0n), Buffer.alloc(96)]), /dimension of 0/],
      [Buffer.concat([start(1n, 0n), text('t'), u32(1), u64(8n), u32(0), u64((1n << 64n) - 1n), Buffer.alloc(96)]), /cut short/],
      [Buffer.concat([start(1n, 0n), text('t'), u32(1), u64(33n), u32(2), u64(0n), Buffer.alloc(96)]), /rows of 33 elements/],
    ];
    for (const [bytes, reason] of hostile) t.match(await faultOf(fileOf(bytes)), reason);
    t.ok(process.memoryUsage.rss() - before < 50 * 1024 * 1024, 'without taking 50 MB');
  });
  t.test('a wrong magic, another version and another byte order are told apart', async (t) => {
    t.match(await faultOf(fileOf(Buffer.from('ggml'.padEnd(64, 'x')))), /does not begin with GGUF but with bytes 67676d6c/);
    t.match(await faultOf(fileOf(Buffer.concat([Buffer.from('GGUF'), u32(1), Buffer.alloc(64)]))), /GGUF version 1;/);
    t.match(await faultOf(fileOf(Buffer.concat([Buffer.from('GGUF'), u32(0x0300_0000), Buffer.alloc(64)]))), /another byte order/);
    t.match(await faultOf(join(folder, 'nowhere.gguf')), /no such file/);
    t.match(await faultOf(folder), /a directory/);
    t.match(await faultOf('/dev/null'), /not a regular file/);
  });
  t.test('any damage to any byte gives a header or a reason, never anything else', async (t) => {
    const edit = fc.tuple(fc.integer({ min: 0, max: headerBytes - 1 }), fc.integer({ min: 0, max: 255 }));
    await fc.assert(fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 6 }), async (edits) => {
      const damaged = Buffer.from(good);
      for (const [at, byte] of edits) damaged[at] = byte;
      const path = join(folder, 'damaged.gguf');
      writeFileSync(path, damaged);
      await faultOf(path);
    }), { numRuns: 150 });
    t.pass();
  });
  t.test('a model in parts needs all of them, whichever is named', async (t) => {
    t.same(partPaths('/m/x-00002-of-00003.gguf'), ['/m/x-00001-of-00003.gguf', '/m/x-00002-of-00003.gguf', '/m/x-00003-of-00003.gguf']);
    t.same(partPaths('/m/x.gguf'), ['/m/x.gguf']);
    writeFileSync(join(folder, 'part-00001-of-00002.gguf'), good);
    const print = async (path: string): Promise<string> => path;
    await t.rejects(checkModel(join(folder, 'part-00001-of-00002.gguf'), print, never), { message: /its part .*part-00002-of-00002.gguf: there is no such file/ });
    writeFileSync(join(folder, 'part-00002-of-00002.gguf'), good);
    const whole = await checkModel(join(folder, 'part-00002-of-00002.gguf'), print, never);
    t.match(whole.path, /part-00001-of-00002.gguf$/);
    t.equal(whole.tensorBytes, 2 * (await headerOf(goodPath)).tensorBytes);
  });
  t.test('half precision is written as the nearest half', async (t) => {
    t.same([0, 1, -2, 65_504, 1e9, 5.96e-8, 0.1].map(toHalf), [0, 0x3c00, 0xc000, 0x7bff, 0x7c00, 1, 0x2e66]);
  });
});

t.test('the engine and a broken file', async (t) => {
  const card = new CountingCard();
  const changed = (key: string, value: GgufValue): Promise<string> => writeModel(join(folder, `changed-${String(written++)}.gguf`), randomModel(shape, 1, new Map([[key, value]])));

  t.test('estimate and load refuse what is broken, with the reason', async (t) => {
    // The first engine of this process: of later ones the bindings lose the log.
    const engine = createLlamaEngine({ vetModels: false });
    await engine.start(engineContext(card));
    t.teardown(() => engine.close());
    const estimate = (source: string, changes = {}): ReturnType<typeof engine.estimate> => engine.estimate(specOf(source, changes), never);
    const load = (source: string): ReturnType<typeof engine.load> => engine.load(specOf(source), cardId, () => undefined, never);

    for (const [source, reason] of [
      [join(folder, 'none.gguf'), /no such file/],
      [fileOf(good.subarray(0, headerBytes - 300)), /middle of its header/],
      [fileOf(Buffer.alloc(4_096, 7)), /does not begin with GGUF/],
      [await changed('qwen3.block_count', { kind: 'u32', value: 0 }), /block_count is 0/],
      [await changed('tokenizer.ggml.tokens', { kind: 'strings', value: ['same', 'same'] }), /token "same" twice/],
      ['https://example.com/model.gguf', /no such file/],
    ] as const) {
      await t.rejects(estimate(source), { code: 'model_invalid', message: reason });
      await t.rejects(load(source), { code: 'model_invalid', message: reason });
    }
    const model = randomModel(shape);
    const lacking = await writeModel(join(folder, 'lacking.gguf'), { ...model, tensors: model.tensors.filter(({ name }) => name !== 'blk.0.ffn_up.weight') });
    await t.rejects(estimate(lacking, { declaredBytes: 6_000_000 }), { code: 'model_invalid', message: /ffn_up/ });
    await t.rejects(load(lacking), { code: 'load_failed', message: /ffn_up/ }, 'with llama.cpp’s own words');
    t.equal(card.usedBytes, 0);

    // B20 B166: what llama.cpp does not know needs the operator’s word.
    const flux = await writeModel(join(folder, 'flux.gguf'), { metadata: new Map([['general.architecture', { kind: 'string', value: 'flux' }]]), tensors: model.tensors });
    await t.rejects(estimate(flux), { code: 'estimate_unknown', message: /architecture flux/, help: /declaredBytes/ });
    const declared = await estimate(flux, { declaredBytes: 6_000_000 });
    t.equal(declared.source, 'declared');
    t.same(declared.parts, [{ name: 'weights', kind: 'weights', bytes: 6_000_000, upFront: false }]);
    t.equal(declared.contextBytes(100_000), 0);
    t.equal((await estimate(goodPath, { declaredBytes: 6_000_000 })).source, 'estimated', 'which is not listened to where an estimate can be made');
  });
  t.test('what would end the process ends a child, and is a reason like any other', async (t) => {
    const engine = createLlamaEngine();
    await engine.start(engineContext(card));
    t.teardown(() => engine.close());
    const rotated = specOf(await changed('qwen3.rope.dimension_count', { kind: 'u32', value: 7 }));
    await t.rejects(engine.estimate(rotated, never), { code: 'model_invalid', message: /does not survive it: it was ended by SIGABRT: .*GGML_ASSERT/ });
    const unwanted = specOf(await writeModel(join(folder, 'unwanted.gguf'), randomModel(shape, 5)));
    const stop = new AbortController();
    const startedMs = performance.now();
    const ended = t.rejects(engine.load(unwanted, cardId, () => undefined, stop.signal), /not wanted/);
    setImmediate(() => stop.abort(new Error('not wanted')));
    await ended;
    t.ok(performance.now() - startedMs < 200, 'a load that is no longer wanted ends at once, though a child is still at it');
  });
  t.test('a good file is vetted once, for later workers too, and a changed one again', async (t) => {
    const path = await writeModel(join(folder, 'vetted.gguf'), scriptedModel([], new Map()));
    const verdictFolder = join(folder, 'verdicts');
    const first = createLlamaEngine({ verdictFolder });
    await first.start(engineContext(card));
    t.equal((await first.estimate(specOf(path), never)).source, 'estimated');
    await first.close();
    const [kept] = await readdir(verdictFolder);
    t.equal((await stat(join(verdictFolder, kept ?? ''))).mode & 0o777, 0o600);
    const second = createLlamaEngine({ verdictFolder, vetProgram: join(folder, 'never-asked.mjs') });
    await second.start(engineContext(card));
    t.teardown(() => second.close());
    t.equal((await second.estimate(specOf(path), never)).source, 'estimated', 'the child is not asked again');
    await writeModel(path, scriptedModel([], new Map([[1, 2]])));
    await t.rejects(second.estimate(specOf(path), never), { code: 'model_invalid', message: /it ended with code 1/ }, 'but its verdict was about the file as it was');
  });
});

t.test('a probe of a card', async (t) => {
  const program = (name: string, source: string): string => {
    const path = join(folder, name);
    writeFileSync(path, source);
    return path;
  };
  t.test('that computes is gone when it has said so, and nothing of it is left on the card', async (t) => {
    const pidPath = join(folder, 'probe.pid');
    const good = program('good.mjs', `import { writeFileSync } from 'node:fs'; writeFileSync(process.argv[3], String(process.pid)); process.send({ kind: 'ran' }); setInterval(() => undefined, 1000);`);
    t.same(await probeBackend('cuda', pidPath, { probeProgram: good }), { works: true });
    t.throws(() => process.kill(Number(readFileSync(pidPath, 'utf8')), 0), { code: 'ESRCH' });
  });
  t.test('that aborts, hangs, refuses or cannot start is a reason', async (t) => {
    const probe = (probeProgram: string, probeTimeoutMs = 60_000): ReturnType<typeof probeBackend> => probeBackend('cuda', 'NVIDIA Test', { probeProgram, probeTimeoutMs });
    const abort = await probe(program('abort.mjs', `process.stderr.write('ptxas: unsupported toolchain\\n'); process.abort();`));
    t.match(abort, { works: false, reason: /SIGABRT: ptxas: unsupported toolchain/ });
    t.match(await probe(program('hang.mjs', 'setInterval(() => undefined, 1000);'), 300), { works: false, reason: /did not answer within 300 ms/ });
    t.match(await probe(program('refuse.mjs', `process.send({ kind: 'failed', reason: 'no card' });`)), { works: false, reason: 'no card' });
    t.match(await probe(join(folder, 'absent.mjs')), { works: false, reason: /ended with code 1/ });
  });
  t.test('by a backend that is not installed, or that quietly gives the CPU instead, says so', async (t) => {
    const elsewhere = process.platform === 'darwin' ? 'cuda' : 'metal';
    t.match(await probeBackend(elsewhere, 'NVIDIA Test'), { works: false, reason: /it sees no card|binar/i });
  });
  t.test('for which the full card has no room is no reason to run on the CPU', async (t) => {
    // The bindings say little; llama.cpp's own words are on the child's output.
    const full = program('full.mjs', `process.stderr.write('allocating 12.00 MiB on device 0: cudaMalloc failed: out of memory\\n', () => process.send({ kind: 'failed', reason: 'Failed to load model' }));`);
    t.same(await probeBackend('cuda', 'NVIDIA Test', { probeProgram: full }), { works: false, reason: 'Failed to load model: allocating 12.00 MiB on device 0: cudaMalloc failed: out of memory' });
    const gpu = { device: 'GPU-1', name: 'NVIDIA Test', totalBytes: 1e9, simulated: false };
    await t.rejects(createLlamaEngine({ probeProgram: full }).start(engineContext(new CountingCard(), undefined, [gpu])), { code: 'spawn_failed', message: /no room for a probe/ });
  });
  t.test('is not made for two cards at once', async (t) => {
    const card = (device: string) => ({ device, name: 'NVIDIA', totalBytes: null, simulated: false });
    await t.rejects(createLlamaEngine().start(engineContext(new CountingCard(), undefined, [card('GPU-1'), card('GPU-2')])), { code: 'gang_unsupported' });
  });
});

t.test('what children found out is kept under everything it depends on', async (t) => {
  const lines: string[] = [];
  const verdicts = openVerdicts(join(folder, 'kept'), (level, message) => void lines.push(`${level}: ${message}`));
  await verdicts.put(['a', null], { floorBytes: 1 });
  t.same(await verdicts.get(['a', null]), { floorBytes: 1 });
  t.equal(await verdicts.get(['a', 'b']), null);
  for (const name of await readdir(join(folder, 'kept'))) writeFileSync(join(folder, 'kept', name), '{"key": "half');
  t.equal(await verdicts.get(['a', null]), null, 'a file that was cut short is no verdict');
  t.same(lines, []);
  await openVerdicts('/dev/null/x', (level, message) => void lines.push(`${level}: ${message}`)).put(['a'], true);
  t.match(lines, [/warn: a verdict was not kept/]);
  t.equal(await openVerdicts(null, () => undefined).get(['a']), null);
});

t.test('without node-llama-cpp the engine is missing, and says how to get it', async (t) => {
  const alone = await mkdtemp(join(tmpdir(), 'leasehold-alone-'));
  t.teardown(() => rm(alone, { recursive: true, force: true }));
  const dist = fileURLToPath(new URL('../..', import.meta.url));
  await Promise.all(['protocol', 'src/models/formats', 'src/models/threads', 'workers/llama', 'workers/runtime/shares.js'].map((part) => cp(join(dist, part), join(alone, part), { recursive: true })));
  writeFileSync(join(alone, 'package.json'), '{"type": "module"}');
  writeFileSync(join(alone, 'try.js'), `import { createLlamaEngine } from './workers/llama/engine.js';
    await createLlamaEngine().start({ cards: [], threads: 1, log() {}, reportFloor() {} }).catch(({ code, help }) => console.log(JSON.stringify({ code, help })));`);
  const { stdout } = await promisify(execFile)(process.execPath, [join(alone, 'try.js')]);
  t.match(JSON.parse(stdout), { code: 'engine_missing', help: /npm install node-llama-cpp/ });
});
