/** What the shell puts on record of a process, for a broker that may start after us. */
import { holdsNothing } from './process.js';
import type { Core } from './state.js';

/** What is charged for a process before any model, by card. */
export function floorsOf(core: Core, generation: string): { readonly device: string; readonly bytes: number }[] {
  const floors: { readonly device: string; readonly bytes: number }[] = [];
  for (const card of core.cards.values()) {
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
