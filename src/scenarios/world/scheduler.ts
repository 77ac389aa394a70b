/**
 * Virtual time. Things happen in order of their moment, and of their asking
 * when moments are equal; nothing else decides, so a run repeats exactly.
 *
 * Two clocks: `nowUs` is the world's and never jumps. `coreUs` is what the
 * broker reads; a suspended machine makes it jump (`jump`) while the world
 * stands still, and a bad one sets it back.
 */
export interface Timer {
  readonly atUs: number;
  readonly order: number;
  run: (() => void) | null;
}

const uptimeAtStartUs = 1_000_000_000;

export class Scheduler {
  nowUs = 0;
  private jumpedUs = uptimeAtStartUs;
  private readonly heap: Timer[] = [];
  private asked = 0;

  get coreUs(): number {
    return this.nowUs + this.jumpedUs;
  }

  /** Backwards too; never to before a machine's first minutes. */
  jump(byUs: number): void {
    this.jumpedUs += Math.max(byUs, uptimeAtStartUs / 2 - this.coreUs);
  }

  after(delayUs: number, run: () => void): Timer {
    return this.at(this.nowUs + Math.max(0, Math.round(delayUs)), run);
  }

  at(atUs: number, run: () => void): Timer {
    const timer: Timer = { atUs: Math.max(atUs, this.nowUs), order: this.asked++, run };
    this.heap.push(timer);
    this.rise(this.heap.length - 1);
    return timer;
  }

  cancel(timer: Timer | null): void {
    if (timer !== null) timer.run = null;
  }

  /** Runs what is due next and returns true; false when nothing is left. */
  runNext(): boolean {
    for (;;) {
      const timer = this.take();
      if (timer === null) return false;
      if (timer.run === null) continue;
      this.nowUs = timer.atUs;
      const run = timer.run;
      timer.run = null;
      run();
      return true;
    }
  }

  private take(): Timer | null {
    const first = this.heap[0];
    if (first === undefined) return null;
    const last = this.heap.pop();
    if (last !== undefined && this.heap.length > 0) {
      this.heap[0] = last;
      this.sink();
    }
    return first;
  }

  private rise(index: number): void {
    const { heap } = this;
    const timer = timerAt(heap, index);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (isBefore(timerAt(heap, parent), timer)) break;
      heap[index] = timerAt(heap, parent);
      index = parent;
    }
    heap[index] = timer;
  }

  private sink(): void {
    const { heap } = this;
    const timer = timerAt(heap, 0);
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(timerAt(heap, child + 1), timerAt(heap, child))) child++;
      if (isBefore(timer, timerAt(heap, child))) break;
      heap[index] = timerAt(heap, child);
      index = child;
    }
    heap[index] = timer;
  }
}

function timerAt(heap: readonly Timer[], index: number): Timer {
  const timer = heap[index];
  if (timer === undefined) throw new RangeError(`the heap has no timer at ${index}`);
  return timer;
}

function isBefore(left: Timer, right: Timer): boolean {
  return left.atUs < right.atUs || (left.atUs === right.atUs && left.order < right.order);
}

export const msToUs = (ms: number): number => Math.round(ms * 1_000);
export const secondsToUs = (seconds: number): number => Math.round(seconds * 1_000_000);
