/** The engines that come with Leasehold, as commands the broker can start. */
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { nodeCommand } from '../../broker/supervisor/index.js';
import { LeaseholdError } from '../../protocol/index.js';
import type { EngineCommand } from '../../broker/shell/index.js';
import type { EngineOptions, OrchestratorOptions } from './options.js';
import { optionsHelp } from './tables.js';

/** One model a worker: one abort of an engine takes one model down, and each gives its floor back by ending. */
const modelsPerWorker = 1;

const builtInNames = ['llama', 'simulated'];

/**
 * What one llama process is taken to cost on a card until one has been measured there. Measured: 618 MB on an H200, and
 * some tens more for its first token; smaller cards take less.
 */
const llamaFloorBytes = 768 * 1024 * 1024;

/** Built-in engines and the given ones; one given under a built-in name changes what it names. Throws `config_invalid`. */
export function engineCommands(given: readonly EngineOptions[]): readonly EngineCommand[] {
  const named = new Set(given.map(({ name }) => name));
  return [...builtInNames.filter((name) => !named.has(name)).map(builtIn), ...given.map(complete)];
}

/** Throws `engine_unknown` for a model whose engine none of the given or built-in ones is: it could never be loaded here. */
export function checkEngines({ models = {}, engines = [] }: Pick<OrchestratorOptions, 'models' | 'engines'>): void {
  const known = [...new Set([...builtInNames, ...engines.map(({ name }) => name)])];
  const [name, model] = Object.entries(models).find(([, { engine }]) => engine !== undefined && !known.includes(engine)) ?? [];
  if (name === undefined || model?.engine === undefined) return;
  throw new LeaseholdError('engine_unknown', { engine: model.engine, known: known.join(', '), model: name, option: `models.${name}.engine` });
}

/** Whoever gives a command gives all of it: the built-in arguments and environment belong to the built-in command. */
function complete({ cpuFallback, ...given }: EngineOptions): EngineCommand {
  if (cpuFallback !== undefined && (given.name !== 'llama' || given.command !== undefined)) {
    throw new LeaseholdError('config_invalid', { path: 'engines', where: `${given.name}.cpuFallback`, reason: 'it is a setting of the built-in llama engine alone' });
  }
  if (given.command !== undefined) return { args: [], env: {}, modelsPerWorker, ...given, command: given.command };
  if (!builtInNames.includes(given.name)) {
    throw new LeaseholdError('config_invalid', { path: 'engines', where: given.name, reason: 'command is missing; only llama and simulated have one built in', option: `engines.${given.name}` }, { help: optionsHelp });
  }
  const base = builtIn(given.name);
  return { ...base, ...given, command: base.command, args: [...base.args, ...cpuFallback === 'allow' ? ['--cpu-fallback=allow'] : [], ...given.args ?? []], env: { ...base.env, ...given.env } };
}

function builtIn(name: string): EngineCommand {
  const floor = name === 'llama' ? { floorBytes: llamaFloorBytes } : {};
  return { name, modelsPerWorker, ...floor, ...nodeCommand(join(builtRoot(), 'workers', name, 'main.js')) };
}

/** The folder that mirrors the tree: `dist` when compiled, wherever this package lies. */
function builtRoot(): string {
  return dirname(dirname(dirname(fileURLToPath(import.meta.url))));
}
