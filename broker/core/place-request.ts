/** `place`: validated, joined to a host at once where there is one, else queued for the floor of a new worker. */
import { backingOff, backoffRefusal } from './backoff.js';
import { mayComeBack } from './closed-cards.js';
import { deny } from './deny.js';
import { knownFloorBytes } from './available.js';
import { isBytes, withHeadroom } from './headroom.js';
import { capacityBytes, neverText } from './need.js';
import { chooseCard, hostOf, join, joinHost, workerWithRoom } from './placement.js';
import { bytesRefusal, lostDevice, momentsOf, raised, refuse, requester, unknownDevice, type PlaceRequested } from './request.js';
import type { Card, Core, PlaceWaiter } from './state.js';
import { waiterKey } from './queue.js';
import { placeInQueue } from './shares.js';
import { enterWaiter } from './waiter.js';

/** "Where should this model run?" */
export function onPlaceRequested(core: Core, event: PlaceRequested): void {
  const process = requester(core, event);
  if (process === null || raised(core, event)) return;
  if (event.estimateBytes !== null && !isBytes(event.estimateBytes)) {
    refuse(core, event, null, bytesRefusal('estimateBytes', event.estimateBytes));
    return;
  }
  if (!core.options.engines.some((engine) => engine.name === event.engine)) {
    const known = core.options.engines.map((engine) => engine.name).join(', ');
    refuse(core, event, null, { code: 'engine_unknown', details: { engine: event.engine, known }, text: `there is no engine ${event.engine}` });
    return;
  }
  const cards = candidates(core, event);
  if (cards === null) return;
  const host = hostOf(core, event, event.device);
  if (host?.state === 'ready') {
    join(core, waiterOf(core, event, host.devices[0] ?? ''), host);
    return;
  }
  const card = host === null ? chosen(core, event, cards) : (core.cards.get(host.devices[0] ?? '') ?? null);
  if (card !== null) queueFor(core, event, card);
}

/** The cards that may be chosen; null when the request has been refused. */
function candidates(core: Core, event: PlaceRequested): Card[] | null {
  if (event.device !== null) {
    const card = core.cards.get(event.device);
    if (card === undefined) refuse(core, event, null, unknownDevice(core, event.device));
    else if (card.lost !== null) refuse(core, event, card, lostDevice(core, card));
    else return [card];
    return null;
  }
  const known = [...core.cards.values()];
  const real = known.filter((card) => card.kind !== 'cpu');
  // Never a fall back to the CPU: it is chosen only where there is nothing else.
  const living = (real.length > 0 ? real : known).filter((card) => card.lost === null);
  if (living.length > 0) return living;
  const first = real[0];
  refuse(core, event, first ?? null, first === undefined ? unknownDevice(core, 'any') : lostDevice(core, first));
  return null;
}

function chosen(core: Core, event: PlaceRequested, cards: readonly Card[]): Card | null {
  const requestedBytes = event.estimateBytes ?? 0;
  const best = chooseCard(core, { generation: event.generation, model: event.model, engine: event.engine, class: event.class, requestedBytes, device: event.device }, cards);
  if (best === null) {
    refuseNever(core, event, cards, requestedBytes);
    return null;
  }
  const card = mayComeBack(core, event.engine, cards) ?? best;
  const backoff = backingOff(core, event.model, card.device);
  // Where a worker has room it is not queued at all.
  const queues = workerWithRoom(core, card, event.engine) === null;
  const refusal = backoff !== null ? backoffRefusal(core, event.model, backoff) : queues ? placeInQueue(core, card, event.generation) : null;
  if (refusal === null) return card;
  refuse(core, event, card, refusal);
  return null;
}

function queueFor(core: Core, event: PlaceRequested, card: Card): void {
  const waiter = waiterOf(core, event, card.device);
  enterWaiter(core, card, waiter);
  joinHost(core, card, waiter);
}

function refuseNever(core: Core, event: PlaceRequested, cards: readonly Card[], requestedBytes: number): void {
  const largest = cards.reduce((best, card) => (card.totalBytes - card.reserveBytes > best.totalBytes - best.reserveBytes ? card : best));
  const floorBytes = knownFloorBytes(core, largest, event.engine);
  const needBytes = Math.min(Number.MAX_SAFE_INTEGER, floorBytes + withHeadroom(requestedBytes));
  deny(core, {
    generation: event.generation, request: event.request, model: event.model, class: event.class, card: largest,
    code: 'never_fits', requestedBytes, needBytes, floorBytes,
    details: { model: event.model, needBytes: String(needBytes), device: largest.device, mostBytes: String(capacityBytes(largest)) },
    text: `${event.model} can never fit on any card allowed for it: ${neverText(needBytes, floorBytes, event.engine, largest)}`,
  });
}

function waiterOf(core: Core, event: PlaceRequested, device: string): PlaceWaiter {
  return {
    kind: 'place', ...momentsOf(core, event),
    key: waiterKey(event.generation, event.request),
    generation: event.generation, request: event.request, model: event.model, order: core.nextOrder++,
    class: event.class, policy: event.policy, device,
    needBytes: 0, holdBytes: 0, planned: false, skips: 0, triedEpoch: -1, told: null, toldStalled: null, reason: 'queued',
    engine: event.engine, requestedBytes: event.estimateBytes ?? 0, wantedDevice: event.device, joined: null,
  };
}
