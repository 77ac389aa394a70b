/**
 * `node trial.js BACKEND MODEL THREADS [CARD]`: one token of the model by that backend, and in one line of JSON on standard
 * output what it took, or that it did not come to that; llama.cpp's own words, which say why, stand around it. Whoever
 * starts it must reckon with its death: some drivers and builds abort at the first compute. Nothing is built or kept.
 */
import { LeaseholdError } from '../../protocol/index.js';
import { importLibrary } from './library.js';
import type { ProbeBackend } from './probe-child.js';
import { sayAloud } from './say-aloud.js';
import { visibilityFault } from './visible-devices.js';

export type Trial =
  | {
      readonly ran: true;
      /** Of the bindings, and of the llama.cpp in them. */
      readonly version: string;
      readonly release: string;
      /** What the backend computes on, by its own names; none for the CPU. */
      readonly devices: readonly string[];
      readonly openMs: number;
      readonly loadMs: number;
      /** From the prompt to the first token. */
      readonly firstTokenMs: number;
    }
  | { readonly ran: false; readonly missing: boolean; readonly reason: string };

const contextTokens = 256;
const prompt = 'What colour is the sky?';

async function runTrial(backend: ProbeBackend | 'cpu', modelPath: string, threads: number, cardName: string): Promise<Trial> {
  const library = await importLibrary();
  const clock = stopwatch();
  const llama = await library.getLlama({
    gpu: backend === 'cpu' ? false : backend, build: 'never', skipDownload: true, progressLogs: false, maxThreads: threads, ramPadding: 0, vramPadding: 0,
    logLevel: library.LlamaLogLevel.error, logger: (_, line) => void process.stderr.write(`${line.trim()}\n`),
  });
  sayAloud(llama);
  const devices = backend === 'cpu' ? [] : await llama.getGpuDeviceNames();
  // As the worker judges it: what computes elsewhere is no use on this card.
  const fault = backend === 'cpu' ? null : visibilityFault(devices, cardName);
  if (fault !== null) return { ran: false, missing: false, reason: fault };
  const openMs = clock();
  const gpuLayers = backend === 'cpu' ? 0 : 'max';
  const model = await llama.loadModel({ modelPath, gpuLayers, useMmap: false, ignoreMemorySafetyChecks: true, defaultContextFlashAttention: true });
  const context = await model.createContext({ contextSize: contextTokens, batchSize: contextTokens, threads, flashAttention: true, ignoreMemorySafetyChecks: true, failedCreationRemedy: false });
  const loadMs = clock();
  for await (const _token of context.getSequence().evaluate(model.tokenize(prompt), { temperature: 0, yieldEogToken: true })) break;
  const firstTokenMs = clock();
  const { release } = llama.llamaCppRelease;
  return { ran: true, version: await library.getModuleVersion(), release, devices, openMs, loadMs, firstTokenMs };
}

/** Milliseconds since it was last asked. */
function stopwatch(): () => number {
  let lastMs = performance.now();
  return () => {
    const sinceMs = performance.now() - lastMs;
    lastMs += sinceMs;
    return Math.round(sinceMs * 10) / 10;
  };
}

function failure(error: unknown): Trial {
  return { ran: false, missing: error instanceof LeaseholdError && error.code === 'engine_missing', reason: error instanceof Error ? error.message : String(error) };
}

const [backend, modelPath = '', threads, cardName = ''] = process.argv.slice(2);
const trial = await runTrial(backend as ProbeBackend | 'cpu', modelPath, Math.max(1, Number(threads)), cardName).catch(failure);
process.stdout.write(`${JSON.stringify(trial)}\n`, () => process.exit());
