/** `place`: validated, joined to a host at once where there is one, else queued for the floor of a new worker on its cards. */
import { backingOff, backoffRefusal } from './backoff.js';
import { mayComeBack } from '../restart/closed-cards.js';
import { deny } from './deny.js';
import { knownFloorBytes } from '../ledger/available.js';
import { chooseByWord, chooseCards } from './choose-cards.js';
import { placementKey } from '../gangs/gang.js';
import { newGang, queueGang } from '../gangs/request.js';
import { isBytes, withHeadroom } from '../ledger/headroom.js';
import { capacityBytes, neverText } from '../ledger/need.js';
import { hostOf, join, joinHost, workerWithRoom } from './placement.js';
import { bytesRefusal, lostDevice, momentsOf, raised, refuse, requester, unknownDevice, type PlaceRequested } from './request.js';
import type { Card, Core, PlaceWaiter, WantedCards } from '../state.js';
import { waiterKey } from './queue.js';
import { placeInQueue } from './shares.js';
import { enterWaiter, noteWaiter } from './waiter.js';

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
  const host = hostOf(core, event, wantedOf(event));
  if (host?.state === 'ready') {
    join(core, waiterOf(core, event, host.devices), host);
    return;
  }
  const devices = host === null ? chosen(core, event, cards) : host.devices;
  if (devices !== null) queueFor(core, event, devices);
}

function countOf(event: PlaceRequested): number {
  return event.cards ?? 1;
}

function namedOf(event: PlaceRequested): readonly string[] | null {
  return event.devices ?? (event.device === null ? null : [event.device]);
}

function wantedOf(event: PlaceRequested): WantedCards {
  return { count: countOf(event), allowed: namedOf(event) };
}

interface Candidates {
  readonly living: readonly Card[];
  readonly lost: readonly Card[];
}

/** The cards that may be chosen, and those that might be if they were there; null when the request has been refused. */
function candidates(core: Core, event: PlaceRequested): Candidates | null {
  const allowed = allowedCards(core, event);
  if (allowed === null) return null;
  const count = countOf(event);
  const living = allowed.filter((card) => card.lost === null);
  const lost = allowed.filter((card) => card.lost !== null);
  if (living.length >= count) return { living, lost };
  const [first] = lost;
  if (first !== undefined) refuse(core, event, first, lostDevice(core, first));
  else if (allowed.length === 0) refuse(core, event, null, unknownDevice(core, 'any'));
  else refuse(core, event, allowed[0] ?? null, tooFewCards(event, allowed.length));
  return null;
}

/** Those named, else all; never a fall back to the CPU: it is chosen only where there is nothing else. */
function allowedCards(core: Core, event: PlaceRequested): readonly Card[] | null {
  const named = namedOf(event);
  if (named === null) {
    const known = [...core.cards.values()];
    const real = known.filter((card) => card.kind !== 'cpu');
    return real.length > 0 ? real : known;
  }
  const unknown = named.find((device) => !core.cards.has(device));
  if (unknown !== undefined) {
    refuse(core, event, null, unknownDevice(core, unknown));
    return null;
  }
  return [...new Set(named)].map((device) => core.cards.get(device)).filter((card) => card !== undefined);
}

function tooFewCards(event: PlaceRequested, count: number): Parameters<typeof refuse>[3] {
  const reason = count === 1 ? 'there is one card' : `there are ${String(count)} cards`;
  return { code: 'gang_unsupported', details: { model: event.model, size: String(countOf(event)), reason }, text: `${event.model} is to be spread over ${String(countOf(event))} cards, and ${reason}` };
}

/** The cards that are best for it, in the order of their UUIDs; null when the request has been refused. */
function chosen(core: Core, event: PlaceRequested, cards: Candidates): readonly string[] | null {
  const best = bestOf(core, event, cards);
  if (best === null) return null;
  const cardsTaken = mayComeBack(core, event.engine, cards.living, countOf(event)) ?? best;
  const devices = cardsTaken.map((card) => card.device);
  // Where a worker has room it is not queued at all.
  const queues = workerWithRoom(core, devices, event.engine) === null;
  for (const card of cardsTaken) {
    const backoff = backingOff(core, event.model, card.device);
    const refusal = backoff !== null ? backoffRefusal(core, event.model, backoff) : queues ? placeInQueue(core, card, event.generation) : null;
    if (refusal === null) continue;
    refuse(core, event, card, refusal);
    return null;
  }
  return devices;
}

function bestOf(core: Core, event: PlaceRequested, { living, lost }: Candidates): readonly Card[] | null {
  const count = countOf(event);
  const requestedBytes = event.estimateBytes ?? 0;
  const placing = { generation: event.generation, model: event.model, engine: event.engine, class: event.class, requestedBytes, exclusive: event.policy.exclusive };
  const best = chooseCards(core, placing, living, count);
  if (best !== null) return best;
  const missing = lost.length === 0 ? undefined : chooseCards(core, placing, [...living, ...lost], count)?.find((card) => card.lost !== null);
  if (missing !== undefined) {
    refuse(core, event, missing, lostDevice(core, missing));
    return null;
  }
  // What was asked for it before may have been for more context than this time: then the word of its requester counts alone.
  const byWord = chooseByWord(core, placing, living, count);
  if (byWord === null) refuseNever(core, event, living, Math.ceil(requestedBytes / count));
  return byWord;
}

function queueFor(core: Core, event: PlaceRequested, devices: readonly string[]): void {
  const waiter = waiterOf(core, event, devices);
  const card = core.cards.get(waiter.device);
  if (card === undefined) return;
  if (devices.length === 1) enterWaiter(core, card, waiter);
  else queueForAll(core, event, waiter);
  joinHost(core, waiter);
}

/** It waits on each of its cards, as a gang: for the floor of its worker on all of them. */
function queueForAll(core: Core, event: PlaceRequested, speaker: PlaceWaiter): void {
  const gang = newGang(core, { key: placementKey(event.generation, event.request), generation: event.generation, name: null, model: event.model, size: speaker.devices.length });
  for (const device of speaker.devices) {
    const member = device === speaker.device ? speaker : { ...speaker, key: `${speaker.key} ${device}`, device, speaks: false };
    gang.members.set(device, member.key);
    noteWaiter(core, member);
  }
  queueGang(core, gang);
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

function waiterOf(core: Core, event: PlaceRequested, devices: readonly string[]): PlaceWaiter {
  return {
    kind: 'place', ...momentsOf(core, event),
    key: waiterKey(event.generation, event.request),
    generation: event.generation, request: event.request, model: event.model, order: core.nextOrder++,
    class: event.class, policy: event.policy, device: devices[0] ?? '', devices, wanted: wantedOf(event), speaks: true,
    gang: devices.length > 1 ? placementKey(event.generation, event.request) : null, standing: 'kept', roomBytes: 0, ends: [], needBytes: 0, holdBytes: 0, hostNeedBytes: 0, hostHoldBytes: 0, hostTriedEpoch: -1, hostHopeless: false, planned: false, skips: 0, triedEpoch: -1, triedReason: 'no_victims', told: null, toldNamed: '', toldUs: 0, clause: '', reason: 'queued',
    engine: event.engine, requestedBytes: event.estimateBytes ?? 0, joined: null,
  };
}
