/** The key of a model: what a ledger knows it by. */
import { createHash } from 'node:crypto';
import { basename, extname } from 'node:path';
import type { ModelSpec } from '../index.js';

const stemCharactersMax = 128;
const scriptStem = 'script';

/**
 * The key names what is loaded, not who asks: the file, the engine, the
 * settings that change the load and over how many cards it is. Context, class and sampling are not in it, so
 * two presets of one file share one load (B77).
 */
export function modelKeyOf(engine: string, source: string, embedding: boolean, settings: Readonly<Record<string, string>>, cards: number): string {
  const ordered = Object.keys(settings).sort().map((key) => [key, settings[key]]);
  const digest = createHash('sha256').update(JSON.stringify([engine, source, embedding, ordered, ...(cards === 1 ? [] : [cards])])).digest('hex').slice(0, 8);
  const stem = source.startsWith('sim:') ? scriptStem : basename(source, extname(source));
  // A file's name may hold what a key may not; the digest tells two apart all the same.
  const readable = Array.from(stem.replace(/\p{C}/gu, '_')).slice(0, stemCharactersMax).join('');
  return `${readable}@${engine}#${digest}`;
}

/**
 * Those of `keys` that are loads of a file of the same name by the same engine, and not `key` itself: the same model from another
 * folder, or with other settings. Scripts have no file: none is another's copy.
 */
export function otherCopies(key: string, keys: Iterable<string>): readonly string[] {
  const file = fileOf(key);
  return file === null ? [] : [...new Set(keys)].filter((other) => other !== key && fileOf(other) === file);
}

/**
 * Whether a spec is not what its key was made of. A key with a digest is that of a configured model wherever its maker is: who
 * comes first with another file under it would keep out those it belongs to. Keys of any other form are their user's own.
 */
export function isForged({ key, engine, source, embedding, options }: ModelSpec, cards: number): boolean {
  return /@[^@]+#[0-9a-f]{8}$/.test(key) && ![1, cards].some((count) => modelKeyOf(engine, source, embedding, options, count) === key);
}

function fileOf(key: string): string | null {
  const end = key.lastIndexOf('#');
  return end === -1 || key.startsWith(`${scriptStem}@`) ? null : key.slice(0, end);
}
