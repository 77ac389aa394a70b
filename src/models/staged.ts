/** What an engine is given for a reference: a file that was staged. No network is asked, ever. */
import { noEngine } from './no-engine.js';
import { currentPolicy } from './policy/policy.js';
import { parseHubReference } from './reference.js';
import { storeRoot } from './store/layout.js';
import { ModelStore } from './store/store.js';
import { notStaged } from './store/upkeep.js';

/** The path of the (first) GGUF of a staged model. Rejects with `profile_unknown`, `not_staged`, or `engine_unknown` for one that is not llama.cpp's. */
export async function stagedSource(text: string, env: NodeJS.ProcessEnv = process.env, cwd: string = process.cwd()): Promise<string> {
  const store = new ModelStore(storeRoot(env, cwd), currentPolicy());
  const model = await store.findReference(parseHubReference(text));
  const { profile } = model.manifest;
  if (model.missing !== null) throw notStaged(model, model.missing);
  if (profile.backend !== 'llama_cpp' || profile.weight_files.length === 0) throw noEngine(profile.backend, `${text} was staged for ${profile.backend}, and no such engine is here.`);
  return store.sourceOf(model);
}
