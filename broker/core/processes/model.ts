/** What the core remembers of a model: where it is hosted, what its loads cost, how often it is used. */
import { companions } from '../gangs/gang.js';
import type { Core, Lease, Model, Process } from '../state.js';
import { likelihoodOfUse, noGaps, soonUs } from '../eviction/use-forecast.js';

/** Above so many remembered models that nobody hosts, old ones are forgotten. */
const modelsMax = 4_096;
/** How many are looked at for each new one: the cost of remembering stays constant. */
const looksMax = 4;
/** A load not measured yet is taken to move a byte at this rate, in bytes a millisecond. */
const assumedBytesPerMs = 1_048_576;
/** What a spawn costs when none of that engine has been measured. */
const assumedSpawnMs = 1_000;
/** A parked copy not measured yet is taken to come back so many times faster than a load. */
const assumedResumeSpeedup = 8;

export function modelOf(core: Core, key: string): Model {
  const known = core.models.get(key);
  if (known !== undefined) return known;
  if (core.models.size >= modelsMax + core.leases.size) forgetOld(core);
  const model: Model = { key, hosts: new Set(), loadMs: null, resumeMs: null, gaps: noGaps(), lastUsedUs: null, pinned: null, askedBytes: [] };
  core.models.set(key, model);
  return model;
}

/** Takes an operator's word on a model, loaded or not; false: too many are remembered already. */
export function setPinned(core: Core, key: string, pinned: boolean): boolean {
  if (!core.models.has(key) && countPins(core) >= core.options.limits.pinnedModelsMax) return false;
  modelOf(core, key).pinned = pinned;
  return true;
}

function countPins(core: Core): number {
  let pins = 0;
  for (const { pinned } of core.models.values()) if (pinned !== null) pins++;
  return pins;
}

function forgetOld(core: Core): void {
  let looks = 0;
  for (const [key, model] of core.models) {
    core.models.delete(key);
    if (model.hosts.size === 0 && model.pinned === null) return;
    // Still wanted: it goes to the end, to be looked at again after all others.
    core.models.set(key, model);
    if (++looks >= looksMax) return;
  }
}

/** The process hosts the model of one lease more. */
export function attachLease(core: Core, process: Process, lease: Lease): void {
  const entry = process.models.get(lease.model);
  if (entry === undefined) process.models.set(lease.model, { leases: [lease.id], promisedUntilUs: null });
  else {
    entry.leases.push(lease.id);
    if (entry.promisedUntilUs !== null) core.timers.drop('assignment', assignmentKey(process.generation, lease.model));
    entry.promisedUntilUs = null;
  }
  modelOf(core, lease.model).hosts.add(process.generation);
}

/** The process is promised a model until a moment: somebody may come with a ticket. */
export function promise(core: Core, process: Process, key: string, untilUs: number): void {
  const entry = process.models.get(key);
  if (entry === undefined) process.models.set(key, { leases: [], promisedUntilUs: untilUs });
  else entry.promisedUntilUs = untilUs;
  core.timers.set('assignment', assignmentKey(process.generation, key), untilUs);
  modelOf(core, key).hosts.add(process.generation);
}

/** One lease fewer. */
export function detachLease(core: Core, process: Process, lease: Lease): void {
  const entry = process.models.get(lease.model);
  if (entry === undefined) return;
  const place = entry.leases.indexOf(lease.id);
  if (place >= 0) entry.leases.splice(place, 1);
  leaveModel(core, process, lease.model, entry);
}

/** What a model needs on each card of its process, for whoever asks where it should run without knowing that. */
export function noteAsked(core: Core, process: Process, asked: { readonly model: string; readonly device: string; readonly requestedBytes: number }, cards: number): void {
  const place = cards === 1 ? 0 : [...process.devices].sort().indexOf(asked.device);
  if (place < 0 || place >= cards) return;
  const model = modelOf(core, asked.model);
  const bytes = model.askedBytes.length === cards ? [...model.askedBytes] : Array<number>(cards).fill(0);
  bytes[place] = asked.requestedBytes;
  model.askedBytes = bytes;
}

/** It can never be there: whoever comes next is placed anew. */
export function neverHere(core: Core, generation: string, key: string): void {
  const process = core.processes.get(generation);
  if (process?.role === 'worker') breakPromise(core, process, key);
}

/** Nobody came with the ticket. */
export function breakPromise(core: Core, process: Process, key: string): void {
  const entry = process.models.get(key);
  if (entry === undefined) return;
  entry.promisedUntilUs = null;
  leaveModel(core, process, key, entry);
}

function leaveModel(core: Core, process: Process, key: string, entry: { readonly leases: readonly string[]; readonly promisedUntilUs: number | null }): void {
  if (entry.leases.length > 0 || entry.promisedUntilUs !== null) return;
  process.models.delete(key);
  core.models.get(key)?.hosts.delete(process.generation);
}

export function assignmentKey(generation: string, model: string): string {
  return `${generation} ${model}`;
}

/** Expected cost of putting a lease away: the time to bring it back, as expected, and as much again for each call that it keeps up. */
export function returnCostMs(core: Core, lease: Lease, parks: boolean): number {
  return expectedReloadMs(core, lease, parks) * (1 + lease.inFlight + lease.queued);
}

/** Its reload (or resume) time, times the likelihood of use soon. */
export function expectedReloadMs(core: Core, lease: Lease, parks: boolean): number {
  const model = core.models.get(lease.model);
  return reloadMs(core, model, lease, parks) * (lease.inFlight + lease.queued > 0 ? 1 : likelihoodOf(core, model, lease));
}

/**
 * Expected cost of losing the copy of a model that is on its card: it is paid only if the model is put away and then
 * wanted. Both are likely of none: what is used all the time stays, and what nobody uses is not wanted.
 */
export function copyLossMs(core: Core, lease: Lease): number {
  const model = core.models.get(lease.model);
  const likelihood = lease.inFlight + lease.queued > 0 ? 1 : likelihoodOf(core, model, lease);
  return Math.max(0, reloadMs(core, model, lease, false) - reloadMs(core, model, lease, true)) * likelihood * (1 - likelihood);
}

function reloadMs(core: Core, model: Model | undefined, lease: Lease, parks: boolean): number {
  const loadMs = model?.loadMs ?? loadedBytes(core, lease) / assumedBytesPerMs;
  return parks ? (model?.resumeMs ?? loadMs / assumedResumeSpeedup) : loadMs;
}

/** That it is used soon, by how it was used before. */
function likelihoodOf(core: Core, model: Model | undefined, lease: Lease): number {
  return model === undefined ? 1 : likelihoodOfUse(core.pace, model.gaps, Math.max(0, core.attendedUs - lease.lastUsedUs), soonUs(core.pace));
}

/** A model over several cards comes and goes as a whole. Of a parked one nothing is charged there any more: its copy tells its size. */
function loadedBytes(core: Core, lease: Lease): number {
  let bytes = 0;
  for (const { charge, hostBytes } of companions(core, lease)) bytes += Math.max(charge.chargedBytes, hostBytes);
  return bytes;
}

/** Expected cost of starting a worker of that engine anew. */
export function spawnCostMs(core: Core, engine: string | null): number {
  return core.spawnMs.get(engine ?? '') ?? assumedSpawnMs;
}
