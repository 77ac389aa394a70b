/** The operator's limits over the defaults, checked before anything is built on them. */
import { LeaseholdError, brokenRelation, defaultLimits, limitMinimum, didYouMean, nearest, type LimitName, type Limits } from '../../protocol/index.js';

/** Timers reach no further; a longer one would fire at once. */
const timerMsMax = 2 ** 31 - 1;

/** Throws `config_invalid` for an unknown limit or a value that is no such quantity, `limit_relation` for two that contradict each other. */
export function effectiveLimits(given: Partial<Limits>): Limits {
  const limits: Record<LimitName, number> = { ...defaultLimits };
  for (const [name, value] of Object.entries(given) as [string, unknown][]) {
    if (!Object.hasOwn(defaultLimits, name)) throw refusal(name, `there is no such limit${didYouMean(nearest(name, Object.keys(defaultLimits)))}`);
    // Left undefined: as if it were not there.
    if (value !== undefined) limits[name as LimitName] = quantity(name as LimitName, value);
  }
  const broken = brokenRelation(limits);
  if (broken !== null) throw new LeaseholdError('limit_relation', { relation: broken.text });
  return limits;
}

function quantity(name: LimitName, value: unknown): number {
  const minimum = limitMinimum(name);
  const maximum = name.endsWith('Ms') ? timerMsMax : Number.MAX_SAFE_INTEGER;
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= minimum && value <= maximum) return value;
  throw refusal(name, `${String(value)} is not a whole number from ${String(minimum)} to ${String(maximum)}`);
}

function refusal(name: string, reason: string): LeaseholdError {
  return new LeaseholdError('config_invalid', { path: 'limits', where: name, reason, option: `limits.${name}` }, { help: '`leasehold limits` lists every limit with its default and its meaning.' });
}
