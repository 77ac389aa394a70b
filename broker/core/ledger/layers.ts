/** How much of a model is on its card, as the name of its weights says: `weights:24/36`. */
import type { LeasePart } from '../../../protocol/index.js';

export interface Layers {
  readonly onCard: number;
  readonly total: number;
}

/** Null: all of it, or nothing is said. */
export function layersOf(parts: readonly LeasePart[]): Layers | null {
  for (const { kind, name } of parts) {
    const [, onCard, total] = (kind === 'weights' ? /^weights:(\d{1,5})\/(\d{1,5})$/.exec(name) : null) ?? [];
    if (onCard !== undefined && total !== undefined && Number(onCard) < Number(total)) return { onCard: Number(onCard), total: Number(total) };
  }
  return null;
}

/** ` with 24 of its 36 layers, the others on the CPU`, or nothing. */
export function layersText(parts: readonly LeasePart[]): string {
  const layers = layersOf(parts);
  return layers === null ? '' : ` with ${String(layers.onCard)} of its ${String(layers.total)} layers, the others on the CPU`;
}
