/**
 * The private state of the core: plain records in Maps and Sets that name each
 * other by id, so that a snapshot is a copy and every index is O(1) to follow.
 * Nothing outside this folder may read or change it. All times are attended
 * microseconds (see clock.ts) unless they say `AtUs`, which is the real clock.
 */
import type { AdmissionNumbers, HostNeed, LeasePart, ModelPolicy, RequestClass, ResidencyState, TruthSource } from '../../protocol/index.js';
import type { Effect, TerminateCause } from './effects.js';
import type { CardKind, Confirmation, EngineCapabilities, MissingReading, StrangerReading } from './events.js';
import type { ExplainRecord } from './explain.js';
import type { EvictRequest, Gang, GangRefusal, Waiter } from './state-requests.js';
import type { CoreOptions } from './options.js';
import type { Timers } from './timers.js';
import type { Gaps, Pace } from './eviction/use-forecast.js';
import type { Reloads } from './thrash/reloads.js';

export type ChargeKind = 'lease' | 'floor' | 'residue' | 'returning';

/** Bytes that count against a card. */
export interface Charge {
  readonly id: string;
  readonly kind: ChargeKind;
  readonly device: string;
  readonly generation: string;
  chargedBytes: number;
  /** What it should be charged: more than it is while its process is charged with all that one can cost there. */
  wantedBytes: number;
  /** What is believed to be there now: reported by its owner, lowered only by what frees. */
  residentBytes: number;
  /** What was reported: more than is believed while all reports of its process together are more than there can be. */
  wantedResidentBytes: number;
  /** What was resident when the last sample was taken; what is charged above it is still to come. */
  seenBytes: number;
  /** Its share of the last sample's used bytes (D15). */
  attributedBytes: number;
  /** Loading or releasing: its true size is unknown, between nothing and all that is charged. */
  flux: 'loading' | 'releasing' | null;
  fluxSinceAtUs: number;
  /** Loadings that a sample may still be judged by, oldest first: when each began and ended (null: not yet), and what was charged when it ended. */
  loadings: { readonly sinceAtUs: number; untilAtUs: number | null; chargedBytes: number }[];
  /** It was loading at the last sample: of what its process then took beyond its other charges, this is the owner. */
  coming: boolean;
  /** What it gave back between the last sample, taken while it was loading, and that sample's arrival: the surplus of a peak. */
  givenBackBytes: number;
  /** Changes of `residentBytes` that no sample has judged yet, oldest first. */
  changes: { readonly atUs: number; readonly residentBytes: number }[];
}

/** One process's place on one card. */
export interface Seat {
  readonly generation: string;
  readonly device: string;
  readonly floor: Charge;
  /** Put away but still there, or found without a lease. */
  readonly residue: Charge;
  readonly leases: Set<string>;
  chargedBytes: number;
  unseenBytes: number;
  seenBytes: number;
  /** The part of those sums that belongs to charges which were loading at the last sample. */
  readonly coming: { chargedBytes: number; unseenBytes: number; seenBytes: number };
  /** Resident bytes of its leases, as reported or measured. */
  leasedBytes: number;
  /** Leases here that are loading, under a command or being given back. */
  unsettled: number;
  /** What it may still take beyond the last sample; its part of the card's sum. */
  pendingBytes: number;
  /** The driver's figure for this process in the last sample; null without one. */
  readingBytes: number | null;
  /** What the driver last showed of it, while it shows nothing of it; 0 while it does, or when it never has. */
  vanishedBytes: number;
  /** What the driver keeps of it in host memory, as last told (B113). */
  spilledBytes: number;
  /** Unattributed bytes seen in a quiet moment: what a release is measured against. */
  baselineBytes: number;
  /** `guessed`, of the machine's memory: what was read beside its leases, and may have been on its way back. */
  floorSource: 'unknown' | 'guessed' | 'stated' | 'learned' | 'measured';
  hadLease: boolean;
  /** On the host: when it got the first; what was read before is the process alone. */
  leasedSinceAtUs: number;
  /** Charges (by id) that are less than they should be, and those of which less is believed than was reported; oldest first. */
  readonly cut: { readonly charged: Set<string>; readonly resident: Set<string> };
  /** Leases whose load failed here and of which no sample has yet shown what they left (B44). */
  readonly remeasure: Set<string>;
  /** On the host: when something here was last said to be given back; only a younger reading shows whether it was. */
  loweredAtUs: number;
}

