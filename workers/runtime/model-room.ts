/** Asking the broker for a model's room: how much, how urgently, and again when those who asked first have given up. */
import { LeaseholdError, classPolicies, type HostNeed, type LeasePart, type LeaseTerms, type ModelSpec, type RequestClass } from '../../protocol/index.js';
import { contextBudget, cpuDevice, declaredCeiling, declaredEstimate, droppedContexts, estimateOn, hostBudget, loadBudget, truedUp, type Budget } from './budget.js';
import { elapsedMs, nowUs } from './clock.js';
import type { ControlChannel } from './control.js';
import type { FirstContext } from './door-types.js';
import type { EngineWatch } from './engine-watch.js';
import type { Engine, Estimate } from './engine.js';
import type { HeldModel } from './held-model.js';
import type { LearnedSizes } from './learned-sizes.js';
import type { WorkerLog } from './log.js';
import { requestOnAll, type Grant, type OpenGang } from './lease-requests.js';
import { askedBytes, couldHaveBytes, mostLayers, type Lighter } from './offload.js';

/** What the calls that wait for the model want of a request made for them. */
export interface Waiting {
  readonly class: RequestClass;
  readonly deadlineAtUs: number;
  readonly oldestAtUs: number;
}

export interface RoomOptions {
  readonly key: string;
  readonly engine: Engine;
  /** The cards that this process sees, in the order of their UUIDs; a model is on all of them. */
  readonly devices: readonly string[];
  readonly channel: ControlChannel;
  readonly watch: EngineWatch;
  readonly learned: LearnedSizes;
  readonly log: WorkerLog;
  readonly spec: () => ModelSpec;
  /** Null: nobody waits. */
  readonly waiting: () => Waiting | null;
  /** A grant for which there is no use (any more). */
  readonly unused: (grant: Grant) => void;
  readonly stage: (stage: 'estimating' | 'waiting' | 'loading' | 'resuming', progress: number | null, text: string, explain: string | null) => void;
}

/** Of the card and, for the whole lease, of the machine's memory. */
interface WholeBudget extends Budget {
  readonly host: HostNeed | null;
}

/** Remaining time under which a request refused by its deadline is not asked again. */
const worthAskingMs = 500;

/**
 * What a request may wait, from what its callers still wait. Somewhat less, so
 * that it is the broker's refusal with its numbers that ends them, not their
 * own clock; the broker judges deadlines a few times a second.
 */
function deadlineFor(waiting: Waiting, atUs: number): number {
  const leftMs = elapsedMs(atUs, waiting.deadlineAtUs);
  return leftMs > 2_000 ? leftMs - 400 : leftMs;
}

export class ModelRoom {
  readonly #options: RoomOptions;
  readonly #held: HeldModel;
  #estimate: Estimate | null = null;
  #lighter: Lighter | null = null;
  #request: OpenGang | null = null;
  /** The record that explains the latest wait or grant. */
  explain: string | null = null;
  /** As what each lease was granted, in the order of the cards, for a broker that was not there; none: nothing is. */
  terms: readonly LeaseTerms[] = [];
  /** What each card refused at the last load: the next request plans at least for that (B22). */
  readonly refusedBytes = new Map<string, number>();

  constructor(options: RoomOptions, held: HeldModel) {
    this.#options = options;
    this.#held = held;
  }

  /** Room for the whole model, on each of its cards: new leases (none given), or the card bytes of the parked ones that are named. */
  async forModel(leases: readonly string[], context: FirstContext, signal: AbortSignal): Promise<readonly Grant[]> {
    const { key, devices } = this.#options;
    this.#options.stage('estimating', null, `reading the size of ${key}`, null);
    this.#lighter = null;
    const whole = await this.#learned(signal);
    try {
      return await this.#forEstimate(leases, whole, context, signal);
    } catch (refusal) {
      const lighter = await this.#fewerLayers(refusal, whole, context, signal);
      if (lighter === null) throw refusal;
      this.#lighter = lighter;
      const { layers, total } = lighter;
      this.#options.log.line('info', 'the whole model can never fit: some of its layers are left to the CPU', { model: key, device: devices.join(' and '), layersOnCard: String(layers), layers: String(total) });
      return this.#forEstimate(leases, lighter.estimate, context, signal);
    }
  }

  /** What is loaded: the model as it was asked for, or with fewer of its layers on the card. */
  get spec(): ModelSpec {
    return this.#lighter?.spec ?? this.#options.spec();
  }

  /** Under which its sizes are learned. */
  get learnedKey(): string {
    return this.#lighter?.learnedKey ?? this.#options.key;
  }

