/** The machine as the checks see it: files, environment, commands. Tests hand in folders and commands of their own. */
import { constants } from 'node:fs';
import { access, readFile, readdir, readlink } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { runBounded, type RunOutcome } from '../../../broker/devices/bounded-run.js';
import { HostMemory, devicePlatform, type DevicePlatform } from '../../../broker/devices/index.js';
import { cleanEnvironment } from '../../../broker/supervisor/environment.js';

export interface RunOptions {
  /** Over a clean copy of our environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

export interface Machine {
  readonly platform: DevicePlatform;
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly home: string;
  /** Null where there are no user ids. */
  readonly uid: number | null;
  /** The machine's memory as a broker here reads it. */
  readonly memory: HostMemory;
  /** The text of a file of the system; null when it is not there or not ours to read. */
  readText(path: string): Promise<string | null>;
  /** Names in a folder of the system; none when it cannot be listed. */
  names(path: string): Promise<readonly string[]>;
  /** What a symbolic link of the system points at; null when it is none. */
  linkTarget(path: string): Promise<string | null>;
  /** True when this user may read and write a file of the system. */
  mayUse(path: string): Promise<boolean>;
  /** Runs a tool to its end, bounded in time and output. */
  run(command: string, args: readonly string[], options?: RunOptions): Promise<RunOutcome>;
}

export interface MachineOptions {
  /** Before /proc, /sys and /dev. */
  readonly root?: string;
  readonly platform?: DevicePlatform;
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
  readonly home?: string;
  readonly uid?: number | null;
}

const runTimeoutMs = 10_000;
const outputBytesMax = 1024 * 1024;
/** By it whoever started us finds what we started. */
const tokenName = 'LEASEHOLD_TOKEN';

export function createMachine(options: MachineOptions = {}): Machine {
  const root = options.root ?? '/';
  const env = options.env ?? process.env;
  const token = process.env[tokenName];
  const platform = options.platform ?? devicePlatform();
  return {
    platform,
    env,
    cwd: options.cwd ?? process.cwd(),
    home: options.home ?? homedir(),
    uid: options.uid === undefined ? process.getuid?.() ?? null : options.uid,
    memory: new HostMemory({ root, platform: platform.name }),
    readText: (path) => orNull(readFile(join(root, path), 'utf8')),
    names: async (path) => (await orNull(readdir(join(root, path)))) ?? [],
    linkTarget: (path) => orNull(readlink(join(root, path))),
    mayUse: (path) => access(join(root, path), constants.R_OK | constants.W_OK).then(() => true, () => false),
    run: (command, args, { env: given = {}, timeoutMs = runTimeoutMs } = {}) =>
      runBounded(command, args, cleanEnvironment(env, { ...(token === undefined ? {} : { [tokenName]: token }), ...given }), { timeoutMs, outputBytesMax }).outcome,
  };
}

/** What the system refuses is null: not there, or not ours to see. */
async function orNull<T>(read: Promise<T>): Promise<T | null> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof Error && 'code' in error) return null;
    throw error;
  }
}
