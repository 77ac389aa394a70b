/**
 * What one process sees of a card under WDDM: not the card's free memory but
 * what is left of a budget that the system pinned for it. The budget moves when
 * processes come and go, not when others allocate; own allocations debit it one
 * to one. No figure by process exists for anybody.
 */
export const mb = 1_000_000;

export interface WddmFacts {
  /** How far below the true figure a pinned budget stands while all is quiet. */
  readonly pinnedBelowBytes: number;
  /** How far above it stands just after a new partition. */
  readonly partitionedAboveBytes: number;
  /** Under heavy pressure the pinned figure gives way by this little, once less than `pressureBelowBytes` are truly free. */
  readonly pressureBytes: number;
  readonly pressureBelowBytes: number;
}

/** Measured on a 16 GB card (R22-R34's table). */
export const measuredFacts: WddmFacts = { pinnedBelowBytes: 583 * mb, partitionedAboveBytes: 533 * mb, pressureBytes: 33 * mb, pressureBelowBytes: 2_000 * mb };

export class WddmView {
  private budgetBytes = 0;
  private ownBytes = 0;

  constructor(private readonly trueFreeBytes: () => number, private readonly facts: WddmFacts) {}

  /** The budget is pinned at a figure, as it was found. */
  pinAt(freeBytes: number): void {
    this.budgetBytes = freeBytes + this.ownBytes;
  }

  pin(): void {
    this.pinAt(this.trueFreeBytes() - this.facts.pinnedBelowBytes);
  }

  /** A process began or ended somewhere: the system divides anew. */
  partition(): void {
    this.pinAt(this.trueFreeBytes() + this.facts.partitionedAboveBytes);
  }

  allocate(bytes: number): void {
    this.ownBytes += bytes;
  }

  /** Free memory as this process is told. */
  freeBytes(): number {
    const isPressed = this.trueFreeBytes() < this.facts.pressureBelowBytes;
    return this.budgetBytes - this.ownBytes - (isPressed ? this.facts.pressureBytes : 0);
  }
}
