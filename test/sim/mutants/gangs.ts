/** Faults of gangs and of cards that change: what belongs together taken apart, and what is gone taken for there. */
import type { Mutant } from './mutant.js';

export const gangMutants: readonly Mutant[] = [
  {
    name: 'gang-granted-singly', about: 'a request of a gang is granted as if it were alone', file: 'requests/admission.js',
    from: 'if (gang !== undefined && fits && !mustRest)\n        return standReady(core, card, waiter, gang);', to: 'if (gang !== undefined && fits && !mustRest)\n        return grantNow(core, card, waiter, head, unverified);',
  },
  {
    name: 'gang-in-any-order', about: 'the cards of a gang are taken in the opposite order', file: 'gangs/gang.js',
    from: 'return [...gang.members.keys()].sort();', to: 'return [...gang.members.keys()].sort().reverse();',
  },
  {
    name: 'gangs-form-together', about: 'two gangs keep bytes on one card', file: 'gangs/gang.js',
    from: 'const free = devices.findIndex((device) => taken.has(device));', to: 'const free = -1;',
  },
  {
    name: 'gang-on-old-news', about: 'a card of a gang was looked at in an earlier step', file: 'gangs/settle.js', pinnedBy: 'gangs',
    from: 'if (!core.changed.has(device))\n            core.dirty.add(device);', to: ';',
  },
  {
    name: 'gang-half-refused', about: 'the other requests of a refused gang wait on', file: 'requests/waiter.js',
    from: "if (waiter.kind === 'budget' || (placementToo && waiter.speaks)) {", to: 'if (false) {',
  },
  {
    name: 'gang-half-evicted', about: 'a model leaves one of its cards', file: 'eviction/ladder.js',
    from: 'if (member === lease || mayFollow(lease, member))', to: 'if (member === lease)',
  },
  {
    name: 'gang-busy-elsewhere', about: 'a model in use on another of its cards is put away', file: 'eviction/plan.js',
    from: "if (reason === 'in_use')\n            used = reason;\n        else if (reason !== null)", to: "if (reason !== null && reason !== 'in_use')",
  },
  {
    name: 'gang-grown-singly', about: 'one card of a model grows without the others', file: 'ledger/resize.js',
    from: 'for (const change of changes)\n        apply(core, change);', to: 'apply(core, changes[0]);',
  },
  {
    name: 'gang-returns-in-pieces', about: 'leases of one gang come back from an earlier broker each on its own', file: 'restart/take-in.js',
    from: 'return gang === undefined ? null : gangKey(process.generation, gang.gang);', to: 'return null;',
  },
  {
    name: 'found-card-open', about: 'a card that is found late is granted before an earlier process has told of it', file: 'restart/unfound-cards.js',
    from: 'closeCard(core, card, process, floor?.bytes ?? 0);', to: ';',
  },
  {
    name: 'misplaced-not-charged', about: 'bytes on a card that a process was not given are free', file: 'cards/misplaced.js',
    from: 'setResidue(core, seat, bytes);', to: ';',
  },
  {
    name: 'misplaced-gone-unseen', about: 'bytes on a card that a process was not given are free once it is no longer listed, though its exit has not been heard', file: 'cards/misplaced.js', pinnedBy: 'lost-cards',
    from: 'if (hasLeft(core, seat))\n        return;', to: '',
  },
  {
    name: 'lost-card-granted', about: 'a card that is gone is granted', file: 'cards/card.js',
    from: 'card.lost = { sinceAtUs: core.nowUs, reason: event.reason };', to: ';',
  },
];
