/**
 * The header of a safetensors file: eight bytes of length, then JSON. Every offset is held against shape, type and the
 * file's size, and the tensors must fill the file without gap or overlap, as the format's own reader demands (B161).
 */
import { unusableFile } from './fault.js';
import { JsonScanner } from './json-scanner.js';
import { NameMark } from './name-mark.js';
import type { ByteSource } from './source.js';
import { TensorGroups, type TensorGroup } from './tensor-groups.js';
import type { LeaseholdError } from '../../../protocol/index.js';

export interface SafetensorsHeader {
  readonly tensors: number;
  /** A mark of their names, to be held against the index's (B157). */
  readonly namesMark: string;
  readonly groups: readonly TensorGroup[];
  /** Bytes of all tensors: what follows the header. */
  readonly tensorBytes: number;
  /** Length prefix and JSON. */
  readonly headerBytes: number;
  readonly metadata: Readonly<Record<string, string>>;
}

/** As the format's own reader has it. */
export const safetensorsHeaderBytesMax = 100_000_000;
/** Most headers are whole in the first read; the rest of a longer one comes by exactly one more (B158). */
export const firstReadBytes = 131_072;
const prefixBytes = 8;
/** A model of 300,000 tensors is one of a thousand files. */
const tensorsMax = 300_000;
const dimensionsMax = 64;
const nameCharactersMax = 1_024;
const metadataBytesMax = 4 * 1024 * 1024;
const metadataKeysMax = 10_000;

/** Bits of an element. */
const dtypeBits: ReadonlyMap<string, number> = new Map([
  ['BOOL', 8], ['F4', 4], ['F6_E2M3', 6], ['F6_E3M2', 6], ['U8', 8], ['I8', 8], ['F8_E5M2', 8], ['F8_E4M3', 8], ['F8_E8M0', 8], ['F8_E4M3FNUZ', 8], ['F8_E5M2FNUZ', 8],
  ['I16', 16], ['U16', 16], ['F16', 16], ['BF16', 16], ['I32', 32], ['U32', 32], ['F32', 32], ['C64', 64], ['F64', 64], ['I64', 64], ['U64', 64],
]);

/** Rejects with `model_invalid` and a precise reason. */
export async function readSafetensorsHeader(source: ByteSource, signal?: AbortSignal): Promise<SafetensorsHeader> {
  return (await parsed(source, signal)).header;
}

/** The names of its tensors, in their order. Rejects as `readSafetensorsHeader` does. */
export async function readSafetensorsNames(source: ByteSource, signal?: AbortSignal): Promise<readonly string[]> {
  return (await parsed(source, signal)).names;
}

async function parsed(source: ByteSource, signal: AbortSignal | undefined): Promise<{ readonly header: SafetensorsHeader; readonly names: readonly string[] }> {
  const fault = (reason: string): LeaseholdError => unusableFile(source.name, reason);
  const { sizeBytes } = source;
  if (sizeBytes < prefixBytes) throw fault(`it has ${String(sizeBytes)} bytes; a safetensors header has at least ${String(prefixBytes)}`);
  signal?.throwIfAborted();
  const first = Buffer.from(await source.read(0, Math.min(firstReadBytes, sizeBytes)));
  const announced = first.readBigUInt64LE(0);
  if (announced > BigInt(sizeBytes - prefixBytes)) {
    throw fault(announced < 1n << 40n ? `it is cut short: its header should have ${String(announced)} bytes, and the file has ${String(sizeBytes)}` : `it is no safetensors file: it begins with ${first.toString('hex', 0, prefixBytes)}`);
  }
  if (announced > BigInt(safetensorsHeaderBytesMax)) throw fault(`its header has ${String(announced)} bytes; at most ${String(safetensorsHeaderBytesMax)} are allowed`);
  const headerBytes = prefixBytes + Number(announced);
  signal?.throwIfAborted();
  const rest = headerBytes > first.length ? await source.read(first.length, headerBytes - first.length) : new Uint8Array();
  const json = Buffer.concat([first.subarray(prefixBytes, Math.min(headerBytes, first.length)), rest]);
  const parser = new HeaderParser(json, sizeBytes - headerBytes, fault);
  return { header: { ...parser.parse(), headerBytes }, names: parser.names };
}

class HeaderParser {
  readonly #scanner: JsonScanner;
  readonly #groups = new TensorGroups();
  readonly #names = new Map<string, number>();
  readonly #mark = new NameMark();
  readonly #begins: number[] = [];
  readonly #ends: number[] = [];
  #metadata: Readonly<Record<string, string>> | null = null;

  constructor(json: Buffer, private readonly dataBytes: number, private readonly fault: (reason: string) => LeaseholdError) {
    this.#scanner = new JsonScanner(json, fault);
  }

