/** An engine without an engine: it estimates, loads, answers and fails as its models' scripts say. */
import { LeaseholdError, type LeasePart, type ModelSpec } from '../../protocol/index.js';
import type { CardAllocation, CardEstimate, Engine, EngineCapabilities, EngineContext, Estimate, HostEstimate, LoadedModel } from '../runtime/engine.js';
import { Faults } from './faults.js';
import { takeMemory } from './memory.js';
import { misbehave } from './misbehave.js';
import { SimulatedModel, pause, type Take } from './model.js';
import { processDefaults, readModelScript, type ModelScript, type ProcessScript } from './script.js';
import { SpreadModel, shareScript } from './spread.js';

export class SimulatedEngine implements Engine {
  readonly name: string;
  readonly versions = { simulated: '1' };
  readonly capabilities: EngineCapabilities;
  floors: readonly { readonly device: string; readonly bytes: number }[] = [];
  readonly #process: ProcessScript;
  /** By model: a fault that strikes once strikes once in this process, however often the model is loaded. */
  readonly #faults = new Map<string, Faults>();
  readonly #residual = new Map<string, CardAllocation | null>();
  /** What it has kept of the machine's memory from unloads. */
  #growth: CardAllocation[] = [];
  #context: EngineContext | null = null;

  constructor(script: Partial<ProcessScript> = {}) {
    this.#process = { ...processDefaults, ...script };
    this.name = this.#process.name;
    this.capabilities = { park: true, partial: this.#process.partial, embed: true, profilesFreeMemory: this.#process.profilesFreeMemory, spread: true };
  }

  async start(context: EngineContext): Promise<void> {
    this.#context = context;
    const { floorBytes } = this.#process;
    this.floors = floorBytes === null ? [] : context.cards.map(({ device }) => ({ device, bytes: floorBytes }));
    await misbehave(this.#process, context);
    await pause(this.#process.startMs);
    await new Faults(this.#process.faults).strike('start');
  }

  async estimate(spec: ModelSpec, signal: AbortSignal): Promise<Estimate> {
    const script = await readModelScript(spec);
    await this.#faultsOf(spec, script).strike('estimate');
    await pause(script.estimateMs, signal);
    if (script.sizeUnknown) throw new LeaseholdError('estimate_unknown', { model: spec.key, reason: 'its script says so' });
    const on = (share: ModelScript): CardEstimate => ({
      parts: parts(share),
      contextBytes: (tokens) => (spec.embedding ? 0 : Math.ceil(share.contextBytesPerToken * tokens)),
      peakBytes: share.loadPeakBytes,
    });
    const devices = this.#devices;
    return { ...on(script), cards: devices.length > 1 ? shareScript(script, devices.length).map(on) : undefined, source: 'estimated', parkable: script.parkable, host: hostEstimate(script) };
  }

  /** In the order of the runtime. */
  get #devices(): readonly string[] {
    return (this.#context?.cards ?? []).map(({ device }) => device).sort();
  }

  async load(spec: ModelSpec, device: string, progress: (fraction: number | null) => void, signal: AbortSignal, keepCopy: boolean | null = null): Promise<LoadedModel> {
    const script = await readModelScript(spec);
    const devices = this.#devices;
    if (devices.length < 2) {
      const model = await this.#modelOn(spec, device, script, keepCopy);
      await model.load(script.loadMs, 'load', progress, signal);
      return model;
    }
    const [first, ...others] = await Promise.all(shareScript(script, devices.length).map((share, index) => this.#modelOn(spec, devices[index] ?? device, share, keepCopy, index === 0)));
    if (first === undefined) throw new LeaseholdError('internal', { reason: 'a model without a card' });
    const model = new SpreadModel([first, ...others]);
    await model.load(script.loadMs, progress, signal);
    return model;
  }

  /** `grows`: it is the one that leaves what the process keeps of each unload. */
  async #modelOn(spec: ModelSpec, device: string, script: ModelScript, keepCopy: boolean | null, grows = true): Promise<SimulatedModel> {
    const take = this.#takeOn(device);
    await this.#takeResidual(device, take);
    const log = (message: string): void => { this.#context?.log('info', message); };
    return new SimulatedModel({
      key: spec.key, device, script, faults: this.#faultsOf(spec, script), take, log,
      keepCopy: script.parkable && script.keepsCopy && keepCopy !== false,
      takeMemory: (bytes) => takeMemory(this.#context, bytes),
      onUnloaded: () => (grows ? this.#grow() : Promise.resolve()),
    });
  }

  async releaseMemory(): Promise<void> {
    if (!this.#process.growthGivenBack) return;
    const growth = this.#growth;
    this.#growth = [];
    for (const allocation of growth) await allocation.free();
  }

  async #grow(): Promise<void> {
    const growth = await takeMemory(this.#context, this.#process.growthBytes);
    if (growth !== null) this.#growth.push(growth);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #faultsOf(spec: ModelSpec, script: ModelScript): Faults {
    const present = this.#faults.get(spec.key) ?? new Faults(script.faults);
    this.#faults.set(spec.key, present);
    return present;
  }

  #takeOn(device: string): Take {
    const context = this.#context;
    const simulated = context?.cards.find((card) => card.device === device)?.simulated === true;
    return async (bytes) => (context !== null && simulated && bytes > 0 ? context.allocator.allocate(device, bytes) : null);
  }

  async #takeResidual(device: string, take: Take): Promise<void> {
    if (this.#process.residualBytes === 0 || this.#residual.has(device)) return;
    this.#residual.set(device, await take(this.#process.residualBytes));
  }
}

function parts(script: ModelScript): LeasePart[] {
  const weights: LeasePart = { name: 'weights', kind: 'weights', bytes: script.weightsBytes, upFront: true };
  return script.computeBytes === 0 ? [weights] : [weights, { name: 'compute', kind: 'compute', bytes: script.computeBytes, upFront: true }];
}

function hostEstimate(script: ModelScript): HostEstimate {
  return {
    bytes: script.hostBytes, contextBytes: () => 0, peakBytes: script.hostPeakBytes,
    copyBytes: script.parkable && script.keepsCopy ? script.weightsBytes : 0,
    parkPeakBytes: script.parkPeakBytes,
  };
}
