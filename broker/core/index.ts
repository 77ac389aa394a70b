/** The broker's core: a pure machine. `step(core, event)` returns effects; everything else reads. */
export { createCore } from './create.js';
export { step } from './step.js';
export { snapshot, restore } from './snapshot.js';
export { checkInvariants } from './invariants.js';
export { ledgerView } from './view-build.js';
export { callsInside } from './processes/calls.js';
export { floorsOf, mayHold, shareReading } from './restart/on-record.js';
export { explainRecords, type ExplainFilter } from './report.js';
export { evictionTarget, type DelegatedEviction, type EvictionTarget } from './cards/offset.js';
export { headroom, withHeadroom, withoutHeadroom, isBytes, leasableBytesMax } from './ledger/headroom.js';
export { cheapestSet, leastRecentlyUsed, type VictimCandidate, type VictimPolicy } from './eviction/victim-policy.js';
export { rankOf, goesBefore } from './requests/queue.js';
export type { Core } from './state.js';
export type * from './events.js';
export type * from './effects.js';
export type * from './explain.js';
export type * from './options.js';
export type * from './view.js';
