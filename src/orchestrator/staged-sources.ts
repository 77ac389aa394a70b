/** Models of the options that name what was pulled (`hf.co/owner/name[@revision][:file-or-quant]`), as the files that were staged for them. */
import type { ModelOptions } from './options.js';

/** Rejects with `profile_unknown` or `not_staged`: nothing is downloaded because somebody wants to run it. */
export async function withStagedSources(models: Readonly<Record<string, ModelOptions>>): Promise<Readonly<Record<string, ModelOptions>>> {
  const wanted = Object.entries(models).filter(([, { source }]) => source.startsWith('hf.co/'));
  if (wanted.length === 0) return models;
  const { stagedSource } = await import('../models/staged.js');
  const found = await Promise.all(wanted.map(async ([name, model]) => [name, { ...model, source: await stagedSource(model.source) }] as const));
  return { ...models, ...Object.fromEntries(found) };
}
