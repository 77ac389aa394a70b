/** What a seed decides of the machine's memory: whether it is leased, how scarce it is, and what models take of it. From a stream of its own, so that the rest of a seed's world is the same with and without. */
import type { HostNeed } from '../../../protocol/index.js';
import type { Confirmation } from '../../../broker/core/events.js';
import type { Prng } from './prng.js';

const gib = 1024 ** 3;
const mib = 1024 ** 2;

export const memoryDevice = 'HOST-0';

export interface MemoryKnobs {
  readonly totalBytes: number;
  readonly reserveBytes: number;
  /** `none`: no figures by process. */
  readonly confirms: Extract<Confirmation, 'process' | 'none'>;
  readonly allowUnknown: boolean;
  readonly faults: MemoryFaults;
}

/** As `Faults`, of the machine's memory. */
export interface MemoryFaults {
  /** Mean time between changes of what other programs have; 0: never. */
  readonly foreignMs: number;
  readonly foreignShareMax: number;
  /** Processes that keep bytes of each unload, how many at most, and whether being asked helps. */
  readonly grows: number;
  readonly growthBytesMax: number;
  readonly keepsGrowth: number;
  /** Keeps a copy that it was given no room for. */
  readonly keepsUnasked: number;
  /** Its allocator gives what was freed back to the kernel only after so long, at most. */
  readonly freeLagMsMax: number;
}

export const noMemoryFaults: MemoryFaults = { foreignMs: 0, foreignShareMax: 0, grows: 0, growthBytesMax: 0, keepsGrowth: 0, keepsUnasked: 0, freeLagMsMax: 0 };

/** What one model takes of the machine's memory: as asked for, and in truth. */
export interface ModelMemory {
  readonly asked: HostNeed;
  readonly neededBytes: number;
  readonly copyBytes: number;
  /** At the top of a load, and of a park that makes a copy. */
  readonly peakBytes: number;
  readonly parkPeakBytes: number;
  /** Its copy cannot be given back by itself. */
  readonly fixed: boolean;
}

/** What one process is like there for all its life. */
export interface MemoryBehaviour {
  readonly growthBytes: number;
  readonly keepsGrowth: boolean;
  readonly keepsUnasked: boolean;
}

export const honestWithMemory: MemoryBehaviour = { growthBytes: 0, keepsGrowth: false, keepsUnasked: false };

export function memoryBehaviourOf(faults: MemoryFaults, random: Prng): MemoryBehaviour {
  return {
    growthBytes: random.chance(faults.grows) ? random.int(1, faults.growthBytesMax) : 0,
    keepsGrowth: random.chance(faults.keepsGrowth),
    keepsUnasked: random.chance(faults.keepsUnasked),
  };
}

/** Null: on this machine memory is not leased. */
export function memoryKnobs(random: Prng, models: readonly ModelMemory[], faulty: boolean): MemoryKnobs | null {
  if (random.chance(0.3)) return null;
  // Most loads fit by themselves and few beside each other; in one of six worlds there is room for all.
  const topBytes = Math.max(...models.map(({ asked }) => Math.max(asked.peakBytes, asked.neededBytes + asked.copyBytes)));
  const sumBytes = models.reduce((sum, { asked }) => sum + asked.neededBytes + asked.copyBytes, 0);
  const totalBytes = 4 * gib + Math.floor(random.pick([topBytes * 0.8, topBytes * 1.15, topBytes * 1.3, topBytes * 1.6, topBytes + sumBytes / 2, (topBytes + sumBytes) * 2]));
  const some = (value: number): number => (faulty && random.chance(0.35) ? value : 0);
  const confirms = random.pick(['process', 'process', 'process', 'none'] as const);
  return {
    totalBytes,
    reserveBytes: random.pick([0, gib, Math.floor(totalBytes / 10)]),
    confirms,
    allowUnknown: random.chance(0.2),
    faults: {
      foreignMs: some(random.pick([1_000, 5_000, 20_000])),
      foreignShareMax: random.pick([0.1, 0.4, 0.8]),
      grows: some(0.4),
      growthBytesMax: 2 * gib,
      keepsGrowth: some(0.5),
      keepsUnasked: some(0.3),
      freeLagMsMax: some(random.pick([400, 3_000])),
    },
  };
}

/** By its weights, and whether its engine can park it. */
export function modelMemory(random: Prng, weightsBytes: number, trueWeightsBytes: number, parkable: boolean): ModelMemory {
  const keeps = parkable && random.chance(0.7);
  const neededBytes = random.chance(0.3) ? random.int(0, Math.floor(weightsBytes / 4)) : 0;
  const copyBytes = keeps ? weightsBytes : 0;
  const trueCopyBytes = parkable ? trueWeightsBytes : 0;
  const peakBytes = Math.floor(weightsBytes * random.pick([0, 0, 0.12, 0.5, 1, 1.2]));
  const parkPeakBytes = random.pick([null, weightsBytes, Math.floor(weightsBytes * 1.5)]);
  // Rounded like the card's: an engine that says how much it takes may be wrong by its headroom.
  const error = random.pick([0.8, 1, 1.05]);
  return {
    asked: { neededBytes, copyBytes, peakBytes, parkPeakBytes },
    neededBytes: Math.floor(neededBytes * error),
    copyBytes: trueCopyBytes,
    peakBytes: Math.floor(peakBytes * error),
    parkPeakBytes: Math.max(trueCopyBytes, Math.floor((parkPeakBytes ?? weightsBytes * 1.8) * error)),
    fixed: random.chance(0.1),
  };
}

/** What a process of an engine has there before any model. */
export function engineMemoryBytes(random: Prng): number {
  return random.int(50 * mib, 600 * mib);
}
