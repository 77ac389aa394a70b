// The bytes that a model will need, from what its files say: scenarios from the field, and what may never happen.
import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import type { JsonObject } from '../../src/models/formats/config-json.js';
import { readGgufHeader, type GgufHeader } from '../../src/models/formats/gguf-header.js';
import { bytesSource } from '../../src/models/formats/source.js';
import { estimate, type ModelEstimate } from '../../src/models/estimate/estimate.js';
import { factsOfGguf, factsOfSafetensors } from '../../src/models/estimate/facts.js';
import type { EstimateOptions } from '../../src/models/estimate/options.js';
import { encodeHeader, type GgufSource, type GgufValue } from '../../workers/llama/gguf-writer.js';
import { largeModel } from '../../workers/llama/large-model.js';
import { randomModel } from '../fixtures/gguf-models.js';
import { shapeSource, type Shape } from '../fixtures/gguf-shapes.js';
import { asked, factsOf, group, plainConfig } from '../fixtures/public-shapes.js';

const gibibyte = 2 ** 30;
const packageRoot = fileURLToPath(new URL('../../..', import.meta.url));

const of = (config: JsonObject, options: Parameters<typeof asked>[0]): ModelEstimate => estimate({ facts: factsOf(config), options: asked(options) });
const kvOf = (config: JsonObject, options: Parameters<typeof asked>[0]): number => of(config, options).cards[0]?.kv.bytes ?? -1;
/** What is unknown, as the message has it. */
const unknownOf = (work: () => unknown): string => {
  try {
    work();
    return 'nothing';
  } catch (error) {
    if (error instanceof LeaseholdError && error.code === 'estimate_unknown') return error.details['field'] ?? '?';
    throw error;
  }
};
/** Header of a GGUF whose data are a hole. */
async function ggufHeader(source: GgufSource): Promise<GgufHeader> {
  const header = encodeHeader(source);
  const dataBytes = source.tensors.reduce((sum, { dimensions, type }) => sum + Math.ceil(dimensions.reduce((product, size) => product * size, type === 'f16' ? 2 : 4) / 32) * 32, 0);
  return readGgufHeader({ ...bytesSource('m.gguf', header), sizeBytes: header.length + dataBytes, read: async (offset, length) => Buffer.concat([header.subarray(offset), Buffer.alloc(length)]).subarray(0, length) });
}
const gemma: Shape = { architecture: 'gemma3', layers: 30, embedding: 2_560, heads: 8, kvHeads: 4, headSize: 256, feedForward: 10_240, vocabulary: 262_208, trainedTokens: 131_072, tied: true, window: 1_024 };

t.test('B01: context is most of what a model needs, and counts', async (t) => {
  const short = kvOf(plainConfig, { backend: 'transformers', contextTokens: 2_048 });
  const long = kvOf(plainConfig, { backend: 'transformers', contextTokens: 65_536 });
  t.equal(of(plainConfig, { backend: 'transformers', contextTokens: 2_048 }).kvBytesPerToken, 524_288);
  t.equal(long - short, 31 * gibibyte);
  t.equal(short, gibibyte);
});

t.test('B02: layers with a window keep the window', async (t) => {
  const facts = factsOfGguf('g', [await ggufHeader(shapeSource(gemma))]);
  const perToken = 2 * 4 * 256 * 2;
  for (const contextTokens of [4_096, 32_768, 131_072]) {
    const { cards: [card], kvBytesPerToken } = estimate({ facts, options: asked({ backend: 'llama', contextTokens }) });
    const rightTokens = 25 * 1_024 + 5 * contextTokens;
    t.equal(card?.kv.bytes, perToken * (25 * 1_536 + 5 * contextTokens), 'the window and the batch, padded');
    if (contextTokens === 131_072) t.ok(Math.abs((card?.kv.bytes ?? 0) / (perToken * rightTokens) - 1) < 0.1);
    t.equal(kvBytesPerToken, 5 * perToken);
  }
  const config = { ...plainConfig, num_hidden_layers: 30, num_key_value_heads: 4, head_dim: 256, sliding_window: 1_024, layer_types: Array.from({ length: 30 }, (_, layer) => ((layer + 1) % 6 === 0 ? 'full_attention' : 'sliding_attention')) };
  t.equal(kvOf(config, { backend: 'transformers', contextTokens: 131_072 }), perToken * (25 * 1_024 + 5 * 131_072));
  t.equal(kvOf(config, { backend: 'vllm', contextTokens: 131_072, batchTokens: 2_048 }), perToken * (25 * 3_088 + 5 * 131_072), 'vLLM frees what has left the window after a step');
});

