/** Bytes both ways, whatever carries them: a unix socket that node-ipc opened, or an in-memory pair. */
export interface ByteStream {
  /** Where it leads, for errors and logs. */
  readonly name: string;
  /** The peer's uid where the system tells (SO_PEERCRED); null where it cannot be known. */
  readonly peerUid: number | null;
  /** The peer's pid where the system tells; null where it cannot be known. */
  readonly peerPid: number | null;
  /** Takes ownership of `chunk`. Never throws; after the end it is dropped. */
  write(chunk: Uint8Array): void;
  /** Bytes written here that the peer has not taken. */
  readonly unsentBytes: number;
  /** Stop and go on reading (back pressure). */
  pause(): void;
  resume(): void;
  /** Flush what was written, then close. */
  end(): void;
  /** As `end`, without waiting for the peer: what the system does not take at once is lost, and no descriptor is held a moment longer. */
  endNow(): void;
  /** Close at once; unsent bytes are lost. */
  destroy(): void;
  /** One reader. Chunks that came before it was set are kept for it. */
  onData(listener: (chunk: Uint8Array) => void): void;
  /** Called once, with a reason for people. A clean end of file, a break in mid-frame and an error are told apart by the channel. */
  onClose(listener: (reason: string) => void): void;
  onDrain(listener: () => void): void;
  /** Let the process end although this is open. */
  unref(): void;
  /** Keep the process again. */
  ref(): void;
}

/** The reason that `onClose` gives for a plain end of file. */
export const closedByPeer = 'closed by the peer';
/** The reason that `onClose` gives when this side closed. */
export const closedHere = 'closed here';

export interface Listener {
  readonly path: string;
  /** What is at its path now: its own socket, none, or something else. Always `own` where sockets are not in the file system. */
  readonly place: 'own' | 'missing' | 'other';
  /** Listens anew at its path, where there must be nothing; who is connected stays so. Rejects as `listen` does, and goes on as before. */
  renew(): Promise<void>;
  /** Stops listening and destroys its connections; resolves when the path is gone. */
  close(): Promise<void>;
  unref(): void;
}
