/** Who an admitted peer is, and what each of its messages leads to: events for the core, readings for itself, cards, state. */
import { LeaseholdError, protocolVersion, type ControlMessage, type Limits } from '../../protocol/index.js';
import { errorMessage, verifyHello, type ByteStream, type Channel } from '../../protocol/node/index.js';
import type { ProcessIdentity } from '../supervisor/types.js';
import type { Desk, Resident } from './admission-desk.js';
import type { BlockedLoops } from './blocked-loops.js';
import type { CardDesk } from './card-desk.js';
import type { Holders } from './holders.js';
import { toEvent } from './inbound.js';
import type { Log } from './log.js';
import type { UntimedEvent } from './loop.js';
import type { PeerLog } from './peer-log.js';
import type { Queries } from './queries.js';
import type { Resumes } from './resume.js';
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
  readonly holders: Holders;
  readonly resumes: Resumes;
  readonly queries: Queries;
  readonly devices: Welcome['devices'];
  readonly log: Log;
  readonly peerLog: PeerLog;
  readonly blockedLoops: BlockedLoops;
  readonly feed: (event: UntimedEvent) => void;
  /** Start time of a pid, so that it is not mistaken for a later one; null where the system does not tell. */
  readonly startTimeOf: (pid: number) => string | null;
  /** The broker is to end: who asks for a place hears no more than that, and asks the next broker. */
  readonly closing: () => boolean;
  /** The core still keeps something for this session. */
  readonly isInLedger: (generation: string) => boolean;
}

/** Who a peer is from now on; `isBack`: the ledger has it already. */
interface Admitted {
  readonly generation: string;
  readonly threads: number;
  readonly devices: Welcome['devices'];
  readonly isBack: boolean;
}

export class Reception implements Desk {
  readonly #options: ReceptionOptions;
  #attached = 0;

  constructor(options: ReceptionOptions) {
    this.#options = options;
  }

  freePlaces(): number {
    return this.#options.limits.sessionsMax - this.#options.sessions.peers;
  }

