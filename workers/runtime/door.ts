/**
 * One model's door and residency, as a machine without I/O: `stepDoor(door,
 * event)` changes the door and says what is to be done. It keeps these
 * promises (D1-D3, D19-D21):
 * - a load belongs to the model, not to the call that asked first: calls join it, and it is finished though they leave (B65, B77);
 * - a request that nobody waits for any more is taken back (B64);
 * - no call in flight is ever cut; behind a shut door those begun and a bounded number of older ones end first;
 * - nothing that a caller does opens a shut door; the broker may take its command back until the move has begun;
 * - `unloaded` is never said while bytes are held (B194).
 */
import type { Door, DoorAction, DoorEvent, DoorOptions, Failure, Residency } from './door-types.js';
import { askWhenRetired, beginCalls, contextOpened, contextRefused, failCalls, firstContext, planGrowth, stopRetiring, withdrawContext } from './door-slots.js';
import { beginMove, commandArrived, commandCancelled, expireCommands, isMoving, leaseOf, startMove, takeCommand } from './door-commands.js';

export { leaseOf, references, wakeAtUs } from './door-commands.js';
export type * from './door-types.js';

export function createDoor(options: DoorOptions): Door {
  return {
    options, residency: { kind: 'absent' }, queue: [], begun: new Map(), slots: [], growing: null, growNotBeforeUs: 0, underway: null,
    later: [], parallel: 1, contextTokens: 0, parkable: false, partial: false, contextsNamed: 0, closed: false,
  };
}

/** Takes one event in; returns what is to be done, in order. Events that no longer apply do nothing. */
export function stepDoor(door: Door, event: DoorEvent): DoorAction[] {
  const out: DoorAction[] = [];
  take(door, event, out);
  settle(door, event.atUs, out);
  return out;
}

function take(door: Door, event: DoorEvent, out: DoorAction[]): void {
  switch (event.type) {
    case 'call_arrived':
      callArrived(door, event, out);
      return;
    case 'call_cancelled':
      door.queue = door.queue.filter((call) => call.id !== event.call);
      return;
    case 'call_ended':
      callEnded(door, event.call);
      return;
    case 'load_granted':
      loadGranted(door, event.lease, out);
      return;
    case 'load_denied':
      loadDenied(door, event.failure, out);
      return;
    case 'load_done':
      loadDone(door, event);
      return;
    case 'load_failed':
      loadFailed(door, event, out);
      return;
    case 'move_done':
      moveDone(door, event, out);
      return;
    case 'move_failed':
      moveFailed(door, event, out);
      return;
    case 'context_opened':
      contextOpened(door, event.name, event.tokens);
      return;
    case 'context_refused':
      contextRefused(door, event.failure, event.closed, event.atUs, out);
      return;
    case 'command_arrived':
      commandArrived(door, event.command, out);
      return;
    case 'command_cancelled':
      commandCancelled(door, event.command, out);
      return;
    case 'closed':
      close(door, out);
      return;
    case 'ticked':
      return;
  }
}

function callArrived(door: Door, event: Extract<DoorEvent, { type: 'call_arrived' }>, out: DoorAction[]): void {
  const refusal = door.closed ? { code: 'shutting_down', details: { what: 'The worker' } }
    : door.queue.length >= door.options.queuedCallsMax ? { code: 'call_queue_full', details: { limit: door.options.queuedCallsMax, retryAfterMs: door.options.retryAfterMs } }
      : null;
  if (refusal !== null) {
    out.push({ type: 'fail', calls: [event.call.id], failure: refusal });
    return;
  }
  door.parallel = Math.max(1, event.parallel);
  door.contextTokens = event.call.tokens;
  door.queue.push(event.call);
}

function callEnded(door: Door, call: number): void {
  door.begun.delete(call);
  for (const slot of door.slots) if (slot.call === call) slot.call = null;
}

function loadGranted(door: Door, lease: string, out: DoorAction[]): void {
  const { residency } = door;
  if (residency.kind === 'loading' && residency.phase === 'asking') {
    door.residency = { kind: 'loading', phase: 'taking', attempt: residency.attempt, lease, context: residency.context };
    out.push({ type: 'load', lease, context: residency.context });
  } else if (residency.kind === 'resuming' && residency.phase === 'asking') {
    door.residency = { ...residency, phase: 'moving', lease };
    out.push({ type: 'move', target: 'device', bytes: null, lease, context: residency.context });
  } else if (leaseOf(door) !== lease) {
    out.push({ type: 'release', lease, cause: 'unused', failure: null });
  }
}

