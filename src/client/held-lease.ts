/// <reference lib="esnext.disposable" preserve="true" />
/** One lease that this process holds itself: reported as it is used, and given back when the broker wants it and nothing uses it. */
import {
  durationText, LeaseholdError, deniedError, type ControlMessage, type HostNeed, type LeasePart, type LeaseTerms, type Limits, type ModelPolicy, type ModelState, type NewModels, type RequestClass, type ResidencyState,
} from '../../protocol/index.js';
import { expiresAtUs, monotonicUs, type Line } from '../../protocol/node/index.js';
import { checkEvictAnswer, checkMeasured, checkParts, type EvictAnswer, type Measured } from './measured.js';
import { answerMs, patiently } from './silence.js';
import { warn } from './warn.js';

export type { EvictAnswer, Measured } from './measured.js';

type Control<T extends ControlMessage['type']> = Extract<ControlMessage, { readonly type: T }>;

/** What the broker wants. */
export interface EvictOrder {
  /** `host`: keep a copy in host RAM if you can; `none`: give all back. */
  readonly target: 'host' | 'none' | 'device';
  /** Null: all of it. */
  readonly bytes: number | null;
  readonly when: 'now' | 'drained';
  readonly reason: string;
  /** Aborts when the broker takes the order back, or the session ends, before it has been answered. */
  readonly signal: AbortSignal;
}

/**
 * Frees what is asked and says what is left. A throw, an answer that is none, and one that says that everything is still
 * there are failed moves: the process is warned (`process.on('warning')`), the lease stays as it was and is left alone
 * for a while. The second failure in a row ends it: `use()` throws `quarantined`, and its bytes stay charged until they
 * are seen gone.
 */
export type EvictHandler = (order: EvictOrder) => Promise<EvictAnswer> | EvictAnswer;

export interface HeldLeaseParts {
  readonly line: Line;
  readonly limits: Limits;
  readonly grant: Control<'grant'>;
  readonly parts: readonly LeasePart[];
  readonly model: string;
  readonly parkable: boolean;
  readonly class: RequestClass;
  readonly policy: ModelPolicy;
  /** Of the machine's memory, as asked for; null: nothing. */
  readonly host: HostNeed | null;
  readonly onEvict: EvictHandler;
  readonly tell: (text: string) => string;
  readonly announce: () => NewModels;
  /** It has been given back: by its owner or by an eviction. */
  readonly onReleased: () => void;
}

/** The order underway: waiting for the last use to end, or being carried out. */
interface Underway {
  readonly id: number;
  readonly order: EvictOrder;
  readonly abort: AbortController;
  readonly expiry: NodeJS.Timeout;
  readonly expiresAtUs: number;
  begun: boolean;
  /** The broker that gave it is gone: what comes of it is told as our own doing. */
  void: boolean;
}