  admit(hello: Hello, stream: ByteStream, channel: Channel<'control'>): Resident {
    verifyHello(this.#options.secret, hello);
    const pid = stream.peerPid ?? hello.pid;
    this.#checkPlace(hello, pid);
    const identity = { pid, startTime: this.#options.startTimeOf(pid) };
    const { generation, threads, devices, isBack } = hello.role === 'worker' ? this.#admitWorker(hello, pid) : this.#admitPeer(hello, identity);
    const session: Session = { generation, role: hello.role, name: hello.name, channel, commands: new Map(), subscription: null, announcedSeq: 0, identity };
    channel.spared = hello.role === 'worker';
    this.#options.sessions.add(session);
    this.#welcome(session, hello, threads, devices);
    this.#opened(session, hello.role, devices.map(({ device }) => device), isBack);
    return {
      onMessage: (message) => { this.#take(session, message); },
      onClose: (error) => { this.#closed(session, error); },
    };
  }

  /** Throws where no place is left, for anybody or for that process. */
  #checkPlace({ role, resume }: Hello, pid: number): void {
    const { sessions, limits: { sessionsMax, sessionsPerProcessMax } } = this.#options;
    // Workers were started by us, and workersMax bounds them: whoever else is here never keeps them out.
    if (role === 'worker') return;
    // One whose old connection has not been seen to end takes its own place.
    if (resume !== null && sessions.get(resume) !== undefined) return;
    if (this.freePlaces() <= 0) throw new LeaseholdError('too_many_sessions', { limit: sessionsMax });
    if (sessions.peersOf(pid) >= sessionsPerProcessMax) throw new LeaseholdError('too_many_own_sessions', { limit: sessionsPerProcessMax, pid });
  }

  /** The process that opened a session has ended, and nobody is heard on it: whoever else has the connection loses it. */
  gone(generation: string): void {
    const session = this.#options.sessions.get(generation);
    if (session?.role !== 'holder') return;
    const error = new LeaseholdError('connection_lost', { peer: generation, reason: 'the process that opened it has ended' });
    this.#closed(session, error);
    session.channel.destroy(error);
  }

  #admitWorker(hello: Hello, pid: number): Admitted {
    const { workers, resumes } = this.#options;
    const spawn = hello.spawn ?? '';
    const worker = workers.named(spawn);
    resumes.checkWorker(hello.resume, spawn, worker === null ? null : {
      generation: worker.generation, wasAttached: worker.attached, isEnding: worker.ending,
    });
    if (worker === null) throw new LeaseholdError('hello_refused', { role: hello.role });
    this.#supersede(worker.generation);
    const isBack = workers.attach(worker.generation, pid);
    const devices = this.#options.devices.filter(({ device }) => worker.devices.includes(device));
    return { generation: worker.generation, threads: worker.threads, devices, isBack };
  }

  /** A holder or client; one that was here before keeps its name, and a holder with it what the ledger has of it. */
  #admitPeer(hello: Hello, identity: ProcessIdentity): Admitted {
    const { devices, sessions, workers, resumes, isInLedger, bootId } = this.#options;
    if (hello.resume === null) {
      this.#attached += 1;
      return { generation: `${bootId}-s${String(this.#attached)}`, threads: 0, devices, isBack: false };
    }
    const generation = hello.resume;
    const open = sessions.get(generation);
    resumes.checkPeer(generation, identity, { given: this.#attached, identity: open?.identity ?? workers.identityOf(generation) });
    if (open !== undefined && open.role !== hello.role) throw new LeaseholdError('resume_refused', { generation, reason: 'it belongs to another process' });
    this.#supersede(generation);
    const isKnown = isInLedger(generation);
    if (isKnown && hello.role !== 'holder') throw new LeaseholdError('resume_refused', { generation, reason: 'it belongs to another process' });
    return { generation, threads: 0, devices, isBack: isKnown };
  }

  /** Its old connection may not have been seen to end yet: the new one takes its place. */
  #supersede(generation: string): void {
    const old = this.#options.sessions.get(generation);
    if (old === undefined) return;
    const error = new LeaseholdError('connection_lost', { peer: generation, reason: 'it has come by another connection' });
    this.#closed(old, error);
    old.channel.destroy(error);
  }

  #welcome(session: Session, hello: Hello, threads: number, devices: Welcome['devices']): void {
    const { bootId, limits } = this.#options;
    session.channel.send({
      type: 'welcome', id: hello.id, protocol: protocolVersion, bootId, generation: session.generation,
      heartbeatIntervalMs: limits.heartbeatIntervalMs, frameBytesMax: limits.frameBytesMax, threads,
      reattachGraceMs: limits.reattachGraceMs, devices,
    });
  }

  #opened(session: Session, role: Hello['role'], devices: readonly string[], isBack: boolean): void {
    const { generation, identity, name } = session;
    this.#options.log.info({ generation, role, name, peerPid: identity.pid, isBack }, 'session opened');
    if (role === 'worker' || isBack) this.#options.cards.attach(session, role === 'worker' ? devices : []);
    // A holder's end is its pid's end, not its connection's (D7); our own process ends with us.
    if (role === 'holder' && identity.pid !== process.pid) this.#options.workers.watch(generation, identity);
    if (isBack) this.#options.feed({ type: 'process_resumed', generation });
    else if (role !== 'worker') this.#options.feed({ type: 'session_opened', generation, role, name });
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
      case 'heartbeat':
        // A session of our own process runs on our own loop, which we watch ourselves.
        if (session.identity.pid !== process.pid) this.#options.blockedLoops.note(session, message.loopDelayMs);
        break;
      case 'log':
        this.#options.peerLog.take(session, message);
        return;
      case 'subscribe':
        session.subscription = new Subscription(session.channel, this.#options.limits.outgoingBytesMax / 4);
        session.channel.send({ type: 'ok', id: message.id });
        return;
      case 'ledger':
      case 'explain':
        session.channel.send(queries.answer(message));
        // A pass over all there is: one a turn, so that a peer full of questions costs the others one of them at a time.
        session.channel.spendTurn();
        return;
      case 'card_allocate':
      case 'card_free':
        session.channel.send(cards.answer(session, message));
        return;
      case 'ending':
        // What it was told to, by us or by the signal that goes with it.
        if (workers.named(session.generation)?.ending === true) return;
        break;
      default:
        break;
    }
    const event = toEvent(session.generation, message);
    if (event?.type === 'place_requested' && this.#options.closing()) return;
    if (event !== null) this.#options.feed(event);
    if (message.type === 'cancel') this.#answerCancelled(session, message.target);
  }

  /** The id is over: the core says nothing more under it. Should a final answer have been faster, the channel drops this one. */
  #answerCancelled(session: Session, id: number): void {
    session.channel.send(errorMessage('control', id, new LeaseholdError('request_cancelled', { what: 'The request' })));
  }

  #closed(session: Session, error: LeaseholdError): void {
    if (this.#options.sessions.get(session.generation) !== session) return;
    this.#options.sessions.delete(session.generation);
    this.#options.log.info({ generation: session.generation, reason: error.message }, 'session closed');
    this.#options.feed({ type: 'session_closed', generation: session.generation, reason: error.message });
    // Our own process as a holder gives everything back by closing: there is no later exit to wait for.
    if (session.role === 'holder' && session.identity.pid === process.pid) {
      this.#options.cards.closed(session.generation);
      this.#options.feed({ type: 'process_exited', generation: session.generation, how: 'closed' });
    }
    // Nothing of it is left to come back when its process ends: a process that comes and goes all day costs nothing.
    if (this.#options.isInLedger(session.generation) || this.#options.cards.holds(session.generation)) return;
    this.#options.workers.unwatch(session.generation);
    this.#options.holders.forget(session.generation);
  }
}
