/**
 * The auditor's ledger: what must be charged, who asked what, which commands
 * are out. It is built by following the log forward; the rules in this folder
 * ask it questions before each effect is written into it.
 */
import type { CoreEvent } from '../../../broker/core/events.js';
import type { ClassPolicy, Limits, RequestClass } from '../../../protocol/index.js';
import { memoryDevice } from '../../../src/scenarios/world/memory-knobs.js';
import { AttendedClock } from './attended.js';
import { MemoryBook } from './memory-book.js';
import { TurnBook } from './turn-book.js';
import {
  floorOn, isOn, requestKey, type AuditedCard, type AuditedCommand, type AuditedLease, type AuditedProcess, type AuditedRequest, type Departure, type Waited,
} from './records.js';

export interface BookOptions {
  readonly limits: Limits;
  readonly classPolicies: Readonly<Record<RequestClass, ClassPolicy>>;
  readonly allowLedgerOnly: boolean;
  /** Null: the machine's memory is not leased. */
  readonly memory: { readonly allowUnknown: boolean } | null;
  /** Above 0: a holder may have two things of one name. */
  readonly twins: number;
}

/** Failures of one model or engine in a row, and until when the next attempt must wait. */
export interface BackOff {
  failures: number;
  failingSinceUs: number | null;
  failedUs: number;
  untilUs: number;
}

export class Book {
  readonly cards = new Map<string, AuditedCard>();
  readonly processes = new Map<string, AuditedProcess>();
  /** Open leases; a closed one leaves at most a departure. */
  readonly leases = new Map<string, AuditedLease>();
  readonly closedLeases = new Map<string, AuditedLease>();
  /** Leases that earlier brokers granted, and to whom: never given again, and nobody else's. */
  readonly formerLeases = new Map<string, string>();
  /** As the last broker knew them. */
  formerProcesses: ReadonlyMap<string, AuditedProcess> = new Map();
  departures: Departure[] = [];
  readonly requests = new Map<string, AuditedRequest>();
  readonly answeredRequests = new Set<string>();
  readonly commands = new Map<number, AuditedCommand>();
  /** An operator's word on a model; where there is none the policy of its request counts. */
  readonly pins = new Map<string, boolean>();
  /** Models whose free retry after an OOM has been used, by card. */
  readonly oomRetries = new Set<string>();
  /** Largest floor that a process of an engine has told of itself. */
  readonly toldFloors = new Map<string, number>();
  readonly leastToldFloors = new Map<string, number>();
  readonly loadBackOffs = new Map<string, BackOff>();
  readonly clock: AttendedClock;
  /** Loads of models that had made room before, by card. */
  readonly turns = new TurnBook();
  readonly waits = new Map<string, Waited>();
  worstWaitToBound = 0;
  readonly memory: MemoryBook | null;
  nowUs = 0;
  nextOrder = 0;
  /** When the last of those that an earlier broker knew had spoken, or was gone. */
  lastReturnUs = Number.NEGATIVE_INFINITY;

  constructor(readonly options: BookOptions) {
    this.clock = new AttendedClock(options.limits.stallToleranceMs * 1_000);
    this.memory = options.memory === null ? null : new MemoryBook(memoryDevice, options.memory.allowUnknown);
  }

  /** Another broker starts. What was asked of the last, ordered by it and learned by it is void; who lives on is named next. */
  restart(): void {
    for (const { lease, generation } of [...this.leases.values(), ...this.closedLeases.values()]) this.formerLeases.set(lease, generation);
    this.departures = [];
    const forgotten = [
      this.cards, this.leases, this.closedLeases, this.requests, this.answeredRequests, this.commands, this.pins, this.oomRetries, this.toldFloors,
      this.leastToldFloors, this.loadBackOffs,
    ];
    for (const kept of forgotten) kept.clear();
    this.memory?.restart();
    this.turns.restart();
    this.waits.clear();
    this.formerProcesses = new Map(this.processes);
    this.processes.clear();
    this.clock.restart();
  }

