/**
 * The header of a GGUF file, read without trusting it. Neither llama.cpp nor its bindings are shown a file before its
 * lengths, counts and offsets have been compared with its size: they allocate what a header announces, and some values
 * end their process.
 */
import { blockOf, tensorTypeName } from './gguf-types.js';
import type { ByteSource } from './source.js';
import { TensorGroups, type TensorGroup } from './tensor-groups.js';
import { WindowReader } from './window-reader.js';

export type GgufScalar = number | bigint | boolean | string;

/** An array in the metadata: of long ones, and of texts, only what is needed to judge them is kept. */
export interface GgufArray {
  readonly elementType: number;
  readonly length: number;
  /** The items of a short array of numbers or truths (1 and 0): one a layer, say. Null for any other. */
  readonly values: readonly number[] | null;
  /** For the vocabulary: a token that stands there twice (empty ones may); null when all differ. */
  readonly repeated: string | null;
}

export interface GgufHeader {
  readonly version: number;
  readonly scalars: ReadonlyMap<string, GgufScalar>;
  readonly arrays: ReadonlyMap<string, GgufArray>;
  readonly tensors: number;
  readonly groups: readonly TensorGroup[];
  /** Bytes of all tensors whose type is known. */
  readonly tensorBytes: number;
  /** Types that this reader does not know, by id: then `tensorBytes` is too low, and `dataBytes` the most it can be. */
  readonly unknownTypes: readonly number[];
  /** All that follows the header, the gaps between tensors with it. */
  readonly dataBytes: number;
}

/** A hundred times what any model has. */
const keysMax = 16_384;
const tensorsMax = 100_000;
const textsMax = 2_000_000;
const keyBytesMax = 65_535;
const valueBytesMax = 1024 * 1024;
const tensorNameBytesMax = 63;
const dimensionsMax = 4;
const lengthBytes = 8;
/** The type of a value, and then a scalar, a length, or the type and length of an array. */
const afterKeyBytes = 4 + 12;
const tensorInfoBytesMax = lengthBytes + tensorNameBytesMax + 4 + 8 * dimensionsMax + 4 + 8;
/** No list with one item a layer is longer. */
const keptValuesMax = 1_024;
const stringType = 8;
const arrayType = 9;

/** Bytes of each scalar type by its id; the rest are texts and arrays. */
const scalarBytes: readonly (number | null)[] = [1, 1, 2, 2, 4, 4, 4, 1, null, null, 8, 8, 8];

/** Reads the header of a GGUF file. Rejects with `model_invalid` when it is cut short, damaged or no GGUF. */
export async function readGgufHeader(source: ByteSource, signal?: AbortSignal): Promise<GgufHeader> {
  const reader = new WindowReader(source, signal);
  const version = await readVersion(reader);
  const tensorCount = reader.count(24, 'tensors', tensorsMax);
  const keyCount = reader.count(13, 'keys', keysMax);
  const { scalars, arrays } = await readMetadata(reader, keyCount);
  return { version, scalars, arrays, tensors: tensorCount, ...await readTensors(reader, tensorCount, alignmentOf(reader, scalars)) };
}

async function readVersion(reader: WindowReader): Promise<number> {
  if (reader.sizeBytes < 24) throw reader.fault(`it is no GGUF model file: it has ${String(reader.sizeBytes)} bytes; a GGUF header has at least 24`);
  await reader.prepare(24);
  const magic = reader.take(4);
  if (magic.toString('latin1') !== 'GGUF') throw reader.fault(`it is no GGUF model file: it does not begin with GGUF but with bytes ${magic.toString('hex')}`);
  const version = reader.u32();
  if (version !== 2 && version !== 3) {
    const bigEndian = (version & 0xffff) === 0 ? ' (written for another byte order)' : '';
    throw reader.fault(`it is GGUF version ${String(version)}${bigEndian}; versions 2 and 3 can be read`);
  }
  return version;
}

