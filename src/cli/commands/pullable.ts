/** What a name means to the commands about models of a hub: the reference that is configured under it. */
import { LeaseholdError } from '../../../protocol/index.js';
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';

/** A name or alias whose source is on a hub stands for that; throws `profile_unknown` for one whose model was never there; all else is a reference as it is. */
export function pullable(written: string, { models = {} }: Pick<OrchestratorOptions, 'models'>): string {
  const name = Object.keys(models).find((own) => own === written || models[own]?.aliases?.includes(written) === true);
  const source = name === undefined ? null : models[name]?.source ?? null;
  if (source?.startsWith('hf.co/') === true) return source;
  if (source === null && !Object.hasOwn(tinyModels, written)) return written;
  const error = new LeaseholdError('profile_unknown', { profile: written, known: '' }, { help: '`leasehold models --pulled` lists what was.' });
  const what = source === null ? 'ships with Leasehold' : source.startsWith('sim:') ? 'is a script of the simulated engine' : `is configured with the source ${source}, which is not on a hub`;
  error.message = `${written} ${what}; nothing was pulled.`;
  throw error;
}
