/**
 * A simulated card: an allocator that lives outside the workers, in the broker's shell or in the simulator. It reads
 * what was allocated, whatever anybody reports; it refuses beyond its size; and bytes of a process that ended come back
 * only after a lag. So admission, verification and eviction run for real without a card, and a lie is caught.
 */
import { LeaseholdError } from '../../protocol/index.js';
import type { MissingReading } from '../core/events.js';
import { monotonicUs } from '../../protocol/node/clock.js';
import type { CardJournal, JournalEntry } from './card-journal.js';
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
  /** With the pid it names the process for as long as the machine runs; null where that is not known. */
  readonly startTime: string | null;
  readonly floorBytes: number;
  readonly allocations: Map<number, number>;
  /** Allocations that were given a name: asked for again under it, they are the same. */
  readonly named: Map<string, number>;
}

export interface SimulatedFault {
  readonly reading: MissingReading;
  readonly reason: string;
  readonly lost?: boolean;
}

export interface SimulatedCardOptions extends SimulatedSpec {
  /** `SIM-<state id>-<n>` (D9), or `-memory` for the machine's memory. */
  readonly device: string;
  readonly nowUs?: () => number;
}

export const simulatedDevice = (stateId: string, which: number | 'memory'): string => `SIM-${stateId}-${which}`;

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
  #fault: SimulatedFault | null = null;
  #lastAllocation = 0;
  #oomRefusals = 0;
  #peakUsedBytes = 0;
  #journal: CardJournal | null = null;

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

  /**
   * From now on every change is noted; what was noted before and is held by a process that still lives is held here.
   * Returns how many lines were not believed: they are none, or together would be more than the card.
   */
  remember(journal: CardJournal, lives: (pid: number, startTime: string | null) => boolean): number {
    const { entries, unbelieved } = journal.read(this.description.totalBytes);
    const beyond = entries.filter((entry) => !this.#replay(entry, lives)).length;
    this.#journal = journal;
    journal.begin(this.#entries());
    this.#notePeak();
    return unbelieved + beyond;
  }

  /** Its journal is gone from its place: all that is held now is noted in a new one. */
  noteAnew(): void {
    this.#journal?.begin(this.#entries());
  }

  /** False: there is no room for what it says. What the dead had is passed over. */
  #replay(entry: JournalEntry, lives: (pid: number, startTime: string | null) => boolean): boolean {
    const process = this.#processes.get(entry.pid);
    if (entry.kind === 'gone') this.#processes.delete(entry.pid);
    else if (entry.kind === 'free') process?.allocations.delete(entry.allocation);
    else if (entry.kind === 'attach') {
      this.#processes.delete(entry.pid);
      if (!lives(entry.pid, entry.startTime)) return true;
      if (!this.#hasRoom(entry.floorBytes)) return false;
      this.#processes.set(entry.pid, { startTime: entry.startTime, floorBytes: entry.floorBytes, allocations: new Map(), named: new Map() });
    } else {
      this.#lastAllocation = Math.max(this.#lastAllocation, entry.allocation);
      if (process === undefined) return true;
      if (!this.#hasRoom(entry.bytes)) return false;
      process.allocations.set(entry.allocation, entry.bytes);
      if (entry.name !== null) process.named.set(entry.name, entry.allocation);
    }
    return true;
  }

  #hasRoom(bytes: number): boolean {
    return bytes <= this.description.totalBytes - this.usedBytes;
  }

  #entries(): readonly JournalEntry[] {
    return [...this.#processes].flatMap(([pid, { startTime, floorBytes, allocations, named }]): JournalEntry[] => {
      const names = new Map([...named].map(([name, allocation]) => [allocation, name]));
      return [
        { kind: 'attach', pid, startTime, floorBytes },
        ...[...allocations].map(([allocation, bytes]): JournalEntry => ({ kind: 'allocate', pid, allocation, bytes, name: names.get(allocation) ?? null })),
      ];
    });
  }

  #note(entry: JournalEntry): void {
    this.#journal?.note(entry, () => this.#entries());
  }

  /** The process makes its context: its floor is taken. Idempotent. An `oom` leaves it unattached. */
  attach(pid: number, startTime: string | null = null): AllocateOutcome {
    if (this.#processes.has(pid)) return { kind: 'allocated', allocation: 0 };
    const floorBytes = this.description.floorBytes ?? 0;
    const refusal = this.#refusal(floorBytes);
    if (refusal !== null) return refusal;
    this.#processes.set(pid, { startTime, floorBytes, allocations: new Map(), named: new Map() });
    this.#note({ kind: 'attach', pid, startTime, floorBytes });
    this.#notePeak();
    return { kind: 'allocated', allocation: 0 };
  }

  /** Takes `bytes` for `pid`, attaching it first as any first allocation does; all or nothing. Ids are never reused. Again under the same name of that process: the same allocation. */
  allocate(pid: number, bytes: number, options: { readonly name?: string; readonly startTime?: string | null } = {}): AllocateOutcome {
    assertBytes(bytes, 1);
    const { name = null, startTime = null } = options;
    const holder = this.#processes.get(pid);
    const known = name === null ? undefined : holder?.named.get(name);
    const knownBytes = known === undefined ? undefined : holder?.allocations.get(known);
    if (known !== undefined && knownBytes !== undefined) {
      if (knownBytes !== bytes) throw new LeaseholdError('bytes_invalid', { field: `bytes of ${String(name)}, which is allocated`, value: String(bytes), minimum: knownBytes, maximum: knownBytes }, { help: 'Asked again it is the same allocation. Give another a name of its own, or free this one first.' });
      return { kind: 'allocated', allocation: known };
    }
    const missingFloorBytes = this.#processes.has(pid) ? 0 : this.description.floorBytes ?? 0;
    const refusal = this.#refusal(bytes + missingFloorBytes, bytes);
    if (refusal !== null) return refusal;
    this.attach(pid, startTime);
    this.#lastAllocation += 1;
    this.#processes.get(pid)?.allocations.set(this.#lastAllocation, bytes);
    if (name !== null) this.#processes.get(pid)?.named.set(name, this.#lastAllocation);
    this.#note({ kind: 'allocate', pid, allocation: this.#lastAllocation, bytes, name });
    this.#notePeak();
    return { kind: 'allocated', allocation: this.#lastAllocation };
  }

  /** Gives one allocation back at once. False, and nothing changes, when that process holds no such allocation. */
  free(pid: number, allocation: number): boolean {
    const process = this.#processes.get(pid);
    if (process?.allocations.delete(allocation) !== true) return false;
    for (const [name, named] of process.named) if (named === allocation) process.named.delete(name);
    this.#note({ kind: 'free', pid, allocation });
    return true;
  }

  /** The process has ended: its bytes, floor included, return after the lag, and no figure names it any more. Idempotent. */
  processGone(pid: number): void {
    const bytes = this.#heldBy(pid);
    if (!this.#processes.delete(pid)) return;
    this.#note({ kind: 'gone', pid });
    if (bytes === 0) return;
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

  /** Makes every reading fail in this way, as a probe would, or the card be gone; null repairs it. What is allocated does not change. */
  setFault(fault: SimulatedFault | null): void {
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

  /** What living processes hold stays on record for the card's next broker. */
  async close(): Promise<void> {
    this.#journal?.close();
    this.#journal = null;
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
    if (this.#hasRoom(takenBytes)) return null;
    const freeBytes = this.description.totalBytes - this.usedBytes;
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
