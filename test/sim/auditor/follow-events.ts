/** Writes what happened into the book. Reports of dead or foreign generations change nothing. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Book } from './book.js';
import { followAnnouncement, followReport, followUse, park } from './follow-reports.js';
import { followFound, followLoss, followRecorded, followResumed, followReturn } from './follow-returns.js';
import { followRequest } from './follow-requests.js';
import { hear, newProcess } from './new-process.js';
import { floorOn, isOn, type AuditedLease, type AuditedProcess, type Departure } from './records.js';

export function followEvent(book: Book, event: CoreEvent): void {
  book.nowUs = event.atUs;
  book.clock.look(event.atUs);
  if ('generation' in event && event.type !== 'heartbeat' && event.type !== 'use_reported') {
    const speaker = book.process(event.generation);
    if (speaker !== null) speaker.saidAtUs = event.atUs;
  }
  switch (event.type) {
    case 'ticked':
      book.clock.tick(event.atUs);
      return;
    case 'card_added':
    case 'sampled':
    case 'sample_failed':
    case 'card_lost':
      followCard(book, event);
      return;
    case 'process_recorded':
      followRecorded(book, event);
      return;
    case 'process_resumed':
      followResumed(book, event);
      return;
    case 'session_opened':
    case 'session_closed':
    case 'process_ready':
    case 'spawn_failed':
    case 'heartbeat':
    case 'floor_measured':
    case 'process_exited':
    case 'kill_unconfirmed':
      followProcess(book, event);
      return;
    case 'place_requested':
    case 'budget_requested':
    case 'request_cancelled':
    case 'evict_requested':
    case 'pin_requested':
    case 'resize_requested':
      followRequest(book, event);
      return;
    case 'residency_reported':
      followReport(book, event);
      return;
    case 'use_reported':
      followUse(book, event);
      return;
    case 'load_begun':
    case 'recall_answered':
    case 'lease_released':
      followLease(book, event);
      return;
    case 'command_answered':
      followAnswer(book, event);
      return;
    case 'models_announced':
      followAnnouncement(book, event);
      followReturn(book, event);
      return;
    case 'process_ending':
      // It moves no byte: what the core makes of it is an end like any other.
  }
}

type CardEvent = Extract<CoreEvent, { type: 'card_added' | 'sampled' | 'sample_failed' | 'card_lost' }>;

function followCard(book: Book, event: CardEvent): void {
  if (event.type === 'card_added') {
    const { device, totalBytes, reserveBytes, confirms, floorBytes, yieldFreeBytes = null } = event;
    const known = book.cards.get(device);
    if (known !== undefined) {
      known.lostSinceUs = null;
      return;
    }
    followFound(book, device);
    book.cards.set(device, { device, totalBytes, reserveBytes, confirms, floorBytes, yieldFreeBytes, strangers: [], sample: null, lostSinceUs: null, missing: null, unclearAtUs: Number.NEGATIVE_INFINITY, isUnclear: true });
    return;
  }
  const card = book.cards.get(event.device);
  if (card === undefined) return;
  if (event.type === 'card_lost') {
    card.lostSinceUs ??= event.atUs;
    return;
  }
  // Nobody reads a card that is gone; what was on its way then is not taken in.
  if (card.lostSinceUs !== null && event.type === 'sampled') return;
  if (event.type === 'sampled') {
    const figures = new Map(event.processes?.map(({ generation, usedBytes }) => [generation, usedBytes]));
    card.sample = { takenAtUs: event.takenAtUs, usedBytes: event.usedBytes, hasFigures: event.processes !== null, figures };
    card.missing = null;
    seeDepartures(book, event.device, event.takenAtUs);
    if (event.processes !== null) seeFloors(book, event.device, figures);
    for (const [generation, bytes] of figures) seeAway(book, event.device, generation, bytes);
  } else {
    card.missing ??= { reading: event.reading, sinceUs: event.atUs };
  }
}

function seeAway(book: Book, device: string, generation: string, bytes: number): void {
  const process = book.process(generation);
  if (process?.state === 'away') process.awayFloors.set(device, Math.max(bytes, process.awayFloors.get(device) ?? 0));
}

/** What left before the reading was taken has been seen; what was freed for a waiting request is now kept for it. */
function seeDepartures(book: Book, device: string, takenAtUs: number): void {
  const stays: Departure[] = [];
  for (const departure of book.departures) {
    if (departure.device !== device || departure.sinceUs > takenAtUs) {
      stays.push(departure);
      continue;
    }
    const request = departure.beneficiary === null ? undefined : book.requests.get(departure.beneficiary);
    if (request !== undefined && (request.device === null || request.device === device)) request.holdBytes += departure.bytes;
  }
  book.departures = stays;
  for (const process of book.processes.values()) {
    // How long its remains are looked for depends on what else moves there; the confirmation's deadline bounds it.
    const isOld = process.remeasureSinceUs !== null && book.clock.mostUs - process.remeasureSinceUs > 3 * book.options.limits.releaseConfirmMs * 1_000;
    if (process.devices.includes(device) && isOld) process.remeasureSinceUs = null;
  }
}