  async #forEstimate(leases: readonly string[], estimate: Estimate, context: FirstContext, signal: AbortSignal): Promise<readonly Grant[]> {
    const { devices } = this.#options;
    const contexts = this.#options.spec().embedding ? [] : [context];
    const budgets = devices.map((_, index) => ({ ...this.#loadBudget(estimate, context, index), host: hostBudget(estimate, contexts, devices, index) }));
    const { grants, gang } = await this.#granted(leases, budgets, estimate, signal);
    const isNew = grants.some(({ lease }, index) => lease !== leases[index]);
    this.#noteTerms(grants, budgets, isNew ? gang : this.terms[0]?.gang);
    this.explain = grants[0]?.explain ?? this.explain;
    return grants;
  }

  #loadBudget(estimate: Estimate, context: FirstContext, index: number): Budget {
    const { devices } = this.#options;
    const device = devices[index] ?? cpuDevice;
    return loadBudget(estimateOn(estimate, devices.length, index), this.#options.spec().embedding ? null : context, device, this.refusedBytes.get(device) ?? 0);
  }

  /** It can never be there as a whole: with as many layers as what could be had holds, never fewer than the operator allows. Null: not so, or he does not. */
  async #fewerLayers(refusal: unknown, { offload }: Estimate, context: FirstContext, signal: AbortSignal): Promise<Lighter | null> {
    const { key, learned, watch, engine } = this.#options;
    const mostBytes = refusal instanceof LeaseholdError ? couldHaveBytes(refusal) : null;
    if (offload === undefined || mostBytes === null || offload.fewest >= offload.total) return null;
    const learnedKeyOf = (layers: number): string => `${key} ${String(layers)} layers`;
    const estimateWith = async (layers: number): Promise<Estimate> =>
      learned.applied(learnedKeyOf(layers), await watch.bounded(`Estimating ${key}`, engine.estimate(offload.with(layers), signal)));
    const layers = await mostLayers(offload, async (count) => askedBytes(this.#loadBudget(await estimateWith(count), context, 0)) <= mostBytes);
    return { spec: offload.with(layers), layers, total: offload.total, estimate: await estimateWith(layers), learnedKey: learnedKeyOf(layers) };
  }

  /** Room for one more context of a resident model, in place of those that it `replaces`. */
  async forContext(leases: readonly string[], context: FirstContext, replaces: readonly string[], signal: AbortSignal): Promise<void> {
    const { key, devices } = this.#options;
    const estimate = this.#lighter?.estimate ?? await this.#learned(signal);
    const kept = this.#held.slots.filter(({ name }) => !replaces.includes(name));
    const budgets = devices.map((device, index): WholeBudget => {
      const { parts, peakBytes } = contextBudget(estimateOn(estimate, devices.length, index), context, device);
      return { parts: [...droppedContexts(replaces), ...parts], peakBytes, host: hostBudget(estimate, [...kept, context], devices, index) };
    });
    for (;;) {
      const waiting = this.#options.waiting();
      if (waiting === null || signal.aborted) throw new LeaseholdError('request_cancelled', { what: `A context of ${key}` });
      try {
        const grants = await this.#open(leases, budgets, estimate, waiting, signal).granted;
        const whole = budgets.map((budget, index) => ({ ...budget, parts: truedUp(this.terms[index]?.parts ?? [], [...this.#held.goneParts, ...budget.parts]) }));
        this.#noteTerms(grants, whole, this.terms[0]?.gang);
        return;
      } catch (error) {
        await this.#brokerBack(error, signal);
      }
    }
  }

  /** What was measured on each card: the leases are trued up by that. */
  measured(partsOn: (index: number) => readonly LeasePart[]): void {
    this.terms = this.terms.map((terms, index) => ({ ...terms, parts: truedUp(terms.parts, partsOn(index)) }));
  }

  #noteTerms(grants: readonly Grant[], budgets: readonly WholeBudget[], gang: LeaseTerms['gang']): void {
    const { spec, waiting } = this.#options;
    const requestClass = waiting()?.class ?? this.terms[0]?.class ?? 'normal';
    this.terms = grants.map(({ chargedBytes, keepCopy }, index) => {
      const { parts = [], host = null } = budgets[index] ?? {};
      return {
        chargedBytes, parts, class: requestClass, policy: spec().policy, ...(gang === undefined ? {} : { gang }),
        ...(host === null ? {} : { host: { ...host, copyBytes: keepCopy === false ? 0 : host.copyBytes } }),
      };
    });
  }

  /** The request went with its broker: it is asked again when that, or another, is there. Any other error is thrown. */
  async #brokerBack(error: unknown, signal: AbortSignal): Promise<void> {
    if (this.#options.channel.open) throw error;
    this.#options.stage('waiting', null, 'the broker is gone; waiting until it is back', null);
    await this.#options.channel.reattached(signal);
  }

  /** A call joined: the open request is as urgent as the most urgent of those who wait. */
  raise(): void {
    const waiting = this.#options.waiting();
    if (waiting !== null) this.#request?.raise(waiting.class, deadlineFor(waiting, nowUs()));
  }

  async #granted(leases: readonly string[], budgets: readonly WholeBudget[], estimate: Estimate, signal: AbortSignal): Promise<{ readonly grants: readonly Grant[]; readonly gang: LeaseTerms['gang'] }> {
    for (;;) {
      const waiting = this.#options.waiting();
      if (waiting === null || signal.aborted) throw new LeaseholdError('request_cancelled', { what: `Room for ${this.#options.key}` });
      const request = this.#request = this.#open(leases, budgets, estimate, waiting, signal);
      try {
        return { grants: await request.granted, gang: request.gang };
      } catch (error) {
        if (!this.#worthAskingAgain(error, waiting)) await this.#brokerBack(error, signal);
      } finally {
        if (this.#request === request) this.#request = null;
      }
    }
  }

  /** Calls that joined later may wait longer than the request that was made for those before them. */
  #worthAskingAgain(error: unknown, asked: Waiting): boolean {
    const left = this.#options.waiting();
    return error instanceof LeaseholdError && error.code === 'deadline_passed'
      && left !== null && left.deadlineAtUs > asked.deadlineAtUs && elapsedMs(nowUs(), left.deadlineAtUs) >= worthAskingMs;
  }

  #open(leases: readonly string[], budgets: readonly WholeBudget[], estimate: Estimate, waiting: Waiting, signal: AbortSignal): OpenGang {
    const { channel, key, devices, engine, unused } = this.#options;
    const spec = this.#options.spec();
    const now = nowUs();
    const where = devices.join(' and ');
    const requests = devices.map((device, index) => {
      const { parts = [], peakBytes = 0, host = null } = budgets[index] ?? {};
      const lease = leases[index] ?? null;
      const ceilingBytes = lease === null && devices.length === 1 ? declaredCeiling(spec, { parts, peakBytes }) : null;
      return {
        model: key, device, lease, peakBytes: ceilingBytes ?? peakBytes, class: waiting.class,
        // What the lease may still count for contexts that are gone is dropped with what is asked for.
        parts: lease === null ? parts : [...this.#held.goneParts, ...parts],
        deadlineMs: deadlineFor(waiting, now), ageMs: elapsedMs(waiting.oldestAtUs, now),
        parkable: estimate.parkable, profilesFreeMemory: engine.capabilities.profilesFreeMemory,
        source: ceilingBytes === null ? estimate.source : 'declared', policy: spec.policy, ...(host === null ? {} : { host }),
      };
    });
    this.#options.stage('waiting', null, `waiting for room on ${where}`, null);
    return requestOnAll(channel, requests, {
      signal, unused,
      onWaiting: ({ position, reason, explain }) => {
        this.explain = explain ?? this.explain;
        this.#options.stage('waiting', null, `waiting for room on ${where}: ${position === 0 ? '' : `${String(position)} before it; `}${reason}`, explain);
      },
    });
  }

  /** With what has been measured since, in this process or before it. */
  async #learned(signal: AbortSignal): Promise<Estimate> {
    const estimate = this.#estimate ??= await this.#estimated(signal);
    return this.#options.learned.applied(this.#options.key, estimate);
  }

  async #estimated(signal: AbortSignal): Promise<Estimate> {
    const spec = this.#options.spec();
    const { devices, engine } = this.#options;
    if (devices.length > 1 && engine.capabilities.spread !== true) {
      throw new LeaseholdError('gang_unsupported', { model: spec.key, size: devices.length, reason: `the engine ${engine.name} cannot spread a model` });
    }
    try {
      return await this.#options.watch.bounded(`Estimating ${spec.key}`, engine.estimate(spec, signal));
    } catch (error) {
      if (spec.declaredBytes === null || !(error instanceof LeaseholdError) || error.code !== 'estimate_unknown') throw error;
      return declaredEstimate(spec.declaredBytes, devices.length);
    }
  }
}

/** The most urgent of those who wait. */
export function mostUrgent(calls: Iterable<{ readonly class: RequestClass; readonly deadlineAtUs: number; readonly arrivedAtUs: number }>): Waiting | null {
  const all = [...calls];
  const [first] = all;
  if (first === undefined) return null;
  return {
    class: all.map((call) => call.class).reduce((highest, next) => (classPolicies[next].rank > classPolicies[highest].rank ? next : highest)),
    deadlineAtUs: Math.max(...all.map((call) => call.deadlineAtUs)),
    oldestAtUs: Math.min(...all.map((call) => call.arrivedAtUs)),
  };
}
