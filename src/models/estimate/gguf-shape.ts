/** The shape of a model from the header of its GGUF file, as llama.cpp reads it. */
import type { GgufHeader } from '../formats/gguf-header.js';
import type { JsonValue } from '../formats/json-scanner.js';
import { Fields } from './config-fields.js';
import { UnknownField, type Layer, type ModelShape } from './model-shape.js';

const layersMax = 1_024;

/**
 * Architectures for which llama.cpp keeps a small cache for windowed layers: of each `period` layers all but one. Any
 * other with a window may keep everything.
 */
const windowed: Readonly<Record<string, { readonly period: number; readonly fullFirst?: boolean }>> = {
  'gemma2': { period: 2 }, 'gemma3': { period: 6 }, 'gemma3n': { period: 5 }, 'gpt-oss': { period: 2 }, 'cohere2': { period: 4 }, 'llama4': { period: 4 },
  'exaone4': { period: 4 }, 'olmo2': { period: 4 }, 'smallthinker': { period: 4, fullFirst: true },
};
/** Layers that attend and keep a state besides. */
const bothInEach = new Set(['falcon-h1']);
/** Architectures of states alone. */
const stateAlone = new Set(['mamba', 'mamba2', 'rwkv6', 'rwkv7', 'rwkv6qwen2', 'arwkv7']);
/** Gated delta nets: every fourth layer attends where the file states no other interval. */
const interleaved = new Set(['qwen3next', 'qwen35', 'qwen35moe']);

/** Throws `UnknownField`. */
export function shapeOfGguf(header: GgufHeader): ModelShape {
  const { fields, architecture } = fieldsOf(header);
  const layers = fields.count(['block_count']);
  if (layers > layersMax) throw new UnknownField(fields.named('block_count'), `${String(layers)} layers are beyond any model`);
  const hiddenSize = fields.count(['embedding_length']);
  const recurrent = stateAlone.has(architecture);
  const heads = recurrent ? null : fields.perLayer(['attention.head_count'], layers) ?? fields.perLayer(['attention.head_count_kv'], layers);
  const most = heads === null ? 0 : Math.max(...heads);
  if (!recurrent && most === 0) fields.count(['attention.head_count']);
  const attention = recurrent ? null : attentionOf(fields, layers, hiddenSize, most);
  const kindOf = layerRule(fields, architecture);
  const expertsUsed = fields.optionalCount(['expert_used_count']) ?? 1;
  const shared = fields.optionalCount(['attention.shared_kv_layers'], 0) ?? 0;
  return {
    layers: Array.from({ length: layers }, (_, layer) => kindOf(layer, layer < layers - shared ? attention?.[layer] ?? null : null, hiddenSize)),
    hiddenSize,
    heads: most === 0 ? null : most,
    querySize: most === 0 ? hiddenSize : most * (fields.optionalCount(['attention.key_length_mla', 'attention.key_length']) ?? Math.floor(hiddenSize / most)),
    feedForwardSize: Math.max(...fields.perLayer(['feed_forward_length'], layers) ?? [0], (fields.optionalCount(['expert_feed_forward_length']) ?? 0) * expertsUsed),
    expertsUsed,
    vocabulary: fields.optionalCount(['vocab_size']) ?? header.arrays.get('tokenizer.ggml.tokens')?.length ?? header.groups.find(({ pattern }) => pattern === 'token_embd.weight')?.shape?.[1] ?? fields.count(['vocab_size']),
    trainedTokens: fields.optionalCount(['context_length']),
  };
}

/** The keys of the header's own architecture, without its name before them. */
function fieldsOf({ scalars, arrays }: GgufHeader): { readonly fields: Fields; readonly architecture: string } {
  const architecture = scalars.get('general.architecture');
  if (typeof architecture !== 'string' || architecture === '') throw new UnknownField('general.architecture', 'it is missing');
  const prefix = `${architecture}.`;
  const object: Record<string, JsonValue> = {};
  for (const [key, value] of scalars) if (key.startsWith(prefix)) object[key.slice(prefix.length)] = typeof value === 'bigint' ? Number(value) : value;
  for (const [key, { values }] of arrays) if (key.startsWith(prefix) && values !== null) object[key.slice(prefix.length)] = values;
  return { fields: Fields.of(object, prefix), architecture };
}

type Attention = Extract<Layer, { readonly kind: 'full' | 'latent' }>;