/** Bytes of a process that has ended and that no sample has yet shown gone. */
export interface Returning {
  readonly generation: string;
  readonly charge: Charge;
  readonly exitedAtUs: number;
  readonly exitedUs: number;
  /** The driver's figure for the ended process in the last sample; 0 when it is no longer listed. */
  listedBytes: number;
  /** A sample taken after the exit has been compared. */
  measured: boolean;
}

export interface Sample {
  readonly takenAtUs: number;
  readonly usedBytes: number;
  readonly totalBytes: number;
  readonly truth: TruthSource;
}

/** What a card makes free for strangers that take more, and how far that has come (cards/yield.ts). */
export interface Yielding {
  freeBytes: number;
  /** What strangers had at the first believed reading or since, and is no news; null: none has been read. */
  calmBytes: number | null;
  /** The least that they had since the last pressure was over. */
  lowBytes: number;
  /** Their latest growth: when it was read, and to how much; null: they have no more than their least. */
  grown: { readonly atUs: number; readonly toBytes: number } | null;
  /** Bytes that may be theirs, since when so many at least were read by readings that could not tell; null: the last one could. */
  doubted: { readonly atUs: number; readonly toBytes: number } | null;
  /** The last believed reading showed pressure: a second one must say the same. */
  noticed: boolean;
  /** Since when there is pressure, the most they had in it, and whether it has been told that nothing is left to put away; null: there is none. */
  pressed: { readonly sinceUs: number; mostBytes: number; toldNone: boolean } | null;
  /** Until then what strangers had in the last pressure is no news. */
  restUntilUs: number;
  /** Reasons why it cannot be done that have been told. */
  readonly told: Set<string>;
}

export interface Card {
  readonly device: string;
  name: string;
  kind: CardKind;
  totalBytes: number;
  reserveBytes: number;
  confirms: Confirmation;
  floorBytes: number | null;
  readonly unified: boolean;
  /** Its driver says what it keeps in host memory for want of room: what a process has reserved may exceed the card. */
  spills: boolean;
  lost: { readonly sinceAtUs: number; readonly reason: string } | null;

  readonly charged: Record<ChargeKind, number>;
  chargedBytes: number;
  /** What is believed to be there of all charges. */
  residentBytes: number;
  pendingBytes: number;
  attributedBytes: number;
  holdBytes: number;
  /** Bytes of leases that are idle, unpinned and not leaving. */
  idleBytes: number;

  sample: Sample | null;
  /** Readings in a row from the same rung; a jump between rungs evicts nobody (R29). */
  sameTruthCount: number;
  missing: { readonly reading: MissingReading; readonly sinceAtUs: number; readonly reason: string } | null;
  foreignBytes: number | null;
  /** Used bytes that belong to no process of ours, by the driver's figures; null without them. */
  strangersBytes: number | null;
  /** Foreign bytes at the last sample at which nothing was leaving. */
  foreignBaseBytes: number;
  /** The largest strangers of the last sample, where the driver tells their pids. */
  strangers: readonly StrangerReading[];
  /** How it gives way to strangers; null: it does not. */
  yielding: Yielding | null;
  /** A reading not older than this is needed; null: none is. */
  sampleWantedAtUs: number | null;
  /** The youngest such moment already asked for, until it is answered; null: nothing is on its way. */
  sampleAskedAtUs: number | null;
  sampleAskedUs: number;

