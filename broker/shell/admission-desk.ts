/**
 * Where connections arrive. Until a valid hello a peer is nobody: small frames,
 * little time, few of them, and a rejected one costs the genuine one nothing.
 */
import { LeaseholdError, protocolVersion, type ControlMessage, type Limits } from '../../protocol/index.js';
import { Anteroom, HeldTotal, openChannel, type ByteStream, type Channel } from '../../protocol/node/index.js';

type Hello = Extract<ControlMessage, { type: 'hello' }>;

export interface Desk {
  /** Checks the hello; returns who takes the peer over from here, or throws why it is refused. */
  admit(hello: Hello, stream: ByteStream, channel: Channel<'control'>): Resident;
  /** How many more sessions of holders and clients there may be. */
  freePlaces(): number;
}

/** What an admitted peer's channel is wired to. */
export interface Resident {
  onMessage(message: ControlMessage): void;
  onClose(error: LeaseholdError): void;
}

export class AdmissionDesk {
  readonly #limits: Limits;
  readonly #desk: Desk;
  readonly #total: HeldTotal;
  readonly #waiting: Anteroom<Channel<'control'>>;
  #closed = false;

  constructor(limits: Limits, desk: Desk) {
    this.#limits = limits;
    this.#desk = desk;
    this.#total = new HeldTotal(limits.heldTotalBytesMax);
    this.#waiting = new Anteroom({ limits, freePlaces: () => desk.freePlaces() });
  }

  /** Takes a fresh connection. The channel itself allows it only small frames and helloTimeoutMs until it is welcomed. */
  receive(stream: ByteStream): void {
    let resident: Resident | null = null;
    const channel = openChannel(stream, {
      plane: 'control',
      side: 'broker',
      limits: this.#limits,
      total: this.#total,
      handlers: {
        onMessage: (message) => {
          if (resident !== null) resident.onMessage(message);
          else resident = this.#hello(message, stream, channel);
        },
        onClose: (error) => {
          this.#waiting.leave(channel);
          resident?.onClose(error);
        },
      },
    });
    if (this.#closed) channel.destroy(shuttingDown());
    else this.#waiting.enter(channel);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** From now on nobody is admitted. */
  close(): void {
    this.#closed = true;
    for (const channel of [...this.#waiting]) channel.destroy(shuttingDown());
  }

  #hello(message: ControlMessage, stream: ByteStream, channel: Channel<'control'>): Resident | null {
    try {
      if (message.type !== 'hello') {
        throw new LeaseholdError('message_unexpected', { type: message.type, reason: 'hello comes first' });
      }
      if (message.protocol !== protocolVersion) {
        throw new LeaseholdError('protocol_version', { theirs: message.protocol, ours: protocolVersion });
      }
      checkUid(stream);
      checkPid(stream, message.role);
      const resident = this.#desk.admit(message, stream, channel);
      this.#waiting.leave(channel);
      return resident;
    } catch (error) {
      channel.destroy(LeaseholdError.from(error));
      return null;
    }
  }
}

export function shuttingDown(): LeaseholdError {
  return new LeaseholdError('shutting_down', { what: 'The broker' });
}

/**
 * On Linux the system vouches for the peer's uid; a peer whose uid cannot be
 * read is refused (R66). Elsewhere the 0600 socket in a 0700 folder and the
 * proof are the gate.
 */
function checkUid(stream: ByteStream): void {
  const ours = process.getuid?.();
  if (process.platform !== 'linux' || ours === undefined) return;
  if (stream.peerUid !== ours) throw new LeaseholdError('peer_uid', { theirs: stream.peerUid ?? 'unknown', ours });
}

/**
 * The system says 0 of a peer in a namespace of pids that cannot be seen from here. That is no pid: nobody could tell
 * when such a process ends, or which of them all it is. A client holds nothing, and may come from there.
 */
function checkPid(stream: ByteStream, role: Hello['role']): void {
  if (stream.peerPid === 0 && role !== 'client') throw new LeaseholdError('peer_pid_unseen', { role });
}
