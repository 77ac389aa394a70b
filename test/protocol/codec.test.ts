/** The codec: what goes in comes out, in any process; any bytes at all give a value or `frame_malformed`, within bounded memory. */
import { execFileSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { bodyLimits, checkBody, frameHeaderBytes, LeaseholdError, validateMessage, type Plane } from '../../protocol/index.js';
import { createCodec } from '../../protocol/node/index.js';
import { example, hex, root, vectorsOf } from './support.js';

const mebibyte = 1024 * 1024;
const codec = createCodec();
const vectors = [...vectorsOf('control'), ...vectorsOf('data')];

function bodyOf(frame: Uint8Array): Uint8Array {
  return frame.subarray(frameHeaderBytes);
}

function decode(body: Uint8Array): unknown {
  return createCodec().decode(body);
}

function codeOf(value: unknown): string | null {
  return value instanceof LeaseholdError ? value.code : null;
}

/** Values that messages are made of. -0 and 0 are one number on the wire. */
const values = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.maxSafeInteger(), fc.double({ noNaN: true }).map((number) => number + 0), fc.boolean(), fc.constant(null), fc.string({ unit: 'binary', maxLength: 80 }),
    fc.array(tie('value'), { maxLength: 20 }), tie('map'),
  ),
  map: fc.dictionary(fc.string({ unit: 'binary', maxLength: 40 }).filter((key) => !['__proto__', '__proto_'].includes(key)), tie('value'), { maxKeys: 40, noNullPrototype: true }),
}));

t.test('any value that messages are made of comes back as it was, from a decoder of its own', async (t) => {
  fc.assert(
    fc.property(values.map, (value) => {
      const body = bodyOf(codec.encode(value));
      return typeof checkBody(body) === 'number' && isDeepEqual(decode(body), value);
    }),
    { numRuns: 1_000 },
  );
  t.pass('1,000 values');
});

