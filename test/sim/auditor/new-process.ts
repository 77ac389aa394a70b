/** A process as the book first knows it, and its signs of life. */
import type { Book } from './book.js';
import type { AuditedProcess } from './records.js';

export function newProcess(book: Book, generation: string, role: AuditedProcess['role'], engine: string | null, devices: readonly string[]): AuditedProcess {
  const floors = new Map(devices.map((device) => [device, leastFloorBytes(book, engine, device)]));
  return {
    generation, role, engine, devices, state: role === 'worker' ? 'spawning' : 'ready', startedAtUs: book.nowUs, startedAttendedUs: book.clock.mostUs, startedFor: null, freeByExit: false, clearAtEnd: new Set(), readyAtUs: book.nowUs, heardAtUs: book.nowUs,
    heardAttendedUs: book.clock.mostUs, heardLeastUs: book.clock.leastUs, saidAtUs: book.nowUs, connected: role !== 'worker', closes: [], onRecord: [], waitedForSince: null, floors, awayFloors: new Map(), statedFloors: new Map(floors), lastUsefulUs: book.nowUs, profilesFreeMemory: false,
    remeasureSinceUs: null, misbehaviour: 0, commandFailures: 0,
  };
}

/** What a process must be charged before it has said anything: what the card states, or what that engine has told; a word that only its process vouched for may be forgotten. */
function leastFloorBytes(book: Book, engine: string | null, device: string): number {
  const statedBytes = book.cards.get(device)?.floorBytes ?? 0;
  return Math.min(statedBytes, book.leastToldFloors.get(engine ?? '') ?? statedBytes);
}

export function hear(book: Book, process: AuditedProcess): void {
  process.heardAtUs = book.nowUs;
  process.heardAttendedUs = book.clock.mostUs;
  process.heardLeastUs = book.clock.leastUs;
}
