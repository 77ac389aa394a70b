/** Faults of what comes after a broker's end: who may be waited for, what is believed of those who come back, what is void. */
import type { Mutant } from './mutant.js';

export const restartMutants: readonly Mutant[] = [
  {
    name: 'one-session-takes-all', about: 'of a process with several sessions one is taken to have all of its bytes, though another has told of them', file: 'restart/on-record.js', pinnedBy: 'reattach',
    from: 'generations.length === 1)', to: 'true)',
  },
  {
    name: 'session-bytes-twice', about: 'what the leases of one session of a process explain is another session’s, too', file: 'restart/on-record.js', pinnedBy: 'host-reattach',
    from: 'leftBytes -= bytes;', to: ';',
  },
  {
    name: 'climbs-unheard', about: 'what is still there after a release is asked for of a process whose connection is lost', file: 'ledger/residue.js', pinnedBy: 'reattach',
    from: 'if (!sessionOpen || returning) {', to: 'if (false) {',
  },
  {
    name: 'closed-card-granted', about: 'grants go on though a process of an earlier broker has not said what it holds', file: 'requests/admission.js',
    from: "if (card.closedBy.size > 0)\n        return 'closed';", to: '',
  },
  {
    name: 'closed-card-grown', about: 'growth while tokens flow is granted on a closed card', file: 'ledger/resize.js', pinnedBy: 'reattach',
    from: 'card.closedBy.size === 0 && freeBytes !== null', to: 'freeBytes !== null',
  },
  {
    name: 'opened-on-return', about: 'a card is opened when its process is back, before that has said what it holds', file: 'restart/reattach.js',
    from: 'process.sessionOpen = true;\n    process.returning = true;', to: 'process.sessionOpen = true;\n    process.returning = true;\n    openCards(core, process);',
  },
  {
    name: 'opened-for-holders', about: 'after the grace a holder that says nothing is taken to hold nothing, wherever it is', file: 'restart/closed-cards.js',
    from: 'if (seat !== undefined && seat.readingBytes !== null)\n            chargeAsFloor(core, card, seat, process, seat.readingBytes);', to: 'if (true)\n            openFor(core, card, process);',
  },
  {
    name: 'never-opened', about: 'a card stays closed though everybody has spoken', file: 'restart/reattach.js',
    from: 'generation });\n    openCards(core, process);', to: 'generation });',
  },
  {
    name: 'old-connection-counts', about: 'the end of a connection to an earlier broker keeps its cards closed for longer', file: 'processes/process.js', pinnedBy: 'reattach',
    from: "if (!process.sessionOpen && process.state !== 'spawning') {", to: 'if (false) {',
  },
  {
    name: 'dead-keep-closed', about: 'a card stays closed for a process that has ended', file: 'processes/process.js',
    from: 'openCards(core, process);', to: '',
  },
  {
    name: 'old-reading-used', about: 'what was read while nobody knew whose bytes are whose decides', file: 'ledger/available.js', pinnedBy: 'reattach',
    from: 'sample.takenAtUs < card.openedAtUs', to: 'false',
  },
  {
    name: 'unannounced-for-nothing', about: 'what the driver shows of a process that has said nothing is not charged', file: 'restart/closed-cards.js',
    from: 'setResidue(core, seat, Math.max(seat.residue.chargedBytes, readingBytes - (seat.chargedBytes - seat.residue.chargedBytes)));', to: ';',
  },
  {
    name: 'recorded-floor-forgotten', about: 'what was on record as the cost of a process is not charged', file: 'restart/closed-cards.js',
    from: 'floorBytes > seat.floor.chargedBytes)\n        setCharged(core, seat.floor, floorBytes);', to: 'floorBytes > seat.floor.chargedBytes)\n        ;',
  },
  {
    name: 'unexplained-kept', about: 'what was charged of a process without its word stays beside its leases', file: 'restart/announce.js',
    from: 'if (isStranger(process))\n        clearUnexplained(core, process);', to: '',
  },
  {
    name: 'load-taken-in-cheap', about: 'a load under way is taken in with what it has so far, not with what it was granted', file: 'restart/take-in.js',
    from: 'Math.max(terms.chargedBytes, state.residentBytes)', to: 'state.residentBytes',
  },
  {
    name: 'parked-lost', about: 'a parked lease is not taken in', file: 'restart/take-in.js',
    from: "state.state === 'absent' ||", to: "state.state === 'absent' || state.state === 'parked' ||",
  },
  {
    name: 'pin-lost', about: 'a pinned model that comes back may be a victim', file: 'restart/take-in.js', pinnedBy: 'reattach',
    from: 'class: terms.class, policy: terms.policy,', to: 'class: terms.class, policy: { ...terms.policy, pinned: false },',
  },
  {
    name: 'leaving-taken-for-there', about: 'a model that is being unloaded when it is taken in is resident for good', file: 'restart/take-in.js', pinnedBy: 'reattach',
    from: "if ((state !== 'parking' && state !== 'unloading') || isUnwatched(core, card))\n        return;", to: 'return;',
  },
  {
    name: 'leaving-taken-for-gone', about: 'a model that is being unloaded when it is taken in is gone at once where nothing can be seen to leave', file: 'restart/take-in.js', pinnedBy: 'host-reattach',
    from: "(state !== 'parking' && state !== 'unloading') || isUnwatched(core, card)", to: "state !== 'parking' && state !== 'unloading'",
  },
  {
    name: 'lease-names-again', about: 'a new broker gives the names of leases that the last one gave', file: 'ledger/lease-id.js',
    from: '`${generation}-${bootId}-${number}`', to: '`${generation}-${number}`',
  },
  {
    name: 'owner-unchecked', about: 'who names a lease of another first, after a restart, has it', file: 'ledger/lease-id.js',
    from: 'owner !== generation || core.leases.has(id)', to: 'core.leases.has(id)',
  },
  {
    name: 'report-of-anothers', about: 'what is said of a lease of another that is not back yet is acknowledged', file: 'ledger/lease-id.js', pinnedBy: 'lease-owners',
    from: 'core.leases.get(id)?.generation ?? pattern.exec(id)?.[1] ?? null', to: 'core.leases.get(id)?.generation ?? null',
  },
  {
    name: 'strikes-kept', about: 'what was not answered over a connection that is lost counts on the next', file: 'restart/reattach.js', pinnedBy: 'reattach',
    from: 'lease.strikes = 0;', to: ';',
  },
  {
    name: 'ending-unheard', about: 'a worker that says that it ends is counted on', file: 'processes/process.js',
    from: "terminate(core, process, 'leaving', `it ends: ${event.reason}`);", to: ';',
  },
  {
    name: 'orphan-at-once', about: 'a worker of an earlier broker is ended before it can come back', file: 'restart/reattach.js',
    from: "core.timers.set('detached', generation, inMs(core, core.options.limits.reattachGraceMs));", to: "core.timers.set('detached', generation, inMs(core, 1));",
  },
  {
    name: 'orphan-kept', about: 'a worker that does not come back is waited for for ever', file: 'restart/reattach.js',
    from: "core.timers.set('detached', generation, inMs(core, core.options.limits.reattachGraceMs));", to: '',
  },
  {
    name: 'orphaned-holder-ended', about: 'a holder that does not come back is ended', file: 'restart/reattach.js',
    from: "if (process.role === 'worker')\n        terminate(core, process, 'orphaned', why);", to: "if (process.role !== 'client')\n        terminate(core, process, 'orphaned', why);",
  },
  {
    name: 'loss-ends-at-once', about: 'a worker whose connection is lost is ended, whatever it was told of a grace', file: 'processes/process.js',
    from: "process.role === 'worker' && reattachGraceMs === 0", to: "process.role === 'worker'",
  },
  {
    name: 'returned-unwatched', about: 'one that has come back is not missed when it falls silent', file: 'restart/reattach.js',
    from: "core.timers.set('heartbeat', process.generation, inMs(core, limits.heartbeatIntervalMs * limits.heartbeatMissesMax));", to: '',
  },
  {
    name: 'placed-on-the-lost', about: 'calls are sent to a worker whose connection is lost', file: 'processes/process.js',
    from: "if (process.state === 'ready')\n        process.state = 'suspect';\n    core.timers.set('detached'", to: "core.timers.set('detached'",
  },
  {
    name: 'old-answers-count', about: 'a request of a new connection passes for one that was answered over the last', file: 'processes/process.js',
    from: 'process.answered.clear();', to: '',
  },
  {
    name: 'cut-grant-unasked', about: 'a grant that was lost with the connection is not asked after', file: 'restart/reattach.js', pinnedBy: 'reattach',
    from: "if (lease.state === 'granted' || lease.growing)\n        core.timers.set('grant_confirm', id, inMs(core, core.options.limits.grantConfirmMs));", to: '',
  },
  {
    name: 'second-copy', about: 'a model is loaded anew while the worker that may have it is waited for', file: 'requests/place-request.js',
    from: 'mayComeBack(core, event.engine, cards.living, countOf(event)) ?? best', to: 'best',
  },
  {
    name: 'told-floor-forgotten', about: 'what a process said of a card that was found later does not count', file: 'restart/unfound-cards.js', pinnedBy: 'reattach',
    from: 'if (floor?.isTold === true)', to: 'if (false)',
  },
  {
    name: 'stranded-for-ever', about: 'a gang is asked back though the card of the rest has been found', file: 'restart/take-in.js', pinnedBy: 'gang-return',
    from: 'core.stranded.delete(id);', to: ';',
  },
  {
    name: 'quarantined-twice', about: 'what was loading in a process that cannot be ended counts as read and as still to come', file: 'eviction/ladder.js', pinnedBy: 'loading',
    from: "if (lease.state === 'loading' || lease.growing)", to: 'if (false)',
  },
];
