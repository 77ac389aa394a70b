/** `model.safetensors.index.json`: which tensor lies in which file. */
import { unusableFile } from './fault.js';
import { fileNameFault } from './file-name.js';
import { JsonScanner, type JsonValue } from './json-scanner.js';
import { NameMark } from './name-mark.js';
import type { LeaseholdError } from '../../../protocol/index.js';

export interface SafetensorsIndex {
  /** Each file that is named, in order of first mention, and how many tensors are said to lie there, with a mark of their names. */
  readonly shards: readonly { readonly name: string; readonly tensors: number; readonly namesMark: string }[];
  readonly tensors: number;
  /** `metadata.total_size`; null when it is absent or no byte count. It is a label: the shards' own headers count. */
  readonly statedBytes: number | null;
}

export const indexBytesMax = 64 * 1024 * 1024;
const tensorsMax = 1_000_000;
const shardsMax = 10_000;
const nameCharactersMax = 1_024;

/**
 * Throws `model_invalid`: no map, an empty one, a tensor named twice, or a file name that is not a plain relative one
 * ending in `.safetensors` (B160). Whether the files exist is the caller's to hold against the repository's listing.
 */
export function readSafetensorsIndex(bytes: Uint8Array, name: string): SafetensorsIndex {
  return parsed(bytes, name, () => undefined);
}

/** The tensors that it puts into each of `wanted`. Throws as `readSafetensorsIndex` does. */
export function readIndexNames(bytes: Uint8Array, name: string, wanted: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const names = new Map<string, string[]>(wanted.map((shard) => [shard, []]));
  parsed(bytes, name, (tensor, shard) => { names.get(shard)?.push(tensor); });
  return names;
}

type OnTensor = (tensor: string, shard: string) => void;

function parsed(bytes: Uint8Array, name: string, onTensor: OnTensor): SafetensorsIndex {
  const fault = (reason: string): LeaseholdError => unusableFile(name, reason);
  if (bytes.length > indexBytesMax) throw fault(`the index has ${String(bytes.length)} bytes; at most ${String(indexBytesMax)} are sensible`);
  const scanner = new JsonScanner(bytes, fault);
  const seen = new Set<string>();
  const found: { shards: Map<string, Shard> | null; metadata: JsonValue } = { shards: null, metadata: null };
  scanner.object((key) => {
    if (seen.has(key)) throw fault(`the index has ${JSON.stringify(key.slice(0, 200))} twice`);
    seen.add(key);
    if (key === 'weight_map') found.shards = readMap(scanner, fault, onTensor);
    else if (key === 'metadata') found.metadata = scanner.value();
    else scanner.value();
  });
  scanner.end();
  const { shards, metadata } = found;
  if (shards === null || shards.size === 0) throw fault(shards === null ? 'the index has no weight_map' : 'the weight_map of the index is empty');
  const counts = [...shards].map(([shard, { tensors, mark }]) => ({ name: shard, tensors, namesMark: String(mark) }));
  return { shards: counts, tensors: counts.reduce((sum, { tensors }) => sum + tensors, 0), statedBytes: statedBytes(metadata) };
}

interface Shard {
  tensors: number;
  readonly mark: NameMark;
}

function readMap(scanner: JsonScanner, fault: (reason: string) => LeaseholdError, onTensor: OnTensor): Map<string, Shard> {
  const shards = new Map<string, Shard>();
  const tensors = new Set<string>();
  scanner.object((tensor) => {
    if (tensor.length > nameCharactersMax) throw fault(`a tensor's name has ${String(tensor.length)} characters; at most ${String(nameCharactersMax)} are sensible`);
    if (tensors.has(tensor)) throw fault(`the index has tensor ${tensor} twice`);
    if (tensors.size >= tensorsMax) throw fault(`the index names more than ${String(tensorsMax)} tensors`);
    tensors.add(tensor);
    const shard = scanner.text();
    const known = shards.get(shard);
    if (known === undefined) {
      const wrong = fileNameFault(shard) ?? (shard.endsWith('.safetensors') ? null : 'it does not end in .safetensors');
      if (wrong !== null) throw fault(`the index puts tensor ${tensor} into ${JSON.stringify(shard.slice(0, 200))}: ${wrong}`);
      if (shards.size >= shardsMax) throw fault(`the index names more than ${String(shardsMax)} files`);
    }
    const entry = known ?? { tensors: 0, mark: new NameMark() };
    entry.tensors++;
    entry.mark.add(tensor);
    onTensor(tensor, shard);
    shards.set(shard, entry);
  });
  return shards;
}

function statedBytes(metadata: JsonValue): number | null {
  if (metadata === null || typeof metadata !== 'object' || Array.isArray(metadata)) return null;
  const { total_size: stated } = metadata as { readonly [key: string]: JsonValue };
  return typeof stated === 'number' && Number.isSafeInteger(stated) && stated >= 0 ? stated : null;
}
