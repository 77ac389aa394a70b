/** Pieces that several messages share: names, parts of a lease, what a model holds, the numbers of a decision. */
import { boolean, bytes, choice, count, durationMs, integer, list, map, nullable, object, optional, positiveBytes, string, timeUs, type Infer } from '../schema.js';
import { classes } from '../limits.js';

/** A device: `GPU-…`, `MIG-…` or `SIM-…`, `CPU-…` (no card bytes); never an index. */
export const deviceUuid = () => string(96, /^(GPU|MIG|SIM|CPU)-[0-9A-Za-z-]+(\/\d+\/\d+)?$/);
/** The key of a model: profile id plus the settings that change what is loaded. One that ends in `@engine#` and 8 hex digits is a configured model's: a worker refuses another model under it. */
export const modelKey = () => string(256, /^[^\p{C}]+$/u);
/** A lease, unique for the life of the machine. It begins with the generation that it was granted to, and is nobody else's: `<generation>-l<n>`, or `<generation>-<bootId>-l<n>` from a later broker. */
export const leaseId = () => string(128, /^[0-9A-Za-z]+(-[0-9A-Za-z]+)*-l\d+$/);
/** One start of a process, unique across broker restarts: `<bootId>-w<n>` (spawned) or `<bootId>-s<n>` (attached). */
export const generationId = () => string(64, /^[0-9A-Za-z]+-[ws]\d+$/);
/** An explain record: `<bootId>-x<n>`. */
export const explainId = () => string(64, /^[0-9A-Za-z]+-x\d+$/);
/** Fairness: who goes first, and how long what was loaded for it stays. */
export const requestClass = () => choice(...classes);
export const shortText = () => string(2_000);

/** What a part of a lease is for. Weights and compute live as long as the model; each context is a part of its own. */
export const leasePart = () =>
  object({
    /** Unique within the lease: `weights`, `compute`, `context:1`, …; `weights:24/36` where so many layers of a model are on the card and the others are left to the CPU. */
    name: string(64),
    /** What it is for. Weights and compute live and go with the model; a context may go alone. */
    kind: choice('weights', 'context', 'compute', 'other'),
    /** Without headroom: the broker adds it. */
    bytes: bytes(),
    /** True when the engine takes all of it at load; only such parts may be lowered by measurement (D11). */
    upFront: boolean(),
  });
export type LeasePart = Infer<ReturnType<typeof leasePart>>;
/** The parts of one lease: a name means one of them. */
export const leaseParts = () => list(leasePart(), 1_024, 'name');

/** Where a model stands, as the one process that knows says it. */
export const residencyState = () =>
  choice('absent', 'loading', 'resident', 'parking', 'parked', 'resuming', 'unloading');
export type ResidencyState = Infer<ReturnType<typeof residencyState>>;

/** What changed since the last announcement; rides on every answer of a worker, errors included (R51). */
export const newModels = () =>
  object({
    /** The number after that of the announcement (`newModels` or `models`) before it on this connection; 1 for the first. A gap makes the broker ask `list_models`. */
    seq: count(),
    added: list(modelState(), 256),
    removed: list(modelKey(), 256),
  });
export type NewModels = Infer<ReturnType<typeof newModels>>;

/** How an operator or embedder wants a model treated. Null: the default. */
export const modelPolicy = () =>
  object({
    /** Idle this long after the end of its last use: parked or unloaded. Null: never. */
    ttlMs: nullable(durationMs()),
    pinned: boolean(),
    /** The one exception to the headroom: a model whose measured ceiling fits the empty card alone. */
    exclusive: boolean(),
  });
export type ModelPolicy = Infer<ReturnType<typeof modelPolicy>>;

/** Leases of one model, a card each, that come and go together. */
export const gangName = () =>
  object({
    /** A name that this process has not used for a gang before, unless for the same one. */
    gang: string(64),
    size: integer(2, 64, 'cards'),
  });

/**
 * What a model takes of the machine's own memory: figures for its whole lease, never differences. Without headroom: the
 * broker adds it.
 */