  /** Processes for whose word the card is closed. */
  closedBy(device: string): AuditedProcess[] {
    return [...this.processes.values()].filter((process) => process.state !== 'gone' && process.closes.includes(device));
  }

  process(generation: string): AuditedProcess | null {
    const process = this.processes.get(generation);
    return process === undefined || process.state === 'gone' ? null : process;
  }

  /** The lease, if this living generation owns it. */
  leaseOf(event: CoreEvent & { readonly generation: string; readonly lease: string }): AuditedLease | null {
    const lease = this.leases.get(event.lease);
    return lease?.generation === event.generation && this.process(event.generation) !== null ? lease : null;
  }

  /** Whom a lease was granted to, by whichever broker; null: none is known to have granted it. */
  ownerOf(lease: string): string | null {
    return this.formerLeases.get(lease) ?? (this.leases.get(lease) ?? this.closedLeases.get(lease))?.generation ?? null;
  }

  request(generation: string, request: number): AuditedRequest | null {
    return this.requests.get(requestKey(generation, request)) ?? null;
  }

  closeRequest(request: AuditedRequest): void {
    const key = requestKey(request.generation, request.request);
    this.requests.delete(key);
    this.answeredRequests.add(key);
  }

  /** Its request ids are void: nothing has to be answered any more (D3). */
  voidRequests(generation: string): void {
    for (const request of this.requests.values()) if (request.generation === generation) this.closeRequest(request);
  }

  /** The lease is over; what it held counts until it has been seen to be gone. */
  closeLease(lease: AuditedLease, leavingBytes: number): void {
    lease.stage = 'closed';
    this.leases.delete(lease.lease);
    this.closedLeases.set(lease.lease, lease);
    this.depart(lease.device, lease.generation, leavingBytes, this.beneficiaryOf(lease), lease.lease);
  }

  /** For which open request the lease was made to leave, wholly or in part. */
  beneficiaryOf(lease: AuditedLease): string | null {
    for (const [key, request] of this.requests) if (request.victims.has(lease.lease)) return key;
    return null;
  }

  depart(device: string, generation: string, bytes: number, beneficiary: string | null, lease: string | null = null): void {
    const card = this.cards.get(device);
    if (bytes <= 0 || card === undefined || card.confirms === 'none' || this.isLedgerOnly(device)) return;
    this.departures.push({ device, generation, lease, bytes, sinceUs: this.nowUs, beneficiary });
  }

  /** The least that must be charged on the card now: promises, floors, and what has not been seen to leave. */
  chargedBytes(device: string): number {
    let charged = 0;
    for (const lease of this.leases.values()) if (lease.device === device && !lease.isLeftToReading) charged += lease.promiseBytes;
    for (const process of this.processes.values()) if (isOn(process, device)) charged += floorOn(process, device);
    if (this.isLedgerOnly(device)) return charged;
    for (const departure of this.departures) if (departure.device === device) charged += departure.bytes;
    return charged;
  }

  /** No reading can be had and the operator allows the ledger alone: there a report is all there is. */
  isLedgerOnly(device: string): boolean {
    return this.options.allowLedgerOnly && this.cards.get(device)?.missing !== null;
  }

  isPinned(lease: AuditedLease): boolean {
    return this.pins.get(lease.model) ?? lease.pinned;
  }

  /** The leases that go where this one goes, itself among them. */
  companions(lease: AuditedLease): AuditedLease[] {
    return lease.gang === null ? [lease] : this.leasesOf(lease.generation).filter((other) => other.gang === lease.gang && other.model === lease.model);
  }

  /** It was told to leave, or answered that, since it was last loaded, or that is still under way, and is still there: it may be passed over for that. */
  wasTold({ lease, loadedAtUs }: AuditedLease, kinds: readonly AuditedCommand['kind'][] = ['move']): boolean {
    return [...this.commands.values()].some((command) => command.lease === lease && kinds.includes(command.kind) && ((!command.answered && !command.cancelled) || Math.max(command.sentAtUs, command.answeredAtUs) >= loadedAtUs));
  }

  leasesOf(generation: string): AuditedLease[] {
    return [...this.leases.values()].filter((lease) => lease.generation === generation);
  }
}
