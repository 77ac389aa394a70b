/** One card on the ladder: which rungs know it, which of them answers now, and which rest. */
import type { DeviceLog } from './device-log.js';
import type { CardDescription, Reading, Rung } from './types.js';

export interface LadderCardSetup {
  readonly nowUs: () => number;
  readonly log: DeviceLog;
  readonly restFirstMs: number;
  readonly restLastMs: number;
}

interface Step {
  readonly rung: Rung;
  readonly order: number;
  /** Not asked by readings before this; 0: in use. */
  restsUntilUs: number;
  restMs: number;
  trying: boolean;
}

type GoodReading = Extract<Reading, { kind: 'read' }>;
type MissedReading = Extract<Reading, { kind: 'missing' }>;

export class LadderCard {
  readonly #setup: LadderCardSetup;
  readonly #steps: Step[] = [];
  #description: CardDescription;
  #last: GoodReading | null = null;

  constructor(description: CardDescription, rung: Rung, order: number, setup: LadderCardSetup) {
    this.#description = description;
    this.#setup = setup;
    this.addRung(rung, order, description);
  }

  /** As the highest rung that knows the card describes it. */
  get description(): CardDescription {
    return this.#description;
  }

  addRung(rung: Rung, order: number, described: CardDescription): void {
    if (this.#steps.some((step) => step.rung === rung)) return;
    this.#steps.push({ rung, order, restsUntilUs: 0, restMs: this.#setup.restFirstMs, trying: false });
    this.#steps.sort((a, b) => a.order - b.order);
    if (this.#steps[0]?.rung === rung) this.#description = { ...described, device: this.#description.device };
  }

  /**
   * 1. Rungs that rest are passed over; one whose rest is over is tried beside this reading, so that a hang up there
   *    does not hold up the answer down here.
   * 2. The others are asked from the highest down until one answers.
   * 3. A rung rests only once a lower one has answered in its place: with nothing below, it is asked each time.
   * 4. When none answers, all are asked the next time, and the answer is the highest one's, with every reason.
   */
  async read(): Promise<Reading> {
    const missed: { readonly step: Step; readonly reading: MissedReading }[] = [];
    for (const step of this.#steps) {
      if (step.restsUntilUs > 0) {
        this.#tryAgain(step);
        continue;
      }
      const reading = await this.#ask(step);
      if (reading.kind === 'read') {
        for (const { step: above, reading: { reason } } of missed) this.#rest(above, reason);
        return this.#accept(reading);
      }
      missed.push({ step, reading });
    }
    for (const step of this.#steps) this.#wake(step);
    return this.#combine(missed);
  }

  /** A rung that falls over (out of descriptors, out of memory) has not answered; the ones below it may. */
  async #ask(step: Step): Promise<Reading> {
    const takenAtUs = this.#setup.nowUs();
    const { device } = this.#description;
    try {
      return await step.rung.read(device);
    } catch (error) {
      return { kind: 'missing', device, takenAtUs, reading: 'failed', reason: String(error) };
    }
  }

  #accept(reading: GoodReading): GoodReading {
    const before = this.#last;
    this.#last = reading;
    if (before !== null && (before.truth !== reading.truth || before.counting !== reading.counting)) {
      this.#setup.log('warn', 'the truth ladder changed rungs: the jump is not a change on the card', {
        device: reading.device, from: label(before), to: label(reading), usedBytesBefore: before.usedBytes, usedBytesNow: reading.usedBytes,
        differenceBytes: reading.usedBytes - before.usedBytes,
      });
    }
    return reading;
  }

  #rest(step: Step, reason: string): void {
    step.restsUntilUs = this.#setup.nowUs() + step.restMs * 1_000;
    this.#setup.log('warn', 'a rung of the truth ladder does not answer and rests', { device: this.#description.device, truth: step.rung.truth, restMs: step.restMs, reason });
    step.restMs = Math.min(this.#setup.restLastMs, step.restMs * 2);
  }

  #tryAgain(step: Step): void {
    if (step.trying || this.#setup.nowUs() < step.restsUntilUs) return;
    step.trying = true;
    void this.#ask(step).then((reading) => {
      step.trying = false;
      if (reading.kind === 'missing') this.#rest(step, reading.reason);
      else this.#wake(step);
    });
  }

  /** Back in use from the next reading on. */
  #wake(step: Step): void {
    step.restsUntilUs = 0;
    step.restMs = this.#setup.restFirstMs;
  }

  #combine(missed: readonly { readonly step: Step; readonly reading: MissedReading }[]): MissedReading {
    const device = this.#description.device;
    const highest = missed[0]?.reading ?? { kind: 'missing', takenAtUs: this.#setup.nowUs(), reading: 'unknown' } as const;
    // Lost on the word of any driver that answers, while no other reads it.
    const lost = missed.some(({ reading }) => reading.lost === true);
    return { ...highest, device, ...(lost ? { lost } : {}), reason: missed.map(({ step, reading }) => `${step.rung.truth}: ${reading.reason}`).join('; ') };
  }
}

function label({ truth, counting }: GoodReading): string {
  return counting === undefined ? truth : `${truth} ${counting}`;
}
