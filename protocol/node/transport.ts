/**
 * Unix sockets by node-ipc 12.0.0: this is the one file that knows it. node-ipc
 * listens and connects; the sockets it opened are taken over here, because its
 * own events turn every chunk into a string and ignore back pressure
 * (ADR 0004). What is done to it, and why:
 *
 * - `unlink` false: true would steal a live listener's path and remove it at the end.
 *   It also makes `start()` listen at once, so that a umask around it keeps
 *   others out of the socket from its first moment; its mode is 0600 before anything else runs.
 * - server: `setEncoding` is hidden from it while it takes a connection in.
 * - client: its decoder is removed when it connects, before any data. Should a
 *   later Node keep that out of reach, latin1 still carries every byte.
 * - one attempt, no retries: its retry timer would hold the process.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, renameSync, rmSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Server as NetServer, Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';
import { IPCModule } from 'node-ipc';
import { durationText } from '../duration.js';
import { LeaseholdError } from '../errors.js';
import { defaultLimits } from '../limits.js';
import { checkSocketPath, socketAddress } from './socket-path.js';
import { socketStream } from './socket-stream.js';
import type { ByteStream, Listener } from './stream.js';

export interface ListenOptions {
  readonly path: string;
  /** Each connection, before anything was read from it. May not throw. */
  onConnection(stream: ByteStream): void;
  /** How long a closing connection may take to flush. Default `flushTimeoutMs`. */
  readonly flushTimeoutMs?: number;
}

export interface ConnectOptions {
  readonly path: string;
  readonly timeoutMs: number;
  readonly flushTimeoutMs?: number;
}

/** A socket that answers is alive within this. */
const aliveTimeoutMs = 2_000;

/**
 * Listens at `path` with mode 0600. Rejects with `socket_in_use` when there is
 * anything at that path, alive or not (removing a stale one is for who holds
 * the lock), `socket_path_too_long`, or `listen_failed`.
 */
export async function listen(options: ListenOptions): Promise<Listener> {
  const held = new Connections();
  return new SocketListener(options, held, await bound(options, held));
}

/** One socket in the file system, and whoever accepts on it. */
interface Bound {
  readonly server: Server;
  readonly net: NetServer;
  /** Null where the platform has none in the file system. */
  readonly inode: string | null;
}

async function bound(options: ListenOptions, held: Connections): Promise<Bound> {
  checkSocketPath(options.path);
  const ipc = quietIpc();
  ipc.serve(socketAddress(options.path));
  const server = ipc.server;
  if (server === false) throw new LeaseholdError('internal', { reason: 'node-ipc made no server' });
  server.on('connect', (socket) => {
    // Its own listener would decode; its listeners for `close` and `error` keep its list and stay.
    socket.removeAllListeners('data');
    Reflect.deleteProperty(socket, 'setEncoding');
    const name = `${options.path}#${String(held.add(socket))}`;
    options.onConnection(socketStream(socket, name, options.flushTimeoutMs ?? defaultLimits.flushTimeoutMs));
  });
  await started(server, options.path);
  if (server.server === false) throw new LeaseholdError('internal', { reason: 'node-ipc did not listen' });
  return { server, net: server.server, inode: inodeOf(options.path) };
}

class SocketListener implements Listener {
  readonly path: string;
  readonly #options: ListenOptions;
  readonly #held: Connections;
  #bound: Bound;
  #renewing: Promise<void> | null = null;
  #closing: Promise<void> | null = null;
  #unrefed = false;

  constructor(options: ListenOptions, held: Connections, bound: Bound) {
    this.path = options.path;
    this.#options = options;
    this.#held = held;
    this.#bound = bound;
  }

