/** Who may be made to leave, for whom, and how: victims, doors, and no eviction without need. */
import type { ExplainRecord } from '../../../broker/core/explain.js';
import type { Check, EffectOf } from './check.js';
import { isOn, requestKey, type AuditedCommand, type AuditedLease, type AuditedRequest } from './records.js';
import { wholeMemoryNeedBytes } from './follow-memory.js';
import { surelyFreeBytes } from './rules-memory.js';
import { floorsBytes, knownRoomBytes } from './known-room.js';
import { isForStrangers } from './rules-yield.js';

export function checkMove(check: Check, move: EffectOf<'move'>): void {
  const { book } = check;
  const name = `move ${move.command} (${move.when}, to ${move.target}) of ${move.lease} (${move.model})`;
  checkAddress(check, name, move);
  const lease = book.leases.get(move.lease);
  if (lease === undefined) return;
  const key = check.beneficiaries.get(move.lease) ?? null;
  const request = key === null ? null : (book.requests.get(key) ?? null);
  const isOver = lease.residentBytes > lease.promiseBytes - Math.floor(lease.residentBytes / 11);
  if (check.book.isPinned(lease) && !isOver && request !== null) check.broken('victim-pinned', `${name}: its model is pinned`);
  if (lease.stage === 'granted' || (lease.stage === 'loading' && !isStopped(check, move, lease))) check.broken('victim-loading', `${name}: it is ${lease.stage}`);
  // Growth without news is taken for settled when the grant should have been confirmed.
  const isNewGrowth = lease.growing && check.event.atUs - lease.growingSinceUs < book.options.limits.grantConfirmMs * 1_000;
  if (isNewGrowth && request !== null) check.broken('victim-loading', `${name}: what it was granted more is not there yet`);
  const isUsed = lease.inFlight > 0 || (lease.queued > 0 && lease.stage === 'resident' && request !== null);
  if (move.when === 'now' && isUsed) check.broken('victim-in-use', `${name}: ${lease.inFlight} inside, ${lease.queued} queued`);
  if (holdsToken(check, lease)) check.broken('load-token', `${name}: an engine is measuring free memory there`);
  if (request === null) checkCause(check, name, lease);
  if (request === null || request.kind === 'evict') return;
  // What the model has on another card than the request's goes with it: the rules of that card do not ask for it.
  if (request.device !== null && request.device !== lease.device) return;
  checkOwnModel(check, name, request, lease);
  checkResidency(check, name, request, lease);
  checkSpared(check, name, request, lease);
  const forMemory = isForMemory(check, lease);
  if (move.when === 'drained' && lease.inFlight + lease.queued > 0) {
    checkDoorTime(check, name, request);
    if (forMemory) checkMemoryDoor(check, name, request, lease);
    else checkDoor(check, name, request, lease);
  }
  if (!forMemory) checkNeed(check, name, request, lease);
}

/** It makes room in the machine's memory, not on its card. */
function isForMemory(check: Check, lease: AuditedLease): boolean {
  return [...check.records.values()].some((record) => record.device === check.book.memory?.device && record.victims.some((victim) => victim.lease === lease.lease && victim.action !== 'trim'));
}

/** A command goes to the living generation that owns the lease; one lease leaves once. */
function checkAddress(check: Check, name: string, move: EffectOf<'move'>): void {
  const { book } = check;
  const process = book.process(move.generation);
  if (process === null) check.broken('generation-living', `${name}: ${move.generation} is not alive`);
  if (process?.state === 'away') check.broken('command-away', `${name}: ${move.generation} has not said what it holds`);
  const lease = book.leases.get(move.lease);
  if (lease === undefined) return;
  if (lease.generation !== move.generation) check.broken('command-owner', `${name}: the lease is ${lease.generation}'s`);
  if (lease.model !== move.model) check.broken('command-owner', `${name}: the lease is for ${lease.model}`);
  for (const other of book.commands.values()) {
    const isOut = other.kind === 'move' && !other.answered && !other.settled && !other.cancelled && other.lease === move.lease;
    const isOverdue = book.clock.mostUs - other.attendedMaxUs >= book.options.limits.commandAnswerMs * 1_000;
    if (isOut && !isOverdue) check.broken('victim-leaving', `${name}: command ${other.command} is already out`);
  }
  if (book.commands.has(move.command)) check.broken('command-id', `${name}: that id was used before`);
}

