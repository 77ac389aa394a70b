/** One model inside a process: what it truly holds, who uses it, and the door. */
import type { Effect } from '../../../broker/core/effects.js';
import type { LeasePart, LeaseTerms, RequestClass, ResidencyState } from '../../../protocol/index.js';
import type { Call, CallOutcome } from './context.js';
import type { ModelKnobs } from './knobs.js';
import type { Timer } from './scheduler.js';

export type Grant = Extract<Effect, { type: 'grant' }>;

/** A request to the broker that is open for this model. One at a time (D2). */
export interface Asking {
  /** Null: there was no broker to ask, or the one that was asked is gone. */
  request: number | null;
  readonly kind: 'load' | 'context' | 'switch' | 'resize';
  class: RequestClass;
  deadlineUs: number;
  /** The call that a context or a resize is for. */
  readonly call: Call | null;
  /** What it is asked for beside what is there; a load's are those of its model. */
  readonly parts: readonly LeasePart[];
  readonly sinceUs: number;
  /** Its age counts: it was asked before, over a connection that is lost. */
  isAgain: boolean;
}

/** A door shut by a command: calls inside end, few older ones may still begin (D20). */
export interface Door {
  /** Null: the broker that gave it is gone. */
  command: number | null;
  readonly target: 'host' | 'none' | 'device';
  readonly bytes: number | null;
  readonly waiterSinceUs: number | null;
  batchLeft: number;
  begun: boolean;
  expiry: Timer | null;
}

export interface HostedModel {
  readonly spec: ModelKnobs;
  state: ResidencyState;
  lease: string | null;
  chargedBytes: number;
  /** Truly on the card for this model. */
  takenBytes: number;
  hostBytes: number;
  /** Measured parts as last reported; declared ones before. */
  parts: readonly LeasePart[];
  readonly running: Set<Call>;
  readonly queue: Call[];
  door: Door | null;
  asking: Asking | null;
  /** Given and not yet begun. */
  granted: Grant | null;
  class: RequestClass;
  /** The load has been confirmed to the broker. */
  begun: boolean;
  /** Its load goes no further, though its process lives. */
  hangs: boolean;
  /** Bytes that a lie left on the card; free only at the exit. */
  leakedBytes: number;
  contexts: number;
}

export function hostedModel(spec: ModelKnobs): HostedModel {
  return {
    spec, state: 'absent', lease: null, chargedBytes: 0, takenBytes: 0, hostBytes: 0, parts: spec.parts, running: new Set(),
    queue: [], door: null, asking: null, granted: null, class: spec.class, begun: false, hangs: false, leakedBytes: 0, contexts: 1,
  };
}

export function sumBytes(parts: readonly LeasePart[]): number {
  let sum = 0;
  for (const part of parts) sum += part.bytes;
  return sum;
}

/** The bytes stay on the card in nobody's name until the process ends. */
export function leak(model: HostedModel, bytes: number): void {
  model.leakedBytes += bytes;
  model.takenBytes -= bytes;
}

export function forget(model: HostedModel): void {
  model.state = 'absent';
  model.lease = null;
  model.chargedBytes = 0;
  model.hostBytes = 0;
  model.parts = model.spec.parts;
  model.begun = false;
  model.hangs = false;
  model.granted = null;
  model.contexts = 1;
}

export function isOlderThanWaiter(model: HostedModel, call: Call): boolean {
  const { door } = model;
  return door !== null && !door.begun && door.waiterSinceUs !== null && call.arrivedAtUs < door.waiterSinceUs;
}

/** Calls in the queue that may still begin behind the shut door. */
export function hasOlderCalls(model: HostedModel): boolean {
  return model.door !== null && model.door.batchLeft > 0 && model.queue.some((call) => isOlderThanWaiter(model, call));
}

export function endAllCalls(model: HostedModel, outcome: CallOutcome): void {
  const calls = [...model.running, ...model.queue.splice(0)];
  model.running.clear();
  for (const call of calls) tellCaller(call, outcome);
}

export function tellCaller(call: Call, outcome: CallOutcome): void {
  const { onEnd } = call;
  call.onEnd = null;
  onEnd?.(outcome);
}

const ranks = { interactive: 2, normal: 1, background: 0 };

export function higherClass(left: RequestClass, right: RequestClass): RequestClass {
  return ranks[left] >= ranks[right] ? left : right;
}

/** As what the broker has it, by the process's own book: what was asked, trued up by what was measured. */
export function termsOf({ spec, state, parts, chargedBytes, class: wanted }: HostedModel): LeaseTerms {
  const isMeasured = state !== 'loading' && state !== 'resuming';
  const declared = spec.parts.filter((part) => !parts.some(({ name }) => name === part.name));
  const known = isMeasured ? parts.map((part) => largerOf(part, spec.parts.find(({ name }) => name === part.name))) : [...parts, ...declared];
  const policy = { ttlMs: spec.ttlMs, pinned: spec.pinned, exclusive: false };
  return { chargedBytes: isMeasured ? Math.ceil((sumBytes(known) * 11) / 10) : chargedBytes, parts: known, class: wanted, policy };
}

/** A part that grows with use is charged as declared until it is more. */
function largerOf(part: LeasePart, declared: LeasePart | undefined): LeasePart {
  return part.upFront || declared === undefined ? part : { ...part, bytes: Math.max(part.bytes, declared.bytes) };
}
