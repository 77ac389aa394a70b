/** What a grant may be: the right size, inside what is left by the book, and not against the order of the queue. */
import type { Book } from './book.js';
import type { Check, EffectOf } from './check.js';
import { mergeParts, shortOf } from './follow-effects.js';
import { goesBefore, mayPass } from './order.js';
import { sumOf, withHeadroom, type AuditedCard, type AuditedLease, type AuditedRequest } from './records.js';
import { checkClosed } from './rules-returns.js';
import { checkTruth } from './rules-truth.js';

export function checkGrant(check: Check, grant: EffectOf<'grant'>): void {
  const { book } = check;
  const request = book.request(grant.generation, grant.request);
  const card = book.cards.get(grant.device);
  if (request === null) return;
  const name = `grant ${grant.lease} of ${grant.chargedBytes} on ${grant.device} to ${grant.generation}#${grant.request} (${request.model})`;
  if (card === undefined) {
    check.broken('grant-device', `${name}: no such card`);
    return;
  }
  if (request.device !== null && request.device !== grant.device) check.broken('grant-device', `${name}: asked for ${request.device}`);
  if (book.formerLeases.has(grant.lease) && !book.leases.has(grant.lease)) check.broken('lease-reused', `${name}: an earlier broker gave that lease`);
  if (book.closedLeases.get(grant.lease)?.revived === false) check.broken('lease-reused', `${name}: that lease had ended`);
  const lease = book.leases.get(grant.lease) ?? null;
  // Two things of one name are two leases; and what is still on its way about the first (given back, never come) would end the second.
  if (request.kind === 'budget' && request.lease === null && lease !== null) check.broken('lease-reused', `${name}: it named no lease, and gets one that is ${lease.stage}`);
  // Said by its owner to be gone, and there all the same: what is charged for it the book does not know.
  if (lease === null && book.closedLeases.get(grant.lease)?.revived === true) {
    checkReading(check, name, card);
    return;
  }
  const moreBytes = grant.chargedBytes - (lease?.promiseBytes ?? 0);
  // Within what it is charged already nothing new is promised.
  const needBytes = grant.explain === null ? null : (check.records.get(grant.explain)?.numbers?.needBytes ?? null);
  if (lease !== null && lease.stage !== 'parked' && (grant.chargedBytes <= chargedBefore(lease) || needBytes === 0)) return;
  if (card.lostSinceUs !== null) check.broken('lost-card', `${name}: the card is gone`);
  checkSize(check, name, grant, request, lease);
  if (moreBytes <= 0) return;
  checkClosed(check, name, card);
  checkReading(check, name, card);
  checkSum(check, name, card, moreBytes, request);
  // What its owner may have said too soon of an earlier charge is there already.
  checkTruth(check, name, card, grant.generation, Math.max(0, grant.chargedBytes - Math.max(lease?.promiseBytes ?? 0, lease?.shownBytes ?? 0)), lease !== null);
  checkRobbed(check, name, card, request, moreBytes);
  if (request.kind === 'budget') {
    checkToken(check, name, request);
    checkBackOff(check, name, request);
    checkOrder(check, name, card, request, moreBytes);
  }
}

/** As shown last, or what its last report has raised it to since: what it has, with its headroom. */
function chargedBefore(lease: AuditedLease): number {
  return Math.max(lease.shownBytes, lease.stage === 'resident' ? withHeadroom(lease.residentBytes) : 0);
}

