/** Settings as words of an environment or a command line, in the shape of the file. */
import { defaultLimits, suggest, type LimitName } from '../../protocol/index.js';
import { pointerText, type Fault, type Pointer, type Source } from './fault.js';

/** What the command line sets; each key is the long name of its option. */
export interface Flags {
  readonly config?: string;
  readonly state?: string;
  readonly device?: readonly string[];
  readonly reserve?: string;
  readonly yield?: string;
  readonly broker?: string;
  readonly hostMemory?: string;
  readonly hostReserve?: string;
  readonly allowLedgerOnly?: boolean;
  readonly limit?: readonly string[];
  readonly logLevel?: string;
  readonly logFile?: string;
}

/** A source and what it says, not yet checked. */
export interface Spoken extends Source {
  readonly value: Readonly<Record<string, unknown>>;
  /** Words that are no setting at all. */
  readonly faults: readonly Fault[];
}

/** Variables that set one key each; `LEASEHOLD_LIMIT_*` are besides. Empty means not set. */
export const configVariables: Readonly<Record<string, Pointer>> = {
  LEASEHOLD_STATE: ['state'],
  LEASEHOLD_DEVICES: ['devices'],
  LEASEHOLD_RESERVE: ['reserve'],
  LEASEHOLD_YIELD: ['yield'],
  LEASEHOLD_BROKER: ['broker'],
  LEASEHOLD_HOST_MEMORY: ['hostMemory', 'lease'],
  LEASEHOLD_HOST_RESERVE: ['hostMemory', 'reserve'],
  LEASEHOLD_ALLOW_LEDGER_ONLY: ['allowLedgerOnly'],
  LEASEHOLD_LOG_LEVEL: ['log', 'level'],
  LEASEHOLD_LOG_FILE: ['log', 'file'],
};

const limitPrefix = 'LEASEHOLD_LIMIT_';
/** LEASEHOLD_CONFIG names the file, the rest are set by a broker for its workers: never a slip of somebody's pen. */
const otherVariables = new Set(['LEASEHOLD_CONFIG', 'LEASEHOLD_SOCKET', 'LEASEHOLD_SPAWN', 'LEASEHOLD_KEY', 'LEASEHOLD_DATA_SOCKET', 'LEASEHOLD_MEMORY', 'LEASEHOLD_LIMITS', 'LEASEHOLD_TOKEN']);

const booleans: Readonly<Record<string, boolean>> = { 1: true, 0: false, true: true, false: false, yes: true, no: false };

/** `heartbeatIntervalMs` → `LEASEHOLD_LIMIT_HEARTBEAT_INTERVAL_MS` */
export function limitVariable(name: LimitName): string {
  return limitPrefix + name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}

/**
 * Settings of the environment. A `LEASEHOLD_LIMIT_*` that is no limit, and any other name one slip away from
 * one of ours, is refused: it would silently do nothing.
 */
export function fromEnvironment(env: NodeJS.ProcessEnv): Spoken {
  const limitNames = new Map((Object.keys(defaultLimits) as LimitName[]).map((name) => [limitVariable(name), name]));
  const variables = new Map<string, Pointer>([...Object.entries(configVariables), ...[...limitNames].map(([variable, name]) => [variable, ['limits', name]] as const)]);
  const spoken = new Builder('environment', new Map([...variables].map(([variable, pointer]) => [pointerText(pointer), variable])), (where) => `Correct the variable ${where}, or unset it.`);
  for (const [name, text] of Object.entries(env)) {
    if (text === undefined || text.trim() === '' || !name.startsWith('LEASEHOLD_')) continue;
    const pointer = variables.get(name);
    if (pointer !== undefined) spoken.set(pointer, meaning(pointer, text));
    else if (!otherVariables.has(name)) refuseSlip(name, [...variables.keys(), 'LEASEHOLD_CONFIG'], spoken);
  }
  return spoken;
}

