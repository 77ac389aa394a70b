/** The whole state as plain JSON, and back: Maps and Sets are tagged, shared records are named by id and rejoined. */
import { LeaseholdError } from '../../protocol/index.js';
import type { Card, Charge, Core } from './state.js';
import { Timers, type Timer } from './timers.js';

const version = 3;

/** Everything the core knows, as plain JSON. Taken between steps. */
export function snapshot(core: Core): unknown {
  const { timers, ...rest } = core;
  return { version, state: encode({ ...rest, effects: [], dirty: new Set(), changed: new Set(), fresh: new Set(), touched: new Set(), relieved: new Set() }), timers: timers.list() };
}

/** A core that goes on exactly where `snapshot` was taken. */
export function restore(json: unknown): Core {
  if (typeof json !== 'object' || json === null || (json as { version?: unknown }).version !== version) {
    throw new LeaseholdError('input_invalid', { field: 'snapshot', reason: `is not of version ${String(version)}` });
  }
  const { state, timers: listed } = json as { state: unknown; timers: readonly Timer[] };
  const timers = new Timers();
  for (const timer of listed) timers.set(timer.kind, timer.key, timer.dueUs);
  const core = { ...(decode(state) as Omit<Core, 'timers'>), timers };
  for (const card of core.cards.values()) rejoin(core, card);
  if (core.host !== null) rejoin(core, core.host);
  return core;
}

/** The charges that no sample has judged yet are the ledger's own records, not copies of them. */
function rejoin(core: Core, card: Card): void {
  for (const [id, copy] of [...card.unsampled]) {
    const own = core.leases.get(id)?.charge ?? shareCharge(core, id) ?? seatCharge(card, copy.generation, id) ?? card.returning.get(copy.generation)?.charge;
    if (own === undefined) card.unsampled.delete(id);
    else card.unsampled.set(id, own);
  }
}

function shareCharge(core: Core, id: string): Charge | undefined {
  for (const lease of core.leases.values()) if (lease.host?.charge.id === id) return lease.host.charge;
  return undefined;
}

function seatCharge(card: Card, generation: string, id: string): Charge | undefined {
  const seat = card.seats.get(generation);
  return seat?.floor.id === id ? seat.floor : seat?.residue.id === id ? seat.residue : undefined;
}

function encode(value: unknown): unknown {
  if (value === Infinity) return { $number: 'Infinity' };
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return (value as unknown[]).map(encode);
  if (value instanceof Map) return { $map: [...(value as Map<unknown, unknown>)].map(([key, entry]) => [key, encode(entry)]) };
  if (value instanceof Set) return { $set: [...(value as Set<unknown>)] };
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, encode(entry)]));
}

function decode(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return (value as unknown[]).map(decode);
  const tagged = value as { $map?: [unknown, unknown][]; $set?: unknown[]; $number?: string };
  if (tagged.$map !== undefined) return new Map(tagged.$map.map(([key, entry]): [unknown, unknown] => [key, decode(entry)]));
  if (tagged.$set !== undefined) return new Set(tagged.$set);
  if (tagged.$number !== undefined) return Infinity;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, decode(entry)]));
}