  get place(): 'own' | 'missing' | 'other' {
    const { inode } = this.#bound;
    if (inode === null || this.#closing !== null) return 'own';
    const now = inodeOf(this.path);
    return now === null ? 'missing' : now === inode ? 'own' : 'other';
  }

  renew(): Promise<void> {
    if (this.#closing !== null) return Promise.resolve();
    this.#renewing ??= this.#renew().finally(() => { this.#renewing = null; });
    return this.#renewing;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  unref(): void {
    this.#unrefed = true;
    this.#bound.net.unref();
    this.#held.unrefAll();
  }

  /** Whoever connected by the old socket stays: it only hears nobody new. */
  async #renew(): Promise<void> {
    const before = this.#bound;
    this.#bound = await bound(this.#options, this.#held);
    if (this.#unrefed) this.#bound.net.unref();
    sparing(this.path, before.inode, () => before.server.stop());
  }

  async #close(): Promise<void> {
    if (this.#renewing !== null) await this.#renewing.catch(() => undefined);
    const { net, server, inode } = this.#bound;
    const closed = new Promise<void>((resolve) => { net.once('close', () => { resolve(); }); });
    sparing(this.path, inode, () => server.stop());
    this.#held.destroyAll();
    await closed;
  }
}

type Server = Exclude<IPCModule['server'], false>;

async function started(server: Server, path: string): Promise<void> {
  const listening = new Promise<void>((resolve, reject) => {
    server.on('start', resolve);
    server.on('error', reject);
  });
  try {
    withPrivateUmask(() => server.start());
    // Bound by now, or never: a failure is told later, and then what lies there is somebody else's.
    if (process.platform !== 'win32' && server.server !== false && server.server.listening) chmodSync(path, 0o600);
    if (server.server !== false) {
      server.server.prependListener('connection', (socket) => {
        // It sets an encoding when there is a way to.
        Object.defineProperty(socket, 'setEncoding', { value: undefined, configurable: true });
      });
    }
    await listening;
  } catch (error) {
    throw await listenError(error, path);
  }
}

/**
 * The socket is its owner's alone from the moment it is there. Not 0177: a
 * folder that another thread makes meanwhile must stay one that can be entered.
 * Worker threads cannot set a umask; there the folder, which is 0700, guards
 * the socket until its mode is set, one system call later.
 */
function withPrivateUmask(action: () => void): void {
  if (!isMainThread) {
    action();
    return;
  }
  const before = process.umask(0o077);
  try {
    action();
  } finally {
    process.umask(before);
  }
}

async function listenError(error: unknown, path: string): Promise<LeaseholdError> {
  if (error instanceof LeaseholdError) return error;
  if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') return LeaseholdError.from(error, 'listen_failed', { path });
  const state = isNoSocket(path) ? 'is no socket; remove it' : (await socketIsAlive(path)) ? 'answers' : 'does not answer: it is stale';
  return new LeaseholdError('socket_in_use', { path, state }, { cause: error });
}

/**
 * Closing a listener removes whatever lies at its path. When that is not its socket any more (it was deleted, and somebody
 * else listens there now), it is out of the way for that moment: the removal happens within the call.
 */
function sparing(path: string, inode: string | null, close: () => void): void {
  const now = inodeOf(path);
  if (now === null || now === inode) {
    close();
    return;
  }
  const aside = `${path}.${randomBytes(4).toString('hex')}`;
  try {
    renameSync(path, aside);
  } catch {
    // Where nothing can be renamed nothing is removed either.
    close();
    return;
  }
  try {
    close();
  } finally {
    renameSync(aside, path);
  }
}

/** Tells one socket from a later one of its path; null: there is none, or the platform has none in the file system. */
function inodeOf(path: string): string | null {
  if (process.platform === 'win32') return null;
  const found = lstatSync(path, { throwIfNoEntry: false, bigint: true });
  return found === undefined ? null : `${String(found.dev)}:${String(found.ino)}:${String(found.birthtimeNs)}`;
}

/** The open connections of one listener. */
class Connections {
  readonly #sockets = new Set<Socket>();
  #accepted = 0;
  #unrefed = false;

  /** The how many-th it is. */
  add(socket: Socket): number {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    if (this.#unrefed) socket.unref();
    return ++this.#accepted;
  }

  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Those to come as well. */
  unrefAll(): void {
    this.#unrefed = true;
    for (const socket of this.#sockets) socket.unref();
  }
}

/** Pauses between two attempts where more want to connect at once than the system lets wait. */
const crowdedPauseMs = 5;
const crowdedPauseMsMax = 250;

/**
 * One connection to the socket at `path`. Rejects with `connect_failed` when
 * nobody answers there within `timeoutMs`, or `socket_path_too_long`. A crowd
 * before it (EAGAIN: its backlog is full) is waited for as long.
 */
export async function connect(options: ConnectOptions): Promise<ByteStream> {
  checkSocketPath(options.path);
  const giveUpMs = performance.now() + options.timeoutMs;
  for (let pauseMs = crowdedPauseMs; ; pauseMs = Math.min(crowdedPauseMsMax, 2 * pauseMs)) {
    try {
      return await connectOnce(options, Math.max(1, giveUpMs - performance.now()));
    } catch (error) {
      const isCrowded = error instanceof LeaseholdError && error.details['reason'] === 'EAGAIN';
      // Not all of a crowd at the same moment again.
      const thisPauseMs = pauseMs * (1 + Math.random());
      if (!isCrowded || performance.now() + thisPauseMs >= giveUpMs) throw error;
      await pause(thisPauseMs);
    }
  }
}

async function connectOnce(options: ConnectOptions, timeoutMs: number): Promise<ByteStream> {
  const ipc = quietIpc();
  const id = 'peer';
  ipc.connectTo(id, socketAddress(options.path));
  const client = ipc.of[id];
  if (client === undefined) throw new LeaseholdError('internal', { reason: 'node-ipc made no client' });
  const socket = client.socket;
  try {
    await connected(client, timeoutMs);
  } catch (error) {
    ipc.disconnect(id);
    const code = (error as NodeJS.ErrnoException).code;
    throw new LeaseholdError('connect_failed', { path: options.path, reason: code ?? (error as Error).message }, { cause: error });
  }
  return socketStream(socket, options.path, options.flushTimeoutMs ?? defaultLimits.flushTimeoutMs);
}

type Client = NonNullable<IPCModule['of'][string]>;

function connected(client: Client, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${durationText(timeoutMs)}`)), timeoutMs);
    client.on('connect', () => {
      clearTimeout(timer);
      takeOver(client.socket);
      resolve();
    });
    client.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
  });
}

/** Before the first byte: node-ipc's listener and its decoder go, so that chunks are Buffers. */
function takeOver(socket: Socket): void {
  socket.removeAllListeners('data');
  socket.pause();
  // Should they have moved elsewhere in a later Node, its encoding stays latin1, and SocketStream turns such strings back into the same bytes.
  Object.assign((socket as Socket & { readonly _readableState: object })._readableState, { decoder: null, encoding: null });
}

function isNoSocket(path: string): boolean {
  return process.platform !== 'win32' && lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false;
}

/** True when somebody accepts connections there: such a socket is never to be removed. */
export async function socketIsAlive(path: string): Promise<boolean> {
  if (process.platform !== 'win32' && lstatSync(path, { throwIfNoEntry: false })?.isSocket() !== true) return false;
  try {
    const stream = await connect({ path, timeoutMs: aliveTimeoutMs });
    stream.destroy();
    return true;
  } catch (error) {
    const reason = error instanceof LeaseholdError ? error.details['reason'] : undefined;
    // Anything but a plain refusal may be a live listener that is full, stopped or not ours.
    return reason !== 'ECONNREFUSED' && reason !== 'ENOENT';
  }
}

/** Removes a socket that nobody answers on; the caller holds the lock. Rejects with `socket_in_use` when somebody does, or it is no socket. */
export async function removeStaleSocket(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new LeaseholdError('socket_in_use', { path, state: 'is no socket; remove it' });
  if (await socketIsAlive(path)) throw new LeaseholdError('socket_in_use', { path, state: 'answers' });
  rmSync(path, { force: true });
}

function quietIpc(): IPCModule {
  const ipc = new IPCModule();
  ipc.config.silent = true;
  ipc.config.rawBuffer = true;
  ipc.config.encoding = 'latin1';
  ipc.config.unlink = false;
  ipc.config.maxConnections = Infinity;
  ipc.config.maxRetries = 0;
  ipc.config.stopRetrying = true;
  return ipc;
}
