/** What a model needs that this installation does not have. */
import { LeaseholdError } from '../../protocol/index.js';

/** `engine_unknown` for weights that llama.cpp does not load, with what to do about it. `why` is a sentence. */
export function noEngine(engine: string, why: string): LeaseholdError {
  return new LeaseholdError('engine_unknown', { engine, known: 'llama' }, { help: `${why} Pull a GGUF of it: leasehold pull owner/name:Q4_K_M.` });
}
