/** From "may I?" to resident: the request, the grant, the bytes, the report; and every way it fails. */
import type { LeasePart } from '../../../protocol/index.js';
import { ask } from './asking.js';
import type { Call } from './context.js';
import { endAllCalls, forget, higherClass, leak, sumBytes, type Grant, type HostedModel } from './hosted.js';
import type { Hosting } from './hosting.js';

export function askForRoom(host: Hosting, model: HostedModel): void {
  const first = model.queue[0];
  if (first === undefined || model.asking !== null || host.isEnding) return;
  const { scheduler } = host.world;
  let wanted = first.class;
  let deadlineUs = first.deadlineUs;
  for (const call of model.queue) {
    wanted = higherClass(wanted, call.class);
    deadlineUs = Math.max(deadlineUs, call.deadlineUs);
  }
  if (deadlineUs <= scheduler.coreUs) return;
  ask(host, model, { kind: 'load', class: wanted, deadlineUs, call: null, parts: [] });
}

export function loadFromGrant(host: Hosting, grant: Grant): void {
  const model = host.asked.get(grant.request);
  // Lost inside, before anything was made of it: it waits on, as if nothing had come.
  const isNews = model?.asking?.kind === 'load' && (model.state === 'absent' || model.state === 'parked');
  if (isNews && host.world.random.chance(host.behaviour.losesGrants)) return;
  host.asked.delete(grant.request);
  if (model?.asking?.request !== grant.request) {
    // An id asked again while its answer was on the way is answered again, with the same lease.
    if (host.byLease(grant.lease) !== null) return;
    // Taken back before the grant arrived.
    host.say({ type: 'lease_released', lease: grant.lease, cause: 'cancelled', failure: null });
    return;
  }
  const { asking } = model;
  model.asking = null;
  model.chargedBytes = grant.chargedBytes;
  const isAway = model.state === 'parked' || model.state === 'absent';
  if (asking.kind === 'resize' && asking.call !== null) {
    growInto(host, model, asking.call);
    return;
  }
  if (asking.kind === 'context' && !isAway) {
    addContext(host, model);
    return;
  }
  if (asking.kind === 'switch' && asking.call !== null && !isAway) {
    replaceContexts(host, model, asking.call);
    return;
  }
  model.lease = grant.lease;
  model.class = asking.class;
  if (model.queue.length === 0 && host.world.random.chance(0.5)) {
    model.lease = null;
    host.say({ type: 'lease_released', lease: grant.lease, cause: 'unused', failure: null });
    return;
  }
  model.begun = false;
  model.granted = grant;
  host.later(host.behaviour.beginsLateMs, () => {
    if (model.granted === grant) begin(host, model, grant.lease);
  });
}

/** Whoever granted it is gone before anything was made of it. */
export function voidGrant(model: HostedModel): void {
  if (model.granted === null) return;
  model.granted = null;
  if (model.state === 'absent') forget(model);
}

function begin(host: Hosting, model: HostedModel, lease: string): void {
  const resuming = model.state === 'parked';
  model.begun = true;
  model.granted = null;
  model.state = resuming ? 'resuming' : 'loading';
  host.world.counters.loads++;
  host.say({ type: 'load_begun', lease });
  host.reportUse(model);
  const { spec } = model;
  const loadMs = Math.max(1, Math.floor(resuming ? spec.loadMs / 5 : spec.loadMs));
  const steadyParts = partsTaken(host, model);
  const peakBytes = Math.max(sumBytes(steadyParts), Math.floor(spec.truePeakBytes * host.behaviour.takesFactor));
  const fails = host.world.random.chance(Math.max(spec.loadFails, host.behaviour.loadFails));
  host.later(loadMs * 0.3, () => climb(host, model, lease, Math.floor(peakBytes * 0.4)));
  model.hangs = host.behaviour.loadHangs > 0 && host.world.random.chance(host.behaviour.loadHangs);
  if (model.hangs) return;
  host.later(loadMs * 0.7, () => (fails ? failLoad(host, model, lease, 'load_failed') : climb(host, model, lease, peakBytes)));
  host.later(loadMs, () => arrive(host, model, lease, steadyParts, loadMs));
}

