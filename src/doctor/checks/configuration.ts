/** The configuration: which file, whether it is valid, the cards it names, and each model of it. */
import { access, constants, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { cpuDevice, defaultReserveBytes, isSimulatedSpec, normaliseDevice, parseSimulatedSpec } from '../../../broker/devices/index.js';
import { nodeCommand } from '../../../broker/supervisor/index.js';
import { LeaseholdError } from '../../../protocol/index.js';
import { configSearchPaths } from '../../config/index.js';
import { Catalogue } from '../../orchestrator/catalogue.js';
import type { ModelOptions, OrchestratorOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';
import { withStagedSources } from '../../orchestrator/staged-sources.js';
import { checkOptions } from '../../orchestrator/tables.js';
import { formatBytes, formatCount } from '../../cli/terminal/size-format.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, type Fault, type Found } from '../finding.js';
import { cardsDeadlineMs, type Scene } from '../scene.js';
import { machineMemory } from './memory.js';

const fileCheck: Check = {
  id: 'configuration.file',
  title: 'File',
  async run(scene) {
    const seen = await scene.configuration();
    if (seen.kind === 'refused') {
      const { message, help, details } = seen.error;
      return problem([message, ...(details['more'] ?? '').split('\n').filter((line) => line !== '')].join('; '), help);
    }
    const { path, options } = seen.config;
    const { cwd, home } = scene.machine;
    const found = path === null ? `none (looked for ${configSearchPaths(cwd, home).join(' and ')}); the defaults hold` : `${path}, ${formatCount(Object.keys(options.models ?? {}).length, 'model')}, ${formatCount(Object.keys(options.limits ?? {}).length, 'limit')} changed`;
    return assess(found, [clashFault(options)]);
  },
};

/** What is wrong with models as a whole: two of one name. Whether each can be had is told one by one. */
function clashFault(options: OrchestratorOptions): Fault | null {
  try {
    checkOptions(options);
    new Catalogue(options.models ?? {});
    return null;
  } catch (error) {
    const { code, message, help } = LeaseholdError.from(error);
    return code === 'model_invalid' ? null : { verdict: 'problem', says: message, advice: help };
  }
}

/** A card that the configuration has the broker own. */
export interface WantedCard {
  readonly device: string;
  /** What can be leased of it at most. */
  readonly leasableBytes: number;
}

const devicesCheck: Check = {
  id: 'configuration.devices',
  title: 'Cards to own',
  deadlineMs: cardsDeadlineMs,
  async run(scene) {
    const options = await optionsOf(scene);
    if (options === null) return notApplicable('the configuration is refused');
    const words = options.devices ?? ['auto'];
    const cards = await wantedCards(scene, options);
    const known = (await scene.cards()).map(({ device }) => device);
    const named = [...words.filter((word) => word !== 'auto' && word !== 'cpu' && !isSimulatedSpec(word)), ...(typeof options.reserveBytes === 'object' ? Object.keys(options.reserveBytes ?? {}) : [])];
    const unknown = named.filter((word) => !word.startsWith('SIM-') && !known.includes(normaliseDevice(word) ?? word));
    const owned = cards.length === 0 ? 'the CPU alone, where nothing is leased' : cards.map(({ device, leasableBytes }) => `${device} with ${formatBytes(leasableBytes)} to lease`).join(', ');
    return assess(`${words.join(', ')}: ${owned}`, [
      unknown.length === 0 ? null : { verdict: 'problem', says: `there is no ${unknown.join(' and no ')} here`, advice: `Name a card that is here${known.length === 0 ? ' (there is none that can be read)' : `: ${known.join(', ')}`}, or auto.` },
      ...cards.filter(({ leasableBytes }) => leasableBytes <= 0).map(({ device }): Fault => ({ verdict: 'problem', says: `the reserve leaves nothing of ${device}`, advice: 'Set a smaller `reserve`.' })),
    ]);
  },
};

/** Empty: the CPU alone. Cards that cannot be measured are left out. */
export async function wantedCards(scene: Scene, { devices = ['auto'], reserveBytes = null }: OrchestratorOptions): Promise<readonly WantedCard[]> {
  const simulated = devices.filter(isSimulatedSpec).map((word, index) => ({ device: `SIM-${String(index)}`, totalBytes: parseSimulatedSpec(word).totalBytes, kind: 'simulated' as const, display: false }));
  const real = (await scene.cards()).flatMap(({ description }) => (description === null || description.device === cpuDevice ? [] : [description]));
  const chosen = devices.includes('auto') ? real : real.filter(({ device }) => devices.some((word) => normaliseDevice(word) === device));
  return [...simulated, ...chosen].map((card) => {
    const byCard = typeof reserveBytes === 'number' ? reserveBytes : Object.entries(reserveBytes ?? {}).find(([word]) => normaliseDevice(word) === card.device)?.[1];
    return { device: card.device, leasableBytes: card.totalBytes - (byCard ?? defaultReserveBytes(card, scene.machine.platform.name)) };
  });
}

const modelsCheck: Check = {
  id: 'configuration.models',
  title: 'Models',
  deadlineMs: cardsDeadlineMs + 15_000,
  async run(scene) {
    const options = await optionsOf(scene);
    const models = Object.entries(options?.models ?? {});
    if (options === null || models.length === 0) return notApplicable(options === null ? 'the configuration is refused' : 'none is configured; those that ship need no entry');
    const staged = await Promise.all(models.map(asStaged));
    const descriptions = await describeFiles(scene, staged.map(({ model }) => model).filter(isGguf).map(({ source }) => pathOf(source)));
    const room: Room = { cards: await wantedCards(scene, options), hostBytes: machineMemory(scene.machine).totalBytes };
    const engines = new Set(['llama', 'simulated', ...(options.engines ?? []).map(({ name }) => name)]);
    return Promise.all(staged.map(async ({ name, model, fault }) => ({ ...fault === null ? await judgeModel(model, isGguf(model) ? descriptions.get(pathOf(model.source)) ?? null : null, room, engines) : problem(fault.message, fault.help), about: name, title: `Model ${name}` })));
  },
};

export interface FileDescription {
  readonly path: string;
  readonly fault?: string;
  readonly architecture?: string;
  readonly tensorBytes?: number;
  readonly fileBytes?: number;
  readonly parts?: number;
  readonly trainedTokens?: number | null;
}

export interface Room {
  readonly cards: readonly WantedCard[];
  readonly hostBytes: number;
}

export async function judgeModel(model: ModelOptions, described: FileDescription | null, room: Room, engines: ReadonlySet<string>): Promise<Found> {
  const engine = model.engine ?? 'llama';
  const source = pathOf(model.source);
  if (!engines.has(engine)) return problem(`${engine} is no engine here`, `Describe how its workers are started under \`workers\`, or name one of ${[...engines].join(', ')}.`);
  if (source.startsWith('sim:')) return ok('a script of the simulated engine');
  const fileFault = await sourceFault(source);
  if (fileFault !== null) return problem(`${source}: ${fileFault}`, 'Correct `source`, or the file\'s owner and mode for the user who runs the broker.');
  if (described === null) return ok(`${source}, for ${engine}`);
  if (described.fault !== undefined) return problem(`${source}: ${described.fault}`, 'Fetch or convert the file anew: it is cut short, or not what its name says.');
  const { architecture = '', tensorBytes = 0, parts = 1, trainedTokens = null } = described;
  const context = model.contextTokens ?? 2_048;
  const found = `${architecture}, ${formatBytes(tensorBytes)} of weights${parts > 1 ? ` in ${String(parts)} files` : ''}, a context of ${String(context)} tokens`;
  return assess(found, [
    roomFault(model, tensorBytes, room),
    trainedTokens !== null && context > trainedTokens ? { verdict: 'warning', says: `it was made for ${String(trainedTokens)}`, advice: 'Answers go astray past that: set `context` to at most as many.' } : null,
  ]);
}

/** Weights alone: what contexts take besides is known only once the engine has been asked. */
function roomFault({ device, exclusive, declaredBytes, options }: ModelOptions, tensorBytes: number, { cards, hostBytes }: Room): Fault | null {
  const wanted = typeof device === 'string' ? normaliseDevice(device) : null;
  const candidates = wanted === null ? cards : cards.filter((card) => card.device === wanted);
  if (wanted !== null && candidates.length === 0) return { verdict: 'problem', says: `its card ${wanted} is none of those to own`, advice: 'Correct its `device`, or add the card to `devices`.' };
  if (cards.length === 0) {
    return tensorBytes <= hostBytes ? null : { verdict: 'problem', says: `the machine has ${formatBytes(hostBytes)} of memory`, advice: 'Take a smaller model or a stronger quantisation.' };
  }
  // Some of its layers stay off the card.
  if (options?.['gpuLayers'] !== undefined) return null;
  const needBytes = exclusive === true ? tensorBytes : Math.ceil(tensorBytes * 1.1);
  const mostBytes = Math.max(...candidates.map(({ leasableBytes }) => leasableBytes));
  if (needBytes <= mostBytes) {
    const isBelieved = exclusive !== true || Math.ceil(tensorBytes * 1.1) <= mostBytes || typeof declaredBytes === 'number';
    return isBelieved ? null : { verdict: 'warning', says: 'without the headroom of a tenth it fits by its estimate alone', advice: '`exclusive` is believed of a size that is declared or has been learned: set `declaredBytes` to the most that it takes.' };
  }
  return { verdict: 'problem', says: `with the headroom of a tenth that needs ${formatBytes(needBytes)}, and the largest card has ${formatBytes(mostBytes)} to lease`, advice: 'It will be denied: take a stronger quantisation, leave layers off the card (`options: {gpuLayers: …}`), or a larger card.' };
}

async function sourceFault(source: string): Promise<string | null> {
  try {
    await access(source, constants.R_OK);
    return (await stat(source)).size === 0 ? 'it is empty' : null;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    return { ENOENT: 'there is no such file', EACCES: 'this user may not read it' }[code] ?? String(error);
  }
}

/** The engine's own reader looks at the headers, in a process that a bad file may end. */
async function describeFiles(scene: Scene, paths: readonly string[]): Promise<ReadonlyMap<string, FileDescription>> {
  if (paths.length === 0) return new Map();
  const { command, args, env } = nodeCommand(join(scene.builtRoot, 'workers', 'llama', 'describe-files.js'), paths);
  const outcome = await scene.machine.run(command, args, { env, timeoutMs: 15_000 });
  const lines = outcome.kind === 'ended' ? outcome.stdout.split('\n').filter((line) => line.startsWith('{')) : [];
  const described = new Map(lines.map((line) => JSON.parse(line) as FileDescription).map((each) => [each.path, each]));
  const silence = outcome.kind === 'ended' ? `its reader ended (${outcome.signal ?? String(outcome.exitCode)})` : 'its header could not be read in time';
  return new Map(paths.map((path) => [path, described.get(path) ?? { path, fault: silence }]));
}

/** With the file that was staged for it, where it names a model of a hub; or why there is none. */
async function asStaged([name, model]: readonly [string, ModelOptions]): Promise<{ readonly name: string; readonly model: ModelOptions; readonly fault: LeaseholdError | null }> {
  try {
    return { name, model: (await withStagedSources({ [name]: model }))[name] ?? model, fault: null };
  } catch (error) {
    return { name, model, fault: LeaseholdError.from(error) };
  }
}

function isGguf({ engine = 'llama', source }: ModelOptions): boolean {
  return engine === 'llama' && !source.startsWith('sim:');
}

/** A bare name may be that of a model that ships. */
function pathOf(source: string): string {
  return Object.hasOwn(tinyModels, source) ? tinyModels[source]?.ggufPath ?? source : source;
}

async function optionsOf(scene: Scene): Promise<OrchestratorOptions | null> {
  const seen = await scene.configuration();
  return seen.kind === 'loaded' ? seen.config.options : null;
}

export const configurationChecks: readonly Check[] = [fileCheck, devicesCheck, modelsCheck];
