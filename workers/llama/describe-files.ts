/** `node describe-files.js PATH…`: for each model file a line of JSON on standard output: what its header says, or what is wrong with it. */
import { stat } from 'node:fs/promises';
import { unusableReason } from '../../src/models/formats/fault.js';
import { partPaths } from '../../src/models/formats/gguf-parts.js';
import { checkModel } from './gguf-checks.js';

export type FileDescription =
  | { readonly path: string; readonly architecture: string; readonly tensorBytes: number; readonly fileBytes: number; readonly parts: number; readonly trainedTokens: number | null }
  | { readonly path: string; readonly fault: string };

const never = new AbortController().signal;

async function describe(path: string): Promise<FileDescription> {
  try {
    const { architecture, tensorBytes, header } = await checkModel(path, async () => '', never);
    const sizes = await Promise.all(partPaths(path).map(async (part) => (await stat(part)).size));
    const trained = header.scalars.get(`${architecture}.context_length`);
    return { path, architecture, tensorBytes, fileBytes: sizes.reduce((sum, bytes) => sum + bytes, 0), parts: sizes.length, trainedTokens: trained === undefined ? null : Number(trained) };
  } catch (error) {
    return { path, fault: unusableReason(error) ?? (error instanceof Error ? error.message : String(error)) };
  }
}

for (const path of process.argv.slice(2)) process.stdout.write(`${JSON.stringify(await describe(path))}\n`);
