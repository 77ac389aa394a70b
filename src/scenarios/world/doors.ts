/** `model_to_device` as a worker does it: a door that shuts at receipt, calls that end in peace, bytes that go, an honest count of them; or a lie. */
import type { Effect } from '../../../broker/core/effects.js';
import { bytesOn, forget, hasOlderCalls, isLeased, leak, takenBytes, type Door, type HostedModel, type Slice } from './hosted.js';
import type { Hosting } from './hosting.js';
import { beginCopy, dropCopyInMaking, endCopy, leaveMemory } from './memory.js';

type Move = Extract<Effect, { type: 'move' }>;

export function obeyMove(host: Hosting, move: Move): void {
  if (host.behaviour.ignoresCommands) return;
  const model = host.byLease(move.lease);
  if (model === null) {
    host.answer(move.command, failed('lease_unknown', 0));
    return;
  }
  // All of a model moves: a command for another of its leases is the same one.
  if (model.door !== null && model.door.commands.size > 0 && !model.door.commands.has(move.lease)) {
    join(host, model, model.door, move);
    return;
  }
  if (model.door?.begun === true) {
    host.answer(move.command, failed('move_failed', takenOn(model, move.lease)));
    return;
  }
  const loads = model.state === 'loading' || model.state === 'resuming';
  if (loads && host.stopsLoads && move.when === 'drained' && model.door === null) {
    shut(host, model, move);
    return;
  }
  if (model.state === 'absent' || model.state === 'loading' || model.state === 'resuming' || model.door !== null) {
    host.answer(move.command, { kind: 'busy', inFlight: model.running.size });
    return;
  }
  if (move.target === 'host' && !model.spec.parkable) {
    host.answer(move.command, { kind: 'unsupported', message: 'cannot park' });
    return;
  }
  const used = model.running.size + model.queue.length;
  if (move.when === 'now' && used > 0) {
    host.answer(move.command, { kind: 'busy', inFlight: used });
    return;
  }
  shut(host, model, move);
}

/** Null once the lease is over: of a load that failed behind a shut door. */
function sliceOf(model: HostedModel, lease: string): Slice | null {
  return model.slices.find((slice) => slice.lease === lease) ?? null;
}

function takenOn(model: HostedModel, lease: string): number {
  return sliceOf(model, lease)?.takenBytes ?? 0;
}

function join(host: Hosting, model: HostedModel, door: Door, move: Move): void {
  door.commands.set(move.lease, move.command);
  if (!door.begun) host.answer(move.command, { kind: 'draining', inFlight: model.running.size });
  else if (host.behaviour.ackEarlyMs > 0) acknowledge(host, model, door, sliceOf(model, move.lease));
}

function shut(host: Hosting, model: HostedModel, move: Move): void {
  const door: Door = {
    commands: new Map([[move.lease, move.command]]), target: move.target, bytes: host.engine.partial ? move.bytes : null, waiterSinceUs: move.waiterSinceUs,
    batchLeft: host.world.knobs.limits.drainBatchMax, begun: false, expiry: null,
  };
  model.door = door;
  door.expiry = host.later(move.expiresMs, () => open(host, model, door, 'command_expired'));
  if (model.running.size > 0 || hasOlderCalls(model) || model.state === 'loading' || model.state === 'resuming') host.answer(move.command, { kind: 'draining', inFlight: model.running.size });
  host.pump(model);
}

/** Opened again because the command is over before it began: expired, or taken back by the broker (D21). */
function open(host: Hosting, model: HostedModel, door: Door, code: string): void {
  if (model.door !== door || door.begun) return;
  model.door = null;
  host.world.scheduler.cancel(door.expiry);
  for (const [lease, command] of door.commands) host.answer(command, failed(code, takenOn(model, lease)));
  host.pump(model);
  host.reportUse(model);
}

export function obeyCancel(host: Hosting, command: number): void {
  if (host.behaviour.ignoresCommands) return;
  for (const model of host.models.values()) {
    if (model.door !== null && [...model.door.commands.values()].includes(command)) open(host, model, model.door, 'request_cancelled');
  }
}

/** The broker that gave the command is gone: what has not begun is not begun, what has is this process's own affair. */
export function voidDoor(host: Hosting, model: HostedModel): void {
  const { door } = model;
  if (door === null) return;
  door.commands.clear();
  open(host, model, door, 'request_cancelled');
}

export function moveIfDrained(host: Hosting, model: HostedModel): void {
  const { door } = model;
  const loads = model.state === 'loading' || model.state === 'resuming';
  if (door === null || door.begun || model.running.size > 0 || ((loads || model.state === 'resident') && hasOlderCalls(model))) return;
  door.begun = true;
  host.world.scheduler.cancel(door.expiry);
  if (loads) {
    stopLoad(host, model, door);
    return;
  }
  model.state = door.target === 'host' ? 'parking' : 'unloading';
  const { behaviour } = host;
  if (door.target === 'host' && door.bytes === null && !beginCopy(host, model)) return;
  host.takeBackExtension(model);
  if (isLeased(model)) host.reportResidency(model, false, null);
  if (behaviour.ackEarlyMs > 0) {
    for (const lease of door.commands.keys()) acknowledge(host, model, door, sliceOf(model, lease));
    host.later(behaviour.ackEarlyMs, () => carryOut(host, model, door, false));
  } else {
    host.later(model.spec.moveMs, () => carryOut(host, model, door, true));
  }
}

