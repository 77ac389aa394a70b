/** What tests of whole brokers share: an orchestrator with scripted workers in a folder of its own, conditions, raw peers, and counting what is left. */
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Test } from 'tap';
import { LeaseholdError, classes, classPolicies, defaultLimits, type ControlMessage, type Limits } from '../../protocol/index.js';
import { connect, openChannel, roleProof, type Channel } from '../../protocol/node/index.js';
import type { ModelScript, ProcessScript } from '../../workers/simulated/script.js';
import { createOrchestrator, readStateFolder, type LedgerState, type ModelOptions, type Orchestrator, type OrchestratorOptions } from '../../src/orchestrator/index.js';
import { carriers, patienceMs } from '../broker/supervisor/harness.js';

export { carriers, lives, patienceMs } from '../broker/supervisor/harness.js';

export const MiB = 1024 * 1024;

/** Limits that make time pass quickly and cards exact; signs of life keep their patience. */
export const quick: Partial<Limits> = {
  tickIntervalMs: 20, stallToleranceMs: 500, sampleIntervalMs: 50, sampleMaxAgeMs: 1_000, measureToleranceBytes: 64 * 1024,
  terminateGraceMs: 1_000, commandAnswerMs: 1_000, confirmQuietAfterMs: 200, releaseConfirmMs: 1_000, requestDeadlineMs: 20_000,
};

/** Victims need no rest, doors shut at once. */
export const eager: NonNullable<OrchestratorOptions['classPolicies']> =
  Object.fromEntries(classes.map((name) => [name, { ...classPolicies[name], minimumResidencyMs: 0, drainAfterMs: 0 }]));

/** A model of the simulated engine that behaves as the script says. */
export function scripted(script: Partial<ModelScript> = {}, options: Partial<ModelOptions> = {}): ModelOptions {
  return { engine: 'simulated', source: `sim:${JSON.stringify(script)}`, contextTokens: 1_024, ...options };
}

/** The simulated engine with a process that behaves as the script says. */
export function engine(script: Partial<ProcessScript>, modelsPerWorker = 1): NonNullable<OrchestratorOptions['engines']> {
  return [{ name: 'simulated', args: [JSON.stringify(script)], modelsPerWorker }];
}

/** A folder for one state, gone after the test. */
export function folder(t: Test, name = 'lh-'): string {
  const path = mkdtempSync(join(tmpdir(), name));
  t.teardown(() => { rmSync(path, { recursive: true, force: true }); });
  return path;
}

/** A nvidia-smi that prints the cards that a file lists, found before any other. Returns how to set what each card uses, in MiB. */
export function fakeSmi(bin: string): (usedMiB: Readonly<Record<string, number>>) => void {
  const table = join(bin, 'table');
  const command = join(bin, 'nvidia-smi');
  writeFileSync(command, `#!/bin/sh\ncat ${table}\n`);
  chmodSync(command, 0o755);
  process.env['PATH'] = `${bin}:${process.env['PATH'] ?? ''}`;
  return (used) => { writeFileSync(table, Object.entries(used).map(([uuid, mib]) => `${uuid}, 16384, ${String(mib)}, Disabled, Disabled, 580.1, A card\n`).join('')); };
}

export type Given = Omit<OrchestratorOptions, 'models'> & { readonly models?: Readonly<Record<string, ModelOptions>> };

