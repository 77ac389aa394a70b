/** The core's effects, carried out: answers and commands to sessions, processes, readings, records. */
import { LeaseholdError, isErrorCode, type ControlMessage } from '../../protocol/index.js';
import { errorMessage } from '../../protocol/node/index.js';
import type { Effect } from '../core/effects.js';
import type { CommandAnswer } from '../core/events.js';
import { followAnnouncement } from './announcements.js';
import { errorToAnswer, toAnswer } from './inbound.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { Session, Sessions } from './session.js';
import { logged, noNames, told, type ModelNames } from './told.js';
import { monotonicUs } from '../../protocol/node/clock.js';

type Of<T extends Effect['type']> = Extract<Effect, { type: T }>;
type Command = Extract<ControlMessage, { type: 'model_to_device' | 'trim_host' | 'recall_lease' | 'list_models' }>;
/** What the wire carries of a sentence. */
const reasonCharactersMax = 2_000;

type WithoutId<M> = M extends unknown ? Omit<M, 'id'> : never;

/** What outbound needs of the rest of the shell. */
export interface OutboundParts {
  readonly sessions: Sessions;
  readonly log: Log;
  readonly names: ModelNames;
  feed(event: UntimedEvent): void;
  /** Called before a grant is sent. */
  granting(generation: string, device: string): void;
  spawn(effect: Of<'spawn'>): void;
  terminate(effect: Of<'terminate'>): void;
  /** The typed error behind a reason why a process did not start, where there is one. */
  typedEnd(reason: string): LeaseholdError | null;
  /** Why nothing is started any more; null while the broker is open. */
  closing(): LeaseholdError | null;
  sample(device: string, notBeforeUs: number): void;
  placed(effect: Of<'placed'>): void;
}

export class Outbound {
  readonly #parts: OutboundParts;

  constructor(parts: OutboundParts) {
    this.#parts = parts;
  }

