/** The pseudo-card of a machine without cards: leases of 0 bytes live on it (D18). */
import type { CardDescription, Reading } from './types.js';

export const cpuDevice = 'CPU-0';

/** Offered only when nothing else exists: a machine never has "0 cards". */
export function cpuCard(): CardDescription {
  return {
    device: cpuDevice,
    name: 'CPU (no card: nothing is leased)',
    kind: 'cpu',
    totalBytes: 0,
    confirms: 'none',
    display: false,
    floorBytes: 0,
    visibility: {},
  };
}

/** It has no card bytes, so 0 of 0 is a fact here and not a missing figure. */
export function cpuReading(takenAtUs: number): Reading {
  return { kind: 'read', device: cpuDevice, takenAtUs, usedBytes: 0, totalBytes: 0, truth: 'ledger', processes: null };
}
