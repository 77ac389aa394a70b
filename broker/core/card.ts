/** Cards: how they come, change and go missing. */
import type { CoreEvent } from './events.js';
import { publish, count, explain } from './report.js';
import { wantSample } from './probe.js';
import type { Card, Core } from './state.js';

type Added = Extract<CoreEvent, { type: 'card_added' }>;
type Lost = Extract<CoreEvent, { type: 'card_lost' }>;

/** A card appears, or a lost one is back, or the operator's settings for it changed. */
export function onCardAdded(core: Core, event: Added): void {
  const known = core.cards.get(event.device);
  if (known === undefined) {
    core.cards.set(event.device, newCard(event));
  } else {
    known.name = event.name;
    known.totalBytes = event.totalBytes;
    known.reserveBytes = event.reserveBytes;
    known.confirms = event.confirms;
    known.floorBytes = event.floorBytes;
    known.lost = null;
    known.planEpoch++;
    // A larger card lets its processes be charged with more.
    for (const seat of known.seats.values()) core.relieved.add(seat);
  }
  core.dirty.add(event.device);
  const card = core.cards.get(event.device);
  if (card !== undefined && card.kind !== 'cpu') wantSample(core, card, core.nowUs);
}

/** A lost card keeps its charges and grants nothing; what waits there is denied by the admission pass. */
export function onCardLost(core: Core, event: Lost): void {
  const card = core.cards.get(event.device);
  if (card === undefined) {
    count(core, 'strayEvents');
    return;
  }
  card.lost = { sinceAtUs: core.nowUs, reason: event.reason };
  core.dirty.add(card.device);
  publish(core, 'sample_lost', { device: card.device, reason: event.reason });
  explain(core, { verdict: 'denied', text: `card ${card.device} is lost: ${event.reason}; nothing new is granted there`, generation: '', device: card.device });
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
    lost: null,
    charged: { lease: 0, floor: 0, residue: 0, returning: 0 },
    chargedBytes: 0, residentBytes: 0, pendingBytes: 0, attributedBytes: 0, holdBytes: 0, idleBytes: 0,
    sample: null, sameTruthCount: 0, missing: null,
    foreignBytes: null, strangersBytes: null, foreignBaseBytes: 0,
    sampleWantedAtUs: null, sampleAskedAtUs: null, sampleAskedUs: 0,
    seats: new Map(), leases: new Set(), unsampled: new Map(),
    loading: new Set(), jobs: new Set(), wished: new Set(), releasing: new Set(), quarantined: new Set(), returning: new Map(), ending: new Set(),
    spawning: 0, closedBy: new Set(), closedSinceUs: 0, openedAtUs: 0, loadToken: null, lastMotionAtUs: 0, quietWantedUs: null,
    queue: { interactive: [], normal: [], background: [] }, queuedBy: new Map(),
    planEpoch: 0,
    maxOverReserveBytes: event.reserveBytes - event.totalBytes,
  };
}
