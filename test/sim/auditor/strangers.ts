/** Who a broker cannot know: other programs, and the dead of an earlier broker whose bytes the driver has not given back yet. */
import type { Book } from './book.js';
import type { Truth } from './check.js';

/** What strangers had on the card when that reading was taken; null: there was no such reading. */
export function strangersThen(book: Book, truth: Truth, device: string, takenAtUs: number): number | null {
  const sampled = truth.at(device, takenAtUs);
  if (sampled === null) return null;
  let bytes = sampled.foreignBytes;
  for (const [generation, itsBytes] of sampled.byProcess) if (!book.processes.has(generation)) bytes += itsBytes;
  return bytes;
}

export function strangersNow(book: Book, truth: Truth, device: string): number {
  const card = truth.card(device);
  let bytes = card.foreignBytes;
  for (const generation of [...card.processes(), ...card.ghosts()]) if (!book.processes.has(generation)) bytes += card.bytesOf(generation);
  return bytes;
}
