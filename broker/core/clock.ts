/**
 * Two clocks. The real one (`nowUs`, never backwards) dates samples. Attended
 * time passes only as fast as the core is told of it: a suspend, a blocked loop
 * or a jump adds at most stallToleranceMs, so nobody is judged for our absence.
 */
import type { Core } from './state.js';

/** Takes in an event's moment. A step backwards has no effect. */
export function advance(core: Core, atUs: number): void {
  const passedUs = atUs - core.nowUs;
  if (!(passedUs > 0)) return;
  core.nowUs = atUs;
  core.attendedUs += Math.min(passedUs, core.options.limits.stallToleranceMs * 1_000);
}

/** Whole milliseconds from an attended moment until now. */
export function msSince(core: Core, sinceUs: number): number {
  return Math.max(0, Math.floor((core.attendedUs - sinceUs) / 1_000));
}

/** The attended moment so many milliseconds from now. */
export function inMs(core: Core, ms: number): number {
  return core.attendedUs + ms * 1_000;
}
