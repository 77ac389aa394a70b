/**
 * What children have found out, kept for the next worker: a probe costs two to three seconds, a vetted file most of one.
 * Only good news is kept, under everything it depends on. A verdict that cannot be read or written is none.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { EngineContext } from '../runtime/engine.js';

export interface Verdicts {
  /** What was kept under `key`, as it was given; null when there is nothing. */
  get(key: readonly (string | null)[]): Promise<unknown>;
  put(key: readonly (string | null)[], verdict: unknown): Promise<void>;
}

/** Verdicts in `folder`, a private one; null: nothing is kept. */
export function openVerdicts(folder: string | null, log: EngineContext['log']): Verdicts {
  if (folder === null) return { get: async () => null, put: async () => undefined };
  const pathOf = (key: string): string => join(folder, `llama-${createHash('sha256').update(key).digest('hex').slice(0, 32)}.json`);
  return {
    async get(parts) {
      const key = JSON.stringify(parts);
      const text = await readTextOrNull(pathOf(key));
      return text === null ? null : verdictIn(text, key);
    },
    async put(parts, verdict) {
      const key = JSON.stringify(parts);
      const fresh = `${pathOf(key)}.${String(process.pid)}`;
      try {
        await mkdir(folder, { recursive: true, mode: 0o700 });
        await writeFile(fresh, JSON.stringify({ key, verdict }), { mode: 0o600 });
        await rename(fresh, pathOf(key));
      } catch (error) {
        log('warn', `a verdict was not kept, so it will be asked for again: ${String(error)}`, { folder });
      }
    },
  };
}

/** Null when there is no such file, or none that this user may read. */
export async function readTextOrNull(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch(() => null);
}

function verdictIn(text: string, key: string): unknown {
  try {
    const found = JSON.parse(text) as { readonly key?: unknown; readonly verdict?: unknown } | null;
    return found?.key === key ? found.verdict ?? null : null;
  } catch {
    // Cut short or somebody else's: it is asked for again, and replaced.
    return null;
  }
}
