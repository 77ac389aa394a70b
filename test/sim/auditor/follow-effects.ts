/** Writes what the core decided into the book, one effect at a time, after the rules have looked at it. */
import type { Check, EffectOf } from './check.js';
import type { Book } from './book.js';
import { newProcess } from './new-process.js';
import { followMemoryGrant } from './follow-memory.js';
import { unexplainedBytes } from './known-room.js';
import { sumOf, withHeadroom, type AuditedCommand, type AuditedLease, type AuditedRequest } from './records.js';
import type { Effect } from '../../../broker/core/effects.js';

export function followEffect(check: Check, effect: Effect): void {
  const { book } = check;
  switch (effect.type) {
    case 'grant':
      followGrant(check, effect);
      return;
    case 'wait': {
      const request = book.request(effect.generation, effect.request);
      if (request !== null) followWait(check, effect, request);
      return;
    }
    case 'placed': {
      const worker = book.process(effect.worker);
      if (worker !== null) worker.lastUsefulUs = book.nowUs;
      answered(book, effect);
      return;
    }
    case 'deny':
      noteSpawnFailure(check, effect);
      answered(book, effect);
      return;
    case 'acknowledge':
    case 'fail':
    case 'report_evicted':
      answered(book, effect);
      return;
    case 'spawn':
      book.processes.set(effect.generation, newProcess(book, effect.generation, 'worker', effect.engine, effect.devices));
      return;
    case 'terminate': {
      const process = book.process(effect.generation);
      if (process !== null) process.state = 'ending';
      return;
    }
    case 'move':
    case 'recall':
    case 'list_models':
    case 'trim_host':
      followCommand(check, effect);
      return;
    case 'cancel_command': {
      const command = book.commands.get(effect.command);
      if (command !== undefined) command.cancelled = true;
      return;
    }
    case 'publish': {
      const loaded = effect.name === 'loaded' ? book.leases.get(String(effect.data['lease'])) : undefined;
      if (loaded !== undefined) loaded.shownBytes = Number(effect.data['chargedBytes']);
      return;
    }
    case 'lease_quarantined':
    case 'sample':
    case 'explain':
  }
}

/** Where it waits: in a card's queue, or for a worker that has been started (for it, when it is the first). */
function followWait({ book, records }: Check, effect: EffectOf<'wait'>, request: AuditedRequest): void {
  request.waits++;
  request.waitsFor = effect.reason;
  const record = effect.explain === null ? undefined : records.get(effect.explain);
  const started = /^\S+ waits for (\S+) to be ready$/.exec(record?.text ?? '')?.[1] ?? null;
  request.startsIn = started;
  request.queuedOn = started === null ? (record?.device ?? null) : null;
  // Once ended for it, a place is its own until it has one, whatever else it waits for in between.
  request.awaitsEnd = started === null && (request.awaitsEnd || record?.text.startsWith('the limit of worker processes is reached') === true);
  const worker = started === null ? null : book.process(started);
  if (worker !== null) worker.startedFor ??= request.generation;
}

/** A worker that did not come up counts against the models that waited for it, on the cards where it would have run. */
function noteSpawnFailure({ book, spawnFailures }: Check, effect: EffectOf<'deny'>): void {
  if (effect.code !== 'spawn_failed') return;
  const request = book.request(effect.generation, effect.request);
  if (request === null) return;
  for (const device of book.processes.get(request.startsIn ?? '')?.devices ?? []) spawnFailures.add(`${device} ${request.model}`);
}

function answered(book: Book, effect: EffectOf<'placed' | 'deny' | 'acknowledge' | 'fail' | 'report_evicted'>): void {
  if (effect.request === null) return;
  const request = book.request(effect.generation, effect.request);
  if (request === null) return;
  book.closeRequest(request);
  if (request.kind === 'pin' && effect.type === 'acknowledge') book.pins.set(request.model, request.pinned);
}

function followGrant(check: Check, effect: EffectOf<'grant'>): void {
  const { book } = check;
  const request = book.request(effect.generation, effect.request);
  if (request === null) return;
  followMemoryGrant(book, effect, request);
  book.closeRequest(request);
  for (const { lease, chargedBytes } of effect.also ?? []) followResizedToo(book, request, lease, chargedBytes);
  const lease = book.leases.get(effect.lease);
  if (lease === undefined) {
    book.leases.set(effect.lease, newLease(check, request, effect));
    return;
  }
  lease.shortBytes = shortOf(lease, request);
  lease.parts = mergeParts(lease, request.parts);
  // Of a model that is partly away only what it has and what it was given is sure.
  const mergedBytes = lease.shortBytes > 0 ? lease.residentBytes : withHeadroom(sumOf(lease.parts));
  // A resize downwards is charged as before until it has been seen, and then less.
  lease.promiseBytes = request.kind === 'resize' || lease.shortBytes > 0 ? Math.min(mergedBytes, effect.chargedBytes) : effect.chargedBytes;
  Object.assign(lease, { grantedBytes: effect.chargedBytes, raisedAtUs: null });
  lease.growing = lease.stage === 'resident' && effect.chargedBytes > lease.shownBytes;
  if (lease.growing) lease.growingSinceUs = book.nowUs;
  lease.shownBytes = effect.chargedBytes;
  lease.ttlMs = request.kind === 'resize' ? lease.ttlMs : request.ttlMs;
  lease.class = request.kind === 'resize' ? lease.class : request.class;
  lease.pinned = request.kind === 'resize' ? lease.pinned : request.pinned;
  if (lease.stage === 'parked') Object.assign(lease, { stage: 'granted', peakBytes: request.askedBytes, grantedAtUs: book.nowUs, besideBytes: unexplainedBytes(check, lease.device, lease.generation), refusedStops: 0 });
}

