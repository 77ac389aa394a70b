/**
 * The machine's memory: nothing is granted or parked there that the machine has not got, copies of models on their cards
 * go before any parked model, nobody is asked to give back without need, and what is charged falls only by a reading or
 * an exit.
 */
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { LedgerView } from '../../../broker/core/view.js';
import type { Book } from './book.js';
import type { Check, EffectOf } from './check.js';
import { memoryNeedBytes, wholeMemoryNeedBytes } from './follow-memory.js';
import { parkNeedBytes, type LeaseMemory, type MemoryBook } from './memory-book.js';
import { withHeadroom, type AuditedCard } from './records.js';
import { checkClosed, checkShownClosed } from './rules-returns.js';

const mib = 1024 ** 2;
/** No process of these worlds has more there before it has any model. */
const floorBytesMax = 600 * mib;

export function checkMemoryGrant(check: Check, grant: EffectOf<'grant'>): void {
  const { book } = check;
  const { memory } = book;
  const request = book.request(grant.generation, grant.request);
  if (memory === null || request?.kind !== 'budget' || request.host === null) return;
  const name = `grant ${grant.lease} to ${grant.generation}#${grant.request} (${request.model})`;
  const { neededBytes, copyBytes, peakBytes } = request.host;
  const has = memory.of(grant.lease);
  if (has !== undefined) {
    if (memoryNeedBytes(book, request, has) > 0) checkRoom(check, memory, name, grant.generation, neededBytes + has.copyBytes - memory.promiseOf(has));
    return;
  }
  if (grant.keepCopy === null) check.broken('memory-answer', `${name}: it is not told whether it may keep a copy`);
  if (grant.keepCopy === true && copyBytes === 0) check.broken('memory-answer', `${name}: it was not asked for a copy`);
  const moreBytes = withHeadroom(Math.max(neededBytes + (grant.keepCopy === true ? copyBytes : 0), peakBytes));
  if (moreBytes > 0) checkRoom(check, memory, name, grant.generation, moreBytes);
}

export function checkMemoryMove(check: Check, move: EffectOf<'move'>): void {
  const { book } = check;
  const { memory } = book;
  const lease = book.leases.get(move.lease);
  const has = memory?.leases.get(move.lease);
  if (memory === null || lease === undefined || has === undefined) return;
  const name = `move ${move.command} of ${move.lease} (${move.model})`;
  // What one that answers for others has is not known.
  const isTrusted = (book.process(move.generation)?.misbehaviour ?? 0) === 0;
  if (move.target === 'host' && move.bytes === null && has.copyBytes === 0 && isTrusted) {
    checkRoom(check, memory, `${name} to host`, move.generation, parkNeedBytes(has, lease) - memory.promiseOf(has));
    return;
  }
  if (move.target === 'none' && lease.stage === 'parked' && recordOf(check, memory, move.lease, 'unload') !== null) checkCopiesFirst(check, memory, name);
}

/** What is there and what is promised leaves room for it, but for what nobody could know when the reading was taken. */
function checkRoom(check: Check, memory: MemoryBook, name: string, owner: string, moreBytes: number): void {
  const { book, truth } = check;
  const card = book.cards.get(memory.device);
  if (card === undefined) return;
  checkClosed(check, name, card);
  if (!isRead(check, memory, card, name)) return;
  const sampled = card.sample === null ? null : truth.at(card.device, card.sample.takenAtUs);
  if (sampled === null) return;
  const now = truth.card(memory.device);
  let boundBytes = now.foreignBytes;
  let unknowableBytes = Math.max(0, now.foreignBytes - sampled.foreignBytes);
  const generations = new Set([...now.processes(), ...sampled.byProcess.keys(), ...[...memory.leases.values()].map(({ generation }) => generation)]);
  for (const generation of generations) {
    const trueBytes = now.bytesOf(generation);
    const promisedBytes = promised(check, memory, generation);
    boundBytes += Math.max(trueBytes, promisedBytes);
    const sampledBytes = sampled.byProcess.get(generation) ?? 0;
    unknowableBytes += Math.max(0, Math.max(0, trueBytes - promisedBytes) - Math.max(0, sampledBytes - promisedBytes));
    // What it says that it has and has not, no total shows.
    if (card.confirms === 'none') unknowableBytes += Math.max(0, promisedBytes - Math.max(sampledBytes, trueBytes));
  }
  const toleranceBytes = book.options.limits.measureToleranceBytes * (1 + generations.size);
  const roomBytes = card.totalBytes - card.reserveBytes - boundBytes + unknowableBytes + toleranceBytes;
  if (moreBytes > roomBytes) check.broken('memory-overcommitted', `${name} (${owner}): ${moreBytes} more; ${boundBytes} there or promised (${unknowableBytes} not knowable) of ${card.totalBytes} - ${card.reserveBytes}`);
}

