/**
 * The smallest model that makes a card do what real ones make it do: half-precision matrices, flash attention, a prompt
 * and a token. About 400 KiB.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { byteVocabulary } from './byte-vocabulary.js';
import { toHalf, writeGguf, type GgufSource, type GgufTensorSource, type GgufValue } from './gguf-writer.js';
import type { Library } from './library.js';

type Llama = Awaited<ReturnType<Library['getLlama']>>;

const embedding = 256;
const headSize = 64;
const vocabulary = 257;
const contextTokens = 256;
const promptTokens = 48;

/** Loads the model onto the card in whole, evaluates a prompt, samples one token and gives everything back. */
export async function runOneToken(llama: Llama): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-probe-'));
  try {
    const modelPath = join(folder, 'probe.gguf');
    await writeGguf(modelPath, probeModel());
    const model = await llama.loadModel({ modelPath, gpuLayers: 2, useMmap: false, ignoreMemorySafetyChecks: true, defaultContextFlashAttention: true });
    try {
      const sizes = { contextSize: contextTokens, batchSize: contextTokens, flashAttention: true, threads: 1 };
      const context = await model.createContext({ ...sizes, ignoreMemorySafetyChecks: true, failedCreationRemedy: false });
      const prompt = Array.from({ length: promptTokens }, (_, index) => index) as ReturnType<typeof model.tokenize>;
      for await (const _token of context.getSequence().evaluate(prompt, { temperature: 0, yieldEogToken: true })) break;
      await context.dispose();
    } finally {
      await model.dispose();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function probeModel(): GgufSource {
  const u32 = (value: number): GgufValue => ({ kind: 'u32', value });
  const matrix = (name: string, columns: number, rows: number): GgufTensorSource => tensor(name, [columns, rows], 'f16');
  const norm = (name: string): GgufTensorSource => tensor(name, [embedding], 'f32');
  return {
    metadata: new Map<string, GgufValue>([
      ['general.architecture', { kind: 'string', value: 'llama' }],
      ['llama.block_count', u32(1)],
      ['llama.context_length', u32(contextTokens)],
      ['llama.embedding_length', u32(embedding)],
      ['llama.feed_forward_length', u32(embedding)],
      ['llama.attention.head_count', u32(embedding / headSize)],
      ['llama.attention.head_count_kv', u32(embedding / headSize)],
      ['llama.attention.layer_norm_rms_epsilon', { kind: 'f32', value: 1e-5 }],
      ['llama.rope.dimension_count', u32(headSize)],
      ...byteVocabulary([{ text: '<|end|>', kind: 'control' }], vocabulary - 1),
    ]),
    tensors: [
      matrix('token_embd.weight', embedding, vocabulary), norm('output_norm.weight'), matrix('output.weight', embedding, vocabulary),
      norm('blk.0.attn_norm.weight'), norm('blk.0.ffn_norm.weight'),
      ...['attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down'].map((name) => matrix(`blk.0.${name}.weight`, embedding, embedding)),
    ],
  };
}

function tensor(name: string, dimensions: readonly number[], type: 'f16' | 'f32'): GgufTensorSource {
  return {
    name,
    dimensions,
    type,
    *data() {
      const elements = dimensions.reduce((product, size) => product * size, 1);
      const values = type === 'f32' ? new Float32Array(elements).fill(1) : Uint16Array.from({ length: elements }, (_, index) => toHalf(((index * 7919) % 255 - 127) / 2_000));
      yield new Uint8Array(values.buffer);
    },
  };
}
