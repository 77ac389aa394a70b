/**
 * The machine's memory as a reading shows it, process by process. What a process has beyond its floor and its leases is
 * charged as residue, quietly: heaps breathe. Beyond a limit it has grown: it is asked to give that back, and if it does
 * not, it ends once it is idle, and the next one starts small (B211).
 */
import { available } from '../ledger/available.js';
import { msSince } from '../clock.js';
import { judgeCopies } from './copies.js';
import { allOnHost, carryOutHost, hostLeavingBytes, planHost } from './eviction.js';
import { isParking, setHostResidue } from './share.js';
import { startTrim } from './trim.js';
import { learn } from '../ledger/floors.js';
import { setAttributed, setCharged, setMeasured } from '../ledger/ledger.js';
import { isLoading } from '../ledger/lease-store.js';
import { mustLease } from '../must.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Lease, Process, Seat } from '../state.js';
import { terminateWhenIdle } from '../processes/terminate.js';

/** Compares what a process was read to have with what it is charged. */
export function judgeHostSeat(core: Core, host: Card, seat: Seat, takenAtUs: number): void {
  const process = core.processes.get(seat.generation);
  judgeCopies(core, seat);
  if (seat.readingBytes === null || process?.role !== 'worker') {
    setHostResidue(core, seat, 0);
    return;
  }
  if (!seat.hadLease || takenAtUs < seat.leasedSinceAtUs) {
    // What lives has some memory: it has not been found yet.
    if (seat.readingBytes > 0) judgeFloor(core, host, seat, process, seat.readingBytes);
    return;
  }
  const settled = !isTaking(core, process);
  if (settled) guessFloor(core, host, seat, seat.readingBytes);
  judgeResidue(core, seat, unleasedBytes(core, process, seat, seat.readingBytes), settled);
  // A guess is nobody's fault: it is charged what it has, no more.
  if (settled && seat.floorSource !== 'guessed') judgeGrowth(core, host, process, seat.residue.chargedBytes);
}

/** What it is read to have beyond its floor and its leases: those in full, whatever of them had no room beside a residue. */
function unleasedBytes(core: Core, process: Process, seat: Seat, readingBytes: number): number {
  let explainedBytes = seat.chargedBytes - seat.residue.chargedBytes;
  for (const id of process.leases) {
    const { host } = mustLease(core, id);
    if (host !== null) explainedBytes += host.charge.wantedBytes - host.charge.chargedBytes;
  }
  return Math.max(0, readingBytes - explainedBytes);
}

function judgeResidue(core: Core, seat: Seat, excessBytes: number, settled: boolean): void {
  const strayBytes = excessBytes <= core.options.limits.measureToleranceBytes ? 0 : excessBytes;
  // While something of it loads, what was granted for that may be there or not: what is unexplained lies between.
  const mostBytes = Math.min(seat.residue.chargedBytes, excessBytes + seat.coming.chargedBytes);
  setHostResidue(core, seat, settled ? strayBytes : Math.max(strayBytes, mostBytes));
}

/** Before its first lease all that it has is what it costs. */
function judgeFloor(core: Core, host: Card, seat: Seat, process: Process, readingBytes: number): void {
  if (process.state === 'spawning') {
    setCharged(core, seat.floor, Math.max(readingBytes, seat.floor.chargedBytes));
    return;
  }
  setFloor(core, host, seat, readingBytes, 'measured');
  if (process.engine !== null) learn(core, host, process.engine, readingBytes);
}

/** It was never read before its first lease, or an earlier broker did not put on record what it costs: the least that it is found with beside its leases. */
function guessFloor(core: Core, host: Card, seat: Seat, readingBytes: number): void {
  const unleasedBytes = Math.max(0, readingBytes - seat.leasedBytes);
  const isLess = seat.floorSource === 'guessed' && unleasedBytes < seat.floor.chargedBytes;
  if (seat.floorSource === 'unknown' || isLess) setFloor(core, host, seat, unleasedBytes, 'guessed');
}

function setFloor(core: Core, host: Card, seat: Seat, bytes: number, source: 'guessed' | 'measured'): void {
  setHostResidue(core, seat, 0);
  setCharged(core, seat.floor, bytes);
  setMeasured(core, seat.floor, seat.floor.chargedBytes);
  setAttributed(host, seat.floor, seat.floor.chargedBytes);
  seat.floorSource = source;
}

/** Something in it takes memory at this moment. */
function isTaking(core: Core, process: Process): boolean {
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    if (isLoading(lease) || isParking(lease)) return true;
  }
  return false;
}

/** Asked first, and after that given time to answer; then it ends as soon as no call is inside. */
function judgeGrowth(core: Core, host: Card, process: Process, strayBytes: number): void {
  const { hostGrowthBytesMax, commandAnswerMs } = core.options.limits;
  if (strayBytes <= hostGrowthBytesMax) {
    process.growth = null;
    if (process.endWhenIdle === 'host_growth') process.endWhenIdle = null;
    return;
  }
  if (process.growth === null) {
    process.growth = { sinceUs: core.attendedUs, askedUs: null };
    count(core, 'hostGrowths');
    publish(core, 'host_growth', { generation: process.generation, device: host.device, bytes: strayBytes });
    explain(core, {
      verdict: 'overshoot', generation: process.generation, device: host.device,
      text: `${process.generation} has ${inWords(strayBytes)} of the machine's memory that neither its floor nor its leases explain; at most ${inWords(hostGrowthBytesMax)} are left to it`,
    });
  }
  const asked = process.growth.askedUs === null ? askBack(core, process, strayBytes) : true;
  if (asked && msSince(core, process.growth.askedUs ?? core.attendedUs) < commandAnswerMs) return;
  terminateWhenIdle(core, process, 'host_growth', `it has grown by ${inWords(strayBytes)} beyond its leases and does not give that back`);
}

/** Through the lease that it was last used under; false: it has none by which it could be asked. */
function askBack(core: Core, process: Process, bytes: number): boolean {
  let latest: Lease | null = null;
  for (const id of process.leases) {
    const lease = mustLease(core, id);
    if (lease.state === 'resident' && lease.host !== null && lease.host.trim === null && (latest === null || lease.lastUsedUs > latest.lastUsedUs)) latest = lease;
  }
  if (latest === null || process.growth === null || process.state !== 'ready' || !process.sessionOpen) return false;
  process.growth.askedUs = core.attendedUs;
  startTrim(core, latest, 'growth', bytes, 'its process has more of the machine\'s memory than is leased');
  return true;
}

/** Less is free than the reserve, by two readings in a row: copies give way, whoever took the room. */
export function relieveHost(core: Core, host: Card): void {
  const { freeBytes } = available(core, host);
  const shortBytes = freeBytes === null ? 0 : -freeBytes - hostLeavingBytes(core, host);
  if (shortBytes <= core.options.limits.measureToleranceBytes) {
    core.hostPressureCount = 0;
    return;
  }
  core.hostPressureCount++;
  if (core.hostPressureCount < 2) return;
  const plan = planHost(core, host, null, shortBytes) ?? allOnHost(core, host);
  if (plan.length === 0) return;
  count(core, 'hostPressures');
  carryOutHost(core, host, plan, {
    cause: 'pressure', waiterSinceAtUs: null, beneficiary: null, reason: 'the machine\'s memory runs short',
    tell: (victims, costText) => {
      explain(core, { verdict: 'evicting', text: `the machine's memory is ${inWords(shortBytes)} short of its reserve: ${costText}`, generation: '', device: host.device, victims });
    },
  });
}
