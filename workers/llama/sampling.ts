/** A call's sampling wishes in llama.cpp's terms. What is left out gets llama.cpp's own defaults. */
import { randomInt } from 'node:crypto';
import { LeaseholdError } from '../../protocol/index.js';
import type { GenerateCall } from '../runtime/engine.js';

export interface SamplerOptions {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
  readonly repeatPenalty: number;
}

/** llama.cpp takes this one as "choose one yourself", so it is never handed over. */
const randomSeed = 0xffff_ffff;
/** Tokens that a repeat penalty looks back on. */
export const penaltyTokens = 64;

export function samplerOptions(sampling: GenerateCall['sampling']): SamplerOptions {
  return {
    temperature: sampling.temperature,
    topK: sampling.topK ?? 40,
    topP: sampling.topP ?? 0.95,
    minP: sampling.minP ?? 0.05,
    seed: sampling.seed === undefined ? randomInt(randomSeed) : foldSeed(sampling.seed),
    repeatPenalty: sampling.repeatPenalty ?? 1,
  };
}

/**
 * A seed of up to 19 digits as one of llama.cpp's 32 bits: small ones as they are, larger ones by mixing all their bits,
 * never through a floating-point number (R287). Equal seeds are always equal; two large ones may coincide.
 */
export function foldSeed(text: string): number {
  if (!/^\d{1,19}$/.test(text)) throw new LeaseholdError('input_invalid', { field: 'sampling.seed', reason: `${JSON.stringify(text)} is no decimal number of at most 19 digits` });
  const seed = BigInt(text);
  if (seed < BigInt(randomSeed)) return Number(seed);
  const mixed = BigInt.asUintN(64, (seed ^ (seed >> 32n)) * 0x9e37_79b9_7f4a_7c15n) >> 32n;
  return Number(mixed % BigInt(randomSeed));
}

/** The call's stop strings; an empty one would stop everything before it began. */
export function stopStrings(sampling: GenerateCall['sampling']): readonly string[] {
  const stops = sampling.stop ?? [];
  if (stops.includes('')) throw new LeaseholdError('input_invalid', { field: 'sampling.stop', reason: 'a stop string is empty' });
  return stops;
}
