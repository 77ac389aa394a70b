/** What `createBroker` is given, checked before anything is opened or started: callers in plain JavaScript give anything. */
import { LeaseholdError, classes, type ClassPolicy } from '../../protocol/index.js';
import type { CardDescription } from '../devices/index.js';
import type { EngineCommand } from './engines.js';

/** Cards that one broker owns; what peers say of their devices is as long at most. */
export const cardsMax = 64;

interface Checked {
  readonly discover: unknown;
  readonly engines: readonly EngineCommand[];
  readonly classPolicies?: Readonly<Record<string, ClassPolicy>>;
  readonly expectedWorkers?: number;
  readonly stateFolder?: string;
}

const engineNameLengthMax = 64;
/** Timers and sums of waits reach no further. */
const policyMsMax = 2 ** 31 - 1;

/** Throws `config_invalid` that names the first thing which is wrong. */
export function checkBrokerOptions(options: Checked): void {
  const { discover, engines, classPolicies, expectedWorkers, stateFolder } = options;
  if (typeof discover !== 'function') throw invalid('discover', 'it must be a function');
  if (stateFolder !== undefined && !isText(stateFolder)) throw invalid('stateFolder', 'it must be a path');
  if (expectedWorkers !== undefined && !isCount(expectedWorkers, 0)) throw invalid('expectedWorkers', `${String(expectedWorkers)} is not a whole number from 0 on`);
  if (!Array.isArray(engines)) throw invalid('engines', 'it must be a list');
  const names = new Set<string>();
  for (const engine of engines as readonly EngineCommand[]) {
    checkEngine(engine);
    if (names.has(engine.name)) throw invalid(`engines.${engine.name}`, 'two engines have this name');
    names.add(engine.name);
  }
  if (classPolicies !== undefined) for (const name of classes) checkPolicy(name, classPolicies[name]);
}

/** Throws `config_invalid` when there are more cards than one broker can own, one without a name, or two of one name. */
export function checkCards(cards: readonly Pick<CardDescription, 'device' | 'kind'>[]): void {
  const devices: readonly unknown[] = cards.flatMap(({ device, kind }) => (kind === 'host' ? [] : [device]));
  if (devices.length > cardsMax) throw invalid('devices', `${String(devices.length)} cards are more than the ${String(cardsMax)} that one broker can own`);
  const strange = devices.find((device) => !isText(device));
  if (strange !== undefined) throw invalid('devices', `${JSON.stringify(strange)} is not the name of a card`);
  const twice = devices.find((device, index) => devices.indexOf(device) !== index);
  if (twice !== undefined) throw invalid('devices', `${JSON.stringify(twice)} is named twice`);
}

function checkEngine(engine: EngineCommand): void {
  if (typeof engine !== 'object' || (engine as unknown) === null) throw invalid('engines', `${JSON.stringify(engine)} is not an engine`);
  const { name, command, args, env, modelsPerWorker, floorBytes = 0 } = engine;
  if (!isText(name) || name.length > engineNameLengthMax) throw invalid('engines', `a name must have 1 to ${String(engineNameLengthMax)} characters, not ${JSON.stringify([name]).slice(1, -1).slice(0, 100)}`);
  const where = `engines.${name}`;
  if (!isText(command)) throw invalid(`${where}.command`, 'it must be the path or name of a program');
  if (!Array.isArray(args) || !args.every(isArgument)) throw invalid(`${where}.args`, 'it must be a list of strings without NUL');
  if (typeof env !== 'object' || (env as unknown) === null || !Object.entries(env).every(isVariable)) throw invalid(`${where}.env`, 'it must have strings without NUL by names without NUL or =');
  if (!isCount(modelsPerWorker, 1)) throw invalid(`${where}.modelsPerWorker`, `${String(modelsPerWorker)} is not a whole number from 1 on`);
  if (!isCount(floorBytes, 0)) throw invalid(`${where}.floorBytes`, `${String(floorBytes)} is not a whole number of bytes`);
}

const policyKeys = ['rank', 'ageingMs', 'minimumResidencyMs', 'longestWaitMs', 'drainAfterMs'] as const satisfies readonly (keyof ClassPolicy)[];

function checkPolicy(name: string, policy: ClassPolicy | undefined): void {
  if (typeof policy !== 'object' || (policy as unknown) === null) throw invalid(`classPolicies.${name}`, 'it is missing');
  for (const key of policyKeys) {
    // Ageing divides by it.
    const minimum = key === 'ageingMs' ? 1 : 0;
    if (!isCount(policy[key], minimum) || policy[key] > policyMsMax) {
      throw invalid(`classPolicies.${name}.${key}`, `${String(policy[key])} is not a whole number from ${String(minimum)} to ${String(policyMsMax)}`);
    }
  }
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !value.includes('\0');
}

function isArgument(value: unknown): boolean {
  return typeof value === 'string' && !value.includes('\0');
}

function isVariable([name, value]: readonly [string, unknown]): boolean {
  return isText(name) && !name.includes('=') && isArgument(value);
}

function isCount(value: unknown, minimum: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= minimum;
}

function invalid(where: string, reason: string): LeaseholdError {
  return new LeaseholdError('config_invalid', { path: 'broker', where, reason });
}