t.test('B04: the numbers are the language model’s, wherever they are nested, and never made up', async (t) => {
  const inner: JsonObject = { ...plainConfig, num_hidden_layers: 40, num_key_value_heads: 8 };
  const right = 40 * 2 * 8 * 128 * 2 * 1_000;
  const outer: JsonObject = { architectures: ['X'], num_hidden_layers: 33, hidden_size: 1_152 };
  for (const config of [{ ...outer, text_config: inner }, { ...outer, llm_config: inner }, { ...outer, language_config: inner }, { ...outer, thinker_config: { text_config: inner, num_hidden_layers: 7 } }, inner]) {
    t.equal(kvOf(config as JsonObject, { backend: 'transformers', contextTokens: 1_000 }), right);
  }
  const { num_key_value_heads: _kv, num_attention_heads: _heads, ...headless } = plainConfig;
  t.equal(unknownOf(() => of(headless, { backend: 'transformers', contextTokens: 1_000 })), 'num_key_value_heads');
  t.equal(unknownOf(() => of({ text_config: headless }, { backend: 'transformers', contextTokens: 1_000 })), 'text_config.num_key_value_heads');
  for (const field of ['num_hidden_layers', 'hidden_size', 'vocab_size', 'intermediate_size'] as const) {
    const { [field]: _without, ...config } = plainConfig;
    t.equal(unknownOf(() => of(config, { backend: 'vllm', contextTokens: 1_000 })), field);
  }
  const { head_dim: _size, ...divided } = plainConfig;
  t.equal(kvOf(divided, { backend: 'transformers', contextTokens: 1 }), 524_288, 'the width of a head is the hidden size divided, by definition');
  t.equal(unknownOf(() => of({ ...divided, hidden_size: 4_097 }, { backend: 'vllm', contextTokens: 1 })), 'head_dim');
  const facts = factsOf(headless, [group('model.layers.#.self_attn.k_proj.weight', 'BF16', [1_024, 4_096], 32, 268_435_456), group('model.layers.#.self_attn.v_proj.weight', 'BF16', [1_024, 4_096], 32, 268_435_456)]);
  t.equal(estimate({ facts, options: asked({ backend: 'transformers', contextTokens: 1 }) }).kvBytesPerToken, 32 * 2_048 * 2, 'where the config leaves them to its code, the matrices say what is kept');
});

t.test('B05: head counts may be a list, with layers that have none', async (t) => {
  const config: JsonObject = { ...plainConfig, num_hidden_layers: 5, head_dim: 64, num_attention_heads: [16, 20, 24, 28, 32], num_key_value_heads: [4, 4, 6, 8, 8] };
  t.equal(kvOf(config, { backend: 'transformers', contextTokens: 10 }), 10 * 30 * 64 * 2 * 2);
  const four: JsonObject = { ...plainConfig, num_hidden_layers: 4, num_key_value_heads: [8, null, 0, 8] };
  t.equal(kvOf(four, { backend: 'transformers', contextTokens: 10 }), 10 * 16 * 128 * 2 * 2);
  t.equal(unknownOf(() => of({ ...four, num_hidden_layers: 5 }, { backend: 'transformers', contextTokens: 10 })), 'num_key_value_heads');
  t.throws(() => of({ ...four, num_hidden_layers: 5 }, { backend: 'transformers', contextTokens: 10 }), { code: 'estimate_unknown', message: /lists 4 layers, and the model has 5/, help: /declaredBytes/ });
});

