/**
 * The header of a GGUF file, read without trusting it. Neither llama.cpp nor its bindings are shown a file before its
 * lengths, counts and offsets have been compared with its size: they allocate what a header announces, and some values
 * end their process.
 */
import { GgufFault, GgufReader } from './gguf-reader.js';

export type GgufScalar = number | bigint | boolean | string;

/** An array in the metadata: its items are not kept, only what is needed to judge it. */
export interface GgufArray {
  readonly elementType: number;
  readonly length: number;
  /** For arrays of texts: one that stands there twice (empty ones may); null when all differ. */
  readonly repeated: string | null;
}

export interface GgufHeader {
  readonly version: number;
  readonly scalars: ReadonlyMap<string, GgufScalar>;
  readonly arrays: ReadonlyMap<string, GgufArray>;
  readonly tensors: readonly GgufTensor[];
  /** Bytes of all tensors whose type is known. */
  readonly tensorBytes: number;
}

export interface GgufTensor {
  readonly name: string;
  readonly dimensions: readonly number[];
  readonly typeId: number;
}

const keyBytesMax = 65_535;
const valueBytesMax = 1024 * 1024;
const tensorNameBytesMax = 63;
const dimensionsMax = 4;
const stringType = 8;
const arrayType = 9;

/** Bytes of each scalar type by its id; the rest are texts and arrays. */
const scalarBytes: readonly (number | null)[] = [1, 1, 2, 2, 4, 4, 4, 1, null, null, 8, 8, 8];

/** Elements and bytes of a block of each tensor type, by id. */
const tensorBlocks: ReadonlyMap<number, readonly [elements: number, bytes: number]> = new Map([
  [0, [1, 4]], [1, [1, 2]], [2, [32, 18]], [3, [32, 20]], [6, [32, 22]], [7, [32, 24]], [8, [32, 34]], [9, [32, 40]],
  [10, [256, 84]], [11, [256, 110]], [12, [256, 144]], [13, [256, 176]], [14, [256, 210]], [15, [256, 292]],
  [16, [256, 66]], [17, [256, 74]], [18, [256, 98]], [19, [256, 50]], [20, [32, 18]], [21, [256, 110]], [22, [256, 82]],
  [23, [256, 136]], [24, [1, 1]], [25, [1, 2]], [26, [1, 4]], [27, [1, 8]], [28, [1, 8]], [29, [256, 56]], [30, [1, 2]],
  [34, [256, 54]], [35, [256, 66]], [39, [32, 17]], [40, [64, 36]], [41, [128, 18]], [42, [64, 18]],
]);

/** Reads the header of the file at `path`. Rejects with a `GgufFault` when the file is missing, cut short or no GGUF. */
export async function readGgufHeader(path: string, signal: AbortSignal): Promise<GgufHeader> {
  const reader = await GgufReader.open(path, signal);
  try {
    const version = await readVersion(reader);
    const tensorCount = await reader.count(24, 'tensors');
    const keyCount = await reader.count(13, 'keys');
    const { scalars, arrays } = await readMetadata(reader, keyCount);
    const { tensors, tensorBytes } = await readTensors(reader, tensorCount, alignmentOf(scalars));
    return { version, scalars, arrays, tensors, tensorBytes };
  } finally {
    await reader.close();
  }
}

async function readVersion(reader: GgufReader): Promise<number> {
  if (reader.fileBytes < 24) throw new GgufFault(`it has ${String(reader.fileBytes)} bytes; a GGUF header has at least 24`);
  await reader.fill(24);
  const magic = reader.take(4);
  if (magic.toString('latin1') !== 'GGUF') throw new GgufFault(`it does not begin with GGUF but with bytes ${magic.toString('hex')}`);
  const version = await reader.u32();
  if (version !== 2 && version !== 3) {
    const bigEndian = (version & 0xffff) === 0 ? ' (written for another byte order)' : '';
    throw new GgufFault(`it is GGUF version ${String(version)}${bigEndian}; versions 2 and 3 can be read`);
  }
  return version;
}

async function readMetadata(reader: GgufReader, keyCount: number): Promise<{ scalars: Map<string, GgufScalar>; arrays: Map<string, GgufArray> }> {
  const scalars = new Map<string, GgufScalar>();
  const arrays = new Map<string, GgufArray>();
  for (let index = 0; index < keyCount; index++) {
    const key = await reader.text(keyBytesMax, `key ${String(index)}`);
    if (key === '') throw new GgufFault(`key ${String(index)} is empty`);
    if (scalars.has(key) || arrays.has(key)) throw new GgufFault(`key ${key} stands there twice`);
    const type = await reader.u32();
    if (type === arrayType) arrays.set(key, await readArray(reader, key));
    else scalars.set(key, await readScalar(reader, type, key));
  }
  return { scalars, arrays };
}

async function readScalar(reader: GgufReader, type: number, key: string): Promise<GgufScalar> {
  if (type === stringType) return reader.text(valueBytesMax, `the value of ${key}`);
  const size = scalarBytes[type];
  if (size === undefined || size === null) throw new GgufFault(`${key} has the unknown type ${String(type)}`);
  if (!reader.holds(size)) await reader.fill(size);
  return decodeScalar(reader.take(size), type);
}

