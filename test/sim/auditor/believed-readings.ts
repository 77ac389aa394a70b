/** What of a reading counts, whoever judges: none that says more than there is or is no younger than the last (it is of no card), and no figures of processes where one of them does. */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { Book } from './book.js';

export function believed(book: Book, event: CoreEvent): CoreEvent {
  if (event.type !== 'sampled') return event;
  const { atUs, device, takenAtUs, usedBytes, totalBytes, processes } = event;
  if (usedBytes > totalBytes) return { type: 'sample_failed', atUs, device, reading: 'failed', reason: 'more than there is' };
  // Found waiting after a stall, behind a younger one: it neither replaces that nor ends a want of readings.
  if (takenAtUs <= (book.cards.get(device)?.sample?.takenAtUs ?? -Infinity)) return { ...event, device: '' };
  const mostBytes = book.cards.get(device)?.totalBytes ?? totalBytes;
  return processes?.some((reading) => reading.usedBytes > mostBytes) === true ? { ...event, processes: null } : event;
}