t.test('B07: compressed attention and states are sized as each engine keeps them', async (t) => {
  const latent: JsonObject = { ...plainConfig, model_type: 'deepseek_v2', num_hidden_layers: 27, num_attention_heads: 16, num_key_value_heads: 16, hidden_size: 2_048, kv_lora_rank: 512, qk_rope_head_dim: 64, qk_nope_head_dim: 128, v_head_dim: 128 };
  t.equal(kvOf(latent, { backend: 'vllm', contextTokens: 32_768 }), 576 * 2 * 27 * 32_768);
  t.equal(kvOf(latent, { backend: 'transformers', contextTokens: 32_768 }), 16 * (192 + 128) * 2 * 27 * 32_768, 'what is made of the latent is larger');
  const hybrid: JsonObject = {
    ...plainConfig, model_type: 'qwen3_next', num_hidden_layers: 48, num_attention_heads: 16, num_key_value_heads: 2, head_dim: 256,
    layer_types: Array.from({ length: 48 }, (_, layer) => ((layer + 1) % 6 === 0 ? 'full_attention' : 'linear_attention')),
    linear_num_value_heads: 32, linear_num_key_heads: 16, linear_key_head_dim: 128, linear_value_head_dim: 128, linear_conv_kernel_dim: 4,
  };
  const state = 40 * (3 * 8_192 + 32 * 128 * 128) * 4;
  const one = of(hybrid, { backend: 'transformers', contextTokens: 1_000 });
  t.equal(one.kvBytesPerToken, 8 * 2 * 2 * 256 * 2);
  t.equal(one.cards[0]?.kv.bytes, 8 * 2 * 2 * 256 * 2 * 1_000 + state);
  t.equal(one.cards[0]?.kv.leastBytes, 8 * 2 * 2 * 256 * 2 * 1_000 + state / 2, 'or in half precision: that is not known');
  t.equal(kvOf(hybrid, { backend: 'transformers', contextTokens: 2_000 }) - kvOf(hybrid, { backend: 'transformers', contextTokens: 1_000 }), 8 * 2 * 2 * 256 * 2 * 1_000, 'the state does not grow');
  t.equal(unknownOf(() => of({ ...plainConfig, num_hidden_layers: 2, layer_types: ['full_attention', 'quantum_attention'] }, { backend: 'vllm', contextTokens: 1 })), 'layer_types[1]');
  t.equal(unknownOf(() => of({ ...plainConfig, num_hidden_layers: 2, layer_types: ['full_attention', 'mamba'] }, { backend: 'vllm', contextTokens: 1 })), 'the size of its state layers');
});

