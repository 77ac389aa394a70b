/** Faults of the ledger: what is charged, what is believed, what counts as free. */
import type { Mutant } from './mutant.js';

export const ledgerMutants: readonly Mutant[] = [
  {
    name: 'clock-stands-still', about: 'after its clock was set back nothing becomes older until that has caught up', file: 'clock.js',
    from: 'core.clockUs = atUs;', to: 'if (passedUs < 0) return; core.clockUs = atUs;',
  },
  {
    name: 'undated-reading-dated', about: 'a reading from before the clock was set back is taken for one of after it', file: 'clock.js', pinnedBy: 'clock',
    from: 'return isDated ? toOwn(core, takenAtUs) : null;', to: 'return toOwn(core, takenAtUs);',
  },
  {
    name: 'wild-figure-believed', about: 'a figure of a process beyond its card counts as all of the card', file: 'ledger/claims.js',
    from: 'processes: null, strangers: []', to: 'processes: event.processes?.map((reading) => ({ ...reading, usedBytes: Math.min(reading.usedBytes, mostBytes) })) ?? null',
  },
  {
    name: 'wild-total-believed', about: 'a reading of more than there is says that the card is full', file: 'cards/sample.js',
    from: 'usedBytes < 0 || usedBytes > totalBytes', to: 'usedBytes < 0',
  },
  {
    name: 'vanished-untold', about: 'what a process that dies in a load has left passes for a stranger’s', file: 'cards/strangers.js', pinnedBy: 'reconciliation',
    from: 'isUntold && seat.vanishedBytes > measureToleranceBytes', to: 'false',
  },
  {
    name: 'reservation-dropped', about: 'a grant charges nothing until it is loaded', file: 'requests/grant.js',
    from: 'setCharged(core, lease.charge, lease.charge.wantedBytes + growBytes);', to: '',
  },
  {
    name: 'headroom-1.0', about: 'a lease is what was asked for, without the tenth', file: 'ledger/headroom.js',
    from: 'export const headroom = { numerator: 11,', to: 'export const headroom = { numerator: 10,',
  },
  {
    name: 'stale-sample-used', about: 'a reading serves however old it is', file: 'ledger/available.js',
    from: 'sample === null || core.nowUs - sample.takenAtUs > core.options.limits.sampleMaxAgeMs * 1_000', to: 'sample === null',
  },
  {
    name: 'foreign-forgotten', about: 'the ledger alone decides, whatever the card says is used', file: 'ledger/available.js',
    from: 'return { freeBytes: Math.min(ledgerBytes, sampleBytes), unverified: false };', to: 'return { freeBytes: ledgerBytes, unverified: false };',
  },
  {
    name: 'ledger-forgotten', about: 'the card’s own figure decides, whatever has been promised', file: 'ledger/available.js',
    from: 'return { freeBytes: Math.min(ledgerBytes, sampleBytes), unverified: false };', to: 'return { freeBytes: sampleBytes + card.pendingBytes, unverified: false };',
  },
  {
    name: 'promises-forgotten', about: 'what is charged and not yet there does not count against a reading', file: 'ledger/available.js',
    from: '- card.reserveBytes - card.pendingBytes;', to: '- card.reserveBytes;',
  },
  {
    name: 'reserve-forgotten', about: 'the reserve is given away', file: 'ledger/available.js',
    from: 'return card.totalBytes - card.reserveBytes - card.chargedBytes;', to: 'return card.totalBytes - card.chargedBytes;',
  },
  {
    name: 'unknown-is-free', about: 'a card that cannot be read is taken by the ledger, though that is not allowed', file: 'ledger/available.js',
    from: 'return allowed && card.missing !== null', to: 'return card.missing !== null',
  },
  {
    name: 'ack-trusted', about: 'bytes are free when the worker says so', file: 'ledger/release.js',
    from: 'if (isUnwatched(core, card) || lease', to: 'if (true || lease',
  },
  {
    name: 'exit-frees-at-once', about: 'what a dead process held is free before the card shows it', file: 'processes/process.js',
    from: 'if (!ran || chargedBytes === 0)', to: 'if (ran || chargedBytes === 0)',
  },
  {
    name: 'old-sample-confirms', about: 'a reading taken before a release confirms it', file: 'ledger/confirm.js',
    from: 'if (lease.release === null || lease.release.reportedAtUs > takenAtUs)', to: 'if (lease.release === null)',
  },
  {
    name: 'residue-confirmed', about: 'what the driver still shows after a release is taken for noise', file: 'ledger/confirm.js', pinnedBy: 'eviction',
    from: 'const share = Math.max(0, Math.min(rest, release.fromChargedBytes - release.toChargedBytes));', to: 'const share = 0;',
  },
  {
    name: 'returning-shared-out', about: 'bytes of the dead are dropped whatever the card still shows', file: 'ledger/confirm.js',
    from: 'const share = Math.min(rest, returning.charge.chargedBytes);', to: 'const share = 0;',
  },
  {
    name: 'floor-forgotten', about: 'a process costs nothing before it says so', file: 'ledger/available.js',
    from: 'return Math.max(learnedBytes, card.floorBytes ?? assumedFloorBytes(core, card, engine));', to: 'return 0;',
  },
  {
    name: 'floor-told-in-vain', about: 'what a process says that it costs is not charged', file: 'ledger/floors.js',
    from: 'raiseFloor(core, card, seat, Math.max(bytes, seenBytes, card.floorBytes ?? 0));', to: '',
  },
  {
    name: 'measured-not-charged', about: 'measured bytes above the lease are not charged', file: 'ledger/lease-events.js',
    from: 'if (wantedBytes <= lease.charge.wantedBytes) {', to: 'if (wantedBytes > 0) {',
  },
  {
    name: 'cut-kept', about: 'what a process could not be charged with beside its other charges is forgotten', file: 'step.js', pinnedBy: 'hostile',
    from: 'if (core.relieved.size > 0)\n            makeGood(core);', to: '',
  },
  {
    name: 'ended-load-forgotten', about: 'a sample taken in a load that has ended since, and been followed by another, shows a stranger', file: 'ledger/ledger.js', pinnedBy: 'reconciliation',
    from: 'const [first] = charge.loadings;', to: 'const first = charge.loadings.at(-1);',
  },
  {
    name: 'late-peak-blamed', about: 'a sample taken at the peak of a load is held against what the load has left', file: 'cards/overshoot.js', pinnedBy: 'reconciliation',
    from: 'seat.chargedBytes - seat.residue.chargedBytes + givenBackBytes;', to: 'seat.chargedBytes - seat.residue.chargedBytes;',
  },
  {
    name: 'young-reports-judged', about: 'a process’s figure is compared with what it has reported since', file: 'ledger/ledger.js', pinnedBy: 'reconciliation',
    from: 'return seat.seenBytes - seat.floor.seenBytes - seat.residue.seenBytes;', to: 'return seat.leasedBytes;',
  },
  {
    name: 'old-answers-heard', about: 'an answer to a command of an earlier stay on the card ends the next', file: 'requests/grant.js', pinnedBy: 'reconciliation',
    from: 'forgetCommands(core, lease);', to: '',
  },
  {
    name: 'quarantine-kept', about: 'a grant that never came stays quarantined though its holder says so', file: 'ledger/lease-events.js', pinnedBy: 'reconciliation',
    from: "const isKept = lease.state === 'quarantined' &&", to: 'const isKept = false &&',
  },
  {
    name: 'unlisted-is-gone', about: 'what a process held that is no longer listed is free, though its exit has not been heard', file: 'ledger/confirm.js', pinnedBy: 'reconciliation',
    from: "return seat.readingBytes === 0 && (process?.sessionOpen !== true || process.state === 'ending');", to: 'return false;',
  },
  {
    name: 'second-grant-voids-first', about: 'what is asked for again under one name before it has begun is taken to have been lost', file: 'ledger/lease-store.js',
    from: 'enterLease(core, card, lease);\n    return lease;',
    to: "for (const other of [...core.leases.values()]) if (other.generation === generation && other.model === model && other.device === card.device && other.state === 'granted' && gang === null) closeLease(core, other);\n    enterLease(core, card, lease);\n    return lease;",
  },
  {
    name: 'name-is-enough', about: 'what names no lease is granted the one that its process has under that name', file: 'ledger/need.js',
    from: 'return request.lease === null ?',
    to: "for (const lease of request.lease === null ? core.leases.values() : []) if (lease.generation === request.generation && lease.model === request.model && lease.device === request.device && lease.state === 'resident' && lease.job === null) return lease;\n    return request.lease === null ?",
  },
  {
    name: 'lost-grant-slowly-asked-after', about: 'a grant that was lost with its connection is asked after only when its time is over', file: 'restart/announce.js', pinnedBy: 'loading',
    from: 'recall(core, lease);', to: '',
  },
  {
    name: 'old-reading-blames', about: 'a reading taken before the ledger alone took a release for done shows bytes that nothing explains', file: 'ledger/release.js', pinnedBy: 'reconciliation',
    from: 'if (seat !== undefined && isUnwatched(core, card))', to: 'if (false)',
  },
  {
    name: 'ending-floor-forgotten', about: 'what a worker takes that is ended while it starts is not charged', file: 'processes/process.js', pinnedBy: 'reconciliation',
    from: "if (process?.state === 'ending')\n            reportFloors(core, process, event.floors);", to: '',
  },
  {
    name: 'early-word-kept', about: 'of a park said to be done too soon it is remembered for ever what it then had', file: 'ledger/lease-events.js', pinnedBy: 'reconciliation',
    from: 'return release.then === then && release.leftBytes > leftBytes;', to: 'return false;',
  },
  {
    name: 'surplus-kept', about: 'what only the top of a load needed stays charged', file: 'ledger/lease-events.js',
    from: 'if (mayShrink)\n            setCharged(core, lease.charge, wantedBytes);', to: '',
  },
  {
    name: 'growing-part-lowered', about: 'a part that grows with use is lowered by its first measurement', file: 'ledger/lease-events.js',
    from: 'known === undefined || part.upFront ? part.bytes : Math.max(known.bytes, part.bytes)', to: 'part.bytes',
  },
  {
    name: 'peak-forgotten', about: 'the top of a load is not admitted', file: 'ledger/need.js',
    from: 'chargeFor(Math.max(wholeBytes, waiter.peakBytes), waiter.exclusive)', to: 'chargeFor(wholeBytes, waiter.exclusive)',
  },
  {
    name: 'resize-for-nothing', about: 'growth while tokens flow is granted without looking', file: 'ledger/resize.js',
    from: 'freeBytes !== null && growBytes <= spareBytes', to: 'freeBytes !== null',
  },
  {
    name: 'stranger-answers', about: 'a command is answered by whoever names its number', file: 'eviction/answers.js',
    from: 'if (command?.generation !== event.generation) {', to: 'if (command === undefined) {',
  },
  {
    name: 'stranger-releases', about: 'a lease is given back by whoever names it', file: 'ledger/lease-events.js',
    from: 'if (process !== undefined && lease?.generation === event.generation)', to: 'if (lease !== undefined)',
  },
  {
    name: 'spill-blames-anyone', about: 'bytes in host memory are held against a process without a lease', file: 'cards/spill.js', pinnedBy: 'loading',
    from: '|| !holdsAny(core, seat)', to: '',
  },
  {
    name: 'spill-fits', about: 'a load that its driver let spill over has fitted', file: 'cards/spill.js', pinnedBy: 'loading',
    from: 'unloadFor(core, card, seat, process);', to: 'return;',
  },
  {
    name: 'load-blamed-on-release', about: 'bytes that may be those of a load are blamed on a release of its process', file: 'ledger/residue.js',
    from: 'if (mayBeLoads(core, card, lease, leftBytes)) {', to: 'if (false) {', pinnedBy: 'eviction',
  },
];
