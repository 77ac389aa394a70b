/** Cards whose memory is the machine's: there one ledger must serve for both, or the same bytes would be promised twice. */
import type { CardDescription, Rung, UnmeasuredCard } from '../types.js';
import { Unreadable } from './files.js';
import type { MachineMemory } from './meminfo.js';

/** Integrated NVIDIA parts, by the names that drivers give them; none of these words is in the name of a card of its own memory. */
const integrated = /\b(Orin|Xavier|Thor|Tegra|Jetson|GB10|nvgpu)\b/i;

/**
 * By name, or by a total that is the machine's to the byte. Close to it is not enough: a card of 32 GiB in a machine of
 * 32 GiB is a card of its own (B104). Null: its total is not known.
 */
export function isUnified(card: { readonly name: string; readonly totalBytes: number | null }, machineTotalBytes: number): boolean {
  return integrated.test(card.name) || (card.totalBytes !== null && card.totalBytes > 0 && card.totalBytes === machineTotalBytes);
}

export interface MachineReader {
  /** Throws `Unreadable`. */
  machine(): MachineMemory;
}

/** A card whose driver tells no figures, because its memory is the machine's: as that one describes it; null: it is another, or the machine's is not known. */
export function unifiedCard({ device, name, visibility }: UnmeasuredCard, memory: MachineReader): CardDescription | null {
  if (!integrated.test(name)) return null;
  try {
    // What other programs take moves all the time: nothing that a lease gave back can be told from it.
    return { device, name, kind: 'gpu', totalBytes: memory.machine().totalBytes, confirms: 'none', display: false, floorBytes: null, unified: true, visibility };
  } catch (error) {
    if (error instanceof Unreadable) return null;
    throw error;
  }
}

/** Reads such cards: what of the machine's memory is taken. */
export function unifiedRung(memory: MachineReader, nowUs: () => number): Rung {
  return {
    truth: 'system',
    discover: async () => ({ unavailable: 'it finds no cards' }),
    read: async (device) => {
      const takenAtUs = nowUs();
      try {
        const { totalBytes, availableBytes } = memory.machine();
        return { kind: 'read', device, takenAtUs, totalBytes, usedBytes: totalBytes - availableBytes, truth: 'system', processes: null };
      } catch (error) {
        if (!(error instanceof Unreadable)) throw error;
        return { kind: 'missing', device, takenAtUs, reading: error.reading, reason: error.message };
      }
    },
    close: async () => undefined,
  };
}
