/** One validated configuration out of command line, environment, file and defaults, in that order. All or nothing. */
import { homedir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { LeaseholdError, brokenRelation, classes, defaultLimits, limitText, type ClassPolicy, type LimitName, type Limits, type RequestClass } from '../../protocol/index.js';
import type { OrchestratorOptions } from '../orchestrator/options.js';
import { parseDocument } from './document.js';
import { configInvalid, type Source } from './fault.js';
import { pointerOf } from './option-names.js';
import { interpret, type Settings } from './settings.js';
import { fromEnvironment, fromFlags, type Flags } from './spoken.js';
import { isPlainlyValid } from './plain.js';
import { packagePath } from './schema-file.js';
import { readTextFile } from './text-file.js';
import { assertValid } from './validate.js';
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
}

interface Layer {
  readonly source: Source;
  readonly settings: Settings;
}

/**
 * Rejects with `config_unreadable` or `config_invalid`, which names the source, the place in it and what is allowed
 * there. Reads one file: --config, else $LEASEHOLD_CONFIG, else ./leasehold.yaml, else the one in the home folder.
 */
export async function loadConfig(request: LoadConfigRequest = {}): Promise<LoadedConfig> {
  const { flags = {}, env = process.env, cwd = process.cwd(), home = homedir() } = request;
  const file = await readFirst(flags, env, cwd, home);
  const layers = [await layer(fromFlags(flags), cwd, home), await layer(fromEnvironment(env), cwd, home)];
  if (file !== null) {
    const document = await parseDocument(relativeName(file.path, cwd), file.text, `Every key with its meaning: ${packagePath('src', 'config', 'example.yaml')}`);
    layers.push(await layer(document, dirname(file.path), home));
  }
  assertRelations(layers);
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

async function layer(spoken: Source & { readonly value: unknown }, folder: string, home: string): Promise<Layer> {
  if (!isPlainlyValid(spoken.value)) await assertValid(spoken.value, spoken);
  return { source: spoken, settings: interpret(spoken.value as Written, spoken, folder, home) };
}

function first<K extends keyof Settings>(layers: readonly Layer[], key: K): Settings[K] | undefined {
  return layers.find(({ settings }) => settings[key] !== undefined)?.settings[key];
}

/** The library names an option in its own words; here it gets back the words and the place of the one who wrote it. */
function atItsPlace(layers: readonly Layer[], error: LeaseholdError): LeaseholdError {
  const named = pointerOf(error.details['option'] ?? '');
  if (named === null) return error;
  const { pointer, setting } = named;
  const source = layers.find(({ settings }) => (setting === 'limits' ? Object.hasOwn(settings.limits ?? {}, String(pointer[1])) : settings[setting] !== undefined))?.source;
  if (source === undefined) return error;
  const reason = error.code === 'config_invalid' ? error.details['reason'] ?? '' : lowered(error.message.replace(/\.$/, ''));
  return configInvalid(source, [{ pointer, part: 'value', reason }]);
}

/** A sentence as a clause: `There is` begins small, a name stays as it is. */
function lowered(sentence: string): string {
  return sentence.replace(/^[A-Z](?=[a-z]+ )/, (letter) => letter.toLowerCase());
}

/** Limits are merged one by one, whatever source each comes from. */
function mergedLimits(layers: readonly Layer[]): Partial<Limits> {
  return Object.assign({}, ...layers.map(({ settings }) => settings.limits ?? {}).reverse()) as Partial<Limits>;
}

function assertRelations(layers: readonly Layer[]): void {
  const limits: Limits = { ...defaultLimits, ...mergedLimits(layers) };
  const broken = brokenRelation(limits);
  if (broken === null) return;
  const figures = broken.names.map((name) => `${name} is ${limitText(name, limits[name])}`).join(', ');
  const set = (name: LimitName) => layers.find(({ settings }) => settings.limits?.[name] !== undefined);
  const culprit = broken.names.find((name) => set(name) !== undefined) ?? broken.names[0];
  const source = culprit === undefined ? undefined : set(culprit)?.source;
  // Defaults hold among themselves (the tests say so), so somebody set one of them.
  if (culprit === undefined || source === undefined) throw new LeaseholdError('limit_relation', { relation: broken.text });
  throw configInvalid(source, [{ pointer: ['limits', culprit], part: 'value', reason: `${broken.text} must hold; ${figures}` }]);
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
