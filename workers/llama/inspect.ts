/** A model file as llama.cpp's bindings see it, after its header has been found sane. */
import { stat } from 'node:fs/promises';
import { LeaseholdError, type ModelSpec } from '../../protocol/index.js';
import { unusableFile } from '../../src/models/formats/fault.js';
import { checkModel, type CheckedModel } from './gguf-checks.js';
import type { Library } from './library.js';
import type { LlamaSettings } from './options.js';
import type { Llama } from './open-llama.js';
import { orAbort } from './or-abort.js';
import { pieceTokens } from './prefill.js';
import type { StartedLlama } from './started.js';

export type Insights = Awaited<ReturnType<Library['GgufInsights']['from']>>;

/** Rejects with `model_invalid` when the file cannot be one of llama.cpp's, or would end it. */
export async function checkSource(started: Pick<StartedLlama, 'vetter'>, spec: ModelSpec, signal: AbortSignal): Promise<CheckedModel> {
  const { source } = spec;
  const checked = await checkModel(source, fingerprintOf, signal);
  const death = await orAbort(started.vetter.vet(checked, spec.embedding || checked.embeds), signal);
  if (death !== null) throw unusableFile(source, `llama.cpp does not survive it: ${death}`);
  return checked;
}

/** The bindings' own view, from the file alone: a path is never taken for an address. */
export async function insightsOf({ library, llama }: { readonly library: Library; readonly llama: Llama }, checked: CheckedModel, source: string): Promise<Insights> {
  try {
    const info = await library.readGgufFileInfo(checked.path, { sourceType: 'filesystem', logWarnings: false });
    return await library.GgufInsights.from(info, llama);
  } catch (error) {
    throw LeaseholdError.from(error, 'model_invalid', { source });
  }
}

/** Ends what the bindings keep for their reckoning: a vocabulary in native memory, which the garbage collector does not see. */
export async function releaseInsights(insights: Insights): Promise<void> {
  const { _simulationSession } = insights as unknown as { readonly _simulationSession?: { dispose(): Promise<void> } };
  await _simulationSession?.dispose();
}

/** What is loaded and opened, the same for the estimate and for the load. */
export interface Shape {
  /** Layers that the engine puts on a card; the output layer counts as one. */
  readonly gpuLayers: number;
  /** Those that count on the card, of how many: a simulated one is charged with them though the CPU computes all. */
  readonly layers: { readonly onCard: number; readonly total: number };
  readonly flashAttention: boolean;
  readonly embedding: boolean;
  /** It takes an input in one evaluation or not at all: an encoder asserts it, and pooling sees one evaluation at a time. */
  readonly wholeInput: boolean;
  readonly trainTokens: number;
  batchTokens(contextTokens: number): number;
  /** Tokens evaluated between two looks at a signal. */
  pieceTokens(contextTokens: number): number;
}

export function shapeOf(started: StartedLlama, insights: Insights, checked: CheckedModel, spec: ModelSpec, settings: LlamaSettings): Shape {
  const embedding = spec.embedding || checked.embeds;
  const wholeInput = embedding && !checked.poolsLast;
  const batchTokens = (contextTokens: number): number => (wholeInput ? contextTokens : Math.min(settings.batchTokens, contextTokens));
  const onCard = Math.min(settings.gpuLayers ?? insights.totalLayers, insights.totalLayers);
  const gpuLayers = started.backend === 'cpu' ? 0 : onCard;
  const cpuShare = 1 - gpuLayers / Math.max(1, insights.totalLayers);
  return {
    gpuLayers,
    layers: { onCard, total: insights.totalLayers },
    flashAttention: insights.flashAttentionSupported && settings.flashAttention !== false,
    embedding,
    wholeInput,
    trainTokens: insights.trainContextSize ?? 4_096,
    batchTokens,
    pieceTokens: (contextTokens) => (wholeInput ? contextTokens : settings.prefillTokens
      ?? pieceTokens({ cpuShare, parameters: insights.totalParameters, threads: started.threads, batchTokens: batchTokens(contextTokens) })),
  };
}

/** What of a model's bytes in the machine's memory counts on a simulated card: that of the layers which are meant to be there. */
export function onCardBytes({ onCard, total }: Shape['layers'], bytes: number): number {
  return onCard >= total ? Math.ceil(bytes) : Math.ceil((bytes * onCard) / total);
}

/** The part that holds the weights; where not all layers are on the card its name says how many are. */
export function weightsName({ onCard, total }: Shape['layers']): string {
  return onCard >= total ? 'weights' : `weights:${String(onCard)}/${String(total)}`;
}

async function fingerprintOf(path: string): Promise<string> {
  const { dev, ino, size, mtimeMs } = await stat(path);
  return [path, dev, ino, size, mtimeMs].join(':');
}