function checkSize(check: Check, name: string, grant: EffectOf<'grant'>, request: AuditedRequest, lease: AuditedLease | null): void {
  if (lease === null) {
    if (request.lease !== null && !check.book.closedLeases.has(request.lease)) check.broken('grant-lease', `${name}: it was to extend ${request.lease}`);
    if (grant.chargedBytes !== request.chargeBytes) check.broken('need', `${name}: 11/10 of ${request.askedBytes} is ${request.chargeBytes}`);
    return;
  }
  if (lease.generation !== grant.generation) {
    check.broken('grant-lease', `${name}: that lease is ${lease.generation}'s`);
    return;
  }
  if (lease.stage === 'parked' && request.arrivedAtUs < lease.parkedAtUs) {
    check.broken('grant-lease', `${name}: it was asked while the model was there; since then it has been put away`);
    return;
  }
  if (shortOf(lease, request) > 0) {
    const replaced = sumOf(lease.parts.filter((part) => request.parts.some((asked) => asked.name === part.name)));
    const thereBytes = Math.max(0, lease.residentBytes - replaced) + sumOf(request.parts);
    // Its own word of its parts counts as well as that of their sum.
    const leastBytes = Math.min(thereBytes, withHeadroom(sumOf(mergeParts(lease, request.parts))));
    if (grant.chargedBytes < leastBytes) check.broken('need', `${name}: ${lease.residentBytes} of it are there and ${sumOf(request.parts)} are asked for`);
    return;
  }
  const wantedBytes = withHeadroom(Math.max(sumOf(mergeParts(lease, request.parts)), request.kind === 'resize' ? 0 : request.peakBytes));
  const grownBytes = Math.max(wantedBytes, lease.stage === 'parked' ? 0 : lease.promiseBytes);
  const isResize = request.kind === 'resize';
  const isTooLittle = grant.chargedBytes < (isResize ? wantedBytes : grownBytes);
  // What was measured beyond its parts is charged too, and only that.
  const trueBytes = check.truth.card(grant.device).bytesOf(grant.generation);
  const isTooMuch = grant.chargedBytes > Math.max(grownBytes, lease.shownBytes, withHeadroom(trueBytes));
  if (isTooLittle || isTooMuch) check.broken('need', `${name}: 11/10 of the parts is ${wantedBytes}, it had ${lease.promiseBytes}`);
}

/** After its load a lease is charged 11/10 of its steady parts, or of what it has where that is more: the surplus of the peak has gone back (D11). */
export function checkLoaded(check: Check, id: string, chargedBytes: number): void {
  const lease = check.book.leases.get(id);
  if (lease === undefined) return;
  const mostBytes = withHeadroom(Math.max(sumOf(lease.parts), lease.residentBytes));
  if (chargedBytes > mostBytes) check.broken('steady', `${id} (${lease.model}) is charged ${chargedBytes} after its load; 11/10 of what it has is ${mostBytes}`);
}

/** Unknown is not zero: without a reading nothing is granted, unless the operator allows the ledger alone. */
function checkReading(check: Check, name: string, card: AuditedCard): void {
  const { limits, allowLedgerOnly } = check.book.options;
  if (allowLedgerOnly) return;
  if (card.sample === null) {
    check.broken('reading-missing', `${name}: the card has never been read`);
    return;
  }
  const ageUs = check.event.atUs - card.sample.takenAtUs;
  if (ageUs > limits.sampleMaxAgeMs * 1_000) check.broken('reading-old', `${name}: the last reading is ${ageUs} us old`);
}

function checkSum(check: Check, name: string, card: AuditedCard, moreBytes: number, request: AuditedRequest): void {
  const { book } = check;
  const chargedBytes = book.chargedBytes(card.device);
  const heldBytes = heldForOthersBytes(check, card.device, request);
  const roomBytes = card.totalBytes - card.reserveBytes - chargedBytes;
  if (moreBytes > roomBytes) {
    check.broken('over-committed', `${name}: charged ${chargedBytes} of ${card.totalBytes} - ${card.reserveBytes}, room ${roomBytes}`);
    return;
  }
  if (moreBytes > roomBytes - heldBytes) check.broken('hold-taken', `${name}: room ${roomBytes}, of which ${heldBytes} were freed for others`);
}

/** Bytes freed for others that wait there. One that goes before another may be given what was kept for it. */
function heldForOthersBytes(check: Check, device: string, own: AuditedRequest): number {
  let held = 0;
  for (const other of check.book.requests.values()) {
    const isKept = other !== own && other.device === device && other.holdBytes > 0 && !other.cancelled && !other.isOptional;
    if (isKept && !mayPass(check.book, own, other)) held += Math.min(other.holdBytes, growthBytes(check.book, other));
  }
  return held;
}

/** An engine that profiles free memory loads alone. */
function checkToken(check: Check, name: string, request: AuditedRequest): void {
  for (const other of check.book.leases.values()) {
    const isLoading = (other.stage === 'granted' || other.stage === 'loading') && !other.isQuarantined;
    if (other.device !== request.device || !isLoading || other.generation === request.generation) continue;
    if (other.profilesFreeMemory || request.profilesFreeMemory) check.broken('load-token', `${name}: ${other.lease} (${other.model}) is loading there`);
  }
}

