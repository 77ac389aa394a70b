/** A worker: its models by key, the broker’s commands to them, and the calls of its callers. */
import { LeaseholdError, type ControlMessage, type Limits, type ModelSpec, type ModelState } from '../../protocol/index.js';
import { expiresAtUs, refusedUnbegun, takeOrder, type Orders } from '../../protocol/node/index.js';
import { forged } from './model-identity.js';
import { Announcer } from './announcer.js';
import { Call, type CallRequest } from './call.js';
import { nowUs } from './clock.js';
import type { Control, ControlChannel } from './control.js';
import type { DoorAnswer, DoorCommand } from './door.js';
import type { Engine, VisibleCard } from './engine.js';
import { toError } from './failure.js';
import type { WorkerLog } from './log.js';
import type { LearnedSizes } from './learned-sizes.js';
import { ModelHost, devicesOf } from './model-host.js';
import type { CallerLink } from './outbox.js';
import { Reports } from './reports.js';
import { checkRequest } from './run-call.js';

export interface WorkerOptions {
  readonly engine: Engine;
  readonly cards: readonly VisibleCard[];
  readonly channel: ControlChannel;
  readonly generation: string;
  readonly limits: Limits;
  readonly log: WorkerLog;
  readonly learned: LearnedSizes;
  /** The broker wants it to end, within that time. */
  readonly onShutdown: (graceMs: number, reason: string) => void;
  readonly fatal: (error: unknown) => void;
}

