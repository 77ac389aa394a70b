/** What written settings mean: sizes, durations and paths in our units and names. */
import { isAbsolute, join, resolve } from 'node:path';
import {
  LeaseholdError, classes, defaultLimits, parseBytes, type ClassPolicy, type LimitName, type Limits, type RequestClass,
} from '../../protocol/index.js';
import type { EngineOptions, HostMemoryOptions, ModelOptions, YieldFree } from '../orchestrator/options.js';
import { durationMsMax, parseDurationMs } from './durations.js';
import { pointerText, type Fault, type Pointer } from './fault.js';
import { contextTokensMax, parseContextTokens } from './tokens.js';
import type { Duration, LogLevel, Scalar, Size, Written, WrittenModel, WrittenYield } from './written.js';

/** One source's settings in our units; what it does not say is absent. */
/** Limits are kept by timers, which reach no further (24 days). */
const timerMsMax = 2 ** 31 - 1;

export interface Settings {
  readonly devices?: readonly string[];
  readonly reserveBytes?: number | Readonly<Record<string, number>>;
  readonly yieldFreeBytes?: YieldFree | Readonly<Record<string, YieldFree>>;
  readonly stateFolder?: string;
  readonly broker?: 'auto' | 'own' | 'attach';
  readonly allowLedgerOnly?: boolean;
  readonly hostMemory?: HostMemoryOptions;
  readonly models?: Readonly<Record<string, ModelOptions>>;
  readonly engines?: readonly EngineOptions[];
  readonly limits?: Partial<Limits>;
  readonly classPolicies?: Readonly<Partial<Record<RequestClass, Partial<ClassPolicy>>>>;
  readonly logLevel?: LogLevel;
  readonly logFile?: string | null;
}

/** Written settings as ours, and what of them means nothing; the settings are whole where that is nothing. `folder` is what relative paths are relative to. */
export function interpret(written: Written, folder: string, home: string): { readonly settings: Settings; readonly faults: readonly Fault[] } {
  const read = new Reader(folder, home);
  const settings = withoutUndefined<Settings>({
    devices: typeof written.devices === 'string' ? [written.devices] : written.devices,
    reserveBytes: read.reserve(written.reserve),
    yieldFreeBytes: read.yield(written.yield),
    stateFolder: written.state === undefined ? undefined : read.path(written.state),
    broker: written.broker,
    allowLedgerOnly: written.allowLedgerOnly,
    hostMemory: read.hostMemory(written.hostMemory),
    models: read.each(written.models, (model, pointer) => read.model(model, pointer), ['models']),
    engines: read.engines(written.workers),
    limits: read.limits(written.limits),
    classPolicies: read.classPolicies(written.limits?.classes),
    logLevel: written.log?.level,
    logFile: typeof written.log?.file === 'string' ? read.path(written.log.file) : written.log?.file,
  });
  return { settings, faults: read.faults };
}

class Reader {
  readonly faults: Fault[] = [];
  readonly #folder: string;
  readonly #home: string;

  constructor(folder: string, home: string) {
    this.#folder = folder;
    this.#home = home;
  }

