/** What a model is called on the command line: a name or alias, or the path of a file. */
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from 'node:fs';
import { extname, isAbsolute, join, resolve } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { ggufModels, severalGgufs } from '../../models/local-gguf.js';
import { noEngine } from '../../models/no-engine.js';
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';
import type { Io } from '../io.js';

export interface ModelReference {
  /** As it was written: a file is called by its path, so that no model's name can be mistaken for it. */
  readonly written: string;
  /** Set when it is a file for certain; it has been looked at. */
  readonly path: string | null;
  /** Why it is no file that could be served, where it reads like one; null where it reads like a name. */
  readonly doubt: string | null;
  /** The file that was staged for it, where it names a model of a hub. */
  readonly staged: string | null;
  /** Why none was, where it reads as if it named one. */
  readonly missing: LeaseholdError | null;
}

/** One slash, as in `owner/name@revision:quant`; a path has more, or begins like one. */
const hubShape = /^(hf\.co\/)?[A-Za-z0-9][^/\\@:]*\/[^/\\@:]+([@:].*)?$/;

/** `modelReference`, and for `owner/name` what is staged of it. */
export async function findModel(written: string, { cwd, env }: Pick<Io, 'cwd' | 'env'>): Promise<ModelReference> {
  const reference = modelReference(written, cwd);
  if (reference.path !== null || !hubShape.test(written) || (/\.gguf$/i.test(written) && !written.includes(':'))) return reference;
  const { stagedSource } = await import('../../models/staged.js');
  try {
    return { ...reference, staged: await stagedSource(written, env, cwd) };
  } catch (error) {
    // It may still be a name that is configured, or that a daemon knows.
    return { ...reference, missing: LeaseholdError.from(error) };
  }
}

/** Throws `model_invalid` for `./x`, `../x` and `/x` that are no GGUF file, `engine_unknown` for weights of an engine that is not here. A bare word may still be a name that a daemon knows. */
export function modelReference(written: string, cwd: string): ModelReference {
  const path = onlyGguf(resolve(cwd, written));
  const isGguf = extname(written).toLowerCase() === '.gguf';
  const certain = isAbsolute(written) || /^\.{1,2}[\\/]/.test(written) || (isGguf && existsSync(path));
  const readsLikePath = certain || isGguf || fileEnding.test(written) || /[\\/]/.test(written) || (existsSync(path) && faultOf(path) !== aFolder && path === resolve(cwd, written));
  const fault = readsLikePath ? faultOf(path) : null;
  if (certain && fault !== null) throw unservable(written, path, fault);
  return { written, path: certain ? path : null, doubt: readsLikePath ? fault ?? 'write ./ before it, so that it is taken for a file' : null, staged: null, missing: null };
}

/** What an orchestrator threw; a name that nobody knows and that reads like a path is told as a path. */
export function asPath(thrown: unknown, { written, doubt, missing }: ModelReference): unknown {
  if (missing !== null && thrown instanceof LeaseholdError && thrown.code === 'model_unknown') return missing;
  return doubt !== null && thrown instanceof LeaseholdError && thrown.code === 'model_unknown' ? invalid(written, doubt, thrown) : thrown;
}

/** The options of a command that serves what is configured without preloads, and besides it the file, if it is one; and what the model is called there. */
export function withReference(options: OrchestratorOptions, { written, path, staged }: ModelReference): { readonly name: string; readonly options: OrchestratorOptions } {
  const models = Object.fromEntries(Object.entries(options.models ?? {}).map(([name, model]) => [name, { ...model, preload: false }]));
  const taken = new Set([...Object.keys(tinyModels), ...Object.entries(models).flatMap(([name, { aliases }]) => [name, ...(aliases ?? [])])]);
  // What is configured under a name goes before what was pulled under it.
  if (path === null && staged !== null && !taken.has(written)) return { name: written, options: { ...options, models: { ...models, [written]: { source: staged } } } };
  if (path === null) return { name: written, options: { ...options, models } };
  let name = written;
  while (taken.has(name)) name = `./${name}`;
  return { name, options: { ...options, models: { ...models, [name]: { source: path } } } };
}

function invalid(source: string, reason: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError('model_invalid', { source, reason }, cause === undefined ? {} : { cause });
}

/** Of a folder with one GGUF model that file, as `estimate` takes it; else the path as it is. */
function onlyGguf(path: string): string {
  if (faultOf(path) !== aFolder) return path;
  const [only, ...others] = ggufModels(readdirSync(path));
  return only === undefined || others.length > 0 ? path : join(path, only);
}

/** A path that is no GGUF file, told by what it is instead: weights of another engine, a folder with the file to name. */
function unservable(written: string, path: string, fault: string): LeaseholdError {
  const names = fault === aFolder ? readdirSync(path).sort() : [];
  const ggufs = ggufModels(names);
  if (ggufs.length === 0 && [path, ...names].some((name) => name.endsWith('.safetensors'))) return noEngine('transformers', `${written} holds safetensors, which llama.cpp does not load.`);
  return ggufs.length === 0 ? invalid(written, fault === aFolder ? `${fault} without a GGUF file` : fault) : invalid(written, severalGgufs(ggufs));
}

/** `README.md`, `model.bin`; a version like `qwen2.5` or a quantisation like `m.Q4_K_M` is no ending. */
const fileEnding = /[^.]\.[A-Za-z][a-z]{1,11}$/;

const magic = 'GGUF';
const aFolder = 'it is a folder';

/** Why a path is no GGUF file; null when it begins like one. */
function faultOf(path: string): string | null {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    if (stat === undefined) return 'there is no such file';
    if (!stat.isFile()) return stat.isDirectory() ? aFolder : 'it is not a regular file';
    return beginning(path) === magic ? null : 'it is not a GGUF file';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOTDIR' ? 'there is no such file' : (error as Error).message;
  }
}

function beginning(path: string): string {
  const file = openSync(path, 'r');
  try {
    const bytes = new Uint8Array(magic.length);
    return Buffer.from(bytes.subarray(0, readSync(file, bytes))).toString('latin1');
  } finally {
    closeSync(file);
  }
}
