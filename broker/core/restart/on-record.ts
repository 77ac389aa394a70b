/** What the shell puts on record of a process, for a broker that may start after us. */
import { holdsNothing } from '../processes/process.js';
import { isUnannounced } from './closed-cards.js';
import type { ProcessReading } from '../events.js';
import { cardOf, ledgersOf, mustLease } from '../must.js';
import type { Card, Core } from '../state.js';

/** What is charged for a process before any model, by card. */
export function floorsOf(core: Core, generation: string): { readonly device: string; readonly bytes: number }[] {
  const floors: { readonly device: string; readonly bytes: number }[] = [];
  for (const card of ledgersOf(core)) {
    const bytes = card.seats.get(generation)?.floor.chargedBytes ?? 0;
    if (bytes > 0) floors.push({ device: card.device, bytes });
  }
  return floors;
}

/** Whether a process may have bytes that are ours to account for: leases, bytes found with it, or what it has not said yet. */
export function mayHold(core: Core, generation: string): boolean {
  const process = core.processes.get(generation);
  return process !== undefined && (process.returning || !holdsNothing(core, process));
}

/**
 * Several sessions of one process share its figure: each has what its leases
 * explain, so that no byte is one's lease and another's floor. The rest is
 * whose bytes are not all told yet, else the first's.
 */
export function shareReading(core: Core, device: string, generations: readonly string[], usedBytes: number): ProcessReading[] {
  const card = cardOf(core, device);
  const [first] = generations;
  if (first === undefined) return [];
  if (card === undefined || generations.length === 1) return [{ generation: first, usedBytes }];
  let leftBytes = usedBytes;
  const shares = generations.map((generation) => {
    const bytes = Math.min(leftBytes, leasedBytes(core, card, generation));
    leftBytes -= bytes;
    return { generation, usedBytes: bytes };
  });
  const untold = shares.find(({ generation }) => isUnannounced(card, core.processes.get(generation))) ?? shares.find(({ generation }) => core.processes.get(generation)?.state === 'quarantined');
  const keeper = untold ?? shares[0];
  if (keeper !== undefined) keeper.usedBytes += leftBytes;
  return shares;
}

/** What the leases of a process explain of its figure there: one that loads may have taken all that it was granted. */
function leasedBytes(core: Core, card: Card, generation: string): number {
  let bytes = 0;
  for (const id of core.processes.get(generation)?.leases ?? []) {
    const lease = mustLease(core, id);
    const charge = card === core.host ? lease.host?.charge : lease.charge;
    if (charge?.device === card.device) bytes += charge.flux === 'loading' ? charge.chargedBytes : charge.residentBytes;
  }
  return bytes;
}
