/**
 * What the auditor keeps, built from events, effects and the world's truth
 * alone. Nothing here is read from the core or shared with its code; only the
 * types of events and effects are.
 */
import type { Confirmation, MissingReading } from '../../../broker/core/events.js';
import type { HostNeed, LeasePart, RequestClass } from '../../../protocol/index.js';

export interface AuditedCard {
  readonly device: string;
  readonly totalBytes: number;
  readonly reserveBytes: number;
  readonly confirms: Confirmation;
  readonly floorBytes: number | null;
  readonly yieldFreeBytes: number | null;
  /** What strangers truly had at each reading that told them from ours, oldest first; on a card that gives way to them. */
  readonly strangers: { readonly atUs: number; readonly bytes: number }[];
  sample: { readonly takenAtUs: number; readonly usedBytes: number; readonly hasFigures: boolean; readonly figures: ReadonlyMap<string, number> } | null;
  /** Gone since then; null: it is there. */
  lostSinceUs: number | null;
  missing: { readonly reading: MissingReading; readonly sinceUs: number } | null;
  /** When a reading last had strangers in it, or no figures by process. */
  unclearAtUs: number;
  /** No reading since has been clear. */
  isUnclear: boolean;
}

/** `away`: it has lost its broker, or an earlier one, and has not said to this one what it holds. */
export type ProcessState = 'spawning' | 'ready' | 'away' | 'ending' | 'gone';

export interface AuditedProcess {
  readonly generation: string;
  readonly role: 'worker' | 'holder' | 'client';
  readonly engine: string | null;
  /** Its cards; a holder has none of its own. */
  readonly devices: readonly string[];
  state: ProcessState;
  readonly startedAtUs: number;
  /** The core's attended time then. */
  readonly startedAttendedUs: number;
  /** It ended while nothing was read and the ledger alone counted: by its exit its bytes are free. */
  freeByExit: boolean;
  /** Cards where the last reading before its end told strangers from ours: what it leaves there cannot pass for theirs. */
  readonly clearAtEnd: Set<string>;
  /** Whose placement it was started for; null: it has been asked for something since. */
  startedFor: string | null;
  readyAtUs: number;
  heardAtUs: number;
  /** The core's attended time when it was last heard. */
  heardAttendedUs: number;
  heardLeastUs: number;
  connected: boolean;
  /** The cards that it closes to grants, one that is missing when it is found: it is of an earlier broker and has not said what it holds. */
  closes: readonly string[];
  /** The cards on which an earlier broker had it; none: it is of this one. */
  readonly onRecord: readonly string[];
  /** Attended time, at least and at most, when it was lost, recorded, or back without having said what it holds. */
  waitedForSince: { readonly leastUs: number; readonly mostUs: number } | null;
  /** Last moment it said anything of its leases. */
  saidAtUs: number;
  /** By card. */
  readonly floors: Map<string, number>;
  /** What an earlier broker put on record for it, or the most that was read of it since, by card: charged until it comes back or ends. */
  readonly awayFloors: Map<string, number>;
  /** What could be charged for it before it said so itself, by card. */
  readonly statedFloors: ReadonlyMap<string, number>;
  /** Last moment it hosted, was promised or was asked for anything. */
  lastUsefulUs: number;
  profilesFreeMemory: boolean;
  /** A load failed in it (attended time), and what it left may still be looked for. */
  remeasureSinceUs: number | null;
  /** Said something that cannot be true, failed or left unanswered a command. */
  misbehaviour: number;
  commandFailures: number;
}

export type LeaseStage = 'granted' | 'loading' | 'resident' | 'parked' | 'closed';

export interface AuditedLease {
  readonly lease: string;
  readonly model: string;
  readonly generation: string;
  readonly device: string;
  /** The gang whose request it was granted to; null: it is alone. */
  readonly gang: string | null;
  /** How many leases its gang had; 1: it is alone. */
  readonly gangSize: number;
  class: RequestClass;
  stage: LeaseStage;
  /** Parts as asked, or as measured once that is known. */
  parts: readonly LeasePart[];
  peakBytes: number;
  /** What must be charged for it while it is open. */
  promiseBytes: number;
  /** What it was shown to be charged last; at least the promise. */
  shownBytes: number;
  /** As it reported last. */
  residentBytes: number;
  pinned: boolean;
  /** Its owner said that it was gone, and later that it is there: it may stand in either way. */
  revived: boolean;
  /** Its owner said that the grant had never come: not a byte of it can be there. */
  neverCame: boolean;
  readonly profilesFreeMemory: boolean;
  grantedAtUs: number;
  /** What its process was read to have then beyond all that it said: nothing of its load. */
  besideBytes: number;
  loadedAtUs: number;
  /** What was promised to it while it loaded, the top of the load included. */
  loadPromiseBytes: number;
  /** What it was granted last, and since when reports have raised its charge beyond that; null: they have not. */
  grantedBytes: number;
  raisedAtUs: number | null;
  parkedAtUs: number;
  /** Freed of it by partial evictions while it stayed: not asked for again by an extension. */
  shortBytes: number;
  /** More was granted to it while it was resident, and no report has come since. */
  growing: boolean;
  growingSinceUs: number;
  /** How often its worker has been busy with its load when told to stop it. */
  refusedStops: number;
  /** Its owner is out of reach: the lease stands as long as the driver's figure for the process shows it. */
  isLeftToReading: boolean;
  /** Said to hold more than its lease, or to have failed a command. */
  blamed: boolean;
  /** Given up as lost: charged, never granted, and nothing is waited for from it. */
  isQuarantined: boolean;
  inFlight: number;
  queued: number;
  /** Last moment of use, for its idle time. */
  usedAtUs: number;
  useSeq: number;
  ttlMs: number | null;
}

