/** Faults in the ledger of the machine's memory: what is promised there, who gives way, and when a charge falls. */
import type { Mutant } from './mutant.js';

export const memoryMutants: readonly Mutant[] = [
  {
    name: 'memory-not-asked', about: 'a grant looks at its card alone', file: 'memory/admission.js',
    from: 'if (waiter.hostNeedBytes === 0)\n        return true;', to: 'return true;',
  },
  {
    name: 'memory-peak-forgotten', about: 'what a load takes of memory at its top is not admitted', file: 'memory/share.js',
    from: 'return withHeadroom(Math.max(neededBytes, peakBytes));', to: 'return withHeadroom(neededBytes);',
  },
  {
    name: 'copy-always', about: 'every copy may be kept, whatever room there is', file: 'memory/share.js',
    from: '<= freeBytes - host.holdBytes + waiter.hostHoldBytes);', to: '>= 0);',
  },
  {
    name: 'copy-not-charged', about: 'a copy costs nothing', file: 'memory/share.js',
    from: 'const copy = Math.max(lease.hostBytes, share.keepsCopy && !share.loaded ? copyBytes : 0);', to: 'const copy = 0;',
  },
  {
    name: 'park-without-room', about: 'a park begins though memory has no room for its copy', file: 'eviction/plan.js',
    from: 'return couldPark(core, lease) && parkShortBytes(core, lease) === 0;', to: 'return couldPark(core, lease);',
  },
  {
    name: 'park-not-reserved', about: 'the room for a copy in the making is promised to others, too', file: 'memory/share.js',
    from: 'return isParking(lease) ? Math.max(wantedBytes, parkBytesOf(lease)) : wantedBytes;', to: 'return wantedBytes;',
  },
  {
    name: 'parked-before-copies', about: 'parked models go while copies of resident ones stay', file: 'memory/eviction.js',
    from: 'const fewest = choose(shortBytes, redundant);', to: 'const fewest = choose(shortBytes, [...parkedModels(core, seeker), ...redundant]);',
  },
  {
    name: 'memory-never-unloaded', about: 'an idle model that needs the memory itself stays, whoever waits for it', file: 'memory/eviction.js',
    from: '...residentModels(core, seeker, redundant, busyToo), ', to: '', pinnedBy: 'host-needs',
  },
  {
    name: 'memory-cut-off', about: 'a busy model is unloaded for want of memory with its calls inside', file: 'memory/eviction.js',
    from: "when: busy ? 'drained' : 'now', bytes: null, target: 'none'", to: "when: 'now', bytes: null, target: 'none'",
  },
  {
    name: 'memory-door-early', about: 'a busy model is drained for want of memory at once', file: 'memory/admission.js', pinnedBy: 'host-needs',
    from: 'return mayDrain ? ', to: 'return true ? ',
  },
  {
    name: 'copies-in-vain', about: 'copies go though there is room', file: 'memory/admission.js', pinnedBy: 'host-needs',
    from: 'const shortBytes = waiter.hostNeedBytes - ownBytes - hostLeavingBytes(core, host);', to: 'const shortBytes = waiter.hostNeedBytes;',
  },
  {
    name: 'pressure-imagined', about: 'copies go though the machine is not short', file: 'memory/growth.js',
    from: 'const shortBytes = freeBytes === null ? 0 : -freeBytes - hostLeavingBytes(core, host);', to: 'const shortBytes = 1e9;',
  },
  {
    name: 'trim-trusted', about: 'what is said to be given back in memory is free before it is seen', file: 'memory/share.js',
    from: 'setHostResidue(core, seat, seat.residue.chargedBytes + bytes);', to: '',
  },
  {
    name: 'late-trim-ends-the-next', about: 'the answer to a trim that was given up takes the deadline of the next', file: 'memory/trim.js', pinnedBy: 'host',
    from: "if (isCurrent)\n        core.timers.drop('trim', lease.id);", to: "core.timers.drop('trim', lease.id);",
  },
  {
    name: 'parked-without-copy', about: 'a model whose copy was given back before its park had been seen stays parked, with nothing', file: 'memory/trim.js', pinnedBy: 'host',
    from: "(lease.state === 'parked' || lease.release?.then === 'parked')", to: "lease.state === 'parked'",
  },
  {
    name: 'memory-unread-is-free', about: 'without a reading of memory the ledger alone decides, though that is not allowed', file: 'ledger/available.js',
    from: "card.kind === 'host' ? core.options.allowHostUnknown === true : core.options.allowLedgerOnly", to: "card.kind === 'host' ? true : core.options.allowLedgerOnly",
  },
  {
    name: 'growth-imagined', about: 'a worker is ended for memory that its leases explain', file: 'memory/growth.js',
    from: 'if (strayBytes <= hostGrowthBytesMax) {', to: 'if (strayBytes <= 0) {',
  },
  {
    name: 'wanted-copy-dropped', about: 'a parked model goes while its way back is being asked for', file: 'memory/eviction.js', pinnedBy: 'host',
    from: '!isWanted(core, lease) && ', to: '',
  },
  {
    name: 'growth-uncharged', about: 'what a process has beyond its leases is not charged', file: 'memory/growth.js',
    from: 'setHostResidue(core, seat, settled ? strayBytes : Math.max(strayBytes, mostBytes));', to: 'setHostResidue(core, seat, 0);',
  },
  {
    name: 'closed-memory-granted', about: 'memory is granted though a process of an earlier broker has not said what it was granted', file: 'memory/admission.js',
    from: 'if (host.closedBy.size > 0)\n        return false;', to: '',
  },
  {
    name: 'closed-memory-copied', about: 'a copy may be kept though a process of an earlier broker has not said what it was granted', file: 'memory/share.js', pinnedBy: 'host-reattach',
    from: 'host.closedBy.size === 0 && freeBytes', to: 'freeBytes',
  },
  {
    name: 'closed-memory-parked', about: 'a park begins though a process of an earlier broker has not said what it was granted', file: 'memory/share.js', pinnedBy: 'host-reattach',
    from: 'freeBytes === null || host.closedBy.size > 0 ?', to: 'freeBytes === null ?',
  },
  {
    name: 'memory-kept-closed', about: 'memory stays closed though everybody has spoken', file: 'restart/closed-cards.js',
    from: 'export function openCards(core, process) {\n    for (const card of ledgersOf(core)) {', to: 'export function openCards(core, process) {\n    for (const card of core.cards.values()) {',
  },
  {
    name: 'memory-terms-forgotten', about: 'a lease that comes back has nothing in memory', file: 'restart/take-in.js',
    from: 'host: believableNeed(core, state)', to: 'host: null',
  },
  {
    name: 'memory-load-taken-in-cheap', about: 'a load that comes back is taken to be over its peak', file: 'restart/take-in.js',
    from: "lease.host.loaded = state.state !== 'loading';", to: 'lease.host.loaded = true;',
  },
  {
    name: 'memory-park-taken-in-cheap', about: 'a park under way that comes back is charged nothing', file: 'memory/share.js', pinnedBy: 'host-reattach',
    from: "share.parks = state === 'parking' && lease.job === null;", to: 'share.parks = false;',
  },
  {
    name: 'memory-park-lost', about: 'a park whose connection is lost is charged nothing', file: 'restart/reattach.js', pinnedBy: 'host-reattach',
    from: "if (lease.host !== null && lease.job?.rung === 'park')\n            lease.host.parks = true;", to: '',
  },
  {
    name: 'hopeless-for-good', about: 'who had no prospect in memory once keeps nobody up though there is room for it, and two take what is kept from each other', file: 'memory/admission.js', pinnedBy: 'host',
    from: 'if (fits)\n        setHopeless(core, waiter, false);', to: '',
  },
  {
    name: 'memory-hold-taken', about: 'what is kept in memory for one is given to whoever asks next', file: 'memory/admission.js', pinnedBy: 'host',
    from: 'waiter.hostNeedBytes <= freeBytes - host.holdBytes + waiter.hostHoldBytes;', to: 'waiter.hostNeedBytes <= freeBytes;',
  },
  {
    name: 'guess-blamed', about: 'a worker whose floor is a guess is ended for what it has beyond that', file: 'memory/growth.js', pinnedBy: 'host-growth',
    from: "if (settled && seat.floorSource !== 'guessed')", to: 'if (settled)',
  },
  {
    name: 'gang-without-memory', about: 'a gang is granted as soon as its cards have room', file: 'gangs/settle.js',
    from: 'else if (lacking === null)', to: 'else',
  },
  {
    name: 'gang-memory-of-one', about: 'of what a gang takes of memory only the first of its cards counts', file: 'memory/share.js',
    from: "return waiter.kind === 'place' ? ownHostNeed(core, waiter) :", to: 'return true ? ownHostNeed(core, waiter) :',
  },
  {
    name: 'gang-copies-always', about: 'a gang may keep its copies, whatever room there is', file: 'memory/share.js', pinnedBy: 'host-gangs',
    from: 'return freeBytes !== null && wantedBytes <= freeBytes - host.holdBytes + heldBytes;', to: 'return freeBytes !== null;',
  },
  {
    name: 'gang-trimmed-in-part', about: 'one card of a model gives its copy back, the others keep theirs', file: 'memory/eviction.js', pinnedBy: 'host-gangs',
    from: 'for (const member of companions(core, lease))\n        startTrim(core, member, cause, trimmedBytes(member), reason);', to: 'startTrim(core, lease, cause, trimmedBytes(lease), reason);',
  },
  {
    name: 'copies-by-word', about: 'a copy that nobody granted stays charged though its process is read to have none', file: 'memory/growth.js', pinnedBy: 'host-growth',
    from: 'judgeCopies(core, seat);', to: '',
  },
];