  readonly seats: Map<string, Seat>;
  readonly leases: Set<string>;
  readonly unsampled: Map<string, Charge>;
  readonly loading: Set<string>;
  readonly jobs: Set<string>;
  /** Leases that an open `evict` request waits for. */
  readonly wished: Set<string>;
  readonly releasing: Set<string>;
  readonly quarantined: Set<string>;
  readonly returning: Map<string, Returning>;
  /** Processes being ended whose bytes here will come back. */
  readonly ending: Set<string>;
  spawning: number;
  /** Processes of an earlier broker that may hold anything here and have not said what: nothing is granted while there is one. */
  readonly closedBy: Set<string>;
  /** When the last of them had spoken or was gone. */
  openedAtUs: number;
  closedSinceUs: number;
  /** The lease whose engine is measuring free memory: nothing else loads or is put away here (B13, B14). */
  loadToken: string | null;
  lastMotionAtUs: number;
  /** Since when an unconfirmed release has waited for a quiet moment (D16); null: none does. */
  quietWantedUs: number | null;
  /** Waiting requests by class, oldest first. */
  readonly queue: Record<RequestClass, string[]>;
  /** How many of them are whose. */
  readonly queuedBy: Map<string, number>;
  /** The gang that may form here, by its key: one a card; null: none wants to. */
  forming: string | null;
  /** Grows whenever a victim may have become possible; a plan that failed is not tried again before. */
  planEpoch: number;
  readonly reloads: Reloads;
  maxOverReserveBytes: number;
}

/** What a lease has of the machine's memory; what is charged for it follows from these and the lease (memory/share.ts). */
export interface HostShare {
  readonly charge: Charge;
  asked: HostNeed;
  /** It may keep a copy, or has one. */
  keepsCopy: boolean;
  /** It has been loaded once: the peak of that is over. */
  loaded: boolean;
  /** Its owner parks it, and not at our word: at that of an earlier broker, or over a connection that is lost. */
  parks: boolean;
  /** A `trim_host` under way. */
  trim: HostTrim | null;
  /** Trims in a row that went unanswered. */
  strikes: number;
  /** Passed over as a victim on the host until then. */
  avoidUntilUs: number;
  /** Its engine cannot give the copy back by itself. */
  fixed: boolean;
  /** Room to park it is being made, and is waited for until then; null: not. */
  parkUntilUs: number | null;
}

export interface HostTrim {
  readonly command: number;
  readonly bytes: number;
  readonly cause: TrimCause;
  readonly reason: string;
}

/** `plan`: room for a request; `park`: for a model that is to be parked; `growth`: of its process, beyond what is leased. */
export type TrimCause = 'plan' | 'park' | 'pressure' | 'growth';

export type LeaseState = 'granted' | 'loading' | 'resident' | 'parked' | 'releasing' | 'quarantined';

/** A release that was reported and not yet seen. */
export interface Release {
  readonly reportedAtUs: number;
  readonly reportedUs: number;
  leftBytes: number;
  readonly fromChargedBytes: number;
  readonly fromResidentBytes: number;
  toChargedBytes: number;
  readonly then: 'closed' | 'parked' | 'resident';
  readonly rung: 'partial' | 'park' | 'unload';
  readonly cause: JobCause | 'reported';
  /** For whom or why it was asked for; null: it was not. */
  readonly reason: string | null;
  /** When the last sample was taken that was compared and still showed the bytes; null: none has been. */
  measuredAtUs: number | null;
  /** That it takes long has been told. */
  toldSlow: boolean;
}

export type JobCause = 'plan' | 'ttl' | 'request' | 'overshoot' | 'residue' | 'gang' | 'pressure' | 'yield';

/** An eviction command under way for one lease. */
export interface Job {
  readonly command: number;
  readonly cause: JobCause;
  readonly rung: 'partial' | 'park' | 'unload';
  readonly when: 'now' | 'drained';
  readonly bytes: number | null;
  readonly waiterSinceAtUs: number | null;
  /** The request it was started for, by its key; null: for none. */
  readonly beneficiary: string | null;
  readonly startedUs: number;
  /** `put_off`: its worker was busy with the load of it, and is asked again when that is over, or should be. */
  phase: 'sent' | 'draining' | 'put_off' | 'moving' | 'cancelling';
  /** For whom or why, for a person. */
  readonly reason: string;
  /** That it takes long has been told. */
  toldSlow: boolean;
}

