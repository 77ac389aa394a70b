/** Fixed pieces of a ledger for the renderers to draw. */
import type { CardView, ExplainRecord } from '../../src/orchestrator/index.js';
import type { LedgerState } from '../../src/orchestrator/types.js';

const mebibyte = 1024 ** 2;
const device = 'GPU-5f3c9a1e-aaaa-bbbb-cccc-dddddddddddd';

export function cardView(changes: Partial<CardView>): CardView {
  return {
    device, name: 'NVIDIA H200', kind: 'gpu', totalBytes: 48 * mebibyte, reserveBytes: 0, leasedBytes: 22 * mebibyte, floorBytes: 0, residueBytes: 0,
    returningBytes: 0, holdBytes: 0, foreignBytes: 0, sampledUsedBytes: 22.5 * mebibyte, sampleAgeMs: 120, truth: 'nvml', missing: null,
    availableBytes: 26 * mebibyte, loadToken: null, forming: null, lost: null, yields: null, closed: null, thrashing: null, ...changes,
  };
}

export function ledgerState(changes: Partial<LedgerState> = {}): LedgerState {
  const lease = { device, gang: null, state: 'resident', chargedBytes: 11 * mebibyte, residentBytes: 10 * mebibyte, hostBytes: 0, hostChargedBytes: null, parts: [], layers: null, misplacedOn: null, leavingMs: null } as const;
  return {
    bootId: 'b',
    cards: [cardView({})],
    host: null,
    leases: [
      { ...lease, lease: 'b-l1', model: 'tales@llama#1', name: 'tales', generation: 'b-w1', inFlight: 2, pinned: true, idleMs: 0 },
      { ...lease, lease: 'b-l2', model: 'sums@llama#2', name: 'sums', generation: 'b-w2', inFlight: 0, pinned: false, idleMs: 4_200 },
    ],
    waiting: [{
      generation: 'b-w4', request: 1, model: 'facts', name: 'facts', device, gang: null, class: 'normal', needBytes: 27 * mebibyte, waitedMs: 1_500, position: 0,
      holdBytes: 4 * mebibyte, hostNeedBytes: 0, hostHoldBytes: 0, behindOthersMs: 95_000, reason: 'tales must end its calls first',
    }],
    processes: [
      { generation: 'b-w1', role: 'worker', engine: 'llama', state: 'ready', devices: [device], floorBytes: mebibyte, memoryBytes: null },
      { generation: 'b-s3', role: 'holder', engine: null, state: 'ready', devices: [device], floorBytes: 0, memoryBytes: null },
      { generation: 'b-s4', role: 'client', engine: null, state: 'ready', devices: [], floorBytes: 0, memoryBytes: null },
    ],
    counters: { grants: 2 },
    broker: { pid: 4711, socket: '/run/leasehold/broker.sock', startedMsAgo: 90_000 },
    workers: [{ generation: 'b-w1', engine: 'llama', pid: 4712, threads: 1 }],
    holders: [{ generation: 'b-s3', pid: 4713 }],
    simulatedCards: [],
    ...changes,
  };
}

export function explainRecord(changes: Partial<ExplainRecord>): ExplainRecord {
  return {
    id: 'b-x7', atUs: 5_000_000, verdict: 'waiting',
    text: 'facts@llama#3 needs 27.0 MiB and 26.0 MiB are available: tales@llama#1 is being put away.',
    generation: 'b-w4', request: 1, model: 'facts@llama#3', device, class: 'normal', waitedMs: 1_500,
    numbers: {
      requestedBytes: 24 * mebibyte, needBytes: 27 * mebibyte, floorBytes: mebibyte, totalBytes: 48 * mebibyte, reserveBytes: 0, chargedBytes: 22 * mebibyte,
      holdBytes: 0, foreignBytes: null, sampledUsedBytes: 22.5 * mebibyte, sampleAgeMs: 120, availableBytes: 26 * mebibyte, evictableBytes: 11 * mebibyte, truth: 'nvml',
    },
    victims: [
      { lease: 'b-l1', model: 'tales@llama#1', generation: 'b-w1', freesBytes: 11 * mebibyte, costMs: 120, action: 'unload', passedOver: null },
      { lease: 'b-l2', model: 'sums@llama#2', generation: 'b-w2', freesBytes: 11 * mebibyte, costMs: 900, action: 'unload', passedOver: 'pinned' },
      { lease: null, model: null, generation: 'b-w9', freesBytes: mebibyte, costMs: 40, action: 'end_process', passedOver: 'dearer' },
    ],
    unverified: false,
    ...changes,
  };
}
