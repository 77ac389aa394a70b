/** Who surely goes before whom: by class with ageing, and whoever is past the longest wait before every younger one. */
import type { Book } from './book.js';
import type { AuditedRequest } from './records.js';

/** True when `left` may be served before `right`; equal ranks go by age. */
export function goesBefore(book: Book, left: AuditedRequest, right: AuditedRequest): boolean {
  return precedes(book, left, right, left.sinceUs <= right.sinceUs);
}

function precedes(book: Book, left: AuditedRequest, right: AuditedRequest, isOlder: boolean): boolean {
  if (isOlder && isOverdue(book, left)) return true;
  if (!isOlder && isOverdue(book, right)) return false;
  const leftRank = rankOf(book, left);
  const rightRank = rankOf(book, right);
  return leftRank === rightRank ? isOlder : leftRank > rightRank;
}

/** Before it, or before one that goes before it: three of unlike ages and classes may go round in a circle. */
export function mayPass(book: Book, own: AuditedRequest, other: AuditedRequest): boolean {
  if (goesBefore(book, own, other)) return true;
  // An age that it came with was counted by its asker's clock, which no busy loop of ours held up.
  if (precedes(book, own, other, waitedUs(book, own) >= waitedUs(book, other))) return true;
  for (const third of book.requests.values()) {
    const isBetween = third !== own && third !== other && third.device === other.device && third.kind === 'budget' && third.waits > 0;
    if (isBetween && goesBefore(book, own, third) && goesBefore(book, third, other)) return true;
  }
  return false;
}

function rankOf(book: Book, request: AuditedRequest): number {
  const policy = book.options.classPolicies[request.class];
  return policy.rank + Math.floor(waitedUs(book, request) / (policy.ageingMs * 1_000));
}

function isOverdue(book: Book, request: AuditedRequest): boolean {
  return waitedUs(book, request) >= book.options.classPolicies[request.class].longestWaitMs * 1_000;
}

/** Attended, with the age it came with. */
export function waitedUs(book: Book, request: AuditedRequest): number {
  return book.clock.mostUs - request.attendedMaxUs + (request.arrivedAtUs - request.sinceUs);
}