/** A load that nobody older waits for is stopped. One that hangs may do so for good: then its process gives up, and says so. */
function stopLoad(host: Hosting, model: HostedModel, door: Door): void {
  const { random, knobs } = host.world;
  if (model.hangs && random.chance(0.5)) {
    host.later(knobs.limits.stopTimeoutMs, () => {
      for (const [lease, command] of door.commands) host.answer(command, failed('move_failed', takenOn(model, lease)));
      host.end('its engine did not stop');
    });
    return;
  }
  host.later(random.int(1, 200), () => { stopped(host, model, door); });
}

function stopped(host: Hosting, model: HostedModel, door: Door): void {
  if (model.door !== door) return;
  if (model.state === 'resident') {
    // Too late to be stopped: it leaves as a model does.
    door.begun = false;
    moveIfDrained(host, model);
    return;
  }
  const freedBy = new Map(model.slices.map((slice) => [slice.lease ?? '', slice.takenBytes]));
  for (const slice of model.slices) host.free(slice, slice.takenBytes);
  model.door = null;
  forget(model);
  for (const [lease, command] of door.commands) host.answer(command, { kind: 'done', target: 'none', freedBytes: freedBy.get(lease) ?? 0, residentBytes: 0, hostBytes: 0 });
  host.pump(model);
}

/** Says that it is done before it is. */
function acknowledge(host: Hosting, model: HostedModel, door: Door, slice: Slice | null): void {
  if (slice === null) return;
  const parks = door.target === 'host' && door.bytes === null;
  const hostBytes = bytesOn(Math.max(model.hostBytes, parks ? (model.spec.memory?.copyBytes ?? 0) : 0), slice);
  const freedBytes = Math.min(slice.takenBytes, door.bytes ?? slice.takenBytes);
  host.answer(door.commands.get(slice.lease ?? '') ?? 0, { kind: 'done', target: door.target, freedBytes, residentBytes: slice.takenBytes - freedBytes, hostBytes });
}

function carryOut(host: Hosting, model: HostedModel, door: Door, answers: boolean): void {
  if (model.door !== door || !isLeased(model)) return;
  const freedBy = new Map(model.slices.map((slice) => [slice, freeSlice(host, door, slice)]));
  const leftBy = new Map(model.slices.map((slice) => [slice, slice.takenBytes]));
  const leftBytes = takenBytes(model);
  // An unload drops the model even where bytes of it stay behind.
  if (door.target === 'none' && door.bytes === null) for (const slice of model.slices) leak(slice, slice.takenBytes);
  settle(host, model, door);
  if (leftBytes === 0 || takenBytes(model) > 0) host.reportResidency(model, false, null);
  if (answers) {
    for (const [lease, command] of door.commands) {
      const slice = sliceOf(model, lease);
      if (slice === null) host.answer(command, failed('lease_unknown', 0));
      else host.answer(command, { kind: 'done', target: door.target, freedBytes: freedBy.get(slice) ?? 0, residentBytes: leftBy.get(slice) ?? 0, hostBytes: bytesOn(model.hostBytes, slice) });
    }
  }
  if (model.state === 'absent') forget(model);
  host.pump(model);
  host.reportUse(model);
}

/** Frees what the door wants of one card, in the manner of this process; what that came to by its own account. */
function freeSlice(host: Hosting, door: Door, slice: Slice): number {
  const { behaviour } = host;
  const beforeBytes = slice.takenBytes;
  const wantedBytes = door.bytes === null ? beforeBytes : Math.min(beforeBytes, door.bytes);
  if (behaviour.ackLies) {
    host.free(slice, Math.floor(wantedBytes * behaviour.liesFreeShare));
    leak(slice, wantedBytes - (beforeBytes - slice.takenBytes));
  } else {
    host.free(slice, behaviour.freesShort ? Math.floor(wantedBytes * 0.4) : wantedBytes);
  }
  if (slice.takenBytes > 0) shrinkParts(slice, beforeBytes - slice.takenBytes);
  return beforeBytes - slice.takenBytes;
}

/** Measured parts say what each holds now: what was freed of the model came out of its weights first. */
function shrinkParts(slice: Slice, byBytes: number): void {
  let leftBytes = byBytes;
  slice.parts = slice.parts.map((part) => {
    const taken = Math.min(part.bytes, leftBytes);
    leftBytes -= taken;
    return { ...part, bytes: part.bytes - taken };
  });
}

/** Where the model stands once the bytes have moved. What could not be freed stays resident. */
function settle(host: Hosting, model: HostedModel, door: Door): void {
  model.door = null;
  if (takenBytes(model) > 0) {
    model.state = 'resident';
    dropCopyInMaking(host, model);
  } else if (door.target === 'host') {
    model.state = 'parked';
    model.begun = false;
    endCopy(host, model);
    model.hostBytes = Math.max(model.hostBytes, 1);
  } else {
    model.state = 'absent';
    model.hostBytes = 0;
    leaveMemory(host, model);
  }
}

function failed(code: string, residentBytes: number): { kind: 'failed'; code: string; message: string; residentBytes: number } {
  return { kind: 'failed', code, message: 'not done', residentBytes };
}
