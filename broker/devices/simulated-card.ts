/**
 * A simulated card: an allocator that lives outside the workers, in the broker's shell or in the simulator. It reads
 * what was allocated, whatever anybody reports; it refuses beyond its size; and bytes of a process that ended come back
 * only after a lag. So admission, verification and eviction run for real without a card, and a lie is caught.
 */
import { LeaseholdError } from '../../protocol/index.js';
import type { MissingReading } from '../core/events.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import type { SimulatedSpec } from './simulated-spec.js';
import type { CardDescription, Discovery, Reading, Rung } from './types.js';

export type AllocateOutcome =
  | { readonly kind: 'allocated'; readonly allocation: number }
  /** Refused, as a driver would: nothing was taken. */
  | { readonly kind: 'oom'; readonly wantedBytes: number; readonly freeBytes: number };

export interface SimulatedCounters {
  /** Allocations and attachments that found no room. */
  readonly oomRefusals: number;
  readonly peakUsedBytes: number;
}

interface AttachedProcess {
  readonly floorBytes: number;
  readonly allocations: Map<number, number>;
}

export interface SimulatedCardOptions extends SimulatedSpec {
  /** `SIM-<state id>-<n>` (D9). */
  readonly device: string;
  readonly nowUs?: () => number;
}

export const simulatedDevice = (stateId: string, index: number): string => `SIM-${stateId}-${index}`;

export class SimulatedCard implements Rung {
  readonly truth = 'simulated';
  readonly description: CardDescription;
  readonly #lagUs: number;
  readonly #blind: boolean;
  readonly #nowUs: () => number;
  readonly #processes = new Map<number, AttachedProcess>();
  readonly #foreign = new Map<number, number>();
  /** Bytes of ended processes that are still there, and until when. No timer: time is looked at when somebody asks. */
  #returning: { readonly bytes: number; readonly untilUs: number }[] = [];
  #fault: { readonly reading: MissingReading; readonly reason: string } | null = null;
  #lastAllocation = 0;
  #oomRefusals = 0;
  #peakUsedBytes = 0;

  constructor(options: SimulatedCardOptions) {
    this.#lagUs = options.lagMs * 1_000;
    this.#blind = options.blind;
    this.#nowUs = options.nowUs ?? monotonicUs;
    this.description = {
      device: options.device,
      name: options.name ?? `simulated card of ${options.totalBytes} bytes`,
      kind: 'simulated',
      totalBytes: options.totalBytes,
      confirms: options.blind ? 'total' : 'process',
      display: false,
      floorBytes: options.floorBytes,
      visibility: {},
    };
  }

