/** The ledger as people and programs read it, copied out of the state. */
import { available, isLedgerOnly } from './ledger/available.js';
import { msSince } from './clock.js';
import { layersOf } from './ledger/layers.js';
import type { Card, Core, Lease, Process, Waiter } from './state.js';
import type { CardView, LeaseView, LedgerView, ProcessView, WaiterView } from './view.js';
import { leavingMs } from './eviction/slow-leaving.js';
import { waitText } from './requests/admission.js';
import { behindOthersMs } from './requests/behind-others.js';
import { positionOf } from './requests/queue.js';
import { yieldView } from './cards/yield.js';
import { thrashView } from './thrash/watch.js';

/** The whole ledger at a moment (`atUs` only ages the samples). Costs a pass over everything; not for every step. */
export function ledgerView(core: Core, atUs: number): LedgerView {
  const shownAtUs = core.nowUs + Math.max(0, atUs - core.clockUs);
  return {
    bootId: core.options.bootId,
    cards: [...core.cards.values()].map((card) => cardView(core, card, shownAtUs)),
    host: core.host === null ? null : cardView(core, core.host, shownAtUs),
    leases: [...core.leases.values()].map((lease) => leaseView(core, lease)),
    waiting: [...core.waiters.values()].map((waiter) => waiterView(core, waiter)),
    processes: [...core.processes.values()].map((process) => processView(core, process)),
    counters: countersOf(core),
  };
}

function cardView(core: Core, card: Card, nowUs: number): CardView {
  const { freeBytes } = available(core, card);
  const sampleAgeMs = card.sample === null ? null : Math.floor((nowUs - card.sample.takenAtUs) / 1_000);
  return {
    device: card.device, name: card.name, kind: card.kind,
    totalBytes: card.totalBytes, reserveBytes: card.reserveBytes,
    leasedBytes: card.charged.lease, floorBytes: card.charged.floor, residueBytes: card.charged.residue, returningBytes: card.charged.returning,
    holdBytes: card.holdBytes, foreignBytes: card.foreignBytes,
    sampledUsedBytes: card.sample?.usedBytes ?? null, sampleAgeMs,
    truth: isLedgerOnly(core, card) ? 'ledger' : (card.sample?.truth ?? null),
    missing: card.missing === null ? null : { reading: card.missing.reading, reason: card.missing.reason, sinceMs: Math.floor((nowUs - card.missing.sinceAtUs) / 1_000) },
    availableBytes: freeBytes === null ? null : freeBytes - card.holdBytes,
    loadToken: card.loadToken, forming: card.forming,
    lost: card.lost === null ? null : { sinceMs: Math.floor((nowUs - card.lost.sinceAtUs) / 1_000), reason: card.lost.reason },
    yields: yieldView(core, card),
    closed: card.closedBy.size === 0 ? null : { sinceMs: msSince(core, card.closedSinceUs), waitsFor: [...card.closedBy] },
    thrashing: thrashView(core, card),
  };
}

function leaseView(core: Core, lease: Lease): LeaseView {
  return {
    lease: lease.id, model: lease.model, generation: lease.generation, device: lease.device, gang: lease.gang, state: lease.state,
    chargedBytes: lease.charge.chargedBytes, residentBytes: lease.charge.residentBytes, hostBytes: lease.hostBytes,
    hostChargedBytes: lease.host?.charge.chargedBytes ?? null,
    parts: lease.parts, layers: layersOf(lease.parts), inFlight: lease.inFlight, pinned: lease.pinned, misplacedOn: lease.misplacedOn, leavingMs: leavingMs(core, lease),
    idleMs: lease.inFlight + lease.queued > 0 ? 0 : msSince(core, lease.lastUsedUs),
  };
}

function waiterView(core: Core, waiter: Waiter): WaiterView {
  const card = core.cards.get(waiter.device);
  const joined = waiter.kind === 'place' && waiter.joined !== null;
  return {
    generation: waiter.generation, request: waiter.request, model: waiter.model, device: waiter.device, gang: waiter.gang, class: waiter.class,
    needBytes: waiter.needBytes, waitedMs: msSince(core, waiter.arrivedUs),
    position: card === undefined || joined ? 0 : positionOf(core, card, waiter),
    holdBytes: waiter.holdBytes, hostNeedBytes: waiter.hostNeedBytes, hostHoldBytes: waiter.hostHoldBytes,
    behindOthersMs: card === undefined ? null : behindOthersMs(core, card, waiter),
    // Of the moment, as the figures beside it; what it was last told may be a little older.
    reason: card === undefined || joined || waiter.clause === '' ? waiter.reason : waitText(core, card, waiter),
  };
}

function processView(core: Core, process: Process): ProcessView {
  let floorBytes = 0;
  const devices = new Set(process.devices);
  for (const card of core.cards.values()) {
    const seat = card.seats.get(process.generation);
    if (seat === undefined) continue;
    floorBytes += seat.floor.chargedBytes;
    devices.add(card.device);
  }
  return { generation: process.generation, role: process.role, engine: process.engine, state: process.state, devices: [...devices], floorBytes, memoryBytes: core.host?.seats.get(process.generation)?.readingBytes ?? null };
}

function countersOf(core: Core): Record<string, number> {
  const counters: Record<string, number> = {};
  for (const name of ['grants', 'denials', 'evictions', 'escalations', 'overshoots', 'strays', 'misplaced', 'oomRetries', 'quarantines', 'answersIgnored', 'staleEvents', 'staleReports']) counters[name] = 0;
  for (const [name, value] of core.counters) counters[name] = value;
  let worst: number | null = null;
  let oldestUs = core.attendedUs;
  for (const card of core.cards.values()) {
    if (card.kind === 'cpu') continue;
    counters[`maxOverReserveBytes.${card.device}`] = card.maxOverReserveBytes;
    worst = Math.max(worst ?? card.maxOverReserveBytes, card.maxOverReserveBytes);
  }
  // Apart: what is reported there is charged at once whatever is free, and it is no card.
  if (core.host !== null) counters[`maxOverReserveBytes.${core.host.device}`] = core.host.maxOverReserveBytes;
  for (const waiter of core.waiters.values()) oldestUs = Math.min(oldestUs, waiter.arrivedUs);
  counters['maxOverReserveBytes'] = worst ?? 0;
  counters['oldestWaiterMs'] = msSince(core, oldestUs);
  return counters;
}
