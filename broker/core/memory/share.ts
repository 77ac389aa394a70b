/**
 * The machine's memory, the second ledger: a card of its own kind, `core.host`, on which nothing is placed and nothing
 * queues. What a lease has there follows from the lease (`rehost`): what its load takes, then what it needs and the copy
 * that it keeps, and what parking it takes while it is being parked. A charge there falls like any other, when a reading
 * younger than the report shows it: until then what was given back counts as residue of its process.
 */
import type { HostNeed, ResidencyState } from '../../../protocol/index.js';
import { available, isUnwatched, knownFloorBytes } from '../ledger/available.js';
import { companions, devicesOf, membersOf } from '../gangs/gang.js';
import { isBytes, withHeadroom } from '../ledger/headroom.js';
import { dropCharge, newCharge, seatOf, setAttributed, setCharged, setFlux, setMeasured, setResident } from '../ledger/ledger.js';
import { extendedLease, sumOf } from '../ledger/need.js';
import { wantSample } from '../cards/probe.js';
import type { BudgetWaiter, Card, Core, Gang, HostShare, Lease, Seat, Waiter } from '../state.js';

/** What parking is taken to need at its peak where the engine does not say: the copy, and as much again to make it (B185). */
export const parkFactor = 2;

export const noHostNeed: HostNeed = { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null };

/** The figure of a need that cannot enter the ledger, by its name; null: all can, also together. */
export function wrongHostBytes(need: HostNeed): readonly [field: string, bytes: number] | null {
  const { neededBytes, copyBytes, peakBytes, parkPeakBytes } = need;
  const figures = { neededBytes, copyBytes, peakBytes, parkPeakBytes: parkPeakBytes ?? 0, sum: neededBytes + copyBytes + (parkPeakBytes ?? 0) };
  const wrong = Object.entries(figures).find(([, bytes]) => !isBytes(bytes));
  return wrong === undefined ? null : [`host.${wrong[0]}`, wrong[1]];
}

/** The share of a new lease; null where the machine's memory is not leased. */
export function newShare(core: Core, lease: string, generation: string, asked: HostNeed | null): HostShare | null {
  const { host } = core;
  if (host === null) return null;
  const seat = seatOf(core, host, generation);
  if (!seat.hadLease) seat.leasedSinceAtUs = core.nowUs;
  seat.hadLease = true;
  return {
    charge: newCharge('lease', lease, host.device, generation), asked: asked ?? noHostNeed,
    keepsCopy: false, loaded: false, parks: false, trim: null, strikes: 0, avoidUntilUs: 0, fixed: false, parkUntilUs: null,
  };
}

/** What a request needs there beyond what it is charged already, its copy left out: that is a wish. Of a gang the first member needs what all of them do. */
export function hostNeedOf(core: Core, waiter: Waiter): number {
  const gang = waiter.gang === null ? undefined : core.gangs.get(waiter.gang);
  if (gang === undefined || gang.members.get(waiter.device) !== waiter.key) return ownHostNeed(core, waiter);
  if (hostSpokesman(core, gang) !== waiter) return 0;
  // A placement's are one process.
  return waiter.kind === 'place' ? ownHostNeed(core, waiter) : membersOf(core, gang).reduce((sum, member) => sum + ownHostNeed(core, member), 0);
}

/** The member of a gang by which it waits for the machine's memory. */
export function hostSpokesman(core: Core, gang: Gang): Waiter | null {
  return core.waiters.get(gang.members.get(devicesOf(gang)[0] ?? '') ?? '') ?? null;
}

function ownHostNeed(core: Core, waiter: Waiter): number {
  const { host } = core;
  if (host === null) return 0;
  if (waiter.kind === 'place') return knownFloorBytes(core, host, waiter.engine);
  if (waiter.host === null) return 0;
  const { neededBytes, peakBytes } = waiter.host;
  const lease = extendedLease(core, waiter);
  const share = lease?.host ?? null;
  if (lease === null || share === null) return withHeadroom(Math.max(neededBytes, peakBytes));
  const wantedBytes = withHeadroom(Math.max(neededBytes + lease.hostBytes, share.loaded ? 0 : peakBytes));
  return Math.max(0, wantedBytes - share.charge.chargedBytes);
}

