/**
 * A core on a virtual clock with a card that tells the truth: workers take and
 * give back bytes by word of the test, every wanted sample is taken at once
 * (or when the test says so), and the whole ledger is checked after each step.
 */
import {
  checkInvariants, createCore, ledgerView, step, type CardKind, type Confirmation, type Core, type CoreEvent, type Effect, type LedgerView, type LeaseView,
} from '../../../broker/core/index.js';
import { classPolicies, defaultLimits, type HostNeed, type LeasePart, type Limits, type ModelPolicy, type RequestClass, type ResidencyState } from '../../../protocol/index.js';

export const KiB = 1_024;
export const MiB = 1_024 * KiB;
export const GiB = 1_024 * MiB;
export const card0 = 'GPU-0';
export const host0 = 'HOST-0';

type WithoutTime<E> = E extends CoreEvent ? Omit<E, 'atUs'> : never;
export type Happening = WithoutTime<CoreEvent>;
type EffectOf<K extends Effect['type']> = Extract<Effect, { type: K }>;

export interface CardOptions {
  readonly totalBytes?: number;
  readonly reserveBytes?: number;
  readonly confirms?: Confirmation;
  readonly floorBytes?: number | null;
  readonly kind?: CardKind;
  readonly unified?: boolean;
  readonly yieldFreeBytes?: number | null;
}

export interface AskOptions {
  readonly device?: string;
  readonly lease?: string | null;
  readonly peakBytes?: number;
  readonly class?: RequestClass;
  readonly deadlineMs?: number;
  readonly ageMs?: number;
  readonly parkable?: boolean;
  readonly host?: Partial<HostNeed>;
  readonly profiles?: boolean;
  readonly source?: 'estimated' | 'declared' | 'learned' | 'measured';
  readonly policy?: Partial<ModelPolicy>;
  readonly parts?: readonly LeasePart[];
  readonly request?: number;
  readonly gang?: { readonly gang: string; readonly size: number };
}

export interface WorkerOptions {
  readonly engine?: string;
  readonly device?: string;
  readonly floorBytes?: number | null;
  readonly park?: boolean;
  readonly partial?: boolean;
  readonly model?: string;
}

interface CardTruth {
  totalBytes: number;
  confirms: Confirmation;
  foreignBytes: number;
  readonly byProcess: Map<string, number>;
  /** Set: no reading, only this failure. */
  failing: Extract<CoreEvent, { type: 'sample_failed' }>['reading'] | null;
  /** Of strangers, by pid; what of the foreign bytes the driver names. */
  strangers: readonly { readonly pid: number; readonly usedBytes: number }[];
}

export interface StageOptions {
  readonly limits?: Partial<Limits>;
  readonly allowLedgerOnly?: boolean;
  readonly allowHostUnknown?: boolean;
  readonly modelsPerWorker?: number;
  readonly llamaFloorBytes?: number;
}

export class Stage {
  readonly core: Core;
  readonly effects: Effect[] = [];
  nowUs = 1_000_000;
  /** Answer wanted samples at once. */
  samples = true;
  /** Answer probes that were asked for in this step only when the test says so. */
  private readonly truths = new Map<string, CardTruth>();
  private nextRequest = 1;
  private nextSession = 1;
  private readonly seqs = new Map<string, number>();
  private readonly beating = new Set<string>();

  constructor(options: StageOptions = {}) {
    this.core = createCore({
      bootId: 'boot', startedAtUs: this.nowUs, limits: { ...defaultLimits, ...options.limits }, classPolicies,
      engines: [{ name: 'llama', modelsPerWorker: options.modelsPerWorker ?? 1, floorBytes: options.llamaFloorBytes ?? 0 }, { name: 'python', modelsPerWorker: 8 }, { name: 'python-b', modelsPerWorker: 8 }],
      allowLedgerOnly: options.allowLedgerOnly ?? false, allowHostUnknown: options.allowHostUnknown ?? false,
    });
  }

  /** One event now; its effects. Wanted samples are taken and fed in before it returns. */
  send(happening: Happening): Effect[] {
    this.nowUs += 10;
    const effects = step(this.core, { atUs: this.nowUs, ...happening });
    checkInvariants(this.core);
    this.effects.push(...effects);
    if (happening.type === 'process_resumed') this.beating.add(happening.generation);
    if (happening.type === 'session_closed') this.beating.delete(happening.generation);
    const all = [...effects];
    for (const effect of effects) {
      if (effect.type === 'spawn') this.beating.add(effect.generation);
      if (effect.type === 'sample' && this.samples) all.push(...this.sample(effect.device));
    }
    return all;
  }

