/** Faults of giving way to strangers: for whom, for how much, and who goes. */
import type { Mutant } from './mutant.js';

export const yieldMutants: readonly Mutant[] = [
  {
    name: 'yields-to-whoever-is-there', about: 'models give way to strangers that have not grown', file: 'cards/yield.js', pinnedBy: 'yield',
    from: 'const isNews = isShort && strangersBytes > calmBytes + core.options.limits.measureToleranceBytes;', to: 'const isNews = isShort && strangersBytes > 0;',
  },
  {
    name: 'yields-without-need', about: 'growth alone puts models away, however much is free', file: 'cards/yield.js', pinnedBy: 'yield',
    from: 'const shortBytes = lackingBytes - leavingBytes(core, card).firmBytes;', to: 'const shortBytes = Math.max(lackingBytes, yielding.freeBytes);',
  },
  {
    name: 'yields-all-that-is-idle', about: 'everything idle goes where one model would do', file: 'cards/yield.js', pinnedBy: 'yield',
    from: 'planVictims(core, card, seeker, shortBytes, false) ?? planEverything(core, card, seeker)', to: 'planEverything(core, card, seeker)',
  },
  {
    name: 'yields-newcomers', about: 'what was granted after strangers had grown is put away for them', file: 'eviction/plan.js', pinnedBy: 'yield',
    from: 'if (seeker.untilUs !== undefined && lease.grantedUs >= seeker.untilUs)', to: 'if (false)',
  },
  {
    name: 'yield-dated-late', about: 'what was granted beside bytes that later prove to be strangers’ gives way to them', file: 'cards/yield.js', pinnedBy: 'yield',
    from: 'atUs: wasThere ? doubted.atUs : core.attendedUs', to: 'atUs: core.attendedUs',
  },
];