async function readMetadata(reader: WindowReader, keyCount: number): Promise<{ scalars: Map<string, GgufScalar>; arrays: Map<string, GgufArray> }> {
  const scalars = new Map<string, GgufScalar>();
  const arrays = new Map<string, GgufArray>();
  for (let index = 0; index < keyCount; index++) {
    if (!reader.ready(lengthBytes)) await reader.prepare(lengthBytes);
    const keyBytes = reader.textBytes(keyBytesMax, `key ${String(index)}`);
    if (!reader.ready(keyBytes + afterKeyBytes)) await reader.prepare(keyBytes + afterKeyBytes);
    const key = reader.take(keyBytes).toString('utf8');
    if (key === '') throw reader.fault(`key ${String(index)} is empty`);
    if (scalars.has(key) || arrays.has(key)) throw reader.fault(`key ${key} stands there twice`);
    const type = reader.u32();
    if (type === arrayType) arrays.set(key, await readArray(reader, key));
    else if (type === stringType) scalars.set(key, await readText(reader, key));
    else scalars.set(key, decodeScalar(reader.take(sizeOf(reader, type, key)), type));
  }
  return { scalars, arrays };
}

async function readText(reader: WindowReader, key: string): Promise<string> {
  const bytes = reader.textBytes(valueBytesMax, `the value of ${key}`);
  if (!reader.ready(bytes)) await reader.prepare(bytes);
  return reader.take(bytes).toString('utf8');
}

function sizeOf(reader: WindowReader, type: number, key: string): number {
  return scalarBytes[type] ?? (() => { throw reader.fault(`${key} has the unknown type ${String(type)}`); })();
}

function decodeScalar(bytes: Buffer, type: number, at = 0): GgufScalar {
  switch (type) {
    case 0: return bytes.readUInt8(at);
    case 1: return bytes.readInt8(at);
    case 2: return bytes.readUInt16LE(at);
    case 3: return bytes.readInt16LE(at);
    case 4: return bytes.readUInt32LE(at);
    case 5: return bytes.readInt32LE(at);
    case 6: return bytes.readFloatLE(at);
    case 7: return bytes.readUInt8(at) !== 0;
    case 10: return bytes.readBigUInt64LE(at);
    case 11: return bytes.readBigInt64LE(at);
    default: return bytes.readDoubleLE(at);
  }
}

async function readArray(reader: WindowReader, key: string): Promise<GgufArray> {
  const elementType = reader.u32();
  if (elementType === arrayType) throw reader.fault(`${key} is an array of arrays, which GGUF readers refuse`);
  if (elementType === stringType) return readTexts(reader, key);
  const size = sizeOf(reader, elementType, key);
  const length = reader.count(size, `items of ${key}`);
  if (length > keptValuesMax) {
    reader.skip(length * size);
    return { elementType, length, values: null, repeated: null };
  }
  if (!reader.ready(length * size)) await reader.prepare(length * size);
  const items = reader.take(length * size);
  const values = Array.from({ length }, (_, index) => Number(decodeScalar(items, elementType, index * size)));
  return { elementType, length, values, repeated: null };
}

async function readTexts(reader: WindowReader, key: string): Promise<GgufArray> {
  const length = reader.count(8, `texts of ${key}`, textsMax);
  const seen = key === 'tokenizer.ggml.tokens' ? new Set<string>() : null;
  let repeated: string | null = null;
  for (let index = 0; index < length; index++) {
    if (!reader.ready(lengthBytes)) await reader.prepare(lengthBytes);
    const bytes = reader.textBytes(valueBytesMax, `a text of ${key}`);
    if (seen === null) {
      reader.skip(bytes);
      continue;
    }
    if (!reader.ready(bytes)) await reader.prepare(bytes);
    // As Latin-1 each byte is one character: fast, and two texts are equal exactly when their bytes are.
    const item = reader.take(bytes).toString('latin1');
    if (item !== '' && seen.has(item)) repeated ??= item;
    seen.add(item);
  }
  return { elementType: stringType, length, values: null, repeated };
}

