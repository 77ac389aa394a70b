/** What a process costs on a card before any model: stated, learned by engine and kind of card, measured. */
import { floorKey, knownFloorBytes } from './available.js';
import { seatOf, setCharged, setResident } from './ledger.js';
import { count, inWords, explain, publish } from './report.js';
import type { Card, Core, Seat } from './state.js';

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
 * more than the start.
 */
export function floorReported(core: Core, card: Card, generation: string, engine: string | null, bytes: number): void {
  const seat = seatOf(core, card, generation);
  const learnedBytes = learn(core, card, engine, bytes);
  seat.floorSource = 'measured';
  setResident(core, seat.floor, bytes);
  raiseFloor(core, card, seat, Math.max(learnedBytes, card.floorBytes ?? 0));
}

/** The driver says what a process without leases takes: that is its floor (D7). */
export function floorMeasured(core: Core, card: Card, seat: Seat, engine: string | null, bytes: number): void {
  learn(core, card, engine, bytes);
  seat.floorSource = 'measured';
  setResident(core, seat.floor, bytes);
  raiseFloor(core, card, seat, bytes);
}

/** Remembers the most that a process of this engine was ever seen to cost on this kind of card. */
function learn(core: Core, card: Card, engine: string | null, bytes: number): number {
  if (engine === null) return bytes;
  const key = floorKey(card, engine);
  const mostBytes = Math.max(bytes, core.learnedFloors.get(key) ?? 0);
  core.learnedFloors.set(key, mostBytes);
  return mostBytes;
}

function raiseFloor(core: Core, card: Card, seat: Seat, bytes: number): void {
  const grownBytes = bytes - seat.floor.chargedBytes;
  setCharged(core, seat.floor, Math.max(bytes, 0));
  if (grownBytes <= core.options.limits.measureToleranceBytes) return;
  count(core, 'floorsRaised');
  publish(core, 'overshoot', { generation: seat.generation, device: card.device, lease: null, bytes: grownBytes });
  explain(core, { verdict: 'overshoot', text: `${seat.generation} costs ${inWords(bytes)} on ${card.device} before any model, ${inWords(grownBytes)} more than was charged`, generation: seat.generation, device: card.device });
}
