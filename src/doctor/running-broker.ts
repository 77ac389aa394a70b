/** Looks for a broker that runs on a state folder, without taking its lock, changing its files or keeping it busy. */
import { constants } from 'node:fs';
import { lstat, open, readdir } from 'node:fs/promises';
import { LeaseholdError } from '../../protocol/index.js';
import { socketIsAlive } from '../../protocol/node/index.js';
import { stateNames } from '../../broker/shell/index.js';
import { connectBroker } from '../client/index.js';
import type { LedgerState } from '../orchestrator/types.js';
import { lockHolder, readHeldLocks } from './locks.js';
import type { Machine } from './machine/machine.js';

export type BrokerSeen =
  /** Nobody holds the lock and nobody answers. `leftovers`: sockets of one that was killed. */
  | { readonly kind: 'none'; readonly leftovers: readonly string[] }
  | { readonly kind: 'running'; readonly pid: number | null; readonly since: string | null; readonly ledger: BrokerLedger; readonly answerMs: number }
  /** Somebody is there, and this is how far one gets. */
  | { readonly kind: 'unreachable'; readonly pid: number | null; readonly since: string | null; readonly reason: string };

/** Older brokers do not say their version. */
export interface BrokerLedger extends LedgerState {
  readonly version?: string;
  readonly workers: readonly (LedgerState['workers'][number] & { readonly versions?: Readonly<Record<string, string>> | null })[];
}

const textBytesMax = 16 * 1024;

export async function lookForBroker(machine: Machine, statePath: string): Promise<BrokerSeen> {
  const { socketPath, lockPath, secretPath } = stateNames(statePath);
  const holder = await lockHolder(await readHeldLocks(machine), lockPath);
  const signature = parseSignature(await readSmall(lockPath));
  const socket = process.platform === 'win32' || (await lstat(socketPath).catch(() => null))?.isSocket() === true;
  const known = { pid: typeof holder === 'number' && holder > 0 ? holder : signature.pid, since: signature.since };
  const isHeld = typeof holder === 'number';
  if (!socket) {
    if (isHeld) return { kind: 'unreachable', ...known, reason: 'it holds the lock and has no socket: it is just starting, or just ending' };
    return { kind: 'none', leftovers: [] };
  }
  const secret = (await readSmall(secretPath))?.trim() ?? '';
  const beganMs = performance.now();
  const ledger = await askLedger(socketPath, secret);
  if (!(ledger instanceof LeaseholdError)) return { kind: 'running', ...known, pid: ledger.broker.pid, ledger, answerMs: Math.round(performance.now() - beganMs) };
  const refused = ledger.details['reason'] === 'ECONNREFUSED' || ledger.details['reason'] === 'ENOENT';
  if (refused && !isHeld) return { kind: 'none', leftovers: (await readdir(statePath).catch(() => [])).filter((name) => name.endsWith('.sock')) };
  return { kind: 'unreachable', ...known, reason: refused ? 'it holds the lock and nobody listens at its socket' : ledger.message };
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

/** The text of a small file that is one, read without following a link or waiting for a FIFO; null when there is none to read. */
export async function readSmall(path: string): Promise<string | null> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants as { readonly O_RDONLY: number; readonly O_NOFOLLOW?: number; readonly O_NONBLOCK?: number };
  const file = await open(path, O_RDONLY | (O_NOFOLLOW ?? 0) | (O_NONBLOCK ?? 0)).catch(() => null);
  if (file === null) return null;
  try {
    if (!(await file.stat()).isFile()) return null;
    const { buffer, bytesRead } = await file.read(Buffer.alloc(textBytesMax), 0, textBytesMax, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } catch {
    // Gone or refused between the opening and the reading: there is nothing to read.
    return null;
  } finally {
    await file.close();
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
