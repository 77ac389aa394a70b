/** From a file, or the name of a scenario that ships, to a checked scenario. */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseBytes } from '../../protocol/byte-size.js';
import { LeaseholdError, defaultLimits, durationText, suggest, type Limits, type RequestClass } from '../../protocol/index.js';
import { configInvalid, type Fault, type Pointer, type Source } from '../config/fault.js';
import { parseDocument } from '../config/document.js';
import { parseDurationMs } from '../config/durations.js';
import { packagePath, schemaAt } from '../config/schema-file.js';
import { readTextFile } from '../config/text-file.js';
import { assertValid, unknownKey } from '../config/validate.js';
import type { Arrivals, Bound, FaultAct, LieName, Scenario, ScenarioDevice, ScenarioEngine, ScenarioFault, ScenarioModel } from './scenario.js';

type Size = string | number;
type Duration = string | number;

/** What the schema has let through. */
interface Written {
  readonly about: string;
  readonly seed?: number;
  readonly for: Duration;
  readonly devices: readonly { readonly size: Size; readonly reserve?: Size; readonly yield?: Size; readonly floor?: Size; readonly confirms?: ScenarioDevice['confirms'] }[];
  readonly engines?: Readonly<Record<string, { readonly modelsPerWorker?: number; readonly floor?: Size; readonly spawn?: Duration; readonly partial?: boolean; readonly profilesFreeMemory?: boolean }>>;
  readonly models: Readonly<Record<string, WrittenModel>>;
  readonly arrivals: readonly WrittenArrivals[];
  readonly faults?: readonly WrittenFault[];
  readonly limits?: Readonly<Record<string, number>>;
  readonly expect?: Readonly<Record<string, Bound>>;
}

interface WrittenModel {
  readonly engine?: string;
  readonly source?: string;
  readonly bytes: Size;
  readonly truly?: Size;
  readonly context?: Size;
  readonly peak?: Size;
  readonly load: Duration;
  readonly move?: Duration;
  readonly call?: Duration;
  readonly parallel?: number;
  readonly cards?: number;
  readonly split?: readonly number[];
  readonly parkable?: boolean;
  readonly class?: RequestClass;
  readonly ttl?: Duration;
  readonly pinned?: boolean;
  readonly loadFails?: number;
}

interface WrittenArrivals {
  readonly models?: readonly string[];
  readonly pick?: Arrivals['pick'];
  readonly exponent?: number;
  readonly every?: Duration;
  readonly callers?: number;
  readonly atOnce?: number;
  readonly think?: Duration;
  readonly from?: Duration;
  readonly until?: Duration;
  readonly class?: RequestClass;
  readonly deadline?: Duration;
  readonly patience?: Duration;
}

interface WrittenFault {
  readonly at?: Duration;
  readonly every?: Duration;
  readonly for?: Duration;
  readonly device?: number;
  readonly kill?: 'worker' | 'client';
  readonly stop?: 'worker';
  readonly squat?: Size;
  readonly probe?: 'fails' | 'hangs';
  readonly lose?: 'card';
  readonly suspend?: Duration;
  readonly stall?: Duration;
  readonly lag?: Duration;
  readonly lies?: Readonly<Partial<Record<LieName, number>>>;
}

const shippedFolder = (): string => packagePath('src', 'scenarios', 'shipped');
const tenMinutesMs = 600_000;
const lastingMs = 5_000;

/** Names of the scenarios that ship, in order. */
export function shippedScenarios(): readonly string[] {
  return readdirSync(shippedFolder()).filter((name) => name.endsWith('.yaml')).map((name) => basename(name, '.yaml')).sort();
}

/** Rejects with `config_unreadable` or `config_invalid`, which name the place in the file and what is allowed there. */
export async function readScenario(fileOrName: string): Promise<Scenario> {
  const shipped = shippedScenarios();
  const path = shipped.includes(fileOrName) ? join(shippedFolder(), `${fileOrName}.yaml`) : fileOrName;
  if (!existsSync(path)) {
    const near = suggest(fileOrName, shipped);
    throw new LeaseholdError('config_unreadable', { path: fileOrName, reason: `there is no such file, nor a scenario of that name${near === null ? `; those that ship: ${shipped.join(', ')}` : `; did you mean ${near}?`}` }, { help: '`leasehold stress --list` shows those that ship; a file is named by its path.' });
  }
  const document = await parseDocument(path, await readTextFile(path, false) ?? '', `Scenarios that ship, to begin from: ${shippedFolder()}`);
  await assertValid(document.value, document, schemaAt(packagePath('src', 'scenarios', 'schema.json')), document.faults);
  return new Reading(document).scenario(basename(path).replace(/\.ya?ml$/, ''), document.value as Written);
}