  /** `~/` is the home folder; a relative path belongs to the file it is written in. */
  path(text: string): string {
    if (text === '~' || text.startsWith('~/')) return join(this.#home, text.slice(1));
    return isAbsolute(text) ? text : resolve(this.#folder, text);
  }

  reserve(written: Written['reserve']): Settings['reserveBytes'] {
    if (written === undefined) return undefined;
    if (typeof written !== 'object') return this.size(written, ['reserve']);
    return this.each(written, (size, pointer) => this.size(size, pointer), ['reserve']);
  }

  yield(written: Written['yield']): Settings['yieldFreeBytes'] {
    if (written === undefined) return undefined;
    const free = (word: WrittenYield, pointer: Pointer): YieldFree => (word === 'off' || word === 'auto' ? word : this.size(word, pointer));
    return typeof written === 'object' ? this.each(written, free, ['yield']) : free(written, ['yield']);
  }

  hostMemory(written: Written['hostMemory']): HostMemoryOptions | undefined {
    if (written === undefined || written === null) return undefined;
    const { lease, reserve, allowUnknown } = written;
    return withoutUndefined<HostMemoryOptions>({ lease, reserveBytes: reserve === undefined ? undefined : this.size(reserve, ['hostMemory', 'reserve']), allowUnknown });
  }

  model(written: WrittenModel, pointer: Pointer): ModelOptions {
    const { ttl } = written;
    return withoutUndefined<ModelOptions>({
      source: this.#modelSource(written.source),
      engine: written.engine,
      contextTokens: written.context === undefined ? undefined : this.tokens(written.context, [...pointer, 'context']),
      parallel: written.parallel,
      ttlMs: ttl === undefined || ttl === null || ttl === 'never' ? (ttl === undefined ? undefined : null) : this.duration(ttl, [...pointer, 'ttl']),
      preload: written.preload,
      pinned: written.pin,
      exclusive: written.exclusive,
      device: written.device,
      cards: written.cards,
      devices: written.devices,
      class: written.class,
      aliases: written.aliases,
      declaredBytes: written.declaredBytes === undefined ? undefined : this.size(written.declaredBytes, [...pointer, 'declaredBytes']),
      embedding: written.embedding,
      offload: written.offload,
      options: texts(written.options),
    });
  }

  engines(written: Written['workers']): readonly EngineOptions[] | undefined {
    const engines = this.each(written, (worker, pointer) => {
      const name = String(pointer[1]);
      if (worker.command === undefined && name !== 'llama' && name !== 'simulated') this.refuse(pointer, 'command is missing; only llama and simulated have one built in');
      if (worker.cpuFallback !== undefined && (name !== 'llama' || worker.command !== undefined)) this.refuse([...pointer, 'cpuFallback'], 'it is a setting of the built-in llama engine alone');
      const { command } = worker;
      return withoutUndefined<EngineOptions>({
        name,
        command: command === undefined || !/[\\/]/.test(command) ? command : this.path(command),
        args: worker.args,
        env: texts(worker.env),
        modelsPerWorker: worker.modelsPerWorker,
        floorBytes: worker.floor === undefined ? undefined : this.size(worker.floor, [...pointer, 'floor']),
        cpuFallback: worker.cpuFallback,
      });
    }, ['workers']);
    return engines === undefined ? undefined : Object.values(engines);
  }

  limits(written: Written['limits']): Partial<Limits> | undefined {
    if (written === undefined || written === null) return undefined;
    const limits: Partial<Record<LimitName, number>> = {};
    for (const name of Object.keys(defaultLimits) as LimitName[]) {
      const value = written[name];
      if (value !== undefined) limits[name] = this.#quantity(name, value, ['limits', name]);
    }
    return limits;
  }

  classPolicies(written: NonNullable<Written['limits']>['classes']): Settings['classPolicies'] {
    if (written === undefined || written === null) return undefined;
    const policies: Partial<Record<RequestClass, Partial<ClassPolicy>>> = {};
    for (const name of classes) {
      const policy = this.each(written[name], (value, pointer) => this.#quantity(String(pointer.at(-1)), value, pointer), ['limits', 'classes', name]);
      if (policy !== undefined) policies[name] = policy;
    }
    return policies;
  }

  size(written: Size, pointer: Pointer): number {
    try {
      return parseBytes(String(written), pointerText(pointer));
    } catch (error) {
      // The pattern has passed: only its size can be wrong.
      if (!(error instanceof LeaseholdError)) throw error;
      this.refuse(pointer, 'must be at most 9007199254740991 bytes');
      return 0;
    }
  }

  duration(written: Duration, pointer: Pointer, maximumMs = durationMsMax): number {
    const ms = parseDurationMs(written);
    if (ms !== null && ms <= maximumMs) return ms;
    this.refuse(pointer, maximumMs === durationMsMax ? 'must be at most 30d' : `must be at most ${String(maximumMs)} ms (24d)`);
    return 0;
  }

  tokens(written: number | string, pointer: Pointer): number {
    const tokens = parseContextTokens(written);
    // The pattern has passed: only its size can be wrong.
    if (tokens === null) this.refuse(pointer, `must be from 1 to ${contextTokensMax} tokens`);
    return tokens ?? 0;
  }

  each<T, R>(written: Readonly<Record<string, T>> | null | undefined, convert: (value: T, pointer: Pointer) => R, pointer: Pointer): Record<string, R> | undefined {
    if (written === undefined || written === null) return undefined;
    return Object.fromEntries(Object.entries(written).map(([name, value]) => [name, convert(value, [...pointer, name])]));
  }

  refuse(pointer: Pointer, reason: string): void {
    this.faults.push({ pointer, part: 'value', reason });
  }

  /** The unit is in the name, so the name says how to read it. */
  #quantity(name: string, value: number | string, pointer: Pointer): number {
    if (name.includes('Bytes')) return this.size(value, pointer);
    return name.endsWith('Ms') ? this.duration(value, pointer, timerMsMax) : Number(value);
  }

  /** A bare word is the name of a model that ships; `sim:` is a script of the simulated engine, `hf.co/` a model that was pulled; the rest are paths. */
  #modelSource(text: string): string {
    return text.startsWith('sim:') || text.startsWith('hf.co/') || /^[\w-]+$/.test(text) ? text : this.path(text);
  }
}

function texts(written: Readonly<Record<string, Scalar>> | undefined): Readonly<Record<string, string>> | undefined {
  return written === undefined ? undefined : Object.fromEntries(Object.entries(written).map(([name, value]) => [name, String(value)]));
}

/** The object without the keys whose value is undefined. */
function withoutUndefined<T extends object>(given: { readonly [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as T;
}