t.test('hybrids of every family say which layers attend', async (t) => {
  const mamba2: JsonObject = { mamba_d_state: 128, mamba_d_conv: 4, mamba_n_heads: 64, mamba_d_head: 64, mamba_n_groups: 1 };
  const families: readonly (readonly [string, JsonObject, number])[] = [
    ['Jamba', { attn_layer_period: 8, attn_layer_offset: 4, mamba_d_state: 16, mamba_d_conv: 4, mamba_expand: 2 }, 4],
    ['Bamba', { attn_layer_indices: [9, 18, 27], ...mamba2 }, 3],
    ['Granite 4', { layer_types: Array.from({ length: 32 }, (_, layer) => (layer % 10 === 5 ? 'attention' : 'mamba')), ...mamba2 }, 3],
    ['Nemotron-H', { hybrid_override_pattern: 'M-M-*-M-'.repeat(4), ssm_state_size: 128, mamba_num_heads: 64, mamba_head_dim: 64, n_groups: 8, conv_kernel: 4 }, 4],
    ['Falcon-H1', { model_type: 'falcon_h1', ...mamba2 }, 32],
    ['LFM2', { full_attn_idxs: [2, 5, 8, 10, 12, 14], conv_L_cache: 3 }, 6],
    ['Qwen3.5', { full_attention_interval: 4, linear_num_value_heads: 32, linear_num_key_heads: 16, linear_key_head_dim: 128, linear_value_head_dim: 128, linear_conv_kernel_dim: 4 }, 8],
    ['MiniMax', { attn_type_list: Array.from({ length: 32 }, (_, layer) => (layer % 8 === 7 ? 1 : 0)) }, 4],
    ['Gemma 3n', { num_kv_shared_layers: 12 }, 20],
    ['DeciLM', { block_configs: Array.from({ length: 32 }, (_, layer) => ({ attention: layer % 2 === 0 ? { n_heads_in_group: 1 } : { no_op: true, n_heads_in_group: null } })) }, 16],
  ];
  for (const [family, fields, attending] of families) {
    t.equal(of({ ...plainConfig, ...fields }, { backend: 'vllm', contextTokens: 16 }).kvBytesPerToken, attending * 2 * 32 * 128 * 2, family);
  }
  t.equal(of({ model_type: 'mamba2', num_hidden_layers: 64, hidden_size: 2_560, vocab_size: 50_288, state_size: 128, conv_kernel: 4, expand: 2, n_groups: 1, num_heads: 80, head_dim: 64 }, { backend: 'transformers', contextTokens: 9 }).kvBytesPerToken, 0);
  t.equal(of({ ...plainConfig, multi_query: true, num_key_value_heads: null }, { backend: 'vllm', contextTokens: 16 }).kvBytesPerToken, 32 * 2 * 128 * 2, 'Falcon shares one head');
});

t.test('windows are known by list, by pattern, by family, or not at all', async (t) => {
  const base: JsonObject = { ...plainConfig, sliding_window: 1_000, num_key_value_heads: 1, head_dim: 1, num_attention_heads: 8 };
  const full = (config: JsonObject): number => (of({ ...base, ...config }, { backend: 'vllm', contextTokens: 16 }).kvBytesPerToken ?? 0) / 4;
  t.equal(full({ model_type: 'mistral' }), 0);
  t.equal(full({ model_type: 'gemma2' }), 16);
  t.equal(full({ model_type: 'gemma3_text' }), 5);
  t.equal(full({ model_type: 'gemma3_text', sliding_window_pattern: 4 }), 8);
  t.equal(full({ model_type: 'qwen2', use_sliding_window: false, max_window_layers: 21 }), 32);
  t.equal(full({ model_type: 'qwen2', use_sliding_window: true, max_window_layers: 21 }), 21);
  t.equal(full({ model_type: 'mistral', sliding_window: null }), 32);
  const unsure = of({ ...base, model_type: 'new_family' }, { backend: 'transformers', contextTokens: 10_000 }).cards[0]?.kv;
  t.same([unsure?.leastBytes, unsure?.bytes], [32 * 4 * 1_000, 32 * 4 * 10_000], 'a range where it is not known which layers keep to it');
});

t.test('B08: packed weights count as they lie in the file, wherever the config says how they are packed', async (t) => {
  const groups = [group('model.layers.#.mlp.up_proj.qweight', 'I32', [4096, 512], 32, 268_435_456), group('model.layers.#.mlp.up_proj.scales', 'F16', [32, 4096], 32, 8_388_608)];
  for (const config of [{ text_config: { ...plainConfig, quantization_config: { quant_method: 'gptq', bits: 4 } } }, { ...plainConfig, quantization_config: { quant_method: 'gptq', bits: 4 } }]) {
    const { cards: [card] } = estimate({ facts: factsOf(config, groups), options: asked({ backend: 'vllm', contextTokens: 16 }) });
    t.equal(card?.weights.bytes, 276_824_064);
    t.match(card?.weights.how, /packed by gptq/);
  }
});

