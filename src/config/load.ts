/** One validated configuration out of command line, environment, file and defaults, in that order. All or nothing. */
import { homedir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { LeaseholdError, brokenRelations, classes, defaultLimits, limitText, type ClassPolicy, type LimitName, type Limits, type RequestClass } from '../../protocol/index.js';
import type { OrchestratorOptions } from '../orchestrator/options.js';
import { parseDocument } from './document.js';
import { allInvalid, type Fault, type Source, type SourceFaults } from './fault.js';
import { pointerOf } from './option-names.js';
import { interpret, type Settings } from './settings.js';
import { fromEnvironment, fromFlags, type Flags } from './spoken.js';
import { isPlainlyValid } from './plain.js';
import { packagePath } from './schema-file.js';
import { readTextFile } from './text-file.js';
import { schemaFaults, without } from './validate.js';
import type { LogLevel, Written } from './written.js';

export interface LoadedConfig {
  /** The file that was read; null when there was none. */
  readonly path: string | null;
  /** All but the log, which whoever runs it makes from `log`. */
  readonly options: OrchestratorOptions;
  readonly log: { readonly level: LogLevel; readonly file: string | null };
  /** An error of the library about one of these options, told at the place where a person wrote it; any other as it is. */
  atItsPlace(error: LeaseholdError): LeaseholdError;
}

export interface LoadConfigRequest {
  readonly flags?: Flags;
  /** Default: this process's. */
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
  readonly home?: string;
  /** What the library finds wrong with models: asked only where something is wrong already, so that all of it is told at once. */
  readonly judge?: (options: OrchestratorOptions) => Promise<readonly LeaseholdError[]>;
}

interface Layer extends SourceFaults {
  readonly settings: Settings;
}

/**
 * Rejects with `config_unreadable` or `config_invalid`, which names the source, the place in it and what is allowed
 * there, of all that is wrong in all of them. Reads one file: --config, else $LEASEHOLD_CONFIG, else ./leasehold.yaml, else the one in the home folder.
 */
export async function loadConfig(request: LoadConfigRequest = {}): Promise<LoadedConfig> {
  const { flags = {}, env = process.env, cwd = process.cwd(), home = homedir() } = request;
  const file = await readFirst(flags, env, cwd, home);
  const layers = [await layer(fromFlags(flags), cwd, home), await layer(fromEnvironment(env), cwd, home)];
  if (file !== null) {
    const document = await parseDocument(relativeName(file.path, cwd), file.text, `Every key with its meaning: ${packagePath('src', 'config', 'example.yaml')}`);
    layers.push(await layer(document, dirname(file.path), home));
  }
  const wrong = [...layers, ...brokenBy(layers)].filter(({ faults }) => faults.length > 0);
  if (wrong.length > 0) {
    const judged = (await request.judge?.(toOptions(layers)) ?? []).map((error) => placeOf(layers, error));
    throw allInvalid(together([...wrong, ...judged.filter((each) => each !== null)]));
  }
  return {
    path: file?.path ?? null, options: toOptions(layers), log: { level: first(layers, 'logLevel') ?? 'warn', file: first(layers, 'logFile') ?? null },
    atItsPlace: (error) => atItsPlace(layers, error),
  };
}

/** Paths where a file is looked for when nobody names one, in this order. */
export function configSearchPaths(cwd: string, home: string): readonly string[] {
  return [join(cwd, 'leasehold.yaml'), join(home, '.config', 'leasehold', 'leasehold.yaml')];
}

async function readFirst(flags: Flags, env: NodeJS.ProcessEnv, cwd: string, home: string): Promise<{ path: string; text: string } | null> {
  const fromEnv = env['LEASEHOLD_CONFIG']?.trim();
  const named = flags.config ?? (fromEnv === '' ? undefined : fromEnv);
  const paths = named === undefined ? configSearchPaths(cwd, home) : [resolve(cwd, named)];
  for (const path of paths) {
    const text = await readTextFile(path, named === undefined);
    if (text !== null) return { path, text };
  }
  return null;
}

/** The file as a person in that folder would call it. */
function relativeName(path: string, cwd: string): string {
  const name = relative(cwd, path);
  return name.startsWith('..') ? path : name === '' ? basename(path) : name;
}

async function layer(spoken: Source & { readonly value: unknown; readonly faults: readonly Fault[] }, folder: string, home: string): Promise<Layer> {
  if (spoken.value === null) return { source: spoken, settings: {}, faults: spoken.faults };
  const faults = isPlainlyValid(spoken.value) ? [] : await schemaFaults(spoken.value);
  const meant = interpret(await judgeable(spoken.value, faults), folder, home);
  return { source: spoken, settings: meant.settings, faults: [...spoken.faults, ...faults, ...meant.faults] };
}

/** What can be judged of a value although some of it is wrong. What is taken out may leave out what must be there: that goes, too. */
async function judgeable(value: unknown, faults: readonly Fault[]): Promise<Written> {
  let [left, wrong] = [value, faults];
  for (let tries = 0; wrong.length > 0; tries++) {
    if (tries === takenOutMax) return {};
    left = without(left, wrong);
    wrong = await schemaFaults(left);
  }
  return left as Written;
}

/** A setting lies no deeper. */
const takenOutMax = 6;

/** One entry a source, in their order. */
function together(wrong: readonly SourceFaults[]): readonly SourceFaults[] {
  return [...new Set(wrong.map(({ source }) => source))].map((source) => ({ source, faults: wrong.flatMap((each) => (each.source === source ? each.faults : [])) }));
}

function first<K extends keyof Settings>(layers: readonly Layer[], key: K): Settings[K] | undefined {
  return layers.find(({ settings }) => settings[key] !== undefined)?.settings[key];
}

/** The library names an option in its own words; here it gets back the words and the place of the one who wrote it. */
function atItsPlace(layers: readonly Layer[], error: LeaseholdError): LeaseholdError {
  const placed = placeOf(layers, error);
  return placed === null ? error : allInvalid([placed]);
}

function placeOf(layers: readonly Layer[], error: LeaseholdError): SourceFaults | null {
  const named = pointerOf(error.details['option'] ?? '');
  if (named === null) return null;
  const { pointer, setting } = named;
  const source = layers.find(({ settings }) => (setting === 'limits' ? Object.hasOwn(settings.limits ?? {}, String(pointer[1])) : settings[setting] !== undefined))?.source;
  if (source === undefined) return null;
  const reason = error.code === 'config_invalid' ? error.details['reason'] ?? '' : lowered(error.message.replace(/\.$/, ''));
  return { source, faults: [{ pointer, part: 'value', reason }] };
}

/** A sentence as a clause: `There is` begins small, a name stays as it is. */
function lowered(sentence: string): string {
  return sentence.replace(/^[A-Z](?=[a-z]+ )/, (letter) => letter.toLowerCase());
}

/** Limits are merged one by one, whatever source each comes from. */
function mergedLimits(layers: readonly Layer[]): Partial<Limits> {
  return Object.assign({}, ...layers.map(({ settings }) => settings.limits ?? {}).reverse()) as Partial<Limits>;
}

/** Limits that contradict each other, where each of them is one. */
function brokenBy(layers: readonly Layer[]): readonly SourceFaults[] {
  if (layers.some(({ faults }) => faults.some(({ pointer }) => pointer[0] === 'limits'))) return [];
  const limits: Limits = { ...defaultLimits, ...mergedLimits(layers) };
  return brokenRelations(limits).map((broken) => {
    const figures = broken.names.map((name) => `${name} is ${limitText(name, limits[name])}`).join(', ');
    const set = (name: LimitName) => layers.find(({ settings }) => settings.limits?.[name] !== undefined);
    const culprit = broken.names.find((name) => set(name) !== undefined) ?? broken.names[0];
    const source = culprit === undefined ? undefined : set(culprit)?.source;
    // Defaults hold among themselves (the tests say so), so somebody set one of them.
    if (culprit === undefined || source === undefined) throw new LeaseholdError('limit_relation', { relation: broken.text });
    return { source, faults: [{ pointer: ['limits', culprit], part: 'value', reason: `${broken.text} must hold; ${figures}` }] };
  });
}

function mergedPolicies(layers: readonly Layer[]): OrchestratorOptions['classPolicies'] {
  const merged: Partial<Record<RequestClass, Partial<ClassPolicy>>> = {};
  for (const name of classes) {
    const policy = Object.assign({}, ...layers.map(({ settings }) => settings.classPolicies?.[name] ?? {}).reverse()) as Partial<ClassPolicy>;
    if (Object.keys(policy).length > 0) merged[name] = policy;
  }
  return merged;
}

function mergedHostMemory(layers: readonly Layer[]): OrchestratorOptions['hostMemory'] {
  return Object.assign({}, ...layers.map(({ settings }) => settings.hostMemory ?? {}).reverse()) as NonNullable<OrchestratorOptions['hostMemory']>;
}

function toOptions(layers: readonly Layer[]): OrchestratorOptions {
  const options = {
    models: first(layers, 'models'),
    devices: first(layers, 'devices'),
    reserveBytes: first(layers, 'reserveBytes'),
    yieldFreeBytes: first(layers, 'yieldFreeBytes'),
    broker: first(layers, 'broker'),
    stateFolder: first(layers, 'stateFolder'),
    allowLedgerOnly: first(layers, 'allowLedgerOnly'),
    hostMemory: mergedHostMemory(layers),
    engines: first(layers, 'engines'),
    limits: mergedLimits(layers),
    classPolicies: mergedPolicies(layers),
  };
  const isEmpty = (value: unknown) => value === undefined || (typeof value === 'object' && Object.keys(value as object).length === 0);
  return Object.fromEntries(Object.entries(options).filter(([, value]) => !isEmpty(value)));
}
