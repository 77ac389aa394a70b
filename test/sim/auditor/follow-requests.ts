/** Requests as they come: asked, asked again more urgently, taken back. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { HostNeed, LeasePart, RequestClass } from '../../../protocol/index.js';
import type { Book } from './book.js';
import { requestKey, sumOf, withHeadroom, type AuditedRequest, type RequestKind } from './records.js';

type RequestEvent = Extract<CoreEvent, {
  type: 'place_requested' | 'budget_requested' | 'request_cancelled' | 'evict_requested' | 'pin_requested' | 'resize_requested';
}>;

export function followRequest(book: Book, event: RequestEvent): void {
  if (book.process(event.generation) === null) return;
  switch (event.type) {
    case 'place_requested':
      open(book, event, 'place', {
        model: event.model, engine: event.engine, device: event.device, class: event.class, deadlineMs: event.deadlineMs, ageMs: event.ageMs, pinned: event.policy.pinned,
        cards: event.cards ?? 1,
      });
      return;
    case 'budget_requested':
      followBudget(book, event);
      return;
    case 'evict_requested':
      open(book, event, 'evict', { model: event.model, deadlineMs: event.deadlineMs });
      return;
    case 'pin_requested':
      open(book, event, 'pin', { model: event.model, deadlineMs: 0, pinned: event.pinned });
      return;
    case 'resize_requested': {
      const lease = book.leases.get(event.lease);
      open(book, event, 'resize', { model: lease?.model ?? '', device: lease?.device ?? null, lease: event.lease, parts: event.parts, ...(event.also === undefined ? {} : { also: event.also }), deadlineMs: 0 });
      return;
    }
    case 'request_cancelled': {
      const request = book.request(event.generation, event.request);
      if (request !== null) request.cancelled = true;
    }
  }
}

function followBudget(book: Book, event: Extract<CoreEvent, { type: 'budget_requested' }>): void {
  const again = book.request(event.generation, event.request);
  const process = book.process(event.generation);
  if (process !== null) Object.assign(process, { lastUsefulUs: event.atUs, startedFor: null });
  if (again !== null) {
    // A gang is as urgent as the most urgent of its requests.
    for (const each of book.requests.values()) {
      if (again.gang === null || each.gang?.key !== again.gang.key) continue;
      each.class = event.class;
      each.deadlineMs = Math.max(each.deadlineMs, (book.clock.mostUs - each.attendedMaxUs) / 1_000 + event.deadlineMs);
    }
    again.class = event.class;
    again.deadlineMs = Math.max(again.deadlineMs, (book.clock.mostUs - again.attendedMaxUs) / 1_000 + event.deadlineMs);
    return;
  }
  open(book, event, 'budget', {
    model: event.model, device: event.device, lease: event.lease, class: event.class, deadlineMs: event.deadlineMs, ageMs: event.ageMs,
    gang: event.gang === null ? null : { key: `${event.generation} ${event.gang.gang}`, size: event.gang.size },
    parts: event.parts, peakBytes: event.peakBytes, host: event.host ?? null, profilesFreeMemory: event.profilesFreeMemory, ttlMs: event.policy.ttlMs, pinned: event.policy.pinned,
  });
}

interface Asked {
  readonly model: string;
  readonly engine?: string;
  readonly device?: string | null;
  readonly gang?: { readonly key: string; readonly size: number } | null;
  readonly cards?: number;
  readonly also?: AuditedRequest['also'];
  readonly lease?: string | null;
  readonly class?: RequestClass;
  readonly deadlineMs: number;
  readonly ageMs?: number;
  readonly parts?: readonly LeasePart[];
  readonly peakBytes?: number;
  readonly host?: HostNeed | null;
  readonly profilesFreeMemory?: boolean;
  readonly ttlMs?: number | null;
  readonly pinned?: boolean;
}

/** The others take the place in the order of the one that came first. */
function firstOfGang(book: Book, gang: AuditedRequest['gang']): AuditedRequest | null {
  if (gang === null) return null;
  for (const request of book.requests.values()) if (request.gang?.key === gang.key && !request.cancelled) return request;
  return null;
}

function open(book: Book, event: RequestEvent, kind: RequestKind, asked: Asked): void {
  const parts = asked.parts ?? [];
  const askedBytes = Math.max(sumOf(parts), asked.peakBytes ?? 0);
  const first = firstOfGang(book, asked.gang ?? null);
  const request: AuditedRequest = {
    kind, generation: event.generation, request: event.request, model: asked.model, engine: asked.engine ?? null, device: asked.device ?? null,
    gang: asked.gang ?? null, cards: asked.cards ?? 1, also: asked.also ?? [],
    lease: asked.lease ?? null, class: first?.class ?? asked.class ?? 'normal', arrivedAtUs: event.atUs, sinceUs: first?.sinceUs ?? event.atUs - (asked.ageMs ?? 0) * 1_000,
    deadlineMs: asked.deadlineMs, attendedMinUs: book.clock.leastUs, attendedMaxUs: book.clock.mostUs, parts, peakBytes: asked.peakBytes ?? 0, askedBytes,
    chargeBytes: withHeadroom(askedBytes), profilesFreeMemory: asked.profilesFreeMemory ?? false, host: asked.host ?? null, ttlMs: asked.ttlMs ?? null, pinned: asked.pinned ?? false,
    waits: 0, waitsFor: '', isOptional: book.answeredRequests.has(requestKey(event.generation, event.request)), cancelled: false, holdBytes: 0, victims: new Set(), ignoredSinceUs: null, order: book.nextOrder++, queuedOn: null, startsIn: null, awaitsEnd: false,
  };
  const key = requestKey(event.generation, event.request);
  if (!book.requests.has(key)) book.requests.set(key, request);
}
