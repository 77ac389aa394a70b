/**
 * Every limit of the system, with its default, in one place. Names carry their
 * unit. `assertLimits` states how they must relate; overriding one that breaks
 * a relation is a typed error that names both.
 */
import { limitText } from './limit-text.js';

/** Defaults. All may be overridden by the operator under `limits` in leasehold.yaml. */
export const defaultLimits = {
  // Wire
  /** Largest frame body either side accepts once a session is open. */
  frameBytesMax: 8 * 1024 * 1024,
  /** Largest frame body before `hello` has been accepted. */
  preAuthFrameBytesMax: 4 * 1024,
  /** A connection that has not said a valid `hello` by then is closed. */
  helloTimeoutMs: 10_000,
  /** Connections that have not said hello yet, at most; the longest silent are dropped for new ones. */
  preAuthConnectionsMax: 64,
  /** A connection that came less than this ago is not dropped for a new one, as long as there are places for sessions. */
  helloPatienceMs: 1_000,
  /** Open sessions of holders and clients; workers come on top of them (`workersMax`). On a worker: open callers. */
  sessionsMax: 1_024,
  /** Of these, open sessions of one process (by the pid that the system tells), so that no program keeps the others out. On a worker: its open callers. */
  sessionsPerProcessMax: 256,
  /** Requests one peer may have open on one connection. */
  openRequestsPerSessionMax: 1_024,
  /** Bytes queued for one peer that does not read; above it, that peer is cut off. */
  outgoingBytesMax: 16 * 1024 * 1024,
  /** Bytes held for all peers together, unread ones and frames that have not come whole; above it whoever has most is cut off, workers last. On a worker: for all its callers. */
  heldTotalBytesMax: 256 * 1024 * 1024,
  /** How long a connection that is being closed may take to hand over what was sent before. */
  flushTimeoutMs: 5_000,
  /** Events queued for one slow subscriber; above it the oldest are dropped and counted. */
  subscriberEventsMax: 10_000,

  // Sessions
  /** How often a worker or holder says that it lives. */
  heartbeatIntervalMs: 1_000,
  /** Silence of this many intervals makes a session suspect and starts its end. */
  heartbeatMissesMax: 10,
  /** How often the broker's loop tells its core the time. */
  tickIntervalMs: 250,
  /** A gap between two looks at the clock above this is our own lateness, and judges nobody (ADR 0012). A loop that was blocked for longer, ours or a peer's, is told. */
  stallToleranceMs: 1_000,
  /** A loop that is blocked again and again is told of at most this often for each process; for as long the ledger shows it. */
  loopBlockedRetoldMs: 60_000,
  /** How often a broker looks whether its socket, secret and locks are where they belong, and puts back what is not; a worker looks for its socket. */
  stateCheckMs: 60_000,

  // Models
  /** What reading one file's header may take, the waiting for its bytes included. */
  headerReadMs: 60_000,
  /** Heap of a thread that reads a header. */
  headerMemoryBytesMax: 256 * 1024 * 1024,

  // Processes
  /** From spawn to `ready`. */
  spawnTimeoutMs: 60_000,
  /** From SIGTERM (or `shutdown`) to SIGKILL of the whole tree. */
  terminateGraceMs: 5_000,
  /** From SIGKILL to the confirmed end; after it the bytes are quarantined. */
  killConfirmMs: 10_000,
  /** Lines of a worker's output kept for its obituary. */
  outputLinesMax: 200,
  /** Bytes of one kept line; the rest of a longer line is dropped and counted. */
  outputLineBytesMax: 4_096,
  /** What one peer may say in a second for the broker's log (`log`); the rest is left out and counted. */
  peerLogBytesPerSecondMax: 262_144,
  /** Lines of one kind in the broker's log in a minute; the rest is left out, counted and told once. */
  logLinesPerKindMax: 120,
  /** Worker processes alive at once. */
  workersMax: 64,
  /** Workers that may be starting at once for one peer; its further placements wait. */
  spawnsAtOnceMax: 8,
  /** Workers on a card that is lost are ended when it is not back by then. */
  cardLostGraceMs: 10_000,
  /** A worker without a model ends after this. */
  workerIdleMs: 60_000,
  /** How long a worker goes on without its broker before it ends, and a restarted broker waits for it. 0, as in an app that embeds its broker: at once; `leasehold up` takes 30 s. */
  reattachGraceMs: 0,
  /** How long calls may go on when their broker is stopped, before its workers are ended. 0: not at all; `leasehold up`, and an app that embeds it, take 10 s (its own calls end at once). */
  shutdownDrainMs: 0,

  // Admission
  /** Longest a request may wait when it names no deadline. */
  requestDeadlineMs: 120_000,
  /** Requests that may wait on one card. */
  queuedRequestsPerCardMax: 1_000,
  /** Leases on one machine. */
  leasesMax: 100_000,
  /** Models whose pin (or its undoing) is remembered, loaded or not. */
  pinnedModelsMax: 4_096,
  /** A grant not confirmed by `loading` within this is recalled. */
  grantConfirmMs: 10_000,
  /** A load, once begun, may take this long, whatever signs of life its process gives; then the process is ended. */
  loadTimeoutMs: 1_800_000,
  /** A load that shows no progress for this long is named to those whom it keeps waiting. It is not ended: slow disks are silent, too. */
  loadStallMs: 60_000,
  /** One that was asked to leave a card, or says that it has, and is still there after this is named to those whom it keeps waiting, and in the log. */
  leavingSlowMs: 3_000,
  /** A request that waits for the same as before is told its new figures at most this often. */
  waitRetoldMs: 5_000,
  /** A sample older than this is not used for any grant. */
  sampleMaxAgeMs: 2_000,
  /** How often an idle card is sampled; waiting requests are sampled for at once. */
  sampleIntervalMs: 500,
  /** One probe may take this long; then its helper is killed and the next rung answers. */
  probeTimeoutMs: 3_000,
  /** Unconfirmed releases on a card this old stop new loads there until a quiet interval has passed. */
  confirmQuietAfterMs: 3_000,
  /** A release that no sample confirms by then climbs the ladder. */
  releaseConfirmMs: 30_000,
  /** Difference between a measurement and the ledger that is noise, not residue (driver granules). */
  measureToleranceBytes: 16 * 1024 * 1024,

  /** Bytes of the machine's memory that a worker may have beyond its floor and its leases before it is asked for them, and ended once idle if it keeps them. */
  hostGrowthBytesMax: 1024 ** 3,

  /** After idle models have given way to other programs on a card, what those had then is no news for so long: who leaves and comes back does not move models each time. */
  yieldRestMs: 30_000,

  // Eviction ladder: one deadline a rung
  /** A command that has not been answered (done, draining, busy...) by then is taken as failed. */
  commandAnswerMs: 5_000,
  /** A park or unload, once begun, may take this long. */
  moveTimeoutMs: 30_000,
  /** A drain behind a shut door may take this long before it is cancelled. */
  drainTimeoutMs: 60_000,
  /** Calls older than the waiter that may still start behind a shut door. */
  drainBatchMax: 8,

  // Fairness
  /** Until then smaller requests may pass a head that has no plan. */
  backfillUntilMs: 2_000,
  /** Retry after a failed load or spawn: first pause, doubled each time up to the last. */
  backoffFirstMs: 1_000,
  backoffLastMs: 300_000,
  /** A model whose last load failed less than this ago evicts no model that has been used since it first failed. */
  failedLoadSparesMs: 1_800_000,
  /** Explain records kept. */
  explainRecordsMax: 10_000,

  // Thrash
  /** How far back a card is looked at: loads of models that were put away to make room within this are turns. */
  thrashWindowMs: 120_000,
  /** Above this share of that time spent on such loads a card thrashes, */
  thrashBeginsPercent: 30,
  /** and below this one it does no longer. */
  thrashEndsPercent: 10,
  /** While it thrashes, loading may take this share of the time where calls queue for what is loaded: it stays that long. 100: it is named only. */
  thrashDampedPercent: 20,

  // Data plane
  /** Tokens a worker may send ahead of its reader's credits. */
  creditTokensMax: 4_096,
  /** Calls one model may have queued in its worker; more are refused. */
  queuedCallsPerModelMax: 256,
  /** How long a worker waits for the acknowledgement of a residency report before it ends a call. */
  residencyFlushMs: 1_000,
  /** A ticket to a worker is good for this long. */
  ticketTtlMs: 60_000,
  /** A generation that is held because its reader takes nothing ends after this: it keeps a slot from others. */
  unreadStreamMs: 120_000,
  /** After its first token a generation from which no further one comes for this long ends: its engine has stopped, and it keeps a card from others. */
  silentStreamMs: 120_000,
  /** A cancelled call must have stopped by then. */
  cancelWithinMs: 200,
  /** A cancelled call, or an aborted load, that its engine has not ended by then is a broken engine's: its process ends. */
  stopTimeoutMs: 10_000,

  // Models from a hub
  /** A hub that has not begun to answer by then is taken as unreachable. */
  hubAnswerMs: 30_000,
  /** A transfer from which no byte comes for this long is broken off, and tried again from where it stands. */
  hubSilentMs: 60_000,
  /** Tries of one request to a hub that is busy, broken or gone; each after a longer pause. */
  hubAttemptsMax: 8,
  /** Longest pause before a request to a hub is tried again; a hub that asks for a longer one has refused. */
  hubPauseMaxMs: 120_000,
  /** Requests to a hub open at once. */
  hubReadsMax: 8,
  /** Files of one repository; one with more is not read. */
  repositoryFilesMax: 20_000,
  /** Largest file of a repository that holds no weights (a tokenizer, a template). */
  modelAssetBytesMax: 64 * 1024 * 1024,
  /** Weights of one model that may be downloaded. */
  modelWeightsBytesMax: 96 * 1024 ** 3,
  /** Downloads of one file that turns out to be another than the hub announced. */
  stageAttemptsMax: 3,
  /** How long to wait for another process that stages the same repository. */
  stageLockWaitMs: 7_200_000,
  /** How often a process that stages says so on its lock. */
  stageHeartbeatMs: 5_000,
  /** A lock whose holder has been silent for this long, and cannot be looked at, is taken over. */
  stageHolderSilentMs: 60_000,
  /** Reading one file in a thread (hashing, parsing) may take this long. */
  modelThreadMs: 3_600_000,
  /** Memory of one such thread. */
  modelThreadBytesMax: 256 * 1024 * 1024,
} as const;

