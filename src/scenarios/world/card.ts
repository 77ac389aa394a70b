/**
 * A card as physics has it: bytes by process, whatever anybody reports.
 * Refuses what does not fit; gives bytes back late; has users we do not know.
 */
import type { Confirmation } from '../../../broker/core/events.js';
import type { Scheduler } from './scheduler.js';

export interface CardDescription {
  readonly device: string;
  readonly totalBytes: number;
  readonly reserveBytes: number;
  readonly confirms: Confirmation;
  /** What the broker is told a process costs there; null: nothing is known. */
  readonly floorBytes: number | null;
  /** Made free for strangers that take more; left out: nothing is. */
  readonly yieldFreeBytes?: number | null;
  /** Its driver refuses nothing: what does not fit goes to host memory (B113). */
  readonly spills?: boolean;
}

/** How freed bytes come back: all `steps` parts between `fromUs` and `toUs` after the free. */
export interface FreeLag {
  readonly fromUs: number;
  readonly toUs: number;
  readonly steps: number;
}

export const noLag: FreeLag = { fromUs: 0, toUs: 0, steps: 1 };

export class SimCard {
  foreignBytes = 0;
  /** Gone from the bus. */
  isLost = false;
  private readonly heldBytes = new Map<string, number>();
  private readonly lateBytes = new Map<string, number>();
  /** Bytes of processes that are gone, not yet given back by the driver. */
  private readonly ghostBytes = new Map<string, number>();
  private lastTaker: string | null = null;
  refusals = 0;

  constructor(readonly about: CardDescription, private readonly scheduler: Scheduler) {}

  /** What a process occupies, dead or alive, freed bytes that have not come back included. */
  bytesOf(generation: string): number {
    return (this.heldBytes.get(generation) ?? 0) + (this.lateBytes.get(generation) ?? 0) + (this.ghostBytes.get(generation) ?? 0);
  }

  /** The dead whose bytes the driver has not given back yet. */
  ghosts(): readonly string[] {
    return [...this.ghostBytes.keys()];
  }

  processes(): readonly string[] {
    return [...this.heldBytes.keys()];
  }

  usedBytes(): number {
    return Math.min(this.about.totalBytes, this.takenBytes());
  }

  /** What does not fit lies in host memory, and is whose that took last; undefined on a card that refuses instead. */
  spilled(): readonly { readonly generation: string; readonly spilledBytes: number }[] | undefined {
    if (this.about.spills !== true) return undefined;
    if (this.lastTaker === null) return [];
    const spilledBytes = Math.min(this.takenBytes() - this.usedBytes(), this.bytesOf(this.lastTaker));
    return spilledBytes === 0 ? [] : [{ generation: this.lastTaker, spilledBytes }];
  }

  private takenBytes(): number {
    let used = this.foreignBytes;
    for (const bytes of this.ghostBytes.values()) used += bytes;
    for (const bytes of this.heldBytes.values()) used += bytes;
    for (const bytes of this.lateBytes.values()) used += bytes;
    return used;
  }

  freeBytes(): number {
    return Math.max(0, this.about.totalBytes - this.usedBytes());
  }

  /** False is an OOM, or a card that is not there: nothing was taken. What the process itself has freed and not given back yet is used first. */
  allocate(generation: string, bytes: number): boolean {
    if (this.isLost) return false;
    const ownBytes = Math.min(bytes, this.lateBytes.get(generation) ?? 0);
    if (this.about.spills !== true && bytes - ownBytes > this.freeBytes()) {
      this.refusals++;
      return false;
    }
    if (bytes > 0) this.lastTaker = generation;
    lower(this.lateBytes, generation, ownBytes);
    this.heldBytes.set(generation, (this.heldBytes.get(generation) ?? 0) + bytes);
    return true;
  }

  free(generation: string, bytes: number, lag: FreeLag): void {
    const held = this.heldBytes.get(generation) ?? 0;
    const freed = Math.min(held, bytes);
    this.heldBytes.set(generation, held - freed);
    if (lag.toUs === 0) return;
    this.lateBytes.set(generation, (this.lateBytes.get(generation) ?? 0) + freed);
    // After an exit the rest is nobody's any more; `exit` has moved it to the ghosts.
    this.giveBack(freed, lag, (part) => lower(this.lateBytes.has(generation) ? this.lateBytes : this.ghostBytes, generation, part));
  }

  /** The process is gone; its bytes come back after the lag. */
  exit(generation: string, lag: FreeLag): void {
    const held = this.heldBytes.get(generation) ?? 0;
    const late = this.lateBytes.get(generation) ?? 0;
    this.heldBytes.delete(generation);
    this.lateBytes.delete(generation);
    const staying = late + (lag.toUs === 0 ? 0 : held);
    if (staying > 0) this.ghostBytes.set(generation, staying);
    if (staying > late) this.giveBack(held, lag, (part) => lower(this.ghostBytes, generation, part));
  }

  /** The process is gone, and with it all that it had there, what its allocator had yet to give back included: so it is with the machine's memory. */
  exitAtOnce(generation: string): void {
    this.heldBytes.delete(generation);
    this.lateBytes.delete(generation);
  }

  private giveBack(bytes: number, lag: FreeLag, take: (part: number) => void): void {
    let left = bytes;
    for (let step = 1; step <= lag.steps; step++) {
      const part = step === lag.steps ? left : Math.floor(bytes / lag.steps);
      left -= part;
      const share = lag.steps === 1 ? 1 : (step - 1) / (lag.steps - 1);
      this.scheduler.after(lag.fromUs + (lag.toUs - lag.fromUs) * share, () => take(part));
    }
  }
}

function lower(bytesBy: Map<string, number>, generation: string, byBytes: number): void {
  if (byBytes === 0) return;
  const left = (bytesBy.get(generation) ?? 0) - byBytes;
  if (left > 0) bytesBy.set(generation, left);
  else bytesBy.delete(generation);
}
