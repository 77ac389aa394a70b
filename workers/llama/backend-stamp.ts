/** Which build of a backend is installed: a replaced library must be probed anew. */
import { stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** Size and time of the backend's library; the empty text when it is not where packages put it. */
export async function backendStamp(backend: string): Promise<string> {
  const name = `${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}-${backend}`;
  const root = packageRoot(`@node-llama-cpp/${name}`);
  if (root === null) return '';
  const path = join(root, 'bins', name, process.platform === 'win32' ? `ggml-${backend}.dll` : `libggml-${backend}.so`);
  const found = await stat(path).catch(() => null);
  return found === null ? '' : `${String(found.size)} ${String(found.mtimeMs)}`;
}

function packageRoot(name: string): string | null {
  const fromHere = createRequire(import.meta.url);
  try {
    // Its entry is dist/index.js.
    return dirname(dirname(createRequire(fromHere.resolve('node-llama-cpp')).resolve(name)));
  } catch {
    // Not installed: then its build cannot be told, and the version must do.
    return null;
  }
}