export type LimitName = keyof typeof defaultLimits;
export type Limits = { readonly [K in LimitName]: number };

/** Fairness by class; a request names its class, the profile gives the default. */
export const classes = ['interactive', 'normal', 'background'] as const;
export type RequestClass = (typeof classes)[number];

export interface ClassPolicy {
  /** Higher goes first. */
  readonly rank: number;
  /** A request gains one rank for each of these that it has waited. */
  readonly ageingMs: number;
  /** A model loaded for this class is no victim of an equal or lower class before this. */
  readonly minimumResidencyMs: number;
  /** After this wait a request goes before every younger one, whatever its class. */
  readonly longestWaitMs: number;
  /** A busy model's door may be shut for this class only after this wait. */
  readonly drainAfterMs: number;
}

export const classPolicies: Readonly<Record<RequestClass, ClassPolicy>> = {
  interactive: { rank: 2, ageingMs: 10_000, minimumResidencyMs: 2_000, longestWaitMs: 30_000, drainAfterMs: 500 },
  normal: { rank: 1, ageingMs: 10_000, minimumResidencyMs: 2_000, longestWaitMs: 60_000, drainAfterMs: 2_000 },
  background: { rank: 0, ageingMs: 10_000, minimumResidencyMs: 0, longestWaitMs: 120_000, drainAfterMs: 10_000 },
};

