/** A profile, or a reference that was pulled, as the files that lie here for it. */
import { LeaseholdError } from '../../../protocol/index.js';
import { currentPolicy } from '../policy/policy.js';
import type { Profile } from '../profile/profile.js';
import { parseHubReference, type HubReference } from '../reference.js';
import { storeRoot } from '../store/layout.js';
import { ModelStore, type StoredModel } from '../store/store.js';
import type { Backend } from './options.js';

export interface PlaceHere {
  /** Absolute: a GGUF file, or a folder. */
  readonly path: string;
  /** What it was pulled for; null: its format says. */
  readonly backend: Backend | null;
  /** Absolute; null: none was brought with it. */
  readonly projector: string | null;
}

export interface PlaceOnHub {
  readonly reference: HubReference;
  /** False: it was left out when the profile was made. */
  readonly projector: boolean;
}

/** What a generated profile stands for: its files here, or its repository at its commit. Rejects with `profile_unknown`, or what is wrong with its file. */
export async function placeOfProfile(id: string, env: NodeJS.ProcessEnv, cwd: string): Promise<PlaceHere | PlaceOnHub> {
  const store = storeAt(env, cwd);
  const model = await store.find(id);
  const { repository, revision, weight_files: [first], projector_file: projector } = model.manifest.profile;
  return await placeOf(store, model) ?? { reference: parseHubReference(`${repository}@${revision}${first === undefined ? '' : `:${first}`}`), projector: projector !== '' };
}

/** What was pulled for a reference, and for that engine where one is named; null where nothing is, or not all of it. */
export async function placeOfPulled(reference: HubReference, backend: Backend | undefined, env: NodeJS.ProcessEnv, cwd: string): Promise<PlaceHere | null> {
  try {
    const store = storeAt(env, cwd);
    const place = await placeOf(store, await store.findReference(reference));
    return place !== null && (backend === undefined || (place.backend === 'llama') === (backend === 'llama')) ? place : null;
  } catch (error) {
    if (error instanceof LeaseholdError && error.code === 'profile_unknown') return null;
    throw error;
  }
}

export function backendOf({ backend }: Profile): Backend {
  return backend === 'llama_cpp' ? 'llama' : backend === 'vllm' ? 'vllm' : 'transformers';
}

function storeAt(env: NodeJS.ProcessEnv, cwd: string): ModelStore {
  return new ModelStore(storeRoot(env, cwd), currentPolicy());
}

async function placeOf(store: ModelStore, model: StoredModel): Promise<PlaceHere | null> {
  if (model.missing !== null) return null;
  const { profile } = model.manifest;
  const { repository, revision, projector_file: projector } = profile;
  return { path: await store.sourceOf(model), backend: backendOf(profile), projector: projector === '' ? null : await store.pathIn({ repository, commit: revision }, projector) };
}
