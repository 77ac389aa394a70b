/** An estimate in the light of what loads have measured: what the next load asks for (ADR 0038). Pure. */
import type { LearnedSize } from '../learned/learned-size.js';
import type { CardEstimate, ModelEstimate } from './estimate.js';
import { between, exact, sum, type Figure } from './figure.js';
import type { EstimateOptions } from './options.js';

/** Nearer than this two reckonings of one file are of the same weights. */
const agreement = 0.01;

/**
 * `sizes`: of this model's file. `source` is `learned` where both weights and contexts were measured; where only one was, it
 * counts and the rest is estimated. Several kinds of card make a range. An estimate for other settings, for several cards, for the
 * CPU, or of a declared size stays as it is: what was measured is of none of these.
 */
export function withLearned(own: ModelEstimate, sizes: readonly LearnedSize[]): ModelEstimate {
  const [card] = own.cards;
  const fitting = sizes.filter(({ key, parts }) => key.engine === own.options.backend && parts.some(isWeights) && !parts.some(({ kind }) => kind === 'context'));
  if (card === undefined || fitting.length === 0 || own.source !== 'estimated' || !isUsual(own.options)) return own;
  const how = `learned by ${fitting.map(({ loads, key }) => `${String(loads)} load${loads === 1 ? '' : 's'} on ${key.card}`).join(', ')}`;
  const weights = range(fitting.map((size) => weightsOf(size, card)), how);
  const compute = range(fitting.map((size) => computeOf(size, card)), how);
  const parts = [weights, card.kv, compute, ...[card.projector, card.draft].filter((figure) => figure !== null)];
  const total = sum(parts);
  const loadPeak = { ...card.loadPeak, bytes: Math.max(total.bytes, card.loadPeak.bytes + total.bytes - card.total.bytes), leastBytes: Math.max(total.leastBytes, card.loadPeak.leastBytes + total.leastBytes - card.total.leastBytes) };
  return { ...own, source: fitting.every(({ contexts }) => contexts.length > 0) ? 'learned' : 'estimated', cards: [{ ...card, weights, compute, total, loadPeak }] };
}

/** What a load does where nothing is said of it. */
function isUsual({ ranks, onCard, kvDtype, batchTokens, flashAttention }: EstimateOptions): boolean {
  return ranks === 1 && onCard && kvDtype === null && batchTokens === null && flashAttention === null;
}

const isWeights = ({ name }: { readonly name: string }): boolean => name === 'weights';

/** Of another file that was there then, or of other settings, it only raises. */
function weightsOf({ parts }: LearnedSize, { weights: { bytes } }: CardEstimate): number {
  const learned = parts.find(isWeights);
  if (learned === undefined) return bytes;
  const lowers = learned.upFront && Math.abs(learned.estimatedBytes - bytes) <= bytes * agreement;
  return lowers ? learned.measuredBytes : Math.max(learned.measuredBytes, bytes);
}

/** A context is measured as a whole; its cache is exact, so the rest is what it computes in. What was taken beyond all parts is, too. */
function computeOf({ parts, contexts, grownBytes }: LearnedSize, { kv, compute }: CardEstimate): number {
  const estimatedBytes = kv.bytes + compute.bytes;
  const ratios = contexts.map((context) => context.measuredBytes / context.estimatedBytes);
  const contextBytes = ratios.length === 0 ? estimatedBytes : Math.ceil(estimatedBytes * Math.max(...ratios));
  const others = parts.filter((part) => !isWeights(part)).reduce((bytes, { measuredBytes }) => bytes + measuredBytes, 0);
  return Math.max(0, contextBytes - kv.bytes) + others + grownBytes;
}

function range(bytes: readonly number[], how: string): Figure {
  const [least, most] = [Math.min(...bytes), Math.max(...bytes)];
  return least === most ? exact(most, how) : between(least, most, how);
}