export const hostNeed = () =>
  object({
    /** As long as it is loaded, copies apart: all of a model that runs on the CPU, nothing of one that lives on its card. */
    neededBytes: bytes(),
    /** A copy that would be kept from its load on, so that it can be parked at once and come back fast; 0: none. A wish: `grant.keepCopy` tells whether there is room. */
    copyBytes: bytes(),
    /** Highest total while it loads, the copy included; 0: never above those two together. */
    peakBytes: bytes(),
    /** Highest total while it is parked without such a copy, that is while one is made; null: unknown, twice its weights are assumed. */
    parkPeakBytes: nullable(bytes()),
  });
export type HostNeed = Infer<ReturnType<typeof hostNeed>>;

/** As what a lease was granted: with it a broker that was not there takes the lease in as it stands. */
export const leaseTerms = () =>
  object({
    /** As last granted, headroom included. */
    chargedBytes: bytes(),
    /** Measured where they have been, else as asked for. */
    parts: leaseParts(),
    class: requestClass(),
    policy: modelPolicy(),
    /** One of several leases of this model that come and go together: the name that they were asked for under, and how many they are. Left out: it is alone. */
    gang: optional(gangName()),
    /** What it was granted of the machine's memory besides; without a copy when that had no room. Left out: nothing. */
    host: optional(hostNeed()),
  });
export type LeaseTerms = Infer<ReturnType<typeof leaseTerms>>;

/** What one model holds at one moment. Residency is a byte count, never a boolean. */
export const modelState = () =>
  object({
    model: modelKey(),
    lease: nullable(leaseId()),
    device: nullable(deviceUuid()),
    state: residencyState(),
    residentBytes: bytes(),
    /** Bytes of a copy in host RAM from which it can be restored. */
    hostBytes: bytes(),
    inFlight: count(),
    parkable: boolean(),
    /** In the answer to `list_models`, for each model with a lease. Left out in `newModels`. */
    terms: optional(leaseTerms()),
  });
export type ModelState = Infer<ReturnType<typeof modelState>>;

/** Which rung of the truth ladder a reading came from. `system`: the operating system's own figures, for the machine's memory. */
export const truthSource = () => choice('nvml', 'nvidia-smi', 'amdgpu', 'simulated', 'system', 'ledger');
export type TruthSource = Infer<ReturnType<typeof truthSource>>;

/** Every number that decided an admission. Null is "unknown", never zero. */
export const admissionNumbers = () =>
  object({
    requestedBytes: bytes(),
    /** ceil(11/10 x max(sum of parts, peak)) plus the floor not yet charged. */
    needBytes: bytes(),
    floorBytes: bytes(),
    totalBytes: bytes(),
    reserveBytes: bytes(),
    chargedBytes: bytes(),
    holdBytes: bytes(),
    foreignBytes: nullable(bytes()),
    sampledUsedBytes: nullable(bytes()),
    sampleAgeMs: nullable(durationMs()),
    /** What a request could be granted now; negative after an overshoot, then shown as 0 here. */
    availableBytes: bytes(),
    /** What evicting every permitted victim would add. */
    evictableBytes: bytes(),
    truth: truthSource(),
  });
export type AdmissionNumbers = Infer<ReturnType<typeof admissionNumbers>>;

/** One model for an engine to load: what the data plane carries so that a worker needs no configuration of its own. */
export const modelSpec = () =>
  object({
    key: modelKey(),
    engine: string(64),
    /** A local path; what it means is the engine's business. */
    source: string(4_096),
    contextTokens: count(16_777_216),
    /** Sequences that may run at once; each has its own context part. */
    parallel: count(1_024),
    embedding: boolean(),
    /** The operator's word where no estimate can be made (B20). */
    declaredBytes: nullable(positiveBytes()),
    policy: modelPolicy(),
    /** Engine settings, passed through. */
    options: map(string(4_096), 64),
  });
export type ModelSpec = Infer<ReturnType<typeof modelSpec>>;

/** What one process holds on one card, by its own account. */
export const reservedReading = () =>
  object({
    device: deviceUuid(),
    /** Held at this moment; never a high-water mark. */
    bytes: bytes(),
  });
/** A card as one process sees it. */
export const deviceReading = () =>
  object({ device: deviceUuid(), name: string(128), totalBytes: nullable(positiveBytes()) });
/** What a process costs on one card before any model. */
export const floorReading = () =>
  object({
    device: deviceUuid(),
    /** As measured by the process itself. */
    bytes: bytes(),
  });

/** A moment and how old it is allowed to be: age of a re-asked request travels so that it keeps its place. */
export const waitAge = () => optional(durationMs());
export const moment = timeUs;