/** What the broker says of a lease under which there is no way back to the card any more. */
const leaseIsOver: ReadonlySet<string> = new Set(['lease_unknown', 'request_cancelled']);

/** A parked model whose lease is over goes on without it: its copy is dropped, and those who wait have it loaded under a new one. */
function loadDenied(door: Door, failure: Failure, out: DoorAction[]): void {
  const { residency } = door;
  if (residency.kind === 'resuming' && residency.phase === 'asking') {
    door.residency = { kind: 'parked', lease: residency.lease };
    if (leaseIsOver.has(failure.code)) {
      startMove(door, residency.lease, 'none', null, out);
      return;
    }
  } else if (residency.kind === 'loading' && residency.phase === 'asking') {
    door.residency = { kind: 'absent' };
  } else {
    return;
  }
  failCalls(door, () => true, failure, out);
}

function loadDone(door: Door, event: Extract<DoorEvent, { type: 'load_done' }>): void {
  const { residency } = door;
  if (residency.kind !== 'loading' || residency.phase === 'asking') return;
  door.parkable = event.parkable;
  door.partial = event.partial;
  arrive(door, residency.lease, event.slots);
}

function arrive(door: Door, lease: string, slots: readonly { readonly name: string; readonly tokens: number }[]): void {
  door.residency = { kind: 'resident', lease };
  door.slots = slots.map((slot) => ({ ...slot, call: null, topic: null, retiring: false }));
  door.growNotBeforeUs = 0;
}

/** An aborted load is what a command wanted, or what shutting down needs. A card that was full gets one more try, with new numbers (B22). */
function loadFailed(door: Door, event: Extract<DoorEvent, { type: 'load_failed' }>, out: DoorAction[]): void {
  const { residency } = door;
  if (residency.kind !== 'loading' || residency.phase === 'asking') return;
  const { lease, attempt, phase } = residency;
  door.residency = { kind: 'absent' };
  if (door.underway !== null) {
    // The command's answer closes the lease: nothing is held any more.
    const { command } = door.underway;
    door.underway = null;
    out.push({ type: 'answer', command, answer: { kind: 'done', target: 'none', freedBytes: event.freedBytes, residentBytes: 0, hostBytes: 0 } });
    if (phase === 'taking') failCalls(door, () => true, event.failure, out);
    return;
  }
  const aborted = phase === 'aborting';
  out.push({ type: 'release', lease, cause: aborted ? 'cancelled' : 'load_failed', failure: aborted ? null : event.failure });
  if (aborted) return;
  if (event.failure.code === 'out_of_memory' && attempt === 1 && door.queue.length > 0) ask(door, 2, out);
  else failCalls(door, () => true, event.failure, out);
}

function moveDone(door: Door, event: Extract<DoorEvent, { type: 'move_done' }>, out: DoorAction[]): void {
  const { residency, underway } = door;
  let target: 'host' | 'none' | 'device';
  if (residency.kind === 'parking') {
    target = 'host';
    door.residency = { kind: residency.whole ? 'parked' : 'resident', lease: residency.lease };
  } else if (residency.kind === 'unloading') {
    target = 'none';
    door.residency = { kind: 'absent' };
    if (underway?.phase !== 'moving') out.push({ type: 'release', lease: residency.lease, cause: 'unloaded', failure: null });
  } else if (residency.kind === 'resuming' && residency.phase === 'moving') {
    target = 'device';
    arrive(door, residency.lease, event.slots);
  } else {
    return;
  }
  if (underway?.phase !== 'moving') return;
  const { freedBytes, residentBytes, hostBytes } = event;
  door.underway = null;
  out.push({ type: 'answer', command: underway.command, answer: { kind: 'done', target, freedBytes, residentBytes, hostBytes } });
}

/**
 * What the engine says is left decides the state; a model that could not be unloaded serves nobody. A copy that does not
 * come back to the card is of no use: it is dropped, and those who wait have the model loaded afresh. A card that was full
 * says nothing of the copy, so it gets one more try, with new numbers (B22).
 */
