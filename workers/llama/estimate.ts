/**
 * What a model will need, by llama.cpp's own reckoning: it builds the model and a context without allocating them.
 * On a card that needs llama.cpp running there, so the process's floor is paid before any estimate.
 */
import { LeaseholdError, type LeasePart, type ModelSpec } from '../../protocol/index.js';
import type { Estimate, HostEstimate } from '../runtime/engine.js';
import { contextCurve, paddedTokens, type ContextSample } from './context-curve.js';
import type { CheckedModel } from './gguf-checks.js';
import { checkSource, insightsOf, onCardBytes, releaseInsights, shapeOf, weightsName, type Insights, type Shape } from './inspect.js';
import { readSettings } from './options.js';
import { spreadEstimate, spreadOver } from './spread.js';
import type { StartedLlama } from './started.js';

const keptMax = 32;
/** What the wire allows. */
const contextTokensMax = 16_777_216;

export class Estimator {
  readonly #kept = new Map<string, Estimate>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly started: StartedLlama) {}

  /** Rejects with `model_invalid`, or with `estimate_unknown` when llama.cpp cannot reckon and nothing was declared. */
  async estimate(spec: ModelSpec, signal: AbortSignal): Promise<Estimate> {
    signal.throwIfAborted();
    const settings = readSettings(spec);
    const checked = await checkSource(this.started, spec, signal);
    const key = JSON.stringify([checked.fingerprint, settings, spec.contextTokens, spec.embedding, spec.declaredBytes]);
    const kept = this.#kept.get(key);
    if (kept !== undefined) return kept;
    const work = this.#turn.then(() => this.#work(spec, checked, signal));
    // The next one waits for this one's end, not for its success.
    this.#turn = work.catch(() => undefined);
    const estimate = spreadEstimate(await work, this.started, settings.tensorSplit);
    this.#kept.set(key, estimate);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > keptMax && oldest !== undefined) this.#kept.delete(oldest);
    return estimate;
  }

  /** Resolves when no estimate is being worked out. */
  async idle(): Promise<void> {
    await this.#turn;
  }

  async #work(spec: ModelSpec, checked: CheckedModel, signal: AbortSignal): Promise<Estimate> {
    signal.throwIfAborted();
    const insights = await insightsOf(this.started, checked, spec.source);
    try {
      return await this.#reckon(insights, spec, checked, signal);
    } finally {
      await releaseInsights(insights);
    }
  }

  async #reckon(insights: Insights, spec: ModelSpec, checked: CheckedModel, signal: AbortSignal): Promise<Estimate> {
    if (!insights.isSupportedByLlamaCpp) return declared(this.started, spec, `llama.cpp does not know the architecture ${checked.architecture}`);
    const shape = shapeOf(this.started, insights, checked, spec, readSettings(spec));
    return this.started.log.during(async (lines) => {
      const reckoning = new Reckoning(this.started, insights, shape);
      const weights = await reckoning.weights();
      const refused = refusal(await lines());
      if (refused !== null) throw unusable(spec, refused);
      const estimate = shape.embedding ? await embeddingEstimate(reckoning, weights, spec, shape) : await textEstimate(reckoning, weights, spec, shape, signal);
      const late = refusal(await lines());
      if (late !== null) throw unusable(spec, late);
      return { ...estimate, ...offloadOf(spec, shape, this.started) };
    });
  }
}

/** On one card alone, and where the operator says how few layers will do. */
function offloadOf(spec: ModelSpec, { layers: { onCard } }: Shape, started: StartedLlama): Pick<Estimate, 'offload'> {
  const { minGpuLayers } = readSettings(spec);
  if (minGpuLayers === null || started.card === null || spreadOver(started).length > 0) return {};
  return { offload: { fewest: Math.min(minGpuLayers, onCard), total: onCard, with: (layers) => ({ ...spec, options: { ...spec.options, gpuLayers: String(layers) } }) } };
}

/** Of the card, where bytes of one are leased; and of the machine's memory. */
interface Figures {
  readonly bytes: number;
  readonly hostBytes: number;
}

/** One model's figures. */
class Reckoning {
  constructor(private readonly started: StartedLlama, private readonly insights: Insights, private readonly shape: Shape) {}

  async weights(): Promise<Figures> {
    return this.#ours(await this.insights.estimateModelResourceRequirementsV2({ gpuLayers: this.shape.gpuLayers, useMmap: false }));
  }