export interface Lease {
  readonly id: string;
  readonly generation: string;
  readonly model: string;
  readonly device: string;
  /** One of several leases of one model, a card each, that come and go together: their common name; null: it is alone. */
  readonly gang: string | null;
  readonly order: number;
  readonly charge: Charge;
  state: LeaseState;
  residency: ResidencyState;
  parts: readonly LeasePart[];
  /** A growth is granted and not yet reported. */
  growing: boolean;
  /** Charged without the headroom: the operator's one exception. */
  exclusive: boolean;
  /** Of a copy in the machine's memory, as its owner reports. */
  hostBytes: number;
  /** Null where the machine's memory is not leased. */
  readonly host: HostShare | null;
  class: RequestClass;
  policy: ModelPolicy;
  pinned: boolean;
  parkable: boolean;
  profiles: boolean;
  residencySeq: number;
  useSeq: number;
  inFlight: number;
  queued: number;
  /** A worker that answered `busy` is believed for this long, whatever was last reported. */
  busyUntilUs: number;
  /** Passed over as a victim until then: it did not answer, or answered that the command had expired. */
  avoidUntilUs: number;
  grantedUs: number;
  /** When its load last showed progress. */
  progressUs: number;
  loadedUs: number;
  /** What its last load took, from its grant; 0: none is known. */
  loadTookMs: number;
  lastUsedUs: number;
  lastUsedAtUs: number;
  strikes: number;
  /** Moves in a row that its holder has failed. */
  failedMoves: number;
  /** Its owner has said once that it has no such lease. */
  disowned: boolean;
  /** A partial eviction freed less than asked: the next one takes all (R44). */
  partialFailed: boolean;
  foreignAtGrantBytes: number | null;
  /** The request it was granted to. */
  grantRequest: number | null;
  idleBytes: number;
  unsettled: boolean;
  /** The card on which its process has bytes instead, as the drivers' figures show; null: it is where it is leased. */
  misplacedOn: string | null;
  /** It holds more than its lease and there was no room to raise it: to be unloaded. */
  over: boolean;
  recallCommand: number | null;
  /** Commands about it that may still be answered. */
  readonly commands: number[];
  /** Keys of the open `evict` requests that wait for it, oldest first; null: there has been none. */
  wishes: Set<string> | null;
  job: Job | null;
  release: Release | null;
}

export interface Process {
  readonly generation: string;
  readonly role: 'worker' | 'holder' | 'client';
  readonly name: string;
  readonly engine: string | null;
  readonly devices: readonly string[];
  /** `recorded`: it lives by the record of an earlier broker, and has not come back. */
  state: 'spawning' | 'ready' | 'suspect' | 'recorded' | 'ending' | 'quarantined';
  capabilities: EngineCapabilities | null;
  sessionOpen: boolean;
  /** It lost its broker, or its connection, and what it holds since then is still to be told. */
  returning: boolean;
  /** When it had last said everything after such a loss; 0: never. */
  returnedAtUs: number;
  startedUs: number;
  lastHeartbeatUs: number;
  readonly leases: Set<string>;
  /** Models it hosts (leases) or has been promised (a placement, until `promisedUntilUs`). */
  readonly models: Map<string, { readonly leases: string[]; promisedUntilUs: number | null }>;
  /** Its open requests. */
  readonly requests: Set<string>;
  /** Its requests that were answered last: one sent again while its answer was on the way is one of them. */
  readonly answered: Set<number>;
  /** The peer whose placement it was started for; null: it was not started by us, or is in use by now. */
  startedFor: string | null;
  /** Why its gangs that were not formed were not, by their names: for members that come late. The latest few. */
  readonly gangsOver: Map<string, GangRefusal>;
  /** What it takes, as it or its record says, on cards of it that this broker has not found. */
  readonly floorsUnfound: Map<string, { readonly bytes: number; readonly isTold: boolean }>;
  /** Placements that wait for it to be ready. */
  readonly joined: Set<string>;
  /** Commands to it about no lease that may still be answered. */
  readonly commands: Set<number>;
  endCause: TerminateCause | null;
  /** To be ended as soon as no call is in flight in it. */
  endWhenIdle: TerminateCause | null;
  /** It has grown in the machine's memory beyond what is leased, since then, and has been asked to give that back or not yet. */
  growth: { readonly sinceUs: number; askedUs: number | null } | null;
}

