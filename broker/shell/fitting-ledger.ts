/** The ledger as one answer carries it: lists that would outgrow it are cut, the biggest first, and what is left out is counted. */
import type { LeaseView, LedgerView, ProcessView, WaiterView } from '../core/index.js';

/** Entries of each list that could not be carried. */
export interface Omitted {
  readonly leases: number;
  readonly waiting: number;
  readonly processes: number;
}

/** More of one list nobody reads, and each look would cost its reader and us a pass over them. */
export const ledgerEntriesMax = 2_000;

/**
 * The JSON of a ledger with `facts` beside it, of at most `bytesMax` as long as cards and facts alone take no more.
 * Lists keep their order while they are whole; one that is cut holds its weightiest entries: the most charged leases,
 * the first in line, the processes with the most floor.
 */
export function ledgerJson(ledger: LedgerView, facts: Readonly<Record<string, unknown>>, bytesMax: number): string {
  const { leases, waiting, processes, ...rest } = ledger;
  const frame = JSON.stringify({ ...rest, ...facts, leases: [], waiting: [], processes: [], omitted: { leases: 0, waiting: 0, processes: 0 } });
  const roomBytes = Math.max(0, bytesMax - Buffer.byteLength(frame) - countsBytesMax);
  // Shares, so that no list crowds out another; what the first two leave is the leases'.
  const people = cut(processes, (process) => weightOfProcess(process), roomBytes / 4);
  const line = cut(waiting, (waiter) => -waiter.position, roomBytes / 4);
  const held = cut(leases, (lease) => lease.chargedBytes, roomBytes - people.bytes - line.bytes);
  const omitted: Omitted = { leases: leases.length - held.kept.length, waiting: waiting.length - line.kept.length, processes: processes.length - people.kept.length };
  return JSON.stringify({ ...rest, leases: held.kept, waiting: line.kept, processes: people.kept, omitted, ...facts } satisfies Carried);
}

/** The digits of three counts. */
const countsBytesMax = 64;

type Carried = LedgerView & { readonly omitted: Omitted } & Readonly<Record<string, unknown>>;

/** A worker or whoever holds something before those who only look. */
function weightOfProcess({ role, floorBytes }: ProcessView): number {
  return floorBytes + (role === 'worker' ? 2 : role === 'holder' ? 1 : 0);
}

function cut<Entry extends LeaseView | WaiterView | ProcessView>(entries: readonly Entry[], weight: (entry: Entry) => number, roomBytes: number): { readonly kept: readonly Entry[]; readonly bytes: number } {
  if (entries.length <= ledgerEntriesMax) {
    const bytes = sizeOf(entries);
    if (bytes <= roomBytes) return { kept: entries, bytes };
  }
  const kept: Entry[] = [];
  let bytes = 0;
  for (const entry of [...entries].sort((a, b) => weight(b) - weight(a)).slice(0, ledgerEntriesMax)) {
    const entryBytes = sizeOf([entry]);
    if (bytes + entryBytes > roomBytes) break;
    bytes += entryBytes;
    kept.push(entry);
  }
  return { kept, bytes };
}

/** With the comma that follows each. */
function sizeOf(entries: readonly unknown[]): number {
  return entries.reduce<number>((bytes, entry) => bytes + Buffer.byteLength(JSON.stringify(entry)) + 1, 0);
}