  /** Lets time pass in ticks of 250 ms, everybody's heart beating. */
  pass(ms: number, options: { readonly beats?: boolean } = {}): Effect[] {
    const all: Effect[] = [];
    for (let left = ms; left > 0; left -= 250) {
      this.nowUs += Math.min(250, left) * 1_000;
      if (options.beats !== false) for (const generation of this.beating) all.push(...this.send({ type: 'heartbeat', generation, reserved: [] }));
      all.push(...this.send({ type: 'ticked' }));
    }
    return all;
  }

  card(device = card0, options: CardOptions = {}): void {
    const { totalBytes = 24 * GiB, reserveBytes = 0, confirms = 'process', floorBytes = 0, kind = 'gpu', unified = false, yieldFreeBytes = null } = options;
    this.truths.set(device, { totalBytes, confirms, foreignBytes: 0, byProcess: new Map(), failing: null, strangers: [] });
    this.send({ type: 'card_added', device, name: 'a card', kind, totalBytes, reserveBytes, confirms, floorBytes, unified, yieldFreeBytes });
  }

  truth(device = card0): CardTruth {
    const truth = this.truths.get(device);
    if (truth === undefined) throw new Error(`no card ${device} on this stage`);
    return truth;
  }

  usedBytes(device = card0): number {
    const truth = this.truth(device);
    return truth.foreignBytes + [...truth.byProcess.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** The machine's memory, leased from now on. */
  memory(totalBytes: number, options: { readonly reserveBytes?: number; readonly confirms?: Confirmation } = {}): void {
    this.card(host0, { kind: 'host', totalBytes, floorBytes: null, ...options });
  }

  /** A process takes (or, negative, gives back) bytes of the card. */
  take(generation: string, bytes: number, device = card0): void {
    const { byProcess } = this.truth(device);
    byProcess.set(generation, (byProcess.get(generation) ?? 0) + bytes);
  }

  /** Reads a card, now or as it was taken earlier. */
  sample(device = card0, takenAtUs?: number): Effect[] {
    const truth = this.truth(device);
    this.nowUs += 10;
    if (truth.failing !== null) return this.send({ type: 'sample_failed', device, reading: truth.failing, reason: 'as the test wants' });
    return this.send({
      type: 'sampled', device, takenAtUs: takenAtUs ?? this.nowUs, usedBytes: this.usedBytes(device), totalBytes: truth.totalBytes, truth: 'nvml',
      processes: truth.confirms === 'process' ? [...truth.byProcess].map(([generation, usedBytes]) => ({ generation, usedBytes })) : null, strangers: truth.strangers,
    });
  }

  session(role: 'client' | 'holder' = 'client'): string {
    const generation = `boot-s${String(this.nextSession++)}`;
    this.send({ type: 'session_opened', generation, role, name: role });
    if (role === 'holder') this.beating.add(generation);
    return generation;
  }

  place(client: string, model: string, options: { readonly engine?: string; readonly device?: string | null; readonly estimateBytes?: number | null; readonly class?: RequestClass; readonly deadlineMs?: number; readonly devices?: readonly string[]; readonly cards?: number } = {}): { readonly request: number; readonly effects: Effect[] } {
    const request = this.nextRequest++;
    const effects = this.send({
      type: 'place_requested', generation: client, request, model, engine: options.engine ?? 'llama', estimateBytes: options.estimateBytes ?? null,
      class: options.class ?? 'normal', deadlineMs: options.deadlineMs ?? 60_000, ageMs: 0, device: options.device ?? null,
      policy: { ttlMs: null, pinned: false, exclusive: false },
      ...(options.devices === undefined ? {} : { devices: options.devices }), ...(options.cards === undefined ? {} : { cards: options.cards }),
    });
    return { request, effects };
  }

  /** A worker that is up: placed for, spawned and ready. */
  worker(options: WorkerOptions = {}): string {
    const client = this.session();
    const { effects } = this.place(client, options.model ?? `first-${String(this.nextRequest)}`, { engine: options.engine ?? 'llama', device: options.device ?? card0 });
    const spawned = only(effects, 'spawn');
    this.ready(spawned.generation, options);
    return spawned.generation;
  }

  ready(generation: string, options: WorkerOptions = {}): Effect[] {
    const device = options.device ?? card0;
    const floorBytes = options.floorBytes ?? 0;
    if (floorBytes > 0) this.take(generation, floorBytes, device);
    return this.send({
      type: 'process_ready', generation,
      capabilities: { park: options.park ?? true, partial: options.partial ?? false, embed: false, profilesFreeMemory: false },
      floors: options.floorBytes === null ? [] : [{ device, bytes: floorBytes }],
    });
  }

  ask(generation: string, model: string, bytes: number, options: AskOptions = {}): { readonly request: number; readonly effects: Effect[] } {
    const request = options.request ?? this.nextRequest++;
    const effects = this.send({
      type: 'budget_requested', generation, request, model, device: options.device ?? card0, lease: options.lease ?? null,
      parts: options.parts ?? [weights(bytes)], peakBytes: options.peakBytes ?? 0, class: options.class ?? 'normal',
      deadlineMs: options.deadlineMs ?? 60_000, ageMs: options.ageMs ?? 0, parkable: options.parkable ?? false, ...(options.host === undefined ? {} : { host: { neededBytes: 0, copyBytes: 0, peakBytes: 0, parkPeakBytes: null, ...options.host } }),
      profilesFreeMemory: options.profiles ?? false, source: options.source ?? 'estimated',
      policy: { ttlMs: null, pinned: false, exclusive: false, ...options.policy }, gang: options.gang ?? null,
    });
    return { request, effects };
  }

  /** Asks for one model on several cards at once: bytes by card. The requests come in the order given. */
  askGang(generation: string, model: string, bytes: Readonly<Record<string, number>>, options: AskOptions & { readonly name?: string; readonly leases?: Readonly<Record<string, string>> } = {}): { readonly requests: number[]; readonly effects: Effect[] } {
    const gang = { gang: options.name ?? `g${String(this.nextRequest)}`, size: Object.keys(bytes).length };
    const asked = Object.entries(bytes).map(([device, each]) => this.ask(generation, model, each, { ...options, device, gang, lease: options.leases?.[device] ?? null }));
    return { requests: asked.map(({ request }) => request), effects: asked.flatMap(({ effects }) => effects) };
  }

  /** Granted and loaded on all of its cards; the leases by card. */
  residentGang(generation: string, model: string, bytes: Readonly<Record<string, number>>, options: AskOptions = {}): Record<string, string> {
    const grants = all(this.askGang(generation, model, bytes, options).effects, 'grant');
    const leases = Object.fromEntries(grants.map(({ device, lease }) => [device, lease]));
    for (const [device, lease] of Object.entries(leases)) this.load(generation, lease, bytes[device] ?? 0, { device });
    for (const device of Object.keys(leases)) this.sample(device);
    return leases;
  }

  /** A worker over several cards, up. */
  wideWorker(devices: readonly string[], options: WorkerOptions = {}): string {
    const client = this.session();
    const { effects } = this.place(client, options.model ?? `first-${String(this.nextRequest)}`, { engine: options.engine ?? 'llama', devices, cards: devices.length });
    const spawned = only(effects, 'spawn');
    this.ready(spawned.generation, options);
    return spawned.generation;
  }

  /** Asks and insists on the grant. */
  granted(generation: string, model: string, bytes: number, options: AskOptions = {}): string {
    return only(this.ask(generation, model, bytes, options).effects, 'grant').lease;
  }

  begin(generation: string, lease: string): Effect[] {
    return this.send({ type: 'load_begun', generation, lease });
  }

  /** Loads what was granted: takes the bytes and reports them. */
  load(generation: string, lease: string, bytes: number, options: { readonly parts?: readonly LeasePart[] | null; readonly device?: string; readonly loadMs?: number; readonly hostBytes?: number } = {}): Effect[] {
    this.begin(generation, lease);
    this.take(generation, bytes, options.device ?? card0);
    return this.report(generation, lease, 'resident', bytes, { parts: options.parts === undefined ? [weights(bytes)] : options.parts, loadMs: options.loadMs ?? 1_000, hostBytes: options.hostBytes ?? 0 });
  }

  /** Granted, loaded, sampled: a model at rest. */
  resident(generation: string, model: string, bytes: number, options: AskOptions = {}): string {
    const lease = this.granted(generation, model, bytes, options);
    this.load(generation, lease, bytes, { device: options.device ?? card0 });
    this.sample(options.device ?? card0);
    return lease;
  }

  report(generation: string, lease: string, state: ResidencyState, residentBytes: number, options: { readonly hostBytes?: number; readonly parts?: readonly LeasePart[] | null; readonly loadMs?: number | null; readonly seq?: number } = {}): Effect[] {
    const model = this.lease(lease)?.model ?? 'unknown';
    return this.send({
      type: 'residency_reported', generation, request: this.nextRequest++, lease, model, seq: options.seq ?? this.seq(lease), state,
      residentBytes, hostBytes: options.hostBytes ?? 0, parts: options.parts ?? null, loadMs: options.loadMs ?? null,
    });
  }

  use(generation: string, lease: string, inFlight: number, queued = 0): Effect[] {
    return this.send({ type: 'use_reported', generation, lease, seq: this.seq(`use ${lease}`), inFlight, queued });
  }

  release(generation: string, lease: string, cause: 'unused' | 'unloaded' | 'load_failed' | 'cancelled' = 'unloaded', failure: { readonly code: string; readonly message: string } | null = null): Effect[] {
    return this.send({ type: 'lease_released', generation, lease, cause, failure });
  }

  answer(command: { readonly generation: string; readonly command: number }, answer: Extract<CoreEvent, { type: 'command_answered' }>['answer']): Effect[] {
    return this.send({ type: 'command_answered', generation: command.generation, command: command.command, answer });
  }

  /** Carries a move out as a good worker does: gives the bytes back and says so. */
  obey(move: EffectOf<'move'>): Effect[] {
    const lease = this.lease(move.lease);
    const bytes = Math.min(move.bytes ?? Infinity, lease?.residentBytes ?? 0);
    this.take(move.generation, -bytes, lease?.device ?? card0);
    const residentBytes = (lease?.residentBytes ?? 0) - bytes;
    return this.answer(move, { kind: 'done', target: move.target, freedBytes: bytes, residentBytes, hostBytes: move.target === 'host' ? bytes : 0 });
  }

  /** The process is gone; its bytes with it, unless they are to come back later. */
  exit(generation: string, options: { readonly keepsBytes?: boolean } = {}): Effect[] {
    this.beating.delete(generation);
    if (options.keepsBytes !== true) for (const truth of this.truths.values()) truth.byProcess.delete(generation);
    return this.send({ type: 'process_exited', generation, how: 'exit code 139' });
  }

  silence(generation: string): void {
    this.beating.delete(generation);
  }

  view(): LedgerView {
    return ledgerView(this.core, this.nowUs);
  }

  lease(id: string): LeaseView | undefined {
    return this.view().leases.find((lease) => lease.lease === id);
  }

  cardView(device = card0): LedgerView['cards'][number] {
    const { cards, host } = this.view();
    const view = [...cards, ...(host === null ? [] : [host])].find((card) => card.device === device);
    if (view === undefined) throw new Error(`no card ${device} in the ledger`);
    return view;
  }

  chargedBytes(device = card0): number {
    const view = this.cardView(device);
    return view.leasedBytes + view.floorBytes + view.residueBytes + view.returningBytes;
  }

  counter(name: string): number {
    return this.view().counters[name] ?? 0;
  }

  private seq(key: string): number {
    const next = (this.seqs.get(key) ?? 0) + 1;
    this.seqs.set(key, next);
    return next;
  }
}

export function weights(bytes: number, upFront = true): LeasePart {
  return { name: 'weights', kind: 'weights', bytes, upFront };
}

export function context(bytes: number, name = 'context:1', upFront = false): LeasePart {
  return { name, kind: 'context', bytes, upFront };
}

/** Effects of one type. */
export function all<K extends Effect['type']>(effects: readonly Effect[], type: K): EffectOf<K>[] {
  return effects.filter((effect): effect is EffectOf<K> => effect.type === type);
}

/** The only effect of a type; anything else is an error that shows what there was. */
export function only<K extends Effect['type']>(effects: readonly Effect[], type: K): EffectOf<K> {
  const found = all(effects, type);
  const [first] = found;
  if (first === undefined || found.length > 1) throw new Error(`wanted one ${type}, got ${JSON.stringify(effects.filter((effect) => effect.type !== 'explain' && effect.type !== 'publish'))}`);
  return first;
}

/** ceil(11/10 x bytes) by other means than the core's. */
export function plusTenth(bytes: number): number {
  return Number((BigInt(bytes) * 11n + 9n) / 10n);
}

/** A stage with these cards, each read once. */
export function stageOf(...sizes: readonly (readonly [string, number])[]): Stage {
  const stage = new Stage();
  for (const [device, totalBytes] of sizes) stage.card(device, { totalBytes });
  for (const [device] of sizes) stage.sample(device);
  return stage;
}
