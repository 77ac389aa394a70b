/** The files of a model on this machine: a GGUF file with its other parts, or a folder with a config.json. */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { unusableFile } from '../formats/fault.js';
import { ggufModels, partPaths, severalGgufs } from '../formats/gguf-parts.js';
import { fileSource, withFile } from '../formats/source.js';
import type { Reading } from '../reading/reading.js';
import type { Backend } from './options.js';
import type { ModelFiles } from './read-facts.js';

const indexName = 'model.safetensors.index.json';

export interface WantedFiles {
  /** The projector that goes with a GGUF, by its absolute path; null: none. None is guessed from what lies beside. */
  readonly projector: string | null;
  /** What will run it, where that is said: of a folder with both formats its own is taken. Left out: llama.cpp, where there is one GGUF model. */
  readonly backend: Backend | undefined;
}

/** Rejects with `model_invalid`. */
export async function localFiles(path: string, wanted: WantedFiles, reading: Reading): Promise<ModelFiles> {
  const { projector } = wanted;
  const kind = await stat(path).catch(() => null);
  if (kind?.isDirectory() !== true) {
    return { format: 'gguf', name: path, parts: partPaths(path).map((part) => () => fileSource(part)), projector: projector === null ? null : () => fileSource(projector) };
  }
  return folderFiles(path, wanted, reading);
}

async function folderFiles(folder: string, wanted: WantedFiles, reading: Reading): Promise<ModelFiles> {
  const names = await readdir(folder);
  const has = (name: string): boolean => names.includes(name);
  const ggufs = ggufModels(names).length;
  const hasGguf = ggufs > 0;
  const hasSafetensors = names.some((name) => name.endsWith('.safetensors') || name === indexName);
  const takesGguf = wanted.backend === 'llama' || (wanted.backend === undefined && (ggufs === 1 || !hasSafetensors));
  if (!has('config.json') || (hasGguf && takesGguf)) return ggufFolder(folder, names, wanted, reading);
  const weights = has(indexName)
    ? (await withFile(join(folder, indexName), (source) => reading.safetensorsIndex(source))).shards.map(({ name }) => name)
    : onlyWeights(folder, names);
  return {
    format: 'safetensors', name: folder, config: () => fileSource(join(folder, 'config.json')),
    weights: weights.map((name) => () => fileSource(join(folder, name))),
  };
}

/** Without an index there is one file, or it is not known which belong together (B10). */
function onlyWeights(folder: string, names: readonly string[]): readonly string[] {
  const found = names.filter((name) => name.endsWith('.safetensors'));
  if (found.includes('model.safetensors')) return ['model.safetensors'];
  if (found.length > 1) throw unusableFile(folder, `it has ${String(found.length)} safetensors files, and no ${indexName} says which belong together`);
  return found;
}

async function ggufFolder(folder: string, names: readonly string[], wanted: WantedFiles, reading: Reading): Promise<ModelFiles> {
  const first = ggufModels(names);
  const [only] = first;
  if (only === undefined || first.length > 1) throw unusableFile(folder, only === undefined ? 'it has neither a config.json nor a GGUF file' : severalGgufs(first));
  return localFiles(join(folder, only), wanted, reading);
}
