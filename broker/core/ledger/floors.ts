/** What a process costs on a card before any model: stated, learned by engine and kind of card, measured. */
import { floorKey, knownFloorBytes } from './available.js';
import { capacityBytes } from './need.js';
import { leasedSeenBytes, seatOf, setAttributed, setCharged, setMeasured, setResident } from './ledger.js';
import { wantSample } from '../cards/probe.js';
import { count, inWords, explain, publish } from '../report.js';
import type { Card, Core, Seat } from '../state.js';

/** Charges the floor known for a process that is about to touch the card. */
export function chargeFloor(core: Core, card: Card, generation: string, engine: string | null): Seat {
  const seat = seatOf(core, card, generation);
  if (seat.floorSource !== 'unknown') return seat;
  const learned = engine !== null && core.learnedFloors.has(floorKey(card, engine));
  const bytes = Math.max(knownFloorBytes(core, card, engine), seat.floor.chargedBytes);
  if (learned || card.floorBytes !== null || card.kind === 'cpu') seat.floorSource = learned ? 'learned' : 'stated';
  setCharged(core, seat.floor, bytes);
  return seat;
}

/**
 * A process says what it costs. Charged at once whatever is free (D12), never
 * below what that engine was once seen to take there: the first compute takes
 * more than the start. What it was only taken to cost counts no longer. One
 * that takes nothing says nothing of those that do.
 */
export function floorReported(core: Core, card: Card, generation: string, engine: string | null, bytes: number): void {
  const seat = seatOf(core, card, generation);
  if (engine !== null && bytes > 0) claimFloor(core, card, generation, engine, bytes);
  const seenBytes = engine === null ? 0 : (core.learnedFloors.get(floorKey(card, engine)) ?? 0);
  seat.floorSource = 'measured';
  setResident(core, seat.floor, bytes);
  raiseFloor(core, card, seat, Math.max(bytes, seenBytes, card.floorBytes ?? 0));
}

/** The driver says what a process without leases takes: that is its floor (D7). */
export function floorMeasured(core: Core, card: Card, seat: Seat, engine: string | null, bytes: number): void {
  if (engine !== null) learn(core, card, engine, bytes);
  seat.floorSource = 'measured';
  raiseFloor(core, card, seat, bytes);
  // The sample that shows it also explains it: none of it is a stranger's.
  setMeasured(core, seat.floor, bytes);
  setAttributed(card, seat.floor, bytes);
}

/** Remembers the most that a process of this engine was ever seen to cost on this kind of card. */
export function learn(core: Core, card: Card, engine: string, bytes: number): void {
  const key = floorKey(card, engine);
  core.learnedFloors.set(key, Math.max(bytes, core.learnedFloors.get(key) ?? 0));
}

/**
 * Its own word, learned from at once, since the next process may be started
 * before anything is measured. Where the driver can contradict it, it is a claim
 * until it has been measured; where nothing can, no word counts for more than
 * half of the card, and a heavy one fades with each smaller one that follows.
 */
function claimFloor(core: Core, card: Card, generation: string, engine: string, bytes: number): void {
  const key = floorKey(card, engine);
  const knownBytes = core.learnedFloors.get(key) ?? null;
  if (card.confirms !== 'process') {
    const mostBytes = Math.min(bytes, Math.floor(capacityBytes(card) / 2));
    const restBytes = isHeavy(card, knownBytes ?? 0) ? fadedBytes(knownBytes ?? 0) : (knownBytes ?? 0);
    core.learnedFloors.set(key, Math.max(mostBytes, restBytes));
    return;
  }
  // A floor beyond the card is none that anything could be placed with.
  if (bytes > capacityBytes(card) || (knownBytes !== null && bytes <= knownBytes)) return;
  const before = core.floorClaims.get(key);
  core.floorClaims.set(key, { generation, bytes, knownBytes: before?.heavy === true ? before.knownBytes : knownBytes, heavy: isHeavy(card, bytes) });
  core.learnedFloors.set(key, bytes);
  wantSample(core, card, core.nowUs);
}

/** More than a quarter of the card: no start of an engine that is known takes that, and believed wrongly it shuts others out. */
function isHeavy(card: Card, bytes: number): boolean {
  return bytes > Math.floor(capacityBytes(card) / 4);
}

/** Seven eighths. */
function fadedBytes(bytes: number): number {
  return bytes - Math.ceil(bytes / 8);
}

/** The sample just taken shows what a process takes besides its models: its claim is learned for good, or corrected by that. */
export function judgeFloorClaim(core: Core, card: Card, seat: Seat, engine: string, readingBytes: number): void {
  const key = floorKey(card, engine);
  const claim = core.floorClaims.get(key);
  // Its own word about its floor may be younger than this reading; and what loads, or did when it was taken, cannot be told from a floor.
  if (claim?.generation !== seat.generation || seat.unsettled > 0 || seat.coming.chargedBytes > 0 || seat.floor.changes.length > 0) return;
  core.floorClaims.delete(key);
  const measuredBytes = Math.max(0, readingBytes - leasedSeenBytes(seat) - seat.residue.chargedBytes);
  if (measuredBytes + core.options.limits.measureToleranceBytes >= claim.bytes) return;
  core.learnedFloors.set(key, Math.max(claim.knownBytes ?? 0, measuredBytes));
  count(core, 'floorsDoubted');
  explain(core, {
    verdict: 'overshoot', generation: seat.generation, device: card.device,
    text: `${seat.generation} says that it costs ${inWords(claim.bytes)} on ${card.device} before any model; the driver shows ${inWords(measuredBytes)}, and that is what ${engine} is taken to cost`,
  });
}

/** A process has gone: a heavy floor that only it vouched for is no longer learned; a light one stands. */
export function dropFloorClaims(core: Core, generation: string): void {
  for (const [key, claim] of core.floorClaims) {
    if (claim.generation !== generation) continue;
    core.floorClaims.delete(key);
    if (!claim.heavy) continue;
    if (claim.knownBytes === null) core.learnedFloors.delete(key);
    else core.learnedFloors.set(key, claim.knownBytes);
  }
}

function raiseFloor(core: Core, card: Card, seat: Seat, bytes: number): void {
  const grownBytes = bytes - seat.floor.chargedBytes;
  setCharged(core, seat.floor, Math.max(bytes, 0));
  if (grownBytes <= core.options.limits.measureToleranceBytes) return;
  count(core, 'floorsRaised');
  publish(core, 'overshoot', { generation: seat.generation, device: card.device, lease: null, bytes: grownBytes });
  explain(core, { verdict: 'overshoot', text: `${seat.generation} costs ${inWords(bytes)} on ${card.device} before any model, ${inWords(grownBytes)} more than was charged`, generation: seat.generation, device: card.device });
}
