/** The broker's commands at one model's door: what is answered at once, what waits behind a shut door, what begins. Pure. */
import type { Door, DoorAction, DoorAnswer, DoorCall, DoorCommand } from './door-types.js';
import { firstContext, largestTokens, mayGrowAtUs, stopRetiring, withdrawContext } from './door-slots.js';

/** Commands that may stand behind the one underway. The broker sends one at a time; more is a fault of its own. */
const laterCommandsMax = 8;

export function leaseOf(door: Door): string | null {
  return 'lease' in door.residency ? door.residency.lease : null;
}

/** Calls that hold a reference: begun ones and queued ones. */
export function references(door: Door): number {
  return door.begun.size + door.queue.length;
}

function answer(command: DoorCommand, given: DoorAnswer, out: DoorAction[]): void {
  out.push({ type: 'answer', command, answer: given });
}

/**
 * A command arrives:
 * 1. Not the lease held here: failed, `lease_unknown`.
 * 2. Another command is underway: `now` is busy, or failed once that one moves the model; `drained` stands behind it.
 * 3. A move of our own is underway (a return that our calls asked for, the leaving at shutdown): the same.
 * 4. Else it is taken by the state the model is in. Every path answers at once (B193).
 */
export function commandArrived(door: Door, command: DoorCommand, out: DoorAction[]): void {
  if (leaseOf(door) !== command.lease) {
    answer(command, { kind: 'failed', failure: { code: 'lease_unknown', details: { lease: command.lease } }, residentBytes: null }, out);
    return;
  }
  if (door.underway !== null || isMoving(door)) {
    standBehind(door, command, out);
    return;
  }
  takeCommand(door, command, out);
}

/** True while bytes are on their way and no command can have the door. */
export function isMoving(door: Door): boolean {
  const { residency } = door;
  return residency.kind === 'parking'
    || (residency.kind === 'unloading' && !residency.stuck)
    || (residency.kind === 'resuming' && residency.phase === 'moving')
    || (residency.kind === 'loading' && residency.phase === 'aborting');
}

function standBehind(door: Door, command: DoorCommand, out: DoorAction[]): void {
  if (command.when === 'now' || door.later.length >= laterCommandsMax) {
    answer(command, inTheWay(door), out);
    return;
  }
  door.later.push(command);
  answer(command, { kind: 'draining', inFlight: references(door) }, out);
}

/** Busy is what calls make it. A move that keeps it, and may never end, is a failure: the broker's next rung is not put off by it. */
function inTheWay(door: Door): DoorAnswer {
  const inFlight = references(door);
  if (inFlight > 0 && door.underway?.phase !== 'moving') return { kind: 'busy', inFlight };
  return { kind: 'failed', failure: { code: 'move_failed', details: { reason: 'an earlier move of it has not ended' } }, residentBytes: null };
}

/** Gives the door to a command; it is free. */
export function takeCommand(door: Door, command: DoorCommand, out: DoorAction[]): void {
  const { residency } = door;
  switch (residency.kind) {
    case 'absent':
      return;
    case 'loading':
      takeWhileLoading(door, command, out);
      return;
    case 'resident':
      takeWhileResident(door, command, out);
      return;
    case 'parked':
    case 'resuming':
      takeWhileParked(door, command, out);
      return;
    case 'unloading':
      // A stuck unload: whatever is asked, leaving entirely is what is tried again.
      beginMove(door, { ...command, target: 'none', bytes: null }, out);
      return;
    case 'parking':
      return;
  }
}

/** A load that nobody eligible waits for is stopped; else the command waits until it is done (B194). */
function takeWhileLoading(door: Door, command: DoorCommand, out: DoorAction[]): void {
  if (command.target === 'device') {
    answer(command, { kind: 'already', target: 'device' }, out);
    return;
  }
  if (door.queue.length > 0 && command.when === 'now') {
    answer(command, { kind: 'busy', inFlight: references(door) }, out);
    return;
  }
  shutDoor(door, command, out);
}

function takeWhileResident(door: Door, command: DoorCommand, out: DoorAction[]): void {
  if (command.target === 'device') {
    answer(command, { kind: 'already', target: 'device' }, out);
  } else if (command.bytes !== null && !door.partial) {
    answer(command, { kind: 'unsupported', reason: 'it cannot be freed in part' }, out);
  } else if (command.bytes === null && command.target === 'host' && !door.parkable) {
    answer(command, { kind: 'unsupported', reason: 'this engine keeps no copy of it' }, out);
  } else if (command.when === 'now' && references(door) > 0) {
    answer(command, { kind: 'busy', inFlight: references(door) }, out);
  } else {
    shutDoor(door, command, out);
  }
}

