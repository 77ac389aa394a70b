/** From the files of a model to the facts that an estimate is made from. Headers are read in threads; no weight is. */
import { basename } from 'node:path';
import { LeaseholdError } from '../../../protocol/index.js';
import { unusableFile } from '../formats/fault.js';
import type { GgufHeader } from '../formats/gguf-header.js';
import type { ByteSource } from '../formats/source.js';
import type { Reading } from '../reading/reading.js';
import { factsOfGguf, factsOfSafetensors, type ModelFacts } from './facts.js';

/** Opened one at a time, and closed again; of a hub, ranges. */
export type OpenSource = () => Promise<ByteSource>;

export type ModelFiles =
  /** All parts of one model in order, and its projector. */
  | { readonly format: 'gguf'; readonly name: string; readonly parts: readonly OpenSource[]; readonly projector: OpenSource | null }
  /** Exactly the weight files that its index names, or the one that there is (B10). */
  | { readonly format: 'safetensors'; readonly name: string; readonly config: OpenSource; readonly weights: readonly OpenSource[] };

/** Rejects with `model_invalid` for the first file that cannot be read. */
export async function readFacts(files: ModelFiles, reading: Reading, signal?: AbortSignal): Promise<ModelFacts> {
  if (files.format === 'safetensors') {
    const config = await opened(files.config, (source) => reading.configJson(source, signal));
    const headers = await inTurn(files.weights, (source) => reading.safetensorsHeader(source, signal));
    return factsOfSafetensors(files.name, config, headers);
  }
  const headers = await inTurn(files.parts, (source) => reading.ggufHeader(source, signal));
  const [first, ...rest] = headers;
  if (first === undefined) throw new LeaseholdError('internal', { reason: `${files.name} has no parts` });
  requireWhole(files.name, headers);
  const projector = files.projector === null ? null : await opened(files.projector, async (source) => ({ name: basename(source.name), header: await reading.ggufHeader(source, signal) }));
  return factsOfGguf(files.name, [first, ...rest], projector);
}

/** A split model says in its first part how many there are. */
function requireWhole(name: string, headers: readonly GgufHeader[]): void {
  const count = Number(headers[0]?.scalars.get('split.count') ?? 1);
  if (count > 1 && count !== headers.length) throw unusableFile(name, `it is one of ${String(count)} parts, and ${String(headers.length)} are given`);
}

const atOnce = 4;

async function inTurn<T>(opens: readonly OpenSource[], read: (source: ByteSource) => Promise<T>): Promise<readonly T[]> {
  const results: T[] = [];
  for (let from = 0; from < opens.length; from += atOnce) {
    results.push(...await Promise.all(opens.slice(from, from + atOnce).map((open) => opened(open, read))));
  }
  return results;
}

async function opened<T>(open: OpenSource, read: (source: ByteSource) => Promise<T>): Promise<T> {
  const source = await open();
  try {
    return await read(source);
  } finally {
    await source.close?.();
  }
}