function attentionOf(fields: Fields, layers: number, hiddenSize: number, heads: number): readonly (Attention | null)[] {
  const rank = fields.optionalCount(['attention.kv_lora_rank']);
  if (rank !== null && fields.has('attention.key_length_mla')) {
    const ropeSize = fields.count(['rope.dimension_count']);
    const layer: Attention = { kind: 'latent', latentSize: rank + ropeSize, heads, keySize: fields.count(['attention.key_length_mla']), valueSize: fields.count(['attention.value_length_mla']) };
    return Array.from({ length: layers }, () => layer);
  }
  const kvHeads = fields.perLayer(['attention.head_count_kv'], layers) ?? fields.perLayer(['attention.head_count'], layers) ?? [];
  const byDefinition = heads === 0 ? 0 : Math.floor(hiddenSize / heads);
  const keySize = fields.optionalCount(['attention.key_length']) ?? byDefinition;
  const valueSize = fields.optionalCount(['attention.value_length']) ?? byDefinition;
  return kvHeads.map((count) => (count === 0 ? null : { kind: 'full', kvHeads: count, keySize, valueSize }));
}

type LayerRule = (layer: number, attention: Attention | null, hiddenSize: number) => readonly Layer[];

function layerRule(fields: Fields, architecture: string): LayerRule {
  const hasState = fields.has('ssm.inner_size', 'shortconv.l_cache', 'wkv.head_size');
  const interval = interleaved.has(architecture) ? fields.optionalCount(['full_attention_interval']) ?? 4 : null;
  const windowTokens = fields.optionalCount(['attention.sliding_window']);
  const isSliding = slidingRule(fields, architecture);
  return (layer, attention, hiddenSize) => {
    const attends = attention !== null && (interval === null || (layer + 1) % interval === 0);
    const keepsState = hasState && (!attends || bothInEach.has(architecture)) && !isFeedForwardAlone(fields, layer);
    const found: Layer[] = keepsState ? [stateOf(fields, hiddenSize)] : [];
    if (attends) found.push(attention.kind === 'latent' || windowTokens === null ? attention : isSliding === null ? { ...attention, windowTokens } : isSliding(layer) ? { ...attention, kind: 'sliding', windowTokens } : attention);
    return found.length === 0 ? [{ kind: 'none' }] : found;
  };
}

/** Null: the file states a window, and it is not known which layers keep to it. */
function slidingRule(fields: Fields, architecture: string): ((layer: number) => boolean) | null {
  const stated = fields.raw('attention.sliding_window_pattern');
  if (Array.isArray(stated)) return (layer) => stated[layer] === 1 || stated[layer] === true;
  const rule = windowed[architecture];
  if (rule === undefined) return null;
  const period = typeof stated === 'number' && stated >= 1 ? stated : rule.period;
  return (layer) => (rule.fullFirst === true ? layer % period !== 0 : layer % period < period - 1);
}

/** Of Nemotron-H: a layer without heads that has a feed-forward part keeps no state. */
function isFeedForwardAlone(fields: Fields, layer: number): boolean {
  const widths = fields.raw('feed_forward_length');
  const heads = fields.raw('attention.head_count_kv');
  return Array.isArray(widths) && Array.isArray(heads) && !fields.has('shortconv.l_cache') && Number(widths[layer] ?? 0) > 0 && Number(heads[layer] ?? 0) === 0 && widths.some((width) => width === 0);
}

function stateOf(fields: Fields, hiddenSize: number): Layer {
  const headSize = fields.optionalCount(['wkv.head_size']);
  if (headSize !== null) return { kind: 'state', convolutionElements: (fields.optionalCount(['token_shift_count']) ?? 2) * hiddenSize, recurrentElements: hiddenSize * headSize };
  const cache = fields.optionalCount(['shortconv.l_cache']);
  if (cache !== null) return { kind: 'state', convolutionElements: (cache - 1) * hiddenSize, recurrentElements: 0 };
  const inner = fields.count(['ssm.inner_size']);
  const size = fields.count(['ssm.state_size']);
  const mixed = inner + 2 * (fields.optionalCount(['ssm.group_count'], 0) ?? 0) * size;
  return { kind: 'state', convolutionElements: (fields.count(['ssm.conv_kernel']) - 1) * mixed, recurrentElements: inner * size };
}