/** Another lease of the same resize. */
function followResizedToo(book: Book, request: AuditedRequest, id: string, chargedBytes: number): void {
  const lease = book.leases.get(id);
  const parts = request.also.find((change) => change.lease === id)?.parts;
  if (lease === undefined || parts === undefined) return;
  lease.parts = mergeParts(lease, parts);
  const mergedBytes = lease.shortBytes > 0 ? lease.residentBytes : withHeadroom(sumOf(lease.parts));
  lease.promiseBytes = Math.min(mergedBytes, chargedBytes);
  Object.assign(lease, { grantedBytes: chargedBytes, raisedAtUs: null });
  lease.growing = lease.stage === 'resident' && chargedBytes > lease.shownBytes;
  if (lease.growing) lease.growingSinceUs = book.nowUs;
  lease.shownBytes = chargedBytes;
}

/** What partial evictions freed of it stays away, unless the whole model is asked for again. */
export function shortOf(lease: AuditedLease, request: AuditedRequest): number {
  const isWhole = lease.stage === 'parked' || request.parts.some((part) => part.kind === 'weights');
  return isWhole ? 0 : Math.min(lease.shortBytes, sumOf(lease.parts));
}

/** The parts of a lease after a request has extended it; a parked one begins anew with what is asked. */
export function mergeParts(lease: AuditedLease, asked: AuditedLease['parts']): AuditedLease['parts'] {
  const byName = new Map((lease.stage === 'parked' ? [] : lease.parts).map((part) => [part.name, part]));
  for (const part of asked) {
    if (part.bytes === 0) byName.delete(part.name);
    else byName.set(part.name, part);
  }
  return [...byName.values()];
}

function newLease(check: Check, request: AuditedRequest, effect: EffectOf<'grant'>): AuditedLease {
  const { book } = check;
  return {
    lease: effect.lease, model: request.model, generation: effect.generation, device: effect.device, gang: request.gang?.key ?? null, gangSize: request.gang?.size ?? 1, class: request.class, stage: 'granted', parts: request.parts,
    peakBytes: request.askedBytes, promiseBytes: effect.chargedBytes, shownBytes: effect.chargedBytes, residentBytes: 0, pinned: request.pinned, revived: book.closedLeases.get(effect.lease)?.revived === true, neverCame: false, profilesFreeMemory: request.profilesFreeMemory,
    grantedAtUs: book.nowUs, besideBytes: unexplainedBytes(check, effect.device, effect.generation), loadedAtUs: 0, loadPromiseBytes: 0, grantedBytes: effect.chargedBytes, raisedAtUs: null, parkedAtUs: 0, shortBytes: 0, growing: false, growingSinceUs: 0, refusedStops: 0, isLeftToReading: false, blamed: false, isQuarantined: false, inFlight: 0, queued: 0, usedAtUs: book.nowUs, useSeq: -1, ttlMs: request.ttlMs,
  };
}

function followCommand(check: Check, effect: EffectOf<'move' | 'recall' | 'list_models' | 'trim_host'>): void {
  const { book } = check;
  const leaseId = effect.type === 'list_models' ? null : effect.lease;
  const lease = leaseId === null ? undefined : book.leases.get(leaseId);
  const kinds = { move: 'move', recall: 'recall', list_models: 'list', trim_host: 'trim' } as const;
  const command: AuditedCommand = {
    command: effect.command, kind: kinds[effect.type], generation: effect.generation, lease: leaseId, model: lease?.model ?? null, device: lease?.device ?? null,
    isWhole: effect.type === 'move' && effect.bytes === null,
    freesBytes: effect.type === 'move' && lease !== undefined ? (effect.bytes ?? lease.promiseBytes) : 0, when: effect.type === 'move' ? effect.when : null,
    sentAtUs: book.nowUs, attendedMaxUs: book.clock.mostUs, beneficiary: leaseId === null ? null : (check.beneficiaries.get(leaseId) ?? null),
    answered: false, answeredAtUs: 0, settled: false, draining: false, cancelled: false,
  };
  book.commands.set(effect.command, command);
  if (command.kind !== 'move' || command.beneficiary === null || leaseId === null) return;
  book.requests.get(command.beneficiary)?.victims.add(leaseId);
}
