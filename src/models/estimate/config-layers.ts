/** What each layer of a config.json is: attention over everything, over a window, a state, both, or neither. */
import { isObject } from '../formats/config-json.js';
import type { JsonValue } from '../formats/json-scanner.js';
import type { Fields } from './config-fields.js';
import { UnknownField } from './model-shape.js';

/** `unsure`: a window is stated, and not which layers keep to it. */
export type LayerKind = 'full' | 'sliding' | 'unsure' | 'state' | 'both' | 'none';

const spoken: Readonly<Record<string, LayerKind>> = {
  full_attention: 'full', attention: 'full', global: 'full', global_attention: 'full', hybrid: 'both', mla: 'full',
  sliding_attention: 'sliding', sliding_window: 'sliding', local: 'sliding', local_attention: 'sliding', chunked_attention: 'sliding',
  linear_attention: 'state', mamba: 'state', mamba2: 'state', conv: 'state', recurrent: 'state', ssm: 'state',
  mlp: 'none', moe: 'none', none: 'none', no_op: 'none',
};
/** Of Nemotron-H: `M` a state, `*` attention, `-` and `E` neither. */
const patternLetters: Readonly<Record<string, LayerKind>> = { 'M': 'state', '*': 'full', '-': 'none', 'E': 'none' };

/** Families whose windows follow a rule of the code, with no field for it. */
const windowRules: Readonly<Record<string, (layer: number) => LayerKind>> = {
  gemma2: (layer) => (layer % 2 === 0 ? 'sliding' : 'full'),
  gemma3_text: (layer) => ((layer + 1) % 6 === 0 ? 'full' : 'sliding'),
  gemma3: (layer) => ((layer + 1) % 6 === 0 ? 'full' : 'sliding'),
  cohere2: (layer) => ((layer + 1) % 4 === 0 ? 'full' : 'sliding'),
  mistral: () => 'sliding', mixtral: () => 'sliding', phi3: () => 'sliding', starcoder2: () => 'sliding', phimoe: () => 'sliding',
};
const alwaysState = new Set(['mamba', 'mamba2', 'falcon_mamba']);

export function layerKinds(fields: Fields, layers: number): readonly LayerKind[] {
  const each = (kindOf: (layer: number) => LayerKind): readonly LayerKind[] => Array.from({ length: layers }, (_, layer) => kindOf(layer));
  const family = fields.text('model_type') ?? '';
  if (alwaysState.has(family)) return each(() => 'state');
  if (family === 'falcon_h1') return each(() => 'both');
  return listed(fields, layers) ?? periodic(fields, each) ?? windowed(fields, family, each);
}

/** From a list with one item a layer. */
function listed(fields: Fields, layers: number): readonly LayerKind[] | null {
  const names = ['layer_types', 'layers_block_type'];
  const list = fields.raw(...names);
  if (Array.isArray(list)) return sized(fields.named(names.find((name) => fields.has(name)) ?? ''), (list as readonly JsonValue[]).map((item, index) => spokenKind(fields.named(`layer_types[${String(index)}]`), item)), layers);
  const pattern = fields.text('hybrid_override_pattern');
  if (pattern !== null) return sized(fields.named('hybrid_override_pattern'), Array.from(pattern, (letter) => patternLetters[letter] ?? unknownKind(fields.named('hybrid_override_pattern'), letter)), layers);
  const types = fields.raw('attn_type_list');
  if (Array.isArray(types)) return sized(fields.named('attn_type_list'), types.map((item) => (item === 1 ? 'full' : 'state')), layers);
  const blocks = fields.raw('block_configs');
  if (Array.isArray(blocks)) return sized(fields.named('block_configs'), (blocks as readonly JsonValue[]).map((block) => (attends(block) ? 'full' : 'none')), layers);
  return null;
}

/** From a rule that a few numbers state. */
function periodic(fields: Fields, each: (kindOf: (layer: number) => LayerKind) => readonly LayerKind[]): readonly LayerKind[] | null {
  const indices = fields.raw('attn_layer_indices', 'full_attn_idxs');
  if (Array.isArray(indices)) return each((layer) => (indices.includes(layer) ? 'full' : 'state'));
  const period = fields.optionalCount(['attn_layer_period']);
  if (period !== null) {
    const offset = fields.count(['attn_layer_offset'], 0);
    return each((layer) => (layer % period === offset ? 'full' : 'state'));
  }
  const interval = fields.optionalCount(['full_attention_interval']);
  if (interval !== null) return each((layer) => ((layer + 1) % interval === 0 ? 'full' : 'state'));
  const repeated = fields.raw('block_types', '_block_types');
  if (!Array.isArray(repeated) || repeated.length === 0) return null;
  const kinds = (repeated as readonly JsonValue[]).map((item) => spokenKind(fields.named('block_types'), item));
  // Of RecurrentGemma: its attention keeps to a window.
  return each((layer) => (kinds[layer % kinds.length] === 'full' && fields.has('attention_window_size') ? 'sliding' : kinds[layer % kinds.length] ?? 'full'));
}

function windowed(fields: Fields, family: string, each: (kindOf: (layer: number) => LayerKind) => readonly LayerKind[]): readonly LayerKind[] {
  if (windowOf(fields) === null || fields.raw('use_sliding_window') === false) return each(() => 'full');
  const pattern = fields.optionalCount(['sliding_window_pattern', '_sliding_window_pattern']);
  if (pattern !== null) return each((layer) => ((layer + 1) % pattern === 0 ? 'full' : 'sliding'));
  const firstWindowed = fields.optionalCount(['max_window_layers'], 0);
  if (firstWindowed !== null) return each((layer) => (layer >= firstWindowed ? 'sliding' : 'full'));
  return each(windowRules[family] ?? (() => 'unsure'));
}

export function windowOf(fields: Fields): number | null {
  return fields.optionalCount(['sliding_window', 'attention_window_size', 'attention_chunk_size', 'sliding_window_size']);
}

/** Of a block of DeciLM: whether it has attention at all. */
function attends(block: JsonValue): boolean {
  if (!isObject(block) || !isObject(block['attention'])) return true;
  const { no_op: none, replace_with_linear: linear } = block['attention'];
  return none !== true && linear !== true;
}

function spokenKind(name: string, item: JsonValue): LayerKind {
  return (typeof item === 'string' ? spoken[item] : undefined) ?? unknownKind(name, item);
}

function unknownKind(name: string, item: JsonValue): never {
  throw new UnknownField(name, `${JSON.stringify(item).slice(0, 80)} is no kind of layer that is understood`);
}

function sized(name: string, kinds: readonly LayerKind[], layers: number): readonly LayerKind[] {
  if (kinds.length !== layers) throw new UnknownField(name, `it lists ${String(kinds.length)} layers, and the model has ${String(layers)}`);
  return kinds;
}
