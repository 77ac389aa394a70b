/** A card has been read, or could not be. A sample judges only what was there when it was taken. */
import { isUnannounced, judgeUnannounced } from '../restart/closed-cards.js';
import { dateOfReading } from '../clock.js';
import { confirmReleases } from '../ledger/confirm.js';
import type { CoreEvent, ProcessReading } from '../events.js';
import { judge, leasedSeenBytes, seatOf, setReading } from '../ledger/ledger.js';
import { closeLease } from '../ledger/lease-store.js';
import { judgeHostSeat, relieveHost } from '../memory/growth.js';
import { noteMoved } from '../ledger/load-progress.js';
import { judgeProcess } from './misplaced.js';
import { cardOf, mustLease } from '../must.js';
import { sampleAnswered } from './probe.js';
import { count, explain, inWords, publish } from '../report.js';
import { judgeSpills, spilledBytesOf } from './spill.js';
import { judgeForeign } from './strangers.js';
import { tellUnread, yieldToStrangers } from './yield.js';
import type { Card, Core } from '../state.js';

type Sampled = Extract<CoreEvent, { type: 'sampled' }>;
type SampleFailed = Extract<CoreEvent, { type: 'sample_failed' }>;

export function onSampled(core: Core, event: Sampled): void {
  const card = cardOf(core, event.device);
  if (card === undefined || card.lost !== null) {
    count(core, 'strayEvents');
    return;
  }
  const takenAtUs = dateOfReading(core, event.takenAtUs);
  if (takenAtUs === null) {
    count(core, 'samplesStale');
    sampleAnswered(core, card, null);
    return;
  }
  const nonsense = nonsenseIn(card, event);
  if (nonsense !== null) {
    missed(core, card, 'failed', nonsense);
    return;
  }
  if (card.sample !== null && takenAtUs <= card.sample.takenAtUs) {
    count(core, 'samplesStale');
    return;
  }
  regained(core, card);
  card.sameTruthCount = card.sample?.truth === event.truth ? card.sameTruthCount + 1 : card.sample === null ? 2 : 1;
  if (event.processes === null && card.sample?.usedBytes !== event.usedBytes) noteMoved(core, card, null);
  card.sample = { takenAtUs, usedBytes: event.usedBytes, totalBytes: event.totalBytes, truth: event.truth };
  card.strangers = event.strangers ?? [];
  takeReadings(core, card, event.usedBytes, card.confirms === 'process' ? event.processes : null);
  const givenBack = judgeCharges(core, card, takenAtUs);
  // A cgroup's limit may change, and the machine's size with it.
  if (card === core.host) card.totalBytes = event.totalBytes;
  else confirmReleases(core, card, takenAtUs, event.usedBytes);
  for (const seat of [...card.seats.values()]) {
    const process = core.processes.get(seat.generation);
    const returnedAtUs = process?.returnedAtUs ?? 0;
    if (isUnannounced(card, process)) judgeUnannounced(core, card, seat, process);
    // What was read before it had said what it holds, or before the ledger took its word that it had given something back, is nobody's fault.
    else if (Math.max(returnedAtUs, seat.loweredAtUs) > takenAtUs) continue;
    else if (card === core.host) judgeHostSeat(core, card, seat, takenAtUs);
    else judgeProcess(core, card, seat, givenBack.get(seat.generation) ?? 0);
  }
  confirmQuarantined(core, card);
  judgeForeign(core, card, takenAtUs, event.usedBytes + spilledBytesOf(card, event.spilled));
  judgeSpills(core, card, event.spilled);
  card.planEpoch++;
  core.dirty.add(card.device);
  sampleAnswered(core, card, takenAtUs);
  if (card === core.host) relieveHost(core, card);
  else yieldToStrangers(core, card);
}

/** Lets the sample judge what has changed; what each process has given back since it was taken. */
function judgeCharges(core: Core, card: Card, takenAtUs: number): Map<string, number> {
  const givenBack = new Map<string, number>();
  for (const [id, charge] of card.unsampled) {
    if (judge(core, card, charge, takenAtUs)) card.unsampled.delete(id);
    const { generation, givenBackBytes } = charge;
    if (givenBackBytes > 0) givenBack.set(generation, (givenBack.get(generation) ?? 0) + givenBackBytes);
  }
  return givenBack;
}

