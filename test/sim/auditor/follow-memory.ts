/** Follows what the log tells of the machine's memory: reports, readings, commands and grants. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { HostNeed } from '../../../protocol/index.js';
import type { Book } from './book.js';
import type { Check, EffectOf } from './check.js';
import { parkNeedBytes, type LeaseMemory, type MemoryBook } from './memory-book.js';
import { withHeadroom, type AuditedRequest } from './records.js';

/** What a request must have there beyond what its lease has: its copy is a wish. */
export function memoryNeedBytes(book: Book, request: AuditedRequest, has = heldFor(book, request)): number {
  const { host } = request;
  if (book.memory === null || host === null) return 0;
  const isFirst = has?.loaded !== true;
  const wantedBytes = withHeadroom(Math.max(host.neededBytes + (has?.copyBytes ?? 0), isFirst ? host.peakBytes : 0));
  return Math.max(0, wantedBytes - (has === undefined ? 0 : withHeadroom(book.memory.promiseOf(has))));
}

/** Of a lease that is over nothing is there to return to: its model is loaded anew. */
function heldFor(book: Book, { lease }: AuditedRequest): LeaseMemory | undefined {
  return lease === null ? undefined : book.memory?.leases.get(lease);
}

/** The same of a gang as a whole: room is made there for all of it at once. */
export function wholeMemoryNeedBytes(book: Book, request: AuditedRequest): number {
  if (request.gang === null) return memoryNeedBytes(book, request);
  const { key } = request.gang;
  return [...book.requests.values()].reduce((sum, other) => sum + (other.gang?.key === key ? memoryNeedBytes(book, other) : 0), 0);
}

export function followMemoryEvent(book: Book, event: CoreEvent): void {
  const { memory } = book;
  if (memory === null) return;
  switch (event.type) {
    case 'sampled':
    case 'sample_failed':
      if (event.device !== memory.device) return;
      memory.mayFall = true;
      if (event.type === 'sampled') readFloors(book, memory, event);
      return;
    case 'process_exited':
    case 'spawn_failed':
      memory.mayFall = true;
      return;
    case 'session_closed':
    case 'process_resumed':
      memory.mayFall = true;
      // What it was told over this connection is void.
      for (const has of memory.leasesOf(event.generation)) has.trim = null;
      return;
    case 'residency_reported': {
      const has = memory.of(event.lease);
      if (has?.generation === event.generation && book.process(event.generation) !== null) report(has, event.state === 'resident' || event.state === 'parked', event.hostBytes, event.state);
      return;
    }
    case 'models_announced':
      for (const model of event.models) {
        const has = memory.of(model.lease ?? '');
        if (has?.generation === event.generation) report(has, model.state === 'resident' || model.state === 'parked', model.hostBytes, model.state);
      }
      return;
    default:
  }
}

function report(has: LeaseMemory, loaded: boolean, hostBytes: number, state: string): void {
  has.loaded ||= loaded;
  has.copyBytes = hostBytes;
  if (state === 'parked' || state === 'resident') has.parkBytes = 0;
}

/** Called before the command itself is written down as answered. */
export function followMemoryAnswer(book: Book, event: Extract<CoreEvent, { type: 'command_answered' }>): void {
  const { memory } = book;
  const command = book.commands.get(event.command);
  if (memory === null || command?.generation !== event.generation || command.answered || event.answer.kind === 'draining') return;
  const has = memory.leases.get(command.lease ?? '');
  if (has === undefined) return;
  if (command.kind === 'move') has.parkBytes = 0;
  if (event.answer.kind === 'done') {
    // One that comes after the report of where the model stood then says nothing of now.
    if (!command.settled) has.copyBytes = event.answer.hostBytes;
  } else if (command.kind === 'trim') has.refusedTrim = true;
  if (has.trim === event.command) has.trim = null;
}

function readFloors(book: Book, memory: MemoryBook, event: Extract<CoreEvent, { type: 'sampled' }>): void {
  for (const { generation, usedBytes } of event.processes ?? []) {
    const process = book.process(generation);
    if (process?.role === 'worker' && !memory.hadLease.has(generation)) memory.floors.set(generation, { bytes: usedBytes, sinceUs: memory.floors.get(generation)?.sinceUs ?? event.atUs, isWhole: process.state !== 'spawning' });
  }
}

/** After the rules have looked at a step's effect. */
export function followMemoryEffect(check: Check, effect: Check['effects'][number]): void {
  const { book } = check;
  const { memory } = book;
  if (memory === null) return;
  if (effect.type === 'trim_host') {
    const has = memory.leases.get(effect.lease);
    if (has !== undefined) has.trim = effect.command;
    const grown = memory.grown.get(effect.generation);
    if (effect.bytes !== null && grown !== undefined) grown.asked = true;
  } else if (effect.type === 'move') {
    const [has, lease] = [memory.leases.get(effect.lease), book.leases.get(effect.lease)];
    if (has === undefined || lease === undefined) return;
    has.parkBytes = effect.target === 'host' && effect.bytes === null && has.copyBytes === 0 ? parkNeedBytes(has, lease) : 0;
    if (has.parkBytes > 0) has.promisedAtUs = book.nowUs;
  } else if (effect.type === 'cancel_command') {
    const has = memory.leases.get(book.commands.get(effect.command)?.lease ?? '');
    if (has !== undefined) has.parkBytes = 0;
  } else if (effect.type === 'publish') {
    // One that has said nothing is waited for no longer: what it was charged on suspicion is what was read of it last.
    memory.mayFall ||= effect.name === 'quarantined' && effect.data['device'] === memory.device;
  } else if (effect.type === 'terminate') {
    for (const has of memory.leasesOf(effect.generation)) has.parkBytes = 0;
  }
}

/** A grant, before it is written into the book. */
export function followMemoryGrant(book: Book, grant: EffectOf<'grant'>, request: AuditedRequest): void {
  const { memory } = book;
  if (memory === null || request.kind !== 'budget') return;
  memory.hadLease.add(grant.generation);
  const has = memory.of(grant.lease);
  const none: HostNeed = { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null };
  if (has === undefined) {
    memory.leases.set(grant.lease, {
      lease: grant.lease, generation: grant.generation, asked: request.host ?? none, keepCopy: grant.keepCopy === true, loaded: false, copyBytes: 0, parkBytes: 0, promisedAtUs: book.nowUs, trim: null, refusedTrim: false,
    });
    return;
  }
  memory.leases.set(grant.lease, has);
  memory.ended.delete(grant.lease);
  // What was asked of its last stay on the card says nothing of the next.
  if (book.leases.get(grant.lease)?.stage === 'parked') {
    has.trim = null;
    for (const command of book.commands.values()) if (command.lease === grant.lease && command.kind === 'trim') command.answered = true;
  }
  if (request.host !== null) has.asked = request.host;
  if (!has.loaded) has.keepCopy = grant.keepCopy === true;
}

/** Leases that are over have nothing there any more. */
export function dropClosed(book: Book): void {
  if (book.memory === null) return;
  const { leases, ended } = book.memory;
  for (const [id, has] of leases) {
    if (book.leases.has(id)) continue;
    leases.delete(id);
    ended.set(id, has);
  }
}
