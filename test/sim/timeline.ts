/** The log on a time that never goes backwards, as whoever reads only the log can know it: when the broker's clock is set back, the moment counts for nothing. */
import type { Effect } from '../../broker/core/effects.js';
import type { CoreEvent } from '../../broker/core/events.js';
import type { TruthAtSample } from '../../src/scenarios/world/probes.js';

/** The youngest of that date: a clock that is set back shows the same moment again. */
export function lastOf(truths: readonly TruthAtSample[], takenAtUs: number): TruthAtSample | null {
  return truths.filter((truth) => truth.takenAtUs === takenAtUs).at(-1) ?? null;
}

/** More than a broker finds waiting for it after its longest stall. */
const truthsKept = 64;

export class Timeline {
  private clockUs: number | null = null;
  private behindUs = 0;
  /** The clock was set back from there, then. */
  private setBack: { readonly fromClockUs: number; readonly atUs: number } | null = null;
  private isFirst = true;
  private readonly truths = new Map<string, TruthAtSample[]>();

  constructor(private readonly probeTimeoutMs: number, private readonly truthOf: (device: string, takenAtUs: number) => TruthAtSample | null) {}

  /** Another broker never saw the clock of before. */
  restart(): void {
    this.setBack = null;
    this.isFirst = true;
  }

  see(event: CoreEvent): CoreEvent {
    const atUs = this.take(event.atUs);
    if (event.type !== 'sampled') return { ...event, atUs };
    const { setBack } = this;
    const mayBeOld = setBack !== null && atUs - setBack.atUs <= this.probeTimeoutMs * 1_000 && (event.takenAtUs <= setBack.fromClockUs || event.takenAtUs > event.atUs);
    // One that cannot be dated is of no card.
    if (mayBeOld) return { ...event, atUs, device: '' };
    const takenAtUs = Math.min(atUs, event.takenAtUs + this.behindUs);
    this.keep(event.device, event.takenAtUs, takenAtUs);
    return { ...event, atUs, takenAtUs };
  }

  /** What was true when that reading was taken; null: there was none. */
  truthAt(device: string, takenAtUs: number): TruthAtSample | null {
    return lastOf(this.truths.get(device) ?? [], takenAtUs);
  }

  /** Records are dated by the clock. */
  seeEffects(effects: readonly Effect[]): readonly Effect[] {
    const { behindUs } = this;
    if (behindUs === 0) return effects;
    return effects.map((effect) => (effect.type === 'explain' ? { ...effect, record: { ...effect.record, atUs: effect.record.atUs + behindUs } } : effect));
  }

  private take(clockUs: number): number {
    const before = this.clockUs ?? clockUs;
    if (clockUs < before) {
      if (!this.isFirst) this.setBack = { fromClockUs: Math.max(before, this.setBack?.fromClockUs ?? 0), atUs: before + this.behindUs };
      this.behindUs += before - clockUs;
    }
    this.isFirst = false;
    this.clockUs = clockUs;
    return clockUs + this.behindUs;
  }

  private keep(device: string, clockUs: number, takenAtUs: number): void {
    const truth = this.truthOf(device, clockUs);
    if (truth === null) return;
    const kept = this.truths.get(device) ?? [];
    kept.push({ ...truth, takenAtUs });
    if (kept.length > truthsKept) kept.shift();
    this.truths.set(device, kept);
  }
}