/** What the schema cannot say: names that must be known, one of several keys, moments in order. All faults at once. */
class Reading {
  private readonly faults: Fault[] = [];

  constructor(private readonly source: Source) {}

  scenario(name: string, written: Written): Scenario {
    const durationMs = this.ms(written.for);
    const engines = Object.fromEntries(Object.entries(written.engines ?? { simulated: {} }).map(([engine, about]) => [engine, engineOf(about, (given, otherwise) => this.ms(given, otherwise))]));
    const names = Object.keys(written.models);
    const scenario: Scenario = {
      name, about: written.about, seed: written.seed ?? 1, durationMs,
      devices: written.devices.map(({ size, reserve, yield: free, floor, confirms }) => ({ totalBytes: bytes(size), reserveBytes: bytes(reserve ?? 0), yieldFreeBytes: free === undefined ? null : bytes(free), floorBytes: bytes(floor ?? 0), confirms: confirms ?? 'process' })),
      engines,
      models: Object.fromEntries(Object.entries(written.models).map(([model, about]) => [model, this.model(['models', model], about, Object.keys(engines), written.devices.length)])),
      arrivals: written.arrivals.map((arrivals, index) => this.arrivals(['arrivals', index], arrivals, names, durationMs)),
      faults: (written.faults ?? []).map((fault, index) => this.fault(['faults', index], fault, written.devices.length)),
      limits: this.limits(written.limits ?? {}),
      expect: written.expect ?? {},
    };
    if (this.faults.length > 0) throw configInvalid(this.source, this.faults);
    return scenario;
  }

  private model(pointer: Pointer, written: WrittenModel, engines: readonly string[], devices: number): ScenarioModel {
    const engine = written.engine ?? engines[0] ?? '';
    if (written.engine === undefined && engines.length > 1) this.wrong(pointer, 'key', `engine is missing; there are ${engines.join(', ')}`);
    if (!engines.includes(engine)) this.wrong([...pointer, 'engine'], 'value', `no engine ${JSON.stringify(engine)} here; there are ${engines.join(', ')}`);
    const cards = written.cards ?? written.split?.length ?? 1;
    if (cards > devices) this.wrong([...pointer, written.cards === undefined ? 'split' : 'cards'], 'value', `${cards} cards are wanted and ${devices} ${devices === 1 ? 'is' : 'are'} there`);
    if ((written.split?.length ?? cards) !== cards) this.wrong([...pointer, 'split'], 'value', `it has ${written.split?.length ?? 0} shares for ${cards} ${cards === 1 ? 'card' : 'cards'}`);
    const loadMs = this.ms(written.load);
    return {
      engine, source: written.source ?? null, weightsBytes: bytes(written.bytes), trueWeightsBytes: bytes(written.truly ?? written.bytes),
      contextBytes: bytes(written.context ?? 0), peakBytes: bytes(written.peak ?? 0),
      loadMs, moveMs: written.move === undefined ? Math.max(5, Math.round(loadMs / 10)) : this.ms(written.move), callMs: this.ms(written.call, 1_000),
      parallel: written.parallel ?? 1, shares: sharesOf(written.split ?? Array<number>(cards).fill(1)), parkable: written.parkable ?? false, class: written.class ?? 'normal', ttlMs: written.ttl === undefined ? null : this.ms(written.ttl),
      pinned: written.pinned ?? false, loadFails: written.loadFails ?? 0,
    };
  }