/** Its card bytes are gone already; what is left is the host copy, and a return that calls may be asking for. */
function takeWhileParked(door: Door, command: DoorCommand, out: DoorAction[]): void {
  const { residency } = door;
  if (residency.kind !== 'parked' && residency.kind !== 'resuming') return;
  if (command.target === 'host') {
    answer(command, { kind: 'already', target: 'host' }, out);
    return;
  }
  if (command.target === 'none' && command.when === 'now' && references(door) > 0) {
    answer(command, { kind: 'busy', inFlight: references(door) }, out);
    return;
  }
  if (residency.kind === 'resuming') {
    out.push({ type: 'withdraw' });
    door.residency = { kind: 'parked', lease: residency.lease };
  }
  beginMove(door, command, out);
}

/** From here on only begun calls and a bounded number of older ones come first; nothing a caller does opens the door again. */
function shutDoor(door: Door, command: DoorCommand, out: DoorAction[]): void {
  stopRetiring(door);
  withdrawContext(door, out);
  const eligible = eligibleCalls(door, command);
  door.underway = { phase: 'draining', command, eligible };
  answer(command, { kind: 'draining', inFlight: door.begun.size + eligible.size }, out);
}

function eligibleCalls(door: Door, command: DoorCommand): Set<number> {
  const { residency } = door;
  const tokensMax = residency.kind === 'loading' ? residency.context.tokens : largestTokens(door);
  // A call that needs a context which is not there would wait for room that the waiter is waiting for, too.
  const servable = (call: DoorCall): boolean => call.needs === 'model' || call.tokens <= tokensMax;
  const older = (call: DoorCall): boolean => command.waiterSinceUs === null || call.arrivedAtUs < command.waiterSinceUs;
  const calls = door.queue.filter((call) => older(call) && servable(call)).slice(0, door.options.drainBatchMax);
  return new Set(calls.map((call) => call.id));
}

/** Puts the model in motion for the command that has the door. */
export function beginMove(door: Door, command: DoorCommand, out: DoorAction[]): void {
  const lease = leaseOf(door);
  if (lease === null) return;
  if (door.underway === null) answer(command, { kind: 'draining', inFlight: 0 }, out);
  door.underway = { phase: 'moving', command };
  startMove(door, lease, command.target, command.bytes, out);
}

/** Puts the model in motion, for a command or for ourselves. */
export function startMove(door: Door, lease: string, target: 'host' | 'none' | 'device', bytes: number | null, out: DoorAction[]): void {
  let context = null;
  if (target === 'device') {
    context = firstContext(door);
    door.residency = { kind: 'resuming', phase: 'moving', attempt: 1, lease, context };
  } else if (bytes !== null && door.residency.kind === 'resident') {
    door.residency = { kind: 'parking', lease, whole: false };
  } else {
    door.slots = [];
    door.residency = target === 'host' ? { kind: 'parking', lease, whole: true } : { kind: 'unloading', lease, stuck: false };
  }
  out.push({ type: 'move', target, bytes, lease, context });
}

/** The broker takes a command back (D21): accepted while it has not begun to move. */
export function commandCancelled(door: Door, id: number, out: DoorAction[]): void {
  dropCommands(door, (command) => command.id === id, 'request_cancelled', out);
}

/** Commands whose time has passed before they could begin are not begun any more. */
export function expireCommands(door: Door, atUs: number, out: DoorAction[]): void {
  dropCommands(door, (command) => atUs >= command.expiresAtUs, 'command_expired', out);
}

function dropCommands(door: Door, matches: (command: DoorCommand) => boolean, code: string, out: DoorAction[]): void {
  const drop = (command: DoorCommand): void => {
    answer(command, { kind: 'failed', failure: { code, details: { what: 'The move' } }, residentBytes: null }, out);
  };
  if (door.underway?.phase === 'draining' && matches(door.underway.command)) {
    drop(door.underway.command);
    door.underway = null;
  }
  for (const command of door.later.filter(matches)) {
    door.later.splice(door.later.indexOf(command), 1);
    drop(command);
  }
}

/** When the door next has something to say although nothing happens; null: never. */
export function wakeAtUs(door: Door): number | null {
  const times = door.later.map((command) => command.expiresAtUs);
  if (door.underway?.phase === 'draining') times.push(door.underway.command.expiresAtUs);
  const mayGrow = door.residency.kind === 'resident' && door.underway === null && door.growing === null && door.slots.length < door.parallel;
  const blocked = mayGrow ? door.queue.find((call) => call.needs === 'slot') : undefined;
  if (blocked !== undefined) times.push(mayGrowAtUs(door, blocked));
  return times.length === 0 ? null : Math.min(...times);
}