function decodeScalar(bytes: Buffer, type: number): GgufScalar {
  switch (type) {
    case 0: return bytes.readUInt8(0);
    case 1: return bytes.readInt8(0);
    case 2: return bytes.readUInt16LE(0);
    case 3: return bytes.readInt16LE(0);
    case 4: return bytes.readUInt32LE(0);
    case 5: return bytes.readInt32LE(0);
    case 6: return bytes.readFloatLE(0);
    case 7: return bytes.readUInt8(0) !== 0;
    case 10: return bytes.readBigUInt64LE(0);
    case 11: return bytes.readBigInt64LE(0);
    default: return bytes.readDoubleLE(0);
  }
}

async function readArray(reader: GgufReader, key: string): Promise<GgufArray> {
  const elementType = await reader.u32();
  if (elementType === arrayType) throw new GgufFault(`${key} is an array of arrays, which GGUF readers refuse`);
  if (elementType === stringType) return readTexts(reader, key);
  const size = scalarBytes[elementType];
  if (size === undefined || size === null) throw new GgufFault(`${key} holds the unknown type ${String(elementType)}`);
  const length = await reader.count(size, `items of ${key}`);
  reader.skip(length * size);
  return { elementType, length, repeated: null };
}

async function readTexts(reader: GgufReader, key: string): Promise<GgufArray> {
  const length = await reader.count(8, `texts of ${key}`);
  const seen = new Set<string>();
  let repeated: string | null = null;
  for (let index = 0; index < length; index++) {
    const bytes = await reader.count(1, `bytes of a text of ${key}`);
    if (bytes > valueBytesMax) throw new GgufFault(`a text of ${key} has ${String(bytes)} bytes`);
    if (!reader.holds(bytes)) await reader.fill(bytes);
    // As Latin-1 each byte is one character: fast, and two texts are equal exactly when their bytes are.
    const item = reader.take(bytes).toString('latin1');
    if (item !== '' && seen.has(item)) repeated ??= item;
    seen.add(item);
  }
  return { elementType: stringType, length, repeated };
}

function alignmentOf(scalars: ReadonlyMap<string, GgufScalar>): number {
  const alignment = scalars.get('general.alignment') ?? 32;
  if (typeof alignment !== 'number' || alignment < 1 || alignment > 65_536 || !Number.isInteger(Math.log2(alignment))) {
    throw new GgufFault(`general.alignment is ${String(alignment)}, not a power of two`);
  }
  return alignment;
}

async function readTensors(reader: GgufReader, tensorCount: number, alignment: number): Promise<{ tensors: GgufTensor[]; tensorBytes: number }> {
  const tensors: GgufTensor[] = [];
  const names = new Set<string>();
  let tensorBytes = 0;
  let lastEnd = { name: '', bytes: 0n };
  for (let index = 0; index < tensorCount; index++) {
    const name = await reader.text(tensorNameBytesMax, `the name of tensor ${String(index)}`);
    if (names.has(name)) throw new GgufFault(`tensor ${name} stands there twice`);
    names.add(name);
    const dimensions = await readDimensions(reader, name);
    const typeId = await reader.u32();
    const offset = await reader.u64();
    const bytes = bytesOfTensor(name, dimensions, typeId);
    tensors.push({ name, dimensions, typeId });
    tensorBytes += Number(bytes);
    if (offset + bytes > lastEnd.bytes) lastEnd = { name, bytes: offset + bytes };
  }
  const dataOffset = Math.ceil(reader.offset / alignment) * alignment;
  if (BigInt(dataOffset) + lastEnd.bytes > BigInt(reader.fileBytes)) {
    throw new GgufFault(`it is cut short: tensor ${lastEnd.name} ends at byte ${String(BigInt(dataOffset) + lastEnd.bytes)}, the file at byte ${String(reader.fileBytes)}`);
  }
  return { tensors, tensorBytes };
}

async function readDimensions(reader: GgufReader, name: string): Promise<readonly number[]> {
  const count = await reader.u32();
  if (count > dimensionsMax) throw new GgufFault(`tensor ${name} has ${String(count)} dimensions; at most ${String(dimensionsMax)} are allowed`);
  const dimensions: number[] = [];
  for (let index = 0; index < count; index++) {
    const size = await reader.u64();
    if (size < 1n || size > BigInt(Number.MAX_SAFE_INTEGER)) throw new GgufFault(`tensor ${name} has a dimension of ${String(size)}`);
    dimensions.push(Number(size));
  }
  return dimensions;
}

/** Exact, since four dimensions can multiply beyond any number; 0 for a type this reader does not know. */
function bytesOfTensor(name: string, dimensions: readonly number[], typeId: number): bigint {
  const block = tensorBlocks.get(typeId);
  if (block === undefined) return 0n;
  const [blockElements, blockBytes] = block;
  if ((dimensions[0] ?? 1) % blockElements !== 0) throw new GgufFault(`tensor ${name} has rows of ${String(dimensions[0])} elements, which its type cannot divide`);
  return (dimensions.reduce((product, size) => product * BigInt(size), 1n) / BigInt(blockElements)) * BigInt(blockBytes);
}
