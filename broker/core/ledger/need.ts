/** need = ceil(11/10 x max(sum of parts, peak)) + the floor not yet charged there (D11). */
import type { LeasePart } from '../../../protocol/index.js';
import { floorNeededBytes, knownFloorBytes } from './available.js';
import { isBytes, leasableBytesMax, withHeadroom } from './headroom.js';
import { mustCard } from '../must.js';
import { inWords } from '../report.js';
import type { BudgetWaiter, Card, Core, Lease, Waiter } from '../state.js';

/** The sum of parts, or NaN when it leaves the byte counts. */
export function sumOf(parts: readonly LeasePart[]): number {
  let sum = 0;
  for (const part of parts) {
    if (!isBytes(part.bytes)) return Number.NaN;
    sum += part.bytes;
  }
  return sum <= leasableBytesMax ? sum : Number.NaN;
}

/** Parts by name: those of `added` replace or join those of `parts`; a part of 0 bytes goes. */
export function mergeParts(parts: readonly LeasePart[], added: readonly LeasePart[]): LeasePart[] {
  const byName = new Map(parts.map((part) => [part.name, part]));
  for (const part of added) {
    if (part.bytes === 0) byName.delete(part.name);
    else byName.set(part.name, part);
  }
  return [...byName.values()];
}

/** The parts of a lease after a request has extended it; one that was parked begins anew with what is asked. */
export function extendedParts(lease: Lease, asked: readonly LeasePart[]): LeasePart[] {
  return mergeParts(lease.state === 'parked' ? [] : lease.parts, asked);
}

/** What a lease of so many bytes is charged. `exclusive` is the one exception to the headroom. */
export function chargeFor(bytes: number, exclusive: boolean): number {
  return exclusive ? bytes : withHeadroom(bytes);
}

/** The lease that a budget request extends. One that names none asks for a lease of its own, whatever its process has of that name already. */
export function extendedLease(core: Core, request: { readonly lease: string | null }): Lease | null {
  return request.lease === null ? null : (core.leases.get(request.lease) ?? null);
}

/** A lease that may be extended: not on its way out. */
export function isLive(lease: Lease): boolean {
  return lease.state === 'granted' || lease.state === 'loading' || lease.state === 'resident' || lease.state === 'parked';
}

/** What the lease itself would grow by; one that a partial eviction has made smaller covers all of its parts again. */
export function leaseNeedBytes(core: Core, waiter: BudgetWaiter): number {
  const lease = extendedLease(core, waiter);
  const wholeBytes = lease === null ? waiter.requestedBytes : sumOf(extendedParts(lease, waiter.parts));
  // The parts of both together may leave the byte counts, which no card can give.
  if (Number.isNaN(wholeBytes)) return Number.MAX_SAFE_INTEGER;
  const chargeBytes = chargeFor(Math.max(wholeBytes, waiter.peakBytes), waiter.exclusive);
  return Math.max(0, chargeBytes - (lease?.charge.wantedBytes ?? 0));
}

/** Whether a request names no byte more than the parts of its lease: a claim of what it has already. */
export function addsNothing(core: Core, waiter: BudgetWaiter): boolean {
  const lease = extendedLease(core, waiter);
  return lease !== null && isLive(lease) && lease.state !== 'parked' && lease.job?.phase !== 'moving' && lease.recallCommand === null && sumOf(extendedParts(lease, waiter.parts)) <= sumOf(lease.parts);
}

/** No bytes of the card are asked for, or only those that its lease has: granted whatever the card's state (B83, B191). */
export function asksNothing(core: Core, waiter: BudgetWaiter): boolean {
  return waiter.requestedBytes === 0 || (waiter.needBytes === 0 && addsNothing(core, waiter));
}

export function floorOf(core: Core, waiter: Waiter): number {
  const card = mustCard(core, waiter.device);
  if (waiter.kind === 'place') return knownFloorBytes(core, card, waiter.engine);
  const engine = core.processes.get(waiter.generation)?.engine ?? null;
  return floorNeededBytes(core, card, waiter.generation, engine);
}

/** Everything a waiter needs on its card now. */
export function needOf(core: Core, waiter: Waiter): number {
  return Math.min(Number.MAX_SAFE_INTEGER, (waiter.kind === 'budget' ? leaseNeedBytes(core, waiter) : 0) + floorOf(core, waiter));
}

/** What its worker is believed to cost there already, whatever it is charged; what a program has of its own it may give back. */
function keptFloorBytes(core: Core, waiter: Waiter): number {
  const isWorkers = waiter.kind === 'budget' && core.processes.get(waiter.generation)?.role === 'worker';
  const floor = isWorkers ? mustCard(core, waiter.device).seats.get(waiter.generation)?.floor : undefined;
  return floor === undefined ? 0 : Math.min(floor.residentBytes, floor.chargedBytes);
}

/** All that its process costs there, charged or not. */
export function wholeFloorBytes(core: Core, waiter: Waiter): number {
  return floorOf(core, waiter) + keptFloorBytes(core, waiter);
}

/** What it would be charged there in all, with its lease's own bytes and its worker's floor: nobody can be evicted to make room for those. One that asks for no more needs nothing. */
export function wholeNeedBytes(core: Core, waiter: Waiter): number {
  if (waiter.needBytes === 0) return 0;
  const lease = waiter.kind === 'budget' ? extendedLease(core, waiter) : null;
  const keptBytes = lease === null ? 0 : Math.min(lease.charge.chargedBytes, lease.release?.toChargedBytes ?? Infinity);
  return Math.min(Number.MAX_SAFE_INTEGER, waiter.needBytes + keptBytes + keptFloorBytes(core, waiter));
}

/** What is asked, as records and refusals show it: the whole need, whatever of it an extended lease has already. */
export function shownNeed(core: Core, waiter: Waiter): { readonly requestedBytes: number; readonly needBytes: number; readonly floorBytes: number; readonly ownHoldBytes: number } {
  const floorBytes = floorOf(core, waiter);
  const whole = waiter.kind === 'budget' && waiter.lease === null ? chargeFor(waiter.requestedBytes, waiter.exclusive) : waiter.needBytes - floorBytes;
  return { requestedBytes: waiter.requestedBytes, needBytes: Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, whole) + floorBytes), floorBytes, ownHoldBytes: waiter.holdBytes };
}

/** Why it can never fit, for a person: what it needs, what of that is the process itself, what there is. */
export function neverText(needBytes: number, floorBytes: number, engine: string, card: Card): string {
  const floor = floorBytes === 0 ? '' : `, of which ${inWords(floorBytes)} is the floor of a ${engine} process`;
  return `${inWords(needBytes)} needed${floor}; at most ${inWords(capacityBytes(card))} could be had there`;
}

/** The most that could ever be had there by a process that pays `floorBytes`. */
export function capacityBytes(card: Card): number {
  return Math.max(0, card.totalBytes - card.reserveBytes);
}
