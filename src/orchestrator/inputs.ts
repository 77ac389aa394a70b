/** What callers write, checked and turned into what the wire carries. */
import { LeaseholdError, type ChatMessage } from '../../protocol/index.js';
import type { Sampling } from '../client/index.js';
import { checked } from './tables.js';
import type { GenerateInput, GenerateOptions } from './types.js';

export interface WireInput {
  readonly messages: readonly ChatMessage[] | null;
  readonly prompt: string | null;
}

/** A bare string is what a person says: one user message. `{prompt}` is raw text, with no template. */
export function toWireInput(input: GenerateInput): WireInput {
  checked.input(input);
  if (typeof input === 'string') return { messages: [{ role: 'user', content: input }], prompt: null };
  const { prompt = null, messages = null } = input as Partial<WireInput>;
  if (messages?.length === 0) throw new LeaseholdError('input_invalid', { field: 'messages', reason: 'the list is empty' });
  return { messages, prompt };
}

const maxTokensDefault = 512;
const seedMax = 2n ** 63n - 1n;

export function toWireSampling(options: GenerateOptions): Sampling {
  checked.generate(options);
  const { topK, topP, minP, repeatPenalty, stop, thinking } = options;
  return {
    maxTokens: options.maxTokens ?? maxTokensDefault,
    temperature: options.temperature ?? 0,
    ...(topK === undefined ? {} : { topK }),
    ...(topP === undefined ? {} : { topP }),
    ...(minP === undefined ? {} : { minP }),
    ...(repeatPenalty === undefined ? {} : { repeatPenalty }),
    ...(stop === undefined ? {} : { stop }),
    ...(thinking === undefined ? {} : { thinking }),
    ...(options.seed === undefined ? {} : { seed: toSeed(options.seed) }),
  };
}

/** Seeds reach 2^63 - 1, which no JavaScript number holds: they travel as decimal digits (R287). */
function toSeed(seed: bigint | number | string): string {
  const text = String(seed);
  const exact = typeof seed !== 'number' || Number.isSafeInteger(seed);
  if (!exact || !/^\d{1,19}$/.test(text) || BigInt(text) > seedMax) {
    throw new LeaseholdError('input_invalid', { field: 'seed', reason: `${text} is not a whole number from 0 to ${String(seedMax)}; above 2^53 give a bigint or a string` });
  }
  return text;
}
