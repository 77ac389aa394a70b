/**
 * What a door wants done, done: ask, load, move, open and close contexts. Each
 * operation ends by one event back to the door; none of them rejects, and what
 * the engine throws becomes a failure with a code.
 */
import { LeaseholdError, type ResidencyState } from '../../protocol/index.js';
import { elapsedMs, nowUs } from './clock.js';
import type { DoorAction, DoorEvent, FirstContext } from './door-types.js';
import { toError, toFailure } from './failure.js';
import { HeldBytesError, HeldModel } from './held-model.js';
import type { Grant } from './lease-requests.js';
import { ModelRoom, type RoomOptions } from './model-room.js';
import type { WorkerLog } from './log.js';
import type { Reports } from './reports.js';

type Act<T extends DoorAction['type']> = Extract<DoorAction, { readonly type: T }>;
type WithoutTime<E> = E extends unknown ? Omit<E, 'atUs'> : never;
export type UntimedDoorEvent = WithoutTime<DoorEvent>;

export interface MovesOptions extends Omit<RoomOptions, 'unused'> {
  readonly reports: Reports;
  readonly log: WorkerLog;
  readonly state: () => ResidencyState;
  readonly feed: (event: UntimedDoorEvent) => void;
  readonly loaded: (loadMs: number, explain: string | null) => void;
  /** Bytes are held that nothing in this process can free any more. */
  readonly fatal: (error: unknown) => void;
}

export class ModelMoves {
  readonly held: HeldModel;
  readonly room: ModelRoom;
  readonly #options: MovesOptions;
  /** One for each card, in their order; none while nothing is granted. The door goes by the first. */
  #leases: readonly string[] = [];
  /** What the last move freed on each card. */
  #freedBytes: readonly number[] = [];
  /** The latest that were granted, whether they are held still or not. */
  #lastLeases: readonly string[] = [];
  #keepCopy: boolean | null = null;
  #asking = new AbortController();
  #moving = new AbortController();
  #growing = new AbortController();

  constructor(options: MovesOptions) {
    this.#options = options;
    this.held = new HeldModel(options.engine, options.devices, options.watch);
    this.room = new ModelRoom({ ...options, unused: (grant) => { this.giveBack(grant); } }, this.held);
  }

  get leases(): readonly string[] {
    return this.#leases;
  }

