/**
 * A card thrashes when more than a share of its time goes into loading models
 * again that were put away there to make room for each other. It is named when
 * it begins and when it ends; between two shares nothing changes, so that it is
 * not named anew with every load. Judged on each look at the clock.
 */
import { durationText } from '../../../protocol/index.js';
import { msSince } from '../clock.js';
import { capacityBytes } from '../ledger/need.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Lease, Release } from '../state.js';
import type { ThrashView } from '../view.js';
import { forgetOld, noteLoad, notePutAway, shareOfTime, turnsOf, type Turn } from './reloads.js';

/** Models told by name; records are filed under so many. */
const toldMax = 8;

/** Bytes of a release have been seen gone; counts if it was all of a model, for a request's sake. */
export function noteRelease(core: Core, card: Card, lease: Lease, { cause, then }: Release): void {
  if (cause === 'plan' && then !== 'resident') notePutAway(card.reloads, lease.model, core.attendedUs);
}

/** A lease has been loaded, since its grant. */
export function noteLoaded(core: Core, card: Card, lease: Lease): void {
  noteLoad(card.reloads, { model: lease.model, fromUs: lease.grantedUs, toUs: core.attendedUs, bytes: lease.charge.chargedBytes }, windowUs(core));
}

/** The clock has been looked at. */
export function watchThrash(core: Core, card: Card): void {
  const { reloads } = card;
  if (reloads.thrashingSinceUs === null && reloads.loads.length === 0 && reloads.putAway.size === 0) return;
  forgetOld(reloads, core.attendedUs - windowUs(core));
  const { thrashBeginsPercent, thrashEndsPercent } = core.options.limits;
  const share = shareOfTime(reloads, core.attendedUs, windowUs(core));
  if (reloads.thrashingSinceUs === null && share * 100 > thrashBeginsPercent) begin(core, card);
  else if (reloads.thrashingSinceUs !== null && share * 100 < thrashEndsPercent) end(core, card, reloads.thrashingSinceUs);
}

function windowUs(core: Core): number {
  return core.options.limits.thrashWindowMs * 1_000;
}

function begin(core: Core, card: Card): void {
  card.reloads.thrashingSinceUs = core.attendedUs;
  count(core, 'thrashes');
  const view = thrashView(core, card);
  if (view === null) return;
  const { models, shareOfTime: share, windowMs, neededBytes, capacityBytes: roomBytes } = view;
  const said = models.slice(0, toldMax).map(turnText).join(', ');
  publish(core, 'thrashing', { device: card.device, models: said, shareOfTime: share, windowMs, neededBytes, capacityBytes: roomBytes });
  const lackingBytes = neededBytes - roomBytes;
  const lack = lackingBytes > 0 ? `; ${inWords(lackingBytes)} are lacking for all of them to stay` : '';
  const text = `${card.device} thrashes: ${(share * 100).toFixed(0)} % of the last ${durationText(windowMs)} went into loading again what had been put away for each other: ${said}${lack}`;
  for (const { model } of models.slice(0, toldMax)) explain(core, { verdict: 'thrashing', text, generation: '', model, device: card.device });
}

function end(core: Core, card: Card, sinceUs: number): void {
  card.reloads.thrashingSinceUs = null;
  publish(core, 'thrash_ended', { device: card.device, thrashedMs: msSince(core, sinceUs) });
}

function turnText({ model, loads, loadMs }: ThrashView['models'][number]): string {
  return `${model} (${loads === 1 ? 'once' : `${String(loads)} times`}, ${durationText(loadMs)})`;
}

/** Which models take turns, and what would have to fit so that they need not; null: the card does not thrash. */
export function thrashView(core: Core, card: Card): ThrashView | null {
  const { reloads } = card;
  if (reloads.thrashingSinceUs === null) return null;
  const turns = turnsOf(reloads);
  return {
    sinceMs: msSince(core, reloads.thrashingSinceUs),
    shareOfTime: Number(shareOfTime(reloads, core.attendedUs, windowUs(core)).toFixed(2)),
    windowMs: core.options.limits.thrashWindowMs,
    models: turns.map(({ model, loads, loadMs }) => ({ model, loads, loadMs })),
    neededBytes: neededBytes(core, card, turns), capacityBytes: capacityBytes(card),
  };
}

/** All who take turns at once, beside everything else that is charged there now and what strangers have. */
function neededBytes(core: Core, card: Card, turns: readonly Turn[]): number {
  const taking = new Set(turns.map(({ model }) => model));
  let otherBytes = card.chargedBytes + (card.foreignBytes ?? 0);
  for (const id of card.leases) {
    const lease = core.leases.get(id);
    if (lease !== undefined && taking.has(lease.model)) otherBytes -= lease.charge.chargedBytes;
  }
  return turns.reduce((sum, { bytes }) => sum + bytes, otherBytes);
}