/** Unknown is not zero there either. False: there is no reading, and that is allowed. */
function isRead(check: Check, memory: MemoryBook, card: AuditedCard, name: string): boolean {
  const { limits } = check.book.options;
  const ageUs = card.sample === null ? Infinity : check.event.atUs - card.sample.takenAtUs;
  const isYoung = ageUs <= limits.sampleMaxAgeMs * 1_000;
  // Read before all had spoken, it decides nothing, and another cannot be had.
  const isOfBefore = card.sample !== null && card.sample.takenAtUs < check.book.lastReturnUs;
  if (isOfBefore && card.missing !== null && memory.allowUnknown) return false;
  if (!isYoung && !memory.allowUnknown) check.broken('memory-unread', `${name}: the last reading of memory is ${ageUs} us old`);
  return isYoung;
}

/** Of what is quarantined and left to the reading, what is there is all. */
function promised({ book }: Check, memory: MemoryBook, generation: string): number {
  return memory.leasesOf(generation).reduce((sum, has) => sum + (book.leases.get(has.lease)?.isLeftToReading === true ? 0 : memory.promiseOf(has)), 0);
}

/** The record of this step by which that lease is a victim of the machine's memory. */
function recordOf(check: Check, memory: MemoryBook, lease: string, action: string): ExplainRecord | null {
  for (const record of check.records.values()) {
    if (record.device === memory.device && record.victims.some((victim) => victim.lease === lease && victim.action === action)) return record;
  }
  return null;
}

/** A parked model goes only when every copy that is redundant goes, too, alone or with its model, or has been asked for. */
function checkCopiesFirst(check: Check, memory: MemoryBook, name: string): void {
  for (const has of memory.leases.values()) {
    const isAsked = has.trim !== null || check.effects.some((effect) => (effect.type === 'trim_host' || (effect.type === 'move' && effect.target === 'none')) && effect.lease === has.lease);
    if (!isAsked && isRedundant(check, has, recordRequester(check, memory))) check.broken('copies-first', `${name}: ${has.lease} has a copy of ${has.copyBytes} beside its card`);
  }
}

function recordRequester(check: Check, memory: MemoryBook): ExplainRecord | null {
  for (const record of check.records.values()) if (record.device === memory.device && record.request !== null && record.verdict === 'evicting') return record;
  return null;
}

/** Surely one that could have been asked: at rest on its card, its process listening, and never found unwilling. */
function isRedundant(check: Check, has: LeaseMemory, record: ExplainRecord | null): boolean {
  const { book } = check;
  const lease = book.leases.get(has.lease);
  const process = book.process(has.generation);
  if (lease?.stage !== 'resident' || has.copyBytes === 0 || has.refusedTrim || lease.growing || lease.isQuarantined || lease.shortBytes > 0 || lease.revived) return false;
  if (process?.state !== 'ready' || !process.connected || process.misbehaviour + process.commandFailures > 0) return false;
  if (record !== null && record.model === lease.model) return false;
  return !book.wasTold(lease, ['move', 'trim']);
}

