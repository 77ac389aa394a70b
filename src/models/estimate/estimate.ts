/** The bytes that a model will need, card by card, and how each figure was got. Pure. */
import { LeaseholdError } from '../../../protocol/index.js';
import { computeOf } from './compute.js';
import type { ModelFacts } from './facts.js';
import { between, nothing, sum, type Figure } from './figure.js';
import { cacheOf } from './kv-cache.js';
import { UnknownField } from './model-shape.js';
import { checkOptions, type EstimateOptions } from './options.js';
import { projectorOf } from './projector.js';
import { weightsOf } from './weights.js';

export interface CardEstimate {
  readonly rank: number;
  /** Null: whichever it will be. */
  readonly device: string | null;
  readonly weights: Figure;
  /** Of all contexts. */
  readonly kv: Figure;
  readonly compute: Figure;
  /** Null: the model sees nothing. */
  readonly projector: Figure | null;
  /** A draft model, all of it. Null: none. */
  readonly draft: Figure | null;
  /** All of the above, when loaded. */
  readonly total: Figure;
  /** The most at any moment of the load; never less than the total. */
  readonly loadPeak: Figure;
}

export interface ModelEstimate {
  readonly model: string;
  readonly options: EstimateOptions;
  readonly source: 'declared' | 'estimated' | 'learned';
  readonly cards: readonly CardEstimate[];
  readonly host: Figure;
  /** Null for a declared size. */
  readonly kvBytesPerToken: number | null;
}

export interface EstimateInput {
  readonly facts: ModelFacts;
  readonly options: EstimateOptions;
  readonly draft?: ModelFacts | null;
  /** The operator's word, where no size can be worked out (B20). */
  readonly declaredBytes?: number | null;
}

/** Throws `estimate_unknown`, naming the field that is missing, unless a size is declared; `input_invalid` for impossible options. */
export function estimate({ facts, options, draft = null, declaredBytes = null }: EstimateInput): ModelEstimate {
  checkOptions(options);
  if ((facts.format === 'gguf') !== (options.backend === 'llama')) {
    throw new LeaseholdError('input_invalid', { field: 'backend', reason: `${options.backend} does not load ${facts.format}` });
  }
  try {
    return estimated(facts, options, draft);
  } catch (error) {
    if (!(error instanceof UnknownField)) throw error;
    if (declaredBytes !== null) return declared(facts, options, declaredBytes, error);
    throw unknownSize(facts, error);
  }
}

function estimated(facts: ModelFacts, options: EstimateOptions, draft: ModelFacts | null): ModelEstimate {
  if (facts.shape instanceof UnknownField) throw facts.shape;
  const chosen = withCast(facts, options);
  const dtype = computeDtype(facts, chosen);
  const weights = weightsOf(facts, chosen);
  const cache = cacheOf(facts.shape, chosen, dtype);
  if (dtype === null && chosen.backend !== 'llama') throw new UnknownField('dtype', 'neither the weights nor the config say what the model computes in');
  const compute = computeOf(facts.shape, facts.architecture, chosen, dtype ?? 'f32');
  const projector = projectorOf(facts, chosen);
  const drafted = draft === null ? null : estimated(draft, { ...options, imageSide: options.imageSide }, null);
  const cards = Array.from({ length: chosen.ranks }, (_, rank): CardEstimate => {
    const draftFigure = drafted?.cards[rank]?.total ?? null;
    const total = sum([weights.card, cache, compute, ...(projector === null ? [] : [projector]), ...(draftFigure === null ? [] : [draftFigure])]);
    const loading = sum([weights.card, weights.loading]);
    const loadPeak = between(Math.max(total.leastBytes, loading.leastBytes), Math.max(total.bytes, loading.bytes), loading.bytes > total.bytes ? weights.loading.how : 'no more than when loaded');
    return { rank, device: null, weights: weights.card, kv: cache, compute, projector, draft: draftFigure, total, loadPeak };
  });
  const host = drafted === null ? weights.host : sum([weights.host, drafted.host]);
  return { model: facts.name, options: chosen, source: 'estimated', cards, host, kvBytesPerToken: cache.bytesPerToken };
}

/** Transformers loads in what the config asks for; vLLM halves single precision by itself. Stated here, so that it is seen. */
function withCast(facts: ModelFacts, options: EstimateOptions): EstimateOptions {
  if (options.castTo !== null || facts.format === 'gguf' || facts.quantization !== null) return options;
  const wanted = facts.configDtype ?? facts.storedDtype;
  if (options.backend === 'vllm' && wanted !== null && /^(float32|F32)$/i.test(wanted)) return { ...options, castTo: 'bfloat16' };
  return { ...options, castTo: facts.configDtype };
}

function computeDtype(facts: ModelFacts, { castTo }: EstimateOptions): string | null {
  return castTo ?? facts.configDtype ?? facts.storedDtype;
}

function declared(facts: ModelFacts, options: EstimateOptions, bytes: number, why: UnknownField): ModelEstimate {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new LeaseholdError('bytes_invalid', { field: 'declaredBytes', value: bytes, minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
  const all: Figure = { bytes, leastBytes: bytes, how: `declared, since ${why.message}` };
  const none = nothing('in the declared size');
  const cards = Array.from({ length: options.ranks }, (_, rank): CardEstimate => ({ rank, device: null, weights: all, kv: none, compute: none, projector: null, draft: null, total: all, loadPeak: all }));
  return { model: facts.name, options, source: 'declared', cards, host: nothing('not declared'), kvBytesPerToken: null };
}

/** Why there is no size: the field that is missing or wrong, by its name. */
export function unknownSize(facts: ModelFacts, { field, why }: UnknownField): LeaseholdError {
  const weights = facts.weightBytes === null ? {} : { weightBytes: facts.weightBytes };
  return new LeaseholdError('estimate_unknown', { model: facts.name, reason: `unknown: ${field} (${why})`, field, ...weights });
}
