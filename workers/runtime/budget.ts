/** What a load and a further context ask for, and what they turned out to hold, as lease parts. Pure. */
import { LeaseholdError, type LeasePart } from '../../protocol/index.js';
import type { FirstContext } from './door-types.js';
import type { Estimate, LoadedContext, LoadedModel } from './engine.js';

/** The pseudo-card of engines that take no card bytes (D18). */
export const cpuDevice = 'CPU-0';

export interface Budget {
  readonly parts: readonly LeasePart[];
  readonly peakBytes: number;
}

/** The operator’s word where the engine has none (B20): all of it, contexts included, in one part. */
export function declaredEstimate(declaredBytes: number): Estimate {
  return {
    parts: [{ name: 'declared', kind: 'other', bytes: declaredBytes, upFront: false }],
    contextBytes: () => 0,
    peakBytes: 0,
    source: 'declared',
    parkable: false,
  };
}

/** Weights, compute and the first context (null: the model has none), as one request. On the pseudo-card every byte is host RAM: 0. */
export function loadBudget(estimate: Estimate, context: FirstContext | null, device: string, peakBytesMin: number): Budget {
  const parts = context === null ? estimate.parts : [...estimate.parts, contextPart(estimate, context)];
  const checked = parts.map((part) => onDevice(part, device));
  const peakBytes = device === cpuDevice ? 0 : Math.max(checkedBytes('peakBytes', estimate.peakBytes), peakBytesMin);
  return { parts: checked, peakBytes };
}

export function contextBudget(estimate: Estimate, context: FirstContext, device: string): Budget {
  return { parts: [onDevice(contextPart(estimate, context), device)], peakBytes: 0 };
}

/** Contexts that are, or are to be, gone: parts of 0 bytes, so that the lease drops them. */
export function droppedContexts(names: Iterable<string>): LeasePart[] {
  return [...names].map((name) => ({ name, kind: 'context', bytes: 0, upFront: true }));
}

/** What the engine measured: the model’s own parts and each open context. */
export function measuredParts(model: LoadedModel, contexts: Iterable<LoadedContext>, device: string): LeasePart[] {
  const open = [...contexts].map((context): LeasePart => ({ name: context.name, kind: 'context', bytes: context.measuredBytes, upFront: true }));
  return [...model.measuredParts, ...open].map((part) => onDevice(part, device));
}

/** Card bytes of a model now; none on the pseudo-card. */
export function cardBytes(model: LoadedModel | null, device: string): number {
  return model === null || device === cpuDevice ? 0 : checkedBytes('residentBytes', model.residentBytes());
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

function contextPart(estimate: Estimate, context: FirstContext): LeasePart {
  return { name: context.name, kind: 'context', bytes: estimate.contextBytes(context.tokens), upFront: true };
}

function onDevice(part: LeasePart, device: string): LeasePart {
  return { ...part, bytes: device === cpuDevice ? 0 : checkedBytes(part.name, part.bytes) };
}

function checkedBytes(field: string, value: number): number {
  if (!Number.isSafeInteger(value) || value < 0) throw new LeaseholdError('bytes_invalid', { field, value, minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
  return value;
}