function isDeepEqual(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

t.test('integers are msgpack integers of the shortest form, and exact to 2^53 - 1', async (t) => {
  const expected: readonly (readonly [number, string])[] = [
    [0, '00'], [127, '7f'], [128, 'cc80'], [255, 'ccff'], [256, 'cd0100'], [65_535, 'cdffff'], [65_536, 'ce00010000'],
    [2 ** 32 - 1, 'ceffffffff'], [2 ** 32, 'cf0000000100000000'], [2 ** 32 + 1, 'cf0000000100000001'], [2 ** 40, 'cf0000010000000000'],
    [2 ** 53 - 1, 'cf001fffffffffffff'], [-1, 'ff'], [-32, 'e0'], [-33, 'd0df'], [-129, 'd1ff7f'], [-32_769, 'd2ffff7fff'],
    [-(2 ** 31), 'd280000000'], [-(2 ** 31) - 1, 'd3ffffffff7fffffff'], [-(2 ** 32), 'd3ffffffff00000000'], [-(2 ** 53) + 1, 'd3ffe0000000000001'], [0.5, 'cb3fe0000000000000'],
    [2 ** 53, 'cb4340000000000000'], [1e300, 'cb7e37e43c8800759c'],
  ];
  for (const [value, bytes] of expected) {
    const body = bodyOf(codec.encode({ v: value }));
    t.equal(Buffer.from(body).toString('hex'), `81a176${bytes}`, String(value));
    t.strictSame(decode(body), { v: value });
  }
});

t.test('a field that is undefined is left out, at any depth', async (t) => {
  t.strictSame(decode(bodyOf(codec.encode({ type: 'ok', id: 1, newModels: undefined }))), { type: 'ok', id: 1 });
  t.strictSame(decode(bodyOf(codec.encode({ a: [{ b: undefined, c: 2 ** 40 }] }))), { a: [{ c: 2 ** 40 }] });
});

t.test('what has no place on the wire is not sent at all', (t) => {
  for (const value of [() => 1, new Date(), [{ deep: new Date() }]]) t.throws(() => codec.encode({ type: 'log', value }), { code: 'input_invalid', message: /^log: / });
  t.end();
});

t.test('B176: what would end a text protocol’s message passes through', async (t) => {
  for (const text of ['\n', '#', '\f', '\u2028\u2029', '\0', 'a\0b', '\uFEFF', '\r\n\r\n', '🦙'.repeat(50)]) {
    for (const padding of ['', 'x'.repeat(200)]) {
      const message = { type: 'log', level: 'info', message: padding + text, fields: { [text]: text } };
      t.strictSame(decode(bodyOf(codec.encode(message))), message);
    }
  }
});

t.test('B176: lone surrogates become U+FFFD, however long the string', async (t) => {
  for (const padding of ['', 'x'.repeat(200)]) {
    for (const text of ['\uD800', '\uDC00x', 'x\uD83E', '\uDD99\uD83E']) {
      const sent = { v: `${padding}${text}${padding}` };
      t.strictSame(decode(bodyOf(codec.encode(sent))), { v: sent.v.replace(/[\uD800-\uDFFF]/gu, '\uFFFD') });
    }
  }
});

t.test('B179: no frame needs another: each is read by a decoder that saw none before', async (t) => {
  // Far more different sets of keys than a record table has room for.
  const maps = Array.from({ length: 100 }, (_, index) => Object.fromEntries(Array.from({ length: 40 }, (_, key) => [`k${String(index)}-${String(key)}`, key])));
  const frames = maps.map((map) => Buffer.from(codec.encode(map)));
  t.strictSame(frames.reverse().map((frame) => decode(bodyOf(frame))), maps.reverse());
});

t.test('B179: a body that is cut anywhere is an error, never part of a message', async (t) => {
  let cuts = 0;
  const wrong = vectors.flatMap(({ name, frame }) => {
    const body = bodyOf(hex(frame));
    return Array.from({ length: body.length }, (_, bytes) => body.subarray(0, bytes))
      .filter((part) => (cuts += 1) > 0 && codeOf(decode(part)) !== 'frame_malformed')
      .map((part) => `${name} cut at ${String(part.length)}`);
  });
  t.strictSame(wrong, []);
  t.ok(cuts > 10_000, `${String(cuts)} cuts`);
});

t.test('B179: 64-bit integers above 2^53 - 1 are never taken for something near them', async (t) => {
  for (const bytes of ['cf0020000000000000', 'cf0020000000000001', 'cf8000000000000000', 'cfffffffffffffffff']) {
    // {type: evicted, id: 1, freedBytes: …}
    const body = hex(`83a474797065a765766963746564a2696401aa66726565644279746573${bytes}`);
    const message = validateMessage('control', decode(body));
    t.match(message, { code: 'message_invalid', details: { field: 'freedBytes' } }, bytes);
  }
});

t.test('B179: with and without msgpackr’s native part every vector reads and writes the same', async (t) => {
  const script = `
    const { createCodec } = await import(${JSON.stringify(pathToFileURL(join(root, 'dist/protocol/node/index.js')).href)});
    const { isNativeAccelerationEnabled } = await import(${JSON.stringify(import.meta.resolve('msgpackr'))});
    const codec = createCodec();
    const frames = JSON.parse(process.env.FRAMES);
    const again = frames.map((frame) => Buffer.from(codec.encode(codec.decode(Buffer.from(frame, 'hex').subarray(4)))).toString('hex'));
    process.stdout.write(JSON.stringify({ native: isNativeAccelerationEnabled, again }));`;
  const frames = vectors.map(({ frame }) => frame);
  const run = (disabled: string): { readonly native: boolean; readonly again: readonly string[] } =>
    JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      env: { ...process.env, FRAMES: JSON.stringify(frames), MSGPACKR_NATIVE_ACCELERATION_DISABLED: disabled }, encoding: 'utf8',
    })) as { native: boolean; again: string[] };
  const [plain, accelerated] = [run('true'), run('false')];
  t.equal(plain.native, false);
  t.strictSame(plain.again, frames);
  t.strictSame(accelerated.again, frames, `native: ${String(accelerated.native)}`);
});

