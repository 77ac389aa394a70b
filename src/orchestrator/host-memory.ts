/** From `hostMemory` of the options to the machine's memory as the broker leases it. */
import { totalmem } from 'node:os';
import { LeaseholdError } from '../../protocol/index.js';
import { HostMemory, SimulatedCard, defaultHostReserveBytes, isSimulatedSpec, parseSimulatedSpec, simulatedDevice, type CardDescription } from '../../broker/devices/index.js';
import type { Log, OwnedCard } from '../../broker/shell/index.js';
import type { HostMemoryOptions } from './options.js';

export const hostMemoryWords = ['auto', 'system', 'off'] as const;

/** True for what `HostMemoryOptions.lease` may be. */
export function isHostMemoryWord(word: unknown): boolean {
  return typeof word === 'string' && (isSimulatedSpec(word) || (hostMemoryWords as readonly string[]).includes(word));
}

/** Null: the machine's memory is not leased. `memory` reads it. */
export function ownHostMemory(options: HostMemoryOptions, cards: readonly CardDescription[], stateId: string, log: Log, memory = new HostMemory()): OwnedCard | null {
  const lease = options.lease ?? 'auto';
  if (lease === 'off') return null;
  if (isSimulatedSpec(lease)) return simulatedMemory(lease, stateId, options);
  // What simulated models keep is simulated too.
  if (lease === 'auto' && cards.every(({ kind }) => kind === 'simulated')) return null;
  const unified = cards.find((card) => card.unified === true);
  if (unified !== undefined) {
    log.info({ device: unified.device }, 'this card’s memory is the machine’s: its ledger serves for both, and nothing is parked');
    return null;
  }
  const first = memory.readNow([]);
  if (first.kind === 'missing' && first.reading === 'unsupported') {
    log.info({ reason: first.reason }, 'the machine’s memory is not leased');
    return null;
  }
  const card = memory.describe();
  const reserveBytes = options.reserveBytes ?? defaultHostReserveBytes(card.totalBytes === 0 ? totalmem() : card.totalBytes);
  checkRoom(card, reserveBytes);
  return { card, reader: memory, reserveBytes, ...(options.reserveBytes === undefined || options.reserveBytes === null ? { reserveOf: defaultHostReserveBytes } : {}) };
}

function simulatedMemory(word: string, stateId: string, options: HostMemoryOptions): OwnedCard {
  const spec = parseSimulatedSpec(word, 'hostMemory');
  const reader = new SimulatedCard({ ...spec, name: spec.name ?? 'simulated memory of the machine', device: simulatedDevice(stateId, 'memory') });
  const card: CardDescription = { ...reader.description, kind: 'host', confirms: spec.blind ? 'none' : 'process' };
  const reserveBytes = options.reserveBytes ?? 0;
  checkRoom(card, reserveBytes);
  return { card, reader, reserveBytes };
}

function checkRoom({ device, totalBytes }: CardDescription, reserveBytes: number): void {
  if (!Number.isSafeInteger(reserveBytes) || reserveBytes < 0) throw new LeaseholdError('bytes_invalid', { field: 'hostMemory.reserveBytes', value: String(reserveBytes), minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
  if (totalBytes === 0 || reserveBytes < totalBytes) return;
  throw new LeaseholdError('config_invalid', { path: 'hostMemory', where: 'reserveBytes', reason: `${String(reserveBytes)} bytes would be kept free of the ${String(totalBytes)} of ${device}: nothing could be granted there` });
}