t.test('B169: weights are what the file holds, and twice that where the engine casts them', async (t) => {
  const { torch_dtype: _, ...silent } = plainConfig;
  const weights = (dtype: JsonObject, backend: EstimateOptions['backend'] = 'transformers', stored = 'BF16'): ModelEstimate =>
    estimate({ facts: factsOf({ ...silent, ...dtype }, [group('model.layers.#.w.weight', stored, [1000, 1000], 4, stored === 'F32' ? 16_000_000 : 8_000_000)]), options: asked({ backend, contextTokens: 16 }) });
  const bytes = (...given: Parameters<typeof weights>): number => weights(...given).cards[0]?.weights.bytes ?? -1;
  t.equal(bytes({ dtype: 'float32' }), 16_000_000);
  t.match(weights({ dtype: 'float32' }).cards[0]?.weights.how, /cast from BF16 to float32 at load, 2.00 times/);
  t.equal(bytes({ dtype: null }), 8_000_000);
  t.equal(bytes({}), 8_000_000);
  t.equal(bytes({ torch_dtype: 'auto' }), 8_000_000);
  t.equal(bytes({ dtype: { '': 'float16' } }), 8_000_000);
  t.equal(bytes({ text_config: { ...silent, dtype: 'float32' } }), 16_000_000);
  t.equal(bytes({ dtype: 'float32' }, 'vllm', 'F32'), 8_000_000, 'vLLM halves single precision by itself');
  t.equal(bytes({}, 'transformers', 'F32'), 16_000_000);
});

t.test('B190: tensor parallelism divides heads, and copies them where there are too few', async (t) => {
  const kv = (heads: number, ranks: number): readonly number[] => of({ ...plainConfig, num_key_value_heads: heads }, { backend: 'vllm', contextTokens: 16, ranks }).cards.map((card) => card.kv.bytes);
  const perHead = 32 * 2 * 128 * 2 * 16;
  t.same(kv(8, 2), [4 * perHead, 4 * perHead]);
  t.same(kv(2, 4), [perHead, perHead, perHead, perHead], 'one head, not a half');
  t.throws(() => kv(8, 3), { code: 'input_invalid', message: /8 heads cannot be divided among 3 cards/ });
  const groups = [group('model.layers.#.self_attn.k_proj.weight', 'BF16', [256, 4096], 32, 67_108_864), group('model.layers.#.mlp.up_proj.weight', 'BF16', [11_008, 4096], 32, 2_885_681_152), group('model.layers.#.input_layernorm.weight', 'BF16', [4096], 32, 262_144)];
  const { cards: [card] } = estimate({ facts: factsOf({ ...plainConfig, num_key_value_heads: 2 }, groups), options: asked({ backend: 'vllm', contextTokens: 16, ranks: 4 }) });
  t.equal(card?.weights.bytes, 67_108_864 / 2 + 2_885_681_152 / 4 + 262_144);
});

t.test('B11: a projector is inside, with what the first image takes, and its size is never guessed', async (t) => {
  const vision = (sizes: Readonly<Record<string, number>>): GgufSource => ({
    metadata: new Map<string, GgufValue>([['general.architecture', { kind: 'string', value: 'clip' }], ...Object.entries(sizes).map(([key, value]): [string, GgufValue] => [`clip.vision.${key}`, { kind: 'u32', value }])]),
    tensors: [{ name: 'v.blk.0.ffn_up.weight', dimensions: [1024, 4096], type: 'f16', data: () => [] }],
  });
  const sizes = { image_size: 336, patch_size: 14, embedding_length: 1_024, feed_forward_length: 4_096, 'attention.head_count': 16, block_count: 23 };
  const text = await ggufHeader(shapeSource(gemma));
  const facts = factsOfGguf('g', [text], { name: 'mmproj.gguf', header: await ggufHeader(vision(sizes)) });
  const options = asked({ backend: 'llama', contextTokens: 4_096 });
  const { cards: [seeing] } = estimate({ facts, options });
  const { cards: [blind] } = estimate({ facts: factsOfGguf('g', [text]), options });
  const weightBytes = 1024 * 4096 * 2;
  t.equal(seeing?.projector?.leastBytes, weightBytes + 576 * (6 * 1_024 + 2 * 4_096) * 4);
  t.equal(seeing?.projector?.bytes, weightBytes + 576 * (6 * 1_024 + 2 * 4_096) * 4 + 16 * 576 * 576 * 4);
  t.equal((seeing?.total.bytes ?? 0) - (blind?.total.bytes ?? 0), seeing?.projector?.bytes);
  const { image_size: _, ...sizeless } = sizes;
  const unsized = factsOfGguf('g', [text], { name: 'mmproj.gguf', header: await ggufHeader(vision(sizeless)) });
  t.equal(unknownOf(() => estimate({ facts: unsized, options })), 'clip.vision.image_size');
  t.ok(estimate({ facts: unsized, options: { ...options, imageSide: 336 } }).cards[0]?.projector?.bytes, 'which the operator may state');
  const config: JsonObject = { text_config: plainConfig, vision_config: { hidden_size: 1_152, intermediate_size: 4_304, num_attention_heads: 16, patch_size: 14 } };
  t.equal(unknownOf(() => of(config, { backend: 'vllm', contextTokens: 16 })), 'vision_config.image_size');
});

