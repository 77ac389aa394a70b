/** Frames: any bodies, cut anywhere, come back whole and in order; no length costs memory before its bytes have come. */
import fc from 'fast-check';
import t from 'tap';
import { FrameDecoder, frameHeaderBytes, frameOf, writeLength } from '../../protocol/index.js';

const mebibyte = 1024 * 1024;

function body(bytes: number, seed: number): Uint8Array {
  return Uint8Array.from({ length: bytes }, (_, index) => (index * 31 + seed) & 0xff);
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts);
}

function decodeAll(decoder: FrameDecoder, chunks: Iterable<Uint8Array>): Buffer[] {
  // Copies: a body is a view of its chunk.
  return [...chunks].flatMap((chunk) => decoder.push(chunk).map((part) => Buffer.from(part)));
}

function* pieces(bytes: Uint8Array, size: number): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

t.test('B175: frames of awkward sizes arrive intact and in order', async (t) => {
  const sizes = [0, 1, 8_191, 8_192, 8_193, 65_535, 65_536, 65_537, mebibyte];
  const bodies = sizes.map((bytes, seed) => body(bytes, seed));
  const stream = join(bodies.map(frameOf));
  for (const size of [1, 2, 3, 5, 4_096, 65_536, stream.length]) {
    const decoded = decodeAll(new FrameDecoder(mebibyte), pieces(stream, size));
    t.ok(decoded.length === bodies.length && decoded.every((part, index) => part.equals(bodies[index]!)), `in pieces of ${String(size)}`);
  }
});

t.test('B175: fifty frames in one chunk are fifty bodies', async (t) => {
  const bodies = Array.from({ length: 50 }, (_, index) => body(index * 7, index));
  t.strictSame(decodeAll(new FrameDecoder(mebibyte), [join(bodies.map(frameOf))]), bodies.map((part) => Buffer.from(part)));
});

t.test('any bodies cut anywhere come back', async (t) => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 3_000 }), { maxLength: 20 }), fc.array(fc.nat(4_000), { minLength: 1, maxLength: 50 }), (bodies, cuts) => {
      const stream = join(bodies.map(frameOf));
      const decoder = new FrameDecoder(3_000);
      const decoded: Buffer[] = [];
      let at = 0;
      for (let index = 0; at < stream.length; index++) {
        const end = Math.min(stream.length, at + (cuts[index % cuts.length]! || 1));
        decoded.push(...decodeAll(decoder, [stream.subarray(at, end)]));
        at = end;
      }
      return decoder.end().kind === 'clean' && decoded.length === bodies.length && decoded.every((part, index) => part.equals(bodies[index]!));
    }),
    { numRuns: 300 },
  );
  t.pass('300 streams');
});

t.test('a body that lies whole in its chunk is a view of it, not a copy', async (t) => {
  const chunk = join([frameOf(body(10, 1)), frameOf(body(20, 2))]);
  t.ok(new FrameDecoder(100).push(chunk).every((part) => part.buffer === chunk.buffer));
});

t.test('a length above the limit is refused at its fourth byte, and nothing is allocated for it', async (t) => {
  for (const bytes of [101, 104_857_600, 2 ** 31, 2 ** 32 - 1]) {
    const decoder = new FrameDecoder(100);
    const header = new Uint8Array(frameHeaderBytes);
    writeLength(header, bytes);
    t.strictSame(decoder.push(header.subarray(0, 3)), []);
    t.equal(decoder.fault, null, 'three bytes say nothing yet');
    decoder.push(header.subarray(3));
    t.equal(decoder.fault?.code, 'frame_too_large');
    t.strictSame(decoder.fault?.details, { bytes: String(bytes), limitBytes: '100' });
    t.equal(decoder.heldBytes, 0);
    t.strictSame(decoder.push(frameOf(body(3, 0))), [], 'nothing after it is read');
  }
});

t.test('bodies before a bad length in the same chunk are still given', async (t) => {
  const decoder = new FrameDecoder(10);
  const decoded = decodeAll(decoder, [join([frameOf(body(10, 1)), frameOf(body(0, 0)), frameOf(body(11, 2))])]);
  t.strictSame(decoded, [Buffer.from(body(10, 1)), Buffer.alloc(0)]);
  t.equal(decoder.fault?.code, 'frame_too_large');
});

t.test('memory follows what has arrived, not what was announced', async (t) => {
  const decoder = new FrameDecoder(8 * mebibyte);
  const header = new Uint8Array(frameHeaderBytes);
  writeLength(header, 8 * mebibyte);
  decoder.push(header);
  t.equal(decoder.heldBytes, 0, 'eight announced MiB cost nothing');
  let worst = 0;
  for (let received = 1; received <= 200_000; received++) {
    decoder.push(new Uint8Array(1));
    worst = Math.max(worst, decoder.heldBytes - Math.max(1_024, received * 2));
  }
  t.ok(worst <= 0, 'never more than twice what came');
});

t.test('a limit that is raised holds from the next length on', async (t) => {
  const decoder = new FrameDecoder(4);
  decoder.push(frameOf(body(4, 1)).subarray(0, 5));
  decoder.setBodyBytesMax(9);
  t.equal(decodeAll(decoder, [body(4, 1).subarray(1), frameOf(body(9, 2))]).length, 2);
  decoder.setBodyBytesMax(3);
  decoder.push(frameOf(body(4, 1)));
  t.equal(decoder.fault?.code, 'frame_too_large');
});

t.test('the end of a stream between frames and inside one are told apart', async (t) => {
  const frame = frameOf(body(10, 1));
  const endAfter = (bytes: number): unknown => {
    const decoder = new FrameDecoder(100);
    decoder.push(frame.subarray(0, bytes));
    return decoder.end();
  };
  t.strictSame(endAfter(0), { kind: 'clean' });
  t.strictSame(endAfter(14), { kind: 'clean' });
  t.strictSame(endAfter(2), { kind: 'mid_frame', receivedBytes: 2, announcedBytes: null });
  t.strictSame(endAfter(4), { kind: 'mid_frame', receivedBytes: 4, announcedBytes: 10 });
  t.strictSame(endAfter(13), { kind: 'mid_frame', receivedBytes: 13, announcedBytes: 10 });
});
