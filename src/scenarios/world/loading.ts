/** From "may I?" to resident: the request, the grant, the bytes, the report; and every way it fails. */
import type { Effect } from '../../../broker/core/effects.js';
import type { LeasePart } from '../../../protocol/index.js';
import { ask } from './asking.js';
import { contextOn } from './calls.js';
import type { Call } from './context.js';
import { endAllCalls, forget, higherClass, isLeased, leadLease, leak, shareOf, sumBytes, takenBytes, type Asking, type HostedModel, type Slice } from './hosted.js';
import type { Hosting } from './hosting.js';
import { climbMemory, leaveMemory, settleMemory } from './memory.js';

type Grant = Extract<Effect, { type: 'grant' }>;

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
  ask(host, model, { kind: 'load', class: wanted, deadlineUs, call: null });
}

export function loadFromGrant(host: Hosting, grant: Grant): void {
  const model = host.asked.get(grant.request);
  // Lost inside, before anything was made of it: it waits on, as if nothing had come.
  const isNews = model?.asking?.kind === 'load' && (model.state === 'absent' || model.state === 'parked');
  if (isNews && host.world.random.chance(host.behaviour.losesGrants)) return;
  host.asked.delete(grant.request);
  const asking = model?.asking;
  const slice = asking?.requests.get(grant.request);
  if (model === undefined || asking === undefined || asking === null || slice === undefined) {
    // An id asked again while its answer was on the way is answered again, with the same lease.
    if (host.byLease(grant.lease) !== null) return;
    // Taken back before the grant arrived.
    host.say({ type: 'lease_released', lease: grant.lease, cause: 'cancelled', failure: null });
    return;
  }
  asking.granted.set(slice, { lease: grant.lease, chargedBytes: grant.chargedBytes, keepCopy: grant.keepCopy });
  for (const { lease, chargedBytes } of grant.also ?? []) for (const other of model.slices) if (other.lease === lease) other.chargedBytes = chargedBytes;
  if (asking.granted.size === asking.requests.size) useGrants(host, model, asking);
}

/** All that was asked for has been granted. */
function useGrants(host: Hosting, model: HostedModel, asking: Asking): void {
  model.asking = null;
  for (const [slice, { chargedBytes }] of asking.granted) slice.chargedBytes = chargedBytes;
  if (asking.kind === 'load' && model.state === 'absent') model.keepCopy = [...asking.granted.values()].every(({ keepCopy }) => keepCopy ?? true);
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
  const isNew = [...asking.granted].some(([slice, { lease }]) => slice.lease !== lease);
  if (isNew) model.gang = asking.gang === null ? null : { gang: asking.gang, size: asking.granted.size };
  for (const [slice, { lease }] of asking.granted) slice.lease = lease;
  model.class = asking.class;
  if (model.queue.length === 0 && host.world.random.chance(0.5)) {
    for (const slice of model.slices) {
      if (slice.lease !== null) host.say({ type: 'lease_released', lease: slice.lease, cause: 'unused', failure: null });
      slice.lease = null;
    }
    return;
  }
  model.begun = false;
  const lead = leadLease(model);
  model.granted = asking;
  host.later(host.behaviour.beginsLateMs, () => {
    if (lead !== null && model.granted === asking) begin(host, model, lead);
  });
}

/** Whoever granted it is gone before anything was made of it. */
export function voidGrant(model: HostedModel): void {
  if (model.granted === null) return;
  model.granted = null;
  if (model.state === 'absent') forget(model);
}

function begin(host: Hosting, model: HostedModel, lead: string): void {
  const resuming = model.state === 'parked';
  model.begun = true;
  model.granted = null;
  model.state = resuming ? 'resuming' : 'loading';
  host.world.counters.loads++;
  for (const slice of model.slices) if (slice.lease !== null) host.say({ type: 'load_begun', lease: slice.lease });
  host.reportUse(model);
  const { spec } = model;
  const loadMs = Math.max(1, Math.floor(resuming ? spec.loadMs / 5 : spec.loadMs));
  const fails = host.world.random.chance(Math.max(spec.loadFails, host.behaviour.loadFails));
  host.later(loadMs * 0.3, () => climb(host, model, lead, 0.4, resuming ? 0 : 0.5));
  model.hangs = host.behaviour.loadHangs > 0 && host.world.random.chance(host.behaviour.loadHangs);
  if (model.hangs) return;
  host.later(loadMs * 0.7, () => (fails ? failLoad(host, model, lead, 'load_failed') : climb(host, model, lead, 1, resuming ? 0 : 1)));
  host.later(loadMs, () => arrive(host, model, lead, loadMs));
}

/** What the engine takes up front on a card; parts that grow start at a quarter. */
function partsTaken(host: Hosting, model: HostedModel, slice: Slice): readonly LeasePart[] {
  const factor = host.behaviour.takesFactor;
  return shareOf(model.spec.trueParts, slice.share).map((part) => ({ ...part, bytes: Math.floor((part.upFront ? part.bytes * factor : part.bytes / 4)) }));
}

function peakOn(host: Hosting, model: HostedModel, slice: Slice): number {
  return Math.max(sumBytes(partsTaken(host, model, slice)), Math.floor(model.spec.truePeakBytes * slice.share * host.behaviour.takesFactor));
}

