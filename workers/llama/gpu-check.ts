/**
 * What the engine really does on a card, in figures of its own and nvidia-smi's: run by hand on a machine that has one.
 * Usage: node dist/workers/llama/gpu-check.js [MODEL.gguf]
 * Without a model a random one of 14.5 GB is written to the temporary folder. Says what it does on stderr as it goes;
 * the last line on stdout is one JSON object.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ModelSpec } from '../../protocol/index.js';
import type { EngineContext, GenerateCall, GenerateEvent, LoadedContext, LoadedModel, VisibleCard } from '../runtime/engine.js';
import { Estimator } from './estimate.js';
import { largeModel } from './large-model.js';
import { loadModel } from './load.js';
import { startLlama } from './start.js';
import type { StartedLlama } from './started.js';
import { writeGguf } from './gguf-writer.js';

type Figures = Record<string, unknown>;

const card: VisibleCard = { device: 'GPU-check', name: 'NVIDIA', totalBytes: null, simulated: false };
const never = new AbortController().signal;
const startedAtMs = performance.now();

const say = (text: string): void => void process.stderr.write(`${((performance.now() - startedAtMs) / 1000).toFixed(1)} s  ${text}\n`);

/** To the mebibyte. A card of its own is what this is run on, so nothing else there moves. */
async function usedByDriver(): Promise<number> {
  const { stdout } = await promisify(execFile)('nvidia-smi', ['--query-gpu=memory.used', '--format=csv,noheader,nounits']);
  return Number(stdout.split('\n')[0]) * 1024 * 1024;
}

const context: EngineContext = {
  cards: [card],
  threads: 4,
  startTimeoutMs: 60_000,
  watch: { usedBytes: usedByDriver, neighbours: async () => 'none' },
  allocator: { allocate: () => Promise.reject(new Error('a real card is not allocated from')) },
  log: (level, message) => say(`${level}: ${message}`),
  reportFloor: (_, bytes) => void reportedFloors.push(bytes),
};
const reportedFloors: number[] = [];

async function timed<T>(name: string, figures: Figures, work: () => Promise<T>): Promise<T> {
  say(name);
  const fromMs = performance.now();
  const result = await work();
  figures[`${name}Ms`] = Math.round(performance.now() - fromMs);
  return result;
}

const used = async (started: StartedLlama): Promise<number> => (await started.llama.getVramState()).used;

function specOf(source: string): ModelSpec {
  return {
    key: 'gpu-check', engine: 'llama', source, contextTokens: 4_096, parallel: 1, embedding: false, declaredBytes: null,
    policy: { ttlMs: null, pinned: false, exclusive: false }, options: {},
  };
}

const callOf = (promptTokens: number, sampling: Partial<GenerateCall['sampling']> = {}): GenerateCall => ({
  messages: null,
  // Bytes are tokens here, so a text has as many tokens as letters; with another model about a quarter.
  prompt: Array.from({ length: promptTokens }, (_, index) => String.fromCharCode(97 + ((index * 7) % 26))).join(''),
  sampling: { maxTokens: 32, temperature: 0, ...sampling },
});

interface Generated {
  readonly ids: readonly number[];
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly firstTokenMs: number;
  readonly totalMs: number;
}

async function generate(loaded: LoadedContext, call: GenerateCall, onEvent: (event: GenerateEvent) => void = () => undefined, signal = never): Promise<Generated> {
  const fromMs = performance.now();
  const ids: number[] = [];
  let firstTokenMs = NaN;
  let usage = { promptTokens: 0, cachedTokens: 0 };
  for await (const event of loaded.generate(call, signal)) {
    onEvent(event);
    if (event.type === 'token') ids.push(...event.ids);
    if (ids.length === 1 && Number.isNaN(firstTokenMs)) firstTokenMs = performance.now() - fromMs;
    if (event.type === 'end') usage = event;
  }
  return { ids, promptTokens: usage.promptTokens, cachedTokens: usage.cachedTokens, firstTokenMs, totalMs: performance.now() - fromMs };
}

/** Load, contexts and generation, each beside its estimate; everything given back at the end. */
async function checkModel(started: StartedLlama, source: string): Promise<Figures> {
  const figures: Figures = {};
  const atStart = await used(started);
  const estimate = await timed('estimate', figures, () => new Estimator(started).estimate(specOf(source), never));
  const afterEstimate = await used(started);
  const model = await timed('load', figures, () => load(started, source));
  const afterLoad = await used(started);
  Object.assign(figures, {
    estimateLeftBytes: afterEstimate - atStart,
    weightsEstimatedBytes: estimate.parts[0]?.bytes,
    weightsMeasuredBytes: model.measuredParts[0]?.bytes,
    weightsRiseBytes: afterLoad - afterEstimate,
  });
  for (const tokens of [4_096, 8_192]) figures[`context${String(tokens)}`] = await checkContext(started, model, tokens, estimate.contextBytes(tokens), afterLoad);
  await timed('unload', figures, () => model.unload());
  figures['unloadLeftBytes'] = (await used(started)) - atStart;
  return figures;
}

