/**
 * llama.cpp checks most of a header and reports what is wrong, but asserts the rest, and an assertion ends the process:
 * of 1,300 headers with one odd value 57 did. So a file that this process has not met is first shown to a child.
 */
import { fileURLToPath } from 'node:url';
import { ChildDeath, startChild } from './child.js';
import type { CheckedModel } from './gguf-checks.js';
import type { Verdicts } from './verdicts.js';

export interface VetOptions {
  /** False: files are trusted. */
  readonly vetModels?: boolean;
  /** The child’s program; another one in tests. */
  readonly vetProgram?: string;
  readonly vetTimeoutMs?: number;
}

/** Remembers which files llama.cpp has lived through. */
export class Vetter {
  readonly #vetted = new Map<string, Promise<string | null>>();

  constructor(private readonly verdicts: Verdicts, private readonly version: string, private readonly options: VetOptions) {}

  /** Resolves to null when llama.cpp lives through the file, else to how it died. */
  async vet(checked: CheckedModel, embedding: boolean): Promise<string | null> {
    if (this.options.vetModels === false) return null;
    const key = ['vet', this.version, embedding ? 'embedding' : 'text', checked.fingerprint];
    const name = key.join('\n');
    const verdict = this.#vetted.get(name) ?? this.#ask(checked.path, embedding, key);
    this.#vetted.set(name, verdict);
    // A death may have had another cause: the next one to ask has it tried again.
    if (await verdict !== null) this.#vetted.delete(name);
    return verdict;
  }

  async #ask(path: string, embedding: boolean, key: readonly string[]): Promise<string | null> {
    if (await this.verdicts.get(key) === true) return null;
    const death = await vetModel(path, embedding, this.options);
    if (death === null) await this.verdicts.put(key, true);
    return death;
  }
}

/** Resolves to null when llama.cpp lives through the file, or cannot be asked; else to how it died. Never rejects. */
export async function vetModel(path: string, embedding: boolean, options: VetOptions = {}): Promise<string | null> {
  const child = startChild(options.vetProgram ?? fileURLToPath(new URL('./vet-child.js', import.meta.url)), [path, embedding ? 'embedding' : 'text']);
  const answer = await child.next(options.vetTimeoutMs ?? 60_000);
  await child.kill();
  return answer instanceof ChildDeath && answer.started ? answer.how : null;
}
