/** What a load and a further context ask for, and what they turned out to hold, as lease parts. Pure. */
import { LeaseholdError, type HostNeed, type LeasePart, type ModelSpec } from '../../protocol/index.js';
import type { FirstContext } from './door-types.js';
import type { CardEstimate, CardFigures, Estimate, HostEstimate, LoadedContext, LoadedModel } from './engine.js';

/** The pseudo-card of engines that take no card bytes (D18). */
export const cpuDevice = 'CPU-0';

export interface Budget {
  readonly parts: readonly LeasePart[];
  readonly peakBytes: number;
}

/** The operator’s word where the engine has none (B20): all of it, contexts included, in one part; on several cards in even shares. */
export function declaredEstimate(declaredBytes: number, cards: number): Estimate {
  const on = (bytes: number): CardEstimate => ({ parts: [{ name: 'declared', kind: 'other', bytes, upFront: false }], contextBytes: () => 0, peakBytes: 0 });
  const shares = Array.from({ length: cards }, () => on(Math.ceil(declaredBytes / cards)));
  return { ...on(declaredBytes), ...(cards > 1 ? { cards: shares } : {}), source: 'declared', parkable: false };
}

/**
 * A model that its operator says may do without the headroom, and whose size they have declared, asks for that size: it
 * counts as declared while the engine's estimate is within it. Null: it is asked for as it is estimated.
 */
export function declaredCeiling({ policy, declaredBytes }: Pick<ModelSpec, 'policy' | 'declaredBytes'>, { parts, peakBytes }: Budget): number | null {
  if (!policy.exclusive || declaredBytes === null) return null;
  return Math.max(peakBytes, parts.reduce((sum, { bytes }) => sum + bytes, 0)) <= declaredBytes ? declaredBytes : null;
}

/** What counts on the card of that place among those that the process sees. An engine that says nothing of it has not spread the model. */
export function estimateOn(estimate: Estimate, cards: number, index: number): CardEstimate {
  return cards === 1 ? estimate : onCard(estimate.cards, cards, index);
}

function figuresOn(model: LoadedModel, cards: number, index: number): CardFigures {
  return cards === 1 ? model : onCard(model.cards, cards, index);
}

function contextBytesOn(context: LoadedContext, cards: number, index: number): number {
  return cards === 1 ? context.measuredBytes : onCard(context.measuredBytesByCard, cards, index);
}

function onCard<T>(given: readonly T[] | undefined, cards: number, index: number): T {
  const found = given?.[index];
  if (found === undefined || given?.length !== cards) throw new LeaseholdError('gang_unsupported', { size: cards, reason: 'the engine does not say what it needs on each card' });
  return found;
}

/** Weights, compute and the first context (null: the model has none), as one request. On the pseudo-card every byte is host RAM: 0. */
export function loadBudget(estimate: CardEstimate, context: FirstContext | null, device: string, peakBytesMin: number): Budget {
  const parts = context === null ? estimate.parts : [...estimate.parts, contextPart(estimate, context)];
  const checked = parts.map((part) => onDevice(part, device));
  const peakBytes = device === cpuDevice ? 0 : Math.max(checkedBytes('peakBytes', estimate.peakBytes), peakBytesMin);
  return { parts: checked, peakBytes };
}

export function contextBudget(estimate: CardEstimate, context: FirstContext, device: string): Budget {
  return { parts: [onDevice(contextPart(estimate, context), device)], peakBytes: 0 };
}

/** Contexts that are, or are to be, gone: parts of 0 bytes, so that the lease drops them. */
export function droppedContexts(names: Iterable<string>): LeasePart[] {
  return [...names].map((name) => ({ name, kind: 'context', bytes: 0, upFront: true }));
}

/** What the whole lease takes of the machine's memory with these contexts, of several cards each an even share; null: nothing to speak of. */
export function hostBudget(estimate: Estimate, contexts: readonly Pick<FirstContext, 'tokens'>[], devices: readonly string[], index: number): HostNeed | null {
  const host = estimate.host ?? (devices[0] === cpuDevice ? allOnHost(estimate) : null);
  if (host === null) return null;
  const on = (field: string, bytes: number): number => evenShare(checkedBytes(`host.${field}`, bytes), devices.length, index);
  const neededBytes = contexts.reduce((sum, { tokens }) => sum + host.contextBytes(tokens), host.bytes);
  return {
    neededBytes: on('neededBytes', neededBytes), copyBytes: on('copyBytes', host.copyBytes),
    peakBytes: on('peakBytes', host.peakBytes), parkPeakBytes: host.parkPeakBytes === null ? null : on('parkPeakBytes', host.parkPeakBytes),
  };
}

/** What is left over of whole numbers goes to the first. */
export function evenShare(bytes: number, count: number, index: number): number {
  return Math.floor(bytes / count) + (index < bytes % count ? 1 : 0);
}

function allOnHost(estimate: Estimate): HostEstimate {
  return {
    bytes: estimate.parts.reduce((sum, part) => sum + part.bytes, 0), contextBytes: (tokens) => estimate.contextBytes(tokens),
    copyBytes: 0, peakBytes: estimate.peakBytes, parkPeakBytes: null,
  };
}

/** What the engine measured on one of the cards: the model’s own parts and each open context. */
export function measuredParts(model: LoadedModel, contexts: Iterable<LoadedContext>, devices: readonly string[], index: number): LeasePart[] {
  const open = [...contexts].map((context): LeasePart => ({ name: context.name, kind: 'context', bytes: contextBytesOn(context, devices.length, index), upFront: true }));
  return [...figuresOn(model, devices.length, index).measuredParts, ...open].map((part) => onDevice(part, devices[index] ?? cpuDevice));
}

/** A model’s bytes on one of its cards now; none on the pseudo-card. */
export function cardBytes(model: LoadedModel | null, devices: readonly string[], index: number): number {
  return model === null || devices[index] === cpuDevice ? 0 : checkedBytes('residentBytes', figuresOn(model, devices.length, index).residentBytes());
}

/** The parts of a lease once some have been measured: one taken up front is as large as measured, any other at least as large as it was asked for (D11). */
export function truedUp(parts: readonly LeasePart[], measured: readonly LeasePart[]): readonly LeasePart[] {
  const byName = new Map(parts.map((part) => [part.name, part]));
  for (const part of measured) {
    const bytes = part.upFront ? part.bytes : Math.max(byName.get(part.name)?.bytes ?? 0, part.bytes);
    if (bytes === 0) byName.delete(part.name);
    else byName.set(part.name, { ...part, bytes });
  }
  return [...byName.values()];
}

function contextPart(estimate: CardEstimate, context: FirstContext): LeasePart {
  return { name: context.name, kind: 'context', bytes: estimate.contextBytes(context.tokens), upFront: true };
}

function onDevice(part: LeasePart, device: string): LeasePart {
  return { ...part, bytes: device === cpuDevice ? 0 : checkedBytes(part.name, part.bytes) };
}

function checkedBytes(field: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw new LeaseholdError('bytes_invalid', { field, value, minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
  return value;
}
