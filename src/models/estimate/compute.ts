/** What an engine allocates to compute with, beside weights and cache. */
import { between, type Figure } from './figure.js';
import { vllmBatchTokens } from './kv-cache.js';
import type { ModelShape } from './model-shape.js';
import { kvBytesOf, llamaBatchTokens, type EstimateOptions } from './options.js';

const mebibyte = 1024 * 1024;
/** Captured graphs and communication buffers of vLLM; none when it runs eagerly on one card. */
const vllmGraphBytes = 1_024 * mebibyte;
/** Sequences that vLLM samples at once by itself. */
const vllmSequences = 256;

/** For one card. `modelDtype`: what activations are in. */
export function computeOf(shape: ModelShape, architecture: string | null, options: EstimateOptions, modelDtype: string): Figure {
  switch (options.backend) {
    case 'llama': return llamaCompute(shape, architecture, options);
    case 'vllm': return vllmCompute(shape, options, modelDtype);
    case 'transformers': return transformersCompute(shape, options, modelDtype);
  }
}

/**
 * llama.cpp lays one evaluation's tensors over each other, so its buffer is the largest of three moments: the logits of
 * a batch in single precision; the feed-forward part, attention masks standing beside it; and without flash attention
 * every head's scores. One buffer a context.
 */
function llamaCompute(shape: ModelShape, architecture: string | null, options: EstimateOptions): Figure {
  const cells = Math.ceil(options.contextTokens / 256) * 256;
  const batch = Math.min(options.batchTokens ?? llamaBatchTokens, cells);
  const flash = options.flashAttention ?? flashByItself(shape, architecture);
  const masks = maskColumns(shape, cells, batch) * batch * (flash ? 2 : 4);
  const { hiddenSize, querySize, feedForwardSize, expertsUsed, vocabulary } = shape;
  const width = Math.max(3 * feedForwardSize, 2 * feedForwardSize + 2 * expertsUsed * hiddenSize) + 3 * hiddenSize + Math.max(hiddenSize, querySize);
  const moments = [
    { bytes: batch * (vocabulary + besideLogits(shape) * hiddenSize) * 4, how: 'the logits' },
    { bytes: batch * width * 4 + masks, how: 'masks and feed-forward' },
    ...(flash ? [] : [{ bytes: scoresBytes(shape, cells, batch) + masks, how: 'the scores of all heads, without flash attention,' }]),
  ];
  const worst = moments.reduce((most, moment) => (moment.bytes > most.bytes ? moment : most));
  return between(Math.floor(worst.bytes * 0.9), Math.ceil(worst.bytes * 1.02) * options.parallel, `${worst.how} of a batch of ${String(batch)}`);
}

/** Streams of the hidden size that stand beside the logits: more, by measurement, where layers are of several kinds. */
function besideLogits({ layers }: ModelShape): number {
  const kinds = new Set(layers.flat().map(({ kind }) => kind));
  if (kinds.has('latent')) return 10;
  return kinds.has('state') || kinds.has('sliding') ? 4 : 2;
}

/** As the bindings decide it: not where keys and values differ in width. */
function flashByItself({ layers }: ModelShape, architecture: string | null): boolean {
  if (architecture === 'gemma2' || architecture === 'grok') return false;
  return layers.flat().every((layer) => (layer.kind === 'full' || layer.kind === 'sliding' ? layer.keySize === layer.valueSize : layer.kind !== 'latent'));
}

/** Columns of all masks: one for what sees everything, one for each window. */
function maskColumns({ layers }: ModelShape, cells: number, batch: number): number {
  const flat = layers.flat();
  if (!flat.some(({ kind }) => kind === 'full' || kind === 'sliding' || kind === 'latent')) return 0;
  const windows = new Set(flat.flatMap((layer) => (layer.kind === 'sliding' ? [layer.windowTokens] : [])));
  return [cells, ...[...windows].map((window) => Math.min(cells, window + batch + 256))].reduce((total, columns) => total + columns, 0);
}

/** Scores of every query head with every place, what goes into them, and a straightened copy of a latent's values. */
function scoresBytes({ layers, heads, hiddenSize, querySize }: ModelShape, cells: number, batch: number): number {
  const latentSize = layers.flat().reduce((most, layer) => (layer.kind === 'latent' ? Math.max(most, layer.latentSize) : most), 0);
  const queries = Math.max(querySize, latentSize * (heads ?? 0));
  return (heads ?? 0) * cells * batch * 4 + batch * 3 * (hiddenSize + queries) * 4 + cells * latentSize * 2;
}

function vllmCompute(shape: ModelShape, options: EstimateOptions, modelDtype: string): Figure {
  const at = (batch: number): number => batch * activationWidth(shape, options.ranks) * kvBytesOf(modelDtype, 1, 'vllm');
  const sampling = Math.ceil((vllmSequences * shape.vocabulary * 4 * 2));
  const least = at(options.batchTokens ?? vllmBatchTokens.least);
  const most = at(options.batchTokens ?? vllmBatchTokens.most) + sampling + vllmGraphBytes;
  return between(least, most, `activations of ${options.batchTokens === null ? `${String(vllmBatchTokens.least)} to ${String(vllmBatchTokens.most)}` : String(options.batchTokens)} tokens, sampling, captured graphs up to ${String(vllmGraphBytes / mebibyte)} MiB`);
}

/** A prompt goes through whole, with the last token's logits; a padded batch has a mask; growing a cache copies one layer of it. */
function transformersCompute(shape: ModelShape, options: EstimateOptions, modelDtype: string): Figure {
  const elementBytes = kvBytesOf(modelDtype, 1, 'transformers');
  const tokens = options.batchTokens === null ? options.contextTokens : Math.min(options.batchTokens, options.contextTokens);
  const activations = options.parallel * tokens * activationWidth(shape, options.ranks) * elementBytes;
  const logits = options.parallel * shape.vocabulary * 4 * 2;
  const mask = options.parallel > 1 ? options.parallel * tokens * options.contextTokens : 0;
  const widest = shape.layers.flat().reduce((most, layer) => Math.max(most, layer.kind === 'latent' ? layer.heads * (layer.keySize + layer.valueSize) : layer.kind === 'full' ? layer.kvHeads * (layer.keySize + layer.valueSize) : 0), 0);
  const growing = options.parallel * options.contextTokens * widest * elementBytes;
  return between(Math.floor(activations / 2) + logits, activations + logits + mask + growing, `a prompt of ${String(tokens)} tokens at once, logits of the last, one layer of the cache twice`);
}

/** Elements that stand at once for each token: what goes through, queries, keys and values, and the feed-forward part. */
function activationWidth({ hiddenSize, querySize, feedForwardSize }: ModelShape, ranks: number): number {
  return 4 * hiddenSize + Math.ceil((2 * querySize + 3 * feedForwardSize) / ranks);
}