t.test('B11: what hears sound is inside as what sees is, where it is known how much it hears at once', async (t) => {
  const text = await ggufHeader(shapeSource(gemma));
  const options = asked({ backend: 'llama', contextTokens: 4_096 });
  type Metadata = Readonly<Record<string, GgufValue>>;
  const number = (value: number): GgufValue => ({ kind: 'u32', value });
  const word = (value: string): GgufValue => ({ kind: 'string', value });
  const flag = (value: boolean): GgufValue => ({ kind: 'bool', value });
  const positions = { name: 'a.position_embd.weight', dimensions: [1_280, 1_500], type: 'f32', data: () => [] } as const;
  const factsWith = async (metadata: Metadata, tensors: GgufSource['tensors'] = [positions]) => factsOfGguf('g', [text], {
    name: 'mmproj.gguf', header: await ggufHeader({ metadata: new Map<string, GgufValue>([['general.architecture', word('clip')], ...Object.entries(metadata)]), tensors }),
  });
  const audio: Metadata = { 'clip.has_audio_encoder': flag(true), 'clip.has_vision_encoder': flag(false), 'clip.audio.embedding_length': number(1_280), 'clip.audio.feed_forward_length': number(5_120), 'clip.audio.attention.head_count': number(20), 'clip.audio.num_mel_bins': number(128) };
  const vision: Metadata = { 'clip.vision.image_size': number(336), 'clip.vision.patch_size': number(14), 'clip.vision.embedding_length': number(1_024), 'clip.vision.feed_forward_length': number(4_096), 'clip.vision.attention.head_count': number(16) };
  const weightBytes = 1_280 * 1_500 * 4;
  const heardBytes = 1_500 * (6 * 1_280 + 2 * 5_120) * 4;
  const scoreBytes = 20 * 1_500 * 1_500 * 4;
  const seenBytes = 576 * (6 * 1_024 + 2 * 4_096) * 4;
  const projectorWith = async (metadata: Metadata) => estimate({ facts: await factsWith(metadata), options }).cards[0]?.projector;
  for (const type of ['ultravox', 'voxtral', 'qwen2a', 'qwen2.5o', 'glma']) {
    const wanted = { leastBytes: weightBytes + heardBytes, bytes: weightBytes + heardBytes + scoreBytes, how: 'mmproj.gguf; first sound, 1500 positions' };
    t.strictSame(await projectorWith({ ...audio, 'clip.projector_type': word(type) }), wanted, type);
    t.strictSame(await projectorWith({ ...audio, 'clip.projector_type': word('resampler'), 'clip.audio.projector_type': word(type) }), wanted, 'what is said of the sound alone goes first');
  }
  t.equal((await projectorWith({ ...audio, ...vision, 'clip.has_vision_encoder': flag(true), 'clip.projector_type': word('qwen2.5o') }))?.leastBytes, weightBytes + heardBytes + seenBytes, 'one that does both has both');
  const field = async (metadata: Metadata, tensors?: GgufSource['tensors']) => {
    const facts = await factsWith(metadata, tensors);
    return unknownOf(() => estimate({ facts, options }));
  };
  const { 'clip.audio.feed_forward_length': _, ...narrow } = audio;
  t.equal(await field({ ...narrow, 'clip.projector_type': word('ultravox') }), 'clip.audio.feed_forward_length');
  t.equal(await field(audio), 'clip.audio.projector_type');
  t.equal(await field({ ...audio, 'clip.audio.projector_type': word('lfm2a') }), 'clip.audio.projector_type', 'one that takes any length at once');
  t.equal(await field({ ...audio, 'clip.projector_type': word('lfm2a') }), 'clip.projector_type');
  t.equal(await field({ ...audio, 'clip.projector_type': word('ultravox') }, []), 'a.position_embd.weight');
  t.equal(await field({ 'clip.has_vision_encoder': flag(false) }), 'clip.has_vision_encoder');
  const config: JsonObject = { text_config: plainConfig, audio_config: { d_model: 1_280, encoder_ffn_dim: 5_120, encoder_attention_heads: 20, max_source_positions: 1_500 } };
  const heard = of(config, { backend: 'vllm', contextTokens: 16 }).cards[0]?.projector;
  t.strictSame(heard, { leastBytes: heardBytes / 2, bytes: (heardBytes + scoreBytes) / 2, how: 'first sound, 1500 positions' });
  t.strictSame(of({ text_config: plainConfig, thinker_config: config }, { backend: 'vllm', contextTokens: 16 }).cards[0]?.projector, heard);
  t.equal(unknownOf(() => of({ text_config: plainConfig, audio_config: { d_model: 1_280 } }, { backend: 'vllm', contextTokens: 16 })), 'audio_config.max_source_positions');
});

