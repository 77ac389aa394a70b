/** Repositories for the test hub: the tiny models as they ship, and Transformers models as small as they can be. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { tinyModels, type TinyModelName } from '../../../workers/models/index.js';
import { encodeHeader, type GgufSource } from '../../../workers/llama/gguf-writer.js';
import { large, small, type HubFile } from './server.js';

/** The folder of a tiny model as a repository: safetensors, GGUF and all. */
export function tinyRepository(name: TinyModelName): readonly HubFile[] {
  const folder = tinyModels[name].directory;
  return readdirSync(folder).sort().map((file) => {
    const bytes = readFileSync(join(folder, file));
    return { path: file, bytes, large: /\.(safetensors|gguf)$/.test(file) };
  });
}

/** A safetensors file with tensors of so many bytes each. */
export function safetensors(tensors: Readonly<Record<string, number>>, fill = 1): Buffer {
  let offset = 0;
  const header = Object.fromEntries(Object.entries(tensors).map(([name, bytes]) => {
    const entry = { dtype: 'BF16', shape: [bytes / 2], data_offsets: [offset, offset + bytes] };
    offset += bytes;
    return [name, entry];
  }));
  return packed(JSON.stringify(header), Buffer.alloc(offset, fill));
}

/** A length, a header and what follows it. */
export function packed(header: string, data: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(Buffer.byteLength(header)));
  return Buffer.concat([length, Buffer.from(header), data]);
}

export const llamaConfig: Readonly<Record<string, unknown>> = { architectures: ['LlamaForCausalLM'], max_position_embeddings: 131_072, torch_dtype: 'bfloat16' };

export interface ModelParts {
  readonly config?: Readonly<Record<string, unknown>> | string;
  /** Tensors by file; more than one file gets an index. */
  readonly shards?: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** Instead of the index that fits. */
  readonly weightMap?: Readonly<Record<string, string>>;
  /** What the index says of all bytes. */
  readonly statedBytes?: number;
  readonly more?: readonly HubFile[];
}

/** A model in the Transformers layout. */
export function transformersModel({ config = llamaConfig, shards = { 'model.safetensors': { a: 64 } }, weightMap, statedBytes, more = [] }: ModelParts = {}): readonly HubFile[] {
  const names = Object.keys(shards);
  const map = weightMap ?? Object.fromEntries(names.flatMap((shard) => Object.keys(shards[shard] ?? {}).map((tensor) => [tensor, shard])));
  return [
    small('config.json', typeof config === 'string' ? config : JSON.stringify(config)),
    small('tokenizer.json', '{"model":{}}'),
    ...names.map((shard, index) => large(shard, safetensors(shards[shard] ?? {}, index + 1))),
    ...names.length > 1 || weightMap !== undefined ? [small('model.safetensors.index.json', JSON.stringify({ metadata: statedBytes === undefined ? {} : { total_size: statedBytes }, weight_map: map }))] : [],
    ...more,
  ];
}

/** A GGUF with one small tensor; `fill` tells one from another. */
export function gguf(metadata: Readonly<Record<string, string | number>> = {}, fill = 1): Buffer {
  const all: Record<string, string | number> = { 'general.architecture': 'qwen3', 'qwen3.context_length': 40_960, 'qwen3.block_count': 1, ...metadata };
  const data = new Uint8Array(64).fill(fill);
  const source: GgufSource = {
    metadata: new Map(Object.entries(all).map(([key, value]) => [key, typeof value === 'string' ? { kind: 'string', value } : { kind: 'u32', value }])),
    tensors: [{ name: 'token_embd.weight', dimensions: [32], type: 'f16', data: () => [data] }],
  };
  return Buffer.concat([encodeHeader(source), data]);
}

/** A file that sees images beside a GGUF. */
export function projector(fill = 1, metadata: Readonly<Record<string, string | number>> = {}): Buffer {
  return gguf({ 'general.architecture': 'clip', ...metadata }, fill);
}

/** All parts of a split GGUF. */
export function splitGguf(stem: string, parts: number): readonly HubFile[] {
  const number = (value: number): string => String(value).padStart(5, '0');
  return Array.from({ length: parts }, (_, index) => large(
    `${stem}-${number(index + 1)}-of-${number(parts)}.gguf`, gguf({ 'split.no': index, 'split.count': parts, 'split.tensors.count': parts }, index + 1),
  ));
}
