/** Every id is answered once, in time, with its reason on record; nothing is said to the dead or about the unknown. */
import type { Effect } from '../../../broker/core/effects.js';
import type { Verdict } from '../../../broker/core/explain.js';
import type { Check, EffectOf } from './check.js';
import { checkEvict, checkRefusedStops } from './rules-loads.js';
import { wholeMemoryNeedBytes } from './follow-memory.js';
import { checkShares } from './rules-shares.js';
import { floorOn, isOn, requestKey, untoldFloorBytesMax, type AuditedRequest, type RequestKind } from './records.js';

type Answer = EffectOf<'grant' | 'deny' | 'wait' | 'placed' | 'acknowledge' | 'fail' | 'report_evicted'>;

const fitting: Readonly<Record<Exclude<Answer['type'], 'fail'>, readonly RequestKind[]>> = {
  grant: ['budget', 'resize'], deny: ['budget', 'resize', 'place'], wait: ['budget', 'place'], placed: ['place'],
  acknowledge: ['residency', 'pin'], report_evicted: ['evict'],
};

const verdicts: Partial<Readonly<Record<Answer['type'], readonly Verdict[]>>> = {
  grant: ['granted'], deny: ['denied', 'expired', 'cancelled'], wait: ['waiting', 'evicting'], placed: ['placed'],
};

export function checkAnswer(check: Check, effect: Answer): void {
  const { book } = check;
  const name = `${effect.type} to ${effect.generation}#${effect.request ?? '-'}`;
  const isToldStale = effect.type === 'fail' && effect.code === 'generation_stale';
  if (book.process(effect.generation) === null && !isToldStale) check.broken('generation-living', `${name}: that generation is not alive`);
  if (effect.request === null) return;
  const key = requestKey(effect.generation, effect.request);
  const request = book.requests.get(key);
  if (request === undefined) {
    const rule = book.answeredRequests.has(key) ? 'one-final-answer' : 'answer-to-nothing';
    if (effect.type !== 'fail' || book.answeredRequests.has(key)) check.broken(rule, `${name}: no such request is open`);
    return;
  }
  if (effect.type !== 'fail' && !fitting[effect.type].includes(request.kind)) check.broken('answer-kind', `${name} answers a ${request.kind} request`);
  if (effect.type === 'acknowledge' && request.lease !== null && (book.ownerOf(request.lease) ?? request.generation) !== request.generation) {
    check.broken('lease-owner', `${name}: what it says of ${request.lease}, which was granted to another, is taken in`);
  }
  if ('explain' in effect) checkRecord(check, effect, request);
  if (effect.type === 'deny' || effect.type === 'fail') checkRefusal(check, effect, request);
  if (effect.type === 'deny') checkShares(check, effect, request);
}

function checkRecord(check: Check, effect: EffectOf<'grant' | 'deny' | 'wait' | 'placed'>, request: AuditedRequest): void {
  const name = `${effect.type} to ${effect.generation}#${effect.request}`;
  if (effect.explain === null) {
    if (request.kind !== 'resize') check.broken('explained', `${name} has no explain record`);
    return;
  }
  const record = check.records.get(effect.explain);
  if (record === undefined) {
    check.broken('explained', `${name}: record ${effect.explain} was not emitted in this step`);
    return;
  }
  const isAbout = record.generation === effect.generation && record.request === effect.request;
  if (!isAbout || !verdicts[effect.type]!.includes(record.verdict)) {
    check.broken('explained', `${name}: its record says ${record.verdict} for ${record.generation}#${record.request ?? '-'}`);
  }
}

function checkRefusal(check: Check, effect: EffectOf<'deny' | 'fail'>, request: AuditedRequest): void {
  const { book } = check;
  const name = `${effect.code} to ${effect.generation}#${effect.request ?? '-'}`;
  if (effect.code === 'deadline_passed' && !request.isOptional) {
    const attendedUs = book.clock.mostUs - request.attendedMaxUs;
    if (attendedUs < request.deadlineMs * 1_000 - 1_000) {
      check.broken('deadline-early', `${name} after ${attendedUs} us attended of ${request.deadlineMs} ms`);
    }
  }
  if (effect.code === 'device_unmeasured') {
    // One that comes after its gang was refused hears what was true then.
    const measured = request.gang === null && [...book.cards.values()].every((card) => card.missing === null);
    if (measured) check.broken('refused-without-cause', `${name}: every card has a reading`);
  }
  if (effect.code === 'queue_full') checkQueueFull(check, name, effect, request);
  if (effect.code === 'spawn_failed') checkSpawnFailed(check, name);
  if (effect.code === 'never_fits' && effect.type === 'deny') checkNeverFits(check, name, effect, request);
}

