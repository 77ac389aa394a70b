/** Faults of the queue and of time: order, holds, deadlines, answers, processes. */
import type { Mutant } from './mutant.js';

export const queueMutants: readonly Mutant[] = [
  {
    name: 'unawaited-kept', about: 'a worker goes on starting though nobody waits for it any more', file: 'processes/terminate.js', pinnedBy: 'shares',
    from: "process?.state !== 'spawning' || process.joined.size > 0", to: 'true',
  },
  {
    name: 'awaited-ended', about: 'a start is taken back though somebody else waits for it', file: 'processes/terminate.js', pinnedBy: 'shares',
    from: "process?.state !== 'spawning' || process.joined.size > 0", to: "process?.state !== 'spawning'",
  },
  {
    name: 'starts-unshared', about: 'one peer may have any number of workers starting', file: 'requests/shares.js', pinnedBy: 'shares',
    from: 'return count < core.options.limits.spawnsAtOnceMax;', to: 'return true;',
  },
  {
    name: 'hold-forgotten', about: 'bytes freed for one are given to whoever asks next', file: 'requests/admission.js',
    from: 'heldBytes += waiter.holdBytes;', to: '',
  },
  {
    name: 'hold-taken-by-growth', about: 'growth while tokens flow takes what is kept for those that wait', file: 'ledger/resize.js',
    from: 'Math.max(0, freeBytes - card.holdBytes)', to: 'Math.max(0, freeBytes)',
  },
  {
    name: 'hold-never-set', about: 'nothing is ever kept for the first in the queue', file: 'requests/admission.js',
    from: 'const keeps = waiter.planned || (head === null && isEntrenched(core, waiter) && !standsAside(waiter, reason));', to: 'const keeps = false;',
  },
  {
    name: 'queue-jumped', about: 'a request that fits passes all that wait', file: 'requests/admission.js',
    from: 'if (queueLength(card) > 0 || blockedBy(core, card, waiter) !== null)', to: 'if (blockedBy(core, card, waiter) !== null)',
  },
  {
    name: 'youngest-first', about: 'within a rank the youngest goes first', file: 'requests/queue.js',
    from: 'return a.arrivedUs < b.arrivedUs || (a.arrivedUs === b.arrivedUs && a.order < b.order);', to: 'return a.arrivedUs > b.arrivedUs || (a.arrivedUs === b.arrivedUs && a.order > b.order);',
  },
  {
    name: 'starvation', about: 'neither ageing nor the longest wait lifts anybody', file: 'requests/queue.js',
    from: 'return policy.rank + Math.floor((core.attendedUs - waiter.arrivedUs) / (policy.ageingMs * 1_000));', to: 'return policy.rank - Math.floor((core.attendedUs - waiter.arrivedUs) / (policy.ageingMs * 1_000));',
  },
  {
    name: 'never-overdue', about: 'the longest wait of a class is over for nobody', file: 'requests/queue.js', pinnedBy: 'thrash',
    from: 'return core.attendedUs - waiter.arrivedUs >= core.options.classPolicies[waiter.class].longestWaitMs * 1_000;', to: 'return false;',
  },
  {
    name: 'bound-without-elders', about: 'the bound of a wait leaves out those who are older', file: 'requests/wait-bound.js', pinnedBy: 'wait-bound',
    from: '(older + 1) *', to: '1 *',
  },
  {
    name: 'deadline-ignored', about: 'a request waits past its deadline', file: 'tick.js',
    from: 'withOne(core.waiters.get(key), (waiter) => deadlinePassed(core, waiter));', to: '',
  },
  {
    name: 'deadline-by-the-wall', about: 'our own absence counts against everybody', file: 'clock.js',
    from: 'core.attendedUs += Math.min(passedUs, core.options.limits.stallToleranceMs * 1_000);', to: 'core.attendedUs += passedUs;',
  },
  {
    name: 'failures-evict', about: 'a model whose load fails evicts the same neighbour at each try', file: 'eviction/spared.js',
    from: 'return isBusy(core, lease) || Math.max(lease.lastUsedUs, lease.grantedUs) >= seeker.failingSinceUs;', to: 'return false;',
  },
  {
    name: 'back-off-ignored', about: 'a load that failed is tried again at once', file: 'requests/backoff.js',
    from: 'return backoff !== undefined && backoff.untilUs > core.attendedUs ? backoff : null;', to: 'return null;',
  },
  {
    name: 'back-off-never-doubles', about: 'each pause is as short as the first', file: 'requests/backoff.js',
    from: 'firstMs * 2 ** Math.min(30, backoff.failures - 1)', to: 'backoffFirstMs',
  },
  {
    name: 'cancelled-still-granted', about: 'a request that was taken back is granted all the same', file: 'requests/request.js',
    from: "count(core, 'cancellations');\n    giveUpWaiter(core, waiter);", to: "count(core, 'cancellations');",
  },
  {
    name: 'granted-twice', about: 'a request stays in the queue after its grant', file: 'requests/admission.js',
    from: 'grantBudget(core, card, waiter, unverified);\n        endWaiter(core, waiter);', to: 'grantBudget(core, card, waiter, unverified);',
  },
  {
    name: 'silent-worker-kept', about: 'a worker that has fallen silent is never ended', file: 'processes/process.js',
    from: "terminate(core, process, 'silent', `silent for ${durationText(silentMs)}`);", to: 'watchHeartbeat(core, process.generation, core.attendedUs);',
  },
  {
    name: 'silent-too-soon', about: 'one missed heartbeat ends a worker', file: 'processes/process.js',
    from: 'if (silentUs < heartbeatIntervalMs * heartbeatMissesMax * 1_000) {', to: 'if (silentUs < 0) {',
  },
  {
    name: 'hung-load-kept', about: 'a load that never ends is waited for for ever', file: 'ledger/lease-store.js',
    from: "core.timers.set('load', lease.id, inMs(core, core.options.limits.loadTimeoutMs));", to: '',
  },
  {
    name: 'spawn-waited-for-ever', about: 'a worker that never becomes ready is never given up', file: 'processes/process.js',
    from: "terminate(core, process, 'spawn_timeout', 'it did not become ready in time');", to: '',
  },
  {
    name: 'idle-worker-in-use', about: 'a worker is idle though models have been promised to it', file: 'processes/idle.js',
    from: 'process.models.size === 0 && process.leases.size === 0', to: 'true',
  },
  {
    name: 'recall-forgotten', about: 'a grant that is never confirmed is never asked about', file: 'tick.js',
    from: 'withOne(core.leases.get(key), (lease) => recall(core, lease));', to: '',
  },
  {
    name: 'recall-frees', about: 'a grant that is not confirmed in time is void without asking', file: 'ledger/lease-events.js',
    from: 'export function recall(core, lease) {', to: "export function recall(core, lease) {\n    if (lease.state === 'granted') return voidGrant(core, lease, 'not confirmed');",
  },
  {
    name: 'placed-while-starting', about: 'a placement is answered with a worker that is not ready', file: 'requests/placement.js',
    from: "if (process.state === 'ready') {\n        tellPlaced(core, waiter, process);", to: '{\n        tellPlaced(core, waiter, process);',
  },
  {
    name: 'placed-on-the-leaving', about: 'a worker that is being ended is chosen', file: 'requests/placement.js',
    from: "(process.state === 'ready' || process.state === 'spawning') && process.endWhenIdle === null", to: 'true',
  },
  {
    name: 'evicted-at-once', about: 'a wish to evict is answered before the bytes are gone', file: 'requests/wish.js',
    from: 'process.requests.add(key);', to: "process.requests.add(key);\n    emit(core, { type: 'report_evicted', generation: event.generation, request: event.request, freedBytes: 0 });",
  },
  {
    name: 'queue-share-forgotten', about: 'a full queue refuses whoever comes, however much others have of it', file: 'requests/shares.js',
    from: 'const newest = most === generation ? null : newestQueued(core, card, most);', to: 'const newest = null;',
  },
  {
    name: 'queue-share-of-the-oldest', about: 'a full queue refuses the oldest of those who have the most', file: 'requests/shares.js',
    from: 'waiter.order > (newest?.order ?? -1)', to: 'newest === null',
  },
  {
    name: 'worker-share-forgotten', about: 'the workers that a flood has started are not given to anybody else', file: 'requests/shares.js',
    from: '(processes.length > wouldHave || !core.processes.has(peer)) &&', to: 'false &&',
  },
  {
    name: 'wrong-numbers', about: 'the record of a decision gives another need than the one decided by', file: 'ledger/available.js',
    from: 'needBytes: request.needBytes,', to: 'needBytes: request.requestedBytes,',
  },
  {
    name: 'own-floor-forgotten', about: 'what does not fit beside the floor of its own worker waits for it', file: 'ledger/need.js', pinnedBy: 'whole-workers',
    from: ' + keptFloorBytes(core, waiter));', to: ');',
  },
];
