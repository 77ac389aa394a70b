/** Saying yes: the charge is made in the same turn as the decision. */
import { layersText } from '../ledger/layers.js';
import { numbersOf } from '../ledger/available.js';
import { inMs, msSince } from '../clock.js';
import { forgetCommands } from '../eviction/command.js';
import { chargeFloor } from '../ledger/floors.js';
import { takeShare } from '../memory/share.js';
import { dropTrim } from '../memory/trim.js';
import { considerIdle } from '../processes/idle.js';
import { setCharged } from '../ledger/ledger.js';
import { openLease, reindex, setState } from '../ledger/lease-store.js';
import { noteProgress } from '../ledger/load-progress.js';
import { attachLease } from '../processes/model.js';
import { mustCard, mustProcess } from '../must.js';
import { extendedLease, extendedParts, leaseNeedBytes, shownNeed } from '../ledger/need.js';
import { count, emit, explain, inWords, noteAnswered, publish } from '../report.js';
import type { BudgetWaiter, Card, Core, Lease } from '../state.js';

/** Grants a budget request; the caller has checked that it fits. `gangCards`: what its gang gets, card by card. */
export function grantBudget(core: Core, card: Card, waiter: BudgetWaiter, unverified: boolean, gangCards: string | null = null): void {
  const process = mustProcess(core, waiter.generation);
  const growBytes = leaseNeedBytes(core, waiter);
  const numbers = numbersOf(core, card, shownNeed(core, waiter));
  if (waiter.requestedBytes > 0) chargeFloor(core, card, waiter.generation, process.engine);
  const extended = extendedLease(core, waiter);
  const lease = extended ?? openLease(core, card, waiter);
  if (extended === null) attachLease(core, process, lease);
  else extend(lease, waiter);
  setCharged(core, lease.charge, lease.charge.wantedBytes + growBytes);
  if (lease.state === 'granted' || lease.state === 'parked') begin(core, lease);
  else if (growBytes > 0 && lease.state === 'resident') grow(core, lease);
  takeShare(core, lease, waiter);
  if (waiter.profiles && card.loading.has(lease.id)) card.loadToken = lease.id;
  reindex(core, lease);
  const id = explain(core, {
    verdict: 'granted',
    text: textOf(card, waiter, lease, growBytes, unverified) + waitedText(core, waiter) + (gangCards === null ? '' : `; with its gang: ${gangCards}`),
    generation: waiter.generation, request: waiter.request, model: waiter.model, device: card.device,
    class: waiter.class, arrivedUs: waiter.arrivedUs, numbers, unverified,
  });
  tellGranted(core, waiter, lease, id, lease.growing ? growBytes : 0);
  considerIdle(core, process);
}

/** The answer frame and the news of it. `grownBytes`: by which a model that was there already has more now. */
export function tellGranted(core: Core, asked: { readonly generation: string; readonly request: number; readonly model: string }, lease: Lease, explainId: string | null, grownBytes: number, also: readonly Lease[] = []): void {
  count(core, 'grants');
  noteAnswered(core, asked.generation, asked.request);
  emit(core, { type: 'grant', generation: asked.generation, request: asked.request, lease: lease.id, device: lease.device, chargedBytes: lease.charge.chargedBytes, keepCopy: keepCopyOf(core, lease), ...(also.length === 0 ? {} : { also: also.map(({ id, charge }) => ({ lease: id, chargedBytes: charge.chargedBytes })) }), explain: explainId });
  publish(core, 'granted', { generation: asked.generation, request: asked.request, model: asked.model, lease: lease.id, device: lease.device, chargedBytes: lease.charge.chargedBytes, grownBytes });
}

/** A growth of a settled lease is under way until it is reported. */
export function grow(core: Core, lease: Lease): void {
  lease.growing = true;
  noteProgress(core, lease);
  core.timers.set('grant_confirm', lease.id, inMs(core, core.options.limits.grantConfirmMs));
}

/** Also when it is asked for once more before it has begun: the grant before that had not arrived, and its load did not begin with it. */
function begin(core: Core, lease: Lease): void {
  const wasNeverLoaded = lease.state === 'granted' && lease.loadedUs === lease.grantedUs;
  if (wasNeverLoaded) lease.loadedUs = core.attendedUs;
  lease.grantedUs = core.attendedUs;
  noteProgress(core, lease);
  dropTrim(core, lease);
  forgetCommands(core, lease);
  lease.recallCommand = null;
  setState(core, lease, 'granted');
  core.timers.set('grant_confirm', lease.id, inMs(core, core.options.limits.grantConfirmMs));
}

function extend(lease: Lease, waiter: BudgetWaiter): void {
  lease.parts = extendedParts(lease, waiter.parts);
  lease.grantRequest = waiter.request;
  lease.class = waiter.class;
  lease.policy = waiter.policy;
  lease.exclusive = waiter.exclusive;
}

function textOf(card: Card, waiter: BudgetWaiter, lease: Lease, growBytes: number, unverified: boolean): string {
  if (card.kind === 'cpu') return `${waiter.model}: cpu, not leased`;
  const exception = waiter.exclusive ? ' without headroom (exclusive)' : '';
  const ledger = unverified ? '; by the ledger alone, unverified' : '';
  return `${waiter.model} gets ${inWords(growBytes)}${exception} on ${card.device}${layersText(lease.parts)}, ${inWords(lease.charge.chargedBytes)} charged in all${ledger}`;
}

/** Asked for as soon as the worker could: what passed before that was no wait for room. */
function waitedText(core: Core, waiter: BudgetWaiter): string {
  return waiter.told === null && msSince(core, waiter.arrivedUs) > 0 ? '; it waited for its worker and for its size to be known, not for room' : '';
}

/** Beside a card whose memory is the machine's a copy is the same bytes again; null: nobody counts that memory. */
function keepCopyOf(core: Core, lease: Lease): boolean | null {
  if (mustCard(core, lease.device).unified) return false;
  return lease.host?.keepsCopy ?? null;
}