t.test('a draft model is inside, all of it', async (t) => {
  const options = asked({ backend: 'vllm', contextTokens: 4_096 });
  const facts = factsOf(plainConfig);
  const alone = estimate({ facts, options }).cards[0];
  const drafted = estimate({ facts, options, draft: facts }).cards[0];
  t.equal(drafted?.draft?.bytes, alone?.total.bytes);
  t.equal(drafted?.total.bytes, 2 * (alone?.total.bytes ?? 0));
});

t.test('B20 B166: what is no text model has a size and no estimate, until one is declared', async (t) => {
  const flux = await ggufHeader({ ...randomModel(), metadata: new Map([['general.architecture', { kind: 'string', value: 'flux' }]]) });
  const facts = factsOfGguf('flux.gguf', [flux]);
  const options = asked({ backend: 'llama', contextTokens: 4_096 });
  t.throws(() => estimate({ facts, options }), { code: 'estimate_unknown', message: /flux.gguf: unknown: flux.block_count \(it is missing\)/, help: /declaredBytes/, details: { weightBytes: String(flux.tensorBytes) } });
  const declared = estimate({ facts, options, declaredBytes: 6 * gibibyte });
  t.same([declared.source, declared.cards[0]?.total.bytes, declared.kvBytesPerToken], ['declared', 6 * gibibyte, null]);
  t.throws(() => estimate({ facts, options, declaredBytes: -1 }), { code: 'bytes_invalid' });
  const known = factsOfGguf('m', [await ggufHeader(randomModel())]);
  t.equal(estimate({ facts: known, options, declaredBytes: 5 }).source, 'estimated', 'which is not listened to where an estimate can be made');
  t.equal(unknownOf(() => estimate({ facts: factsOfSafetensors('m', plainConfig, []), options: asked({ backend: 'vllm', contextTokens: 1 }) })), 'the weights');
});

t.test('impossible questions are refused', async (t) => {
  for (const changes of [{ contextTokens: 0 }, { contextTokens: 1.5 }, { parallel: 0 }, { ranks: 65 }, { batchTokens: 0 }, { kvDtype: 'q4_0' }, { imageSide: 0 }]) {
    t.throws(() => of(plainConfig, { backend: 'vllm', contextTokens: 16, ...changes }), { code: 'input_invalid' }, JSON.stringify(changes));
  }
  t.throws(() => of(plainConfig, { backend: 'llama', contextTokens: 16 }), { code: 'input_invalid', message: /llama does not load safetensors/ });
});

