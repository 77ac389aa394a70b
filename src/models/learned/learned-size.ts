/**
 * What loads of a model have shown, beside what was estimated for them. A learned size raises an estimate at once; it
 * lowers it only for parts that the engine allocates up front, so that what was measured is all there will be. Pure.
 */
import type { LeasePart } from '../../../protocol/index.js';

/** All that a size depends on. */
export interface LearnedKey {
  readonly model: string;
  readonly engine: string;
  readonly versions: Readonly<Record<string, string>>;
  /** Kind and size of the card, not which one. */
  readonly card: string;
  readonly cardBytes: number | null;
  /** Of the card; null where it is not known or there is none. */
  readonly driver: string | null;
}

interface Pair {
  readonly estimatedBytes: number;
  readonly measuredBytes: number;
}

export interface LearnedPart extends Pair {
  readonly name: string;
  readonly kind: LeasePart['kind'];
  readonly upFront: boolean;
}

export interface LearnedSize {
  readonly key: LearnedKey;
  /** What people call the model: its file or reference. */
  readonly source: string;
  readonly parts: readonly LearnedPart[];
  /** One for each size of context that was opened. */
  readonly contexts: readonly (Pair & { readonly tokens: number })[];
  /** The most that was held beyond all parts: taken on first use (B11). */
  readonly grownBytes: number;
  readonly loads: number;
  readonly updatedAt: string;
}

/** The part of an estimate that sizes are learned for. */
export interface Estimated {
  readonly parts: readonly LeasePart[];
  contextBytes(tokens: number): number;
}

export interface Observation {
  readonly key: LearnedKey;
  readonly source: string;
  /** As the engine estimated it, nothing learned in it. */
  readonly estimate: Estimated;
  /** Measured, contexts among them. */
  readonly parts: readonly LeasePart[];
  readonly contexts: readonly { readonly name: string; readonly tokens: number }[];
  readonly residentBytes: number;
  readonly freshLoad: boolean;
  readonly at: string;
}

const contextsMax = 64;

/** What is known after one more look at a resident model. */
export function learn(known: LearnedSize | null, seen: Observation): LearnedSize {
  const named = new Set(seen.contexts.map(({ name }) => name));
  const measured = seen.parts.filter(({ name, bytes }) => !named.has(name) && bytes > 0);
  const parts = new Map((known?.parts ?? []).map((part) => [part.name, part]));
  for (const { name, kind, upFront, bytes } of measured) {
    const estimatedBytes = seen.estimate.parts.find((part) => part.name === name)?.bytes ?? 0;
    const before = parts.get(name)?.measuredBytes ?? 0;
    parts.set(name, { name, kind, upFront, estimatedBytes, measuredBytes: upFront ? bytes : Math.max(before, bytes) });
  }
  const beyond = seen.residentBytes - seen.parts.reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    key: seen.key, source: seen.source, parts: [...parts.values()],
    contexts: learnContexts(known?.contexts ?? [], seen),
    grownBytes: Math.max(known?.grownBytes ?? 0, beyond),
    loads: (known?.loads ?? 0) + (seen.freshLoad ? 1 : 0),
    updatedAt: seen.at,
  };
}

function learnContexts(known: LearnedSize['contexts'], { contexts, parts, estimate }: Observation): LearnedSize['contexts'] {
  const bySize = new Map(known.map((context) => [context.tokens, context]));
  for (const { name, tokens } of contexts) {
    const measuredBytes = parts.find((part) => part.name === name)?.bytes ?? 0;
    const estimatedBytes = estimate.contextBytes(tokens);
    if (measuredBytes > 0 && estimatedBytes > 0) bySize.set(tokens, { tokens, estimatedBytes, measuredBytes });
  }
  return [...bySize.values()].slice(-contextsMax);
}

/** The estimate, as it is to be asked for now. */
export function adjusted(estimate: Estimated, known: LearnedSize): Estimated {
  const parts = estimate.parts.map((part) => adjustedPart(part, known.parts.find(({ name }) => name === part.name)));
  const unforeseen = known.parts.filter(({ name }) => !estimate.parts.some((part) => part.name === name)).map(({ name, kind, upFront, measuredBytes }): LeasePart => ({ name, kind, bytes: measuredBytes, upFront }));
  const grown: readonly LeasePart[] = known.grownBytes === 0 ? [] : [{ name: 'grown', kind: 'other', bytes: known.grownBytes, upFront: false }];
  const ratio = known.contexts.reduce((most, { estimatedBytes, measuredBytes }) => Math.max(most, measuredBytes / estimatedBytes), 0);
  return {
    parts: [...parts, ...unforeseen, ...grown],
    // One factor for all sizes: what is larger never costs less (B16).
    contextBytes: (tokens) => (ratio === 0 ? estimate.contextBytes(tokens) : Math.ceil(estimate.contextBytes(tokens) * ratio)),
  };
}

function adjustedPart(part: LeasePart, learned: LearnedPart | undefined): LeasePart {
  if (learned === undefined) return part;
  // Measured for an estimate that was another: the model or its settings have changed, and it only raises.
  const lowers = part.upFront && learned.upFront && learned.estimatedBytes === part.bytes;
  return { ...part, bytes: lowers ? learned.measuredBytes : Math.max(part.bytes, learned.measuredBytes) };
}

export interface LearnedError {
  readonly source: string;
  readonly engine: string;
  readonly card: string;
  /** The context that it was with; null: none has been measured. */
  readonly contextTokens: number | null;
  /** Of everything that both an estimate and a measurement are known for, with one such context. */
  readonly estimatedBytes: number;
  readonly measuredBytes: number;
  /** 0.1: ten hundredths more was measured than estimated. */
  readonly error: number;
  readonly loads: number;
  readonly updatedAt: string;
}

/** How wrong the estimates were, one for each size of context that was opened, the smallest first: of two settings no figure is made. */
export function errorsOf({ key, source, parts, contexts, grownBytes, loads, updatedAt }: LearnedSize): readonly LearnedError[] {
  const settings = contexts.length === 0 ? [null] : [...contexts].sort((left, right) => left.tokens - right.tokens);
  return settings.map((context) => {
    const pairs: readonly Pair[] = [...parts, ...(context === null ? [] : [context]), { estimatedBytes: 0, measuredBytes: grownBytes }];
    const estimatedBytes = pairs.reduce((sum, pair) => sum + pair.estimatedBytes, 0);
    const measuredBytes = pairs.reduce((sum, pair) => sum + pair.measuredBytes, 0);
    const error = estimatedBytes === 0 ? 0 : measuredBytes / estimatedBytes - 1;
    return { source, engine: key.engine, card: key.card, contextTokens: context?.tokens ?? null, estimatedBytes, measuredBytes, error, loads, updatedAt };
  });
}
