/** Loads a model as it was estimated, nothing left to chance or to free memory; on abort or failure nothing stays. */
import { open, type FileHandle } from 'node:fs/promises';
import type { LlamaModel } from 'node-llama-cpp';
import type { LeasePart, ModelSpec } from '../../protocol/index.js';
import { CardBytes, type MemoryUsage } from './card-bytes.js';
import { createOn } from './dispose-guard.js';
import { Embedder } from './embed.js';
import { embeddingTokens } from './estimate.js';
import { failureOf } from './failures.js';
import { checkSource, insightsOf, releaseInsights, shapeOf, weightsName, type Shape } from './inspect.js';
import { LlamaLoadedModel } from './model.js';
import { readSettings } from './options.js';
import type { StartedLlama } from './started.js';
import { Vocabulary } from './vocabulary.js';

export interface LoadRequest {
  readonly spec: ModelSpec;
  readonly device: string;
  readonly progress: (fraction: number | null) => void;
  readonly onUnloaded: (model: LlamaLoadedModel) => void;
  readonly signal: AbortSignal;
}

export async function loadModel(started: StartedLlama, request: LoadRequest): Promise<LlamaLoadedModel> {
  const { spec, device, progress, onUnloaded, signal } = request;
  signal.throwIfAborted();
  const settings = readSettings(spec);
  const checked = await checkSource(started, spec, signal);
  const insights = await insightsOf(started, checked, spec.source);
  const shape = shapeOf(started, insights, checked, spec, settings);
  await releaseInsights(insights);
  return started.log.during(async (lines) => {
    const bytes = new CardBytes(started, device, settings.tensorSplit, shape.layers);
    const opened: { file: FileHandle | null; model: LlamaModel | null; embedder: Embedder | null } = { file: null, model: null, embedder: null };
    try {
      // llama.cpp closes what it has read. Who would remove the file is told by the kernel that it is in use (B55).
      const file = opened.file = await open(checked.path, 'r');
      const model = opened.model = await openModel(started, checked.path, shape, progress, signal);
      const vocabulary = new Vocabulary(model, settings.chatTemplate);
      const name = weightsName(shape.layers);
      const measuredParts: LeasePart[] = [{ name, kind: 'weights', bytes: await bytes.take(name, model.memoryUsage), upFront: true }];
      if (shape.embedding) {
        const [embedder, usage] = await openEmbedder(started, { model, spec, shape, vocabulary }, signal);
        opened.embedder = embedder;
        measuredParts.push({ name: 'embedding', kind: 'context', bytes: await bytes.take('embedding', usage), upFront: true });
      }
      signal.throwIfAborted();
      return new LlamaLoadedModel({ started, spec, shape, device, model, vocabulary, bytes, measuredParts, embedder: opened.embedder, file, onUnloaded });
    } catch (error) {
      await opened.embedder?.close();
      await opened.model?.dispose();
      await opened.file?.close();
      await bytes.giveAll();
      if (signal.aborted) throw signal.reason;
      throw await failureOf(started, { model: spec.key, device }, await lines(), error);
    }
  });
}

async function openModel({ llama }: StartedLlama, modelPath: string, shape: Shape, progress: (fraction: number | null) => void, signal: AbortSignal): Promise<LlamaModel> {
  let shown = 0;
  return createOn(llama, () => llama.loadModel({
    modelPath,
    gpuLayers: shape.gpuLayers,
    useMmap: false,
    defaultContextFlashAttention: shape.flashAttention,
    // What was granted is what is taken: the engine's own look at free memory would judge its neighbours.
    ignoreMemorySafetyChecks: true,
    loadSignal: signal,
    onLoadProgress(fraction) {
      if (signal.aborted || fraction <= shown) return;
      shown = Math.min(1, fraction);
      progress(shown);
    },
  }));
}

interface EmbedderOf {
  readonly model: LlamaModel;
  readonly spec: ModelSpec;
  readonly shape: Shape;
  readonly vocabulary: Vocabulary;
}

/** The context's own figures are not shown for embedding contexts: they are the rise of the process's. */
async function openEmbedder(started: StartedLlama, { model, spec, shape, vocabulary }: EmbedderOf, signal: AbortSignal): Promise<[Embedder, MemoryUsage]> {
  const contextTokens = embeddingTokens(spec, shape);
  const before = await started.llama.getLlamaMemoryUsage();
  const embedder = await Embedder.open({
    model, name: spec.key, contextTokens, batchTokens: shape.batchTokens(contextTokens), pieceTokens: shape.pieceTokens(contextTokens),
    threads: started.threads, meter: started.meter, vocabulary,
  }, signal);
  const after = await started.llama.getLlamaMemoryUsage();
  return [embedder, { ram: after.cpuRam - before.cpuRam, vram: after.gpuVram - before.gpuVram }];
}
