/** An OOM inside a lease is the broker's fault, unless somebody took bytes that it could not know of. */
import type { OutOfMemory } from '../../../src/scenarios/world/context.js';
import type { Check } from './check.js';

export function checkOom(check: Pick<Check, 'book' | 'truth' | 'broken'>, oom: OutOfMemory): void {
  const { book, truth } = check;
  const card = book.cards.get(oom.device);
  const lease = oom.lease === null ? undefined : book.leases.get(oom.lease);
  if (card === undefined || lease === undefined || card.confirms === 'none' || truth.card(oom.device).isLost) return;
  if (oom.heldBytes + oom.wantedBytes > lease.promiseBytes) return;
  const now = truth.card(oom.device);
  let strangersBytes = now.foreignBytes;
  for (const generation of [...now.processes(), ...now.ghosts()]) strangersBytes += Math.max(0, now.bytesOf(generation) - knownBytes(book, oom, generation, lease.grantedAtUs));
  if (strangersBytes <= card.reserveBytes + book.options.limits.measureToleranceBytes) {
    check.broken('oom-inside-lease', `${oom.model} (${lease.lease}) was refused ${oom.wantedBytes} with ${oom.heldBytes} of ${lease.promiseBytes} held, and nobody else took what is not theirs`);
  }
}

/** What a process may have there by the book: its stated floor, what it says it holds, and all that was granted for what is still loading. */
function knownBytes(book: Check['book'], oom: OutOfMemory, generation: string, sinceUs: number): number {
  // A floor that nobody could know before the process was there is as a stranger's.
  let bytes = book.process(generation)?.statedFloors.get(oom.device) ?? 0;
  for (const lease of book.leases.values()) {
    if (lease.generation !== generation || lease.device !== oom.device) continue;
    if (lease.lease === oom.lease) bytes += oom.heldBytes;
    // What a lease turned out to need since was nobody's to know when this one was granted.
    else bytes += lease.raisedAtUs !== null && lease.raisedAtUs >= sinceUs ? Math.min(lease.promiseBytes, lease.grantedBytes) : lease.promiseBytes;
  }
  return bytes;
}
