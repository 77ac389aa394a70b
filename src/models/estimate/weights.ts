/** Bytes of the weights on one card, and of those that stay in host memory. */
import type { TensorGroup } from '../formats/tensor-groups.js';
import type { ModelFacts } from './facts.js';
import { between, exact, nothing, sum, type Figure } from './figure.js';
import { UnknownField } from './model-shape.js';
import { floatBytesOf, type EstimateOptions } from './options.js';

export interface Weights {
  readonly card: Figure;
  readonly host: Figure;
  /** On the card during the load beyond what stays. */
  readonly loading: Figure;
}

/** Throws `UnknownField` when no weight file has been read. */
export function weightsOf(facts: ModelFacts, options: EstimateOptions): Weights {
  if (facts.weightBytes === null || facts.weightBytesMost === null) throw new UnknownField('the weights', 'no file of them has been read');
  return facts.format === 'gguf' ? ggufWeights(facts, facts.weightBytes, facts.weightBytesMost, options) : tensorWeights(facts, options);
}

/** On a card llama.cpp leaves the token embedding in host memory; where it is the output matrix as well, a copy goes to the card. */
function ggufWeights(facts: ModelFacts, knownBytes: number, mostBytes: number, { onCard }: EstimateOptions): Weights {
  const embedding = facts.groups.find(({ pattern }) => pattern === 'token_embd.weight')?.bytes ?? 0;
  const stays = onCard && facts.tied !== true ? embedding : 0;
  const unsure = mostBytes > knownBytes ? ', some of a type that is not known: at most all that follows the header' : '';
  return {
    card: between(knownBytes - stays, mostBytes - stays, `tensors by their types${stays > 0 ? ', without the token embedding' : ''}${unsure}`),
    host: onCard ? exact(embedding, 'the token embedding stays in host memory') : nothing('all is in one place'),
    loading: nothing('llama.cpp loads in place'),
  };
}

const floats = new Set(['F64', 'F32', 'F16', 'BF16']);
const images = /(^|\.)(vision_tower|vision_model|visual|vision_embed|image_newline|multi_modal_projector|mm_projector|audio_tower|embed_vision|embed_audio)(\.|$)/;

/** From offsets, each group by what becomes of it: cast, divided, kept whole. */
function tensorWeights(facts: ModelFacts, options: EstimateOptions): Weights {
  const castBytes = castTarget(facts, options);
  const each = facts.groups.map((group) => rankBytes(group, loadedBytes(group, castBytes), facts, options));
  const card = sum(each);
  const stored = facts.groups.reduce((total, { bytes }) => total + bytes, 0);
  const cast = facts.groups.reduce((total, group) => total + loadedBytes(group, castBytes), 0);
  const notes = [
    `offsets of ${String(facts.groups.reduce((total, { tensors }) => total + tensors, 0))} tensors`,
    ...(facts.quantization === null ? [] : [`packed by ${facts.quantization}`]),
    ...(cast === stored ? [] : [`cast from ${facts.storedDtype ?? '?'} to ${options.castTo ?? '?'} at load, ${(cast / stored).toFixed(2)} times what is stored`]),
    ...(options.ranks > 1 ? [`divided among ${String(options.ranks)} cards`] : []),
  ];
  const largest = Math.ceil(facts.largestTensorBytes * Math.max(1, cast / Math.max(1, stored)));
  return {
    card: { ...card, leastBytes: card.leastBytes - duplicateOutput(facts, castBytes, options), how: notes.join(', ') },
    host: between(0, facts.largestTensorBytes, 'one tensor at a time is read'),
    loading: between(0, options.backend === 'llama' ? 0 : largest * (cast === stored ? 1 : 2), 'the largest tensor stands there twice for a moment'),
  };
}

/** Bytes of an element that floating weights are cast to; null: they stay as stored. Packed weights are never cast. */
function castTarget(facts: ModelFacts, { castTo }: EstimateOptions): number | null {
  if (castTo === null || facts.quantization !== null) return null;
  return floatBytesOf(castTo);
}

function loadedBytes(group: TensorGroup, castBytes: number | null): number {
  return castBytes !== null && floats.has(group.dtype) ? group.elements * castBytes : group.bytes;
}

function rankBytes(group: TensorGroup, bytes: number, facts: ModelFacts, { ranks, backend }: EstimateOptions): Figure {
  if (ranks === 1) return exact(bytes, group.pattern);
  const divided = Math.ceil(bytes / ranks);
  // A norm, a bias, a router, the compression of MLA: each card has all of it.
  if (group.dimensions < 2 || /(\.gate\.weight|router|kv_a_proj|q_a_proj|layernorm|norm\.weight)/.test(group.pattern)) return exact(bytes, group.pattern);
  if (/\.(k_proj|v_proj)\./.test(group.pattern)) return exact(Math.ceil(bytes / Math.min(ranks, kvHeads(facts) ?? ranks)), group.pattern);
  // Whether these are divided is a setting of the engine.
  if (images.test(group.pattern)) return between(divided, bytes, group.pattern);
  if (backend === 'transformers' && /embed_tokens|lm_head|wte/.test(group.pattern)) return between(divided, bytes, group.pattern);
  return exact(divided, group.pattern);
}

function kvHeads(facts: ModelFacts): number | null {
  if (!('layers' in facts.shape)) return null;
  const counts = facts.shape.layers.flat().flatMap((layer) => (layer.kind === 'full' || layer.kind === 'sliding' ? [layer.kvHeads] : []));
  return counts.length === 0 ? null : Math.min(...counts);
}

/** A tied model that stores its output matrix all the same: a loader may drop it. */
function duplicateOutput(facts: ModelFacts, castBytes: number | null, { ranks }: EstimateOptions): number {
  const output = facts.groups.find(({ pattern }) => /(^|\.)lm_head\.weight$/.test(pattern));
  return facts.tied === true && output !== undefined ? Math.floor(loadedBytes(output, castBytes) / ranks) : 0;
}
