/** Asking the broker for a model's room: how much, how urgently, and again when those who asked first have given up. */
import { LeaseholdError, classPolicies, type LeasePart, type LeaseTerms, type ModelSpec, type RequestClass } from '../../protocol/index.js';
import { contextBudget, declaredEstimate, droppedContexts, loadBudget, truedUp, type Budget } from './budget.js';
import { elapsedMs, nowUs } from './clock.js';
import type { ControlChannel } from './control.js';
import type { FirstContext } from './door-types.js';
import type { EngineWatch } from './engine-watch.js';
import type { Engine, Estimate } from './engine.js';
import type { HeldModel } from './held-model.js';
import { requestBudget, type Grant, type OpenRequest } from './lease-requests.js';

/** What the calls that wait for the model want of a request made for them. */
export interface Waiting {
  readonly class: RequestClass;
  readonly deadlineAtUs: number;
  readonly oldestAtUs: number;
}

export interface RoomOptions {
  readonly key: string;
  readonly engine: Engine;
  readonly device: string;
  readonly channel: ControlChannel;
  readonly watch: EngineWatch;
  readonly spec: () => ModelSpec;
  /** Null: nobody waits. */
  readonly waiting: () => Waiting | null;
  readonly stage: (stage: 'estimating' | 'waiting' | 'loading' | 'resuming', progress: number | null, text: string, explain: string | null) => void;
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
  #request: OpenRequest | null = null;
  /** The record that explains the latest wait or grant. */
  explain: string | null = null;
  /** As what the lease was granted, for a broker that was not there; null: nothing is. */
  terms: LeaseTerms | null = null;
  /** What a card refused at the last load: the next request plans at least for that (B22). */
  refusedBytes = 0;

  constructor(options: RoomOptions, held: HeldModel) {
    this.#options = options;
    this.#held = held;
  }

  /** Room for the whole model: a new lease, or the card bytes of the parked one that `lease` names. */
  async forModel(lease: string | null, context: FirstContext, signal: AbortSignal): Promise<Grant> {
    const { key, device } = this.#options;
    this.#options.stage('estimating', null, `reading the size of ${key}`, null);
    const estimate = this.#estimate ??= await this.#estimated(signal);
    const budget = loadBudget(estimate, this.#options.spec().embedding ? null : context, device, this.refusedBytes);
    const grant = await this.#granted(lease, budget, estimate, signal);
    this.#noteTerms(budget.parts, grant.chargedBytes);
    this.explain = grant.explain ?? this.explain;
    return grant;
  }

  /** Room for one more context of a resident model, in place of those that it `replaces`. */
  async forContext(lease: string, context: FirstContext, replaces: readonly string[], signal: AbortSignal): Promise<void> {
    const { key, device } = this.#options;
    const estimate = this.#estimate ??= await this.#estimated(signal);
    const { parts, peakBytes } = contextBudget(estimate, context, device);
    const budget = { parts: [...droppedContexts(replaces), ...parts], peakBytes };
    for (;;) {
      const waiting = this.#options.waiting();
      if (waiting === null || signal.aborted) throw new LeaseholdError('request_cancelled', { what: `A context of ${key}` });
      try {
        const grant = await this.#open(lease, budget, estimate, waiting, signal).granted;
        this.#noteTerms(truedUp(this.terms?.parts ?? [], [...this.#held.goneParts, ...budget.parts]), grant.chargedBytes);
        return;
      } catch (error) {
        await this.#brokerBack(error, signal);
      }
    }
  }

  /** What was measured of it: the lease is trued up by that. */
  measured(parts: readonly LeasePart[]): void {
    if (this.terms !== null) this.terms = { ...this.terms, parts: truedUp(this.terms.parts, parts) };
  }

  #noteTerms(parts: readonly LeasePart[], chargedBytes: number): void {
    this.terms = { chargedBytes, parts, class: this.#options.waiting()?.class ?? this.terms?.class ?? 'normal', policy: this.#options.spec().policy };
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

  async #granted(lease: string | null, budget: Budget, estimate: Estimate, signal: AbortSignal): Promise<Grant> {
    for (;;) {
      const waiting = this.#options.waiting();
      if (waiting === null || signal.aborted) throw new LeaseholdError('request_cancelled', { what: `Room for ${this.#options.key}` });
      const request = this.#request = this.#open(lease, budget, estimate, waiting, signal);
      try {
        return await request.granted;
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

  #open(lease: string | null, budget: Budget, estimate: Estimate, waiting: Waiting, signal: AbortSignal): OpenRequest {
    const { channel, key, device, engine } = this.#options;
    const now = nowUs();
    // What the lease may still count for contexts that are gone is dropped with what is asked for.
    const parts = lease === null ? budget.parts : [...this.#held.goneParts, ...budget.parts];
    this.#options.stage('waiting', null, `waiting for room on ${device}`, null);
    return requestBudget(channel, {
      model: key, device, lease, parts, peakBytes: budget.peakBytes, class: waiting.class,
      deadlineMs: deadlineFor(waiting, now), ageMs: elapsedMs(waiting.oldestAtUs, now),
      parkable: estimate.parkable, profilesFreeMemory: engine.capabilities.profilesFreeMemory,
      source: estimate.source, policy: this.#options.spec().policy,
    }, {
      signal,
      onWaiting: ({ position, reason, explain }) => {
        this.explain = explain ?? this.explain;
        this.#options.stage('waiting', null, `waiting for room on ${device}: ${position === 0 ? '' : `${String(position)} before it; `}${reason}`, explain);
      },
    });
  }

  async #estimated(signal: AbortSignal): Promise<Estimate> {
    const spec = this.#options.spec();
    try {
      return await this.#options.watch.bounded(`Estimating ${spec.key}`, this.#options.engine.estimate(spec, signal));
    } catch (error) {
      if (spec.declaredBytes === null || !(error instanceof LeaseholdError) || error.code !== 'estimate_unknown') throw error;
      return declaredEstimate(spec.declaredBytes);
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
