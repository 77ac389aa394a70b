/**
 * Time that the broker itself attended. A gap between two looks at the clock
 * above the tolerance is the broker's own lateness and judges nobody; whether
 * such a gap counts for nothing or for the tolerance is left open, so there
 * are two counts and each rule takes the one that favours the core.
 */
export class AttendedClock {
  private minimumUs = 0;
  private maximumUs = 0;
  private tickedAtUs: number | null = null;
  private lookedAtUs: number | null = null;

  constructor(private readonly toleranceUs: number) {}

  /** Any event is a look at the clock. */
  look(atUs: number): void {
    this.maximumUs += Math.min(atUs - (this.lookedAtUs ?? atUs), this.toleranceUs);
    this.lookedAtUs = atUs;
    this.tickedAtUs ??= atUs;
  }

  tick(atUs: number): void {
    this.look(atUs);
    const gapUs = atUs - (this.tickedAtUs ?? atUs);
    if (gapUs <= this.toleranceUs) this.minimumUs += gapUs;
    this.tickedAtUs = atUs;
  }

  /** Another broker looks at the clock for the first time: the gap before is nobody's. */
  restart(): void {
    this.lookedAtUs = null;
    this.tickedAtUs = null;
  }

  /** Surely attended until the last tick. */
  get leastUs(): number {
    return this.minimumUs;
  }

  /** At most attended until now. */
  get mostUs(): number {
    return this.maximumUs;
  }
}