export interface Model {
  readonly key: string;
  readonly hosts: Set<string>;
  /** Measured time of a load; null: not yet. */
  loadMs: number | null;
  resumeMs: number | null;
  /** From the end of a use to the next use, whether it stayed on a card in between or not. */
  readonly gaps: Gaps;
  /** The end of its last use; null: none is remembered. */
  lastUsedUs: number | null;
  /** An operator's word; null: the policy of each request counts. */
  pinned: boolean | null;
  /** What was last asked for it on each of its cards, in the order of their UUIDs, without headroom; none: nobody has asked. */
  askedBytes: readonly number[];
}

export interface Backoff {
  failures: number;
  /** The first of these failures that was its own, if any, and the last of them all. */
  failingSinceUs: number | null;
  failedUs: number;
  untilUs: number;
  reason: string;
  /** One corrective retry after an OOM has been given (B22). */
  retried: boolean;
}

export interface Command {
  readonly id: number;
  readonly generation: string;
  readonly kind: 'move' | 'trim' | 'recall' | 'list';
  readonly lease: string | null;
}

export interface Core {
  readonly options: CoreOptions;
  /** The machine's clock, as last told. */
  clockUs: number;
  /** The last time that it was set back: from where, and when by the core's own time. */
  setBack: { readonly fromClockUs: number; readonly atUs: number } | null;
  nowUs: number;
  attendedUs: number;
  nextLease: number;
  nextWorker: number;
  nextCommand: number;
  nextExplain: number;
  nextOrder: number;
  readonly cards: Map<string, Card>;
  /** The machine's memory, a ledger beside those of the cards and never among them; null: it is not leased. */
  host: Card | null;
  /** Requests that wait for room there, whatever else they wait for. */
  readonly hostWaiters: Set<string>;
  /** What those that wait were last woken for. */
  hostSeen: string;
  /** Readings in a row that showed less free there than its reserve. */
  hostPressureCount: number;
  readonly processes: Map<string, Process>;
  /** Workers that have not ended, in the order of their starts. */
  readonly workers: Set<string>;
  /** Placements (by key, with their peer) that wait for the end of a worker to have its place. */
  readonly workersAwaited: Map<string, string>;
  readonly leases: Map<string, Lease>;
  /** Leases that hold more than they may and are to be unloaded as soon as that is possible. */
  readonly over: Set<string>;
  readonly waiters: Map<string, Waiter>;
  readonly evictRequests: Map<string, EvictRequest>;
  readonly gangs: Map<string, Gang>;
  /** Leases whose gang has lost a member, and since when: to be unloaded as soon as that is possible. */
  readonly stranded: Map<string, number>;
  readonly models: Map<string, Model>;
  readonly pace: Pace;
  readonly backoffs: Map<string, Backoff>;
  readonly commands: Map<number, Command>;
  /** Largest floor seen, by engine and kind of card. */
  readonly learnedFloors: Map<string, number>;
  /** Learned floors that so far only their process vouches for, by the same key; `knownBytes` was learned before, null: nothing. */
  readonly floorClaims: Map<string, { readonly generation: string; readonly bytes: number; readonly knownBytes: number | null; readonly heavy: boolean }>;
  readonly spawnMs: Map<string, number>;
  readonly timers: Timers;
  readonly counters: Map<string, number>;
  readonly explains: ExplainRecord[];

  // One step's work; empty between steps.
  effects: Effect[];
  readonly dirty: Set<string>;
  /** Cards that were dirty at any time in this step. */
  readonly changed: Set<string>;
  readonly fresh: Set<string>;
  readonly touched: Set<string>;
  /** Seats with cut charges of which another has fallen. */
  readonly relieved: Set<Seat>;
}

export type { AdmissionNumbers };
export type { BudgetWaiter, EvictRequest, Gang, GangRefusal, PlaceWaiter, Waiter, WantedCards } from './state-requests.js';