function checkBackOff(check: Check, name: string, request: AuditedRequest): void {
  if (request.lease !== null) return;
  const backOff = check.book.loadBackOffs.get(`${request.device ?? ''} ${request.model}`);
  if (backOff !== undefined && check.event.atUs < backOff.untilUs) check.broken('back-off', `${name}: failed ${backOff.failures} times, not before ${backOff.untilUs}`);
}

/** After `longestWaitMs` a request goes before every younger one: none may take bytes that it needs. */
function checkOrder(check: Check, name: string, card: AuditedCard, request: AuditedRequest, moreBytes: number): void {
  const { book, event } = check;
  const { stallToleranceMs, tickIntervalMs } = book.options.limits;
  for (const elder of book.requests.values()) {
    if (elder === request || elder.isOptional || elder.kind !== 'budget' || elder.device !== card.device || elder.sinceUs >= request.sinceUs || elder.waits === 0 || elder.cancelled) continue;
    const longestUs = (book.options.classPolicies[elder.class].longestWaitMs + stallToleranceMs + tickIntervalMs) * 1_000;
    const waitedUs = Math.min(event.atUs - elder.sinceUs, book.clock.leastUs - elder.attendedMinUs);
    if (waitedUs < longestUs || isHeldUp(check, elder)) continue;
    const roomBytes = card.totalBytes - card.reserveBytes - book.chargedBytes(card.device);
    if (roomBytes - moreBytes < growthBytes(book, elder)) {
      check.broken('starved', `${name} passes ${elder.generation}#${elder.request} (${elder.model}), which has waited ${waitedUs} us`);
    }
  }
}

/** What its charge grows by: one that extends a lease may give back a part of it in return. */
function growthBytes(book: Book, request: AuditedRequest): number {
  const lease = request.lease === null ? undefined : book.leases.get(request.lease);
  if (lease === undefined) return request.chargeBytes;
  const wholeBytes = withHeadroom(Math.max(sumOf(mergeParts(lease, request.parts)), request.peakBytes));
  return Math.min(request.chargeBytes, Math.max(0, wholeBytes - lease.promiseBytes));
}

/** What is free is kept for a request that goes before and has victims ordered for it, up to its need (D22). */
function checkRobbed(check: Check, name: string, card: AuditedCard, request: AuditedRequest, moreBytes: number): void {
  const { book } = check;
  const roomBytes = card.totalBytes - card.reserveBytes - book.chargedBytes(card.device);
  for (const elder of book.requests.values()) {
    const isPlanned = elder !== request && elder.kind === 'budget' && elder.device === card.device && elder.victims.size > 0 && !elder.cancelled && !elder.isOptional;
    // Growth while tokens flow never waits, and goes before nobody.
    const isBefore = request.kind === 'resize' || (goesBefore(book, elder, request) && !mayPass(book, request, elder));
    if (!isPlanned || !isBefore || isBackingOff(check, elder)) continue;
    const keptBytes = Math.min(Math.max(0, roomBytes), growthBytes(book, elder));
    if (moreBytes > roomBytes - keptBytes) check.broken('hold-taken', `${name}: of ${roomBytes} free ${keptBytes} are kept for ${elder.generation}#${elder.request} (${elder.model})`);
  }
}

/** Something other than bytes keeps it: its own model is leaving, or its failure is recent. */
function isHeldUp(check: Check, elder: AuditedRequest): boolean {
  // One of a gang may be kept by its other cards.
  return isBackingOff(check, elder) || elder.profilesFreeMemory || elder.gang !== null || waitsForMemory(check, elder) || check.book.process(elder.generation)?.remeasureSinceUs !== null;
}

/** Itself, or one that goes before it there, and takes what comes free first. */
function waitsForMemory(check: Check, elder: AuditedRequest): boolean {
  for (const other of check.book.requests.values()) {
    const waits = other.device === elder.device && other.waitsFor.includes('machine\'s memory');
    if (waits && (other === elder || goesBefore(check.book, other, elder))) return true;
  }
  return false;
}

function isBackingOff(check: Check, request: AuditedRequest): boolean {
  return (check.book.loadBackOffs.get(`${request.device ?? ''} ${request.model}`)?.untilUs ?? 0) > check.event.atUs;
}
