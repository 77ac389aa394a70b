/** What the broker hands a worker in its environment, read once and checked. */
import { LeaseholdError, brokenRelation, defaultLimits, type Limits } from '../../protocol/index.js';
import type { VisibleCard, VisibleMemory } from './engine.js';

export interface WorkerEnvironment {
  readonly socketPath: string;
  readonly spawnId: string;
  readonly key: string;
  readonly dataSocketPath: string;
  readonly cards: readonly VisibleCard[];
  /** Null: the machine's memory is not leased. */
  readonly memory: VisibleMemory | null;
  readonly limits: Limits;
}

type Variables = Record<string, string | undefined>;

/**
 * Reads LEASEHOLD_SOCKET, LEASEHOLD_SPAWN, LEASEHOLD_KEY, LEASEHOLD_DATA_SOCKET,
 * LEASEHOLD_DEVICES (JSON), LEASEHOLD_MEMORY (JSON, where it is leased) and
 * LEASEHOLD_LIMITS (JSON, optional: what the operator set). The key is deleted at once, so that no child inherits it;
 * LEASEHOLD_TOKEN stays: by it the guard finds all descendants.
 */
export function readEnvironment(env: Variables): WorkerEnvironment {
  const key = required(env, 'LEASEHOLD_KEY');
  delete env['LEASEHOLD_KEY'];
  return {
    socketPath: required(env, 'LEASEHOLD_SOCKET'),
    spawnId: required(env, 'LEASEHOLD_SPAWN'),
    key,
    dataSocketPath: required(env, 'LEASEHOLD_DATA_SOCKET'),
    cards: readCards(env['LEASEHOLD_DEVICES']),
    memory: readMemory(env['LEASEHOLD_MEMORY']),
    limits: readLimits(env['LEASEHOLD_LIMITS']),
  };
}

function required(env: Variables, name: string): string {
  const value = env[name];
  if (value === undefined || value === '') throw new LeaseholdError('input_invalid', { field: name, reason: 'a worker is started by a broker, which sets it' });
  return value;
}

function readCards(text: string | undefined): VisibleCard[] {
  const value = readJson('LEASEHOLD_DEVICES', text ?? '[]');
  if (!Array.isArray(value)) throw new LeaseholdError('input_invalid', { field: 'LEASEHOLD_DEVICES', reason: 'it must be a JSON list' });
  return value.map(readCard);
}

function readCard(value: unknown): VisibleCard {
  const card = value as Partial<VisibleCard> | null;
  if (typeof card?.device !== 'string') throw new LeaseholdError('input_invalid', { field: 'LEASEHOLD_DEVICES', reason: 'a card lacks its device' });
  return { device: card.device, name: card.name ?? card.device, totalBytes: card.totalBytes ?? null, simulated: card.simulated ?? false };
}

function readMemory(text: string | undefined): VisibleMemory | null {
  if (text === undefined) return null;
  const memory = readJson('LEASEHOLD_MEMORY', text) as Partial<VisibleMemory> | null;
  if (typeof memory?.device !== 'string') throw new LeaseholdError('input_invalid', { field: 'LEASEHOLD_MEMORY', reason: 'it lacks its device' });
  return { device: memory.device, totalBytes: memory.totalBytes ?? 0, simulated: memory.simulated ?? false };
}

function readLimits(text: string | undefined): Limits {
  if (text === undefined) return defaultLimits;
  const value = readJson('LEASEHOLD_LIMITS', text);
  const limits = { ...defaultLimits, ...(value as Partial<Limits>) };
  for (const [name, limit] of Object.entries(limits)) {
    if (!Object.hasOwn(defaultLimits, name) || !Number.isSafeInteger(limit) || limit < 0) {
      throw new LeaseholdError('input_invalid', { field: `LEASEHOLD_LIMITS.${name}`, reason: 'it must be a known limit and a whole number' });
    }
  }
  const broken = brokenRelation(limits);
  if (broken !== null) throw new LeaseholdError('limit_relation', { relation: broken.text });
  return limits;
}

function readJson(field: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new LeaseholdError('input_invalid', { field, reason: 'it is not JSON' }, { cause: error });
  }
}