export function checkTrim(check: Check, trim: EffectOf<'trim_host'>): void {
  const { book } = check;
  const { memory } = book;
  const name = `trim ${trim.command} of ${trim.lease} (${trim.model})`;
  const lease = book.leases.get(trim.lease);
  const has = memory?.leases.get(trim.lease);
  if (book.process(trim.generation) === null) check.broken('generation-living', `${name}: ${trim.generation} is not alive`);
  if (memory === null || lease === undefined) return;
  if (lease.generation !== trim.generation) check.broken('command-owner', `${name}: the lease is ${lease.generation}'s`);
  if (has !== undefined && has.trim !== null && !isOverdue(check, has.trim)) check.broken('trimmed-twice', `${name}: command ${has.trim} is already out`);
  if (trim.bytes !== null) {
    const why = hasNotGrown(check, trim.generation);
    if (why !== null) check.broken('trimmed-without-cause', `${name}: ${why}`);
    return;
  }
  const record = recordOf(check, memory, trim.lease, 'trim');
  if (record === null) check.broken('explained', `${name}: no record of this step names it`);
  else if (record.request !== null) checkTrimNeeded(check, memory, name, record);
  else if (record.generation === '') checkPressure(check, memory, name);
}

function isOverdue(check: Check, command: number): boolean {
  const sent = check.book.commands.get(command);
  return sent === undefined || check.book.clock.mostUs - sent.attendedMaxUs >= check.book.options.limits.commandAnswerMs * 1_000;
}

/** Nobody is asked for a copy when the last reading and all promises surely leave room. */
function checkTrimNeeded(check: Check, memory: MemoryBook, name: string, record: ExplainRecord): void {
  const { book } = check;
  const request = record.request === null ? null : book.request(record.generation, record.request);
  if (request?.kind !== 'budget') return;
  const roomBytes = surelyFreeBytes(check, memory);
  const needBytes = wholeMemoryNeedBytes(book, request);
  const others = [...book.requests.values()].some((other) => other !== request && other.waits > 0 && memoryNeedBytes(book, other) > 0);
  if (roomBytes !== null && !others && roomBytes >= needBytes) check.broken('trim-needless', `${name}: ${roomBytes} are free for ${needBytes}`);
}

/** Without a request behind it the machine must be short. */
function checkPressure(check: Check, memory: MemoryBook, name: string): void {
  const roomBytes = surelyFreeBytes(check, memory);
  if (roomBytes !== null && roomBytes > 0) check.broken('pressure-without-cause', `${name}: ${roomBytes} are free`);
}

/** What is free there by the last reading, everything promised and every floor there may be taken off, process by process. Null: not known. */
export function surelyFreeBytes(check: Check, memory: MemoryBook): number | null {
  const { book, truth } = check;
  const card = book.cards.get(memory.device);
  if (card?.sample?.hasFigures !== true || card.missing !== null) return null;
  const sampled = truth.at(card.device, card.sample.takenAtUs);
  if (sampled === null || check.event.atUs - card.sample.takenAtUs > book.options.limits.sampleMaxAgeMs * 1_000) return null;
  let boundBytes = sampled.foreignBytes;
  const generations = new Set([...sampled.byProcess.keys(), ...[...book.processes.values()].filter((process) => process.state !== 'gone').map(({ generation }) => generation)]);
  for (const generation of generations) {
    const leases = memory.leasesOf(generation);
    const promisedBytes = leases.reduce((sum, has) => sum + withHeadroom(memory.promiseOf(has)), 0);
    const sampledBytes = sampled.byProcess.get(generation) ?? 0;
    const claimedBytes = leases.reduce((sum, has) => sum + (has.loaded ? has.asked.neededBytes + has.copyBytes : 0), 0);
    boundBytes += promisedBytes + Math.max(floorBytesMax, sampledBytes - claimedBytes);
  }
  return card.totalBytes - card.reserveBytes - boundBytes - book.options.limits.measureToleranceBytes * (1 + generations.size);
}

