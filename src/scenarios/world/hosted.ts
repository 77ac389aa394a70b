/** One model inside a process: what it truly holds on each of its cards, who uses it, and the door. */
import type { HostNeed, LeasePart, LeaseTerms, RequestClass, ResidencyState } from '../../../protocol/index.js';
import type { Call, CallOutcome, HeldState } from './context.js';
import type { ModelKnobs } from './knobs.js';
import type { Timer } from './scheduler.js';

/** Requests to the broker that are open for this model: one a card, asked together. One such set at a time (D2). */
export interface Asking {
  readonly kind: 'load' | 'context' | 'switch' | 'resize';
  /** By request: the card that it is for. None: there was no broker to ask, or the one that was asked is gone. */
  readonly requests: Map<number, Slice>;
  /** What has been granted so far; nothing begins before all is. */
  readonly granted: Map<Slice, Granted>;
  /** What the gang is called; null: it is one card. */
  gang: string | null;
  class: RequestClass;
  deadlineUs: number;
  /** The call that a context or a resize is for. */
  readonly call: Call | null;
  /** What it is asked for beside what is there; a load's are those of its model. */
  readonly parts: ReadonlyMap<Slice, readonly LeasePart[]>;
  readonly sinceUs: number;
  /** Its age counts: it was asked before, over a connection that is lost. */
  isAgain: boolean;
}

export interface Granted {
  readonly lease: string;
  readonly chargedBytes: number;
  readonly keepCopy: boolean | null;
}

/** A door shut by a command: calls inside end, few older ones may still begin (D20). */
export interface Door {
  /** A command for each lease of the model; all of it moves. None: the broker that gave them is gone. */
  readonly commands: Map<string, number>;
  readonly target: 'host' | 'none' | 'device';
  readonly bytes: number | null;
  readonly waiterSinceUs: number | null;
  batchLeft: number;
  begun: boolean;
  expiry: Timer | null;
}

/** What a model has on one card. */
export interface Slice {
  readonly device: string;
  /** Of every part so much is here; the shares of all slices are 1. */
  readonly share: number;
  lease: string | null;
  chargedBytes: number;
  /** Truly on the card for this model. */
  takenBytes: number;
  /** Measured parts as last reported; declared ones before. */
  parts: readonly LeasePart[];
  /** Bytes that a lie left on the card; free only at the exit. */
  leakedBytes: number;
}

export interface HostedModel {
  readonly spec: ModelKnobs;
  readonly slices: readonly Slice[];
  /** What its leases were asked for as, together; null: it is one card. */
  gang: { readonly gang: string; readonly size: number } | null;
  state: ResidencyState;
  /** Of a copy in the machine's memory; each card has its share of it. */
  hostBytes: number;
  /** Truly taken there for this model. */
  memoryBytes: number;
  /** As its grants said; true where memory is not leased. */
  keepCopy: boolean;
  readonly running: Set<Call>;
  readonly queue: Call[];
  door: Door | null;
  asking: Asking | null;
  /** Given and not yet begun. */
  granted: Asking | null;
  class: RequestClass;
  /** The load has been confirmed to the broker. */
  begun: boolean;
  /** Its load goes no further, though its process lives. */
  hangs: boolean;
  contexts: number;
}

export function hostedModel(spec: ModelKnobs, devices: readonly string[]): HostedModel {
  return {
    spec, state: 'absent', gang: null, hostBytes: 0, memoryBytes: 0, keepCopy: true, running: new Set(), queue: [], door: null, asking: null, granted: null, class: spec.class, begun: false, hangs: false, contexts: 1,
    slices: devices.map((device, index) => {
      const share = devices.length === 1 ? 1 : (spec.shares[index] ?? 0);
      return { device, share, lease: null, chargedBytes: 0, takenBytes: 0, parts: shareOf(spec.parts, share), leakedBytes: 0 };
    }),
  };
}

/** Parts as a card with this share has them. */
export function shareOf(parts: readonly LeasePart[], share: number): readonly LeasePart[] {
  return share === 1 ? parts : parts.map((part) => ({ ...part, bytes: Math.floor(part.bytes * share) }));
}

export function sumBytes(parts: readonly LeasePart[]): number {
  let sum = 0;
  for (const part of parts) sum += part.bytes;
  return sum;
}

/** A card's share of what the whole model has. */
export function bytesOn(bytes: number, { share }: Slice): number {
  return Math.ceil(bytes * share);
}

