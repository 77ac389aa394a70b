/** The engines that come with Leasehold, as commands the broker can start. */
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { nodeCommand } from '../../broker/supervisor/index.js';
import { LeaseholdError } from '../../protocol/index.js';
import type { EngineCommand } from '../../broker/shell/index.js';
import type { EngineOptions } from './options.js';

/** One model a worker: one abort of an engine takes one model down, and each gives its floor back by ending. */
const modelsPerWorker = 1;

const builtInNames = ['llama', 'simulated'];

/** Built-in engines and the given ones; one given under a built-in name changes what it names. Throws `config_invalid`. */
export function engineCommands(given: readonly EngineOptions[]): readonly EngineCommand[] {
  const named = new Set(given.map(({ name }) => name));
  return [...builtInNames.filter((name) => !named.has(name)).map(builtIn), ...given.map(complete)];
}

/** Whoever gives a command gives all of it: the built-in arguments and environment belong to the built-in command. */
function complete(given: EngineOptions): EngineCommand {
  if (given.command !== undefined) return { args: [], env: {}, modelsPerWorker, ...given, command: given.command };
  if (!builtInNames.includes(given.name)) {
    throw new LeaseholdError('config_invalid', { path: 'engines', where: given.name, reason: 'command is missing' });
  }
  const base = builtIn(given.name);
  return { ...base, ...given, command: base.command, args: [...base.args, ...given.args ?? []], env: { ...base.env, ...given.env } };
}

function builtIn(name: string): EngineCommand {
  return { name, modelsPerWorker, ...nodeCommand(join(builtRoot(), 'workers', name, 'main.js')) };
}

/** The folder that mirrors the tree: `dist` when compiled, wherever this package lies. */
function builtRoot(): string {
  return dirname(dirname(dirname(fileURLToPath(import.meta.url))));
}