function alignmentOf(reader: WindowReader, scalars: ReadonlyMap<string, GgufScalar>): number {
  const alignment = scalars.get('general.alignment') ?? 32;
  if (typeof alignment !== 'number' || alignment < 1 || alignment > 65_536 || !Number.isInteger(Math.log2(alignment))) {
    throw reader.fault(`general.alignment is ${String(alignment)}, not a power of two`);
  }
  return alignment;
}

type Tensors = Pick<GgufHeader, 'groups' | 'tensorBytes' | 'unknownTypes' | 'dataBytes'>;

async function readTensors(reader: WindowReader, tensorCount: number, alignment: number): Promise<Tensors> {
  const names = new Set<string>();
  const groups = new TensorGroups();
  const unknownTypes = new Set<number>();
  let tensorBytes = 0;
  let last = { name: '', end: 0n };
  for (let index = 0; index < tensorCount; index++) {
    if (!reader.ready(tensorInfoBytesMax)) await reader.prepare(tensorInfoBytesMax);
    const name = reader.take(reader.textBytes(tensorNameBytesMax, `the name of tensor ${String(index)}`)).toString('utf8');
    if (names.has(name)) throw reader.fault(`tensor ${name} stands there twice`);
    names.add(name);
    const dimensions = readDimensions(reader, name);
    const typeId = reader.u32();
    const offset = reader.u64();
    const { elements, bytes } = sizeOfTensor(reader, name, dimensions, typeId);
    if (bytes === null) unknownTypes.add(typeId);
    // As llama.cpp demands them: one after the other.
    if (offset < last.end) throw reader.fault(`tensor ${name} begins at byte ${String(offset)} of the data, inside tensor ${last.name}`);
    last = { name, end: offset + (bytes ?? 0n) };
    groups.add(name, tensorTypeName(typeId), dimensions, Number(elements), Number(bytes ?? 0n));
    tensorBytes += Number(bytes ?? 0n);
  }
  const dataOffset = Math.ceil(reader.offset / alignment) * alignment;
  // What has no data needs no room for it, the padding before it included.
  if (last.end > 0n && BigInt(dataOffset) + last.end > BigInt(reader.sizeBytes)) {
    throw reader.fault(`it is cut short: tensor ${last.name} ends at byte ${String(BigInt(dataOffset) + last.end)}, the file at byte ${String(reader.sizeBytes)}`);
  }
  return { groups: groups.all(), tensorBytes, unknownTypes: [...unknownTypes], dataBytes: Math.max(0, reader.sizeBytes - dataOffset) };
}

function readDimensions(reader: WindowReader, name: string): readonly number[] {
  const count = reader.u32();
  if (count > dimensionsMax) throw reader.fault(`tensor ${name} has ${String(count)} dimensions; at most ${String(dimensionsMax)} are allowed`);
  const dimensions: number[] = [];
  for (let index = 0; index < count; index++) {
    const size = reader.u64();
    if (size < 1n || size > BigInt(Number.MAX_SAFE_INTEGER)) throw reader.fault(`tensor ${name} has a dimension of ${String(size)}`);
    dimensions.push(Number(size));
  }
  return dimensions;
}

/** Exact, since four dimensions can multiply beyond any number; no bytes for a type this reader does not know. */
function sizeOfTensor(reader: WindowReader, name: string, dimensions: readonly number[], typeId: number): { readonly elements: bigint; readonly bytes: bigint | null } {
  const elements = dimensions.reduce((product, size) => product * BigInt(size), 1n);
  const block = blockOf(typeId);
  if (block === null) return { elements, bytes: null };
  const [blockElements, blockBytes] = block;
  if ((dimensions[0] ?? 1) % blockElements !== 0) throw reader.fault(`tensor ${name} has rows of ${String(dimensions[0])} elements, which its type cannot divide`);
  return { elements, bytes: (elements / BigInt(blockElements)) * BigInt(blockBytes) };
}
