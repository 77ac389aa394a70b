/**
 * Who may send what, and when, as a table. Everything a peer sends is looked
 * up here; what has no entry is a typed error, never skipped. Without I/O, so
 * that the same rules serve sockets, in-memory pairs and the simulator.
 */
import { LeaseholdError } from './errors.js';
import type { MessageDefinition, Sender } from './messages/define.js';
import { planes, type Plane } from './validate.js';

/** What a type is: something asked, something told, or an answer to something asked. */
export type MessageKind = 'request' | 'notification' | 'answer';

/**
 * The life of a session, as both ends see it:
 * new -(hello)-> greeting -(welcome)-> open [-(ready)-> ready]; on the data
 * plane new -(open)-> greeting -(opened)-> ready. Holders and clients are
 * ready with their welcome.
 */
export type SessionState = 'new' | 'greeting' | 'open' | 'ready';

/** One type on one plane: what it is, who may send it, in which states, and what ends it. */
export interface MessageRule {
  readonly type: string;
  readonly kind: MessageKind;
  readonly from: readonly Sender[];
  readonly states: readonly SessionState[];
  readonly final: ReadonlySet<string>;
  readonly interim: ReadonlySet<string>;
  /** May be sent again while open, to raise class and deadline (D2). */
  readonly repeatable: boolean;
}

const always: readonly SessionState[] = ['new', 'greeting', 'open', 'ready'];
const established: readonly SessionState[] = ['open', 'ready'];
const onlyReady: readonly SessionState[] = ['ready'];

/** Types that are not bound to the state `ready`. A worker that has not said `ready` may still live, log, measure and end. */
const statesByType: Readonly<Record<Plane, Readonly<Record<string, readonly SessionState[]>>>> = {
  control: {
    hello: ['new'],
    welcome: ['greeting'],
    ready: ['open'],
    error: always,
    ok: established,
    cancel: established,
    heartbeat: established,
    floor: established,
    log: established,
    drain: established,
    shutdown: established,
    list_models: established,
    models: established,
    ledger: established,
    ledger_state: established,
    card_allocate: established,
    card_allocated: established,
    card_oom: established,
    card_free: established,
  },
  data: {
    open: ['new'],
    opened: ['greeting'],
    error: always,
  },
};

const repeatable: ReadonlySet<string> = new Set(['request_vram_budget']);

/** Which message moves a session on, and where to. */
const steps: Readonly<Record<Plane, Readonly<Record<string, SessionState>>>> = {
  control: { hello: 'greeting', welcome: 'open', ready: 'ready' },
  data: { open: 'greeting', opened: 'ready' },
};

function rulesOf(plane: Plane): ReadonlyMap<string, MessageRule> {
  const table: [string, MessageDefinition][] = Object.entries(planes[plane]);
  const answers = new Set(table.flatMap(([, definition]) => [...definition.answers, ...definition.interim]));
  return new Map(
    table.map(([type, definition]) => [
      type,
      {
        type,
        kind: answers.has(type) ? 'answer' : definition.answers.length > 0 ? 'request' : 'notification',
        from: definition.from,
        states: statesByType[plane][type] ?? onlyReady,
        // Whatever else ends it, a request may fail.
        final: new Set(definition.answers.length > 0 ? [...definition.answers, 'error'] : []),
        interim: new Set(definition.interim),
        repeatable: repeatable.has(type),
      },
    ]),
  );
}

/** The whole table, by plane and type. */
export const messageRules: Readonly<Record<Plane, ReadonlyMap<string, MessageRule>>> = {
  control: rulesOf('control'),
  data: rulesOf('data'),
};

/** One end's view of one connection. */
export class Session {
  readonly plane: Plane;
  readonly side: Sender;
  readonly #rules: ReadonlyMap<string, MessageRule>;
  #peer: Sender | null;
  #state: SessionState = 'new';

  constructor(plane: Plane, side: Sender) {
    this.plane = plane;
    this.side = side;
    this.#rules = messageRules[plane];
    this.#peer = plane === 'data' ? (side === 'worker' ? 'caller' : 'worker') : side === 'broker' ? null : 'broker';
  }

  get state(): SessionState {
    return this.#state;
  }

  /** The peer's role: for a broker, null until its hello came. */
  get peer(): Sender | null {
    return this.#peer;
  }

  /** True for the end that waits to be greeted: it trusts nothing before that. */
  get listens(): boolean {
    return this.plane === 'control' ? this.side === 'broker' : this.side === 'worker';
  }

  get greeted(): boolean {
    return this.#state === 'open' || this.#state === 'ready';
  }

  rule(type: string): MessageRule | undefined {
    return this.#rules.get(type);
  }

  /** Null when this side may send `type` now. */
  refuseSending(rule: MessageRule): LeaseholdError | null {
    return this.#refuse(rule, this.side);
  }

  /** Null when the peer may send `type` now. */
  refuseReceiving(rule: MessageRule): LeaseholdError | null {
    return this.#refuse(rule, this.#peer);
  }

  /** To be called for each message that was sent or taken in, in order. `role` is the one that a hello names. */
  advance(type: string, role: Sender | null): void {
    const next = steps[this.plane][type];
    if (next === undefined) return;
    if (type === 'hello' && this.side === 'broker') this.#peer = role;
    // Only a worker has an engine that must come up first.
    const isWorker = this.side === 'worker' || this.#peer === 'worker';
    this.#state = next === 'open' && !isWorker ? 'ready' : next;
  }

  #refuse(rule: MessageRule, sender: Sender | null): LeaseholdError | null {
    if (!rule.states.includes(this.#state)) return unexpected(rule.type, `the session is ${this.#state}`);
    // A peer without a role is one that has not said hello: the states have let only the first frame through.
    if (sender === null || rule.from.includes(sender)) return null;
    return unexpected(rule.type, `a ${sender} does not send it`);
  }
}

/** How an answer of this type ends or accompanies a request of that type; null when it does neither. */
export function answerKind(request: MessageRule, answer: string): 'final' | 'interim' | null {
  return request.final.has(answer) ? 'final' : request.interim.has(answer) ? 'interim' : null;
}

function unexpected(type: string, reason: string): LeaseholdError {
  return new LeaseholdError('message_unexpected', { type, reason });
}
