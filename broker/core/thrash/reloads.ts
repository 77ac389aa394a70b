/**
 * What of a card's attended time went into loading models again that had been
 * put away there to make room. A first load, a return after an idle model's
 * time-to-live and one after its own program gave it back are none of that.
 * Pure bookkeeping of one card; times are attended microseconds.
 */

export interface Reload {
  readonly model: string;
  /** From its grant to its end. */
  readonly fromUs: number;
  readonly toUs: number;
  /** What it is charged there since. */
  readonly bytes: number;
}

export interface Reloads {
  /** When each model that has not been loaded since was put away to make room; oldest first. */
  readonly putAway: Map<string, number>;
  /** In the order of their ends. */
  readonly loads: Reload[];
  /** Since when the card thrashes; null: it does not. */
  thrashingSinceUs: number | null;
}

/** A model's part in it. */
export interface Turn {
  readonly model: string;
  readonly loads: number;
  readonly loadMs: number;
  readonly bytes: number;
}

export const noReloads = (): Reloads => ({ putAway: new Map(), loads: [], thrashingSinceUs: null });

/** A model has been put away to make room. */
export function notePutAway(reloads: Reloads, model: string, nowUs: number): void {
  reloads.putAway.delete(model);
  reloads.putAway.set(model, nowUs);
}

/** A load has ended; it counts when its model was put away to make room before it began, not longer ago than the window, and not loaded since. */
export function noteLoad(reloads: Reloads, load: Reload, windowUs: number): void {
  const leftUs = reloads.putAway.get(load.model);
  // Another process was loading it all the while: nothing comes back by that.
  if (leftUs === undefined || load.fromUs < leftUs) return;
  reloads.putAway.delete(load.model);
  if (load.toUs - leftUs <= windowUs) reloads.loads.push(load);
}

/** Forgets what is older than the window: nothing is kept for longer. */
export function forgetOld(reloads: Reloads, sinceUs: number): void {
  for (const [model, leftUs] of reloads.putAway) {
    if (leftUs >= sinceUs) break;
    reloads.putAway.delete(model);
  }
  const old = reloads.loads.findIndex((load) => load.toUs > sinceUs);
  reloads.loads.splice(0, old < 0 ? reloads.loads.length : old);
}

/** The share of the window that ends now in which at least one such load went on; those that have not ended do not count yet. */
export function shareOfTime(reloads: Reloads, nowUs: number, windowUs: number): number {
  const sinceUs = nowUs - windowUs;
  let loadingUs = 0;
  let countedFromUs = nowUs;
  for (let at = reloads.loads.length - 1; at >= 0; at--) {
    const { fromUs, toUs } = reloads.loads[at] ?? { fromUs: nowUs, toUs: nowUs };
    const startUs = Math.max(sinceUs, fromUs);
    loadingUs += Math.max(0, Math.min(toUs, countedFromUs) - startUs);
    countedFromUs = Math.min(countedFromUs, startUs);
  }
  return loadingUs / windowUs;
}

/** Who takes turns, the most loading first. */
export function turnsOf(reloads: Reloads): Turn[] {
  const turns = new Map<string, Turn>();
  for (const { model, fromUs, toUs, bytes } of reloads.loads) {
    const before = turns.get(model);
    turns.set(model, { model, bytes, loads: (before?.loads ?? 0) + 1, loadMs: (before?.loadMs ?? 0) + Math.round((toUs - fromUs) / 1_000) });
  }
  return [...turns.values()].sort((a, b) => b.loadMs - a.loadMs);
}