t.test('on a card our estimate is what an H200 was measured to take', async (t) => {
  const { figures: { cold } } = JSON.parse(readFileSync(join(packageRoot, 'test', 'measured', 'h200-llama-engine.json'), 'utf8')) as { readonly figures: { readonly cold: { readonly weightsRiseBytes: number } & Readonly<Record<'context4096' | 'context8192', { readonly riseBytes: number }>> } };
  const facts = factsOfGguf('large', [await ggufHeader(largeModel())]);
  for (const [contextTokens, measured] of [[4_096, cold.context4096], [8_192, cold.context8192]] as const) {
    const { cards: [card] } = estimate({ facts, options: asked({ backend: 'llama', contextTokens }) });
    const error = (card?.total.bytes ?? 0) / (cold.weightsRiseBytes + measured.riseBytes) - 1;
    t.comment(`${String(contextTokens)} tokens: ${(error * 100).toFixed(2)} %`);
    t.ok(Math.abs(error) < 0.005);
    t.ok(Math.abs((card?.weights.bytes ?? 0) / cold.weightsRiseBytes - 1) < 0.001, 'without the token embedding, which stays in host memory');
  }
});

t.test('B16: no estimate falls as context, batch or contexts rise', async (t) => {
  const facts = [
    ...[{}, { sliding_window: 777, model_type: 'gemma2' }, { sliding_window: 777, model_type: 'new' }, { kv_lora_rank: 512, qk_rope_head_dim: 64, qk_nope_head_dim: 128, v_head_dim: 128 },
      { full_attention_interval: 4, linear_num_value_heads: 32, linear_num_key_heads: 16, linear_key_head_dim: 128, linear_value_head_dim: 128, linear_conv_kernel_dim: 4 }]
      .map((fields) => factsOf({ ...plainConfig, ...fields })),
    factsOfGguf('g', [await ggufHeader(shapeSource(gemma))]), factsOfGguf('m', [await ggufHeader(randomModel())]),
  ];
  const figures = ({ cards: [card], host }: ModelEstimate): readonly number[] => [card?.kv, card?.compute, card?.total, card?.loadPeak, host].flatMap((figure) => [figure?.bytes ?? -1, figure?.leastBytes ?? -1]);
  const question = fc.record({ which: fc.nat(facts.length - 1), onVllm: fc.boolean(), context: fc.integer({ min: 1, max: 200_000 }), batch: fc.option(fc.integer({ min: 1, max: 20_000 })), parallel: fc.integer({ min: 1, max: 64 }), more: fc.integer({ min: 1, max: 50_000 }), raised: fc.constantFrom('context', 'batch', 'parallel') });
  fc.assert(fc.property(question, ({ which, onVllm, context, batch, parallel, more, raised }) => {
    const about = facts[which];
    if (about === undefined) throw new Error('there is no such model');
    const backend = about.format === 'gguf' ? 'llama' : onVllm ? 'vllm' : 'transformers';
    const batchTokens = raised === 'batch' ? batch ?? 512 : batch;
    const ask = (by: number): ModelEstimate => estimate({ facts: about, options: asked({
      backend, contextTokens: context + (raised === 'context' ? by : 0), batchTokens: batchTokens === null ? null : batchTokens + (raised === 'batch' ? by : 0), parallel: parallel + (raised === 'parallel' ? Math.min(by, 64) : 0),
    }) });
    const [lower, higher] = [figures(ask(0)), figures(ask(more))];
    return lower.every((bytes, index) => bytes <= (higher[index] ?? -1) && Number.isSafeInteger(bytes) && bytes >= 0);
  }), { numRuns: 2_000, seed: 20_261_130 });
  const sweep = Array.from({ length: 128 }, (_, index) => of(plainConfig, { backend: 'vllm', contextTokens: (index + 1) * 1_024 }).cards[0]?.total.bytes ?? 0);
  t.same(sweep, [...sweep].sort((a, b) => a - b));
});
