/** Looks for a broker that runs on a state folder, without taking its lock, changing its files or keeping it busy. */
import { lstat, readdir } from 'node:fs/promises';
import { LeaseholdError } from '../../protocol/index.js';
import { socketIsAlive } from '../../protocol/node/index.js';
import { defaultStatePath, livingWorkers, stateNames, type LivingWorker } from '../../broker/shell/index.js';
import { connectBroker } from '../client/index.js';
import type { LedgerState } from '../orchestrator/types.js';
import { lockHolder, readHeldLocks } from './locks.js';
import type { Machine } from './machine/machine.js';
import { isStopped } from './silent-broker.js';
import { readSmall } from './small-file.js';

export type BrokerSeen =
  /** Nobody holds the lock and nobody answers. `leftovers`: sockets of one that was killed; `workers`: who lives on after it. */
  | { readonly kind: 'none'; readonly leftovers: readonly string[]; readonly workers: readonly LivingWorker[] }
  | { readonly kind: 'running'; readonly pid: number | null; readonly since: string | null; readonly ledger: BrokerLedger; readonly answerMs: number }
  /** Somebody is there, and this is how far one gets. */
  | { readonly kind: 'unreachable'; readonly pid: number | null; readonly since: string | null; readonly reason: string; readonly stopped?: boolean };

/** Older brokers do not say their version. */
export interface BrokerLedger extends LedgerState {
  readonly version?: string;
  readonly workers: readonly (LedgerState['workers'][number] & { readonly versions?: Readonly<Record<string, string>> | null })[];
}

export async function lookForBroker(machine: Machine, statePath: string): Promise<BrokerSeen> {
  const { socketPath, secretPath } = stateNames(statePath);
  const { isHeld, ...known } = await whoHolds(machine, statePath);
  const socket = process.platform === 'win32' || (await lstat(socketPath).catch(() => null))?.isSocket() === true;
  if (!socket) {
    if (isHeld) return { kind: 'unreachable', ...known, reason: 'it holds the lock and has no socket: it is just starting, or just ending' };
    return { kind: 'none', leftovers: [], workers: livingWorkers(statePath) };
  }
  const secret = (await readSmall(secretPath))?.trim() ?? '';
  const beganMs = performance.now();
  const ledger = await askLedger(socketPath, secret);
  if (!(ledger instanceof LeaseholdError)) return { kind: 'running', ...known, pid: ledger.broker.pid, ledger, answerMs: Math.round(performance.now() - beganMs) };
  const refused = ledger.details['reason'] === 'ECONNREFUSED' || ledger.details['reason'] === 'ENOENT';
  if (refused && !isHeld) return { kind: 'none', leftovers: (await readdir(statePath).catch(() => [])).filter((name) => name.endsWith('.sock')), workers: livingWorkers(statePath) };
  const stopped = await isStopped(known.pid);
  return { kind: 'unreachable', ...known, stopped, reason: stopped ? 'it is stopped' : refused ? 'it holds the lock and nobody listens at its socket' : ledger.message };
}

/** By the lock itself, else by what its holder wrote into it. */
export async function whoHolds(machine: Pick<Machine, 'readText'>, statePath: string = defaultStatePath()): Promise<{ readonly isHeld: boolean; readonly pid: number | null; readonly since: string | null }> {
  const { lockPath } = stateNames(statePath);
  const holder = await lockHolder(await readHeldLocks(machine), lockPath);
  const { pid, since } = parseSignature(await readSmall(lockPath));
  return { isHeld: typeof holder === 'number', pid: typeof holder === 'number' && holder > 0 ? holder : pid, since };
}

async function askLedger(socketPath: string, secret: string): Promise<BrokerLedger | LeaseholdError> {
  if (!/^[0-9a-f]{64}$/.test(secret)) {
    const reason = await socketIsAlive(socketPath) ? 'its secret cannot be read' : 'ECONNREFUSED';
    return new LeaseholdError('connect_failed', { path: socketPath, reason });
  }
  try {
    const session = await connectBroker({ role: 'client', socketPath, secret, name: 'leasehold doctor' });
    try {
      return await session.ledger<BrokerLedger>();
    } finally {
      await session.close();
    }
  } catch (error) {
    return LeaseholdError.from(error);
  }
}

/** What a broker writes into a lock that it takes. */
export function parseSignature(text: string | null): { readonly pid: number | null; readonly since: string | null; readonly socket: string | null } {
  try {
    const { pid, started, socket } = JSON.parse(text ?? '') as { readonly pid?: unknown; readonly started?: unknown; readonly socket?: unknown };
    return { pid: Number.isSafeInteger(pid) ? pid as number : null, since: typeof started === 'string' ? started : null, socket: typeof socket === 'string' ? socket : null };
  } catch {
    return { pid: null, since: null, socket: null };
  }
}
