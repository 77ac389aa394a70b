/** Who an admitted peer is, and what each of its messages leads to: events for the core, readings for itself, cards, state. */
import { LeaseholdError, protocolVersion, type ControlMessage, type Limits } from '../../protocol/index.js';
import { errorMessage, verifyHello, type ByteStream, type Channel } from '../../protocol/node/index.js';
import type { Desk, Resident } from './admission-desk.js';
import type { CardDesk } from './card-desk.js';
import { toEvent } from './inbound.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { Queries } from './queries.js';
import type { Sessions, Session} from './session.js';
import { Subscription } from './subscription.js';
import type { Workers } from './workers.js';

type Hello = Extract<ControlMessage, { type: 'hello' }>;
type Welcome = Extract<ControlMessage, { type: 'welcome' }>;

export interface ReceptionOptions {
  readonly bootId: string;
  readonly secret: string;
  readonly limits: Limits;
  readonly sessions: Sessions;
  readonly workers: Workers;
  readonly cards: CardDesk;
  readonly queries: Queries;
  readonly devices: Welcome['devices'];
  readonly log: Log;
  readonly feed: (event: UntimedEvent) => void;
  /** Start time of a pid, so that it is not mistaken for a later one; null where the system does not tell. */
  readonly startTimeOf: (pid: number) => string | null;
  /** The core still keeps something for this session. */
  readonly isInLedger: (generation: string) => boolean;
}

export class Reception implements Desk {
  readonly #options: ReceptionOptions;
  #attached = 0;

  constructor(options: ReceptionOptions) {
    this.#options = options;
  }

  admit(hello: Hello, stream: ByteStream, channel: Channel<'control'>): Resident {
    verifyHello(this.#options.secret, hello);
    // Workers were started by us, and workersMax bounds them: whoever else is here never keeps them out.
    if (hello.role !== 'worker' && this.#options.sessions.peers >= this.#options.limits.sessionsMax) {
      throw new LeaseholdError('too_many_sessions', { limit: this.#options.limits.sessionsMax });
    }
    const { generation, threads, devices } = hello.role === 'worker' ? this.#admitWorker(hello) : this.#admitPeer();
    const pid = stream.peerPid ?? hello.pid;
    const session: Session = {
      generation, role: hello.role, name: hello.name, channel, commands: new Map(), subscription: null, announcedSeq: 0,
      identity: { pid, startTime: this.#options.startTimeOf(pid) },
    };
    this.#options.sessions.add(session);
    this.#welcome(session, hello, threads, devices);
    this.#opened(session, hello.role, devices.map(({ device }) => device));
    return {
      onMessage: (message) => { this.#take(session, message); },
      onClose: (error) => { this.#closed(session, error); },
    };
  }

  #admitWorker(hello: Hello): { generation: string; threads: number; devices: Welcome['devices'] } {
    const expected = hello.spawn === null ? null : this.#options.workers.expected(hello.spawn);
    if (expected === null) throw new LeaseholdError('hello_refused', { role: hello.role });
    this.#options.workers.attach(expected.generation);
    const devices = this.#options.devices.filter(({ device }) => expected.devices.includes(device));
    return { generation: expected.generation, threads: expected.threads, devices };
  }

  #admitPeer(): { generation: string; threads: number; devices: Welcome['devices'] } {
    this.#attached += 1;
    return { generation: `${this.#options.bootId}-s${String(this.#attached)}`, threads: 0, devices: this.#options.devices };
  }

  #welcome(session: Session, hello: Hello, threads: number, devices: Welcome['devices']): void {
    const { bootId, limits } = this.#options;
    session.channel.send({
      type: 'welcome', id: hello.id, protocol: protocolVersion, bootId, generation: session.generation,
      heartbeatIntervalMs: limits.heartbeatIntervalMs, frameBytesMax: limits.frameBytesMax, threads,
      reattachGraceMs: limits.reattachGraceMs, devices,
    });
  }

  #opened(session: Session, role: Hello['role'], devices: readonly string[]): void {
    const { generation, identity, name } = session;
    this.#options.log.info({ generation, role, name, peerPid: identity.pid }, 'session opened');
    if (role === 'worker') {
      this.#options.cards.attach(session, devices);
      return;
    }
    // A holder's end is its pid's end, not its connection's (D7); our own process ends with us.
    if (role === 'holder' && identity.pid !== process.pid) this.#options.workers.watch(generation, identity);
    this.#options.feed({ type: 'session_opened', generation, role, name });
  }

  #take(session: Session, message: ControlMessage): void {
    try {
      this.#handle(session, message);
    } catch (error) {
      const typed = LeaseholdError.from(error);
      this.#options.log.warn({ generation: session.generation, type: message.type, code: typed.code }, typed.message);
      // A notification has nobody to answer to.
      if (!('id' in message)) return;
      session.channel.send(errorMessage('control', message.id, typed));
    }
  }

  #handle(session: Session, message: ControlMessage): void {
    const { queries, cards, workers } = this.#options;
    switch (message.type) {
      case 'ready':
        workers.ready(session.generation, message);
        session.channel.send({ type: 'ok', id: message.id });
        break;
      case 'log':
        this.#options.log[message.level]({ generation: session.generation, ...message.fields }, message.message);
        return;
      case 'subscribe':
        session.subscription = new Subscription(session.channel, this.#options.limits.outgoingBytesMax / 4);
        session.channel.send({ type: 'ok', id: message.id });
        return;
      case 'ledger':
      case 'explain':
        session.channel.send(queries.answer(message));
        return;
      case 'card_allocate':
      case 'card_free':
        session.channel.send(cards.answer(session, message));
        return;
      default:
        break;
    }
    const event = toEvent(session.generation, message);
    if (event !== null) this.#options.feed(event);
    if (message.type === 'cancel') this.#answerCancelled(session, message.target);
  }

  /** The id is over: the core says nothing more under it. Should a final answer have been faster, the channel drops this one. */
  #answerCancelled(session: Session, id: number): void {
    session.channel.send(errorMessage('control', id, new LeaseholdError('request_cancelled', { what: 'The request' })));
  }

  #closed(session: Session, error: LeaseholdError): void {
    this.#options.sessions.delete(session.generation);
    this.#options.log.info({ generation: session.generation, reason: error.message }, 'session closed');
    this.#options.feed({ type: 'session_closed', generation: session.generation, reason: error.message });
    // Our own process as a holder gives everything back by closing: there is no later exit to wait for.
    if (session.role === 'holder' && session.identity.pid === process.pid) {
      this.#options.cards.closed(session.generation);
      this.#options.feed({ type: 'process_exited', generation: session.generation, how: 'closed' });
    }
    // Nothing of it is left to come back when its process ends: a process that comes and goes all day costs nothing.
    if (!this.#options.isInLedger(session.generation) && !this.#options.cards.holds(session.generation)) this.#options.workers.unwatch(session.generation);
  }
}
