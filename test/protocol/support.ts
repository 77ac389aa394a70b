/** What the protocol's tests share: golden vectors, folders for sockets, connected pairs of streams and channels. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defaultLimits, type LeaseholdError, type Plane, type Sender } from '../../protocol/index.js';
import {
  connect, listen, memoryPair, openChannel, type ByteStream, type Channel, type ChannelHandlers, type ChannelLimits, type MessageOn,
} from '../../protocol/node/index.js';

export const root = findRoot(dirname(fileURLToPath(import.meta.url)));

function findRoot(from: string): string {
  return existsSync(join(from, 'package.json')) ? from : findRoot(dirname(from));
}

export interface Vector {
  readonly name: string;
  readonly plane: Plane;
  readonly message: { readonly type: string } & Readonly<Record<string, unknown>>;
  readonly frame: string;
}

export interface InvalidVector extends Omit<Vector, 'message'> {
  readonly code: string;
  readonly field?: string;
  readonly limitBytes?: number;
}

/** A file of golden vectors. */
export function vectorsOf(name: 'control' | 'data'): readonly Vector[];
export function vectorsOf(name: 'accepted'): readonly Vector[];
export function vectorsOf(name: 'invalid'): readonly InvalidVector[];
export function vectorsOf(name: string): readonly (Vector | InvalidVector)[] {
  const { vectors } = JSON.parse(readFileSync(join(root, 'protocol/vectors', `${name}.json`), 'utf8')) as { vectors: (Omit<Vector, 'plane'> & { plane?: Plane })[] };
  return vectors.map((vector) => ({ plane: name as Plane, ...vector }));
}

/** A message of the golden vectors, by the vector's name. */
export function example<P extends Plane>(plane: P, name: string): MessageOn<P> {
  const found = vectorsOf(plane).find((vector) => vector.name === name);
  if (found === undefined) throw new Error(`there is no vector "${name}"`);
  return found.message as unknown as MessageOn<P>;
}

export function hex(text: string): Buffer {
  return Buffer.from(text, 'hex');
}

interface Teardown {
  teardown(action: () => unknown): unknown;
}

/** A short folder for sockets, removed afterwards. */
export function socketFolder(t: Teardown): string {
  const folder = mkdtempSync(join(tmpdir(), 'lh-'));
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }); });
  return folder;
}

export type Carrier = 'memory' | 'socket';

/** Both ends of one connection: [listening, dialling]. */
export async function streams(t: Teardown, carrier: Carrier): Promise<readonly [ByteStream, ByteStream]> {
  if (carrier === 'memory') {
    const pair = memoryPair();
    t.teardown(() => { pair[0].destroy(); });
    return pair;
  }
  const path = join(socketFolder(t), 's');
  const accepted = promise<ByteStream>();
  const listener = await listen({ path, onConnection: accepted.resolve });
  t.teardown(() => listener.close());
  const dialled = await connect({ path, timeoutMs: 10_000 });
  t.teardown(() => { dialled.destroy(); });
  return [await accepted.promise, dialled];
}

/** One end as a test sees it: the channel, and all that came by it. */
export interface End<P extends Plane> {
  readonly channel: Channel<P>;
  readonly received: MessageOn<P>[];
  readonly strays: MessageOn<P>[];
  readonly closed: Promise<LeaseholdError>;
  /** Set to act on what comes. */
  onMessage: (message: MessageOn<P>) => void;
  /** Resolves with the next message that is handed on. */
  next(): Promise<MessageOn<P>>;
}

export function openEnd<P extends Plane>(stream: ByteStream, plane: P, side: Sender, limits: Partial<ChannelLimits> = {}): End<P> {
  const closed = promise<LeaseholdError>();
  const waiting: ((message: MessageOn<P>) => void)[] = [];
  const handlers: ChannelHandlers<P> = {
    onMessage: (message) => {
      end.received.push(message);
      waiting.shift()?.(message);
      end.onMessage(message);
    },
    onClose: closed.resolve,
    onStray: (message) => { end.strays.push(message); },
  };
  const channel = openChannel(stream, { plane, side, limits: { ...defaultLimits, ...limits }, handlers });
  const end: End<P> = {
    channel, received: [], strays: [], closed: closed.promise, onMessage: () => undefined,
    next: () => new Promise((resolve) => { waiting.push(resolve); }),
  };
  return end;
}

export const hello = {
  type: 'hello', protocol: 1, role: 'worker', spawn: 'b-w1', proof: '5f'.repeat(32), pid: 1, name: 'test', resume: null,
} as const;

export const welcome = {
  type: 'welcome', protocol: 1, bootId: 'b', generation: 'b-w1', heartbeatIntervalMs: 1_000, frameBytesMax: defaultLimits.frameBytesMax,
  threads: 1, reattachGraceMs: 0, devices: [],
} as const;

const ready = {
  type: 'ready', engine: 'none', versions: {}, devices: [], dataSocket: '/none', floors: [],
  capabilities: { park: false, partial: false, embed: false, profilesFreeMemory: false },
} as const;

/** A control session that has been greeted; a worker's is ready. [broker, peer] */
export async function greeted(
  t: Teardown, carrier: Carrier, role: 'worker' | 'holder' | 'client' = 'worker', limits: { readonly broker?: Partial<ChannelLimits>; readonly peer?: Partial<ChannelLimits> } = {},
): Promise<readonly [End<'control'>, End<'control'>]> {
  const [listening, dialling] = await streams(t, carrier);
  const broker = openEnd(listening, 'control', 'broker', limits.broker);
  const peer = openEnd(dialling, 'control', role, limits.peer);
  broker.onMessage = (message) => {
    if (message.type === 'hello') broker.channel.send({ ...welcome, id: message.id });
    if (message.type === 'ready') broker.channel.send({ type: 'ok', id: message.id });
  };
  await peer.channel.request({ ...hello, role }, { timeoutMs: 10_000 });
  if (role === 'worker') await peer.channel.request(ready, { timeoutMs: 10_000 });
  broker.received.length = 0;
  broker.onMessage = () => undefined;
  return [broker, peer];
}

export function promise<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const settled = new Promise<T>((settle) => { resolve = settle; });
  return { promise: settled, resolve };
}