async function checkContext(started: StartedLlama, model: LoadedModel, tokens: number, estimatedBytes: number, before: number): Promise<Figures> {
  const figures: Figures = { estimatedBytes };
  const loaded = await timed('open', figures, () => model.openContext(`context:${String(tokens)}`, tokens, never));
  const opened = await used(started);
  let peak = opened;
  const short = await generate(loaded, callOf(16));
  const afterShort = await used(started);
  const long = await generate(loaded, callOf(2_048));
  peak = Math.max(afterShort, await used(started));
  const aborted = await abortPrefill(loaded);
  const again = await generate(loaded, callOf(16, { seed: '1' }));
  await timed('close', figures, () => loaded.close());
  return {
    ...figures,
    measuredBytes: loaded.measuredBytes,
    riseBytes: opened - before,
    firstComputeBytes: afterShort - opened,
    longPromptBytes: peak - opened,
    leftBytes: (await used(started)) - before,
    shortFirstTokenMs: Math.round(short.firstTokenMs),
    tokensPerSecond: Math.round((31 * 1000) / (short.totalMs - short.firstTokenMs)),
    longPromptTokens: long.promptTokens,
    longFirstTokenMs: Math.round(long.firstTokenMs),
    abortPrefillMs: aborted,
    sameIdsAfterAbort: again.ids.join() === short.ids.join(),
  };
}

/** From an abort that comes while a piece of a prompt of 3,500 letters is evaluated to the end of the call. */
async function abortPrefill(loaded: LoadedContext): Promise<number> {
  const stop = new AbortController();
  let abortedMs = NaN;
  const abort = (): void => {
    abortedMs = performance.now();
    stop.abort(new Error('stopped'));
  };
  const onEvent = (event: GenerateEvent): void => {
    if (event.type === 'prefill' && event.doneTokens >= 512 && Number.isNaN(abortedMs)) setTimeout(abort, 2);
  };
  const call = callOf(3_500);
  await generate(loaded, { ...call, prompt: `z${call.prompt ?? ''}` }, onEvent, stop.signal).then(() => say('the prompt was faster than its abort'), () => undefined);
  return Math.round((performance.now() - abortedMs) * 10) / 10;
}

/** A load that is stopped at a third: how soon it ends, and what it leaves. */
async function checkAbort(started: StartedLlama, source: string): Promise<Figures> {
  say('abort of a load');
  const before = await used(started);
  const stop = new AbortController();
  let abortedMs = NaN;
  const outcome = await load(started, source, (fraction) => {
    if ((fraction ?? 0) < 0.33 || stop.signal.aborted) return;
    abortedMs = performance.now();
    stop.abort(new Error('stopped'));
  }, stop.signal).then(async (model) => { await model.unload(); return 'loaded'; }, (error: unknown) => (error instanceof Error ? error.message : 'unknown'));
  return { outcome, rejectMs: Math.round((performance.now() - abortedMs) * 10) / 10, leftBytes: (await used(started)) - before };
}

function load(started: StartedLlama, source: string, progress: (fraction: number | null) => void = () => undefined, signal = never): Promise<LoadedModel> {
  return loadModel(started, { spec: specOf(source), device: card.device, progress, onUnloaded: () => undefined, signal });
}

async function main(given: string | undefined): Promise<void> {
  const figures: Figures = {};
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-gpu-check-'));
  try {
    const source = given ?? join(folder, 'large.gguf');
    if (given === undefined) figures['modelBytes'] = await timed('write', figures, () => writeGguf(source, largeModel()));
    const first = await timed('start', figures, () => startLlama(context, { verdictFolder: join(folder, 'verdicts') }));
    Object.assign(figures, { backend: first.backend, floors: first.floors });
    // The first run pays for reading the file; the second is what a worker that has loaded before does.
    figures['cold'] = await checkModel(first, source);
    figures['warm'] = await checkModel(first, source);
    figures['abort'] = await checkAbort(first, source);
    figures['afterAbort'] = await checkModel(first, source);
    figures['floorsReportedWhileComputing'] = [...reportedFloors];
    await timed('startFromVerdict', figures, () => startLlama(context, { verdictFolder: join(folder, 'verdicts') }));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  process.stdout.write(`${JSON.stringify(figures)}\n`);
}

await main(process.argv[2]);
// llama.cpp keeps its context on the card until the process ends.
process.exit(0);
