/** What `estimate` is asked about. A name means what `run` would serve under it; then comes what lies here, and last a hub. */
import { existsSync } from 'node:fs';
import { extname, isAbsolute, resolve } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import type { Backend } from '../../models/estimate/options.js';
import { curatedProfiles } from '../../models/profile/curated.js';
import { parseReference } from '../../models/reference.js';
import { stagedSource } from '../../models/staged.js';
import { servedModels, unknownModel } from '../../orchestrator/index.js';
import type { ModelOptions, OrchestratorOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';
import type { Io } from '../io.js';
import { asPath, modelReference } from './model-reference.js';

export interface Subject {
  /** An absolute path, or a reference. */
  readonly model: string;
  /** `sim:{…}`: a script of the simulated engine, which says its sizes itself. */
  readonly script?: string;
  /** What is configured under its name; empty where it is no name. */
  readonly configured: { readonly backend?: Backend; readonly contextTokens?: number; readonly parallel?: number; readonly ranks?: number; readonly declaredBytes?: number };
}

/** Rejects with `model_unknown` for what is no name, no file and no reference, with the name that is near; with `model_invalid` for a path where nothing is. */
export async function subjectOf(written: string, engine: Backend | undefined, options: Pick<OrchestratorOptions, 'models'>, { cwd, env }: Pick<Io, 'cwd' | 'env'>): Promise<Subject> {
  const path = resolve(cwd, written);
  if (isAbsolute(written) || /^(\.{1,2}|~)([\\/]|$)/.test(written)) return { model: written, configured: {} };
  if (extname(written).toLowerCase() === '.gguf' && existsSync(path)) return { model: path, configured: {} };
  const named = await namedSubject(written, engine, options.models ?? {}, { cwd, env });
  if (named !== null) return named;
  if (existsSync(path)) return { model: path, configured: {} };
  requireReference(written, cwd, namesOf(options.models ?? {}));
  const staged = await stagedFile(written, engine, { cwd, env });
  return { model: staged ?? written, configured: {} };
}

async function namedSubject(name: string, engine: Backend | undefined, models: Readonly<Record<string, ModelOptions>>, io: Pick<Io, 'cwd' | 'env'>): Promise<Subject | null> {
  const key = Object.keys(models).find((own) => own === name || models[own]?.aliases?.includes(name) === true) ?? (Object.hasOwn(tinyModels, name) ? name : null);
  if (key === null) return null;
  const model = models[key] ?? { source: name };
  if (model.source.startsWith('sim:')) return simulatedSubject(name, key, model);
  const { contextTokens, parallel, declaredBytes, cards } = model;
  const backend = engine ?? backendOf(model.engine ?? 'llama');
  const sizes = { ...(contextTokens === undefined ? {} : { contextTokens }), ...(parallel === undefined ? {} : { parallel }), ...(typeof declaredBytes === 'number' ? { declaredBytes } : {}) };
  const spread = cards === undefined || backend === 'llama' ? {} : { ranks: cards };
  return { model: await sourceOf(key, model, backend, io), configured: { ...(backend === undefined ? {} : { backend }), ...sizes, ...spread } };
}

async function simulatedSubject(name: string, key: string, model: ModelOptions): Promise<Subject> {
  const served = (await servedModels({ models: { [key]: model } })).find((one) => one.name === key);
  return { model: name, script: model.source, configured: { ...(served === undefined ? {} : { contextTokens: served.contextTokens }), ...(model.parallel === undefined ? {} : { parallel: model.parallel }) } };
}

async function sourceOf(key: string, model: ModelOptions, backend: Backend | undefined, io: Pick<Io, 'cwd' | 'env'>): Promise<string> {
  const { source } = model;
  // What is not staged yet can be estimated all the same, though not run.
  if (source.startsWith('hf.co/')) return await stagedFile(source, backend, io) ?? source;
  const tiny = Object.hasOwn(tinyModels, source) ? tinyModels[source] : undefined;
  if (tiny !== undefined) return backend === undefined || backend === 'llama' ? tiny.ggufPath : tiny.directory;
  const served = (await servedModels({ models: { [key]: model } })).find((one) => one.name === key);
  return served?.source ?? source;
}

/** The file that `run` would load; null where none is staged, or for another engine. */
async function stagedFile(reference: string, backend: Backend | undefined, { cwd, env }: Pick<Io, 'cwd' | 'env'>): Promise<string | null> {
  if (backend !== undefined && backend !== 'llama') return null;
  if (!reference.includes('/')) return null;
  try {
    return await stagedSource(reference, env, cwd);
  } catch (error) {
    if (error instanceof LeaseholdError && ['profile_unknown', 'not_staged', 'engine_unknown'].includes(error.code)) return null;
    throw error;
  }
}

function requireReference(written: string, cwd: string, names: readonly string[]): void {
  const curated = [...curatedProfiles().keys()];
  const isPath = /\.gguf$/i.test(written) && !written.includes(':');
  try {
    if (!isPath) parseReference(written, { cwd, curatedIds: new Set(curated) });
  } catch (error) {
    if (/^[^/\\]*\//.test(written)) throw error;
    throw asPath(unknownModel(written, [...new Set([...names, ...curated])]), modelReference(written, cwd));
  }
  if (isPath) throw asPath(unknownModel(written, names), modelReference(written, cwd));
}

function namesOf(models: Readonly<Record<string, ModelOptions>>): readonly string[] {
  return [...Object.entries(models).flatMap(([name, { aliases }]) => [name, ...(aliases ?? [])]), ...Object.keys(tinyModels)];
}

/** Undefined for an engine of one's own: its format then says how it is reckoned. */
function backendOf(engine: string): Backend | undefined {
  return engine === 'llama' || engine === 'transformers' || engine === 'vllm' ? engine : undefined;
}