/** Null: it has more there than its leases and the limit on growth explain; else what speaks against it. */
export function hasNotGrown(check: Check, generation: string): string | null {
  const { book, truth } = check;
  const { memory } = book;
  const card = memory === null ? undefined : book.cards.get(memory.device);
  if (memory === null || card?.sample === undefined || card.sample === null) return 'memory is not read';
  const sampledBytes = truth.at(card.device, card.sample.takenAtUs)?.byProcess.get(generation) ?? 0;
  const explainedBytes = memory.leasesOf(generation).reduce((sum, has) => sum + (has.loaded ? has.asked.neededBytes + has.copyBytes : 0), memory.floors.get(generation)?.bytes ?? 0);
  const { hostGrowthBytesMax } = book.options.limits;
  return sampledBytes - explainedBytes > hostGrowthBytesMax ? null : `it has ${sampledBytes}, of which ${explainedBytes} are explained and ${hostGrowthBytesMax} allowed`;
}

/** The same the other way: headroom and tolerance explain much; of one that was not read between its start and its first lease nobody can tell. */
function hasSurelyGrown(check: Check, generation: string): boolean {
  const { book, truth } = check;
  const { memory } = book;
  const card = memory === null ? undefined : book.cards.get(memory.device);
  if (memory === null || card?.sample === undefined || card.sample === null) return false;
  const floor = memory.floors.get(generation);
  const sampledBytes = truth.at(card.device, card.sample.takenAtUs)?.byProcess.get(generation) ?? 0;
  const explainedBytes = memory.leasesOf(generation).reduce((sum, has) => sum + withHeadroom(memory.promiseOf(has)), floor?.isWhole === true ? floor.bytes : Infinity);
  return sampledBytes - explainedBytes > book.options.limits.hostGrowthBytesMax + book.options.limits.measureToleranceBytes;
}

/** A worker at rest that has grown is asked, or ended. It has the time that an answer and some readings take. */
export function checkGrowth(check: Check): void {
  const { book, event } = check;
  const { memory } = book;
  if (memory === null || event.type !== 'sampled' || event.device !== memory.device || event.processes === null) return;
  const patienceUs = (3 * book.options.limits.commandAnswerMs + 10_000) * 1_000;
  for (const process of book.processes.values()) {
    const leases = book.leasesOf(process.generation);
    const rests = process.role === 'worker' && process.state === 'ready' && process.connected && process.misbehaviour === 0 && leases.every((lease) => (lease.stage === 'resident' || lease.stage === 'parked') && !lease.growing && lease.inFlight + lease.queued === 0 && !lease.isQuarantined)
      && ![...book.commands.values()].some((command) => command.generation === process.generation && !command.answered);
    if (!rests || !memory.hadLease.has(process.generation) || !hasSurelyGrown(check, process.generation)) {
      memory.grown.delete(process.generation);
      continue;
    }
    const grown = memory.grown.get(process.generation) ?? { sinceUs: book.clock.leastUs, asked: false };
    memory.grown.set(process.generation, grown);
    if (book.clock.leastUs - grown.sinceUs > patienceUs) check.broken('growth-ignored', `${process.generation} has grown in memory for ${book.clock.leastUs - grown.sinceUs} us; it was ${grown.asked ? '' : 'not '}asked, and lives`);
  }
}