/** One relation that must hold between limits; `holds` is checked at start-up and in the tests. */
export interface LimitRelation {
  readonly text: string;
  readonly names: readonly LimitName[];
  holds(limits: Limits): boolean;
}

export const limitRelations: readonly LimitRelation[] = [
  relation(['preAuthFrameBytesMax', 'frameBytesMax'], 'preAuthFrameBytesMax <= frameBytesMax', (l) => l.preAuthFrameBytesMax <= l.frameBytesMax),
  relation(['frameBytesMax', 'outgoingBytesMax'], 'frameBytesMax <= outgoingBytesMax', (l) => l.frameBytesMax <= l.outgoingBytesMax),
  relation(['outgoingBytesMax', 'heldTotalBytesMax'], 'outgoingBytesMax <= heldTotalBytesMax', (l) => l.outgoingBytesMax <= l.heldTotalBytesMax),
  relation(['sessionsPerProcessMax', 'sessionsMax'], 'sessionsPerProcessMax <= sessionsMax', (l) => l.sessionsPerProcessMax <= l.sessionsMax),
  relation(['heartbeatMissesMax'], 'heartbeatMissesMax >= 3', (l) => l.heartbeatMissesMax >= 3),
  relation(['tickIntervalMs', 'stallToleranceMs'], 'tickIntervalMs * 2 <= stallToleranceMs', (l) => l.tickIntervalMs * 2 <= l.stallToleranceMs),
  relation(['heartbeatIntervalMs', 'heartbeatMissesMax', 'stallToleranceMs'], 'stallToleranceMs < heartbeatIntervalMs * heartbeatMissesMax', (l) => l.stallToleranceMs < l.heartbeatIntervalMs * l.heartbeatMissesMax),
  relation(['sampleIntervalMs', 'sampleMaxAgeMs'], 'sampleIntervalMs * 2 <= sampleMaxAgeMs', (l) => l.sampleIntervalMs * 2 <= l.sampleMaxAgeMs),
  relation(['commandAnswerMs', 'moveTimeoutMs'], 'commandAnswerMs <= moveTimeoutMs', (l) => l.commandAnswerMs <= l.moveTimeoutMs),
  relation(['cancelWithinMs', 'stopTimeoutMs'], 'cancelWithinMs <= stopTimeoutMs', (l) => l.cancelWithinMs <= l.stopTimeoutMs),
  relation(['confirmQuietAfterMs', 'releaseConfirmMs'], 'confirmQuietAfterMs < releaseConfirmMs', (l) => l.confirmQuietAfterMs < l.releaseConfirmMs),
  relation(['grantConfirmMs', 'requestDeadlineMs'], 'grantConfirmMs < requestDeadlineMs', (l) => l.grantConfirmMs < l.requestDeadlineMs),
  relation(['grantConfirmMs', 'loadTimeoutMs'], 'grantConfirmMs < loadTimeoutMs', (l) => l.grantConfirmMs < l.loadTimeoutMs),
  relation(['backoffFirstMs', 'backoffLastMs'], 'backoffFirstMs <= backoffLastMs', (l) => l.backoffFirstMs <= l.backoffLastMs),
  relation(['backoffLastMs', 'failedLoadSparesMs'], 'backoffLastMs < failedLoadSparesMs', (l) => l.backoffLastMs < l.failedLoadSparesMs),
  relation(['thrashEndsPercent', 'thrashBeginsPercent'], 'thrashEndsPercent <= thrashBeginsPercent', (l) => l.thrashEndsPercent <= l.thrashBeginsPercent),
  relation(['thrashEndsPercent', 'thrashDampedPercent'], 'thrashEndsPercent <= thrashDampedPercent', (l) => l.thrashEndsPercent <= l.thrashDampedPercent),
  relation(['stageHeartbeatMs', 'stageHolderSilentMs'], 'stageHeartbeatMs * 3 <= stageHolderSilentMs', (l) => l.stageHeartbeatMs * 3 <= l.stageHolderSilentMs),
  relation(['residencyFlushMs', 'heartbeatIntervalMs', 'heartbeatMissesMax'], 'residencyFlushMs < heartbeatIntervalMs * heartbeatMissesMax', (l) => l.residencyFlushMs < l.heartbeatIntervalMs * l.heartbeatMissesMax),
];