  private arrivals(pointer: Pointer, written: WrittenArrivals, names: readonly string[], durationMs: number): Arrivals {
    const given = (['every', 'callers', 'atOnce'] as const).filter((key) => written[key] !== undefined);
    if (given.length !== 1) this.wrong(pointer, 'key', `one of every, callers and atOnce must be there${given.length === 0 ? '' : `, not ${given.join(' and ')}`}`);
    for (const [index, name] of (written.models ?? []).entries()) {
      const near = suggest(name, names);
      if (!names.includes(name)) this.wrong([...pointer, 'models', index], 'value', `no model ${JSON.stringify(name)} here${near === null ? `; there are ${names.slice(0, 14).join(', ')}` : `; did you mean ${near}?`}`);
    }
    const fromMs = this.ms(written.from, 0);
    const untilMs = this.ms(written.until, durationMs);
    if (fromMs > untilMs) this.wrong([...pointer, 'from'], 'value', `${durationText(fromMs)} is after until, ${durationText(untilMs)}`);
    const how: Arrivals['how'] = written.callers !== undefined ? { kind: 'callers', count: written.callers, thinkMs: this.ms(written.think, 0) }
      : written.atOnce !== undefined ? { kind: 'atOnce', count: written.atOnce } : { kind: 'every', meanMs: Math.max(1, this.ms(written.every, 1_000)) };
    return {
      models: written.models ?? names, pick: written.pick ?? 'turns', exponent: written.exponent ?? 1, how, fromMs, untilMs,
      class: written.class ?? null, deadlineMs: this.ms(written.deadline, tenMinutesMs), patienceMs: written.patience === undefined ? null : this.ms(written.patience),
    };
  }

  private fault(pointer: Pointer, written: WrittenFault, devices: number): ScenarioFault {
    const acts = (['kill', 'stop', 'squat', 'probe', 'lose', 'suspend', 'stall'] as const).filter((key) => written[key] !== undefined);
    const lasting = written.lag !== undefined || written.lies !== undefined;
    if (acts.length + (lasting ? 1 : 0) !== 1) this.wrong(pointer, 'key', 'one fault an entry: kill, stop, squat, probe, lose, suspend, stall, or lag and lies');
    if ((written.device ?? 0) >= devices) this.wrong([...pointer, 'device'], 'value', `there is no card ${written.device ?? 0}; the last is ${devices - 1}`);
    if (lasting) return { when: null, lagMs: this.ms(written.lag, 0), lies: written.lies ?? {} };
    if ((written.at === undefined) === (written.every === undefined)) this.wrong(pointer, 'key', 'one of at and every must say when');
    const when = written.every === undefined ? { kind: 'at' as const, ms: this.ms(written.at, 0) } : { kind: 'every' as const, ms: Math.max(1, this.ms(written.every)) };
    return { when, act: this.act(written) };
  }

  private act(written: WrittenFault): FaultAct {
    const forMs = this.ms(written.for, lastingMs);
    const device = written.device ?? 0;
    if (written.kill !== undefined) return { kind: 'kill', whom: written.kill };
    if (written.squat !== undefined) return { kind: 'squat', bytes: bytes(written.squat), device, forMs };
    if (written.probe !== undefined) return { kind: 'probe', how: written.probe, device, forMs };
    if (written.lose !== undefined) return { kind: 'lose', device, forMs };
    if (written.suspend !== undefined) return { kind: 'suspend', forMs: this.ms(written.suspend) };
    if (written.stall !== undefined) return { kind: 'stall', forMs: this.ms(written.stall) };
    return { kind: 'stop', forMs };
  }

  private limits(written: Readonly<Record<string, number>>): Partial<Limits> {
    for (const name of Object.keys(written)) if (!Object.hasOwn(defaultLimits, name)) this.wrong(['limits', name], 'key', unknownKey(name, Object.keys(defaultLimits)));
    return written;
  }

  private ms(given: Duration | undefined, otherwise = 0): number {
    return given === undefined ? otherwise : parseDurationMs(given) ?? otherwise;
  }

  private wrong(pointer: Pointer, part: Fault['part'], reason: string): void {
    this.faults.push({ pointer, part, reason });
  }
}

function engineOf(written: NonNullable<Written['engines']>[string], ms: (given: Duration | undefined, otherwise: number) => number): ScenarioEngine {
  return {
    modelsPerWorker: written.modelsPerWorker ?? 1, floorBytes: bytes(written.floor ?? 0), spawnMs: ms(written.spawn, 500),
    partial: written.partial ?? false, profilesFreeMemory: written.profilesFreeMemory ?? false,
  };
}

function sharesOf(split: readonly number[]): readonly number[] {
  const sum = split.reduce((total, share) => total + share, 0);
  return split.map((share) => share / sum);
}

function bytes(size: Size): number {
  return parseBytes(String(size), 'size');
}
