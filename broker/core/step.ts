/** One event in, its effects out. Whatever the cause, requests are decided at the end of the step, for the cards it changed. */
import { settle, tellFresh } from './requests/admission.js';
import { onModelsAnnounced } from './restart/announce.js';
import { onCommandAnswered } from './eviction/answers.js';
import { onCardAdded, onCardLost } from './cards/card.js';
import { believable } from './ledger/claims.js';
import { advance } from './clock.js';
import type { Effect } from './effects.js';
import type { CoreEvent } from './events.js';
import { assignCards } from './gangs/gang.js';
import { settleGangs } from './gangs/settle.js';
import { wakeHostWaiters } from './memory/admission.js';
import { checkTouched } from './invariants.js';
import { onLeaseReleased, onLoadBegun, onRecallAnswered, onResidencyReported, onUseReported } from './ledger/lease-events.js';
import { must, mustCard } from './must.js';
import { onPlaceRequested } from './requests/place-request.js';
import { onFloorMeasured, onHeartbeat, onKillUnconfirmed, onProcessEnding, onProcessExited, onProcessReady, onSessionClosed, onSessionOpened, onSpawnFailed } from './processes/process.js';
import { makeGood } from './ledger/relief.js';
import { onProcessRecorded, onProcessResumed } from './restart/reattach.js';
import { onBudgetRequested, onRequestCancelled } from './requests/request.js';
import { onResizeRequested } from './ledger/resize.js';
import { onSampled, onSampleFailed } from './cards/sample.js';
import type { Core } from './state.js';
import { onTicked } from './tick.js';
import { dropWish, onEvictRequested, onPinRequested, pursueWishes } from './requests/wish.js';
import { waiterKey } from './requests/queue.js';

/** Passes over changed cards before a step is taken to go in circles. */
const passesMax = 64;

/**
 * Takes in one event, changes the core's private state in place and returns
 * what is to be done, in order. Synchronous; time comes inside the event.
 * Throws `invariant_broken` when the ledger is found wrong, and is then of no further use.
 */
export function step(core: Core, event: CoreEvent): Effect[] {
  core.effects = [];
  advance(core, event.atUs);
  dispatch(core, believable(core, event));
  if (core.dirty.size > 0) settleChanged(core);
  if (core.evictRequests.size > 0) pursueWishes(core);
  if (core.fresh.size > 0) tellFresh(core);
  for (const device of core.dirty) core.changed.add(device);
  checkTouched(core);
  core.dirty.clear();
  core.changed.clear();
  core.touched.clear();
  const { effects } = core;
  core.effects = [];
  return effects;
}

/** Decides on the cards that changed until nothing comes of it any more: a decision changes the card it is made on. */
function settleChanged(core: Core): void {
  // Gangs are decided on one after the other.
  const passes = passesMax + 4 * core.gangs.size;
  for (let pass = 0; core.dirty.size > 0; pass++) {
    must(pass < passes, 'a step comes to rest');
    if (core.relieved.size > 0) makeGood(core);
    if (core.gangs.size > 0) assignCards(core);
    for (const device of [...core.dirty]) {
      core.dirty.delete(device);
      core.changed.add(device);
      const card = mustCard(core, device);
      const before = core.effects.length;
      if (card === core.host) wakeHostWaiters(core, card);
      settle(core, card);
      if (core.effects.length === before) core.dirty.delete(device);
    }
    if (core.gangs.size > 0) settleGangs(core);
    if (core.evictRequests.size > 0) pursueWishes(core);
  }
}

function dispatch(core: Core, event: CoreEvent): void {
  switch (event.type) {
    case 'card_added': onCardAdded(core, event); return;
    case 'card_lost': onCardLost(core, event); return;
    case 'sampled': onSampled(core, event); return;
    case 'sample_failed': onSampleFailed(core, event); return;
    case 'session_opened': onSessionOpened(core, event); return;
    case 'session_closed': onSessionClosed(core, event); return;
    case 'process_ready': onProcessReady(core, event); return;
    case 'process_recorded': onProcessRecorded(core, event); return;
    case 'process_resumed': onProcessResumed(core, event); return;
    case 'spawn_failed': onSpawnFailed(core, event); return;
    case 'heartbeat': onHeartbeat(core, event); return;
    case 'floor_measured': onFloorMeasured(core, event); return;
    case 'process_ending': onProcessEnding(core, event); return;
    case 'process_exited': onProcessExited(core, event); return;
    case 'kill_unconfirmed': onKillUnconfirmed(core, event); return;
    case 'place_requested': onPlaceRequested(core, event); return;
    case 'budget_requested': onBudgetRequested(core, event); return;
    case 'request_cancelled': if (!dropWish(core, waiterKey(event.generation, event.request))) onRequestCancelled(core, event); return;
    case 'evict_requested': onEvictRequested(core, event); return;
    case 'pin_requested': onPinRequested(core, event); return;
    case 'load_begun': onLoadBegun(core, event); return;
    case 'recall_answered': onRecallAnswered(core, event); return;
    case 'residency_reported': onResidencyReported(core, event); return;
    case 'use_reported': onUseReported(core, event); return;
    case 'resize_requested': onResizeRequested(core, event); return;
    case 'lease_released': onLeaseReleased(core, event); return;
    case 'command_answered': onCommandAnswered(core, event); return;
    case 'models_announced': onModelsAnnounced(core, event); return;
    case 'ticked': onTicked(core);
  }
}
