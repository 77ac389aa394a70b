/** The core at its birth: knows its options and nothing else. */
import { LeaseholdError, brokenRelation } from '../../protocol/index.js';
import type { CoreOptions } from './options.js';
import type { Core } from './state.js';
import { newPace } from './eviction/use-forecast.js';
import { Timers } from './timers.js';

/** A new core with an empty ledger. Limits that break a relation are a typed error. */
export function createCore(options: CoreOptions): Core {
  const broken = brokenRelation(options.limits);
  if (broken !== null) throw new LeaseholdError('limit_relation', { relation: broken.text });
  if (!/^[0-9A-Za-z]{1,16}$/.test(options.bootId)) {
    throw new LeaseholdError('input_invalid', { field: 'bootId', reason: 'must be 1 to 16 letters and digits' });
  }
  return {
    options,
    clockUs: options.startedAtUs,
    setBack: null,
    nowUs: options.startedAtUs,
    attendedUs: 0,
    nextLease: 1,
    nextWorker: 1,
    nextCommand: 1,
    nextExplain: 1,
    nextOrder: 1,
    cards: new Map(),
    host: null,
    hostWaiters: new Set(),
    hostSeen: '',
    hostPressureCount: 0,
    processes: new Map(),
    workers: new Set(),
    workersAwaited: new Map(),
    leases: new Map(),
    over: new Set(),
    waiters: new Map(),
    evictRequests: new Map(),
    gangs: new Map(),
    stranded: new Map(),
    models: new Map(),
    backoffs: new Map(),
    commands: new Map(),
    learnedFloors: new Map(),
    floorClaims: new Map(),
    spawnMs: new Map(),
    pace: newPace(),
    timers: new Timers(),
    counters: new Map(),
    explains: [],
    effects: [],
    dirty: new Set(),
    changed: new Set(),
    fresh: new Set(),
    touched: new Set(),
    relieved: new Set(),
  };
}