  carryOut(effect: Effect): void {
    switch (effect.type) {
      case 'grant':
        this.#parts.granting(effect.generation, effect.device);
        this.#send(effect.generation, {
          type: 'grant', id: effect.request, lease: effect.lease, device: effect.device, chargedBytes: effect.chargedBytes, explain: effect.explain,
          ...(effect.keepCopy === null ? {} : { keepCopy: effect.keepCopy }), ...(effect.also === undefined ? {} : { also: effect.also }),
        });
        return;
      case 'deny':
        this.#deny(effect);
        return;
      case 'wait':
        this.#send(effect.generation, { type: 'waiting', id: effect.request, position: effect.position, reason: this.#namesFor(effect.generation).inText(effect.reason), explain: effect.explain });
        return;
      case 'acknowledge':
        this.#send(effect.generation, { type: 'ok', id: effect.request });
        return;
      case 'fail':
        this.#fail(effect);
        return;
      case 'report_evicted':
        this.#send(effect.generation, { type: 'evicted', id: effect.request, freedBytes: effect.freedBytes });
        return;
      case 'lease_quarantined':
        this.#send(effect.generation, { type: 'lease_quarantined', lease: effect.lease, bytes: effect.bytes, reason: this.#namesFor(effect.generation).inText(effect.reason).slice(0, reasonCharactersMax) });
        return;
      case 'placed':
        this.#parts.placed(effect);
        return;
      case 'spawn':
        this.#parts.spawn(effect);
        return;
      case 'terminate':
        this.#parts.terminate(effect);
        return;
      case 'sample':
        this.#parts.sample(effect.device, effect.notBeforeUs);
        return;
      case 'explain':
        this.#parts.log.debug(logged({ explain: effect.record.id, verdict: effect.record.verdict, model: effect.record.model }, this.#parts.names), this.#parts.names.inText(effect.record.text));
        return;
      case 'publish':
        this.#publish(effect);
        return;
      case 'cancel_command':
        this.#cancel(effect);
        return;
      case 'move':
      case 'trim_host':
      case 'recall':
      case 'list_models':
        this.#command(effect);
        return;
    }
  }

  /** A program that holds memory itself knows other models by their names alone, if at all; workers and clients by their keys, and clients name them to their users. */
  #namesFor(generation: string): ModelNames {
    return this.#parts.sessions.get(generation)?.role === 'holder' ? this.#parts.names : noNames;
  }

  #send(generation: string, message: ControlMessage): void {
    this.#parts.sessions.get(generation)?.channel.send(message);
  }

  #deny(effect: Of<'deny'>): void {
    const typed = this.#typedDenial(effect);
    const { message, details } = clipped({ code: typed.code, details: told(typed.details, this.#namesFor(effect.generation)) });
    this.#send(effect.generation, {
      type: 'deny', id: effect.request, code: typed.code, message, details, numbers: effect.numbers,
      couldHaveBytes: effect.couldHaveBytes, roomElsewhere: effect.roomElsewhere, retryAfterMs: effect.retryAfterMs, explain: effect.explain,
    });
  }

  /**
   * A worker that ended before it was ready and said of what: its error is the refusal, and stays it during the pause after
   * it. One that ended because the broker does has failed in nothing.
   */
  #typedDenial({ code, details }: Of<'deny'>): { readonly code: string; readonly details: Readonly<Record<string, string>> } {
    const isOfStart = code === 'spawn_failed' || code === 'backing_off';
    const closing = isOfStart ? this.#parts.closing() : null;
    if (closing !== null) return closing;
    const ended = isOfStart ? this.#parts.typedEnd(details['reason'] ?? '') : null;
    if (ended === null || (code === 'backing_off' && ended.retryable)) return { code, details };
    return { code: ended.code, details: { ...details, ...ended.details } };
  }

  #fail(effect: Of<'fail'>): void {
    this.#send(effect.generation, { type: 'error', id: effect.request, code: effect.code, ...clipped({ code: effect.code, details: told(effect.details, this.#namesFor(effect.generation)) }) });
  }

  #publish(effect: Of<'publish'>): void {
    this.#parts.log.info({ event: logged(effect.data, this.#parts.names) }, effect.name);
    for (const session of this.#parts.sessions) session.subscription?.publish(effect.name, effect.data);
    // Whoever looks now sees the ledger after the load: the card's own figure is to be from after it, too.
    const { device } = effect.data;
    if (effect.name === 'loaded' && typeof device === 'string') this.#parts.sample(device, monotonicUs());
  }

  #cancel(effect: Of<'cancel_command'>): void {
    const session = this.#parts.sessions.get(effect.generation);
    const target = session?.commands.get(effect.command);
    if (session !== undefined && target !== undefined) session.channel.send({ type: 'cancel', target });
  }

  /** Sends a command under a wire id of its own and feeds whatever comes of it back. The deadlines are the core's. */
  #command(effect: Of<'move' | 'trim_host' | 'recall' | 'list_models'>): void {
    const session = this.#parts.sessions.get(effect.generation);
    // A worker that is not attached can answer nothing; the core's deadline or the exit event decides.
    if (session === undefined) return;
    session.commands.set(effect.command, session.channel.nextId());
    void session.channel
      .request(toCommand(effect, this.#namesFor(effect.generation)), { timeoutMs: null, onInterim: (message) => { this.#answered(session, effect.command, toAnswer(message)); } })
      .then((message) => { this.#final(session, effect.command, message); }, (error: unknown) => {
        const answer = errorToAnswer(error);
        if (answer !== null) this.#answered(session, effect.command, answer);
      })
      .finally(() => session.commands.delete(effect.command));
  }

  #final(session: Session, command: number, message: ControlMessage): void {
    const { generation } = session;
    followAnnouncement(session, message, (event) => { this.#parts.feed(event); }, this.#parts.log);
    if (message.type === 'recalled') {
      this.#parts.feed({ type: 'recall_answered', generation, command, lease: message.lease, begun: message.begun });
    } else if (message.type === 'models') {
      this.#parts.feed({ type: 'models_announced', generation, seq: message.seq, models: message.models });
    } else {
      this.#answered(session, command, toAnswer(message));
    }
  }

  #answered(session: Session, command: number, answer: CommandAnswer): void {
    this.#parts.feed({ type: 'command_answered', generation: session.generation, command, answer });
  }
}

function toCommand(effect: Of<'move' | 'trim_host' | 'recall' | 'list_models'>, names: ModelNames): WithoutId<Command> {
  switch (effect.type) {
    case 'move':
      return {
        type: 'model_to_device', lease: effect.lease, model: effect.model, generation: effect.generation, target: effect.target,
        device: effect.device, bytes: effect.bytes, when: effect.when, waiterSinceUs: effect.waiterSinceUs, sentUs: monotonicUs(), expiresMs: effect.expiresMs, reason: names.inText(effect.reason),
      };
    case 'trim_host':
      return { type: 'trim_host', lease: effect.lease, model: effect.model, generation: effect.generation, bytes: effect.bytes, sentUs: monotonicUs(), expiresMs: effect.expiresMs };
    case 'recall':
      return { type: 'recall_lease', lease: effect.lease };
    case 'list_models':
      return { type: 'list_models' };
  }
}

/** An answer's text and what fills it, within what a frame carries. */
function clipped({ code, details }: { readonly code: string; readonly details: Readonly<Record<string, string>> }): { readonly message: string; readonly details: Readonly<Record<string, string>> } {
  const error = isErrorCode(code) ? new LeaseholdError(code, details) : new LeaseholdError('internal', { reason: code, ...details });
  const { message, details: fitting } = errorMessage('control', null, error) as Extract<ControlMessage, { type: 'error' }>;
  return { message, details: fitting };
}
