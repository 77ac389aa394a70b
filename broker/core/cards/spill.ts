/**
 * Drivers that put into host memory what does not fit on the card, instead of refusing it (B113): a load that has
 * "succeeded" there has not fitted, and computes at a tenth of its speed. Spilled bytes are never counted as the card's.
 */
import type { SpillReading } from '../events.js';
import { isBytes } from '../ledger/headroom.js';
import { mustLease } from '../must.js';
import { unloadFor } from './overshoot.js';
import { count, explain, inWords, publish } from '../report.js';
import type { Card, Core, Seat } from '../state.js';

/** What our processes have in host memory that the ledger takes to be on the card: without it strangers would hide behind it. */
export function spilledBytesOf(card: Card, spilled: readonly SpillReading[] = []): number {
  return spilled.reduce((sum, { generation, spilledBytes }) => (card.seats.has(generation) && isBytes(spilledBytes) ? sum + spilledBytes : sum), 0);
}

/** Judges what the sample just taken shows as spilled: growth of a process with leases is an overshoot. Absent: the driver does not say. */
export function judgeSpills(core: Core, card: Card, spilled: readonly SpillReading[] | undefined): void {
  if (spilled === undefined) return;
  card.spills = true;
  const byGeneration = new Map(spilled.map(({ generation, spilledBytes }) => [generation, spilledBytes]));
  for (const seat of card.seats.values()) {
    const bytes = byGeneration.get(seat.generation) ?? 0;
    if (isBytes(bytes)) judgeSpill(core, card, seat, bytes);
  }
}

/** Small steps add up: what was told last is what growth is measured against. */
function judgeSpill(core: Core, card: Card, seat: Seat, bytes: number): void {
  const grownBytes = bytes - seat.spilledBytes;
  if (grownBytes > 0 && (grownBytes <= core.options.limits.measureToleranceBytes || !holdsAny(core, seat))) return;
  seat.spilledBytes = bytes;
  if (grownBytes <= 0) return;
  const { generation } = seat;
  const process = core.processes.get(generation);
  count(core, 'spills');
  count(core, 'overshoots');
  publish(core, 'overshoot', { lease: null, generation, device: card.device, bytes: grownBytes, where: 'host' });
  explain(core, {
    verdict: 'overshoot', generation, device: card.device,
    text: `${generation} has ${inWords(bytes)} in host memory that ${card.device} had no room for: loaded, and not fitted; unless there is room now, what it hosts is unloaded`,
  });
  if (process !== undefined) unloadFor(core, card, seat, process);
}

/** What has left, and is still to be seen gone, holds nothing that it could be told of. */
function holdsAny(core: Core, seat: Seat): boolean {
  return [...seat.leases].some((id) => mustLease(core, id).state !== 'releasing');
}
