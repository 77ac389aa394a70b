/**
 * Writes GGUF v3 files: the one-token probe's model, the large model of the check on a real card, the models of
 * the tests. Tensor data is produced piece by piece, so a file may be larger than memory.
 */
import { open } from 'node:fs/promises';

export type GgufValue =
  | { readonly kind: 'u32' | 'i32' | 'f32'; readonly value: number }
  | { readonly kind: 'bool'; readonly value: boolean }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'strings'; readonly value: readonly string[] }
  | { readonly kind: 'i32s' | 'f32s'; readonly value: readonly number[] };

export interface GgufTensorSource {
  readonly name: string;
  /** Fastest-varying first, as GGUF has them. */
  readonly dimensions: readonly number[];
  readonly type: 'f32' | 'f16';
  /** The tensor's bytes in order, in pieces of any size. */
  data(): Iterable<Uint8Array>;
}

export interface GgufSource {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensorSource[];
}

const alignmentBytes = 32;
const typeIds = { u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 } as const;
const tensorTypes = { f32: { id: 0, elementBytes: 4 }, f16: { id: 1, elementBytes: 2 } } as const;

/** Writes `source` to `path`, replacing what is there; resolves to the file's size in bytes. */
export async function writeGguf(path: string, source: GgufSource): Promise<number> {
  const file = await open(path, 'w');
  try {
    const header = encodeHeader(source);
    await file.writeFile(header);
    let writtenBytes = header.length;
    for (const tensor of source.tensors) {
      const wantedBytes = tensorBytes(tensor);
      let tensorWrittenBytes = 0;
      for (const piece of tensor.data()) {
        await file.writeFile(piece);
        tensorWrittenBytes += piece.length;
      }
      if (tensorWrittenBytes !== wantedBytes) {
        throw new RangeError(`${tensor.name} produced ${String(tensorWrittenBytes)} bytes of ${String(wantedBytes)}`);
      }
      const padding = paddingBytes(wantedBytes);
      await file.writeFile(new Uint8Array(padding));
      writtenBytes += wantedBytes + padding;
    }
    return writtenBytes;
  } finally {
    await file.close();
  }
}

/** Everything before the tensor data, padded to the alignment. */
export function encodeHeader(source: GgufSource): Uint8Array {
  const parts: Uint8Array[] = [Buffer.from('GGUF'), u32(3), u64(source.tensors.length), u64(source.metadata.size)];
  for (const [key, value] of source.metadata) parts.push(text(key), encodeValue(value));
  let offsetBytes = 0;
  for (const tensor of source.tensors) {
    parts.push(text(tensor.name), u32(tensor.dimensions.length), ...tensor.dimensions.map(u64));
    parts.push(u32(tensorTypes[tensor.type].id), u64(offsetBytes));
    offsetBytes += tensorBytes(tensor) + paddingBytes(tensorBytes(tensor));
  }
  const header = Buffer.concat(parts);
  return Buffer.concat([header, new Uint8Array(paddingBytes(header.length))]);
}

export function tensorBytes(tensor: GgufTensorSource): number {
  return tensor.dimensions.reduce((product, dimension) => product * dimension, 1) * tensorTypes[tensor.type].elementBytes;
}

/** The bits of the nearest half-precision number; overflow becomes infinity, too small becomes zero. */
export function toHalf(value: number): number {
  float[0] = value;
  const bits = floatBits[0] ?? 0;
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const mantissa = bits & 0x7fffff;
  if (exponent >= 31) return sign | 0x7c00;
  if (exponent <= 0) return exponent < -10 ? sign : sign | (((mantissa | 0x800000) >>> (1 - exponent)) + 0x1000) >>> 13;
  // Rounding may carry into the exponent, which is what is wanted.
  return sign | (((exponent << 23) | mantissa) + 0x1000) >>> 13;
}

const float = new Float32Array(1);
const floatBits = new Uint32Array(float.buffer);

function encodeValue(value: GgufValue): Uint8Array {
  switch (value.kind) {
    case 'u32': return Buffer.concat([u32(typeIds.u32), u32(value.value)]);
    case 'i32': return Buffer.concat([u32(typeIds.i32), i32(value.value)]);
    case 'f32': return Buffer.concat([u32(typeIds.f32), f32(value.value)]);
    case 'bool': return Buffer.concat([u32(typeIds.bool), Uint8Array.of(value.value ? 1 : 0)]);
    case 'string': return Buffer.concat([u32(typeIds.string), text(value.value)]);
    case 'strings': return encodeArray(typeIds.string, value.value.map(text));
    case 'i32s': return encodeArray(typeIds.i32, value.value.map(i32));
    case 'f32s': return encodeArray(typeIds.f32, value.value.map(f32));
  }
}

function encodeArray(typeId: number, items: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat([u32(typeIds.array), u32(typeId), u64(items.length), ...items]);
}

function text(value: string): Uint8Array {
  const bytes = Buffer.from(value, 'utf8');
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function i32(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function f32(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function u64(value: number): Uint8Array {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function paddingBytes(length: number): number {
  return (alignmentBytes - (length % alignmentBytes)) % alignmentBytes;
}
