/** Faults of eviction: who must go, for whom, how, and when it is enough. */
import type { Mutant } from './mutant.js';

export const evictionMutants: readonly Mutant[] = [
  {
    name: 'in-use-evicted', about: 'calls inside do not protect a model', file: 'eviction/spared.js',
    from: 'return lease.inFlight + lease.queued > 0 || lease.busyUntilUs > core.attendedUs;', to: 'return false;',
  },
  {
    name: 'pinned-evicted', about: 'a pin protects nothing', file: 'eviction/plan.js',
    from: "if (lease.pinned)\n        return 'pinned';", to: '',
  },
  {
    name: 'loading-evicted', about: 'a model is a victim while it loads', file: 'eviction/plan.js',
    from: "if (isLoading(lease))\n        return 'loading';", to: '',
  },
  {
    name: 'requester-evicted', about: 'the requesting model is its own victim', file: 'eviction/plan.js',
    from: "if (isRequester(lease, seeker))\n        return 'requester';", to: '',
  },
  {
    name: 'minimum-residency-ignored', about: 'a model just loaded may be put away at once', file: 'eviction/plan.js',
    from: 'return youth(core, lease, seeker) ?? (isBusy', to: 'return (isBusy',
  },
  {
    name: 'evicting-not-excluded', about: 'a model that is leaving is asked to leave again', file: 'eviction/plan.js',
    from: 'if (lease.job !== null || lease.release !== null || card.ending.has(lease.generation))', to: 'if (lease.release !== null || card.ending.has(lease.generation))',
  },
  {
    name: 'leaving-not-counted', about: 'what is on its way back is not counted, so more than enough is evicted', file: 'requests/pursue.js',
    from: 'const shortBytes = head.needBytes - ownBytes - comingBytes;', to: 'const shortBytes = head.needBytes - ownBytes;',
  },
  {
    name: 'evicts-too-much', about: 'the shortfall is taken for the whole need', file: 'requests/pursue.js',
    from: 'const shortBytes = head.needBytes - ownBytes - comingBytes;', to: 'const shortBytes = head.needBytes - ownBytes - comingBytes <= 0 ? 0 : head.needBytes;',
  },
  {
    name: 'door-at-once', about: 'a busy model’s door is shut without the wait of the class', file: 'requests/pursue.js',
    from: 'core.attendedUs - head.arrivedUs >= core.options.classPolicies[head.class].drainAfterMs * 1_000', to: 'true',
  },
  {
    name: 'door-before-idle', about: 'busy models are planned with, though idle ones suffice', file: 'requests/pursue.js',
    from: 'const idle = planVictims(core, card, seeker, shortBytes, false, cheapestSet, leaving);', to: 'const idle = planVictims(core, card, seeker, shortBytes, true, cheapestSet, leaving);',
  },
  {
    name: 'door-reopened', about: 'a drain is taken back while somebody waits for it', file: 'requests/pursue.js',
    from: 'const served = (job.beneficiary !== null && core.waiters.has(job.beneficiary)) || isWantedElsewhere(core, lease);', to: 'surplusBytes = Infinity; const served = false;',
  },
  {
    name: 'never-fits-waits', about: 'what can never fit evicts and waits', file: 'ledger/need.js',
    from: 'return Math.max(0, card.totalBytes - card.reserveBytes);', to: 'return 2 * card.totalBytes;',
  },
  {
    name: 'token-ignored-by-grants', about: 'others load while an engine measures free memory', file: 'requests/admission.js',
    from: 'if (card.loadToken !== null && core.leases.get(card.loadToken)?.generation !== waiter.generation)', to: 'if (false)',
  },
  {
    name: 'token-ignored-by-evictions', about: 'models are put away while an engine measures free memory', file: 'eviction/put-away.js',
    from: 'return loadToken === null || loadToken === member.id;', to: 'return true;',
  },
  {
    name: 'profiler-into-motion', about: 'an engine starts to measure while others load', file: 'requests/admission.js',
    from: 'const mustRest = fits && waiter.kind === ', to: 'const mustRest = false && waiter.kind === ',
  },
  {
    name: 'unanswered-forgiven', about: 'a command without an answer is waited for for ever', file: 'eviction/answers.js', pinnedBy: 'eviction',
    from: "strike(core, lease, job, 'the command was not answered');", to: '',
  },
  {
    name: 'load-not-stopped', about: 'a model that loads is not told to leave when somebody wants it gone', file: 'requests/wish.js',
    from: "const loads = lease.state === 'loading';", to: 'const loads = false;',
  },
  {
    name: 'busy-load-forgiven', about: 'a worker that is busy with its load whenever it is told to stop it may go on', file: 'eviction/answers.js',
from: "return lease.state === 'loading' && mustProcess(core, lease.generation).role === 'worker';", to: 'return false;',
  },
  {
    name: 'load-left-to-it', about: 'a load that does not end in time, though its model is to leave, is not stopped', file: 'eviction/answers.js', pinnedBy: 'stopped-loads',
    from: 'stopLoad(core, lease, job);', to: '',
  },
  {
    name: 'release-never-blamed', about: 'bytes that stay after a release are waited for for ever', file: 'ledger/residue.js',
    from: 'climb(core, card, lease, release, leftBytes);', to: '',
  },
  {
    name: 'whole-worker-parked', about: 'a worker whose floor is needed parks its models, and lives on for their sake', file: 'eviction/carry-out.js', pinnedBy: 'whole-workers',
    from: "target: victim.ends ? 'none' : 'host'", to: "target: 'host'",
  },
  {
    name: 'parked-keep-their-worker', about: 'a worker is not ended whole while it has anything parked', file: 'eviction/whole-workers.js', pinnedBy: 'whole-workers',
    from: 'for (const id of rest) {', to: 'for (const id of rest) {\n        return null;',
  },
  {
    name: 'whole-floor-forgotten', about: 'others leave for the floor of a worker that is on its way out', file: 'requests/pursue.js', pinnedBy: 'whole-workers',
    from: ' + endingBytes(core, card, head)', to: '',
  },
  {
    name: 'kept-by-those-behind', about: 'who needs the floor of a worker and that worker’s own requests wait for each other', file: 'eviction/whole-workers.js', pinnedBy: 'whole-workers',
    from: 'if (overdue === null || !isBehind(core, core.waiters.get(key), overdue))', to: 'if (true)',
  },
  {
    name: 'ended-over-older', about: 'a worker is ended though what it asks for is older', file: 'eviction/whole-workers.js', pinnedBy: 'whole-workers',
    from: ' && goesBefore(core, overdue, waiter)', to: '',
  },
  {
    name: 'late-stop-unheard', about: 'a load that was stopped late holds its bytes until it would have had to end', file: 'eviction/answers.js', pinnedBy: 'stopped-loads',
    from: "if (lease.state === 'loading' && (answer.target !== 'none' || answer.residentBytes > 0))", to: "if (lease.state === 'loading')",
  },
];