type ProcessEvent = Extract<CoreEvent, {
  type: 'session_opened' | 'session_closed' | 'process_ready' | 'spawn_failed' | 'heartbeat' | 'floor_measured' | 'process_exited' | 'kill_unconfirmed';
}>;

function followProcess(book: Book, event: ProcessEvent): void {
  if (event.type === 'session_opened') {
    book.processes.set(event.generation, newProcess(book, event.generation, event.role, null, []));
    return;
  }
  const process = book.process(event.generation);
  if (process === null) return;
  switch (event.type) {
    case 'session_closed':
      // A connection to an earlier broker: nothing is lost.
      if (process.state === 'away' && !process.connected) return;
      process.connected = false;
      followLoss(book, process);
      if (process.role === 'client') process.state = 'gone';
      // What it takes from now on it does not take as ours.
      if (process.role === 'holder' && process.closes.length === 0 && book.leasesOf(event.generation).length === 0) book.processes.delete(event.generation);
      return;
    case 'process_ready':
      // What comes back to the same broker has been idle all the while.
      if (process.state === 'spawning' || process.closes.length > 0) process.lastUsefulUs = event.atUs;
      if (process.state === 'spawning') process.state = 'ready';
      process.readyAtUs = event.atUs;
      process.connected = true;
      process.profilesFreeMemory = event.capabilities.profilesFreeMemory;
      hear(book, process);
      for (const floor of event.floors) if (process.devices.includes(floor.device)) tellFloor(book, process, floor.device, floor.bytes);
      return;
    case 'heartbeat':
      hear(book, process);
      return;
    case 'floor_measured':
      if (process.devices.includes(event.device)) tellFloor(book, process, event.device, event.bytes);
      return;
    case 'spawn_failed':
      processGone(book, process);
      return;
    case 'process_exited':
      processGone(book, process);
      return;
    case 'kill_unconfirmed':
  }
}

function tellFloor(book: Book, process: AuditedProcess, device: string, bytes: number): void {
  process.floors.set(device, bytes);
  book.toldFloors.set(process.engine ?? '', Math.max(bytes, book.toldFloors.get(process.engine ?? '') ?? 0));
  noteLeastFloor(book, process, bytes);
}

/** What the driver shows of a process may be learned as its engine's floor. */
function seeFloors(book: Book, device: string, usedBytes: ReadonlyMap<string, number>): void {
  for (const process of book.processes.values()) {
    if (isOn(process, device)) noteLeastFloor(book, process, usedBytes.get(process.generation) ?? 0);
  }
}

/** Those that have said nothing yet are charged by what is known of their engine now. */
function noteLeastFloor(book: Book, process: AuditedProcess, bytes: number): void {
  const engine = process.engine ?? '';
  const leastBytes = book.leastToldFloors.get(engine);
  if (leastBytes !== undefined && leastBytes <= bytes) return;
  book.leastToldFloors.set(engine, bytes);
  for (const other of book.processes.values()) {
    if (other.state !== 'spawning' || other.engine !== process.engine) continue;
    for (const [device, floorBytes] of other.floors) other.floors.set(device, Math.min(floorBytes, bytes));
  }
}

/** Each failure in a row doubles the pause, from the first up to the last. What others may have caused is the model's own from the third in a row. */
export function noteFailure(book: Book, backOffs: Book['loadBackOffs'], key: string, of: 'model' | 'anybody'): void {
  const { backoffFirstMs, backoffLastMs } = book.options.limits;
  const backOff = backOffs.get(key) ?? { failures: 0, failingSinceUs: null, failedUs: book.nowUs, untilUs: 0 };
  if (book.nowUs - backOff.failedUs >= book.options.limits.failedLoadSparesMs * 1_000) Object.assign(backOff, { failures: 0, failingSinceUs: null });
  backOff.failedUs = book.nowUs;
  backOff.failures++;
  if (of === 'model' || backOff.failures >= 3) backOff.failingSinceUs ??= book.nowUs;
  backOff.untilUs = book.nowUs + Math.min(backoffLastMs, backoffFirstMs * 2 ** (backOff.failures - 1)) * 1_000;
  backOffs.set(key, backOff);
}

/** One OOM inside a lease is no failure of the model; its retry is free. */
function noteLoadFailure(book: Book, lease: AuditedLease, code: string): void {
  const key = `${lease.device} ${lease.model}`;
  const process = book.process(lease.generation);
  if (process !== null) process.remeasureSinceUs = book.clock.mostUs;
  if (code === 'out_of_memory' && !book.oomRetries.has(key)) book.oomRetries.add(key);
  else noteFailure(book, book.loadBackOffs, key, code === 'out_of_memory' ? 'anybody' : 'model');
}

