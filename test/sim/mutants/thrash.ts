/** Faults of what is said of thrash, and done against it. */
import type { Mutant } from './mutant.js';

export const thrashMutants: readonly Mutant[] = [
  {
    name: 'thrash-unnamed', about: 'nobody is told that a card does little but load', file: 'thrash/watch.js',
    from: 'share * 100 > thrashBeginsPercent', to: 'share * 100 > 1_000',
  },
  {
    name: 'thrash-never-over', about: 'a card is said to thrash for ever', file: 'thrash/watch.js',
    from: 'share * 100 < thrashEndsPercent', to: 'share * 100 < 0',
  },
  {
    name: 'thrash-on-cold-loads', about: 'first loads are taken for models that take turns', file: 'thrash/reloads.js',
    from: 'if (leftUs === undefined || load.fromUs < leftUs)\n        return;\n    reloads.putAway.delete(load.model);\n    if (load.toUs - leftUs <= windowUs)', to: 'if (leftUs === undefined || load.toUs - leftUs <= windowUs)',
  },
  {
    name: 'thrash-on-idle-unloads', about: 'what left after its time-to-live is taken for put away to make room', file: 'thrash/watch.js',
    from: "if (cause === 'plan' && then !== 'resident')", to: "if (then !== 'resident')",
  },
  {
    name: 'thrash-counted-twice', about: 'loads side by side count one beside the other', file: 'thrash/reloads.js', pinnedBy: 'thrash',
    from: 'Math.min(toUs, countedFromUs) - startUs', to: 'toUs - startUs',
  },
  {
    name: 'turn-remembered', about: 'a model that was put away once takes turns with every later load', file: 'thrash/reloads.js', pinnedBy: 'thrash',
    from: 'reloads.putAway.delete(load.model);', to: '',
  },
  {
    name: 'lost-grant-begins-load', about: 'a load is taken to begin with a grant that never arrived', file: 'requests/grant.js', pinnedBy: 'loading',
    from: "if (lease.state === 'granted' || lease.state === 'parked')", to: "if (extended === null || lease.state === 'parked')",
  },
  {
    name: 'undamped', about: 'what calls queue for on a thrashing card leaves as soon as on any other', file: 'thrash/damp.js',
    from: 'return lease.loadTookMs * timesAsLong(core);', to: 'return 0;',
  },
  {
    name: 'damped-for-ever', about: 'damping keeps even those waiting who have waited as long as they may', file: 'eviction/spared.js', pinnedBy: 'thrash',
    from: 'return seeker.overdue === null && ', to: 'return ',
  },
  {
    name: 'impatient', about: 'what is likely to be wanted again soon leaves at once, whatever loads beside it', file: 'thrash/patience.js', pinnedBy: 'thrash',
    from: 'if (card.loading.size === 0', to: 'if (card.loading.size >= 0',
  },
  {
    name: 'patient-for-ever', about: 'patience keeps even those waiting who have waited as long as they may', file: 'thrash/patience.js', pinnedBy: 'thrash',
    from: ' || isOverdue(core, waiter))', to: ')',
  },
];