function moveFailed(door: Door, event: Extract<DoorEvent, { type: 'move_failed' }>, out: DoorAction[]): void {
  const { residency, underway } = door;
  const lease = leaseOf(door);
  if (lease === null || residency.kind === 'loading' || residency.kind === 'resident' || residency.kind === 'parked') return;
  if (event.left === 'resident') arrive(door, lease, event.slots);
  else door.residency = event.left === 'parked' ? { kind: 'parked', lease } : { kind: 'unloading', lease, stuck: true };
  if (underway?.phase === 'moving') {
    door.underway = null;
    out.push({ type: 'answer', command: underway.command, answer: { kind: 'failed', failure: event.failure, residentBytes: event.residentBytes } });
  }
  if (residency.kind !== 'resuming' || event.left !== 'parked') return;
  const wasFull = event.failure.code === 'out_of_memory';
  if (wasFull && door.queue.length === 0) return;
  if (wasFull && residency.attempt === 1) ask(door, 2, out);
  else startMove(door, lease, 'none', null, out);
}

function close(door: Door, out: DoorAction[]): void {
  door.closed = true;
  stopRetiring(door);
  withdrawContext(door, out);
  failCalls(door, () => true, { code: 'shutting_down', details: { what: 'The worker' } }, out);
}

/** Asks for the room that queued calls need: all of it, or the card bytes of a parked model. */
function ask(door: Door, attempt: 1 | 2, out: DoorAction[]): void {
  const context = firstContext(door);
  const lease = door.residency.kind === 'parked' ? door.residency.lease : null;
  door.residency = lease === null
    ? { kind: 'loading', phase: 'asking', attempt, context }
    : { kind: 'resuming', phase: 'asking', attempt, lease, context };
  out.push({ type: 'ask', lease, attempt, context });
}

/** Carries on from wherever the event left things, until nothing more follows from it. */
function settle(door: Door, atUs: number, out: DoorAction[]): void {
  expireCommands(door, atUs, out);
  takeNextCommand(door, out);
  const { residency } = door;
  switch (residency.kind) {
    case 'absent':
      if (door.queue.length > 0) ask(door, 1, out);
      return;
    case 'loading':
      settleLoading(door, residency, out);
      return;
    case 'resident':
      settleResident(door, residency.lease, atUs, out);
      return;
    case 'parked':
      if (door.closed) startMove(door, residency.lease, 'none', null, out);
      else if (door.queue.length > 0) ask(door, 1, out);
      return;
    case 'resuming':
      if (residency.phase === 'moving' || door.queue.length > 0) return;
      out.push({ type: 'withdraw' });
      door.residency = { kind: 'parked', lease: residency.lease };
      if (door.closed) startMove(door, residency.lease, 'none', null, out);
      return;
    case 'unloading':
      if (residency.stuck) failCalls(door, () => true, { code: 'move_failed', details: { reason: 'an unload of it failed' } }, out);
      return;
    case 'parking':
      return;
  }
}

/** Commands that stood behind another are judged as if they had arrived now, their expiry apart. */
function takeNextCommand(door: Door, out: DoorAction[]): void {
  while (door.underway === null && door.later.length > 0) {
    const next = door.later[0];
    if (next === undefined || isMoving(door)) return;
    door.later.shift();
    if (leaseOf(door) === next.lease) takeCommand(door, next, out);
    else out.push({ type: 'answer', command: next, answer: { kind: 'failed', failure: { code: 'lease_unknown', details: { lease: next.lease } }, residentBytes: 0 } });
  }
}

function settleLoading(door: Door, residency: Extract<Residency, { kind: 'loading' }>, out: DoorAction[]): void {
  if (residency.phase === 'asking') {
    if (door.queue.length > 0) return;
    out.push({ type: 'withdraw' });
    door.residency = { kind: 'absent' };
    return;
  }
  if (residency.phase === 'aborting') return;
  const { underway } = door;
  const unwanted = door.closed || (underway?.phase === 'draining' && !door.queue.some((call) => underway.eligible.has(call.id)));
  if (!unwanted) return;
  if (underway !== null) door.underway = { phase: 'moving', command: underway.command };
  door.residency = { ...residency, phase: 'aborting' };
  out.push({ type: 'abort_load' });
}

function settleResident(door: Door, lease: string, atUs: number, out: DoorAction[]): void {
  const { underway } = door;
  if (underway?.phase === 'moving') {
    // The load was to be aborted and came too late to be: what the command wants is done now instead.
    beginMove(door, underway.command, out);
    return;
  }
  beginCalls(door, out);
  if (underway === null && !door.closed) askWhenRetired(door, lease, out);
  const idle = door.begun.size === 0 && door.growing === null;
  if (underway !== null) {
    // An eligible call that still waits when nothing runs has lost its context: it waits no longer here.
    if (idle) beginMove(door, underway.command, out);
  } else if (door.closed) {
    if (idle) startMove(door, lease, 'none', null, out);
  } else {
    planGrowth(door, lease, atUs, out);
  }
}
