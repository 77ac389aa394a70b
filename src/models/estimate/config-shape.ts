/** The shape of a model from its config.json, and from its tensors where the config is silent. */
import { isObject, type JsonObject } from '../formats/config-json.js';
import type { JsonValue } from '../formats/json-scanner.js';
import type { TensorGroup } from '../formats/tensor-groups.js';
import { Fields } from './config-fields.js';
import { layerKinds, windowOf, type LayerKind } from './config-layers.js';
import { stateOf } from './config-state.js';
import { UnknownField, type Layer, type ModelShape } from './model-shape.js';

const layersMax = 1_024;
const names = {
  layers: ['num_hidden_layers', 'n_layer', 'n_layers', 'num_layers'],
  heads: ['num_attention_heads', 'n_head', 'n_heads', 'num_heads'],
  kvHeads: ['num_key_value_heads', 'num_kv_heads', 'n_head_kv', 'multi_query_group_num'],
  hidden: ['hidden_size', 'n_embd', 'd_model', 'model_dim', 'dim'],
  feedForward: ['intermediate_size', 'n_inner', 'ffn_hidden_size', 'ffn_dim', 'd_ff'],
  headSize: ['head_dim', 'attention_head_dim', 'd_head', 'kv_channels'],
  trained: ['max_position_embeddings', 'n_positions', 'max_sequence_length', 'seq_length', 'n_ctx'],
} as const;

/** Throws `UnknownField`. `groups`: its tensors, empty when they are not at hand. */
export function shapeOfConfig(config: JsonObject, groups: readonly TensorGroup[] = []): ModelShape {
  const fields = Fields.ofLanguageModel(config);
  const layers = fields.count(names.layers);
  if (layers > layersMax) throw new UnknownField(fields.named('num_hidden_layers'), `${String(layers)} layers are beyond any model`);
  const hiddenSize = fields.count(names.hidden);
  const kinds = layerKinds(fields, layers);
  const attention = kinds.some((kind) => kind !== 'state' && kind !== 'none') ? attentionOf(fields, layers, hiddenSize, groups) : null;
  const state = kinds.some((kind) => kind === 'state' || kind === 'both') ? stateOf(fields, hiddenSize) : null;
  const shared = fields.optionalCount(['num_kv_shared_layers'], 0) ?? 0;
  const experts = fields.optionalCount(['num_experts_per_tok', 'num_experts_per_token', 'moe_topk', 'top_k_experts', 'moe_top_k']) ?? 1;
  return {
    layers: kinds.map((kind, layer) => layersOf(kind, layer < layers - shared ? attention?.layers[layer] ?? null : null, windowOf(fields), state)),
    hiddenSize,
    heads: attention?.heads ?? null,
    querySize: attention?.querySize ?? hiddenSize,
    feedForwardSize: feedForwardSize(fields, hiddenSize, experts, attention === null),
    expertsUsed: experts,
    vocabulary: fields.optionalCount(['vocab_size', 'padded_vocab_size']) ?? Fields.of(config).optionalCount(['vocab_size']) ?? rowsOf(groups, /(embed_tokens|wte|word_embeddings)\.weight$/) ?? fields.count(['vocab_size']),
    trainedTokens: fields.optionalCount(names.trained) ?? Fields.of(config).optionalCount(names.trained),
  };
}

type Attention = Extract<Layer, { readonly kind: 'full' | 'latent' }>;

function layersOf(kind: LayerKind, attention: Attention | null, windowTokens: number | null, state: Layer | null): readonly Layer[] {
  const stateful: readonly Layer[] = (kind === 'state' || kind === 'both') && state !== null ? [state] : [];
  if (attention === null || kind === 'none' || kind === 'state') return stateful.length === 0 ? [{ kind: 'none' }] : stateful;
  if (attention.kind === 'latent' || windowTokens === null || kind === 'full' || kind === 'both') return [...stateful, attention];
  return [kind === 'sliding' ? { ...attention, kind, windowTokens } : { ...attention, windowTokens }];
}

interface AttentionShape {
  /** Null where the layer has no heads. */
  readonly layers: readonly (Attention | null)[];
  readonly heads: number | null;
  readonly querySize: number;
}

function attentionOf(fields: Fields, layers: number, hiddenSize: number, groups: readonly TensorGroup[]): AttentionShape {
  const heads = fields.perLayer(names.heads, layers);
  const most = heads === null ? null : Math.max(...heads);
  const rank = fields.optionalCount(['kv_lora_rank']);
  if (rank !== null) return latentAttention(fields, layers, rank, most);
  const fused = heads === null && !fields.has(...names.kvHeads) ? fromTensors(groups, layers) : null;
  if (fused !== null) return fused;
  const kvHeads = kvHeadsOf(fields, layers, heads);
  const headSize = headSizeOf(fields, hiddenSize, heads);
  const valueSize = fields.optionalCount(['v_head_dim', 'value_head_dim']) ?? headSize;
  return {
    layers: kvHeads.map((count) => (count === 0 ? null : { kind: 'full', kvHeads: count, keySize: headSize, valueSize })),
    heads: most,
    querySize: (most ?? Math.max(...kvHeads)) * headSize,
  };
}

