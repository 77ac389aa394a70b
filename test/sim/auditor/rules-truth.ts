/**
 * The card itself is the last witness: what is promised and what is there must
 * fit together, but for what the broker could not have known when its reading
 * was taken: strangers that came later, and bytes that liars took or claimed.
 */
import type { Check } from './check.js';
import { floorOn, isOn, type AuditedCard } from './records.js';

export function checkTruth(check: Check, name: string, card: AuditedCard, owner: string, moreBytes: number, isGrowth: boolean): void {
  if (card.confirms === 'none' || card.sample === null || card.missing !== null) return;
  const { truth, book } = check;
  const sampled = truth.at(card.device, card.sample.takenAtUs);
  if (sampled === null) return;
  const now = truth.card(card.device);
  let boundBytes = now.foreignBytes;
  let unknowableBytes = sampled.hiddenBytes + Math.max(0, now.foreignBytes - sampled.foreignBytes);
  for (const generation of new Set([...now.processes(), ...now.ghosts(), ...sampled.byProcess.keys(), ...living(check, card.device)])) {
    const trueBytes = now.bytesOf(generation);
    const promised = promisedBytes(check, card.device, generation);
    const sampledBytes = sampled.byProcess.get(generation) ?? 0;
    // What a liar said of itself may have been given back to it, and a lease that grows covers what its owner had said too soon that it gave back: then what is there is part of what is granted.
    const isCovered = generation === owner && (isGrowth || (book.process(owner)?.misbehaviour ?? 0) > 0);
    boundBytes += isCovered ? Math.max(trueBytes - moreBytes, promised.bytes) : Math.max(trueBytes, promised.bytes);
    const excessNow = Math.max(0, trueBytes - promised.bytes);
    const excessThen = Math.max(0, sampledBytes - promised.bytes);
    unknowableBytes += Math.max(0, excessNow - excessThen) + Math.max(0, promised.claimedBytes - Math.max(sampledBytes, trueBytes));
  }
  const toleranceBytes = book.options.limits.measureToleranceBytes * (1 + book.leases.size);
  const roomBytes = card.totalBytes - card.reserveBytes - boundBytes + unknowableBytes + toleranceBytes;
  if (moreBytes > roomBytes) {
    check.broken('truth', `${name}: with ${boundBytes} there or promised (${unknowableBytes} not knowable) of ${card.totalBytes} - ${card.reserveBytes} it does not fit`);
  }
}

function living(check: Check, device: string): string[] {
  return [...check.book.processes.values()].filter((process) => isOn(process, device)).map((process) => process.generation);
}

/** What the book (or the ledger as shown, where that is more) lets a process have there, and what it says that it has. Whether what left is gone, the card itself says. */
export function promisedBytes(check: Check, device: string, generation: string, asShown = false): { bytes: number; claimedBytes: number } {
  const { book } = check;
  const process = book.process(generation);
  // One that an earlier broker knew and that does not come back is charged what it was known to have for as long as it lives.
  const ownFloorBytes = process === null ? 0 : Math.max(floorOn(process, device), asShown && process.state === 'away' ? (process.awayFloors.get(device) ?? 0) : 0);
  // As shown: never below what its engine was once seen to take.
  const floorBytes = asShown && ownFloorBytes > 0 ? Math.max(ownFloorBytes, book.toldFloors.get(process?.engine ?? '') ?? 0) : ownFloorBytes;
  let bytes = floorBytes;
  let claimedBytes = floorBytes;
  for (const lease of book.leases.values()) {
    if (lease.device !== device || lease.generation !== generation) continue;
    bytes += asShown ? Math.max(lease.promiseBytes, lease.shownBytes) : lease.promiseBytes;
    // A holder's unleased bytes are its own affair and cannot be told from a load's.
    const isGuess = lease.stage === 'loading' && !(asShown && process?.role === 'holder');
    claimedBytes += isGuess ? lease.promiseBytes : lease.residentBytes;
  }
  return { bytes, claimedBytes };
}
