/**
 * `node reckon.js BACKEND PATH BATCH TOKENS…`: what llama.cpp itself says the model, and a context of each size, will take.
 * It builds them without allocating, and reads no weights. One line of JSON on standard output. Whoever starts it must
 * reckon with its death: llama.cpp asserts what it does not check.
 */
import { LeaseholdError } from '../../protocol/index.js';
import { checkModel } from './gguf-checks.js';
import { importLibrary } from './library.js';
import type { ProbeBackend } from './probe-child.js';

export interface ReckonedBytes {
  readonly cardBytes: number;
  readonly hostBytes: number;
}

export type Reckoning =
  | {
      readonly reckoned: true;
      /** Of the bindings, and of the llama.cpp in them. */
      readonly version: string;
      readonly release: string;
      readonly weights: ReckonedBytes;
      /** Cache and buffers. */
      readonly contexts: readonly (ReckonedBytes & { readonly tokens: number })[];
    }
  | { readonly reckoned: false; readonly missing: boolean; readonly reason: string };

async function reckon(backend: ProbeBackend | 'cpu', path: string, batchTokens: number, sizes: readonly number[]): Promise<Reckoning> {
  const library = await importLibrary();
  const refusals: string[] = [];
  const llama = await library.getLlama({
    gpu: backend === 'cpu' ? false : backend, build: 'never', skipDownload: true, progressLogs: false, maxThreads: 1, ramPadding: 0, vramPadding: 0,
    logLevel: library.LlamaLogLevel.warn, logger: (_, line) => void refusals.push(line.trim()),
  });
  const checked = await checkModel(path, async () => '', new AbortController().signal);
  const info = await library.readGgufFileInfo(checked.path, { sourceType: 'filesystem', logWarnings: false });
  const insights = await library.GgufInsights.from(info, llama);
  if (!insights.isSupportedByLlamaCpp) return { reckoned: false, missing: false, reason: `llama.cpp does not know the architecture ${checked.architecture}` };
  const gpuLayers = backend === 'cpu' ? 0 : insights.totalLayers;
  const weights = bytesOf(await insights.estimateModelResourceRequirementsV2({ gpuLayers, useMmap: false }));
  const contexts: (ReckonedBytes & { readonly tokens: number })[] = [];
  for (const tokens of sizes) {
    const needed = await insights.estimateContextResourceRequirementsV2({
      contextSize: tokens, batchSize: Math.min(batchTokens, tokens), sequences: 1, modelGpuLayers: gpuLayers, flashAttention: insights.flashAttentionSupported, useMmap: false,
    });
    contexts.push({ tokens, ...bytesOf(needed) });
  }
  // The bindings fall back to a rule of thumb when llama.cpp refuses a model, and say so in the log alone.
  const refused = refusals.find((line) => line.includes('Failed simulating'));
  if (refused !== undefined) return { reckoned: false, missing: false, reason: refusals.filter((line) => /error|invalid|missing|unknown|fail/i.test(line)).slice(0, 3).join('; ') };
  return { reckoned: true, version: await library.getModuleVersion(), release: llama.llamaCppRelease.release, weights, contexts };
}

function bytesOf({ cpuRam, gpuVram }: { readonly cpuRam: number; readonly gpuVram: number }): ReckonedBytes {
  return { cardBytes: Math.ceil(gpuVram), hostBytes: Math.ceil(cpuRam) };
}

function failure(error: unknown): Reckoning {
  return { reckoned: false, missing: error instanceof LeaseholdError && error.code === 'engine_missing', reason: error instanceof Error ? error.message : String(error) };
}

const [backend, path = '', batchTokens, ...sizes] = process.argv.slice(2);
const reckoning = await reckon(backend as ProbeBackend | 'cpu', path, Number(batchTokens), sizes.map(Number)).catch(failure);
process.stdout.write(`${JSON.stringify(reckoning)}\n`, () => process.exit());
