/** Processes that lost their broker: those on record with a new one, and those whose connection alone was lost; until they have said what they hold. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { ModelState } from '../../../protocol/index.js';
import type { Book } from './book.js';
import { takeInMemory } from './memory-book.js';
import { hear, newProcess } from './new-process.js';
import { withHeadroom, type AuditedLease, type AuditedProcess, type LeaseStage } from './records.js';

type Of<K extends CoreEvent['type']> = Extract<CoreEvent, { type: K }>;

export function followRecorded(book: Book, event: Of<'process_recorded'>): void {
  const before = book.formerProcesses.get(event.generation);
  const process = newProcess(book, event.generation, event.role, event.engine, event.role === 'worker' ? event.devices : []);
  book.processes.set(event.generation, {
    ...process, state: 'away', connected: false, closes: book.memory === null ? event.devices : [...event.devices, book.memory.device], onRecord: event.devices, waitedForSince: now(book),
    floors: new Map(process.devices.map((device) => [device, event.floors.find((floor) => floor.device === device)?.bytes ?? 0])),
    awayFloors: new Map(event.floors.map(({ device, bytes }) => [device, bytes])),
    misbehaviour: before?.misbehaviour ?? 0, commandFailures: before?.commandFailures ?? 0,
  });
  const memoryBytes = event.floors.find((floor) => floor.device === book.memory?.device)?.bytes ?? 0;
  if (memoryBytes === 0 || event.role !== 'worker') return;
  book.memory?.floors.set(event.generation, { bytes: memoryBytes, sinceUs: event.atUs, isWhole: true });
  // What it has beyond that is none of its floor any more.
  book.memory?.hadLease.add(event.generation);
}

/** A card that was not there comes to light: who may hold something there has not said what. */
export function followFound(book: Book, device: string): void {
  for (const process of book.processes.values()) {
    if (process.state === 'gone' || !process.onRecord.includes(device)) continue;
    process.closes = [...new Set([...process.closes, device])];
    if (process.state !== 'ready') continue;
    process.state = 'away';
    process.waitedForSince = now(book);
  }
}

/** Ids count anew with the next connection, and nothing asked over this one is answered. */
export function followLoss(book: Book, process: AuditedProcess): void {
  const { generation } = process;
  book.voidRequests(generation);
  for (const key of book.answeredRequests) if (key.startsWith(`${generation}#`)) book.answeredRequests.delete(key);
  for (const command of book.commands.values()) if (command.generation === generation) command.answered = true;
  for (const lease of book.leasesOf(generation)) lease.refusedStops = 0;
  if (process.state !== 'ready' && process.state !== 'away') return;
  process.state = 'away';
  process.waitedForSince = now(book);
}

export function followResumed(book: Book, { generation }: Of<'process_resumed'>): void {
  // A holder without leases is nobody's any more, and is one of ours again with its return.
  if (!book.processes.has(generation)) book.processes.set(generation, { ...newProcess(book, generation, 'holder', null, []), state: 'away' });
  const process = book.process(generation);
  if (process === null) return;
  process.connected = true;
  hear(book, process);
  if (process.state === 'away') process.waitedForSince = now(book);
}

/** It has said everything: of one that an earlier broker knew, this is all that is known. */
export function followReturn(book: Book, event: Of<'models_announced'>): void {
  const process = book.process(event.generation);
  if (process?.state !== 'away' || !process.connected) return;
  for (const state of event.models) {
    const device = state.device ?? process.devices[0] ?? null;
    const isNews = process.closes.length > 0 && state.lease !== null && state.state !== 'absent' && !book.leases.has(state.lease) && (book.ownerOf(state.lease) ?? process.generation) === process.generation;
    if (isNews && device !== null && book.cards.has(device)) takeIn(book, process, state, state.lease, device);
  }
  // All that is told is known now, and no more is charged on suspicion.
  if (book.memory !== null) book.memory.mayFall = true;
  process.state = 'ready';
  if (process.closes.length > 0) book.lastReturnUs = book.nowUs;
  process.closes = [];
  process.waitedForSince = null;
}

const stages: Readonly<Record<ModelState['state'], LeaseStage>> = {
  absent: 'closed', loading: 'loading', resuming: 'loading', resident: 'resident', parking: 'parked', parked: 'parked', unloading: 'closed',
};

function takeIn(book: Book, process: AuditedProcess, state: ModelState, id: string, device: string): void {
  const { terms, residentBytes } = state;
  const isLeaving = state.state === 'parking' || state.state === 'unloading';
  // Where nothing can be seen to leave its owner says when it has.
  const stays = isLeaving && isSurelyUnwatched(book, device);
  const stage = stays ? 'resident' : stages[state.state];
  const chargedBytes = terms?.chargedBytes ?? withHeadroom(residentBytes);
  const promiseBytes = state.state === 'parked' ? residentBytes : Math.max(chargedBytes, residentBytes);
  const lease: AuditedLease = {
    lease: id, model: state.model, generation: process.generation, device, gang: terms?.gang === undefined ? null : `${process.generation} ${terms.gang.gang}`, gangSize: terms?.gang?.size ?? 1, class: terms?.class ?? 'normal', stage, parts: terms?.parts ?? [], peakBytes: 0,
    promiseBytes, shownBytes: Math.max(promiseBytes, withHeadroom(residentBytes)), residentBytes, pinned: terms?.policy.pinned ?? false, revived: false, neverCame: false, profilesFreeMemory: process.profilesFreeMemory,
    grantedAtUs: book.nowUs, besideBytes: 0, loadedAtUs: book.nowUs, loadPromiseBytes: promiseBytes, grantedBytes: promiseBytes, raisedAtUs: null, parkedAtUs: book.nowUs, shortBytes: 0, growing: false, growingSinceUs: 0, refusedStops: 0, isLeftToReading: false, blamed: false,
    isQuarantined: false, inFlight: state.inFlight, queued: 0, usedAtUs: book.nowUs, useSeq: -1, ttlMs: terms?.policy.ttlMs ?? null,
  };
  book.leases.set(id, lease);
  book.formerLeases.delete(id);
  book.turns.grantedUs.set(id, book.clock.mostUs);
  if (book.memory !== null && (stays || state.state !== 'unloading')) takeInMemory(book.memory, lease, state, book.nowUs);
  if (stays || !isLeaving) return;
  if (state.state === 'unloading') {
    // With a reading that is there and fails, either may be so.
    lease.revived = book.isLedgerOnly(device);
    book.closeLease(lease, residentBytes);
    return;
  }
  // On its way out already: the word that it has arrived takes nothing more away.
  lease.promiseBytes = 0;
  lease.residentBytes = 0;
  book.depart(device, process.generation, residentBytes, null);
}

function isSurelyUnwatched(book: Book, device: string): boolean {
  const card = book.cards.get(device);
  const isOld = card?.sample === undefined || card.sample === null || book.nowUs - card.sample.takenAtUs > book.options.limits.sampleMaxAgeMs * 1_000;
  return card?.confirms === 'none' || (isOld && book.isLedgerOnly(device));
}

function now(book: Book): AuditedProcess['waitedForSince'] {
  return { leastUs: book.clock.leastUs, mostUs: book.clock.mostUs };
}
