/** What of a card is surely free by its last reading, whoever judges. */
import type { Check } from './check.js';
import { floorOn, isOn, untoldFloorBytesMax } from './records.js';
import { promisedBytes } from './rules-truth.js';

/** Room that the last reading and all promises surely leave, process by process. Null: not known. */
export function knownRoomBytes(check: Check, device: string): number | null {
  const { book, truth } = check;
  const card = book.cards.get(device);
  if (card === undefined || card.sample === null || card.missing !== null || !card.sample.hasFigures) return null;
  if (check.event.atUs - card.sample.takenAtUs > book.options.limits.sampleMaxAgeMs * 1_000) return null;
  const sampled = truth.at(device, card.sample.takenAtUs);
  if (sampled === null) return null;
  let boundBytes = sampled.foreignBytes;
  for (const generation of new Set([...sampled.byProcess.keys(), ...book.processes.keys()])) {
    // Bytes beyond what it says that it holds count beside all that it may still take (D15).
    const promised = promisedBytes(check, device, generation, true);
    const sampledBytes = sampled.byProcess.get(generation) ?? 0;
    // Of one that has said what was not so, nothing that it claims explains any of that.
    const isBelieved = (book.processes.get(generation)?.misbehaviour ?? 0) === 0;
    boundBytes += promised.bytes + (isBelieved ? Math.max(sampledBytes - promised.claimedBytes, Math.min(sampledBytes, besideLoads(check, device, generation))) : sampledBytes);
  }
  return card.totalBytes - card.reserveBytes - boundBytes;
}

/** What was there beside all that a process says when the first of its loads under way was granted: no load explains it. */
function besideLoads({ book }: Check, device: string, generation: string): number {
  let bytes = 0;
  for (const lease of book.leases.values()) {
    if (lease.device === device && lease.generation === generation && (lease.stage === 'granted' || lease.stage === 'loading')) bytes = Math.max(bytes, lease.besideBytes);
  }
  return bytes;
}

/** What the last reading showed of a process beyond all that it says, what it loads taken for all there. */
export function unexplainedBytes(check: Check, device: string, generation: string): number {
  const { book, truth } = check;
  const sample = book.cards.get(device)?.sample ?? null;
  const sampledBytes = sample === null ? 0 : (truth.at(device, sample.takenAtUs)?.byProcess.get(generation) ?? 0);
  return Math.max(0, sampledBytes - promisedBytes(check, device, generation, true).claimedBytes);
}

/** What processes there may be charged for themselves beyond what they have told; a holder's unleased bytes are its floor. */
export function floorsBytes(check: Check, device: string): number {
  let bytes = 0;
  const holders = new Set<string>();
  for (const lease of check.book.leases.values()) if (lease.device === device) holders.add(lease.generation);
  for (const process of check.book.processes.values()) {
    if (process.state === 'gone') continue;
    const isUntold = (isOn(process, device) && floorOn(process, device) === 0) || (process.role === 'holder' && holders.has(process.generation));
    if (isUntold) bytes += untoldFloorBytesMax;
    // What the card says that a process costs there is the least that one is charged.
    else if (isOn(process, device)) bytes += Math.max(floorOn(process, device), check.book.cards.get(device)?.floorBytes ?? 0);
  }
  return bytes;
}
