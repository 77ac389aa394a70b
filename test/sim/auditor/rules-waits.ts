/** Nobody waits behind others for longer than its class, the limits and those before it allow, while its card works as it should. */
import type { Check } from './check.js';
import { requestKey, type AuditedRequest } from './records.js';

/** On each tick. The worst share of a bound that anybody has waited is kept. */
export function checkWaits(check: Check): void {
  const { book } = check;
  for (const request of book.requests.values()) {
    if (request.kind !== 'budget' || request.gang !== null || request.device === null || request.isOptional) continue;
    const key = requestKey(request.generation, request.request);
    const waited = book.waits.get(key) ?? { sinceUs: book.clock.leastUs, older: 0 };
    book.waits.set(key, waited);
    if (isDisturbed(check, request, request.device)) {
      waited.sinceUs = book.clock.leastUs;
      continue;
    }
    waited.older = Math.max(waited.older, [...book.requests.values()].filter((other) => other !== request && isBefore(request, other)).length);
    const waitedMs = (book.clock.leastUs - waited.sinceUs) / 1_000;
    const boundMs = boundOf(check, request, request.device, waited.older);
    book.worstWaitToBound = Math.max(book.worstWaitToBound, waitedMs / boundMs);
    if (waitedMs > boundMs) check.broken('starved', `${key} (${request.model}, ${request.class}) has waited ${waitedMs} ms on ${request.device} behind others; at most ${boundMs} is right`);
  }
  for (const key of book.waits.keys()) if (!book.requests.has(key)) book.waits.delete(key);
}

function isBefore(request: AuditedRequest, other: AuditedRequest): boolean {
  return (other.kind === 'budget' || other.kind === 'place') && (other.device === null || other.device === request.device) && other.sinceUs <= request.sinceUs;
}

/** Its class's longest wait, and then a turn for each older one and for itself: a load, a residency, and the rounds in which victims answer, drain, move and are seen gone. */
function boundOf(check: Check, request: AuditedRequest, device: string, older: number): number {
  const { classPolicies, limits } = check.book.options;
  const there = [...check.book.leases.values()].filter((lease) => lease.device === device);
  const loadUs = Math.max(0, ...check.book.turns.tookUs.values(), ...there.map((lease) => (lease.stage === 'loading' ? check.book.clock.mostUs - (check.book.turns.grantedUs.get(lease.lease) ?? 0) : 0)));
  const rounds = check.book.cards.get(device)?.confirms === 'total' ? Math.max(2, there.length) : 2;
  const roundMs = limits.commandAnswerMs + limits.drainTimeoutMs + limits.moveTimeoutMs + limits.releaseConfirmMs;
  const residencyMs = Math.max(...Object.values(classPolicies).map(({ minimumResidencyMs }) => minimumResidencyMs));
  return classPolicies[request.class].longestWaitMs + (older + 1) * (loadUs / 1_000 + residencyMs + rounds * roundMs);
}

/** Something but the queue keeps it: a card that is not read or is closed, somebody who does not do as told, what is pinned, strangers, its own process. */
function isDisturbed(check: Check, request: AuditedRequest, device: string): boolean {
  const { book } = check;
  const card = book.cards.get(device);
  if (card === undefined || card.lostSinceUs !== null || card.missing !== null || card.sample === null || book.closedBy(device).length > 0) return true;
  if (request.queuedOn !== device || /machine's memory|pinned|given back|being measured/.test(request.waitsFor)) return true;
  if ((book.loadBackOffs.get(`${device} ${request.model}`)?.untilUs ?? 0) > check.event.atUs || book.process(request.generation)?.remeasureSinceUs !== null) return true;
  if ((check.truth.at(device, card.sample.takenAtUs)?.foreignBytes ?? 0) > 0) return true;
  for (const lease of book.leases.values()) if (lease.device === device && (lease.isQuarantined || lease.blamed || lease.revived || book.isPinned(lease))) return true;
  for (const process of book.processes.values()) {
    if (process.state === 'gone' || !process.devices.includes(device)) continue;
    if (process.state === 'ending' || process.state === 'away' || !process.connected || process.misbehaviour + process.commandFailures > 0) return true;
  }
  return false;
}
