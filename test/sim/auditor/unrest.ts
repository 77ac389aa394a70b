/** What has not come to rest, though nobody wants anything and nothing goes wrong any more (D32). */
import type { LedgerView } from '../../../broker/core/view.js';
import type { Book } from './book.js';

/** Names the first thing that is still under way; null: all is at rest. */
export function unrest(book: Book, view: LedgerView): string | null {
  for (const [key, request] of book.requests) {
    if (request.isOptional) continue;
    if (request.kind === 'place' || request.kind === 'budget' || request.kind === 'evict') return `${request.kind} request ${key} for ${request.model} is open`;
  }
  const waiting = view.waiting[0];
  if (waiting !== undefined) return `${waiting.generation}#${waiting.request} waits for ${waiting.model}: ${waiting.reason}`;
  for (const card of view.cards) {
    if (card.closed !== null) return `${card.device} is closed by ${card.closed.waitsFor.join()}`;
    if (card.holdBytes > 0) return `${card.holdBytes} bytes are held on ${card.device}`;
    if (card.returningBytes > 0) return `${card.returningBytes} bytes are returning on ${card.device}`;
    if (card.loadToken !== null) return `${card.loadToken} has the load token of ${card.device}`;
  }
  if (view.host !== null && view.host.holdBytes > 0) return `${view.host.holdBytes} bytes of memory are held`;
  for (const lease of view.leases) {
    // A holder that keeps bytes is never ended by us: quarantine is where that rests until its own exit.
    const isKept = lease.state === 'quarantined' && book.process(lease.generation)?.role === 'holder';
    const isResting = lease.state === 'resident' || lease.state === 'parked' || isKept;
    if (!isResting) return `lease ${lease.lease} of ${lease.model} is ${lease.state}`;
    if (lease.inFlight > 0) return `lease ${lease.lease} of ${lease.model} counts ${lease.inFlight} calls inside`;
  }
  for (const process of view.processes) {
    if (process.state !== 'ready') return `${process.role} ${process.generation} is ${process.state}`;
  }
  return null;
}