/** Limits that may be 0, or must be more than 1. Every other one is at least 1: nothing works with none, or within no time. */
const minimums: Readonly<Partial<Record<LimitName, number>>> = {
  // A hello must fit.
  preAuthFrameBytesMax: 1_024,
  frameBytesMax: 1_024,
  outgoingBytesMax: 1_024,
  heldTotalBytesMax: 1_024,
  // A grant and its confirmation cross the wire once each way.
  grantConfirmMs: 100,
  cardLostGraceMs: 0,
  workerIdleMs: 0,
  reattachGraceMs: 0,
  shutdownDrainMs: 0,
  measureToleranceBytes: 0,
  hostGrowthBytesMax: 0,
  yieldRestMs: 0,
  confirmQuietAfterMs: 0,
  drainBatchMax: 0,
  backfillUntilMs: 0,
  residencyFlushMs: 0,
};

/** The least that a limit may be. */
export function limitMinimum(name: LimitName): number {
  return minimums[name] ?? 1;
}

/** The first minimum or relation that `limits` breaks, or null. */
export function brokenRelation(limits: Limits): LimitRelation | null {
  return brokenRelations(limits)[0] ?? null;
}

/** Every minimum and relation that `limits` breaks. */
export function brokenRelations(limits: Limits): readonly LimitRelation[] {
  const minimums = (Object.keys(defaultLimits) as LimitName[]).map((name) => {
    const minimum = limitMinimum(name);
    return relation([name], `${name} >= ${limitText(name, minimum)}`, (l) => l[name] >= minimum);
  });
  return [...minimums, ...limitRelations].filter((candidate) => !candidate.holds(limits));
}

function relation(names: readonly LimitName[], text: string, holds: (limits: Limits) => boolean): LimitRelation {
  return { names, text, holds };
}