/** Without any word on key-value heads there is one for each query head, as the code of every family has it (B04: without that word either, it is unknown). */
function kvHeadsOf(fields: Fields, layers: number, heads: readonly number[] | null): readonly number[] {
  const blocks = fields.raw('block_configs');
  if (Array.isArray(blocks) && heads !== null) return (blocks as readonly JsonValue[]).map((block, layer) => blockKvHeads(fields.named(`block_configs[${String(layer)}]`), block, heads[layer] ?? 0));
  if (fields.raw('multi_query') === true && fields.raw('new_decoder_architecture') !== true) return Array.from({ length: layers }, () => 1);
  return fields.perLayer(names.kvHeads, layers) ?? heads ?? fields.perLayer(names.heads, layers) ?? Array.from({ length: layers }, () => fields.count(['num_key_value_heads']));
}

function blockKvHeads(name: string, block: JsonValue, heads: number): number {
  const attention = isObject(block) && isObject(block['attention']) ? Fields.of(block['attention'], `${name}.attention.`) : null;
  if (attention === null) throw new UnknownField(`${name}.attention`, 'it is missing');
  if (attention.raw('no_op') === true || attention.raw('replace_with_linear') === true) return 0;
  return attention.optionalCount(['num_key_value_heads']) ?? Math.ceil(heads / attention.count(['n_heads_in_group']));
}

function headSizeOf(fields: Fields, hiddenSize: number, heads: readonly number[] | null): number {
  const stated = fields.optionalCount(names.headSize);
  if (stated !== null) return stated;
  const [first] = heads ?? [];
  // By definition the hidden size is divided among the heads, where all layers have as many and nothing else is said.
  if (heads === null || first === undefined || first === 0 || heads.some((count) => count !== first)) return fields.count(names.headSize);
  if (hiddenSize % first !== 0) throw new UnknownField(fields.named('head_dim'), `it is missing, and ${String(hiddenSize)} is no multiple of ${String(first)} heads`);
  return hiddenSize / first;
}

function latentAttention(fields: Fields, layers: number, rank: number, heads: number | null): AttentionShape {
  const ropeSize = fields.count(['qk_rope_head_dim'], 0);
  const keySize = ropeSize + fields.count(['qk_nope_head_dim'], 0);
  const valueSize = fields.count(['v_head_dim']);
  const count = heads ?? fields.count(names.heads);
  const layer: Attention = { kind: 'latent', latentSize: rank + ropeSize, heads: count, keySize, valueSize };
  return { layers: Array.from({ length: layers }, () => layer), heads: count, querySize: count * keySize };
}

/** A config that leaves the heads to its code: the rows of its key and value matrices are what is kept, whatever the heads. */
function fromTensors(groups: readonly TensorGroup[], layers: number): AttentionShape | null {
  const [keySize, valueSize, querySize] = ['k', 'v', 'q'].map((part) => rowsOf(groups, new RegExp(`layers\\.#\\..*attn\\.${part}_proj\\.weight$`), layers));
  if (keySize === null || keySize === undefined || valueSize === null || valueSize === undefined) return null;
  return { layers: Array.from({ length: layers }, () => ({ kind: 'full', kvHeads: 1, keySize, valueSize })), heads: null, querySize: querySize ?? keySize };
}

/** Rows of the one unpacked group that `pattern` names; null when there is none, several or not one a layer. */
function rowsOf(groups: readonly TensorGroup[], pattern: RegExp, tensors?: number): number | null {
  const found = groups.filter((group) => pattern.test(group.pattern) && !/vision|visual|audio/.test(group.pattern));
  const [group] = found;
  if (found.length !== 1 || group === undefined || !/^(BF16|F16|F32|F8_)/.test(group.dtype)) return null;
  if (tensors !== undefined && group.tensors !== tensors) return null;
  return group.shape?.[0] ?? null;
}

function feedForwardSize(fields: Fields, hiddenSize: number, experts: number, stateAlone: boolean): number {
  const dense = fields.optionalCount(names.feedForward, 0);
  const expert = fields.optionalCount(['moe_intermediate_size', 'expert_ffn_hidden_size', 'moe_ffn_hidden_size', 'intermediate_size_expert']);
  if (expert !== null) return Math.max(dense ?? 0, expert * experts);
  if (dense !== null) return fields.has('num_local_experts', 'num_experts', 'n_routed_experts') ? dense * experts : dense;
  if (stateAlone) return hiddenSize;
  // Of GPT-2 and its like: a missing or null width is four times the hidden size by the code.
  if (fields.text('model_type') === 'gpt2' || fields.text('model_type') === 'gptj' || fields.has('n_embd')) return 4 * hiddenSize;
  return fields.count(names.feedForward);
}
