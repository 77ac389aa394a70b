/** Models of the options that name what was pulled (`hf.co/owner/name[@revision][:file-or-quant]`), as the files that were staged for them. */
import { LeaseholdError } from '../../protocol/index.js';
import type { ModelOptions } from './options.js';

/**
 * Rejects with `profile_unknown` or `not_staged`: nothing is downloaded because somebody wants to run it. With `unstaged`
 * those errors are put there instead, by name.
 */
export async function withStagedSources(models: Readonly<Record<string, ModelOptions>>, unstaged?: Map<string, LeaseholdError>): Promise<Readonly<Record<string, ModelOptions>>> {
  const wanted = Object.entries(models).filter(([, { source }]) => source.startsWith('hf.co/'));
  if (wanted.length === 0) return models;
  const { stagedSource } = await import('../models/staged.js');
  const found = await Promise.all(wanted.map(async ([name, model]) => {
    try {
      return [name, { ...model, source: await stagedSource(model.source) }] as const;
    } catch (error) {
      if (unstaged === undefined) throw error;
      unstaged.set(name, LeaseholdError.from(error));
      return [name, model] as const;
    }
  }));
  return { ...models, ...Object.fromEntries(found) };
}
