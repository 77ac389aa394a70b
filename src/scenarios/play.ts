/** A scenario's callers and faults on a machine: who asks for what and when is decided here, by the seed alone. */
import type { Machine } from './machine.js';
import type { Recorder } from './recorder.js';
import type { Arrivals, Scenario } from './scenario.js';
import { Prng } from './world/prng.js';

/** Starts everything; `done` is true once no caller will come and none is inside. */
export class Play {
  private inside = 0;
  private coming = 0;

  constructor(private readonly scenario: Scenario, private readonly machine: Machine, private readonly recorder: Recorder) {}

  get done(): boolean {
    return this.inside === 0 && this.coming === 0;
  }

  start(): void {
    for (const [index, arrivals] of this.scenario.arrivals.entries()) this.arrive(arrivals, new Prng(this.scenario.seed, `arrivals ${index}`));
    for (const fault of this.scenario.faults) {
      if (fault.when === null) continue;
      const { when, act } = fault;
      const strike = (): void => {
        if (this.machine.nowMs() > this.scenario.durationMs) return;
        this.recorder.struck(act, this.machine.nowMs());
        this.machine.strike(act);
        if (when.kind === 'every') this.machine.after(when.ms, strike);
      };
      this.machine.after(when.ms, strike);
    }
  }

  private arrive(arrivals: Arrivals, random: Prng): void {
    const next = picker(arrivals, random);
    const { how } = arrivals;
    if (how.kind === 'every') this.arriveOneByOne(arrivals, how.meanMs, random, next);
    else this.later(arrivals.fromMs, () => {
      for (let count = 0; count < how.count; count++) this.ask(arrivals, next, how.kind === 'callers' ? how.thinkMs : null);
    });
  }

  private arriveOneByOne(arrivals: Arrivals, meanMs: number, random: Prng, next: () => string): void {
    const again = (): void => {
      const gapMs = random.exponential(meanMs);
      if (this.machine.nowMs() + gapMs > arrivals.untilMs) return;
      this.later(gapMs, () => {
        this.ask(arrivals, next, null);
        again();
      });
    };
    this.later(arrivals.fromMs, again);
  }

  /** `thinkMs` of null: the caller asks once. */
  private ask(arrivals: Arrivals, next: () => string, thinkMs: number | null): void {
    const { machine } = this;
    const model = next();
    const call = { model, class: arrivals.class ?? this.scenario.models[model]?.class ?? 'normal', deadlineMs: arrivals.deadlineMs } as const;
    const record = this.recorder.asked(call, machine.nowMs());
    let begun = false;
    this.inside++;
    const leave = machine.ask(call, {
      begun: () => {
        begun = true;
        record.begun(machine.nowMs());
      },
      ended: (end) => {
        this.inside--;
        record.ended(end, machine.nowMs());
        if (thinkMs === null) return;
        // A caller that is refused at once does not ask again in the same moment for ever.
        const pauseMs = Math.max(thinkMs, end === 'answered' ? 0 : 1_000);
        if (machine.nowMs() + pauseMs <= arrivals.untilMs) this.later(pauseMs, () => { this.ask(arrivals, next, thinkMs); });
      },
    });
    if (arrivals.patienceMs !== null) machine.after(arrivals.patienceMs, () => { if (!begun) leave(); });
  }

  private later(delayMs: number, run: () => void): void {
    this.coming++;
    this.machine.after(delayMs, () => {
      this.coming--;
      run();
    });
  }
}

function picker({ models, pick, exponent }: Arrivals, random: Prng): () => string {
  let turn = 0;
  return () => {
    const index = pick === 'turns' ? turn++ % models.length : pick === 'zipf' ? random.zipf(models.length, exponent) : random.int(0, models.length - 1);
    return models[index] ?? '';
  };
}
