/** What an estimate is asked about. */
import { LeaseholdError } from '../../../protocol/index.js';
import { bytesOfElements } from '../formats/gguf-types.js';

export type Backend = 'llama' | 'transformers' | 'vllm';

export interface EstimateOptions {
  readonly backend: Backend;
  readonly contextTokens: number;
  /** Contexts at once. */
  readonly parallel: number;
  /** Type of the cache: a GGML name for llama, `fp8` or a float for the others; null: as the engine does by itself. */
  readonly kvDtype: string | null;
  /** Tokens of one evaluation; null: as the engine does by itself. */
  readonly batchTokens: number | null;
  /** Cards of one model, by tensor parallelism. */
  readonly ranks: number;
  /** Where llama.cpp computes: on the CPU all is in one place, on a card the token embedding stays behind. */
  readonly onCard: boolean;
  /** Of llama.cpp; null: as its bindings decide. */
  readonly flashAttention: boolean | null;
  /** What floating weights are turned into at load; null: they stay as they are. */
  readonly castTo: string | null;
  /** Side of the largest image in pixels; null: as the model states. */
  readonly imageSide: number | null;
}

export const defaultOptions: Omit<EstimateOptions, 'backend' | 'contextTokens'> = { parallel: 1, kvDtype: null, batchTokens: null, ranks: 1, onCard: true, flashAttention: null, castTo: null, imageSide: null };

/** What each engine does by itself where nothing is said. */
export const llamaBatchTokens = 512;

const tokensMax = 2 ** 27;

/** Throws `input_invalid` for what no engine could be asked. */
export function checkOptions(options: EstimateOptions): void {
  within('contextTokens', options.contextTokens, 1, tokensMax);
  within('parallel', options.parallel, 1, 4_096);
  within('ranks', options.ranks, 1, 64);
  if (options.batchTokens !== null) within('batchTokens', options.batchTokens, 1, tokensMax);
  if (options.imageSide !== null) within('imageSide', options.imageSide, 1, 65_536);
  if (options.backend === 'llama' && options.ranks > 1) throw invalid('ranks', 'a llama worker sees one card');
  if (options.kvDtype !== null) kvBytesOf(options.kvDtype, 256, options.backend);
}

const floatBytes: Readonly<Record<string, number>> = { fp8: 1, fp8_e4m3: 1, fp8_e5m2: 1, int8: 1, bfloat16: 2, bf16: 2, float16: 2, fp16: 2, f16: 2, float32: 4, fp32: 4, f32: 4, f64: 8 };

/** Bytes of `elements` in a row of a cache of that type. */
export function kvBytesOf(kvDtype: string, elements: number, backend: Backend): number {
  if (backend === 'llama') return bytesOfElements(kvDtype, elements) ?? unknownType(kvDtype, 'a GGML type like f16, q8_0 or q4_0');
  return elements * (floatBytes[kvDtype.toLowerCase()] ?? unknownType(kvDtype, `one of ${Object.keys(floatBytes).join(', ')}`));
}

/** Bytes of an element of a floating type by any of its names; null when it is none. */
export function floatBytesOf(dtype: string): number | null {
  return floatBytes[dtype.toLowerCase()] ?? null;
}

function unknownType(kvDtype: string, allowed: string): never {
  throw invalid('kvDtype', `it must be ${allowed}, not ${JSON.stringify(kvDtype)}`);
}

function within(field: string, value: number, minimum: number, maximum: number): void {
  if (!Number.isSafeInteger(value) || value < minimum || value > maximum) throw invalid(field, `it must be a whole number from ${String(minimum)} to ${String(maximum)}, not ${String(value)}`);
}

function invalid(field: string, reason: string): LeaseholdError {
  return new LeaseholdError('input_invalid', { field, reason });
}
