/** Asking for samples: single flight a card, never in a tight loop. */
import { toClock } from '../clock.js';
import { emit } from '../report.js';
import type { Card, Core } from '../state.js';

/** A reading taken not before that moment is needed. Asked for at once unless one as young is already on its way. */
export function wantSample(core: Core, card: Card, notBeforeAtUs: number): void {
  if (card.kind === 'cpu' || card.lost !== null) return;
  if (card.sample !== null && card.sample.takenAtUs >= notBeforeAtUs) return;
  card.sampleWantedAtUs = Math.max(card.sampleWantedAtUs ?? 0, notBeforeAtUs);
  // One at a time: what is on its way returns first, then the younger one is asked for.
  if (card.sampleAskedAtUs === null && card.missing === null) ask(core, card);
}

/** Bytes released after the sample was taken are worth a newer one (D14). */
export function sampleNeededAtUs(card: Card): number {
  return card.releasing.size > 0 || card.returning.size > 0 ? card.lastMotionAtUs : (card.sample?.takenAtUs ?? 0);
}

/** A reading came (or failed): asks again only for a younger one that is wanted. */
export function sampleAnswered(core: Core, card: Card, takenAtUs: number | null): void {
  if (takenAtUs === null) {
    // Failed: the next tick asks again, so that a dead probe is not hammered.
    card.sampleAskedAtUs = null;
    return;
  }
  if (card.sampleAskedAtUs !== null && takenAtUs >= card.sampleAskedAtUs) card.sampleAskedAtUs = null;
  if (card.sampleWantedAtUs !== null && takenAtUs >= card.sampleWantedAtUs) card.sampleWantedAtUs = null;
  if (card.sampleWantedAtUs !== null && card.sampleAskedAtUs === null) ask(core, card);
}

/** On a tick: what is still wanted and not on its way, or asked for so long ago that the answer is lost, is asked for again. */
export function retrySample(core: Core, card: Card): void {
  if (card.sampleWantedAtUs === null || card.lost !== null) return;
  const patienceUs = core.options.limits.probeTimeoutMs * 2_000;
  if (card.sampleAskedAtUs !== null && core.attendedUs - card.sampleAskedUs < patienceUs) return;
  ask(core, card);
}

function ask(core: Core, card: Card): void {
  if (card.sampleWantedAtUs === null) return;
  card.sampleAskedAtUs = card.sampleWantedAtUs;
  card.sampleAskedUs = core.attendedUs;
  emit(core, { type: 'sample', device: card.device, notBeforeUs: toClock(core, card.sampleWantedAtUs) });
}