/** A grant takes its share: what it must have, which the caller has checked, and a copy where there is room for one beside. */
export function takeShare(core: Core, lease: Lease, waiter: BudgetWaiter): void {
  const { host: share } = lease;
  const { host } = core;
  if (share === null || host === null) return;
  if (waiter.host !== null) share.asked = waiter.host;
  const { neededBytes, copyBytes, peakBytes } = share.asked;
  if (!share.loaded && copyBytes > 0) {
    const { freeBytes } = available(core, host);
    const wantedBytes = withHeadroom(Math.max(neededBytes + copyBytes, peakBytes));
    share.keepsCopy = waiter.hostCopies ?? (host.closedBy.size === 0 && freeBytes !== null && wantedBytes - share.charge.chargedBytes <= freeBytes - host.holdBytes + waiter.hostHoldBytes);
  }
  rehost(core, lease);
}

/** Whether a gang that is about to be granted has room there for all of its copies, beside all that it must have. */
export function gangCopiesFit(core: Core, members: readonly BudgetWaiter[]): boolean {
  const { host } = core;
  if (host === null || host.closedBy.size > 0) return false;
  const { freeBytes } = available(core, host);
  const heldBytes = members.reduce((sum, waiter) => sum + waiter.hostHoldBytes, 0);
  const wantedBytes = members.reduce((sum, waiter) => sum + Math.max(ownHostNeed(core, waiter), copiedNeed(core, waiter)), 0);
  return freeBytes !== null && wantedBytes <= freeBytes - host.holdBytes + heldBytes;
}

function copiedNeed(core: Core, waiter: BudgetWaiter): number {
  if (waiter.host === null) return 0;
  const { neededBytes, copyBytes, peakBytes } = waiter.host;
  return withHeadroom(Math.max(neededBytes + copyBytes, peakBytes)) - (extendedLease(core, waiter)?.host?.charge.chargedBytes ?? 0);
}

/** Its owner says what copy it has now; `state`: and where the model stands, null in an answer. Charged at once, whatever is free (D12). */
export function reportShare(core: Core, lease: Lease, hostBytes: number, state: ResidencyState | null): void {
  const { host: share } = lease;
  lease.hostBytes = hostBytes;
  if (share === null) return;
  share.loaded ||= state === 'resident' || state === 'parked';
  if (state !== null) share.parks = state === 'parking' && lease.job === null;
  if (share.loaded) share.keepsCopy = hostBytes > 0;
  rehost(core, lease);
  setResident(core, share.charge, Math.min(share.charge.chargedBytes, share.asked.neededBytes + hostBytes));
}

/** Charges what the lease has there as it stands; call after any change of it. */
export function rehost(core: Core, lease: Lease): void {
  const { host: share } = lease;
  const { host } = core;
  if (share === null || host === null) return;
  const loads = !share.loaded && (lease.state === 'granted' || lease.state === 'loading');
  const copies = isParking(lease) && lease.hostBytes === 0;
  if (share.charge.flux === 'loading' && !loads && !copies) awaitReading(core, host, share.charge.generation);
  setFlux(core, share.charge, loads || copies ? 'loading' : null);
  const wantedBytes = wantedOf(lease, share);
  const { chargedBytes } = share.charge;
  if (wantedBytes === share.charge.wantedBytes) return;
  setCharged(core, share.charge, wantedBytes);
  if (share.charge.chargedBytes < chargedBytes) keepUntilSeen(core, host, share.charge.generation, chargedBytes - share.charge.chargedBytes);
}

function wantedOf(lease: Lease, share: HostShare): number {
  // Nobody gives it back, so nothing of it is.
  if (lease.state === 'quarantined') return share.charge.wantedBytes;
  // Given back as a whole, or being closed.
  if (lease.state === 'releasing' && (lease.release === null || lease.release.then === 'closed')) return 0;
  const { neededBytes, copyBytes, peakBytes } = share.asked;
  const copy = Math.max(lease.hostBytes, share.keepsCopy && !share.loaded ? copyBytes : 0);
  const wantedBytes = withHeadroom(Math.max(neededBytes + copy, share.loaded ? 0 : peakBytes));
  return isParking(lease) ? Math.max(wantedBytes, parkBytesOf(lease)) : wantedBytes;
}