function leftBehindBytes(lease: AuditedLease): number {
  if (lease.isLeftToReading) return 0;
  return lease.stage === 'loading' ? lease.promiseBytes : lease.residentBytes;
}

function processGone(book: Book, process: AuditedProcess): void {
  process.state = 'gone';
  const devices = [...process.devices, ...book.leasesOf(process.generation).map((lease) => lease.device)];
  process.freeByExit = devices.some((device) => book.isLedgerOnly(device));
  for (const { device, isUnclear } of book.cards.values()) if (!isUnclear) process.clearAtEnd.add(device);
  if (process.closes.length > 0) book.lastReturnUs = book.nowUs;
  for (const lease of book.leasesOf(process.generation)) if (lease.stage === 'loading' && !lease.isQuarantined) noteFailure(book, book.loadBackOffs, `${lease.device} ${lease.model}`, 'anybody');
  for (const lease of book.leasesOf(process.generation)) book.closeLease(lease, leftBehindBytes(lease));
  for (const device of process.devices) book.depart(device, process.generation, process.readyAtUs > process.startedAtUs ? floorOn(process, device) : 0, null);
  book.voidRequests(process.generation);
  for (const command of book.commands.values()) if (command.generation === process.generation) command.answered = true;
}

type LeaseEvent = Extract<CoreEvent, { type: 'load_begun' | 'recall_answered' | 'lease_released' }>;

function followLease(book: Book, event: LeaseEvent): void {
  if (event.type === 'recall_answered') {
    const command = book.commands.get(event.command);
    if (command?.generation !== event.generation || command.lease !== event.lease || command.answered) return;
    command.answered = true;
  }
  const lease = book.leaseOf(event);
  if (lease === null) return;
  switch (event.type) {
    case 'load_begun':
      if (lease.stage === 'granted' || lease.stage === 'parked') lease.stage = 'loading';
      return;
    case 'recall_answered':
      if (event.begun) lease.stage = lease.stage === 'granted' ? 'loading' : lease.stage;
      else if (lease.stage === 'granted') {
        lease.neverCame = true;
        book.closeLease(lease, 0);
      }
      return;
    case 'lease_released':
      if (event.failure !== null && lease.stage !== 'resident') noteLoadFailure(book, lease, event.failure.code);
      book.closeLease(lease, lease.stage === 'granted' ? 0 : lease.stage === 'loading' ? lease.promiseBytes : lease.residentBytes);
  }
}

function followAnswer(book: Book, event: Extract<CoreEvent, { type: 'command_answered' }>): void {
  const command = book.commands.get(event.command);
  const process = book.process(event.generation);
  if (process === null) return;
  if (command?.generation !== event.generation || command.answered) {
    process.misbehaviour++;
    return;
  }
  const { answer } = event;
  if (answer.kind === 'draining') {
    command.draining = true;
    return;
  }
  command.answered = true;
  command.answeredAtUs = event.atUs;
  if (answer.kind === 'failed' || answer.kind === 'unsupported') process.commandFailures++;
  const isWhole = command.isWhole && answer.kind === 'done' && answer.target === 'none';
  if (isWhole && answer.residentBytes > 0) process.commandFailures++;
  const lease = command.lease === null ? undefined : book.leases.get(command.lease);
  if (answer.kind === 'busy' && lease?.stage === 'loading' && process.role === 'worker') lease.refusedStops++;
  if (answer.kind !== 'done' || lease === undefined) return;
  // Of a stay on the card that has ended: granted again since, it says nothing of this one.
  if (command.sentAtUs < lease.grantedAtUs) return;
  // What gave a copy back stays on its card; a parked one had nothing else.
  if (command.kind === 'trim' && lease.stage !== 'parked') return;
  // More than it had cannot be what is left of it.
  const leftBytes = Math.min(lease.residentBytes, answer.residentBytes);
  const lowered = lease.residentBytes - leftBytes;
  if (isWhole || (answer.target === 'none' && answer.residentBytes === 0)) {
    // With bytes left it may as well be kept as what it still is; of a command that was taken back, or that a report had ended, another will tell.
    lease.revived = answer.residentBytes > 0 || process.misbehaviour > 0 || command.cancelled || command.settled;
    book.closeLease(lease, leftBehindBytes(lease));
    return;
  }
  book.depart(lease.device, lease.generation, lowered, book.beneficiaryOf(lease));
  lease.residentBytes = leftBytes;
  lease.promiseBytes = leftBytes;
  if (answer.target === 'host' && answer.residentBytes === 0) park(book, lease);
}
