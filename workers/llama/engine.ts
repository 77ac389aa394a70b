/** llama.cpp as an engine of the worker runtime, by node-llama-cpp. */
import { LeaseholdError, type ModelSpec } from '../../protocol/index.js';
import type { Engine, EngineCapabilities, EngineContext, Estimate, LoadedModel } from '../runtime/engine.js';
import { Estimator } from './estimate.js';
import { loadModel } from './load.js';
import type { LlamaLoadedModel } from './model.js';
import { startLlama } from './start.js';
import type { StartedLlama, StartOptions } from './started.js';

export type LlamaEngineOptions = StartOptions;

export function createLlamaEngine(options: LlamaEngineOptions = {}): Engine {
  return new LlamaEngine(options);
}

interface Running {
  readonly started: StartedLlama;
  readonly estimator: Estimator;
  readonly versions: Readonly<Record<string, string>>;
}

class LlamaEngine implements Engine {
  readonly name = 'llama';
  readonly capabilities: EngineCapabilities = { park: false, partial: false, embed: true, profilesFreeMemory: false, spread: true };
  readonly #options: LlamaEngineOptions;
  readonly #models = new Set<LlamaLoadedModel>();
  /** Loads under way: closing waits for their end. */
  readonly #loading = new Map<Promise<unknown>, AbortController>();
  #running: Running | null = null;
  #closing: Promise<void> | null = null;

  constructor(options: LlamaEngineOptions) {
    this.#options = options;
  }

  get versions(): Readonly<Record<string, string>> {
    return this.#running?.versions ?? {};
  }

  get floors(): Engine['floors'] {
    return this.#running?.started.floors ?? [];
  }

  async start(context: EngineContext): Promise<void> {
    if (this.#running !== null) throw new LeaseholdError('internal', { reason: 'the llama engine was started twice' });
    const started = await startLlama(context, this.#options);
    const { library, llama, backend } = started;
    const versions = { 'node-llama-cpp': await library.getModuleVersion(), 'llama.cpp': llama.llamaCppRelease.release, backend };
    this.#running = { started, estimator: new Estimator(started), versions };
  }

  async estimate(spec: ModelSpec, signal: AbortSignal): Promise<Estimate> {
    return this.#now().estimator.estimate(spec, signal);
  }

  async load(spec: ModelSpec, device: string, progress: (fraction: number | null) => void, signal: AbortSignal): Promise<LoadedModel> {
    const { started } = this.#now();
    const stop = new AbortController();
    const onUnloaded = (model: LlamaLoadedModel): void => void this.#models.delete(model);
    const load = loadModel(started, { spec, device, progress, onUnloaded, signal: AbortSignal.any([signal, stop.signal]) });
    const settled = load.catch(() => undefined);
    this.#loading.set(settled, stop);
    try {
      const model = await load;
      this.#models.add(model);
      return model;
    } finally {
      this.#loading.delete(settled);
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const stop of this.#loading.values()) stop.abort(new LeaseholdError('closed', { what: 'The llama engine' }));
    await Promise.all(this.#loading.keys());
    const unloads = await Promise.allSettled([...this.#models].map((model) => model.unload()));
    await this.#running?.estimator.idle();
    await this.#running?.started.llama.dispose();
    const refused = unloads.find((result) => result.status === 'rejected');
    if (refused !== undefined) throw refused.reason;
  }

  #now(): Running {
    if (this.#closing !== null || this.#running === null) throw new LeaseholdError('closed', { what: 'The llama engine' });
    return this.#running;
  }
}