  async context(tokens: number): Promise<Figures & { readonly tokens: number }> {
    const contextSize = paddedTokens(tokens);
    const needed = await this.insights.estimateContextResourceRequirementsV2({
      contextSize,
      batchSize: this.shape.batchTokens(contextSize),
      sequences: 1,
      modelGpuLayers: this.shape.gpuLayers,
      flashAttention: this.shape.flashAttention,
      isEmbeddingContext: this.shape.embedding,
      useMmap: false,
    });
    return { tokens: contextSize, ...this.#ours(needed) };
  }

  #ours(needed: { readonly cpuRam: number; readonly gpuVram: number }): Figures {
    const { card, backend, context } = this.started;
    return {
      bytes: card === null ? 0 : backend === 'cpu' ? onCardBytes(this.shape.layers, needed.cpuRam) : Math.ceil(needed.gpuVram),
      // Of a simulated one nothing is taken.
      hostBytes: context.memory?.simulated === true ? 0 : Math.ceil(needed.cpuRam),
    };
  }
}

/** Each context has its own cache and its own compute buffers, so both are in `contextBytes`. */
async function textEstimate(reckoning: Reckoning, weights: Figures, spec: ModelSpec, shape: Shape, signal: AbortSignal): Promise<Estimate> {
  const samples: (Figures & { readonly tokens: number })[] = [];
  for (const tokens of sampleSizes(spec.contextTokens, shape)) {
    signal.throwIfAborted();
    samples.push(await reckoning.context(tokens));
  }
  const onHost = samples.map(({ tokens, hostBytes }): ContextSample => ({ tokens, bytes: hostBytes }));
  return estimateOf([part(weightsName(shape.layers), 'weights', weights.bytes)], contextCurve(samples), 'estimated', hostOf(weights.hostBytes, contextCurve(onHost)));
}

/** What was asked for, where the batch stops growing, and doublings up to what the model was trained on: its buffers grow in bends. */
function sampleSizes(askedTokens: number, shape: Shape): ReadonlySet<number> {
  const most = Math.min(contextTokensMax, Math.max(askedTokens, shape.trainTokens));
  const doublings = Array.from({ length: Math.ceil(Math.log2(Math.max(2, most / 256))) }, (_, power) => 256 * 2 ** power);
  return new Set([...doublings, shape.batchTokens(most), most, askedTokens].map(paddedTokens));
}

/** An embedding model runs on one context of its own, opened with it. */
async function embeddingEstimate(reckoning: Reckoning, weights: Figures, spec: ModelSpec, shape: Shape): Promise<Estimate> {
  const context = await reckoning.context(embeddingTokens(spec, shape));
  return estimateOf([part(weightsName(shape.layers), 'weights', weights.bytes), part('embedding', 'context', context.bytes)], () => 0, 'estimated', hostOf(weights.hostBytes + context.hostBytes, () => 0));
}

/** The size of an embedding model's context: what was asked, else what it was trained on, within reason. */
export function embeddingTokens(spec: ModelSpec, shape: Shape): number {
  return paddedTokens(spec.contextTokens === 0 ? Math.min(shape.trainTokens, 8_192) : spec.contextTokens);
}

/** llama.cpp knows the architecture and refuses the file: no declared size would make it load. */
function unusable({ source }: ModelSpec, reason: string): LeaseholdError {
  return new LeaseholdError('model_invalid', { source, reason });
}

/** The operator's word, where there is no other (B20). */
function declared(started: StartedLlama, spec: ModelSpec, reason: string): Estimate {
  if (spec.declaredBytes === null) throw new LeaseholdError('estimate_unknown', { model: spec.key, reason });
  const bytes = started.card === null ? 0 : spec.declaredBytes;
  const hostBytes = started.backend === 'cpu' && started.context.memory?.simulated !== true ? spec.declaredBytes : 0;
  return estimateOf([part('weights', 'weights', bytes, false)], () => 0, 'declared', hostOf(hostBytes, () => 0));
}

function estimateOf(parts: readonly LeasePart[], contextBytes: (tokens: number) => number, source: Estimate['source'], host: HostEstimate): Estimate {
  return { parts, contextBytes, peakBytes: 0, source, parkable: false, host };
}

/** No copy is kept, and a load reads into the place where it stays. */
function hostOf(bytes: number, contextBytes: (tokens: number) => number): HostEstimate {
  return { bytes, contextBytes, copyBytes: 0, peakBytes: 0, parkPeakBytes: null };
}

function part(name: string, kind: LeasePart['kind'], bytes: number, upFront = true): LeasePart {
  return { name, kind, bytes, upFront };
}

/** The bindings fall back to a rule of thumb when llama.cpp refuses a model, and say so in the log alone. */
function refusal(lines: readonly string[]): string | null {
  if (!lines.some((line) => line.includes('Failed simulating'))) return null;
  const reasons = lines.filter((line) => /error|invalid|missing|unknown|fail/i.test(line));
  return reasons.slice(0, 3).join('; ');
}
