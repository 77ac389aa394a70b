/** What an engine is given for a reference: a file that was staged. No network is asked, ever. */
import { join } from 'node:path';
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
  const [first] = profile.weight_files;
  if (profile.backend !== 'llama_cpp' || first === undefined) throw noEngine(profile.backend, `${text} was staged for ${profile.backend}, and no such engine is here.`);
  return join(model.folder, ...first.split('/'));
}