  get usedBytes(): number {
    const nowUs = this.#nowUs();
    this.#returning = this.#returning.filter(({ untilUs }) => untilUs > nowUs);
    let sum = 0;
    for (const bytes of this.#foreign.values()) sum += bytes;
    for (const { bytes } of this.#returning) sum += bytes;
    for (const pid of this.#processes.keys()) sum += this.#heldBy(pid);
    return sum;
  }

  get counters(): SimulatedCounters {
    return { oomRefusals: this.#oomRefusals, peakUsedBytes: this.#peakUsedBytes };
  }

  /** What it is and what it saw, for people: the ledger's page, the demo's closing table. */
  facts(): Readonly<Record<string, string | number>> {
    const { device, name, totalBytes } = this.description;
    return { device, name, totalBytes, usedBytes: this.usedBytes, ...this.counters };
  }

  /** The process makes its context: its floor is taken. Idempotent. An `oom` leaves it unattached. */
  attach(pid: number): AllocateOutcome {
    if (this.#processes.has(pid)) return { kind: 'allocated', allocation: 0 };
    const floorBytes = this.description.floorBytes ?? 0;
    const refusal = this.#refusal(floorBytes);
    if (refusal !== null) return refusal;
    this.#processes.set(pid, { floorBytes, allocations: new Map() });
    this.#notePeak();
    return { kind: 'allocated', allocation: 0 };
  }

  /** Takes `bytes` for `pid`, attaching it first as any first allocation does; all or nothing. Ids are never reused. */
  allocate(pid: number, bytes: number): AllocateOutcome {
    assertBytes(bytes, 1);
    const missingFloorBytes = this.#processes.has(pid) ? 0 : this.description.floorBytes ?? 0;
    const refusal = this.#refusal(bytes + missingFloorBytes, bytes);
    if (refusal !== null) return refusal;
    this.attach(pid);
    this.#lastAllocation += 1;
    this.#processes.get(pid)?.allocations.set(this.#lastAllocation, bytes);
    this.#notePeak();
    return { kind: 'allocated', allocation: this.#lastAllocation };
  }

  /** Gives one allocation back at once. False, and nothing changes, when that process holds no such allocation. */
  free(pid: number, allocation: number): boolean {
    return this.#processes.get(pid)?.allocations.delete(allocation) ?? false;
  }

  /** The process has ended: its bytes, floor included, return after the lag, and no figure names it any more. Idempotent. */
  processGone(pid: number): void {
    const bytes = this.#heldBy(pid);
    if (!this.#processes.delete(pid) || bytes === 0) return;
    this.#returning.push({ bytes, untilUs: this.#nowUs() + this.#lagUs });
  }

  /** Another program's use, from now on; 0 ends it. Refused like any allocation when the card has no room for the rise. */
  setForeign(pid: number, bytes: number): AllocateOutcome {
    assertBytes(bytes, 0);
    const before = this.#foreign.get(pid) ?? 0;
    const refusal = bytes > before ? this.#refusal(bytes - before) : null;
    if (refusal !== null) return refusal;
    if (bytes === 0) this.#foreign.delete(pid);
    else this.#foreign.set(pid, bytes);
    this.#notePeak();
    return { kind: 'allocated', allocation: 0 };
  }

  /** Makes every reading fail in this way, as a probe would; null repairs it. What is allocated does not change. */
  setFault(fault: { readonly reading: MissingReading; readonly reason: string } | null): void {
    this.#fault = fault;
  }

  async discover(): Promise<Discovery> {
    return { cards: [this.description], driver: 'simulated' };
  }

  async read(device: string): Promise<Reading> {
    return this.readNow(device);
  }

  /** The same, at once. */
  readNow(device: string = this.description.device): Reading {
    const takenAtUs = this.#nowUs();
    if (device !== this.description.device) return { kind: 'missing', device, takenAtUs, reading: 'unknown', reason: 'this simulated card is another' };
    if (this.#fault !== null) return { kind: 'missing', device, takenAtUs, ...this.#fault };
    const { totalBytes } = this.description;
    return { kind: 'read', device, takenAtUs, usedBytes: this.usedBytes, totalBytes, truth: 'simulated', processes: this.#blind ? null : this.#figures() };
  }

  async close(): Promise<void> {
    this.#processes.clear();
    this.#foreign.clear();
    this.#returning = [];
  }

  #figures(): readonly { readonly pid: number; readonly usedBytes: number }[] {
    const byPid = new Map(this.#foreign);
    for (const pid of this.#processes.keys()) byPid.set(pid, (byPid.get(pid) ?? 0) + this.#heldBy(pid));
    return [...byPid].map(([pid, usedBytes]) => ({ pid, usedBytes }));
  }

  #heldBy(pid: number): number {
    const attached = this.#processes.get(pid);
    if (attached === undefined) return 0;
    let sum = attached.floorBytes;
    for (const bytes of attached.allocations.values()) sum += bytes;
    return sum;
  }

  /** Null when `takenBytes` more fit; else the counted refusal of what was asked for. */
  #refusal(takenBytes: number, wantedBytes = takenBytes): Extract<AllocateOutcome, { kind: 'oom' }> | null {
    const freeBytes = this.description.totalBytes - this.usedBytes;
    if (takenBytes <= freeBytes) return null;
    this.#oomRefusals += 1;
    return { kind: 'oom', wantedBytes, freeBytes };
  }

  #notePeak(): void {
    this.#peakUsedBytes = Math.max(this.#peakUsedBytes, this.usedBytes);
  }
}

function assertBytes(bytes: number, minimum: number): void {
  if (!Number.isSafeInteger(bytes) || bytes < minimum) throw new LeaseholdError('bytes_invalid', { field: 'bytes', value: String(bytes), minimum, maximum: Number.MAX_SAFE_INTEGER });
}