t.test('a key that is twice in one map is an error that names it, at any depth and however many keys there are', async (t) => {
  const refused = (body: string | Uint8Array, field: string): void => {
    const value = decode(typeof body === 'string' ? hex(body) : body) as LeaseholdError;
    t.match({ code: value.code, message: value.message, details: value.details }, { code: 'frame_malformed', details: { field }, message: `A frame could not be decoded: the key ${JSON.stringify(field)} is twice in one map.` }, JSON.stringify(field).slice(0, 40));
  };
  refused('82a16101a16102', 'a');
  refused('82a16101d9016101', 'a');
  // {type, of: [1, {x: {}}, {b: 1, c: {}, b: 1}]}
  refused('82a474797065a26f6ba26f669301' + '81a17880' + '83a16201a16380a16201', 'b');
  refused('82a001a002', '');
  refused('82a70a1b5b6d203a2001a70a1b5b6d203a2001', '\n\u001b[m : ');
  refused('82a95f5f70726f746f5f5f01a85f5f70726f746f5f02', '__proto_');
  refused(`82d9ff${'61'.repeat(255)}01d9ff${'61'.repeat(255)}02`, 'a'.repeat(128));
  t.strictSame(decode(hex('82a16181a16101a16281a16102')), { a: { a: 1 }, b: { a: 2 } }, 'the same key in two maps');
  const count = bodyLimits.entriesMax;
  const many = (last: number): Buffer => Buffer.concat([hex('df'), hex(count.toString(16).padStart(8, '0')), ...Array.from({ length: count }, (_, key) => Buffer.from(`\xa8${String(key === count - 1 ? last : key).padStart(8, '0')}\x01`, 'latin1'))]);
  const startedNs = process.hrtime.bigint();
  refused(many(7), '00000007');
  t.ok(process.hrtime.bigint() - startedNs < 5_000_000_000n, 'soon, also where all of them are to be looked at');
  t.equal(Object.keys(decode(many(count - 1)) as object).length, count);
  const everyObject = Object.prototype as { ofTheProgram?: boolean };
  everyObject.ofTheProgram = true;
  t.teardown(() => delete everyObject.ofTheProgram);
  t.strictSame(decode(hex('82a16101a16202')), { a: 1, b: 2 }, 'what the program around it gives to every object is no key of a message');
  delete everyObject.ofTheProgram;
});

t.test('keys that mean something to JavaScript are data, and pollute nothing', async (t) => {
  // {"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}, "toString": 1}
  const body = hex('83a95f5f70726f746f5f5f81a8706f6c6c75746564c3ab636f6e7374727563746f7281a970726f746f7479706581a8706f6c6c75746564c3a8746f537472696e6701');
  const value = decode(body) as object;
  t.equal(Object.getPrototypeOf(value), Object.prototype);
  t.notOk('polluted' in {}, 'no prototype was touched');
  t.notOk('polluted' in value);
  t.equal(codeOf(validateMessage('control', value)), 'message_invalid');
});

const protocolErrors = new Set(['frame_malformed', 'message_unknown', 'message_invalid']);

/** What any bytes may come to: a message, or one of three errors. Throws otherwise. */
function outcome(plane: Plane, bytes: Uint8Array): string {
  const value = codec.decode(bytes);
  const result = value instanceof LeaseholdError ? value : validateMessage(plane, value);
  if (!(result instanceof LeaseholdError)) return 'message';
  if (!protocolErrors.has(result.code)) throw new Error(`${result.code} for ${Buffer.from(bytes).toString('hex')}`);
  return result.code;
}

t.test('any bytes give a message or a protocol error, never another exception', async (t) => {
  const counts = new Map<string, number>();
  const tally = (plane: Plane, bytes: Uint8Array): void => {
    const result = outcome(plane, bytes);
    counts.set(result, (counts.get(result) ?? 0) + 1);
  };
  fc.assert(fc.property(fc.constantFrom<Plane>('control', 'data'), fc.uint8Array({ maxLength: 300 }), (plane, bytes) => { tally(plane, bytes); }), { numRuns: 20_000 });
  // Mutations of real messages get further in.
  fc.assert(
    fc.property(fc.constantFrom(...vectors), fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }), fc.nat(), fc.boolean(), (vector, edits, at, cut) => {
      const body = Uint8Array.from(bodyOf(hex(vector.frame)));
      for (const [position, byte] of edits) body[position % body.length] = byte;
      tally(vector.plane, cut ? body.subarray(at % body.length) : body);
    }),
    { numRuns: 20_000 },
  );
  t.ok(['message', ...protocolErrors].every((result) => (counts.get(result) ?? 0) > 50), JSON.stringify([...counts]));
});