/** As many wait in the queue of the card that refuses as may. */
function checkQueueFull(check: Check, name: string, effect: EffectOf<'deny' | 'fail'>, request: AuditedRequest): void {
  const device = effect.details['device'];
  // Refused for the sake of another card of its gang: that request is judged by itself, or was when it was refused.
  if (request.gang !== null && device !== request.device) return;
  // A placement over several cards tells of one of them, and stands in the queues of all.
  const waiting = [...check.book.requests.values()].filter((other) => other.waits > 0 && (other.queuedOn === device || (other.cards > 1 && other.queuedOn !== null))).length;
  if (waiting < check.book.options.limits.queuedRequestsPerCardMax) check.broken('refused-without-cause', `${name}: only ${waiting} wait for ${String(device)}`);
}

/** A placement fails with a start, never with the end of a worker that had been ready: such a one is not waited for. */
function checkSpawnFailed(check: Check, name: string): void {
  const { event } = check;
  if (event.type !== 'process_exited') return;
  const process = check.book.processes.get(event.generation);
  if (process !== undefined && process.readyAtUs > process.startedAtUs) check.broken('refused-without-cause', `${name}: ${event.generation} had been ready`);
}

function checkNeverFits(check: Check, name: string, effect: EffectOf<'deny'>, request: AuditedRequest): void {
  const { book } = check;
  if (request.gang !== null && effect.details['device'] !== request.device) {
    // Refused for the sake of another card of its gang, whose request is judged by itself, or was when it was refused.
    return;
  }
  if (request.kind !== 'budget' || request.device === null || request.lease !== null) return;
  const memory = book.memory === null ? undefined : book.cards.get(book.memory.device);
  if (memory !== undefined && wholeMemoryNeedBytes(book, request) > memory.totalBytes - memory.reserveBytes) return;
  const card = book.cards.get(request.device);
  if (card === undefined) return;
  // Its own process costs something there too, as the driver may have shown.
  let floors = Math.max(untoldFloorBytesMax, card.floorBytes ?? 0);
  for (const process of book.processes.values()) if (isOn(process, request.device)) floors += floorOn(process, request.device);
  if (request.chargeBytes + floors <= card.totalBytes - card.reserveBytes) {
    check.broken('never-fits-wrong', `${name}: ${request.chargeBytes} and floors ${floors} fit in ${card.totalBytes} - ${card.reserveBytes}`);
  }
}

const immediate: readonly RequestKind[] = ['pin', 'residency', 'resize'];

/** After each step: what must be answered at once has been; on each tick: nothing is past its deadline. */
export function checkOpenRequests(check: Check): void {
  const { book, event } = check;
  if (event.type === 'ticked') checkRefusedStops(check);
  const slackUs = 2 * (book.options.limits.stallToleranceMs + book.options.limits.tickIntervalMs) * 1_000;
  for (const [key, request] of book.requests) {
    if (request.cancelled) {
      book.closeRequest(request);
      continue;
    }
    if (immediate.includes(request.kind)) check.broken('answered-at-once', `${request.kind} request ${key} got no answer in its own step`);
    // An answer that crossed the asking was the only one due (D3).
    if (request.isOptional) continue;
    checkCanFit(check, key, request);
    if (event.type !== 'ticked') continue;
    if (request.kind === 'evict') checkEvict(check, key, request);
    const attendedUs = book.clock.leastUs - request.attendedMinUs;
    if (attendedUs > request.deadlineMs * 1_000 + slackUs) {
      check.broken('deadline-ignored', `${request.kind} ${key} for ${request.model}: ${attendedUs} us attended, deadline ${request.deadlineMs} ms`);
    }
  }
}

/** What can never fit is refused in the step in which it comes. */
function checkCanFit(check: Check, key: string, request: AuditedRequest): void {
  if (request.kind !== 'budget' || request.device === null || request.lease !== null) return;
  const card = check.book.cards.get(request.device);
  if (card !== undefined && request.chargeBytes > card.totalBytes - card.reserveBytes) {
    check.broken('never-fits-late', `budget ${key} for ${request.model} waits, though ${request.chargeBytes} can never fit on ${request.device}`);
  }
}

export function isAnswer(effect: Effect): effect is Answer {
  return effect.type in fitting || effect.type === 'fail';
}