/** What is followed of one waiting request. */
export interface Waited {
  /** Attended time, at least, since which nothing disturbed its card. */
  sinceUs: number;
  /** The most older ones that waited there at a time. */
  older: number;
}

/** Bytes said to be gone, or whose process is: they count until a reading taken after that moment has been seen. */
export interface Departure {
  readonly device: string;
  readonly generation: string;
  /** The lease that they were all of; null: they are a part of one, or a floor. */
  readonly lease: string | null;
  readonly bytes: number;
  readonly sinceUs: number;
  /** The request that they were made to leave for; null: none. */
  readonly beneficiary: string | null;
}

export type RequestKind = 'place' | 'budget' | 'evict' | 'pin' | 'residency' | 'resize';

export interface AuditedRequest {
  readonly kind: RequestKind;
  readonly generation: string;
  readonly request: number;
  readonly model: string;
  readonly engine: string | null;
  readonly device: string | null;
  /** What it is granted with, and how many those are together; null: it is alone. */
  readonly gang: { readonly key: string; readonly size: number } | null;
  /** A placement: over so many cards. */
  readonly cards: number;
  /** The other leases of a resize. */
  readonly also: readonly { readonly lease: string; readonly parts: readonly LeasePart[] }[];
  /** Null: a new lease. */
  readonly lease: string | null;
  class: RequestClass;
  readonly arrivedAtUs: number;
  /** With the age it came with. */
  readonly sinceUs: number;
  deadlineMs: number;
  readonly attendedMinUs: number;
  readonly attendedMaxUs: number;
  readonly parts: readonly LeasePart[];
  readonly peakBytes: number;
  readonly askedBytes: number;
  /** ceil(11/10 of what was asked), without floors. */
  readonly chargeBytes: number;
  readonly profilesFreeMemory: boolean;
  readonly host: HostNeed | null;
  readonly ttlMs: number | null;
  readonly pinned: boolean;
  waits: number;
  /** What it was last told that it waits for. */
  waitsFor: string;
  /** Asked again under an id that had been answered: it may be answered once more, or not. */
  readonly isOptional: boolean;
  /** Taken back: it may be told so, and needs no other answer. */
  cancelled: boolean;
  /** Bytes freed by the victims ordered for it and not yet used by it, by device. */
  holdBytes: number;
  readonly victims: Set<string>;
  /** Attended time since which a model that it wants gone loads on, and nobody has told it to stop. */
  ignoredSinceUs: number | null;
  /** Its place among all requests. */
  readonly order: number;
  /** By its last `wait`: the card in whose queue it stands (null: in none), the worker that starts for it, or that a worker's end is awaited. */
  queuedOn: string | null;
  startsIn: string | null;
  awaitsEnd: boolean;
}

export interface AuditedCommand {
  readonly command: number;
  readonly kind: 'move' | 'recall' | 'list' | 'trim';
  readonly generation: string;
  readonly lease: string | null;
  readonly model: string | null;
  readonly device: string | null;
  readonly freesBytes: number;
  /** All of it was to go, not a part. */
  readonly isWhole: boolean;
  readonly when: 'now' | 'drained' | null;
  readonly sentAtUs: number;
  readonly attendedMaxUs: number;
  /** (generation, request) for whom it was ordered; null: an idle model's end, or no request behind it. */
  readonly beneficiary: string | null;
  answered: boolean;
  /** When it was; 0: it was not, or its process is gone. */
  answeredAtUs: number;
  /** A report said that the model is where the command wanted it; the answer itself may come later. */
  settled: boolean;
  draining: boolean;
  cancelled: boolean;
}

export const requestKey = (generation: string, request: number): string => `${generation}#${request}`;

/** No process of these worlds takes more than this before it loads anything. */
export const untoldFloorBytesMax = 1_600 * 1_048_576;

/** Eleven tenths, rounded up (R20's way: exact below 2^53 / 11, far above any card). */
export function withHeadroom(bytes: number): number {
  return Math.floor((bytes * 11 + 9) / 10);
}

export function sumOf(parts: readonly LeasePart[]): number {
  return parts.reduce((sum, part) => sum + part.bytes, 0);
}

/** What the process must be charged on that card before any model. */
export function floorOn(process: AuditedProcess, device: string): number {
  return process.floors.get(device) ?? 0;
}

/** It is there, and that is one of its cards. */
export function isOn(process: AuditedProcess, device: string): boolean {
  return process.devices.includes(device) && process.state !== 'gone';
}
