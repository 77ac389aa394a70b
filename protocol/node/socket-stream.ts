/** A connected socket as a ByteStream: real Buffers both ways, nothing read before somebody listens. */
import type { Socket } from 'node:net';
import { peerCredentials, type PeerCredentials } from './peer-credentials.js';
import { closedByPeer, closedHere, type ByteStream } from './stream.js';

/**
 * Takes the socket over: it must be connected and have no `data` listener.
 * `flushTimeoutMs` bounds how long `end` waits for a peer that does not read.
 */
export function socketStream(socket: Socket, name: string, flushTimeoutMs: number): ByteStream {
  return new SocketStream(socket, name, flushTimeoutMs);
}

class SocketStream implements ByteStream {
  readonly name: string;
  readonly #socket: Socket;
  readonly #flushTimeoutMs: number;
  #credentials: PeerCredentials | null | undefined;
  #reason: string | null = null;
  #closed = false;
  #closeListener: ((reason: string) => void) | null = null;
  #listening = false;
  #paused = false;
  #corked = false;
  readonly #uncork = (): void => {
    if (!this.#corked) return;
    this.#corked = false;
    this.#socket.uncork();
  };

  constructor(socket: Socket, name: string, flushTimeoutMs: number) {
    this.name = name;
    this.#socket = socket;
    this.#flushTimeoutMs = flushTimeoutMs;
    socket.pause();
    socket.on('error', (error) => this.#reason ??= errorText(error));
    socket.on('end', () => this.#reason ??= closedByPeer);
    socket.on('close', () => this.#closedNow());
  }

  get peerUid(): number | null {
    return this.#peer()?.uid ?? null;
  }

  get peerPid(): number | null {
    return this.#peer()?.pid ?? null;
  }

  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  write(chunk: Uint8Array): void {
    // After the end there is nobody to write to; the socket would raise an error of its own.
    if (!this.#socket.writable) return;
    if (!this.#corked) {
      // What is sent in one turn of the loop leaves in one system call, and wakes the peer once.
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(this.#uncork);
    }
    this.#socket.write(chunk);
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#paused = false;
    if (this.#listening) this.#socket.resume();
  }

  end(): void {
    if (this.#socket.destroyed || this.#socket.writableEnded) return;
    this.#reason ??= closedHere;
    this.#socket.end();
    // What the peer still sends is read and dropped: unread bytes would turn the close into a reset that loses ours.
    this.#socket.resume();
    const timer = setTimeout(() => this.#socket.destroy(), this.#flushTimeoutMs);
    timer.unref();
    this.#socket.once('close', () => clearTimeout(timer));
  }

  endNow(): void {
    this.#uncork();
    this.destroy();
  }

  destroy(): void {
    this.#reason ??= closedHere;
    this.#socket.destroy();
  }

  onData(listener: (chunk: Uint8Array) => void): void {
    this.#listening = true;
    this.#socket.on('data', (data: Buffer | string) => listener(typeof data === 'string' ? Buffer.from(data, 'latin1') : data));
    if (this.#paused) this.#socket.pause();
    else this.#socket.resume();
  }

  onClose(listener: (reason: string) => void): void {
    this.#closeListener = listener;
    if (this.#closed) queueMicrotask(() => this.#tellClosed());
  }

  onDrain(listener: () => void): void {
    this.#socket.on('drain', listener);
  }

  unref(): void {
    this.#socket.unref();
  }

  ref(): void {
    this.#socket.ref();
  }

  #peer(): PeerCredentials | null {
    // Asked once: they are those of the moment of connecting, and the descriptor is gone after the close.
    if (this.#credentials === undefined) this.#credentials = peerCredentials(this.#socket);
    return this.#credentials;
  }

  #closedNow(): void {
    this.#closed = true;
    this.#tellClosed();
  }

  #tellClosed(): void {
    const listener = this.#closeListener;
    this.#closeListener = null;
    listener?.(this.#reason ?? closedByPeer);
  }
}

function errorText(error: NodeJS.ErrnoException): string {
  return error.code ?? error.message;
}
