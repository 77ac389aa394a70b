/**
 * The control plane: what workers, holders and clients say to the broker and
 * it to them. Small frames; nothing here ever waits behind tokens.
 *
 * Every request carries an `id`; its answers carry the same. Ids are the
 * sender's, so the two directions never clash. An answer is bound to the
 * connection it came by (B182). Requests without a listed answer are
 * notifications.
 */
import {
  boolean, bytes, choice, count, durationMs, id, integer, list, map, nullable, object, optional, positiveBytes, string, timeUs,
} from '../schema.js';
import { message, type MessageOf } from './define.js';
import {
  admissionNumbers, deviceReading, deviceUuid, explainId, floorReading, generationId, hostNeed, leaseId, leaseParts, modelKey, modelPolicy,
  gangName, modelState, newModels, requestClass, reservedReading, residencyState, shortText,
} from './shared.js';

const errorDetails = () => map(string(2_000), 32);
const announcements = () => optional(newModels());
const peers = ['worker', 'holder'] as const;
const everyone = ['worker', 'holder', 'client'] as const;
const anyone = ['worker', 'holder', 'client', 'broker'] as const;

export const controlMessages = {
  // ── Session ──────────────────────────────────────────────────────────────
  hello: message('The first frame of every connection.', everyone, {
    id: id(),
    protocol: integer(1, 65_535, 'version'),
    role: choice('worker', 'holder', 'client'),
    /** Workers: the spawn id handed to them in the environment. */
    spawn: nullable(string(64)),
    /** 64 hex digits: HMAC-SHA256(state secret, "spawn:<spawn id>") or (…, "role:<role>"). Compared in constant time. */
    proof: string(64, /^[0-9a-f]{64}$/),
    pid: integer(1, 4_194_304, 'pid'),
    name: string(128),
    /** Back after its connection was lost, to this broker or to the next: the generation it had. Null on a first attach. */
    resume: nullable(generationId()),
  }, ['welcome', 'error']),
  welcome: message('The session is open.', ['broker'], {
    id: id(),
    protocol: integer(1, 65_535, 'version'),
    bootId: string(32),
    /** Yours: in every id that names this process, and the `caller` of your data-plane connections. What `resume` named, where that was accepted. */
    generation: generationId(),
    /** Send `heartbeat` this often; silence of ten times as long ends a worker, and makes a holder suspect. Clients send none. */
    heartbeatIntervalMs: durationMs(),
    frameBytesMax: bytes(),
    /** CPU threads this worker may use (D36); 0 for holders and clients: nobody tells them. */
    threads: count(4_096),
    /** How long to seek the broker after its end of file, going on with your calls; then end yourself and all your children (a worker), or take your leases for lost. 0: at once. */
    reattachGraceMs: durationMs(),
    devices: list(deviceReading(), 64),
  }),
  ready: message('The engine is up: what it is, what it sees, where calls are taken.', ['worker'], {
    id: id(),
    engine: string(64),
    versions: map(string(128), 16),
    devices: list(deviceReading(), 64),
    /** What this engine can do with a loaded model. */
    capabilities: object({ park: boolean(), partial: boolean(), embed: boolean(), profilesFreeMemory: boolean() }),
    /** Path of the unix socket of its data plane. */
    dataSocket: string(256),
    /** What the process costs on each card before any model, measured by itself; empty when unknown. */
    floors: list(floorReading(), 64, 'device'),
  }, ['ok', 'error']),
  heartbeat: message('I live. Sent apart from any call.', peers, {
    atUs: timeUs(),
    /** Instantaneous figures, never a high-water mark (R54). Self-accounting only: judges no other process. */
    reserved: list(reservedReading(), 64, 'device'),
    inFlight: count(),
    loopDelayMs: durationMs(),
  }),
  floor: message('What the process costs on a card has been measured anew (first compute).', ['worker'], {
    device: deviceUuid(),
    /** The whole floor now, not the difference. */
    bytes: bytes(),
  }),
  ending: message('I end, and was not told to by you: a signal, say. Place nothing here any more.', ['worker'], {
    reason: shortText(),
  }),
  ok: message('Done; nothing else to say.', anyone, { id: id(), newModels: announcements() }),
  error: message('The request failed, or (id null) the connection did and ends.', anyone, {
    id: nullable(id()),
    code: string(64, /^[a-z][a-z0-9_]*$/),
    message: shortText(),
    details: errorDetails(),
    newModels: announcements(),
  }),
  cancel: message('Take back a request of mine.', anyone, {
    /** The id under which I asked it. */
    target: id(),
  }),
  log: message('A line for the broker’s log.', peers, {
    level: choice('debug', 'info', 'warn', 'error'),
    message: string(4_096),
    fields: map(string(2_000), 32),
  }),

  // ── Leases ───────────────────────────────────────────────────────────────
  place: message('Where should this model run? Finds or spawns a worker and gives a ticket to it.', ['client', 'holder'], {
    id: id(),
    model: modelKey(),
    engine: string(64),
    /** Null: unknown; then what was last asked for the model chooses its cards, and the worker’s own estimate decides later. */
    estimateBytes: nullable(bytes()),
    class: requestClass(),
    deadlineMs: durationMs(),
    ageMs: optional(durationMs()),
    /** Null: the broker chooses, or `devices` says. */
    device: nullable(deviceUuid()),
    /** The cards that it may use, in place of `device`. Left out: any. */
    devices: optional(list(deviceUuid(), 64)),
    /** Spread over so many of them, those that cost least in evictions; all are taken or none. Left out: one. */
    cards: optional(integer(1, 64, 'cards')),
    policy: modelPolicy(),
  }, ['placed', 'deny', 'error'], ['waiting']),
  placed: message('This worker, at this address, with this ticket.', ['broker'], {
    id: id(),
    generation: generationId(),
    devices: list(deviceUuid(), 64),
    dataSocket: string(256),
    ticket: string(512),
    explain: nullable(explainId()),
  }),
  request_vram_budget: message('I want to load this model; may I?', peers, {
    id: id(),
    model: modelKey(),
    device: deviceUuid(),
    /** Null: a new lease. Else the lease that these parts extend (a further or larger context). */
    lease: nullable(leaseId()),
    parts: leaseParts(),
    /** Highest total while loading, when above the sum of parts. */
    peakBytes: bytes(),
    class: requestClass(),
    deadlineMs: durationMs(),
    /** How long it has waited already, when asked again after a lost connection. */
    ageMs: optional(durationMs()),
    parkable: boolean(),
    /** What it takes of the machine's memory. Left out: nothing, on an extension: what was said before. */
    host: optional(hostNeed()),
    /** The engine measures free memory while it loads: one load at a time on that card (B13). */
    profilesFreeMemory: boolean(),
    source: choice('estimated', 'declared', 'learned', 'measured'),
    policy: modelPolicy(),
    /** Leases of one gang are granted all or none; null for one card. */
    gang: nullable(gangName()),
  }, ['grant', 'deny', 'error'], ['waiting']),
  waiting: message('Not yet: your place in the queue and what it waits for.', ['broker'], {
    id: id(),
    position: count(),
    reason: shortText(),
    explain: nullable(explainId()),
  }),
  grant: message('Yes: load now. Confirm by `loading`.', ['broker'], {
    id: id(),
    lease: leaseId(),
    device: deviceUuid(),
    /** Bytes charged for this lease, headroom included. */
    chargedBytes: bytes(),
    /** The others of a `resize_lease` that named several. */
    also: optional(list(object({ lease: leaseId(), chargedBytes: bytes() }), 63)),
    /** Whether there is room in the machine's memory for the copy that `host.copyBytes` asked for; false: keep none. Left out: memory is not leased here. */
    keepCopy: optional(boolean()),
    explain: nullable(explainId()),
  }),
  deny: message('No, and why, and what could be had.', ['broker'], {
    id: id(),
    code: string(64, /^[a-z][a-z0-9_]*$/),
    message: shortText(),
    /** What fills the code’s text: the thing, the limit. */
    details: optional(errorDetails()),
    numbers: nullable(admissionNumbers()),
    /** Largest `sum of parts` that would be granted there now. */
    couldHaveBytes: nullable(bytes()),
    /** Cards where the whole request would fit. */
    roomElsewhere: list(deviceUuid(), 64),
    retryAfterMs: nullable(durationMs()),
    explain: nullable(explainId()),
  }),
  loading: message('The grant arrived; bytes are about to be taken.', peers, { lease: leaseId() }),
  recall_lease: message('Did this grant reach you? If you have not begun, it is void.', ['broker'], {
    id: id(),
    lease: leaseId(),
  }, ['recalled', 'error']),
  recalled: message('Whether the load had begun. False: the lease is given up.', peers, {
    id: id(),
    lease: leaseId(),
    begun: boolean(),
    newModels: announcements(),
  }),
  residency: message('What a model holds now; measured parts when they are known.', peers, {
    id: id(),
    seq: count(),
    lease: leaseId(),
    model: modelKey(),
    state: residencyState(),
    residentBytes: bytes(),
    hostBytes: bytes(),
    /** Measured sizes after a load; trues the lease up (D11). */
    parts: nullable(leaseParts()),
    loadMs: nullable(durationMs()),
  }, ['ok', 'error']),
  in_use: message('Calls on a model: an absolute count, not a difference.', peers, {
    seq: count(),
    lease: leaseId(),
    model: modelKey(),
    inFlight: count(),
    queued: count(),
  }),
  resize_lease: message('Growth while tokens flow: granted or denied, never waits. Bytes 0 drops a part.', peers, {
    id: id(),
    lease: leaseId(),
    parts: leaseParts(),
    /** The other leases of its gang, as they are to be: all are changed or none is. */
    also: optional(list(object({ lease: leaseId(), parts: leaseParts() }), 63)),
  }, ['grant', 'deny', 'error']),
  release_lease: message('I am done with this lease; what it held is, or is about to be, given back.', peers, {
    lease: leaseId(),
    /** `unused`: granted, but not wanted any more before `loading`; `refused`: the engine would not; the rest as they say. */
    cause: choice('unused', 'unloaded', 'load_failed', 'cancelled', 'refused'),
    /** Why a load failed: an error code and a sentence; null otherwise. */
    failure: nullable(object({ code: string(64), message: shortText() })),
  }),

  // ── Commands of the broker ───────────────────────────────────────────────
  model_to_device: message('Move a model: park, unload, bring back, in whole or in part.', ['broker'], {
    id: id(),
    lease: leaseId(),
    model: modelKey(),
    /** Yours; a command for another generation is answered `failed` with `generation_stale`. */
    generation: generationId(),
    /** `host`: park (drop the card’s bytes, keep a copy); `none`: unload (drop both); `device`: bring back. */
    target: choice('host', 'none', 'device'),
    /** The card to come back to; null for `host` and `none`. */
    device: nullable(deviceUuid()),
    /** Bytes to free; null: all. */
    bytes: nullable(positiveBytes()),
    /** `now`: only if idle, else busy. `drained`: shut the door and move when the last call has ended. */
    when: choice('now', 'drained'),
    /** When the request that this serves arrived; calls older than it may still start (D20). */
    waiterSinceUs: nullable(timeUs()),
    /** When it was handed to the connection: what lies unread ages all the same. */
    sentUs: timeUs(),
    /** Not begun by then: do not begin (B193). Counted from `sentUs`, or from receipt where that is earlier (B31). */
    expiresMs: durationMs(),
    reason: shortText(),
  }, ['done', 'busy', 'unsupported', 'failed'], ['draining']),
  done: message('Moved: what was done and what is left, measured.', peers, {
    id: id(),
    /** What was done: `none` also when `host` was asked for and no copy could be kept. */
    target: choice('host', 'none', 'device'),
    freedBytes: bytes(),
    residentBytes: bytes(),
    hostBytes: bytes(),
    newModels: announcements(),
  }),
  draining: message('The door is shut; this many calls are still inside.', peers, { id: id(), inFlight: count() }),
  busy: message('In use and not asked to drain; nothing was changed.', peers, {
    id: id(),
    inFlight: count(),
    newModels: announcements(),
  }),
  unsupported: message('This model cannot be moved so; unload it instead.', peers, {
    id: id(),
    message: shortText(),
    newModels: announcements(),
  }),
  failed: message('Tried and failed, expired, cancelled, or not mine; with what is left.', peers, {
    id: id(),
    code: string(64, /^[a-z][a-z0-9_]*$/),
    message: shortText(),
    residentBytes: nullable(bytes()),
    newModels: announcements(),
  }),
  lease_quarantined: message('To a holder: your lease has not been given back when it was wanted, and is not to be used any more. Its bytes stay charged until they are seen gone; `release_lease` once they are.', ['broker'], {
    lease: leaseId(),
    /** What stays charged. */
    bytes: bytes(),
    reason: shortText(),
  }),
  trim_host: message('Give back host copies.', ['broker'], {
    id: id(),
    lease: leaseId(),
    model: modelKey(),
    generation: generationId(),
    /** Bytes to give back; null: all. */
    bytes: nullable(positiveBytes()),
    /** When it was handed to the connection: what lies unread ages all the same. */
    sentUs: timeUs(),
    /** Not begun this long after `sentUs`, or after receipt where that is earlier: do not begin. */
    expiresMs: durationMs(),
  }, ['done', 'busy', 'unsupported', 'failed']),
  list_models: message('Everything you hold, for reconciliation.', ['broker'], { id: id() }, ['models', 'error']),
  models: message('Everything this generation holds.', peers, {
    id: id(),
    /** The number after that of the announcement (`newModels` or `models`) before it on this connection; 1 for the first. */
    seq: count(),
    models: list(modelState(), 1_024),
  }),
  drain: message('Take no new calls; those inside may end.', ['broker'], { id: id() }, ['ok', 'error']),
  shutdown: message('End, with all your children, within the grace.', ['broker'], {
    id: id(),
    graceMs: durationMs(),
    reason: shortText(),
  }, ['ok', 'error']),

  // ── State, for people and programs ───────────────────────────────────────
  ledger: message('The whole ledger, please.', everyone, { id: id() }, ['ledger_state', 'error']),
  ledger_state: message('The ledger at one moment, as JSON text.', ['broker'], {
    id: id(),
    /** JSON text, as "JSON inside messages" says. The frame bounds it long before its own length: `frameBytesMax` of `welcome`. A ledger that is larger is answered by `error` `frame_too_large`. */
    json: string(64 * 1024 * 1024),
  }),
  explain: message('Why? By record, model, or null for the latest.', everyone, {
    id: id(),
    explain: nullable(explainId()),
    model: nullable(modelKey()),
    count: count(1_000),
  }, ['explanation', 'error']),
  explanation: message('Explain records, newest first, as JSON texts.', ['broker'], {
    id: id(),
    /** The records, newest first, each as "JSON inside messages" says; as many as fit into half of `frameBytesMax`. */
    records: list(string(64 * 1024), 1_000),
  }),
  subscribe: message('Tell me what happens, as it happens.', ['client', 'holder'], { id: id() }, ['ok', 'error']),
  event: message('Something happened.', ['broker'], {
    seq: count(),
    atUs: timeUs(),
    name: string(64),
    /** JSON text of the event’s data. */
    json: string(64 * 1024),
    /** Events this subscriber lost since the last one, because it read too slowly. */
    dropped: count(),
  }),
  evict: message('Free this model’s card bytes; waits for its calls to end. A load is stopped.', ['client', 'holder'], {
    id: id(),
    model: modelKey(),
    /** `host`: park if it can, else unload; `none`: unload. */
    target: choice('host', 'none'),
    deadlineMs: durationMs(),
  }, ['evicted', 'error']),
  evicted: message('Confirmed free.', ['broker'], { id: id(), freedBytes: bytes() }),
  pin: message('Never, or no longer never, a victim.', ['client', 'holder'], {
    id: id(),
    model: modelKey(),
    pinned: boolean(),
  }, ['ok', 'error']),

  // ── Simulated cards (D26) ────────────────────────────────────────────────
  card_allocate: message('Take bytes on a simulated card, as an engine would on a real one.', peers, {
    id: id(),
    device: deviceUuid(),
    /** All or nothing. */
    bytes: positiveBytes(),
    /** Yours to choose, unique in your process: asked for again under it after a lost connection, it is the same allocation. */
    name: optional(string(64)),
  }, ['card_allocated', 'card_oom', 'error']),
  card_allocated: message('Taken.', ['broker'], { id: id(), allocation: count() }),
  card_oom: message('The card is full, as a driver would say it.', ['broker'], {
    id: id(),
    wantedBytes: bytes(),
    freeBytes: bytes(),
  }),
  card_free: message('Give an allocation back.', peers, { id: id(), device: deviceUuid(), allocation: count() }, ['ok', 'error']),
} as const;

export type ControlMessage = MessageOf<typeof controlMessages>;
export type ControlMessageType = ControlMessage['type'];
