/** Bytes of the cache on one card: what every token of a context leaves behind, and the states of each sequence. */
import { LeaseholdError } from '../../../protocol/index.js';
import { between, type Figure } from './figure.js';
import { UnknownField, type Layer, type ModelShape } from './model-shape.js';
import { kvBytesOf, llamaBatchTokens, type EstimateOptions } from './options.js';

/** llama.cpp pads a cache to a multiple of this. */
const llamaGranule = 256;
/** Tokens of a block of vLLM's cache. */
const vllmBlock = 16;
/** What vLLM takes in one step by itself: on small cards, and on large ones. */
export const vllmBatchTokens = { least: 2_048, most: 8_192 } as const;

export interface CacheFigure extends Figure {
  /** What one more token of one context costs once all windows are full. */
  readonly bytesPerToken: number;
}

/** `modelDtype`: the type the model computes in, which an engine's cache follows when nothing else is said. */
export function cacheOf(shape: ModelShape, options: EstimateOptions, modelDtype: string | null): CacheFigure {
  const kvDtype = options.kvDtype ?? (options.backend === 'llama' ? 'f16' : modelDtype);
  if (kvDtype === null) throw new UnknownField('dtype', 'neither the weights nor the config say what the model computes in');
  const each = shape.layers.flat().map((layer) => layerBytes(layer, options, kvDtype));
  const least = each.reduce((total, { leastBytes }) => total + leastBytes, 0);
  const most = each.reduce((total, { bytes }) => total + bytes, 0) + groupPadding(shape, options, kvDtype);
  const figure = between(least * options.parallel, most * options.parallel, `${describe(shape)}, in ${kvDtype}${options.parallel > 1 ? `, ${String(options.parallel)} times` : ''}`);
  const perToken = shape.layers.flat().reduce((total, layer) => total + (layer.kind === 'full' || layer.kind === 'latent' ? tokenBytes(layer, options, kvDtype) : 0), 0);
  return { ...figure, bytesPerToken: perToken };
}

/** For one context. */
function layerBytes(layer: Layer, options: EstimateOptions, kvDtype: string): Figure {
  if (layer.kind === 'none') return between(0, 0, '');
  if (layer.kind === 'state') return stateBytes(layer, options, kvDtype);
  const bytesPerToken = tokenBytes(layer, options, kvDtype);
  const whole = bytesPerToken * cells(options);
  if (layer.kind === 'latent') return between(whole, whole, '');
  if (layer.windowTokens === undefined) return between(whole, whole, '');
  const windowed = Math.min(whole, bytesPerToken * windowCells(layer.windowTokens, options));
  return layer.kind === 'sliding' ? between(windowed, windowed, '') : between(windowed, whole, '');
}

/** Bytes that one token leaves in one layer on one card. */
function tokenBytes(layer: Extract<Layer, { readonly kind: 'full' | 'sliding' | 'latent' }>, options: EstimateOptions, kvDtype: string): number {
  const { backend, ranks } = options;
  const row = (elements: number): number => kvBytesOf(kvDtype, elements, backend);
  if (layer.kind !== 'latent') {
    const heads = headsPerRank(layer.kvHeads, ranks);
    return row(heads * layer.keySize) + row(heads * layer.valueSize);
  }
  // llama.cpp and vLLM keep the latent, each rank all of it; Transformers keeps what is made of it.
  if (backend !== 'transformers') return row(layer.latentSize);
  const heads = headsPerRank(layer.heads, ranks);
  return row(heads * layer.keySize) + row(heads * layer.valueSize);
}

/** Heads of one rank: divided, and never less than one, since a rank without a head of its own keeps a copy of another's (B190). */
export function headsPerRank(heads: number, ranks: number): number {
  if (heads % ranks !== 0 && ranks % heads !== 0) throw new LeaseholdError('input_invalid', { field: 'ranks', reason: `${String(heads)} heads cannot be divided among ${String(ranks)} cards` });
  return Math.max(1, heads / ranks);
}

/** Places for tokens that a full layer has. */
function cells({ backend, contextTokens }: EstimateOptions): number {
  if (backend === 'transformers') return contextTokens;
  const granule = backend === 'llama' ? llamaGranule : vllmBlock;
  return Math.ceil(contextTokens / granule) * granule;
}

/** Places that a windowed layer has: the window, and what one evaluation adds to it before the oldest are forgotten. */
function windowCells(windowTokens: number, { backend, contextTokens, batchTokens }: EstimateOptions): number {
  if (backend === 'transformers') return windowTokens;
  if (backend === 'llama') {
    const padded = Math.ceil(contextTokens / llamaGranule) * llamaGranule;
    return Math.ceil((windowTokens + Math.min(batchTokens ?? llamaBatchTokens, padded)) / llamaGranule) * llamaGranule;
  }
  return (Math.ceil((windowTokens - 1 + (batchTokens ?? vllmBatchTokens.most)) / vllmBlock) + 1) * vllmBlock;
}

/** vLLM gives all kinds of layers blocks from one pool, in groups of as many layers: the last group of a kind is filled up. */
function groupPadding(shape: ModelShape, options: EstimateOptions, kvDtype: string): number {
  if (options.backend !== 'vllm') return 0;
  const layers = shape.layers.flat();
  const full = layers.filter(({ kind }) => kind === 'full');
  const sliding = layers.filter((layer): layer is Extract<Layer, { readonly kind: 'sliding' }> => layer.kind === 'sliding');
  const [first] = sliding;
  if (first === undefined || full.length === 0) return 0;
  const size = Math.min(full.length, sliding.length);
  const missing = (count: number): number => (size - (count % size)) % size;
  return missing(sliding.length) * layerBytes(first, options, kvDtype).bytes + missing(full.length) * layerBytes(full[0] ?? first, options, kvDtype).bytes;
}

/** llama.cpp keeps states in single precision; of the others it is not known whether the recurrent part is. */
function stateBytes({ convolutionElements, recurrentElements }: Extract<Layer, { readonly kind: 'state' }>, { backend, ranks }: EstimateOptions, kvDtype: string): Figure {
  const most = Math.ceil(((convolutionElements + recurrentElements) * 4) / ranks);
  if (backend === 'llama') return between(most, most, '');
  // Where a state layer shares a pool with attention, its page and theirs are made equal.
  return between(Math.ceil(kvBytesOf(kvDtype, convolutionElements + recurrentElements, backend) / ranks), most, '');
}

/** The layers in words: `25 sliding (1024 tokens), 5 full`. */
export function describe(shape: ModelShape): string {
  const counts = new Map<string, number>();
  for (const layer of shape.layers.flat()) {
    const word = wordOf(layer);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${String(count)} layers ${word}`).join(', ');
}

function wordOf(layer: Layer): string {
  switch (layer.kind) {
    case 'full': return `of ${String(layer.kvHeads)} kv heads${layer.windowTokens === undefined ? '' : `, perhaps of the last ${String(layer.windowTokens)} tokens only`}`;
    case 'sliding': return `of ${String(layer.kvHeads)} kv heads, last ${String(layer.windowTokens)} tokens`;
    case 'latent': return `of a latent of ${String(layer.latentSize)}`;
    case 'state': return 'of a fixed state';
    case 'none': return 'that keep nothing';
  }
}