/** The machine killed somebody for want of memory: then strangers, or liars, had taken what was promised. */
export function checkMemoryShort(check: Pick<Check, 'book' | 'truth' | 'broken'>, generation: string, bytes: number): void {
  const { book, truth } = check;
  const { memory } = book;
  const card = memory === null ? undefined : book.cards.get(memory.device);
  if (memory === null || card === undefined) return;
  const now = truth.card(memory.device);
  const promisedAtUs = Math.min(...memory.leasesOf(generation).filter((has) => !has.loaded || has.parkBytes > 0).map((has) => has.promisedAtUs));
  // A floor that nobody could know when it was promised is as a stranger's.
  const floorOf = (of: string): number => ((memory.floors.get(of)?.sinceUs ?? Infinity) <= promisedAtUs || of === generation ? (memory.floors.get(of)?.bytes ?? 0) : 0);
  const allowed = (of: string): number => memory.leasesOf(of).reduce((sum, has) => sum + withHeadroom(isUnasked(check.book, has) ? has.asked.neededBytes : memory.promiseOf(has)), floorOf(of));
  if (now.bytesOf(generation) + bytes > allowed(generation)) return;
  let strangersBytes = now.foreignBytes;
  for (const other of now.processes()) strangersBytes += Math.max(0, now.bytesOf(other) - allowed(other));
  if (strangersBytes <= card.reserveBytes) check.broken('memory-short', `${generation} was refused ${bytes} of the machine's memory within its leases, and nobody else took what is not theirs`);
}

/** It keeps a copy that nobody allowed, and has never been told to park. */
function isUnasked(book: Book, has: LeaseMemory): boolean {
  return !has.keepCopy && has.copyBytes > 0 && book.leases.get(has.lease)?.parkedAtUs === 0;
}

/** What the last reading showed of workers that have said nothing since is charged, whatever explains it. A program's own memory is nobody's business. */
function checkMemorySeen(check: Check, card: AuditedCard, chargedBytes: number): void {
  const { book } = check;
  if (card.sample?.hasFigures !== true || card.missing !== null) return;
  let seenBytes = 0;
  let workers = 1;
  for (const [generation, bytes] of card.sample.figures) {
    const process = book.process(generation);
    if (process?.role !== 'worker' || process.state === 'spawning' || process.closes.length > 0 || process.saidAtUs >= card.sample.takenAtUs) continue;
    seenBytes += bytes;
    workers++;
  }
  if (seenBytes > chargedBytes + book.options.limits.measureToleranceBytes * workers) check.broken('memory-seen', `the last reading of memory showed ${seenBytes} of our workers; ${chargedBytes} are charged`);
}

/** Charges fall there by a reading or an exit, and by nothing else. */
export function checkMemoryView(check: Check, view: LedgerView): void {
  const { memory } = check.book;
  if (memory === null) return;
  const known = check.book.cards.get(memory.device);
  if (known === undefined) return;
  if (view.host === null) {
    check.broken('view-memory', 'the ledger does not show the machine\'s memory');
    return;
  }
  const { leasedBytes, floorBytes, residueBytes } = view.host;
  checkShownClosed(check, view.host, known);
  const chargedBytes = leasedBytes + floorBytes + residueBytes;
  checkMemorySeen(check, known, chargedBytes);
  const card = check.book.cards.get(memory.device);
  if (!memory.mayFall && card?.confirms === 'process' && chargedBytes < memory.lastChargedBytes) check.broken('memory-unseen', `${chargedBytes} are charged in memory after ${memory.lastChargedBytes}, and nothing was read since`);
  memory.lastChargedBytes = chargedBytes;
  memory.mayFall = card?.missing !== null && memory.allowUnknown;
  for (const lease of view.leases) {
    const has = memory.leases.get(lease.lease);
    // A copy that nobody allowed may be more than one process can have, till a reading has shown what else it has not.
    const isUnasked = has !== undefined && !has.keepCopy && has.copyBytes > 0;
    if (has !== undefined && !isUnasked && lease.hostChargedBytes !== null && lease.hostChargedBytes < memory.promiseOf(has) && lease.hostChargedBytes < (card?.totalBytes ?? 0)) {
      check.broken('view-memory', `${lease.lease} (${lease.state}) is charged ${lease.hostChargedBytes} in memory; by the log at least ${memory.promiseOf(has)}`);
    }
  }
}