/** Nobody waits for it: then it is idle for as long as its policy says, or asked for, or has misbehaved. */
function checkCause(check: Check, name: string, lease: AuditedLease): void {
  const { book, event } = check;
  const isWished = [...book.requests.values()].some((request) => request.kind === 'evict' && request.model === lease.model);
  const isBlamed = lease.blamed || [...check.records.values()].some((record) => record.generation === lease.generation && (record.verdict === 'escalated' || record.verdict === 'overshoot'));
  const isStranded = book.companions(lease).length < lease.gangSize;
  if (isWished || isBlamed || isStranded || isForMemory(check, lease) || isForStrangers(check, lease)) return;
  const idleUs = event.atUs - lease.usedAtUs;
  if (lease.ttlMs === null) check.broken('moved-without-cause', `${name}: nobody asks for it, and it has no time to live`);
  else if (idleUs < lease.ttlMs * 1_000 - 1_000) check.broken('moved-without-cause', `${name}: idle for ${idleUs} us of ${lease.ttlMs} ms`);
}

/** A load may be stopped for one who asks for that: nothing else ends it before its time. */
function isStopped(check: Check, move: EffectOf<'move'>, lease: AuditedLease): boolean {
  const isWished = [...check.book.requests.values()].some((request) => request.kind === 'evict' && request.model === lease.model);
  return move.when === 'drained' && (isWished || (lease.blamed && (check.beneficiaries.get(lease.lease) ?? null) === null));
}

/** Another engine measures free memory there. */
function holdsToken(check: Check, leaving: AuditedLease): boolean {
  for (const lease of check.book.leases.values()) {
    if (lease !== leaving && lease.device === leaving.device && lease.profilesFreeMemory && !lease.isQuarantined && (lease.stage === 'loading' || lease.stage === 'granted')) return true;
  }
  return false;
}

/** The requesting model is never its own victim, and a placement spares its model wherever it runs (D1). */
function checkOwnModel(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const isOwn = request.model === lease.model && (request.kind === 'place' || request.generation === lease.generation);
  if (isOwn) check.broken('victim-requester', `${name}: it serves ${request.generation}#${request.request} for the same model`);
}

function checkResidency(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const { classPolicies } = check.book.options;
  const residentUs = check.event.atUs - lease.loadedAtUs;
  // One that its owner gave up and has still may have been there all the while.
  if (lease.revived || classPolicies[request.class].rank > classPolicies[lease.class].rank) return;
  if (residentUs < classPolicies[lease.class].minimumResidencyMs * 1_000 && lease.loadedAtUs > 0) {
    check.broken('minimum-residency', `${name}: loaded ${residentUs} us ago for ${lease.class}, wanted by ${request.class}`);
  }
}

/** Who has been used since a model first failed to load does not leave for it until that is forgotten (B79). */
function checkSpared(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const { book, event } = check;
  const backOff = book.loadBackOffs.get(`${request.device ?? ''} ${request.model}`);
  if (backOff === undefined || backOff.failingSinceUs === null || event.atUs - backOff.failedUs >= book.options.limits.failedLoadSparesMs * 1_000) return;
  const usedUs = Math.max(lease.usedAtUs, lease.grantedAtUs);
  if (usedUs > backOff.failingSinceUs) check.broken('victim-spared', `${name}: used at ${usedUs}, wanted by ${request.model}, which has failed since ${backOff.failingSinceUs}`);
}

