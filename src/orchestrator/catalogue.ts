/** Which names mean which model, and the immutable spec that a worker is given for each. */
import { realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { LeaseholdError, modelSpec, suggest, type ModelSpec, type RequestClass } from '../../protocol/index.js';
import { normaliseDevice } from '../../broker/devices/uuid.js';
import { tinyModels } from '../../workers/models/index.js';
import { modelKeyOf } from '../../protocol/node/index.js';
import type { ModelOptions } from './options.js';
import { optionsHelp } from './tables.js';

/** A model as it is served: its spec for the engine, and how its requests are treated. */
export interface Served {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly spec: ModelSpec;
  readonly device: string | null;
  /** The cards that it may use; left out: `device`, or any. */
  readonly devices?: readonly string[];
  /** Over how many of them it is spread; left out: one. */
  readonly cards?: number;
  readonly class: RequestClass;
  readonly preload: boolean;
}

/** What is done about models that cannot be had: told, and the others are served. */
export interface Unusable {
  readonly tell: (model: string, why: LeaseholdError) => void;
  /** Those that were not pulled, by name. */
  readonly unstaged: ReadonlyMap<string, LeaseholdError>;
}

export class Catalogue {
  readonly #byName = new Map<string, Served>();
  readonly #models: Served[] = [];
  /** By name and alias, those that could not be had: tried again when they are asked for. */
  readonly #missing = new Map<string, () => Served>();

  /** Names and aliases must be unique; throws `config_invalid` naming the clash, and, without `unusable`, `model_invalid` for a file that is not there. */
  constructor(models: Readonly<Record<string, ModelOptions>>, unusable: Unusable | null = null) {
    for (const [name, options] of Object.entries(models)) {
      const unstaged = unusable?.unstaged.get(name);
      const find = (): Served => {
        if (unstaged !== undefined) throw unstaged;
        return serve(name, options);
      };
      if (unusable === null) this.#add(find());
      else this.#addOrTell(name, options.aliases ?? [], find, unusable);
    }
    for (const name of Object.keys(tinyModels)) {
      if (!this.#byName.has(name) && !this.#missing.has(name)) this.#add(serve(name, { source: name }));
    }
  }

  #addOrTell(name: string, aliases: readonly string[], find: () => Served, { tell }: Unusable): void {
    try {
      this.#add(find());
    } catch (error) {
      const why = LeaseholdError.from(error);
      if (why.code === 'config_invalid' || why.code === 'bytes_invalid') throw why;
      for (const called of [name, ...aliases]) this.#missing.set(called, find);
      tell(name, why);
    }
  }

  /** Takes in what a running broker serves; names of our own win. */
  adopt(served: readonly Served[]): void {
    for (const model of served) if (!this.#byName.has(model.name)) this.#add({ ...model, aliases: model.aliases.filter((alias) => !this.#byName.has(alias)) });
  }

  get models(): readonly Served[] {
    return this.#models;
  }

  /** By name or alias; throws `model_unknown` listing what is known, or why it could and still can not be had. */
  find(name: string): Served {
    const missing = this.#missing.get(name);
    if (missing !== undefined && !this.#byName.has(name)) {
      this.#add(missing());
      for (const [called, find] of this.#missing) if (find === missing) this.#missing.delete(called);
    }
    const served = this.#byName.get(name);
    if (served === undefined) throw unknownModel(name, this.names);
    return served;
  }

  /** The key behind a name or alias of ours, or the key itself when it is one; null: not ours. */
  keyOf(name: string): string | null {
    return this.#byName.get(name)?.spec.key ?? this.#models.find(({ spec }) => spec.key === name)?.spec.key ?? null;
  }

  get names(): readonly string[] {
    return [...this.#byName.keys()];
  }

  #add(served: Served): void {
    for (const name of [served.name, ...served.aliases]) {
      const other = this.#byName.get(name);
      if (other !== undefined) {
        throw new LeaseholdError('config_invalid', { path: 'models', where: served.name, reason: `the name ${name} already means ${other.name}`, option: name === served.name ? `models.${name}` : `models.${served.name}.aliases` }, { help: 'Each name and alias means one model: change one of the two.' });
      }
      this.#byName.set(name, served);
    }
    this.#models.push(served);
  }
}

/** `known`: the names that there are; `others`: what is known besides them, in words. */
export function unknownModel(model: string, known: readonly string[], others = ''): LeaseholdError {
  const near = suggest(model, known);
  const help = near === null ? {} : { help: `Did you mean ${near}? \`leasehold models\` lists what there is.` };
  return new LeaseholdError('model_unknown', { model, known: [known.join(', '), others].filter((text) => text !== '').join('; ') }, help);
}

function serve(name: string, options: ModelOptions): Served {
  const spec = toSpec(name, options);
  checkSpec(name, spec);
  checkCards(name, options);
  const { cards = 1, devices = null } = options;
  return {
    name,
    aliases: options.aliases ?? [],
    spec,
    device: typeof options.device === 'string' ? normaliseDevice(options.device) : null,
    ...(devices === null ? {} : { devices: [...new Set(devices.map(named))] }),
    ...(cards === 1 ? {} : { cards }),
    class: options.class ?? 'normal',
    preload: options.preload ?? false,
  };
}

function named(spelling: string): string {
  return normaliseDevice(spelling) ?? spelling;
}

/** One card or several to choose from, and enough of them. */
function checkCards(name: string, { cards = 1, device = null, devices = null }: ModelOptions): void {
  const refuse = (field: string, reason: string): never => { throw new LeaseholdError('config_invalid', { path: 'models', where: `${name}.${field}`, reason }); };
  if (device !== null && devices !== null) refuse('devices', 'give device, or devices');
  const allowed = device === null ? devices : [device];
  const count = new Set(allowed?.map(named)).size;
  if (allowed !== null && count < cards) refuse('cards', `it is to be on ${String(cards)} cards, and may use ${String(count)}`);
}

/** What would be refused on the wire, call by call, is refused here, once. */
function checkSpec(name: string, spec: ModelSpec): void {
  const { declaredBytes } = spec;
  if (declaredBytes !== null && !(Number.isSafeInteger(declaredBytes) && declaredBytes > 0)) {
    throw new LeaseholdError('bytes_invalid', { field: `models.${name}.declaredBytes`, value: String(declaredBytes), minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
  }
  const fault = modelSpec().check(spec, '') ?? zeroOf(spec);
  if (fault !== null) throw new LeaseholdError('config_invalid', { path: 'models', where: `${name}.${fault.path.replace('policy.', '')}`, reason: `it must be ${fault.expected}`, option: `models.${name}.${fault.path.replace('policy.', '')}` }, { help: optionsHelp });
}

/** The wire lets through a model that has room for nothing. */
function zeroOf({ contextTokens, parallel }: ModelSpec): { readonly path: string; readonly expected: string } | null {
  if (contextTokens === 0) return { path: 'contextTokens', expected: 'at least 1' };
  return parallel === 0 ? { path: 'parallel', expected: 'at least 1' } : null;
}

function toSpec(name: string, options: ModelOptions): ModelSpec {
  const engine = options.engine ?? 'llama';
  const source = toPath(name, options.source);
  const embedding = options.embedding ?? false;
  const settings = settingsOf(options);
  return {
    key: modelKeyOf(engine, source, embedding, settings, options.cards ?? 1),
    engine,
    source,
    contextTokens: options.contextTokens ?? 2048,
    parallel: options.parallel ?? 1,
    embedding,
    declaredBytes: options.declaredBytes ?? null,
    policy: { ttlMs: options.ttlMs ?? null, pinned: options.pinned ?? false, exclusive: options.exclusive ?? false },
    options: settings,
  };
}

/** Of the engine: those passed through, and how few layers will do. */
function settingsOf({ options = {}, offload = null }: ModelOptions): Readonly<Record<string, string>> {
  return offload === null ? options : { ...options, minGpuLayers: String(offload.minGpuLayers) };
}

/** A bare word may have been meant for a model that ships. */
function noSuchFile(source: string): string {
  if (/[\\/.]/.test(source)) return 'there is no such file';
  const shipped = Object.keys(tinyModels);
  const near = suggest(source, shipped);
  return `there is no such file, nor a model that ships under that name (${shipped.join(', ')})${near === null ? '' : `; did you mean ${near}?`}`;
}

function toPath(name: string, source: string): string {
  const tiny = Object.hasOwn(tinyModels, source) ? tinyModels[source] : undefined;
  if (tiny !== undefined) return tiny.ggufPath;
  // An inline script of the simulated engine is no path.
  if (source.startsWith('sim:')) return source;
  try {
    return realpathSync(resolve(source));
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const reason = code === 'ENOENT' ? noSuchFile(source) : pathReasons[code] ?? `its path cannot be followed (${code})`;
    throw new LeaseholdError('model_invalid', { source, reason, model: name, option: `models.${name}.source` }, { cause: error });
  }
}

const pathReasons: Readonly<Record<string, string>> = {
  ENOTDIR: 'a part of its path is no folder', EACCES: 'this user may not look there', ELOOP: 'its symbolic links lead in a circle',
  ENAMETOOLONG: 'its path is too long', ERR_INVALID_ARG_VALUE: 'a path holds no NUL',
};