export class Worker {
  readonly #options: WorkerOptions;
  readonly #devices: readonly string[];
  readonly #hosts = new Map<string, ModelHost>();
  readonly #reports: Reports;
  readonly #announcer = new Announcer(() => this.#states());
  /** The broker's open commands, by a number of our own: the ids of one broker may be those of the next. */
  readonly #commands = new Map<number, { readonly host: ModelHost; readonly id: number }>();
  #lastCommand = 0;
  #onTold: (() => void) | null = null;
  /** Open commands that take no word before their answer. */
  readonly #curt = new Set<number>();
  #calls = 0;
  /** An order of the broker of now; the next one has not given it. */
  #draining = false;
  #closing = false;
  #onEmpty: (() => void) | null = null;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#devices = devicesOf(options.cards);
    this.#reports = new Reports(options.channel, {
      residencyFlushMs: options.limits.residencyFlushMs,
      acknowledgeMs: options.limits.requestDeadlineMs,
      onRefused: (report, error) => {
        // The connection’s end is told elsewhere, once.
        if (!options.channel.open) return;
        const { model, state } = report;
        options.log.line('warn', 'a residency report was refused', { model, state, code: error.code, reason: error.message });
      },
    });
  }

  /** Bytes held now on each card, for heartbeats: instantaneous, and only our own (R54). */
  get reserved(): { readonly device: string; readonly bytes: number }[] {
    const hosts = [...this.#hosts.values()];
    return this.#devices
      .map((device, index) => ({ device, bytes: hosts.reduce((sum, host) => sum + host.residentBytesOn(index), 0) }))
      .filter(({ bytes }) => bytes > 0);
  }

  get inFlight(): number {
    return [...this.#hosts.values()].reduce((sum, host) => sum + host.inFlight, 0);
  }

  get references(): number {
    return [...this.#hosts.values()].reduce((sum, host) => sum + host.references, 0);
  }

  // ── Calls ──────────────────────────────────────────────────────────────

  /** Takes a call of a caller in. Whatever happens, it gets exactly one final answer, unless its caller is gone. */
  call(request: CallRequest, link: CallerLink, onFinished: (call: Call) => void): Call {
    this.#calls += 1;
    const { limits, engine } = this.#options;
    const call: Call = new Call({
      id: this.#calls, request, link, creditTokensMax: limits.creditTokensMax,
      beforeFinal: () => this.#reports.flush(),
      onLeave: () => { this.#hosts.get(request.model.key)?.leave(call); },
      onFinished: () => {
        this.#hosts.get(request.model.key)?.finished(call);
        onFinished(call);
      },
    });
    const refusal = this.#draining || this.#closing ? new LeaseholdError('shutting_down', { what: 'The worker' })
      : request.model.engine !== engine.name ? new LeaseholdError('engine_unknown', { engine: request.model.engine, known: engine.name })
        : forged(request.model, this.#devices.length) ?? checkRequest(call);
    if (refusal !== null) call.fail(refusal);
    else this.#host(request.model).arrive(call);
    return call;
  }

  #host(spec: ModelSpec): ModelHost {
    const { key } = spec;
    const present = this.#hosts.get(key);
    if (present !== undefined) return present;
    const { engine, channel, limits, fatal, learned } = this.#options;
    const host = new ModelHost({
      key, spec, engine, channel, limits, fatal, learned, devices: this.#devices, reports: this.#reports, log: this.#options.log,
      answer: (command, answer, of) => { this.#answer(command, answer, of); },
      hung: (error) => { this.#hung(error); },
      onGone: (gone) => {
        if (this.#hosts.get(key) === gone) this.#hosts.delete(key);
        if (this.#hosts.size === 0) this.#onEmpty?.();
      },
    });
    this.#hosts.set(key, host);
    return host;
  }

  // ── Commands ───────────────────────────────────────────────────────────

  /** Takes a message of the broker. Every request is answered at once or, once begun, when it is done. */
  take(message: ControlMessage): void {
    takeOrder(message, 'worker', this.#orders);
  }

  readonly #orders: Orders = {
    move: (order) => { this.#move(order); },
    trim: (order) => { this.#trim(order); },
    cancel: (target) => { for (const [command, { host, id }] of this.#commands) if (id === target) host.cancelCommand(command); },
    recall: ({ id, lease }) => { this.#send({ type: 'recalled', id, lease, begun: this.#hostOf(lease) !== undefined }); },
    list: ({ id }) => {
      this.#reports.flushUse();
      this.#options.channel.send({ type: 'models', id, ...this.#announcer.full() });
      this.#toldAll();
    },
    drain: ({ id }) => {
      this.#draining = true;
      this.#send({ type: 'ok', id });
    },
    shutdown: ({ id, graceMs, reason }) => {
      this.#send({ type: 'ok', id });
      this.#options.onShutdown(graceMs, reason);
    },
    refuse: (error) => { this.#send(error); },
  };

  /** A final answer that nobody waits for: a grant among them is given back, so that no bytes stay charged for nobody. */
  stray(message: ControlMessage): void {
    if (message.type !== 'grant') return;
    const holder = this.#hostOf(message.lease);
    if (holder !== undefined) holder.moves.giveBack(message);
    else this.#options.channel.send({ type: 'release_lease', lease: message.lease, cause: 'unused', failure: null });
  }

  #move(message: Control<'model_to_device'>, isCurt = false): void {
    this.#lastCommand += 1;
    const command: DoorCommand = {
      id: this.#lastCommand, lease: message.lease, target: message.target, bytes: message.bytes, when: message.when,
      waiterSinceUs: message.waiterSinceUs, expiresAtUs: expiresAtUs(message, nowUs()),
    };
    const host = this.#hostOf(message.lease);
    const refusal = refusedUnbegun(message, this.#options.generation, host !== undefined);
    if (refusal !== null || host === undefined) {
      if (refusal !== null) this.#send(refusal);
      return;
    }
    this.#commands.set(command.id, { host, id: message.id });
    if (isCurt) this.#curt.add(command.id);
    host.command(command);
  }

  #hostOf(lease: string): ModelHost | undefined {
    return [...this.#hosts.values()].find((host) => host.leases.includes(lease));
  }

  /** A parked model’s host copy is all of it: giving it back is unloading. Of a resident one it goes beside its calls. */
  #trim(message: Control<'trim_host'>): void {
    const host = this.#hostOf(message.lease);
    const refusal = refusedUnbegun(message, this.#options.generation, host !== undefined);
    if (refusal !== null || host === undefined) {
      if (refusal !== null) this.#send(refusal);
    } else if (host.states.some(({ state }) => state === 'parked')) {
      const { id, lease, model, generation, sentUs, expiresMs } = message;
      this.#move({
        type: 'model_to_device', id, lease, model, generation, sentUs, expiresMs, target: 'none', device: null, bytes: null, when: 'now',
        waiterSinceUs: null, reason: 'trim_host',
      }, true);
    } else {
      void host.trim(message).then((answer) => { this.#send(answer); });
    }
  }

  #answer(command: DoorCommand, answer: DoorAnswer, host: ModelHost): void {
    const open = this.#commands.get(command.id);
    if (open === undefined) {
      this.#doneForNobody(command, answer, host);
      return;
    }
    const { id } = open;
    if (answer.kind === 'draining') {
      if (this.#curt.has(command.id)) return;
      this.#reports.flushUse();
      this.#options.channel.send({ type: 'draining', id, inFlight: answer.inFlight });
      return;
    }
    this.#commands.delete(command.id);
    this.#curt.delete(command.id);
    const { freedBytes, residentBytes, hostBytes } = host.moves.outcomeOn(command.lease);
    switch (answer.kind) {
      case 'busy':
        this.#send({ type: 'busy', id, inFlight: answer.inFlight });
        return;
      case 'unsupported':
        this.#send({ type: 'unsupported', id, message: answer.reason });
        return;
      case 'failed': {
        const error = toError(answer.failure, host.key);
        this.#send({ type: 'failed', id, code: answer.failure.code, message: error.code === 'move_failed' ? error.details['reason'] ?? error.message : error.message, residentBytes: answer.residentBytes === null || host.leases.length > 1 ? residentBytes : answer.residentBytes });
        return;
      }
      case 'done':
        this.#send({ type: 'done', id, target: answer.target, freedBytes, residentBytes, hostBytes });
        return;
      case 'already':
        this.#send({ type: 'done', id, target: answer.target, freedBytes: 0, residentBytes, hostBytes });
        return;
    }
  }

  /** The broker that ordered it is gone, and it was too late to leave it: told as our own doing. */
  #doneForNobody({ lease }: DoorCommand, answer: DoorAnswer, host: ModelHost): void {
    if (answer.kind !== 'done') return;
    if (answer.target === 'none') this.#options.channel.send({ type: 'release_lease', lease, cause: 'unloaded', failure: null });
    else host.retell();
  }

  /** An answer of ours: what is used is told before it, what has changed rides on it. */
  #send(answer: Control<'ok' | 'error' | 'recalled' | 'done' | 'busy' | 'unsupported' | 'failed'>): void {
    this.#reports.flushUse();
    this.#options.channel.send({ ...answer, newModels: this.#announcer.next() });
  }

  #states(): ModelState[] {
    return [...this.#hosts.values()].flatMap((host) => host.states);
  }

  /** Ends the process; not before what was just sent has been handed over, which happens in this turn. */
  #hung(error: LeaseholdError): void {
    const { log, fatal } = this.#options;
    log.line('error', 'the engine hangs; this process ends', { code: error.code, reason: error.message });
    setImmediate(() => { fatal(error); });
  }

  // ── The broker's end, and its return ───────────────────────────────────

  /** The connection is gone, calls go on. What was asked over it is void. */
  detached(): void {
    this.#draining = false;
    this.#commands.clear();
    this.#curt.clear();
    for (const host of this.#hosts.values()) host.voidCommands();
  }

  /** A connection is there again; resolves when the broker has asked for everything and been told it. */
  async reattached(): Promise<void> {
    this.#announcer.reset();
    this.#reports.retell();
    const told = new Promise<void>((resolve) => { this.#onTold = resolve; });
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => { timer = setTimeout(resolve, this.#options.limits.commandAnswerMs); });
    await Promise.race([told, patience]);
    clearTimeout(timer);
  }

  /** Everything has been announced; what was measured and how it is used follows. */
  #toldAll(): void {
    if (this.#onTold === null) return;
    for (const host of this.#hosts.values()) host.retell();
    this.#reports.flushUse();
    this.#onTold();
    this.#onTold = null;
  }

  // ── The end ────────────────────────────────────────────────────────────

  /** Ends all calls, unloads everything; resolves when nothing is held any more that can be freed here. */
  async close(): Promise<void> {
    this.#closing = true;
    const empty = new Promise<void>((resolve) => { this.#onEmpty = resolve; });
    for (const host of this.#hosts.values()) host.close();
    if (this.#hosts.size > 0) await empty;
    await this.#reports.flush();
  }
}
