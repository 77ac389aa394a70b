/** A context that is longer than what a model was trained on: allowed, and told. */
import { isAbsolute, resolve } from 'node:path';
import { LeaseholdError, defaultLimits } from '../../../protocol/index.js';
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import type { Io } from '../io.js';

/** One line naming both numbers; null where nothing is wrong or nothing is known. */
export function beyondTraining(contextTokens: number, trainedTokens: number | null): string | null {
  if (trainedTokens === null || contextTokens <= trainedTokens) return null;
  return `A context of ${String(contextTokens)} tokens is beyond the ${String(trainedTokens)} that the model was made for: answers go astray past that.`;
}

/** The line for what `run` would load; null also where that is refused, which it says itself. */
export async function runBeyondTraining(written: string, contextTokens: number, options: OrchestratorOptions, { cwd, env }: Pick<Io, 'cwd' | 'env'>, signal: AbortSignal): Promise<string | null> {
  const [{ subjectOf }, { trainedTokensOf }] = await Promise.all([import('./estimate-subject.js'), import('../../models/estimate/trained.js')]);
  try {
    const { model } = await subjectOf(written, undefined, options, { cwd, env });
    const path = /^\.{1,2}[\\/]/.test(model) ? resolve(cwd, model) : model;
    if (!isAbsolute(path)) return null;
    return beyondTraining(contextTokens, await trainedTokensOf(path, { ...defaultLimits, ...options.limits }, signal));
  } catch (error) {
    if (error instanceof LeaseholdError && error.code !== 'internal' && !signal.aborted) return null;
    throw error;
  }
}
