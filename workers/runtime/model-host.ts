/** One model of this worker: its door, the calls at it, and what it holds. */
import { LeaseholdError, type Limits, type ModelSpec, type ModelState } from '../../protocol/index.js';
import type { Call } from './call.js';
import { elapsedMs, nowUs } from './clock.js';
import { cpuDevice } from './budget.js';
import { CommandGroup } from './command-group.js';
import type { Control, ControlChannel } from './control.js';
import { createDoor, leaseOf, references, stepDoor, wakeAtUs, type Door, type DoorAction, type DoorAnswer, type DoorCommand } from './door.js';
import { EngineWatch } from './engine-watch.js';
import type { Engine } from './engine.js';
import { toError } from './failure.js';
import type { LearnedSizes } from './learned-sizes.js';
import type { WorkerLog } from './log.js';
import { taken } from './model-identity.js';
import { ModelMoves, type UntimedDoorEvent } from './model-moves.js';
import { mostUrgent, type Waiting } from './model-room.js';
import type { Reports } from './reports.js';
import { deliver, runCall } from './run-call.js';
import { trimHost, type TrimAnswer } from './trim.js';

export interface HostOptions {
  readonly key: string;
  /** Of the first call: whoever comes later under its key means the same. */
  readonly spec: ModelSpec;
  readonly engine: Engine;
  /** The cards that this process sees; a model is on all of them. */
  readonly devices: readonly string[];
  readonly channel: ControlChannel;
  readonly reports: Reports;
  readonly limits: Limits;
  readonly learned: LearnedSizes;
  readonly log: WorkerLog;
  readonly answer: (command: DoorCommand, answer: DoorAnswer, host: ModelHost) => void;
  /** Nothing is held and nobody is here. */
  readonly onGone: (host: ModelHost) => void;
  readonly fatal: (error: unknown) => void;
  /** The engine does not end what it has to end: this process is of no use any more. */
  readonly hung: (error: LeaseholdError) => void;
}

type StageText = Parameters<Call['stage']>;

/** How long a call waits for a free context before a further one is asked for, and the pause after a refusal. */
const growAfterUs = 50_000;
const growPauseUs = 5_000_000;

export class ModelHost {
  readonly key: string;
  readonly moves: ModelMoves;
  readonly #options: HostOptions;
  readonly #door: Door;
  readonly #calls = new Map<number, Call>();
  /** Calls that were told to stop and have not: each with the end of its watch. */
  readonly #stopping = new Map<number, () => void>();
  readonly #watch: EngineWatch;
  readonly #commands: CommandGroup;
  readonly #events: UntimedDoorEvent[] = [];
  #feeding = false;
  #spec: ModelSpec;
  #stage: StageText | null = null;
  #wake: NodeJS.Timeout | null = null;
  #toldUse = '';
  #toldLeases: readonly string[] = [];

