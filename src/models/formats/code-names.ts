/** Whether a JSON file of a repository names code of the repository's own. Nothing of it is kept, so it may be a tokenizer's megabytes. */
import { unusableFile } from './fault.js';
import { JsonScanner } from './json-scanner.js';

export const codeNamesBytesMax = 16 * 1024 * 1024;

/** Where `auto_map` stands, at any depth, however it is spelled; null: nowhere. Throws `model_invalid` for what is no JSON, too long or too deep. */
export function findCodeNames(bytes: Uint8Array, name: string): string | null {
  if (bytes.length > codeNamesBytesMax) throw unusableFile(name, `it has ${String(bytes.length)} bytes; at most ${String(codeNamesBytesMax)} are sensible`);
  const scanner = new JsonScanner(bytes, (reason) => unusableFile(name, reason), { pythonLiterals: true });
  let found: string | null = null;
  /** True for null, which names nothing. */
  const pass = (path: string): boolean => {
    const kind = scanner.next();
    if (kind === 'scalar') return scanner.scalar() === null;
    if (kind === 'array') scanner.array((index) => { pass(`${path}.${String(index)}`); });
    else scanner.object((key) => {
      const here = path === '' ? key : `${path}.${key}`;
      if (!pass(here) && key === 'auto_map') found ??= here.slice(-200);
    });
    return false;
  };
  pass('');
  scanner.end();
  return found;
}
