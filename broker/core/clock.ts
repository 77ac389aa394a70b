/**
 * Three clocks. The machine's (`clockUs`) is as the events tell it. The core's
 * own (`nowUs`) dates all that it knows and never goes backwards: when the
 * machine's is set back it stands still for that moment, and goes on. Attended
 * time passes only as fast as the core is told of it: a suspend, a blocked loop
 * or a jump adds at most stallToleranceMs, so nobody is judged for our absence.
 */
import type { Core } from './state.js';

/** Takes in an event's moment. */
export function advance(core: Core, atUs: number): void {
  const passedUs = atUs - core.clockUs;
  if (Number.isNaN(passedUs)) return;
  if (passedUs < 0) core.setBack = { fromClockUs: Math.max(core.clockUs, core.setBack?.fromClockUs ?? 0), atUs: core.nowUs };
  core.clockUs = atUs;
  if (passedUs <= 0) return;
  core.nowUs += passedUs;
  core.attendedUs += Math.min(passedUs, core.options.limits.stallToleranceMs * 1_000);
}

/** The core's own moment at which the machine's clock shows (or showed) that; never in the future. */
export function toOwn(core: Core, clockUs: number): number {
  return Math.min(core.nowUs, clockUs + core.nowUs - core.clockUs);
}

/** What the machine's clock shows at the core's own moment. */
export function toClock(core: Core, ownUs: number): number {
  return ownUs - core.nowUs + core.clockUs;
}

/** When a reading was taken, in the core's own time. Null: it may be from before the clock was set back, and would be dated wrongly; no reading is under way for longer than its timeout. */
export function dateOfReading(core: Core, takenAtUs: number): number | null {
  const { setBack } = core;
  const mayBeOld = setBack !== null && core.nowUs - setBack.atUs <= core.options.limits.probeTimeoutMs * 1_000;
  const isDated = !mayBeOld || (takenAtUs > setBack.fromClockUs && takenAtUs <= core.clockUs);
  return isDated ? toOwn(core, takenAtUs) : null;
}

/** Whole milliseconds from an attended moment until now. */
export function msSince(core: Core, sinceUs: number): number {
  return Math.max(0, Math.floor((core.attendedUs - sinceUs) / 1_000));
}

/** The attended moment so many milliseconds from now. */
export function inMs(core: Core, ms: number): number {
  return core.attendedUs + ms * 1_000;
}