  constructor(options: HostOptions) {
    this.#options = options;
    this.key = options.key;
    this.#spec = options.spec;
    const { drainBatchMax, queuedCallsPerModelMax, backoffFirstMs } = options.limits;
    this.#door = createDoor({ drainBatchMax, queuedCallsMax: queuedCallsPerModelMax, retryAfterMs: backoffFirstMs, growAfterUs, growPauseUs });
    this.#watch = new EngineWatch({ limits: options.limits, onHung: (error) => { this.#hung(error); } });
    this.#commands = new CommandGroup((command, answer) => { options.answer(command, answer, this); });
    this.moves = new ModelMoves({
      ...options,
      watch: this.#watch,
      spec: () => this.#spec,
      waiting: () => this.#waiting(),
      state: () => this.#door.residency.kind,
      feed: (event) => { this.feed(event); },
      stage: (...stage) => { this.#tellStage(stage); },
      loaded: (loadMs, explain) => { this.#loadedFor(loadMs, explain); },
    });
  }

  /** One for each card; none while nothing is granted. */
  get leases(): readonly string[] {
    return leaseOf(this.#door) === null ? [] : this.moves.leases;
  }

  /** On the card of that place among those that the process sees. */
  residentBytesOn(index: number): number {
    return this.moves.held.residentBytesOn(index);
  }

  get inFlight(): number {
    return this.#door.begun.size;
  }

  /** Calls that hold a reference, queued ones too. */
  get references(): number {
    return references(this.#door);
  }

  /** As the broker is told, once for each card; nothing while nothing is held and nothing is on its way. */
  get states(): readonly ModelState[] {
    const { residency } = this.#door;
    const { held, room } = this.moves;
    if (residency.kind === 'absent') return [];
    // Back on the card only once that is granted.
    const state = residency.kind === 'resuming' && residency.phase === 'asking' ? 'parked' : residency.kind;
    const { leases } = this;
    return this.#options.devices.map((device, index) => {
      const lease = leases[index] ?? null;
      const terms = lease === null ? undefined : room.terms[index];
      return {
        model: this.key, lease, device, state, residentBytes: held.residentBytesOn(index), hostBytes: held.hostBytesOn(index),
        inFlight: this.inFlight, parkable: held.parkable, ...(terms === undefined ? {} : { terms }),
      };
    });
  }

  /**
   * A call arrives. How much context it wants, and for how many, counts from now on; what is loaded does not change by it.
   * One that means another model by this key is refused: what is here would answer it, or it whoever comes next.
   */
  arrive(call: Call): void {
    const refusal = taken(this.#spec, call.spec);
    if (refusal !== null) {
      call.fail(refusal);
      return;
    }
    this.#spec = call.spec;
    this.#calls.set(call.id, call);
    this.feed({ type: 'call_arrived', call: call.forDoor(), parallel: call.spec.embedding ? 1 : call.spec.parallel });
    if (this.#stage !== null && this.#door.queue.some(({ id }) => id === call.id)) call.stage(...this.#stage);
    this.moves.room.raise();
  }

  /**
   * Its caller left, or its deadline passed. A begun call is answered when the
   * engine has stopped, or at the latest after cancelWithinMs; an engine that
   * has not stopped after stopTimeoutMs never will.
   */
  leave(call: Call): void {
    if (!this.#door.begun.has(call.id)) {
      this.feed({ type: 'call_cancelled', call: call.id });
      call.finishLeft();
      return;
    }
    setTimeout(() => { call.finishLeft(); }, this.#options.limits.cancelWithinMs).unref();
    this.#stopping.set(call.id, this.#watch.stopping(`A cancelled ${call.request.type} with ${this.key}`));
  }

  /** The call’s final answer has left. */
  finished(call: Call): void {
    this.#calls.delete(call.id);
    this.#goneWhenIdle();
  }

  /** The door knows the model’s first lease; a command for another card’s lease is one for the whole model as well. */
  command(command: DoorCommand): void {
    const { leases } = this;
    if (this.#commands.join(command, leases, this.references)) return;
    const lead = leases.includes(command.lease) ? leases[0] : undefined;
    this.feed({ type: 'command_arrived', command: { ...command, lease: lead ?? command.lease } });
  }

  /** Gives back what it can of the machine's memory, and goes on serving. */
  trim(order: Control<'trim_host'>): Promise<TrimAnswer> {
    const { key, engine, log } = this.#options;
    const isMoving = this.#door.residency.kind !== 'resident' || this.#door.underway?.phase === 'moving';
    return trimHost(order, { key, engine, watch: this.#watch, held: this.moves.held, card: Math.max(0, this.leases.indexOf(order.lease)), isMoving, references: this.references, log });
  }

  cancelCommand(command: number): void {
    if (!this.#commands.cancel(command)) this.feed({ type: 'command_cancelled', command });
  }

  /** The broker that gave them is gone: what has not begun is not begun, what has is our own affair from now on. */
  voidCommands(): void {
    const { underway, later } = this.#door;
    for (const command of [...(underway === null ? [] : [underway.command]), ...later]) this.feed({ type: 'command_cancelled', command: command.id });
  }

  /** Says anew what is held and how it is used, to a broker that may not have heard it. */
  retell(): void {
    const { kind } = this.#door.residency;
    if (kind === 'resident' || kind === 'parked') this.moves.report(kind, kind === 'resident');
    this.#toldUse = '';
    this.#reportUse();
  }

  /** Takes no more calls, ends those that are here, and leaves the card. */
  close(): void {
    for (const call of this.#calls.values()) call.leave(new LeaseholdError('shutting_down', { what: 'The worker' }));
    this.feed({ type: 'closed' });
    this.#goneWhenIdle();
  }

  /** One event after the other: what an action causes at once waits its turn. */
  feed(event: UntimedDoorEvent): void {
    this.#events.push(event);
    if (this.#feeding) return;
    this.#feeding = true;
    try {
      for (let next = this.#events.shift(); next !== undefined; next = this.#events.shift()) {
        for (const action of stepDoor(this.#door, { ...next, atUs: nowUs() })) this.#perform(action);
      }
    } finally {
      this.#feeding = false;
    }
    this.#afterStep();
  }

  #perform(action: DoorAction): void {
    switch (action.type) {
      case 'ask':
        void this.moves.ask(action);
        return;
      case 'withdraw':
        this.moves.withdraw();
        return;
      case 'load':
        void this.moves.load(action);
        return;
      case 'abort_load':
        this.moves.abortLoad();
        return;
      case 'begin':
        this.#begin(action.call, action.slot);
        return;
      case 'fail':
        for (const id of action.calls) this.#calls.get(id)?.fail(toError(action.failure, this.key));
        return;
      case 'answer':
        this.#commands.answer(action.command.id, action.answer);
        return;
      case 'move':
        void this.moves.move(action);
        return;
      case 'release':
        this.moves.release(action.lease, action.cause, action.failure);
        return;
      case 'ask_context':
        void this.moves.openContext(action);
        return;
      case 'withdraw_context':
        this.moves.withdrawContext();
        return;
    }
  }

  #begin(id: number, slot: string | null): void {
    const call = this.#calls.get(id);
    if (call === undefined) throw new LeaseholdError('internal', { reason: `call ${String(id)} began and is not here` });
    call.beganAtUs = nowUs();
    void this.#run(call, slot);
  }

  async #run(call: Call, slot: string | null): Promise<void> {
    const { unreadStreamMs } = this.#options.limits;
    const { held } = this.moves;
    const outcome = await runCall(call, held.model, held.context(slot), { unreadStreamMs, watch: this.#watch });
    this.#stopping.get(call.id)?.();
    this.#stopping.delete(call.id);
    this.feed({ type: 'call_ended', call: call.id });
    await deliver(call, outcome, unreadStreamMs);
  }

  /** What the broker waits for here is answered, so that it goes on at once; callers learn of it by the end of their connections, and may ask again elsewhere. */
  #hung(error: LeaseholdError): void {
    const { underway, later } = this.#door;
    const failure = { code: 'move_failed', details: { model: this.key, reason: error.message } };
    for (const command of [...(underway === null ? [] : [underway.command]), ...later]) this.#commands.answer(command.id, { kind: 'failed', failure, residentBytes: null });
    this.#options.hung(error);
  }

  #waiting(): Waiting | null {
    return mostUrgent(this.#queued());
  }

  #queued(): Call[] {
    return this.#door.queue.map(({ id }) => this.#calls.get(id)).filter((call) => call !== undefined);
  }

  #tellStage(stage: StageText): void {
    this.#stage = stage;
    for (const call of this.#queued()) call.stage(...stage);
  }

  /** Those who waited for this load learn what it cost them, and which record explains it. */
  #loadedFor(loadMs: number, explain: string | null): void {
    const now = nowUs();
    for (const call of this.#queued()) {
      call.loadMs = Math.min(loadMs, elapsedMs(call.arrivedAtUs, now));
      call.explain = explain;
    }
  }

  #afterStep(): void {
    const { residency, underway, queue } = this.#door;
    if (residency.kind === 'absent' || queue.length === 0) this.#stage = null;
    else if (residency.kind === 'resident') this.#tellStage(['queued', null, underway === null ? 'waiting for a free context' : 'the model makes room for another', null]);
    this.#reportUse();
    this.#setWake();
    this.#goneWhenIdle();
  }

  #reportUse(): void {
    const { leases } = this;
    const told = `${leases.join(' ')} ${String(this.inFlight)} ${String(this.#door.queue.length)}`;
    if (told === this.#toldUse) return;
    this.#toldUse = told;
    for (const lease of this.#toldLeases) if (!leases.includes(lease)) this.#options.reports.forget(lease);
    this.#toldLeases = leases;
    for (const lease of leases) this.#options.reports.use(this.key, lease, this.inFlight, this.#door.queue.length);
  }

  #setWake(): void {
    if (this.#wake !== null) clearTimeout(this.#wake);
    this.#wake = null;
    const atUs = wakeAtUs(this.#door);
    if (atUs === null) return;
    const delayMs = Math.min(Math.max(1, Math.ceil((atUs - nowUs()) / 1000)), 2 ** 31 - 1);
    this.#wake = setTimeout(() => { this.feed({ type: 'ticked' }); }, delayMs);
    this.#wake.unref();
  }

  #goneWhenIdle(): void {
    const door = this.#door;
    const busy = this.#feeding || this.#events.length > 0 || this.#calls.size > 0 || references(door) > 0 || door.underway !== null || door.later.length > 0;
    // What could not be unloaded goes with the process: a worker that is closing need not wait for it.
    const stuck = door.closed && door.residency.kind === 'unloading' && door.residency.stuck;
    if (busy || (door.residency.kind !== 'absent' && !stuck)) return;
    for (const lease of this.#toldLeases) this.#options.reports.forget(lease);
    this.#options.onGone(this);
  }
}

/** The cards that models of this worker are loaded on: all that it sees, in the order of their UUIDs, else the pseudo-card (D18). */
export function devicesOf(cards: readonly { readonly device: string }[]): readonly string[] {
  return cards.length === 0 ? [cpuDevice] : cards.map(({ device }) => device).sort();
}
