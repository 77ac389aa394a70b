/** A model of random weights in the shape of a Llama of eight billion parameters, for checks on a real card. */
import { byteVocabulary, type Piece } from './byte-vocabulary.js';
import { tensorBytes, toHalf, type GgufSource, type GgufTensorSource, type GgufValue } from './gguf-writer.js';

export interface LlamaShape {
  readonly embedding: number;
  readonly feedForward: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly vocabulary: number;
  readonly contextTokens: number;
}

/** 14.5 GB in half precision. */
export const eightBillion: LlamaShape = { embedding: 4_096, feedForward: 14_336, layers: 32, heads: 32, kvHeads: 8, vocabulary: 32_000, contextTokens: 32_768 };

const blockBytes = 32 * 1024 * 1024;

export function largeModel(shape: LlamaShape = eightBillion): GgufSource {
  const { embedding, feedForward, layers, heads, kvHeads, vocabulary } = shape;
  const noise = noiseBlock();
  const keyValue = (embedding / heads) * kvHeads;
  const matrix = (name: string, columns: number, rows: number): GgufTensorSource => repeated(name, [columns, rows], 'f16', noise);
  const norm = (name: string): GgufTensorSource => repeated(name, [embedding], 'f32', onesBlock(embedding));
  const blocks = Array.from({ length: layers }, (_, layer): GgufTensorSource[] => {
    const of = (part: string): string => `blk.${String(layer)}.${part}.weight`;
    return [
      norm(of('attn_norm')), norm(of('ffn_norm')),
      matrix(of('attn_q'), embedding, embedding), matrix(of('attn_k'), embedding, keyValue), matrix(of('attn_v'), embedding, keyValue), matrix(of('attn_output'), embedding, embedding),
      matrix(of('ffn_gate'), embedding, feedForward), matrix(of('ffn_up'), embedding, feedForward), matrix(of('ffn_down'), feedForward, embedding),
    ];
  });
  return {
    metadata: metadataOf(shape),
    tensors: [matrix('token_embd.weight', embedding, vocabulary), norm('output_norm.weight'), matrix('output.weight', embedding, vocabulary), ...blocks.flat()],
  };
}

function metadataOf(shape: LlamaShape): ReadonlyMap<string, GgufValue> {
  const u32 = (value: number): GgufValue => ({ kind: 'u32', value });
  const end: Piece = { text: '<|end|>', kind: 'control' };
  const fillers = Array.from({ length: shape.vocabulary - 257 }, (_, index): Piece => ({ text: ` w${String(index)}`, kind: 'normal' }));
  return new Map<string, GgufValue>([
    ['general.architecture', { kind: 'string', value: 'llama' }],
    ['llama.block_count', u32(shape.layers)],
    ['llama.context_length', u32(shape.contextTokens)],
    ['llama.embedding_length', u32(shape.embedding)],
    ['llama.feed_forward_length', u32(shape.feedForward)],
    ['llama.attention.head_count', u32(shape.heads)],
    ['llama.attention.head_count_kv', u32(shape.kvHeads)],
    ['llama.attention.layer_norm_rms_epsilon', { kind: 'f32', value: 1e-5 }],
    ['llama.rope.dimension_count', u32(shape.embedding / shape.heads)],
    ['llama.vocab_size', u32(shape.vocabulary)],
    ...byteVocabulary([end, ...fillers], 256),
  ]);
}

/** The block over and over: random enough for arithmetic, and made once. */
function repeated(name: string, dimensions: readonly number[], type: 'f16' | 'f32', block: Uint8Array): GgufTensorSource {
  const source: GgufTensorSource = {
    name,
    dimensions,
    type,
    *data() {
      for (let left = tensorBytes(source); left > 0; left -= block.length) yield left < block.length ? block.subarray(0, left) : block;
    },
  };
  return source;
}

function noiseBlock(): Uint8Array {
  const halves = new Uint16Array(blockBytes / 2);
  let state = 7;
  for (let index = 0; index < halves.length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    halves[index] = toHalf((state / 4_294_967_296 - 0.5) * 0.07);
  }
  return new Uint8Array(halves.buffer);
}

function onesBlock(length: number): Uint8Array {
  return new Uint8Array(new Float32Array(length).fill(1).buffer);
}