export function needOn({ neededBytes, copyBytes, peakBytes, parkPeakBytes }: HostNeed, slice: Slice): HostNeed {
  const on = (bytes: number): number => bytesOn(bytes, slice);
  return { neededBytes: on(neededBytes), copyBytes: on(copyBytes), peakBytes: on(peakBytes), parkPeakBytes: parkPeakBytes === null ? null : on(parkPeakBytes) };
}

/** On all of its cards together. */
export function takenBytes(model: HostedModel): number {
  return model.slices.reduce((sum, slice) => sum + slice.takenBytes, 0);
}

/** It has its lease; of several all. */
export function isLeased(model: HostedModel): boolean {
  return model.slices.every((slice) => slice.lease !== null);
}

/** The lease of its first card: names one grant among those before and after. */
export function leadLease(model: HostedModel): string | null {
  return model.slices[0]?.lease ?? null;
}

/** The bytes stay on the card in nobody's name until the process ends. */
export function leak(slice: Slice, bytes: number): void {
  slice.leakedBytes += bytes;
  slice.takenBytes -= bytes;
}

export function forget(model: HostedModel): void {
  model.state = 'absent';
  model.gang = null;
  model.hostBytes = 0;
  model.begun = false;
  model.hangs = false;
  model.granted = null;
  model.contexts = 1;
  for (const slice of model.slices) {
    slice.lease = null;
    slice.chargedBytes = 0;
    slice.parts = shareOf(model.spec.parts, slice.share);
  }
}

export function isOlderThanWaiter(model: HostedModel, call: Call): boolean {
  const { door } = model;
  return door !== null && !door.begun && door.waiterSinceUs !== null && call.arrivedAtUs < door.waiterSinceUs;
}

/** Calls in the queue that may still begin behind the shut door. */
export function hasOlderCalls(model: HostedModel): boolean {
  return model.door !== null && model.door.batchLeft > 0 && model.queue.some((call) => isOlderThanWaiter(model, call));
}

/** `code`: of the error that they end with, where the broker gave one. */
export function endAllCalls(model: HostedModel, outcome: CallOutcome, code: string | null = null): void {
  const calls = [...model.running, ...model.queue.splice(0)];
  model.running.clear();
  for (const call of calls) tellCaller(call, outcome, code);
}

export function tellCaller(call: Call, outcome: CallOutcome, code: string | null = null): void {
  const { onEnd } = call;
  call.onEnd = null;
  onEnd?.(outcome, code);
}

const ranks = { interactive: 2, normal: 1, background: 0 };

export function higherClass(left: RequestClass, right: RequestClass): RequestClass {
  return ranks[left] >= ranks[right] ? left : right;
}

export function stateOf(model: HostedModel, slice: Slice & { readonly lease: string }): HeldState {
  return {
    model: model.spec.key, lease: slice.lease, device: slice.device, state: model.state, residentBytes: slice.takenBytes,
    hostBytes: bytesOn(model.hostBytes, slice), inFlight: model.running.size, parkable: model.spec.parkable, terms: termsOf(model, slice),
  };
}

/** As what the broker has it on one card, by the process's own book: what was asked, trued up by what was measured. */
export function termsOf({ spec, state, gang, keepCopy, class: wanted }: HostedModel, slice: Slice): LeaseTerms {
  const { share, parts, chargedBytes } = slice;
  const isMeasured = state !== 'loading' && state !== 'resuming';
  const asked = shareOf(spec.parts, share);
  const declared = asked.filter((part) => !parts.some(({ name }) => name === part.name));
  const known = isMeasured ? parts.map((part) => largerOf(part, asked.find(({ name }) => name === part.name))) : [...parts, ...declared];
  const policy = { ttlMs: spec.ttlMs, pinned: spec.pinned, exclusive: false };
  const host = spec.memory === null ? {} : { host: needOn({ ...spec.memory.asked, copyBytes: keepCopy ? spec.memory.asked.copyBytes : 0 }, slice) };
  return { chargedBytes: isMeasured ? Math.ceil((sumBytes(known) * 11) / 10) : chargedBytes, parts: known, class: wanted, policy, ...(gang === null ? {} : { gang }), ...host };
}

/** A part that grows with use is charged as declared until it is more. */
function largerOf(part: LeasePart, declared: LeasePart | undefined): LeasePart {
  return part.upFront || declared === undefined ? part : { ...part, bytes: Math.max(part.bytes, declared.bytes) };
}
