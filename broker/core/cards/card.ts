/** Cards: how they come, change and go missing. */
import { inMs } from '../clock.js';
import type { CoreEvent } from '../events.js';
import { publish, count, explain } from '../report.js';
import { wantSample } from './probe.js';
import { lostDevice } from '../requests/request.js';
import { failJoined } from '../processes/process.js';
import type { Card, Core } from '../state.js';
import { noReloads } from '../thrash/reloads.js';
import { terminate } from '../processes/terminate.js';
import { onCardFound } from '../restart/unfound-cards.js';
import { refuseGang } from '../requests/waiter.js';
import { yieldingOf } from './yield.js';

type Added = Extract<CoreEvent, { type: 'card_added' }>;
type Lost = Extract<CoreEvent, { type: 'card_lost' }>;

/** A card appears, or a lost one is back, or the operator's settings for it changed. */
export function onCardAdded(core: Core, event: Added): void {
  if (event.kind === 'host') {
    onHostAdded(core, event);
    return;
  }
  const known = core.cards.get(event.device);
  if (known === undefined) {
    const card = newCard(event);
    core.cards.set(event.device, card);
    onCardFound(core, card);
  } else {
    known.name = event.name;
    known.totalBytes = event.totalBytes;
    known.reserveBytes = event.reserveBytes;
    known.confirms = event.confirms;
    known.floorBytes = event.floorBytes;
    known.yielding = yieldingOf(event, known.yielding);
    known.planEpoch++;
    // A larger card lets its processes be charged with more.
    for (const seat of known.seats.values()) core.relieved.add(seat);
    regain(core, known);
  }
  core.dirty.add(event.device);
  const card = core.cards.get(event.device);
  if (card !== undefined && card.kind !== 'cpu') wantSample(core, card, core.nowUs);
}

function regain(core: Core, card: Card): void {
  if (card.lost === null) return;
  publish(core, 'card_regained', { device: card.device, lostMs: Math.floor((core.nowUs - card.lost.sinceAtUs) / 1_000) });
  card.lost = null;
  core.timers.drop('card_lost', card.device);
  // A reading that was on its way then never came.
  card.sampleAskedAtUs = null;
}

/** The machine's memory is there from now on. Leases that are older have no share of it. */
function onHostAdded(core: Core, event: Added): void {
  if (core.host !== null && core.host.device !== event.device) {
    count(core, 'strayEvents');
    return;
  }
  const host = core.host ??= newCard(event);
  host.totalBytes = event.totalBytes;
  host.reserveBytes = event.reserveBytes;
  host.planEpoch++;
  core.dirty.add(host.device);
  wantSample(core, host, core.nowUs);
}

/** A lost card keeps its charges and grants nothing: what waits there is denied, and nothing that was there is taken to be free. */
export function onCardLost(core: Core, event: Lost): void {
  const card = core.cards.get(event.device);
  if (card === undefined || card.lost !== null) {
    count(core, 'strayEvents');
    return;
  }
  card.lost = { sinceAtUs: core.nowUs, reason: event.reason };
  core.dirty.add(card.device);
  core.timers.set('card_lost', card.device, inMs(core, core.options.limits.cardLostGraceMs));
  for (const gang of [...core.gangs.values()]) if (gang.members.has(card.device)) refuseGang(core, gang, lostDevice(core, card));
  count(core, 'cardsLost');
  publish(core, 'card_lost', { device: card.device, reason: event.reason });
  explain(core, { verdict: 'denied', text: `card ${card.device} is lost: ${event.reason}; nothing new is granted there, and what was there stays charged`, generation: '', device: card.device });
}

/** It has not come back, or has not been found: workers that are there are as good as crashed (B106). Their exits close their leases. */
export function endWorkersOn(core: Core, device: string): void {
  const card = core.cards.get(device);
  if (card !== undefined && card.lost === null) return;
  for (const generation of [...core.workers]) {
    const process = core.processes.get(generation);
    if (process === undefined || !(process.devices.includes(device) || card?.seats.has(generation) === true)) continue;
    const why = card?.lost ? `card ${device} is lost: ${card.lost.reason}` : `card ${device} is not there`;
    if (process.state === 'spawning') failJoined(core, process, why);
    terminate(core, process, 'card_lost', why);
  }
}

function newCard(event: Added): Card {
  return {
    device: event.device,
    name: event.name,
    kind: event.kind,
    totalBytes: event.totalBytes,
    reserveBytes: event.reserveBytes,
    confirms: event.confirms,
    floorBytes: event.floorBytes,
    unified: event.unified ?? false, spills: false,
    lost: null,
    charged: { lease: 0, floor: 0, residue: 0, returning: 0 },
    chargedBytes: 0, residentBytes: 0, pendingBytes: 0, attributedBytes: 0, holdBytes: 0, idleBytes: 0,
    sample: null, sameTruthCount: 0, missing: null,
    foreignBytes: null, strangersBytes: null, foreignBaseBytes: 0, strangers: [], yielding: yieldingOf(event, null),
    sampleWantedAtUs: null, sampleAskedAtUs: null, sampleAskedUs: 0,
    seats: new Map(), leases: new Set(), unsampled: new Map(),
    loading: new Set(), jobs: new Set(), wished: new Set(), releasing: new Set(), quarantined: new Set(), returning: new Map(), ending: new Set(),
    spawning: 0, closedBy: new Set(), closedSinceUs: 0, openedAtUs: 0, loadToken: null, lastMotionAtUs: 0, quietWantedUs: null,
    queue: { interactive: [], normal: [], background: [] }, queuedBy: new Map(),
    forming: null,
    planEpoch: 0,
    reloads: noReloads(),
    maxOverReserveBytes: event.reserveBytes - event.totalBytes,
  };
}