/** At our word, or of its own. */
export function isParking(lease: Lease): boolean {
  return lease.job?.rung === 'park' || lease.host?.parks === true;
}

/** What must be charged there for a lease while it is parked: nothing more where it has its copy already. */
export function parkBytesOf(lease: Lease): number {
  const { host: share } = lease;
  if (share === null || (lease.hostBytes > 0 && share.trim === null)) return share?.charge.chargedBytes ?? 0;
  const { neededBytes, parkPeakBytes } = share.asked;
  return neededBytes + (parkPeakBytes === null ? parkFactor * weightsOf(lease) : withHeadroom(parkPeakBytes));
}

/** What a copy of it is made of: contexts and compute are not kept. */
function weightsOf(lease: Lease): number {
  const weightsBytes = lease.parts.reduce((sum, part) => sum + (part.kind === 'weights' ? part.bytes : 0), 0);
  // One that an earlier broker had parked says no more what it still has on the card.
  const heldBytes = lease.release === null ? lease.charge.residentBytes : sumOf(lease.parts);
  return Math.max(0, Math.min(heldBytes, weightsBytes === 0 ? Infinity : weightsBytes));
}

/** What parking it, with the rest of its gang, lacks there; 0: nothing. Null: it is not known what is free, or whose it is. */
export function parkShortBytes(core: Core, lease: Lease): number | null {
  const { host } = core;
  if (host === null || lease.host === null) return 0;
  const moreBytes = companions(core, lease).reduce((sum, member) => sum + Math.max(0, parkBytesOf(member) - (member.host?.charge.chargedBytes ?? 0)), 0);
  if (moreBytes <= 0) return 0;
  const { freeBytes } = available(core, host);
  return freeBytes === null || host.closedBy.size > 0 ? null : Math.max(0, moreBytes - (freeBytes - host.holdBytes));
}

/** The lease is over: what it had there stays charged to its process until a reading shows it gone. */
export function closeShare(core: Core, lease: Lease): void {
  const { host: share } = lease;
  const { host } = core;
  if (share === null || host === null) return;
  const { chargedBytes, generation } = share.charge;
  share.trim = null;
  dropCharge(core, share.charge);
  if (chargedBytes > 0) keepUntilSeen(core, host, generation, chargedBytes);
  host.planEpoch++;
}

/** While it loaded, what its process had besides could not be told from it: the next reading tells, and nobody leaves for bytes in doubt before that. */
function awaitReading(core: Core, host: Card, generation: string): void {
  const seat = host.seats.get(generation);
  if (seat === undefined || seat.residue.chargedBytes === 0 || isUnwatched(core, host)) return;
  seat.loweredAtUs = core.nowUs;
  wantSample(core, host, core.nowUs);
}

function keepUntilSeen(core: Core, host: Card, generation: string, bytes: number): void {
  const seat = host.seats.get(generation);
  host.planEpoch++;
  // Nothing tells what one process has there: its word is all there is, and the reading of the whole the check on it.
  if (seat === undefined || isUnwatched(core, host)) return;
  setHostResidue(core, seat, seat.residue.chargedBytes + bytes);
  seat.loweredAtUs = core.nowUs;
  wantSample(core, host, core.nowUs);
}

/** What a process has there beyond its floor and its leases, or has given back and nobody has seen yet. */
export function setHostResidue(core: Core, seat: Seat, bytes: number): void {
  if (core.host === null || bytes === seat.residue.chargedBytes) return;
  setCharged(core, seat.residue, bytes);
  setMeasured(core, seat.residue, seat.residue.chargedBytes);
  setAttributed(core.host, seat.residue, seat.residue.chargedBytes);
  core.host.planEpoch++;
}

/** A process that ends has its place there until its end is confirmed; then the kernel has taken everything back. */
export function leaveHost(core: Core, generation: string): void {
  const { host } = core;
  const seat = host?.seats.get(generation);
  if (host === null || seat === undefined) return;
  dropCharge(core, seat.floor);
  dropCharge(core, seat.residue);
  host.pendingBytes -= seat.pendingBytes;
  host.seats.delete(generation);
  host.ending.delete(generation);
  host.planEpoch++;
  core.dirty.add(host.device);
  wantSample(core, host, core.nowUs);
}
