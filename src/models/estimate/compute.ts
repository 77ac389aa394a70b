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
export function computeOf(shape: ModelShape, options: EstimateOptions, modelDtype: string): Figure {
  switch (options.backend) {
    case 'llama': return llamaCompute(shape, options);
    case 'vllm': return vllmCompute(shape, options, modelDtype);
    case 'transformers': return transformersCompute(shape, options, modelDtype);
  }
}

/**
 * llama.cpp lays one evaluation's tensors over each other, so its buffer is the larger of two moments: the logits of a
 * batch in single precision, or the feed-forward part with the attention masks standing beside it. One buffer a context.
 */
function llamaCompute(shape: ModelShape, options: EstimateOptions): Figure {
  const cells = Math.ceil(options.contextTokens / 256) * 256;
  const batch = Math.min(options.batchTokens ?? llamaBatchTokens, cells);
  const { hiddenSize, querySize, feedForwardSize, expertsUsed, vocabulary } = shape;
  const logits = batch * (vocabulary + 2 * hiddenSize) * 4;
  const windows = new Set(shape.layers.flat().flatMap((layer) => (layer.kind === 'sliding' ? [layer.windowTokens] : [])));
  const attends = shape.layers.flat().some(({ kind }) => kind === 'full' || kind === 'sliding' || kind === 'latent');
  const masks = attends ? [cells, ...[...windows].map((window) => Math.min(cells, window + batch + 256))].reduce((total, columns) => total + columns * batch * 2, 0) : 0;
  const width = Math.max(3 * feedForwardSize, 2 * feedForwardSize + 2 * expertsUsed * hiddenSize) + 3 * hiddenSize + Math.max(hiddenSize, querySize);
  const feedForward = batch * width * 4 + masks;
  const most = Math.max(logits, feedForward);
  return between(Math.floor(most * 0.9), Math.ceil(most * 1.02) * options.parallel, `${logits >= feedForward ? 'the logits' : 'masks and feed-forward'} of a batch of ${String(batch)}`);
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

