/** What must hold of the machine's memory: its sums are those of the leases' shares, and at most one request has a hold there. */
import { must } from '../must.js';
import type { Card, Charge, Core } from '../state.js';

/** The whole check, every sum recomputed. Throws `invariant_broken`; changes nothing. */
export function checkHost(core: Core, host: Card): void {
  const shares = new Map<string, Charge[]>();
  let leasedBytes = 0;
  let attributedBytes = 0;
  for (const lease of core.leases.values()) {
    if (lease.host === null) continue;
    const { charge, trim } = lease.host;
    must(charge.device === host.device && charge.generation === lease.generation, `${lease.id}: its share is in the machine's memory, and its own`);
    must(Number.isSafeInteger(charge.chargedBytes) && charge.chargedBytes >= 0, `${lease.id}: its share is a byte count`);
    must(trim === null || core.commands.has(trim.command), `${lease.id}: a trim under way is a command`);
    must((trim === null) !== core.timers.has('trim', lease.id), `${lease.id}: a trim under way has a deadline`);
    leasedBytes += charge.chargedBytes;
    attributedBytes += charge.attributedBytes;
    shares.set(lease.generation, [...(shares.get(lease.generation) ?? []), charge]);
  }
  must(leasedBytes === host.charged.lease, `${host.device}: the sum of shares is kept`);
  let floorBytes = 0;
  let residueBytes = 0;
  let pendingBytes = 0;
  for (const seat of host.seats.values()) {
    must(core.processes.has(seat.generation), `${seat.generation}: a seat belongs to a process`);
    const charges = [seat.floor, seat.residue, ...(shares.get(seat.generation) ?? [])];
    must(sum(charges, (charge) => charge.chargedBytes) === seat.chargedBytes, `${seat.generation}: the sums of its seat in memory are kept`);
    must(sum(charges, (charge) => charge.seenBytes) === seat.seenBytes, `${seat.generation}: what was seen of it in memory is kept`);
    floorBytes += seat.floor.chargedBytes;
    residueBytes += seat.residue.chargedBytes;
    pendingBytes += seat.pendingBytes;
    attributedBytes += seat.floor.attributedBytes + seat.residue.attributedBytes;
    shares.delete(seat.generation);
  }
  must([...shares.values()].every((charges) => sum(charges, (charge) => charge.chargedBytes) === 0), `${host.device}: every share has a seat`);
  must(floorBytes === host.charged.floor && residueBytes === host.charged.residue, `${host.device}: the sums of floors and residues are kept`);
  must(leasedBytes + floorBytes + residueBytes === host.chargedBytes, `${host.device}: charges add up`);
  must(pendingBytes === host.pendingBytes && attributedBytes === host.attributedBytes, `${host.device}: pending and attributed sums are kept`);
  checkHostHolds(core, host);
}

function checkHostHolds(core: Core, host: Card): void {
  let holdBytes = 0;
  let holders = 0;
  for (const [key, waiter] of core.waiters) {
    must(waiter.hostHoldBytes === 0 || core.hostWaiters.has(key), `${key}: holds memory only while it waits for it`);
    must(waiter.hostHoldBytes >= 0 && waiter.hostHoldBytes <= waiter.hostNeedBytes, `${key}: a hold in memory is at most its need`);
    holdBytes += waiter.hostHoldBytes;
    if (waiter.hostHoldBytes > 0) holders++;
  }
  for (const key of core.hostWaiters) must(core.waiters.has(key), `${key}: who waits for memory waits`);
  must(holdBytes === host.holdBytes && holders <= 1, `${host.device}: at most one request has a hold`);
}

function sum(charges: readonly Charge[], of: (charge: Charge) => number): number {
  return charges.reduce((total, charge) => total + of(charge), 0);
}
