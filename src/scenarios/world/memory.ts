/** What a process does in the machine's memory: floors, the peak of a load, copies kept and made, `trim_host`, and growth that nobody leased. */
import type { Effect } from '../../../broker/core/effects.js';
import { bytesOn, forget, type HostedModel } from './hosted.js';
import type { Hosting } from './hosting.js';

type Trim = Extract<Effect, { type: 'trim_host' }>;

/** How far a load has come there: a share of its peak, the copy included. */
export function climbMemory(host: Hosting, model: HostedModel, share: number): boolean {
  const { memory } = model.spec;
  if (memory === null || host.world.memory === null) return true;
  return host.takeMemory(model, Math.floor(Math.max(memory.neededBytes + keptBytes(host, model), memory.peakBytes) * share));
}

/** Loaded: the peak is given back, what is needed and the copy stay. */
export function settleMemory(host: Hosting, model: HostedModel): void {
  const { memory } = model.spec;
  if (memory === null || host.world.memory === null) return;
  model.hostBytes = keptBytes(host, model);
  host.takeMemory(model, memory.neededBytes + model.hostBytes);
}

function keptBytes(host: Hosting, model: HostedModel): number {
  const { memory, parkable } = model.spec;
  const keeps = parkable && memory !== null && memory.asked.copyBytes > 0 && (model.keepCopy || host.behaviour.keepsUnasked);
  return keeps ? memory.copyBytes : 0;
}

/** A park without a copy makes one, which takes more for a moment than is kept. */
export function beginCopy(host: Hosting, model: HostedModel): boolean {
  const { memory } = model.spec;
  if (memory === null || host.world.memory === null || model.hostBytes > 0) return true;
  return host.takeMemory(model, memory.neededBytes + memory.parkPeakBytes);
}

export function endCopy(host: Hosting, model: HostedModel): void {
  const { memory } = model.spec;
  if (memory === null || host.world.memory === null) return;
  model.hostBytes = memory.copyBytes;
  host.takeMemory(model, memory.neededBytes + memory.copyBytes);
}

/** It stays on its card after all. */
export function dropCopyInMaking(host: Hosting, model: HostedModel): void {
  const { memory } = model.spec;
  if (memory !== null && host.world.memory !== null) host.takeMemory(model, memory.neededBytes + model.hostBytes);
}

/** Unloaded: everything goes but what this process never gives back. */
export function leaveMemory(host: Hosting, model: HostedModel): void {
  if (host.world.memory === null) return;
  host.takeMemory(model, 0);
  host.grow(host.behaviour.growthBytes);
}

export function obeyTrim(host: Hosting, trim: Trim): void {
  if (host.behaviour.ignoresCommands) return;
  const model = host.byLease(trim.lease);
  if (model === null) {
    host.answer(trim.command, { kind: 'failed', code: 'lease_unknown', message: 'not here', residentBytes: 0 });
    return;
  }
  const isMoving = model.door?.begun === true;
  if (isMoving || (model.state !== 'resident' && model.state !== 'parked')) {
    host.answer(trim.command, { kind: 'failed', code: 'move_failed', message: 'it moves', residentBytes: residentOn(model, trim.lease) });
  } else if (model.state === 'parked' && (model.queue.length > 0 || model.asking !== null)) {
    host.answer(trim.command, { kind: 'busy', inFlight: model.queue.length });
  } else if (trim.bytes !== null && host.shrink(trim.bytes)) {
    host.answer(trim.command, { kind: 'done', target: 'device', freedBytes: trim.bytes, residentBytes: residentOn(model, trim.lease), hostBytes: hostOn(model, trim.lease) });
  } else if (model.spec.memory?.fixed === true && model.state === 'resident') {
    host.answer(trim.command, { kind: 'unsupported', message: 'its copy is a part of it' });
  } else {
    host.later(host.world.random.int(1, 60), () => giveCopyBack(host, model, trim));
  }
}

function giveCopyBack(host: Hosting, model: HostedModel, trim: Trim): void {
  const wasParked = model.state === 'parked';
  if (host.byLease(trim.lease) !== model || model.door?.begun === true || (model.state !== 'resident' && !wasParked)) {
    host.answer(trim.command, { kind: 'failed', code: 'move_failed', message: 'it moves', residentBytes: residentOn(model, trim.lease) });
    return;
  }
  const freedBytes = hostOn(model, trim.lease);
  if (!host.behaviour.ackLies) host.takeMemory(model, wasParked ? 0 : (model.spec.memory?.neededBytes ?? 0));
  model.hostBytes = 0;
  // Of several cards the first order takes the whole copy; those that follow find nothing more.
  if (!wasParked && freedBytes > 0) host.reportResidency(model, false, null);
  host.answer(trim.command, { kind: 'done', target: wasParked ? 'none' : 'device', freedBytes, residentBytes: residentOn(model, trim.lease), hostBytes: 0 });
  if (!wasParked) return;
  for (const { lease } of model.slices) if (lease !== null && lease !== trim.lease) host.say({ type: 'lease_released', lease, cause: 'unloaded', failure: null });
  forget(model);
}

function residentOn(model: HostedModel, lease: string): number {
  return model.slices.find((slice) => slice.lease === lease)?.takenBytes ?? 0;
}

function hostOn(model: HostedModel, lease: string): number {
  const slice = model.slices.find((each) => each.lease === lease);
  return slice === undefined ? 0 : bytesOn(model.hostBytes, slice);
}