export class HeldLease {
  readonly lease: string;
  readonly device: string;
  readonly model: string;
  readonly explain: string | null;
  /** Whether the machine's memory has room for the copy that was asked for; null: nobody counts it. */
  readonly keepCopy: boolean | null;
  #chargedBytes: number;
  #parts: readonly LeasePart[];
  #state: ResidencyState = 'loading';
  #residentBytes = 0;
  #hostBytes = 0;
  #seq = 0;
  #uses = 0;
  /** Living uses by id: the count is derived from the set. */
  readonly #using = new Set<number>();
  /** Null: held. Else why it is not any more. */
  #over: LeaseholdError | null = null;
  #quarantined = false;
  #tellEnded: (why: LeaseholdError) => void = () => undefined;
  /** Resolves, once, when it is held no more, with why: `closed` (given back by `release()` or by `onEvict`), `quarantined`, or how the session ended. */
  readonly ended: Promise<LeaseholdError> = new Promise((resolve) => { this.#tellEnded = resolve; });
  #underway: Underway | null = null;
  readonly #own: HeldLeaseParts;

  constructor(parts: HeldLeaseParts) {
    this.#own = parts;
    this.#parts = parts.parts;
    this.lease = parts.grant.lease;
    this.device = parts.grant.device;
    this.explain = parts.grant.explain;
    this.keepCopy = parts.grant.keepCopy ?? null;
    this.model = parts.model;
    this.#chargedBytes = parts.grant.chargedBytes;
  }

  /** Bytes charged for it, headroom included, as last granted. */
  get chargedBytes(): number {
    return this.#chargedBytes;
  }

  get residentBytes(): number {
    return this.#residentBytes;
  }

  get inFlight(): number {
    return this.#using.size;
  }

  /** True until it is released, evicted or quarantined, or its session has ended. */
  get held(): boolean {
    return this.#over === null;
  }

  get state(): ModelState {
    return {
      model: this.model, lease: this.lease, device: this.device, state: this.#state, residentBytes: this.#residentBytes, hostBytes: this.#hostBytes,
      inFlight: this.inFlight, parkable: this.#own.parkable,
    };
  }

  /** As what it was granted, for a broker that was not there. */
  get terms(): LeaseTerms {
    const { class: requested, policy, host } = this.#own;
    const granted = host === null ? {} : { host: { ...host, copyBytes: this.keepCopy === false ? 0 : host.copyBytes } };
    return { chargedBytes: this.#chargedBytes, parts: this.#parts, class: requested, policy, ...granted };
  }

  /** Says what is on the card now, after loading and whenever it changes. Resolves when the ledger has taken it in. */
  async loaded(measured: Measured): Promise<void> {
    this.#assertHeld();
    checkMeasured(measured);
    this.#state = measured.residentBytes > 0 || (measured.hostBytes ?? 0) === 0 ? 'resident' : 'parked';
    this.#residentBytes = measured.residentBytes;
    this.#hostBytes = measured.hostBytes ?? 0;
    await this.#report(measured.parts ?? this.#parts, measured.loadMs ?? null);
  }

  /** Marks a use; call what it returns when the use ends. While any use lives, an order to evict waits or is told `busy`. */
  use(): () => void {
    this.#assertHeld();
    const id = ++this.#uses;
    this.#using.add(id);
    this.#reportUse();
    return () => {
      if (!this.#using.delete(id)) return;
      this.#reportUse();
      this.#carryOutWhenIdle();
    };
  }

  /** Grows or drops parts; granted at once or refused with numbers, never waits. A part of 0 bytes goes. */
  async resize(parts: readonly LeasePart[], options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#assertHeld();
    checkParts(parts);
    const answer = await patiently(() => this.#own.line.ask(() => ({ type: 'resize_lease', lease: this.lease, parts }), { timeoutMs: answerMs, ...options }), () => this.#own.line.peerPid);
    if (answer.type === 'deny') throw deniedError(answer, { model: this.model, device: this.device, deadlineMs: 0 });
    if (answer.type !== 'grant') throw new LeaseholdError('message_unexpected', { type: answer.type, reason: 'it answers resize_lease' });
    this.#chargedBytes = answer.chargedBytes;
    const byName = new Map(this.#parts.map((part) => [part.name, part]));
    for (const part of parts) {
      if (part.bytes === 0) byName.delete(part.name);
      else byName.set(part.name, part);
    }
    this.#parts = [...byName.values()];
  }

  /** Gives it back: the bytes are, or are about to be, free. What was quarantined can still be given back. Idempotent. */
  release(cause: 'unused' | 'unloaded' | 'load_failed' | 'cancelled' = 'unloaded'): void {
    if (this.#over !== null && !this.#quarantined) return;
    this.#own.line.send({ type: 'release_lease', lease: this.lease, cause, failure: null });
    this.#end('it was released');
    this.#quarantined = false;
  }

  /** `using lease = …` gives it back at the end of the block. */
  [Symbol.dispose](): void {
    this.release();
  }

  /** @internal The broker is gone, and another may come. An order of it that has not begun is not carried out. */
  detached(error: LeaseholdError): void {
    const underway = this.#underway;
    if (underway === null) return;
    underway.void = true;
    if (underway.begun) return;
    underway.abort.abort(error);
    this.#dropOrder();
  }

  /** @internal A broker is there that may not have heard how it stands. */
  retell(): void {
    this.#reportUse();
    if (this.#state === 'resident' || this.#state === 'parked') void this.#report(this.#parts, null).catch(() => undefined);
  }

  /** @internal The session has ended. */
  lost(error: LeaseholdError): void {
    this.#leave(error);
    this.#quarantined = false;
    this.#underway?.abort.abort(error);
    this.#dropOrder();
  }

  /** @internal The broker has given it up: its bytes are charged to nobody's use until they are seen gone. */
  quarantine({ bytes, reason }: Control<'lease_quarantined'>): void {
    if (this.#over !== null) return;
    const error = new LeaseholdError('quarantined', { bytes, device: this.device, reason: `${this.model}: ${this.#own.tell(reason)}` }, { help: 'Free them, then call release() on the lease; until then they stay charged.' });
    this.#quarantined = true;
    this.#leave(error);
    this.#underway?.abort.abort(error);
    this.#dropOrder();
    warn(error);
  }

  /** @internal An order of the broker; answered at once, or when it has been carried out. */
  command(message: Control<'model_to_device'>): void {
    const { id } = message;
    if (this.#underway !== null || (message.when === 'now' && this.inFlight > 0)) {
      this.#answer({ type: 'busy', id, inFlight: this.inFlight });
      return;
    }
    if (message.target === 'device' && !this.#own.parkable) {
      this.#answer({ type: 'unsupported', id, message: `${this.model} is where it is` });
      return;
    }
    this.#own.line.send({ type: 'draining', id, inFlight: this.inFlight });
    const abort = new AbortController();
    const order: EvictOrder = { target: message.target, bytes: message.bytes, when: message.when, reason: this.#own.tell(message.reason), signal: abort.signal };
    const nowUs = monotonicUs();
    const untilUs = expiresAtUs(message, nowUs);
    const expiry = setTimeout(() => { this.#giveUp('command_expired'); }, Math.min(Math.ceil((untilUs - nowUs) / 1_000), 2 ** 31 - 1));
    expiry.unref();
    this.#underway = { id, order, abort, expiry, expiresAtUs: untilUs, begun: false, void: false };
    this.#carryOutWhenIdle();
  }

  /** @internal The broker takes an order back; too late once it is being carried out. */
  cancelCommand(id: number): void {
    if (this.#underway?.id === id) this.#giveUp('request_cancelled');
  }

  #giveUp(code: 'command_expired' | 'request_cancelled'): void {
    const underway = this.#underway;
    if (underway === null || underway.begun) return;
    this.#dropOrder();
    underway.abort.abort(new LeaseholdError(code, { model: this.model, what: 'The eviction' }));
    this.#fail(underway.id, new LeaseholdError(code, { model: this.model, what: 'The eviction' }));
  }

  #carryOutWhenIdle(): void {
    const underway = this.#underway;
    if (underway === null || underway.begun || this.inFlight > 0) return;
    // A process that stood still may come here before its timer.
    if (monotonicUs() >= underway.expiresAtUs) {
      this.#giveUp('command_expired');
      return;
    }
    underway.begun = true;
    void this.#carryOut(underway);
  }

  async #carryOut(underway: Underway): Promise<void> {
    const { id, order } = underway;
    const before = this.#residentBytes;
    const slow = setTimeout(() => { this.#warnSlow(); }, this.#own.limits.leavingSlowMs);
    slow.unref();
    try {
      const answer = await this.#own.onEvict(order);
      clearTimeout(slow);
      if (this.#over !== null) return;
      checkEvictAnswer(answer);
      this.#dropOrder();
      if (underway.void) {
        this.#movedForNobody(answer);
        return;
      }
      if (answer === 'busy') this.#answer({ type: 'busy', id, inFlight: this.inFlight });
      else if (answer === 'unsupported') this.#answer({ type: 'unsupported', id, message: `${this.model} cannot be moved to ${order.target}` });
      else if (order.bytes === null && answer.residentBytes > 0 && answer.residentBytes >= before) throw new LeaseholdError('input_invalid', { field: 'onEvict', reason: `it returned residentBytes ${String(answer.residentBytes)}: all of it is still there; answer 'busy' or 'unsupported' where nothing can be freed` });
      else this.#moved(id, before, answer.residentBytes, answer.hostBytes ?? 0, order.reason);
    } catch (error) {
      clearTimeout(slow);
      // Whoever threw it may not catch it: the broker asked, not they. Of what we said ourselves, the reason is all that is new.
      const reason = error instanceof Error ? error.message : String(error);
      const failure = new LeaseholdError('move_failed', { model: this.model, reason }, { cause: error, help: 'The lease stays as it was and is left alone for a while; a second failure in a row quarantines its bytes.' });
      warn(failure);
      this.#dropOrder();
      if (this.#over === null && !underway.void) this.#fail(id, failure);
    }
  }

  #warnSlow(): void {
    if (this.#over !== null) return;
    warn(new LeaseholdError('move_failed', { model: this.model, reason: `its onEvict has not settled for ${durationText(this.#own.limits.leavingSlowMs)}` }, { help: 'Until it does, the bytes stay charged and whoever waits for them waits; one that never settles ends in quarantine.' }));
  }

  #movedForNobody(answer: EvictAnswer): void {
    if (answer === 'busy' || answer === 'unsupported') return;
    this.#hold(answer.residentBytes, answer.hostBytes ?? 0);
    if (this.#state === 'absent') this.release();
    else this.retell();
  }

  #hold(residentBytes: number, hostBytes: number): void {
    this.#residentBytes = residentBytes;
    this.#hostBytes = hostBytes;
    this.#state = residentBytes > 0 ? 'resident' : hostBytes > 0 ? 'parked' : 'absent';
  }

  /** States what was done, which may be less than was asked. */
  #moved(id: number, before: number, residentBytes: number, hostBytes: number, reason: string): void {
    this.#hold(residentBytes, hostBytes);
    const target = this.#state === 'absent' ? 'none' : 'host';
    this.#answer({ type: 'done', id, target, freedBytes: Math.max(0, before - residentBytes), residentBytes, hostBytes });
    if (target === 'none') this.#end(`it was evicted: ${reason}`);
  }

  #dropOrder(): void {
    if (this.#underway !== null) clearTimeout(this.#underway.expiry);
    this.#underway = null;
  }

  #end(how: string): void {
    this.#leave(new LeaseholdError('closed', { what: `The lease of ${this.model} (${how})` }, { help: 'Ask for a new lease.' }));
    this.#dropOrder();
    this.#own.onReleased();
  }

  #leave(why: LeaseholdError): void {
    if (this.#over !== null && !this.#quarantined) return;
    this.#over = why;
    this.#tellEnded(why);
  }

  #fail(id: number, error: LeaseholdError): void {
    // The broker says itself what failed; why is ours to say.
    const message = error.code === 'move_failed' ? error.details['reason'] ?? error.message : error.message;
    this.#answer({ type: 'failed', id, code: error.code, message, residentBytes: this.#residentBytes });
  }

  #answer(answer: Control<'done' | 'busy' | 'unsupported' | 'failed'>): void {
    this.#own.line.send({ ...answer, newModels: this.#own.announce() });
  }

  #reportUse(): void {
    if (this.#over !== null) return;
    this.#own.line.send({ type: 'in_use', seq: ++this.#seq, lease: this.lease, model: this.model, inFlight: this.inFlight, queued: 0 });
  }

  async #report(parts: readonly LeasePart[], loadMs: number | null): Promise<void> {
    await patiently(() => this.#own.line.ask(() => ({
      type: 'residency', seq: ++this.#seq, lease: this.lease, model: this.model, state: this.#state, residentBytes: this.#residentBytes,
      hostBytes: this.#hostBytes, parts, loadMs,
    }), { timeoutMs: answerMs }), () => this.#own.line.peerPid);
  }

  #assertHeld(): void {
    if (this.#over !== null) throw this.#over;
  }
}

