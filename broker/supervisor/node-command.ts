/** How to run a script of ours in a Node process, also where "Node" is Electron. */
import { existsSync } from 'node:fs';
import { sep } from 'node:path';

export interface NodeCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Must be in the process's environment. */
  readonly env: Readonly<Record<string, string>>;
}

export interface NodeRuntime {
  readonly execPath: string;
  /** True inside Electron, whose executable is the app unless told to be Node. */
  readonly electron: boolean;
}

export function nodeRuntime(): NodeRuntime {
  return { execPath: process.execPath, electron: process.versions['electron'] !== undefined };
}

/**
 * The command that runs `script` with `args`. Under Electron the environment asks for plain Node, and a script packed
 * into `app.asar` is taken from the unpacked copy when there is one: native modules beside it load only from there.
 */
export function nodeCommand(script: string, args: readonly string[] = [], runtime: NodeRuntime = nodeRuntime()): NodeCommand {
  if (!runtime.electron) return { command: runtime.execPath, args: [script, ...args], env: {} };
  const unpacked = script.replace(`app.asar${sep}`, `app.asar.unpacked${sep}`);
  const found = unpacked !== script && existsSync(unpacked) ? unpacked : script;
  return { command: runtime.execPath, args: [found, ...args], env: { ELECTRON_RUN_AS_NODE: '1' } };
}