/** Settings of the command line. */
export function fromFlags(flags: Flags): Spoken {
  const names: Readonly<Record<string, string>> = {
    'state': '--state', 'devices': '--device', 'reserve': '--reserve', 'yield': '--yield', 'broker': '--broker',
    'hostMemory.lease': '--host-memory', 'hostMemory.reserve': '--host-reserve', 'allowLedgerOnly': '--allow-ledger-only', 'log.level': '--log-level', 'log.file': '--log-file', 'limits': '--limit',
  };
  const spoken = new Builder('command line', new Map(Object.entries(names)), (where) => (where.startsWith('--limit') ? '`leasehold limits` lists every limit with its default.' : 'The same command with --help says what each option takes.'));
  if (flags.state !== undefined) spoken.set(['state'], flags.state);
  if (flags.device !== undefined && flags.device.length > 0) spoken.set(['devices'], flags.device.flatMap(deviceList));
  if (flags.reserve !== undefined) spoken.set(['reserve'], meaning(['reserve'], flags.reserve));
  if (flags.yield !== undefined) spoken.set(['yield'], meaning(['yield'], flags.yield));
  if (flags.broker !== undefined) spoken.set(['broker'], flags.broker);
  if (flags.hostMemory !== undefined) spoken.set(['hostMemory', 'lease'], flags.hostMemory);
  if (flags.hostReserve !== undefined) spoken.set(['hostMemory', 'reserve'], meaning(['hostMemory', 'reserve'], flags.hostReserve));
  if (flags.allowLedgerOnly !== undefined) spoken.set(['allowLedgerOnly'], flags.allowLedgerOnly);
  if (flags.logLevel !== undefined) spoken.set(['log', 'level'], flags.logLevel);
  if (flags.logFile !== undefined) spoken.set(['log', 'file'], flags.logFile);
  for (const pair of flags.limit ?? []) {
    const equals = pair.indexOf('=');
    if (equals < 1) {
      spoken.faults.push({ pointer: ['limits'], part: 'value', reason: `must be NAME=VALUE, not ${JSON.stringify(pair)}` });
      continue;
    }
    const pointer = ['limits', pair.slice(0, equals)];
    spoken.set(pointer, meaning(pointer, pair.slice(equals + 1)));
  }
  return spoken;
}

class Builder implements Spoken {
  readonly name: string;
  readonly help: (where: string) => string;
  readonly value: Record<string, unknown> = {};
  readonly faults: Fault[] = [];
  readonly #names: ReadonlyMap<string, string>;

  /** `names`: what a person calls each key there. */
  constructor(name: string, names: ReadonlyMap<string, string>, help: (where: string) => string) {
    this.name = name;
    this.help = help;
    this.#names = names;
  }

  set(pointer: Pointer, value: unknown): void {
    const [first, second] = pointer.map(String);
    if (first === undefined) return;
    if (second === undefined) this.value[first] = value;
    // Own properties only, whatever the name: `__proto__` must reach the check, not the prototype.
    else this.value[first] = Object.defineProperty(this.value[first] ?? {}, second, { value, enumerable: true, configurable: true, writable: true });
  }

  locate(pointer: Pointer): { readonly where: string; readonly line: null; readonly column: null } {
    for (let depth = pointer.length; depth > 0; depth--) {
      const name = this.#names.get(pointerText(pointer.slice(0, depth)));
      if (name !== undefined) return { where: depth === 1 && pointer[0] === 'limits' ? `${name} ${String(pointer[1] ?? '')}`.trim() : name, line: null, column: null };
    }
    return { where: pointerText(pointer), line: null, column: null };
  }
}

/** Several cards in one word: separated by spaces, or by commas where a card begins after them (`sim:` takes commas of its own). */
function deviceList(text: string): string[] {
  return text.trim().split(/\s+|\s*,\s*(?=auto$|cpu|sim:|(?:GPU|MIG|CPU)-)/i).filter((word) => word !== '');
}

/** A word as the value that the schema wants at that key; the schema judges what does not fit. */
function meaning(pointer: Pointer, text: string): unknown {
  const trimmed = text.trim();
  if (pointer[0] === 'devices') return deviceList(trimmed);
  if (pointer[0] === 'allowLedgerOnly') return booleans[trimmed.toLowerCase()] ?? trimmed;
  const numeric = pointer.includes('reserve') || pointer[0] === 'yield' || pointer[0] === 'limits';
  return numeric && /^-?\d{1,15}$/.test(trimmed) ? Number(trimmed) : trimmed;
}

function refuseSlip(name: string, known: readonly string[], { faults }: Builder): void {
  const near = suggest(name.slice('LEASEHOLD_'.length), known.map((variable) => variable.slice('LEASEHOLD_'.length)));
  if (near === null && !name.startsWith(limitPrefix)) return;
  const reason = near === null ? 'there is no such limit' : `there is no such variable; did you mean LEASEHOLD_${near}?`;
  faults.push({ pointer: [name], part: 'key', reason });
}
