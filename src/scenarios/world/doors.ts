/** `model_to_device` as a worker does it: a door that shuts at receipt, calls that end in peace, bytes that go, an honest count of them; or a lie. */
import type { Effect } from '../../../broker/core/effects.js';
import { forget, hasOlderCalls, leak, type Door, type HostedModel } from './hosted.js';
import type { Hosting } from './hosting.js';

type Move = Extract<Effect, { type: 'move' }>;

export function obeyMove(host: Hosting, move: Move): void {
  if (host.behaviour.ignoresCommands) return;
  const model = host.byLease(move.lease);
  if (model === null) {
    host.answer(move.command, failed('lease_unknown', 0));
    return;
  }
  if (model.door?.begun === true) {
    host.answer(move.command, failed('move_failed', model.takenBytes));
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

function shut(host: Hosting, model: HostedModel, move: Move): void {
  const door: Door = {
    command: move.command, target: move.target, bytes: host.engine.partial ? move.bytes : null, waiterSinceUs: move.waiterSinceUs,
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
  host.answer(door.command, failed(code, model.takenBytes));
  host.pump(model);
  host.reportUse(model);
}

export function obeyCancel(host: Hosting, command: number): void {
  if (host.behaviour.ignoresCommands) return;
  for (const model of host.models.values()) {
    if (model.door?.command === command) open(host, model, model.door, 'request_cancelled');
  }
}

/** The broker that gave the command is gone: what has not begun is not begun, what has is this process's own affair. */
export function voidDoor(host: Hosting, model: HostedModel): void {
  const { door } = model;
  if (door === null) return;
  door.command = null;
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
  host.takeBackExtension(model);
  if (model.lease !== null) host.reportResidency(model, model.lease, null, null);
  if (behaviour.ackEarlyMs > 0) {
    const freedBytes = Math.min(model.takenBytes, door.bytes ?? model.takenBytes);
    host.answer(door.command, { kind: 'done', target: door.target, freedBytes, residentBytes: model.takenBytes - freedBytes, hostBytes: model.hostBytes });
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
      host.answer(door.command, failed('move_failed', model.takenBytes));
      host.end('its engine did not stop');
    });
    return;
  }
  host.later(random.int(1, 200), () => {
    if (model.door !== door) return;
    if (model.state === 'resident') {
      // Too late to be stopped: it leaves as a model does.
      door.begun = false;
      moveIfDrained(host, model);
      return;
    }
    const freedBytes = model.takenBytes;
    host.free(model, freedBytes);
    model.door = null;
    forget(model);
    host.answer(door.command, { kind: 'done', target: 'none', freedBytes, residentBytes: 0, hostBytes: 0 });
    host.pump(model);
  });
}

function carryOut(host: Hosting, model: HostedModel, door: Door, answers: boolean): void {
  if (model.door !== door || model.lease === null) return;
  const { lease } = model;
  const { behaviour } = host;
  const beforeBytes = model.takenBytes;
  const wantedBytes = door.bytes === null ? beforeBytes : Math.min(beforeBytes, door.bytes);
  const freedBytes = behaviour.freesShort ? Math.floor(wantedBytes * 0.4) : wantedBytes;
  if (behaviour.ackLies) {
    host.free(model, Math.floor(wantedBytes * behaviour.liesFreeShare));
    leak(model, wantedBytes - (beforeBytes - model.takenBytes));
  } else {
    host.free(model, freedBytes);
  }
  const leftBytes = model.takenBytes;
  if (leftBytes > 0) shrinkParts(model, beforeBytes - leftBytes);
  // An unload drops the model even where bytes of it stay behind.
  if (door.target === 'none' && door.bytes === null) leak(model, leftBytes);
  settle(model, door);
  if (leftBytes === 0 || model.takenBytes > 0) host.reportResidency(model, lease, null, null);
  if (answers) {
    host.answer(door.command, { kind: 'done', target: door.target, freedBytes: beforeBytes - leftBytes, residentBytes: leftBytes, hostBytes: model.hostBytes });
  }
  if (model.state === 'absent') forget(model);
  host.pump(model);
  host.reportUse(model);
}

/** Measured parts say what each holds now: what was freed of the model came out of its weights first. */
function shrinkParts(model: HostedModel, byBytes: number): void {
  let leftBytes = byBytes;
  model.parts = model.parts.map((part) => {
    const taken = Math.min(part.bytes, leftBytes);
    leftBytes -= taken;
    return { ...part, bytes: part.bytes - taken };
  });
}

/** Where the model stands once the bytes have moved. What could not be freed stays resident. */
function settle(model: HostedModel, door: Door): void {
  model.door = null;
  if (model.takenBytes > 0) {
    model.state = 'resident';
  } else if (door.target === 'host') {
    model.state = 'parked';
    model.begun = false;
    model.hostBytes = Math.max(model.hostBytes, 1);
  } else {
    model.state = 'absent';
    model.hostBytes = 0;
  }
}

function failed(code: string, residentBytes: number): { kind: 'failed'; code: string; message: string; residentBytes: number } {
  return { kind: 'failed', code, message: 'not done', residentBytes };
}