function isLoading(model: HostedModel, lead: string): boolean {
  return leadLease(model) === lead && (model.state === 'loading' || model.state === 'resuming');
}

function climb(host: Hosting, model: HostedModel, lead: string, fraction: number, memoryShare: number): void {
  if (!isLoading(model, lead) || (memoryShare > 0 && !climbMemory(host, model, memoryShare))) return;
  for (const slice of model.slices) {
    if (host.allocate(model, slice, Math.floor(peakOn(host, model, slice) * fraction) - slice.takenBytes)) continue;
    failLoad(host, model, lead, 'out_of_memory');
    return;
  }
}

function arrive(host: Hosting, model: HostedModel, lead: string, loadMs: number): void {
  if (!isLoading(model, lead)) return;
  for (const slice of model.slices) {
    slice.parts = partsTaken(host, model, slice);
    host.free(slice, slice.takenBytes - sumBytes(slice.parts));
  }
  host.takeResidual();
  const resumed = model.state === 'resuming';
  model.state = 'resident';
  if (host.world.memory === null) model.hostBytes = model.spec.parkable ? takenBytes(model) : 0;
  else if (!resumed) settleMemory(host, model);
  host.reportResidency(model, true, loadMs);
  host.pump(model);
  host.reportUse(model);
}

function failLoad(host: Hosting, model: HostedModel, lead: string, code: 'load_failed' | 'out_of_memory'): void {
  if (!isLoading(model, lead)) return;
  const leases = model.slices.map((slice) => slice.lease);
  for (const slice of model.slices) {
    if (host.behaviour.leaksOnFailure) leak(slice, Math.floor(slice.takenBytes * 0.7));
    host.free(slice, slice.takenBytes);
  }
  leaveMemory(host, model);
  forget(model);
  for (const lease of leases) if (lease !== null) host.say({ type: 'lease_released', lease, cause: 'load_failed', failure: { code, message: 'the load did not end well' } });
  endAllCalls(model, code);
}

function growInto(host: Hosting, model: HostedModel, call: Call): void {
  for (const slice of model.slices) {
    const grown = slice.parts.map((part) => (part.kind === 'context' ? { ...part, bytes: Math.floor(part.bytes * 1.3) } : part));
    if (!host.allocate(model, slice, sumBytes(grown) - sumBytes(slice.parts))) {
      giveUpGrowth(host, model);
      host.endCall(model, call, 'out_of_memory');
      return;
    }
    slice.parts = grown;
  }
  if (isLeased(model)) host.reportResidency(model, true, null);
}

function addContext(host: Hosting, model: HostedModel): void {
  const first = model.spec.trueParts.find((part) => part.kind === 'context');
  if (!isLeased(model) || model.state !== 'resident' || first === undefined) return;
  model.contexts++;
  sayBegun(host, model);
  for (const slice of model.slices) {
    const [extra] = shareOf([{ ...first, name: `context:${model.contexts}`, upFront: true }], slice.share);
    if (extra === undefined) continue;
    if (!host.allocate(model, slice, extra.bytes)) {
      giveUpGrowth(host, model);
      return;
    }
    slice.parts = [...slice.parts, extra];
  }
  host.reportResidency(model, true, null);
}

function sayBegun(host: Hosting, model: HostedModel): void {
  for (const slice of model.slices) if (slice.lease !== null) host.say({ type: 'load_begun', lease: slice.lease });
}

/** Nothing more was taken: the model is as it is. */
function giveUpGrowth(host: Hosting, model: HostedModel): void {
  if (isLeased(model)) host.reportResidency(model, true, null);
}

/** The old contexts go, the larger one comes; the waiting call then finds it. */
function replaceContexts(host: Hosting, model: HostedModel, call: Call): void {
  if (!isLeased(model) || model.state !== 'resident' || call.contextBytes === null) return;
  sayBegun(host, model);
  model.contexts++;
  for (const slice of model.slices) {
    const kept = slice.parts.filter((part) => part.kind !== 'context');
    const oldBytes = sumBytes(slice.parts) - sumBytes(kept);
    const bytes = contextOn(slice, call) ?? 0;
    // Inside one process the allocator uses again what it has; only the rest is taken.
    if (!host.allocate(model, slice, bytes - oldBytes)) {
      giveUpGrowth(host, model);
      host.endCall(model, call, 'out_of_memory');
      return;
    }
    slice.parts = [...kept, { name: `context:${model.contexts}`, kind: 'context', bytes, upFront: true }];
  }
  host.reportResidency(model, true, null);
  host.pump(model);
  host.reportUse(model);
}

export function obeyRecall(host: Hosting, command: number, lease: string): void {
  if (host.behaviour.ignoresCommands) return;
  const model = host.byLease(lease);
  const begun = model?.begun ?? false;
  host.say({ type: 'recall_answered', command, lease, begun });
  if (begun) return;
  for (const { asking } of host.models.values()) {
    for (const [slice, granted] of asking?.granted ?? []) if (granted.lease === lease) asking?.granted.delete(slice);
  }
  if (model === null) return;
  forget(model);
  host.pump(model);
}