  get names(): readonly string[] {
    return [...this.#names.keys()];
  }

  parse(): Omit<SafetensorsHeader, 'headerBytes'> {
    this.#scanner.object((name) => {
      if (name === '__metadata__') this.#readMetadata();
      else this.#readTensor(name);
    });
    this.#scanner.end();
    this.#checkLayout();
    return { tensors: this.#names.size, namesMark: String(this.#mark), groups: this.#groups.all(), tensorBytes: this.dataBytes, metadata: this.#metadata ?? {} };
  }

  #readMetadata(): void {
    if (this.#metadata !== null) throw this.fault('__metadata__ stands there twice');
    const found = new Map<string, string>();
    const from = this.#scanner.offset;
    this.#scanner.object((key) => {
      if (found.has(key)) throw this.fault(`__metadata__ has ${JSON.stringify(key.slice(0, 200))} twice`);
      if (found.size >= metadataKeysMax) throw this.fault(`__metadata__ has more than ${String(metadataKeysMax)} keys`);
      found.set(key, this.#scanner.text());
      if (this.#scanner.offset - from > metadataBytesMax) throw this.fault(`__metadata__ has more than ${String(metadataBytesMax)} bytes`);
    });
    this.#metadata = Object.fromEntries(found);
  }

  #readTensor(name: string): void {
    if (name.length > nameCharactersMax) throw this.fault(`a tensor's name has ${String(name.length)} characters; at most ${String(nameCharactersMax)} are sensible`);
    if (this.#names.has(name)) throw this.fault(`tensor ${name} stands there twice`);
    if (this.#names.size >= tensorsMax) throw this.fault(`it names more than ${String(tensorsMax)} tensors`);
    let dtype: string | null = null;
    let shape: number[] | null = null;
    let offsets: number[] | null = null;
    this.#scanner.object((field) => {
      if (field === 'dtype' && dtype === null) dtype = this.#scanner.text();
      else if (field === 'shape' && shape === null) shape = this.#counts(name, field, dimensionsMax);
      else if (field === 'data_offsets' && offsets === null) offsets = this.#counts(name, field, 2);
      else if (field === 'dtype' || field === 'shape' || field === 'data_offsets') throw this.fault(`tensor ${name} has ${field} twice`);
      else this.#scanner.value();
    });
    this.#take(name, dtype, shape, offsets);
  }

  #counts(name: string, field: string, most: number): number[] {
    const counts: number[] = [];
    this.#scanner.array(() => {
      if (counts.length >= most) throw this.fault(`${field} of tensor ${name} has more than ${String(most)} items`);
      counts.push(this.#scanner.count());
    });
    return counts;
  }

  #take(name: string, dtype: string | null, shape: readonly number[] | null, offsets: readonly number[] | null): void {
    const [begin, end] = offsets ?? [];
    if (dtype === null || shape === null || begin === undefined || end === undefined) throw this.fault(`tensor ${name} lacks dtype, shape or data_offsets`);
    const bits = dtypeBits.get(dtype);
    if (bits === undefined) throw this.fault(`tensor ${name} has the unknown dtype ${JSON.stringify(dtype.slice(0, 40))}`);
    if (begin > end) throw this.fault(`tensor ${name} ends at byte ${String(end)}, before it begins at ${String(begin)}`);
    if (end > this.dataBytes) throw this.fault(`it is cut short: tensor ${name} ends at byte ${String(end)} of the data, which has ${String(this.dataBytes)}`);
    const elements = shape.reduce((product, size) => product * BigInt(size), 1n);
    if (elements * BigInt(bits) !== BigInt(end - begin) * 8n) {
      throw this.fault(`tensor ${name} of shape [${shape.join(', ')}] and dtype ${dtype} does not have the ${String(end - begin)} bytes of its offsets`);
    }
    this.#names.set(name, this.#begins.length);
    this.#mark.add(name);
    this.#begins.push(begin);
    this.#ends.push(end);
    this.#groups.add(name, dtype, shape, Number(elements), end - begin);
  }

  /** In order of their begins, each tensor begins where the one before ended, and the last ends with the file. */
  #checkLayout(): void {
    const [begins, ends] = [this.#begins, this.#ends];
    const order = Uint32Array.from(begins.keys());
    const ascending = begins.every((begin, index) => index === 0 || begin >= (ends[index - 1] ?? 0));
    if (!ascending) order.sort((a, b) => (begins[a] ?? 0) - (begins[b] ?? 0) || (ends[a] ?? 0) - (ends[b] ?? 0));
    let endBytes = 0;
    let before = -1;
    for (const index of order) {
      const begin = begins[index] ?? 0;
      if (begin < endBytes) throw this.fault(`tensors ${this.#nameOf(before)} and ${this.#nameOf(index)} overlap`);
      if (begin > endBytes) throw this.fault(`${String(begin - endBytes)} bytes before tensor ${this.#nameOf(index)} belong to no tensor`);
      endBytes = ends[index] ?? 0;
      before = index;
    }
    if (endBytes < this.dataBytes) throw this.fault(`the last ${String(this.dataBytes - endBytes)} bytes belong to no tensor`);
  }

  #nameOf(index: number): string {
    return [...this.#names].find(([, place]) => place === index)?.[0] ?? '?';
  }
}