/** A busy model's door may be shut only after the class's wait, (D19) */
function checkDoorTime(check: Check, name: string, request: AuditedRequest): void {
  const { book, event } = check;
  const waitedUs = event.atUs - request.sinceUs;
  const drainAfterUs = book.options.classPolicies[request.class].drainAfterMs * 1_000;
  if (waitedUs < drainAfterUs) check.broken('door-early', `${name}: the waiter has waited ${waitedUs} us of ${drainAfterUs}`);
}

/** nor for the machine's memory while models that are idle there would surely suffice; */
function checkMemoryDoor(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const { book } = check;
  const { memory } = book;
  const freeBytes = memory === null ? null : surelyFreeBytes(check, memory);
  if (memory === null || freeBytes === null || request.kind !== 'budget') return;
  let idleBytes = 0;
  for (const other of book.leases.values()) {
    const has = memory.leases.get(other.lease);
    if (has !== undefined && has.loaded && other !== lease && isIdleVictim(check, request, other)) idleBytes += has.asked.neededBytes + has.copyBytes;
  }
  const needBytes = wholeMemoryNeedBytes(book, request);
  if (freeBytes + idleBytes >= needBytes) check.broken('door-needless', `${name}: ${idleBytes} idle and ${freeBytes} free in memory suffice for ${needBytes}`);
}

/** nor for a card while an idle set there does. */
function checkDoor(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const { book } = check;
  if (request.kind !== 'budget') return;
  let idleBytes = 0;
  for (const other of book.leases.values()) {
    if (other.device === lease.device && other !== lease && isIdleVictim(check, request, other)) idleBytes += Math.min(other.residentBytes, other.promiseBytes);
  }
  const numbers = numbersFor(check, lease);
  // By the numbers that the decision gives as its own; that they are right is another rule's business. 0 may be less.
  if (numbers !== null && numbers.availableBytes > 0 && numbers.availableBytes + idleBytes >= numbers.needBytes) {
    check.broken('door-needless', `${name}: ${idleBytes} idle and ${numbers.availableBytes} available suffice for ${numbers.needBytes}`);
  }
}

/** The numbers with which the record of this step explains that lease's eviction. */
function numbersFor(check: Check, lease: AuditedLease): ExplainRecord['numbers'] {
  for (const record of check.records.values()) {
    if (record.victims.some((victim) => victim.lease === lease.lease && victim.passedOver === null)) return record.numbers;
  }
  return null;
}

function isIdleVictim(check: Check, request: AuditedRequest, lease: AuditedLease): boolean {
  // Those of a gang leave together, and of each its use is told for itself.
  return check.book.companions(lease).every((member) => isIdle(check, request, member));
}

function isIdle(check: Check, request: AuditedRequest, lease: AuditedLease): boolean {
  if (lease.stage !== 'resident' || lease.growing || lease.inFlight + lease.queued > 0 || check.book.isPinned(lease) || lease.model === request.model) return false;
  const process = check.book.process(lease.generation);
  if (process?.connected !== true || process.state !== 'ready') return false;
  // What it has on another card goes with it, and may not go there now.
  const isKept = [...check.book.leases.values()].some((other) => other.gang !== null && other.gang === lease.gang && other !== lease && holdsToken(check, other));
  if (isKept) return false;
  const residentUs = check.event.atUs - lease.loadedAtUs;
  return !check.book.wasTold(lease) && residentUs > 2 * check.book.options.classPolicies[lease.class].minimumResidencyMs * 1_000;
}