/** What the engine takes up front; parts that grow start at a quarter. */
function partsTaken(host: Hosting, model: HostedModel): readonly LeasePart[] {
  const factor = host.behaviour.takesFactor;
  return model.spec.trueParts.map((part) => ({ ...part, bytes: Math.floor((part.upFront ? part.bytes * factor : part.bytes / 4)) }));
}

function isLoading(model: HostedModel, lease: string): boolean {
  return model.lease === lease && (model.state === 'loading' || model.state === 'resuming');
}

function climb(host: Hosting, model: HostedModel, lease: string, toBytes: number): void {
  if (!isLoading(model, lease)) return;
  if (!host.allocate(model, toBytes - model.takenBytes)) failLoad(host, model, lease, 'out_of_memory');
}

function arrive(host: Hosting, model: HostedModel, lease: string, parts: readonly LeasePart[], loadMs: number): void {
  if (!isLoading(model, lease)) return;
  host.free(model, model.takenBytes - sumBytes(parts));
  host.takeResidual();
  model.state = 'resident';
  model.parts = parts;
  model.hostBytes = model.spec.parkable ? model.takenBytes : 0;
  host.reportResidency(model, lease, parts, loadMs);
  host.pump(model);
  host.reportUse(model);
}

function failLoad(host: Hosting, model: HostedModel, lease: string, code: 'load_failed' | 'out_of_memory'): void {
  if (!isLoading(model, lease)) return;
  if (host.behaviour.leaksOnFailure) leak(model, Math.floor(model.takenBytes * 0.7));
  host.free(model, model.takenBytes);
  forget(model);
  host.say({ type: 'lease_released', lease, cause: 'load_failed', failure: { code, message: 'the load did not end well' } });
  endAllCalls(model, code);
}

function growInto(host: Hosting, model: HostedModel, call: Call): void {
  const grown = model.parts.map((part) => (part.kind === 'context' ? { ...part, bytes: Math.floor(part.bytes * 1.3) } : part));
  const moreBytes = sumBytes(grown) - sumBytes(model.parts);
  if (!host.allocate(model, moreBytes)) {
    giveUpGrowth(host, model);
    host.endCall(model, call, 'out_of_memory');
    return;
  }
  model.parts = grown;
  if (model.lease !== null) host.reportResidency(model, model.lease, grown, null);
}

function addContext(host: Hosting, model: HostedModel): void {
  if (model.lease === null || model.state !== 'resident') return;
  const first = model.spec.trueParts.find((part) => part.kind === 'context');
  if (first === undefined) return;
  model.contexts++;
  const extra = { ...first, name: `context:${model.contexts}`, upFront: true };
  const { lease } = model;
  host.say({ type: 'load_begun', lease });
  if (!host.allocate(model, extra.bytes)) {
    giveUpGrowth(host, model);
    return;
  }
  model.parts = [...model.parts, extra];
  host.reportResidency(model, lease, model.parts, null);
}

/** Nothing was taken: the model is as it was. */
function giveUpGrowth(host: Hosting, model: HostedModel): void {
  if (model.lease !== null) host.reportResidency(model, model.lease, model.parts, null);
}

/** The old contexts go, the larger one comes; the waiting call then finds it. */
function replaceContexts(host: Hosting, model: HostedModel, call: Call): void {
  if (model.lease === null || model.state !== 'resident' || call.contextBytes === null) return;
  const kept = model.parts.filter((part) => part.kind !== 'context');
  const oldBytes = sumBytes(model.parts) - sumBytes(kept);
  const { lease } = model;
  host.say({ type: 'load_begun', lease });
  // Inside one process the allocator uses again what it has; only the rest is taken.
  if (!host.allocate(model, call.contextBytes - oldBytes)) {
    giveUpGrowth(host, model);
    host.endCall(model, call, 'out_of_memory');
    return;
  }
  model.contexts++;
  model.parts = [...kept, { name: `context:${model.contexts}`, kind: 'context', bytes: call.contextBytes, upFront: true }];
  host.reportResidency(model, lease, model.parts, null);
  host.pump(model);
  host.reportUse(model);
}

export function obeyRecall(host: Hosting, command: number, lease: string): void {
  if (host.behaviour.ignoresCommands) return;
  const model = host.byLease(lease);
  const begun = model?.begun ?? false;
  host.say({ type: 'recall_answered', command, lease, begun });
  if (model === null || begun) return;
  forget(model);
  host.pump(model);
}