  /** What a command for that lease has done on its card. */
  outcomeOn(lease: string): { readonly freedBytes: number; readonly residentBytes: number; readonly hostBytes: number } {
    const index = Math.max(0, this.#lastLeases.indexOf(lease));
    return { freedBytes: this.#freedBytes[index] ?? 0, residentBytes: this.held.residentBytesOn(index), hostBytes: this.held.hostBytesOn(index) };
  }

  // ── Room ───────────────────────────────────────────────────────────────

  async ask(action: Act<'ask'>): Promise<void> {
    const { signal } = this.#asking = new AbortController();
    const { feed, key } = this.#options;
    try {
      const grants = await this.room.forModel(action.lease === null ? [] : this.#leases, action.context, signal);
      const [first] = grants;
      if (signal.aborted || first === undefined) {
        for (const grant of grants) this.giveBack(grant);
        return;
      }
      this.#setLeases(grants.map(({ lease }) => lease));
      // A copy of a part of it is of no use.
      this.#keepCopy = grants.some(({ keepCopy }) => keepCopy === false) ? false : first.keepCopy;
      feed({ type: 'load_granted', lease: first.lease });
    } catch (error) {
      if (!signal.aborted) feed({ type: 'load_denied', failure: toFailure(error, 'load_failed', key) });
    }
  }

  withdraw(): void {
    this.#asking.abort();
  }

  /** A grant that nobody wants any more. One that extends a lease we hold is taken, and undone by saying what is held. */
  giveBack({ lease }: Pick<Grant, 'lease'>): void {
    if (!this.#leases.includes(lease)) {
      this.#send(lease, 'unused', null);
      return;
    }
    this.#options.channel.send({ type: 'loading', lease });
    this.report(this.#options.state(), true);
  }

  /** All of the model’s leases, of which the door knows the first. */
  release(lease: string, cause: Act<'release'>['cause'], failure: Act<'release'>['failure']): void {
    const leases = this.#lastLeases[0] === lease ? this.#lastLeases : [lease];
    if (this.#leases[0] === lease) this.#leases = [];
    this.#options.reports.flushUse();
    for (const each of leases) this.#send(each, cause, failure);
  }

  #send(lease: string, cause: Act<'release'>['cause'], failure: Act<'release'>['failure']): void {
    const why = failure === null ? null : { code: failure.code, message: toError(failure, this.#options.key).message };
    this.#options.channel.send({ type: 'release_lease', lease, cause, failure: why });
  }

  #setLeases(leases: readonly string[]): void {
    this.#leases = leases;
    this.#lastLeases = leases;
    this.#freedBytes = [];
  }

  // ── Loading ────────────────────────────────────────────────────────────

  async load(action: Act<'load'>): Promise<void> {
    const { channel, key, feed } = this.#options;
    const { signal } = this.#moving = new AbortController();
    const startedUs = nowUs();
    const progress = (fraction: number | null): void => { this.#options.stage('loading', fraction, `loading ${key}`, this.room.explain); };
    for (const lease of this.#leases) channel.send({ type: 'loading', lease });
    progress(null);
    try {
      await this.held.load(this.room.spec, action.context, progress, signal, this.#keepCopy);
    } catch (error) {
      this.#leases = [];
      if (error instanceof HeldBytesError) this.#options.fatal(error);
      else feed({ type: 'load_failed', failure: this.#loadFailure(error), freedBytes: 0, hostBytes: 0 });
      return;
    }
    this.#loaded(startedUs, true);
    feed({ type: 'load_done', parkable: this.held.parkable, partial: this.held.partial, slots: this.held.slots });
  }

  abortLoad(): void {
    this.#moving.abort(new LeaseholdError('request_cancelled', { what: `Loading ${this.#options.key}` }));
  }

  #loadFailure(error: unknown): ReturnType<typeof toFailure> {
    const failure = toFailure(error, 'load_failed', this.#options.key);
    const wantedBytes = Number(failure.details['wantedBytes']);
    const refused = failure.code === 'out_of_memory' && Number.isSafeInteger(wantedBytes) && wantedBytes > 0;
    const named = failure.details['device'];
    const device = this.#options.devices.find((each) => each === named) ?? this.#options.devices[0];
    if (refused && device !== undefined) this.room.refusedBytes.set(device, wantedBytes);
    return failure;
  }

  #loaded(startedUs: number, fresh: boolean): void {
    const loadMs = elapsedMs(startedUs, nowUs());
    this.#options.learned.observe(this.room.learnedKey, this.room.spec, this.held, fresh);
    this.room.refusedBytes.clear();
    this.report('resident', true, loadMs);
    this.#options.loaded(loadMs, this.room.explain);
    this.room.explain = null;
  }

  // ── Moving ─────────────────────────────────────────────────────────────

  async move(action: Act<'move'>): Promise<void> {
    const { devices } = this.#options;
    const before = devices.map((_, index) => this.held.residentBytesOn(index));
    this.#options.learned.observeGrowth(this.room.learnedKey, this.room.spec, this.held);
    try {
      await this.#options.watch.bounded(this.#inWords(action), this.#moved(action));
      this.#freedBytes = before.map((bytes, index) => Math.max(0, bytes - this.held.residentBytesOn(index)));
      const { slots } = this.held;
      if (action.target === 'none' && action.bytes === null) this.#leases = [];
      this.#options.feed({ type: 'move_done', ...this.outcomeOn(action.lease), slots });
    } catch (error) {
      const { key, log } = this.#options;
      const failure = toFailure(error, 'move_failed', key);
      log.line('warn', 'a move failed', { model: key, move: this.#inWords(action), reason: LeaseholdError.from(error).message });
      const left = action.bytes !== null ? 'resident' : this.#left(action.target);
      this.report(left === 'stuck' ? 'unloading' : left, left === 'resident');
      this.#options.feed({ type: 'move_failed', failure, residentBytes: this.held.residentBytesOn(0), left, slots: this.held.slots });
    }
  }

  #inWords({ target, bytes }: Act<'move'>): string {
    const { key } = this.#options;
    if (bytes !== null && target !== 'device') return `Freeing a part of ${key}`;
    return target === 'device' ? `Bringing ${key} back` : `${target === 'host' ? 'Parking' : 'Unloading'} ${key}`;
  }

  async #moved(action: Act<'move'>): Promise<void> {
    const { key } = this.#options;
    if (action.target === 'device') {
      await this.#resumed(action);
    } else if (action.bytes !== null) {
      this.report('parking', false);
      await this.held.freePart(action.bytes);
      // What the parts were stays the most that they may be: a part that is freed is a claim to be seen, not a smaller model.
      this.report('resident', false);
    } else if (action.target === 'host') {
      this.report('parking', false);
      await this.held.park();
    } else {
      this.report('unloading', false);
      this.#options.stage('waiting', null, `${key} is being unloaded; it will be loaded again`, null);
      await this.held.unload();
    }
  }

  async #resumed(action: Act<'move'>): Promise<void> {
    const { channel, key } = this.#options;
    const { signal } = this.#moving = new AbortController();
    const startedUs = nowUs();
    for (const lease of this.#leases) channel.send({ type: 'loading', lease });
    this.report('resuming', false);
    this.#options.stage('resuming', null, `bringing ${key} back to ${this.#options.devices.join(' and ')}`, this.room.explain);
    if (action.context === null) throw new LeaseholdError('internal', { reason: 'a return without a context' });
    await this.held.resume(action.context, signal);
    this.#loaded(startedUs, false);
  }

  #left(target: 'host' | 'none' | 'device'): 'resident' | 'parked' | 'stuck' {
    if (target === 'none') return 'stuck';
    if (target === 'host') return 'resident';
    return this.held.hostBytes > 0 && this.held.residentBytes === 0 ? 'parked' : 'stuck';
  }

  // ── Contexts ───────────────────────────────────────────────────────────

  async openContext(action: Act<'ask_context'>): Promise<void> {
    const { feed, key } = this.#options;
    const context: FirstContext = { name: action.name, tokens: action.tokens };
    const { signal } = this.#growing = new AbortController();
    try {
      await this.room.forContext(this.#leases, context, action.replaces, signal);
      await this.#contextOpened(context, action.replaces, signal);
      this.#options.learned.observe(this.room.learnedKey, this.room.spec, this.held, false);
      feed({ type: 'context_opened', name: context.name, tokens: context.tokens });
    } catch (error) {
      // A grant that crossed our taking it back still counts it.
      this.held.neverOpened(context.name);
      if (error instanceof HeldBytesError) this.#options.fatal(error);
      else feed({ type: 'context_refused', failure: toFailure(error, 'load_failed', key), closed: action.replaces.filter((name) => this.held.context(name) === null) });
    }
  }

  withdrawContext(): void {
    this.#growing.abort(new LeaseholdError('request_cancelled', { what: `A context of ${this.#options.key}` }));
  }

  /** Opened, or not: either way the lease is told what there is. */
  async #contextOpened(context: FirstContext, replaces: readonly string[], signal: AbortSignal): Promise<void> {
    for (const lease of this.#leases) this.#options.channel.send({ type: 'loading', lease });
    try {
      signal.throwIfAborted();
      for (const name of replaces) await this.#closeContext(name);
      await this.#options.watch.bounded(`Opening a context of ${this.#options.key}`, this.held.openContext(context, signal));
    } catch (error) {
      this.held.neverOpened(context.name);
      throw error;
    } finally {
      this.report('resident', true);
    }
  }

  /** A context that cannot be closed leaves the model with bytes that nobody accounts for: that ends the process. */
  async #closeContext(name: string): Promise<void> {
    const closing = this.#options.watch.bounded(`Closing a context of ${this.#options.key}`, this.held.closeContext(name));
    await closing.catch((cause: unknown) => { throw new HeldBytesError(`a context of ${this.#options.key} is to be closed`, cause); });
  }

  // ── Reports ────────────────────────────────────────────────────────────

  /** To each lease, what is on its card. */
  report(state: ResidencyState, measured: boolean, loadMs: number | null = null): void {
    const isTrueUp = state === 'resident' && measured && this.#leases.length > 0;
    if (isTrueUp) this.room.measured((index) => this.held.partsOn(index));
    for (const [index, lease] of this.#leases.entries()) {
      this.#options.reports.residency({
        lease, model: this.#options.key, state, residentBytes: this.held.residentBytesOn(index), hostBytes: this.held.hostBytesOn(index),
        parts: measured ? this.held.partsOn(index) : null, loadMs,
      });
    }
    if (isTrueUp) this.held.toldGone();
  }
}
