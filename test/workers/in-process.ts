/** A worker and its broker in one process, on in-memory connections; callers come in the same way. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { defaultLimits, type Limits, type ModelSpec } from '../../protocol/index.js';
import { memoryPair } from '../../protocol/node/index.js';
import { openCaller, type CallEvent, type GenerateOptions, type WorkerCaller } from '../../src/client/index.js';
import { attachWorker, type AttachedWorker, type Engine, type VisibleMemory } from '../../workers/runtime/index.js';
import { SimulatedEngine } from '../../workers/simulated/engine.js';
import { card, FakeBroker, workerKey, type Control, type FakeBrokerOptions } from './fake-broker.js';

export interface Rig {
  readonly broker: FakeBroker;
  readonly attached: AttachedWorker;
  readonly shutdowns: string[];
  readonly fatal: unknown[];
  readonly caller: (name?: string) => Promise<WorkerCaller>;
  readonly close: () => Promise<void>;
  /** Ends it although an engine of it never will. */
  readonly abandon: () => Promise<void>;
}

export interface RigOptions extends FakeBrokerOptions {
  readonly engine?: Engine;
  readonly cards?: readonly string[];
  readonly limits?: Limits;
  /** What stands for the broker's state folder; left out: one that goes with the rig. */
  readonly folder?: string;
  /** The machine's memory, where it is leased. */
  readonly memory?: VisibleMemory;
}

/** Sizes that a worker has learned may still be on their way into it. */
const removal = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 } as const;

export async function rig(t: Test, options: RigOptions = {}): Promise<Rig> {
  const ownFolder = options.folder === undefined ? mkdtempSync(join(tmpdir(), 'lh-')) : null;
  const folder = options.folder ?? ownFolder ?? '';
  const [brokerEnd, workerEnd] = memoryPair('control');
  const broker = new FakeBroker(brokerEnd, options);
  const shutdowns: string[] = [];
  const fatal: unknown[] = [];
  const cards = (options.cards ?? [card]).map((device) => ({ device, name: device, totalBytes: null, simulated: device.startsWith('SIM-') }));
  const attached = await attachWorker({
    engine: options.engine ?? new SimulatedEngine(), stream: workerEnd,
    environment: { socketPath: '', spawnId: 'b-w1', key: workerKey, dataSocketPath: join(folder, 'd.sock'), cards, memory: options.memory ?? null, limits: options.limits ?? defaultLimits },
    onShutdown: (_graceMs, reason) => { shutdowns.push(reason); },
    onLost: () => undefined,
    fatal: (error) => { fatal.push(error); },
  });
  const callers: WorkerCaller[] = [];
  let closed: Promise<void> | null = null;
  // A test that failed before it closed its rig must not hold its file's process.
  const abandon = async (): Promise<void> => {
    broker.channel.destroy();
    await attached.data.close();
    if (ownFolder !== null) rmSync(ownFolder, removal);
  };
  t.teardown(abandon);
  const closeWorker = (): Promise<void> => (closed ??= attached.close());
  return {
    broker, shutdowns, fatal,
    attached: { ...attached, close: closeWorker },
    caller: async (name = 'b-s1') => {
      const [callerEnd, dataEnd] = memoryPair('data');
      attached.data.accept(dataEnd);
      const opened = await openCaller({ stream: callerEnd, ticket: broker.ticket(name), caller: name });
      callers.push(opened);
      return opened;
    },
    close: async () => {
      for (const caller of callers) caller.close();
      await closeWorker();
      await broker.closed;
      if (ownFolder !== null) rmSync(ownFolder, removal);
    },
    abandon,
  };
}

/** A simulated model `m` whose script is given as an object. */
export function model(script: Readonly<Record<string, unknown>> = {}, spec: Partial<ModelSpec> = {}): ModelSpec {
  return {
    key: 'm', engine: 'simulated', source: `sim:${JSON.stringify(script)}`, contextTokens: 512, parallel: 1, embedding: false, declaredBytes: null,
    policy: { ttlMs: null, pinned: false, exclusive: false }, options: {}, ...spec,
  };
}

export function ask(spec: ModelSpec, prompt = 'hello there', more: Partial<GenerateOptions> = {}): GenerateOptions {
  return { model: spec, prompt, sampling: { maxTokens: 10_000, temperature: 0 }, ...more };
}

/** Reads a whole generation. */
export async function read(events: AsyncIterable<CallEvent, undefined>): Promise<{ readonly text: string; readonly events: CallEvent[]; readonly end: Extract<CallEvent, { type: 'end' }> | null }> {
  const all: CallEvent[] = [];
  for await (const event of events) all.push(event);
  const text = all.map((event) => (event.type === 'token' && !event.thought ? event.text : '')).join('');
  const last = all.at(-1);
  return { text, events: all, end: last?.type === 'end' ? last : null };
}

/** The code of what an operation throws; null when it does not. */
export async function codeOf(work: Promise<unknown>): Promise<string | null> {
  try {
    await work;
    return null;
  } catch (error) {
    return (error as { readonly code?: string }).code ?? String(error);
  }
}

/** Lets everything that is ready to happen happen. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Resolves when a generation has yielded its first token; it stays open, unread, until the iterator is read on. */
export async function begun(events: AsyncIterable<CallEvent, undefined>): Promise<AsyncIterator<CallEvent, undefined>> {
  const iterator = events[Symbol.asyncIterator]();
  for (;;) {
    const { value } = await iterator.next();
    if (value === undefined) throw new Error('it ended without a token');
    if (value.type === 'token') return iterator;
  }
}

/** Reads on to the end. */
export async function readOn(iterator: AsyncIterator<CallEvent, undefined>): Promise<void> {
  for (let next = await iterator.next(); next.done !== true;) next = await iterator.next();
}

/** What the worker says it holds. */
export async function models(broker: FakeBroker): Promise<Control<'models'>['models']> {
  const answer = await broker.channel.request({ type: 'list_models' }, { timeoutMs: 10_000 });
  return (answer as Control<'models'>).models;
}
