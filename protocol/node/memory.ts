/**
 * Two ends of one in-memory connection, for an embedded app that is a holder
 * of its own broker (D10) and for tests. The same frames as on a socket: what
 * is written at one end arrives at the other later, in order, and counts as
 * unsent until it has been taken.
 */
import { defaultLimits } from '../limits.js';
import { closedByPeer, closedHere, type ByteStream } from './stream.js';

/** Above this the writer is told when there is room again, as a socket would. */
const highWaterBytes = 64 * 1024;

/** Both ends belong to this process, so each end's peer is this process. `flushTimeoutMs` bounds how long an end waits for the other to read. */
export function memoryPair(name = 'memory', flushTimeoutMs: number = defaultLimits.flushTimeoutMs): readonly [ByteStream, ByteStream] {
  const first = new MemoryStream(`${name}:a`, flushTimeoutMs);
  const second = new MemoryStream(`${name}:b`, flushTimeoutMs);
  first.join(second);
  second.join(first);
  return [first, second];
}

class MemoryStream implements ByteStream {
  readonly name: string;
  readonly #flushTimeoutMs: number;
  readonly peerUid = process.getuid?.() ?? null;
  readonly peerPid = process.pid;
  #peer: MemoryStream = this;
  /** Written by the peer, not yet read here. */
  #inbox: Uint8Array[] = [];
  #inboxBytes = 0;
  #peerEnded = false;
  #ended = false;
  #closeReason: string | null = null;
  #paused = false;
  #scheduled: NodeJS.Immediate | null = null;
  #unrefed = false;
  #dataListener: ((chunk: Uint8Array) => void) | null = null;
  #closeListener: ((reason: string) => void) | null = null;
  readonly #drainListeners: (() => void)[] = [];
  #needDrain = false;
  #flushTimer: NodeJS.Timeout | null = null;

  constructor(name: string, flushTimeoutMs: number) {
    this.name = name;
    this.#flushTimeoutMs = flushTimeoutMs;
  }

  join(peer: MemoryStream): void {
    this.#peer = peer;
  }

  get unsentBytes(): number {
    return this.#peer.#inboxBytes;
  }

  write(chunk: Uint8Array): void {
    if (this.#ended || this.#closeReason !== null || chunk.length === 0) return;
    const peer = this.#peer;
    if (peer.#closeReason !== null) return;
    peer.#inbox.push(chunk);
    peer.#inboxBytes += chunk.length;
    if (peer.#inboxBytes > highWaterBytes) this.#needDrain = true;
    peer.#schedule();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#schedule();
  }

  end(): void {
    if (this.#ended || this.#closeReason !== null) return;
    this.#ended = true;
    // What the peer still sends is taken and dropped, as by a socket that was ended.
    this.#dataListener = () => undefined;
    this.resume();
    this.#peer.#peerEnded = true;
    this.#peer.#schedule();
    this.#flushTimer = setTimeout(() => this.destroy(), this.#flushTimeoutMs);
    this.#flushTimer.unref();
  }

  /** It holds no descriptor that the peer could make us keep. */
  endNow(): void {
    this.end();
  }

  destroy(): void {
    if (this.#closeReason !== null) return;
    this.#peer.#inbox = [];
    this.#peer.#inboxBytes = 0;
    this.#close(closedHere);
    this.#peer.#close(closedByPeer);
  }

  onData(listener: (chunk: Uint8Array) => void): void {
    if (!this.#ended) this.#dataListener = listener;
    this.#schedule();
  }

  onClose(listener: (reason: string) => void): void {
    this.#closeListener = listener;
    if (this.#closeReason !== null) this.#schedule();
  }

  onDrain(listener: () => void): void {
    this.#drainListeners.push(listener);
  }

  unref(): void {
    this.#unrefed = true;
    this.#scheduled?.unref();
  }

  ref(): void {
    this.#unrefed = false;
    this.#scheduled?.ref();
  }

  #schedule(): void {
    if (this.#scheduled !== null) return;
    this.#scheduled = setImmediate(() => {
      this.#scheduled = null;
      this.#deliver();
    });
    if (this.#unrefed) this.#scheduled.unref();
  }

  /** Hands over what lies here, then the end. */
  #deliver(): void {
    // Only what lay here when it began: an exchange without end must let others in between.
    const chunks = this.#inbox;
    this.#inbox = [];
    let taken = 0;
    while (taken < chunks.length && this.#flowing()) {
      const chunk = chunks[taken++] as Uint8Array;
      this.#inboxBytes -= chunk.length;
      this.#dataListener?.(chunk);
    }
    // Unless a destroy has emptied it meanwhile.
    if (taken < chunks.length && this.#closeReason === null) this.#inbox = [...chunks.slice(taken), ...this.#inbox];
    this.#peer.#drained();
    if (this.#closeReason !== null) this.#tellClosed();
    else if (this.#inbox.length > 0) {
      if (this.#flowing()) this.#schedule();
    } else if (this.#peerEnded && !this.#paused && this.#dataListener !== null) {
      this.#close(closedByPeer);
      this.#peer.#close(closedHere);
    }
  }

  #flowing(): boolean {
    return !this.#paused && this.#dataListener !== null && this.#closeReason === null;
  }

  #drained(): void {
    if (!this.#needDrain || this.unsentBytes > 0) return;
    this.#needDrain = false;
    for (const listener of this.#drainListeners) listener();
  }

  #close(reason: string): void {
    if (this.#closeReason !== null) return;
    this.#closeReason = reason;
    if (this.#flushTimer !== null) clearTimeout(this.#flushTimer);
    this.#schedule();
  }

  #tellClosed(): void {
    const listener = this.#closeListener;
    this.#closeListener = null;
    listener?.(this.#closeReason ?? closedHere);
  }
}
