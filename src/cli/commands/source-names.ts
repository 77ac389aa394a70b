/** Sources as people tell them apart: by the name they are configured or shipped under, else by the end of the path. */
import { realpathSync } from 'node:fs';
import type { ModelOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';

/** A label for each source: its name here, else as many parts of its end as no other of them has. */
export function sourceNames(sources: readonly string[], models: Readonly<Record<string, ModelOptions>>): ReadonlyMap<string, string> {
  const named = new Map<string, string>();
  const name = (source: string, called: string): void => { if (!named.has(source)) named.set(source, called); };
  for (const [called, { source }] of Object.entries(models)) name(whereIs(source), called);
  for (const { name: called, ggufPath } of Object.values(tinyModels)) name(whereIs(ggufPath), called);
  const all = [...new Set(sources)];
  return new Map(all.map((source) => [source, named.get(source) ?? endOf(source, all.filter((other) => other !== source))]));
}

function endOf(source: string, others: readonly string[]): string {
  const parts = source.split('/');
  for (let count = 1; count < parts.length; count++) {
    const end = parts.slice(-count).join('/');
    if (!others.some((other) => other === end || other.endsWith(`/${end}`))) return end;
  }
  return source;
}

/** As a worker is given it; a file that is gone is known by the path it was configured with. */
function whereIs(source: string): string {
  const path = Object.hasOwn(tinyModels, source) ? tinyModels[source]?.ggufPath ?? source : source;
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