/** An orchestrator that owns its broker. After the test it is closed, and nothing of it may be left: no process, no socket. */
export async function open(t: Test, given: Given = {}): Promise<Orchestrator> {
  const stateFolder = given.stateFolder ?? mkdtempSync(join(tmpdir(), 'lh-'));
  const orchestrator = await createOrchestrator({
    devices: ['sim:64MiB'], broker: 'own', classPolicies: eager, ...given, stateFolder, limits: { ...quick, ...given.limits },
  });
  const { bootId } = await orchestrator.ledger();
  t.teardown(async () => {
    await orchestrator.close();
    const left = [...carriers(bootId).map((pid) => `process ${String(pid)}`), ...socketsIn(stateFolder)];
    if (given.stateFolder === undefined) rmSync(stateFolder, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
  });
  return orchestrator;
}

export function socketsIn(path: string): string[] {
  return readdirSync(path).filter((name) => name.endsWith('.sock'));
}

/** Asks until the answer is one; the promise of a condition, never of a duration. */
export async function until<T>(what: string, probe: () => Promise<T | null | undefined | false> | T | null | undefined | false, patience = patienceMs): Promise<T> {
  const endMs = performance.now() + patience;
  for (;;) {
    const found = await probe();
    if (found !== null && found !== undefined && found !== false) return found;
    if (performance.now() > endMs) throw new Error(`waited ${String(patience)} ms for ${what}`);
    await pause(10);
  }
}

/** The error that a promise ends in, which must be one of ours. */
export async function refusal(promise: Promise<unknown>): Promise<LeaseholdError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof LeaseholdError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

/** The same for a call that may already throw. */
export function thrown(action: () => unknown): LeaseholdError {
  try {
    action();
  } catch (error) {
    if (error instanceof LeaseholdError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

export type Lease = LedgerState['leases'][number];

export async function leaseOf(orchestrator: Orchestrator, name: string): Promise<Lease | null> {
  const key = keyOf(orchestrator, name);
  return (await orchestrator.ledger()).leases.find(({ model }) => model === key) ?? null;
}

export function keyOf(orchestrator: Orchestrator, name: string): string {
  const model = orchestrator.models.find((served) => served.name === name);
  if (model === undefined) throw new Error(`no model ${name}`);
  return model.key;
}

/** Pid of the worker that has a lease for the model. */
export async function workerPid(orchestrator: Orchestrator, name: string): Promise<number> {
  return until(`a worker of ${name}`, async () => {
    const lease = await leaseOf(orchestrator, name);
    const worker = (await orchestrator.ledger()).workers.find(({ generation }) => generation === lease?.generation);
    return worker?.pid;
  });
}

/** The one card, and what the simulated card itself says. */
export async function card(orchestrator: Orchestrator): Promise<LedgerState['cards'][number] & LedgerState['simulatedCards'][number]> {
  const { cards, simulatedCards } = await orchestrator.ledger();
  return { ...cards[0]!, ...simulatedCards[0]! };
}

/** A connection that speaks no protocol: writes bytes, keeps what comes back. */
export interface RawPeer {
  readonly socket: Socket;
  readonly closed: Promise<void>;
  received(): Buffer;
}

export async function rawPeer(path: string): Promise<RawPeer> {
  const socket = createConnection(path);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => { chunks.push(chunk); });
  // A reset is an end like any other here.
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => { socket.once('close', () => { resolve(); }); });
  await new Promise<void>((resolve, reject) => { socket.once('connect', resolve).once('error', reject); });
  return { socket, closed, received: () => Buffer.concat(chunks) };
}

/** A peer that says whatever it likes: a bare channel, greeted as holder or client, or back as the generation that it was. */
export interface Peer {
  readonly channel: Channel<'control'>;
  readonly generation: string;
  /** Asks anything at all; rejects with the error that answers it. */
  ask(message: { readonly type: string } & Readonly<Record<string, unknown>>): Promise<ControlMessage>;
  say(message: { readonly type: string } & Readonly<Record<string, unknown>>): void;
  readonly heard: ControlMessage[];
  readonly closed: Promise<LeaseholdError>;
}

export async function peer(stateFolder: string, role: 'holder' | 'client', resume: string | null = null): Promise<Peer> {
  const state = readStateFolder(stateFolder);
  if (state === null) throw new Error('there is no state');
  const heard: ControlMessage[] = [];
  let tellClosed: (error: LeaseholdError) => void = () => undefined;
  const closed = new Promise<LeaseholdError>((resolve) => { tellClosed = resolve; });
  const channel = openChannel(await connect({ path: state.socketPath, timeoutMs: patienceMs }), {
    plane: 'control', side: role, limits: defaultLimits,
    handlers: { onMessage: (message) => { heard.push(message); }, onClose: (error) => { tellClosed(error); } },
  });
  const welcome = await channel.request(
    { type: 'hello', protocol: 1, role, spawn: null, proof: roleProof(state.secret, role), pid: process.pid, name: 'a test', resume },
    { timeoutMs: patienceMs },
  );
  if (welcome.type !== 'welcome') throw new Error(`greeted by ${welcome.type}`);
  const ask: Peer['ask'] = (message) => channel.request(message as unknown as Parameters<typeof channel.request>[0], { timeoutMs: patienceMs });
  return { channel, generation: welcome.generation, ask, say: (message) => { channel.send(message as unknown as ControlMessage); }, heard, closed };
}

/** Files that this process has open, by what they are. */
export function openFiles(): number {
  return readdirSync('/proc/self/fd').length;
}

/** Bytes of memory that are this process's alone to answer for. */
export function residentBytes(): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? 0) * 1024;
}