/** No reading: not zero, and no reason to drop the last good one before it is too old. */
export function onSampleFailed(core: Core, event: SampleFailed): void {
  const card = cardOf(core, event.device);
  if (card === undefined) {
    count(core, 'strayEvents');
    return;
  }
  missed(core, card, event.reading, event.reason);
}

function missed(core: Core, card: Card, reading: SampleFailed['reading'], reason: string): void {
  count(core, 'samplesFailed');
  if (card.missing === null) {
    card.missing = { reading, reason, sinceAtUs: core.nowUs };
    publish(core, 'sample_lost', { device: card.device, reading, reason });
    explain(core, { verdict: 'waiting', text: `${card.device} cannot be read (${reading}): ${reason}`, generation: '', device: card.device, unverified: true });
  } else {
    card.missing = { reading, reason, sinceAtUs: card.missing.sinceAtUs };
  }
  tellUnread(core, card);
  core.dirty.add(card.device);
  sampleAnswered(core, card, null);
}

function regained(core: Core, card: Card): void {
  if (card.missing === null) return;
  publish(core, 'sample_regained', { device: card.device, missingMs: Math.floor((core.nowUs - card.missing.sinceAtUs) / 1_000) });
  card.missing = null;
}

/** No card changes its size so much; a driver that counts in another unit all at once does. The machine's memory has the size that its cgroup says by now. */
const sameUnitFactorMax = 8;

/** More used or free than there is, no count at all, or one in another unit: nonsense, and the last good reading is kept with its age (B104). */
function nonsenseIn(card: Card, { usedBytes, totalBytes }: Sampled): string | null {
  const isCount = Number.isSafeInteger(usedBytes) && Number.isSafeInteger(totalBytes) && totalBytes > 0;
  if (!isCount || usedBytes < 0 || usedBytes > totalBytes) return `used ${String(usedBytes)} of ${String(totalBytes)} bytes is no reading`;
  const isSameUnit = card.kind === 'host' || (totalBytes * sameUnitFactorMax > card.totalBytes && totalBytes < card.totalBytes * sameUnitFactorMax);
  return isSameUnit ? null : `a total of ${String(totalBytes)} bytes is no reading of a card of ${inWords(card.totalBytes)}: it counts in another unit`;
}

function takeReadings(core: Core, card: Card, usedBytes: number, processes: readonly ProcessReading[] | null): void {
  const listed = new Map<string, number>();
  for (const { generation, usedBytes } of processes ?? []) {
    if (Number.isSafeInteger(usedBytes) && usedBytes >= 0) listed.set(generation, (listed.get(generation) ?? 0) + usedBytes);
  }
  for (const [generation, bytes] of listed) {
    // A process of ours that takes bytes here without ever having asked: they are its floor (D7).
    const role = core.processes.get(generation)?.role;
    // Another program's own memory is nobody's business but what it leases.
    if (bytes > 0 && ((role === 'holder' && card !== core.host) || role === 'worker')) seatOf(core, card, generation);
  }
  for (const seat of card.seats.values()) {
    const bytes = processes === null ? null : (listed.get(seat.generation) ?? 0);
    if (bytes === seat.readingBytes) continue;
    setReading(card, seat, bytes);
    if (bytes !== null) noteMoved(core, card, seat.generation);
  }
  const ours = [...listed.values()].reduce((sum, bytes) => sum + bytes, 0);
  card.strangersBytes = processes === null ? null : Math.max(0, usedBytes - ours);
  for (const returning of card.returning.values()) returning.listedBytes = listed.get(returning.generation) ?? 0;
}

/** A quarantined lease whose bytes the driver no longer shows is closed at last. */
function confirmQuarantined(core: Core, card: Card): void {
  for (const id of [...card.quarantined]) {
    const lease = mustLease(core, id);
    const seat = card.seats.get(lease.generation);
    if (seat === undefined || seat.readingBytes === null || seat.unsettled > 0) continue;
    const others = leasedSeenBytes(seat) - lease.charge.seenBytes + Math.max(seat.baselineBytes, seat.floor.seenBytes);
    if (seat.readingBytes > others + core.options.limits.measureToleranceBytes || lease.charge.residentBytes === 0) continue;
    publish(core, 'released', { lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, freedBytes: lease.charge.residentBytes, how: 'seen gone after quarantine' });
    closeLease(core, lease);
  }
}