t.test('values of every kind that a decoder cannot make are refused as messages too', async (t) => {
  fc.assert(fc.property(fc.constantFrom<Plane>('control', 'data'), fc.anything({ withBigInt: true, withDate: true, withMap: true, withSet: true, withSparseArray: true, withTypedArray: true }), (plane, value) => {
    return protocolErrors.has(codeOf(validateMessage(plane, value)) ?? '');
  }), { numRuns: 5_000 });
  const { type } = example('control', 'evicted');
  for (const freedBytes of [1n, 2n ** 53n, new Number(1), new Date(1), [1], { valueOf: () => 1 }]) {
    t.match(validateMessage('control', { type, id: 1, freedBytes }), { code: 'message_invalid', details: { field: 'freedBytes' } });
  }
});

t.test('a frame that waits for a slow reader keeps no more memory than frames of its size', async (t) => {
  const own = createCodec();
  for (let round = 0; round < 3; round++) {
    for (const length of [mebibyte, 100, 3_000, 20_000, 0]) {
      const frame = own.encode({ type: 'log', text: 'x'.repeat(length) });
      t.ok(frame.buffer.byteLength <= Math.max(8 * 1024, frame.length), `${String(frame.length)} bytes in ${String(frame.buffer.byteLength)}`);
      t.match(own.decode(frame.subarray(frameHeaderBytes)), { text: 'x'.repeat(length) });
    }
  }
});

t.test('bombs are refused before anything is built from them', async (t) => {
  const filled = (prefix: string, fill: string, bytes: number): Buffer => Buffer.concat([hex(prefix), Buffer.alloc(bytes, fill, 'hex')]);
  const bombs: Readonly<Record<string, Buffer>> = {
    'lists in lists': filled('', '91', 8 * mebibyte),
    'maps in maps': filled('', '81a161', 8 * mebibyte),
    'eight million empty maps': filled('dd007fff00', '80', 0x7fff00),
    'eight million empty lists': filled('dd007fff00', '90', 0x7fff00),
    'two million keys': Buffer.concat([hex('df00200000'), ...Array.from({ length: 0x20_0000 }, (_, key) => Buffer.from([0xa2, 0x21 + (key % 90), 0x21 + ((key >> 7) % 90), 0xc0]))]),
    'a list of four thousand million': hex('ddffffffff'),
    'lists that each announce all that is left': filled('', 'dc7fff', 3 * 0x8000),
    'a string of four thousand million': hex('dbffffffff41'),
  };
  for (const [name, body] of Object.entries(bombs)) {
    const before = process.memoryUsage();
    const started = process.hrtime.bigint();
    t.equal(codeOf(codec.decode(body)), 'frame_malformed', name);
    const after = process.memoryUsage();
    // Eight million containers would take hundreds; a collection that did not run in between takes a few.
    t.ok(after.heapUsed - before.heapUsed < 32 * mebibyte && after.arrayBuffers - before.arrayBuffers < 32 * mebibyte, 'nothing was built');
    t.ok(process.hrtime.bigint() - started < 2_000_000_000n, 'soon');
  }
});

t.test('a body as large as may be, of allowed shape, is read', async (t) => {
  const text = 'é'.repeat(2 * mebibyte);
  const message = { type: 'generate', prompt: text, ids: Array.from({ length: 100_000 }, (_, index) => index) };
  t.strictSame(decode(bodyOf(codec.encode(message))), message);
  const maps = Array.from({ length: bodyLimits.containersMax - 2 }, () => ({}));
  t.equal(codeOf(decode(bodyOf(codec.encode({ maps })))), null);
  t.equal(codeOf(decode(bodyOf(codec.encode({ maps: [...maps, {}] })))), 'frame_malformed');
});

t.test('a bad body leaves nothing behind: the next one is read', async (t) => {
  const good = bodyOf(hex(vectors[0]!.frame));
  for (const { frame, limitBytes } of vectorsOf('invalid')) {
    if (limitBytes !== undefined) continue;
    codec.decode(bodyOf(hex(frame)));
    t.strictSame(codec.decode(good), vectors[0]!.message);
  }
});