/** Nobody leaves for a request that can never fit, or that already has what it needs on its way. */
function checkNeed(check: Check, name: string, request: AuditedRequest, lease: AuditedLease): void {
  const { book } = check;
  const card = book.cards.get(lease.device);
  if (card === undefined || request.kind !== 'budget') return;
  if (request.chargeBytes > card.totalBytes - card.reserveBytes) {
    check.broken('evict-for-never-fits', `${name}: ${request.chargeBytes} can never fit on ${card.device}`);
    return;
  }
  let comingBytes = 0;
  for (const command of book.commands.values()) {
    const isComing = command.kind === 'move' && !command.answered && !command.settled && !command.cancelled && command.lease !== lease.lease && request.victims.has(command.lease ?? '');
    const source = isComing ? book.leases.get(command.lease ?? '') : undefined;
    if (source?.device === lease.device) comingBytes += Math.min(command.freesBytes, source.residentBytes);
  }
  const knownBytes = knownRoomBytes(check, lease.device);
  if (knownBytes === null || lease.stage === 'parked') return;
  // Kept for others by the decision's own numbers (a part of it may be its own).
  const numbers = numbersFor(check, lease);
  const roomBytes = knownBytes - (numbers?.holdBytes ?? 0);
  // An extension needs what the whole lease grows by, which its own parts do not tell.
  const needBytes = Math.max(request.chargeBytes, numbers?.needBytes ?? 0);
  const toleranceBytes = book.options.limits.measureToleranceBytes * (1 + book.leases.size);
  if (roomBytes + comingBytes >= needBytes + toleranceBytes + floorsBytes(check, lease.device)) {
    check.broken('victim-needless', `${name}: ${roomBytes} free and ${comingBytes} on their way suffice for ${needBytes}`);
  }
}

/** A drain is cancelled only when nobody is left to gain, it has overrun, or its process is ending (D21). */
export function checkCancel(check: Check, cancel: EffectOf<'cancel_command'>): void {
  const { book } = check;
  const command = book.commands.get(cancel.command);
  const name = `cancel of command ${cancel.command} to ${cancel.generation}`;
  if (command?.generation !== cancel.generation) {
    check.broken('command-owner', `${name}: no such command went there`);
    return;
  }
  if (command.answered) check.broken('command-owner', `${name}: it has been answered`);
  const hasOverrun = book.clock.mostUs - command.attendedMaxUs >= Math.min(book.options.limits.drainTimeoutMs, book.options.limits.commandAnswerMs) * 1_000;
  const waiter = command.beneficiary === null ? null : (book.requests.get(command.beneficiary) ?? null);
  if (waiter === null || waiter.cancelled || waiter.isOptional || hasOverrun || book.process(cancel.generation)?.state === 'ending' || isServed(check, command.beneficiary)) return;
  if (!hasOtherSource(check, waiter, command) && !hasRoomNow(check, command.beneficiary)) check.broken('drain-cancelled', `${name}: ${command.beneficiary ?? ''} still waits for it`);
}

/** By the record of this very step it fits without. (That its numbers are right is another rule's business.) */
function hasRoomNow(check: Check, key: string | null): boolean {
  for (const { generation, request, numbers } of check.records.values()) {
    if (request !== null && numbers !== null && requestKey(generation, request) === key && numbers.availableBytes >= numbers.needBytes) return true;
  }
  return false;
}

/** Something else is on its way for that request: another victim, a process that ends, bytes that are returning. */
function hasOtherSource(check: Check, waiter: AuditedRequest, command: AuditedCommand): boolean {
  const { book } = check;
  if (book.departures.some((departure) => departure.device === command.device) || waiter.holdBytes > 0) return true;
  for (const process of book.processes.values()) if (command.device !== null && isOn(process, command.device) && process.state === 'ending') return true;
  for (const other of book.commands.values()) {
    if (other !== command && other.kind === 'move' && other.device === command.device && !other.answered && !other.cancelled) return true;
  }
  return false;
}

/** Answered in this very step, before or after the cancellation; a placement also when a worker is started for it. */
function isServed(check: Check, key: string | null): boolean {
  return check.effects.some((effect) => {
    const isAnswer = effect.type === 'grant' || effect.type === 'deny' || effect.type === 'placed' || (effect.type === 'wait' && effect.reason.endsWith(' is starting'));
    return isAnswer && `${effect.generation}#${effect.request}` === key;
  });
}
