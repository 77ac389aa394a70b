/** What every command is given: the world, how to speak, and how to come by an orchestrator. */
import { basename } from 'node:path';
import { LeaseholdError, durationText } from '../../protocol/index.js';
import type { Flags, LoadedConfig } from '../config/index.js';
import type { OrchestratorOptions } from '../orchestrator/options.js';
import type { Log } from '../orchestrator/index.js';
import type { LivingWorker } from '../orchestrator/state.js';
import type { Orchestrator } from '../orchestrator/types.js';
import { exitCodes } from './exit-codes.js';
import type { Io } from './io.js';
import { reportError } from './report.js';
import { createPalette, wantsColour, type Palette } from './terminal/colour.js';
import { createTerminalLog } from './terminal/log-lines.js';

/** Options every command has. */
export interface CommonOptions extends Flags {
  readonly json?: boolean;
  /** False with --no-color. */
  readonly color?: boolean;
}

export interface Dependencies {
  readonly io: Io;
  readonly createOrchestrator: (options: OrchestratorOptions) => Promise<Orchestrator>;
}

export interface CommandContext extends Dependencies {
  readonly options: CommonOptions;
  /** The configuration, read once. */
  readonly config: () => Promise<LoadedConfig>;
  readonly json: boolean;
  /** Colours of stdout. */
  readonly palette: Palette;
  /** Colours of stderr. */
  readonly errorPalette: Palette;
}

export function createContext(dependencies: Dependencies, options: CommonOptions): CommandContext {
  const { io } = dependencies;
  const colour = (isTerminal: boolean) => createPalette(options.color !== false && wantsColour(isTerminal, io.env));
  let config: Promise<LoadedConfig> | null = null;
  return {
    ...dependencies, options, json: options.json ?? false, palette: colour(io.stdout.isTerminal), errorPalette: colour(io.stderr.isTerminal),
    config: () => config ??= readConfig(io, options),
  };
}

async function readConfig(io: Io, flags: CommonOptions): Promise<LoadedConfig> {
  const { loadConfig } = await import('../config/index.js');
  return loadConfig({ flags, env: io.env, cwd: io.cwd, judge: async (options) => (await import('../orchestrator/index.js')).modelFaults(options) });
}

export interface OpenOptions {
  /** What the command needs of the broker; the user's own word on it counts for `auto` alone. */
  readonly broker: 'auto' | 'own' | 'attach';
  /** Log to stderr although nobody asked for a log: the daemon does. */
  readonly logs?: boolean;
  /** Last changes to the options. */
  readonly adjust?: (options: OrchestratorOptions) => OrchestratorOptions;
}

export interface Opened {
  readonly orchestrator: Orchestrator;
  readonly config: LoadedConfig;
  /** Why models of the configuration cannot be had, by name; the others are served. */
  readonly unusable: ReadonlyMap<string, LeaseholdError>;
}

/** Reads the configuration and opens an orchestrator. Where none runs and one is needed, the error says how to start one. */
export async function openOrchestrator(context: CommandContext, request: OpenOptions): Promise<Opened> {
  const { options: flags } = context;
  const config = await context.config();
  const broker = request.broker === 'auto' ? config.options.broker ?? 'auto' : request.broker;
  const wantsLog = request.logs === true || config.log.file !== null || flags.logLevel !== undefined;
  const log = wantsLog ? await openLog(context, config.log) : null;
  const adjust = request.adjust ?? ((given) => given);
  const found = new Map<string, LeaseholdError>();
  const options = adjust({ ...config.options, broker, onUnusable: (model, why) => { found.set(model, why); }, ...(log === null ? {} : { log }) });
  try {
    const orchestrator = await context.createOrchestrator(options);
    const unusable = [...found].map(([model, why]) => [model, config.atItsPlace(why)] as const);
    return { orchestrator, config, unusable: new Map(unusable) };
  } catch (error) {
    throw error instanceof LeaseholdError ? await asTold(error, broker, config) : error;
  }
}

/** Why there is no orchestrator, in the words of who typed the command: what to type next, or the place in a file. */
async function asTold(error: LeaseholdError, broker: string, config: LoadedConfig): Promise<LeaseholdError> {
  if (error.code === 'deadline_passed' && error.details['what'] === 'hello') return silentBroker(error, config.options.stateFolder);
  if (error.code === 'shutting_down') return endingBroker(error, config.options.stateFolder);
  if (broker === 'attach' && (error.code === 'broker_missing' || error.code === 'connect_failed')) return noBroker(error, config.options.stateFolder);
  return error.code === 'broker_running' ? anotherBroker(error) : config.atItsPlace(error);
}

/** It was told to stop, and lets its calls end. */
async function endingBroker(cause: LeaseholdError, stateFolder: string | undefined): Promise<LeaseholdError> {
  const [{ whoHolds }, { createMachine }] = await Promise.all([import('../doctor/running-broker.js'), import('../doctor/machine/machine.js')]);
  const { pid } = await whoHolds(createMachine(), stateFolder);
  const hurry = pid === null ? '' : `, or end them at once: kill -INT ${String(pid)}`;
  const error = new LeaseholdError('shutting_down', { ...cause.details, pid }, { cause, help: `Its calls may end first. Wait for that${hurry}. Then start anew: leasehold up` });
  error.message = `The broker here${pid === null ? '' : ` (pid ${String(pid)})`} is shutting down, and takes nobody any more.`;
  return error;
}

/** It has the socket and does not say a word: as the doctor, who is asked what to do. */
async function silentBroker(cause: LeaseholdError, stateFolder: string | undefined): Promise<LeaseholdError> {
  const [{ whoHolds }, { isStopped, silentAdvice }, { createMachine }] = await Promise.all([import('../doctor/running-broker.js'), import('../doctor/silent-broker.js'), import('../doctor/machine/machine.js')]);
  const { pid } = await whoHolds(createMachine(), stateFolder);
  const stopped = await isStopped(pid);
  const error = new LeaseholdError('broker_lost', { ...cause.details, reason: 'it does not answer' }, { cause, help: silentAdvice(pid, stopped) });
  error.message = `A broker is there${pid === null ? '' : ` (pid ${String(pid)})`} and ${stopped ? 'is stopped' : `has not answered within ${durationText(Number(cause.details['deadlineMs']))}`}.`;
  return error;
}

/** A log to a file or to stderr, in words where a person watches it and as JSON elsewhere; null for `silent`. */
export async function openLog({ io, json, errorPalette }: CommandContext, { level, file }: LoadedConfig['log']): Promise<Log | null> {
  if (level === 'silent') return null;
  if (file === null && io.stderr.isTerminal && !json) return createTerminalLog(level, io.stderr, errorPalette);
  const { createLog } = await import('../orchestrator/index.js');
  return createLog(level, file ?? 2);
}

/** Nobody answers: there is none, or it was killed a moment ago and its workers seek the next. */
async function noBroker(cause: LeaseholdError, stateFolder: string | undefined): Promise<LeaseholdError> {
  const { defaultStatePath, livingWorkers } = await import('../orchestrator/state.js');
  const path = stateFolder ?? defaultStatePath();
  const workers = cause.code === 'broker_missing' ? livingWorkers(path) : [];
  if (workers.length > 0) return goneBroker(cause, path, workers);
  return cause.code === 'broker_missing' ? cause : new LeaseholdError('broker_missing', { ...cause.details, reason: `none answers in ${path}` }, { cause });
}

/** Killed, with workers that outlive it for their grace. */
async function goneBroker(cause: LeaseholdError, path: string, workers: readonly LivingWorker[]): Promise<LeaseholdError> {
  const { orphansOf } = await import('../doctor/orphans.js');
  const { pids, graceMs, text, advice } = orphansOf(workers);
  const error = new LeaseholdError('broker_lost', { ...cause.details, workerPids: pids, graceMs }, { cause, help: advice });
  error.message = `No broker is running in ${path} any more: it has ended without stopping, and ${text}.`;
  return error;
}

/** It has the state folder, or, from a folder of its own, a card that is wanted here too. */
async function anotherBroker(cause: LeaseholdError): Promise<LeaseholdError> {
  const { pid = 'unknown', path = '' } = cause.details;
  const lock = basename(path, '.lock');
  const isHere = lock === 'broker';
  const stop = `stop it: kill -INT ${pid}`;
  const { isStopped, silentAdvice } = await import('../doctor/silent-broker.js');
  const holder = Number(pid);
  const stopped = Number.isSafeInteger(holder) && await isStopped(holder);
  const help = stopped ? silentAdvice(holder, true) : isHere
    ? `Use it: leasehold ps; ${stop}; or run a second one, with cards of its own: --state FOLDER`
    : `Use it: --state with its folder; ${stop}; or own other cards: --device`;
  const error = new LeaseholdError('broker_running', cause.details, { cause, help });
  error.message = `A broker ${stopped ? 'is stopped' : 'runs already'} (pid ${pid})${isHere ? '' : ` and owns ${lock}`}.`;
  return error;
}

/** What a second Ctrl-C does: ends the process (default), or aborts the second signal that `work` has been given, and only a third ends it. */
export interface Stopping {
  readonly secondHurries?: boolean;
}

/**
 * Runs `work` with a signal that the first Ctrl-C aborts; a second ends the process at once, or hurries. Resolves to `work`'s own
 * exit code, or to the one that the stop signal asks for: what was cancelled by the user is no error to tell a person.
 */
export async function stoppable(context: CommandContext, work: (signal: AbortSignal, hurry: AbortSignal) => Promise<number>, { secondHurries = false }: Stopping = {}): Promise<number> {
  const { io, json } = context;
  const controller = new AbortController();
  const hurry = new AbortController();
  const stopped: { code: number | null } = { code: null };
  const release = io.onStop((signal) => {
    if (stopped.code !== null) {
      // A terminal that closes may say so more than once; only a person asks twice.
      if (signal === 'SIGHUP') return;
      if (secondHurries && !hurry.signal.aborted) hurry.abort();
      else io.exitNow(stopped.code);
      return;
    }
    stopped.code = signal === 'SIGINT' ? exitCodes.interrupted : exitCodes.terminated;
    controller.abort(new LeaseholdError('request_cancelled', { what: 'The command' }));
  });
  try {
    const own = await work(controller.signal, hurry.signal);
    return stopped.code ?? own;
  } catch (error) {
    if (stopped.code === null || !(error instanceof LeaseholdError) || error.code !== 'request_cancelled') throw error;
    if (json) reportError(io, context.errorPalette, error, true);
    return stopped.code;
  } finally {
    release();
  }
}

/**
 * `stoppable`, for a command with a configuration. That is read first, and until then the system’s own way of ending a
 * process serves: nothing is there yet to clean up, and while a large file is parsed no listener could be called.
 */
export async function stoppableOnceConfigured(context: CommandContext, work: (signal: AbortSignal, hurry: AbortSignal) => Promise<number>, stopping: Stopping = {}): Promise<number> {
  await context.config();
  return stoppable(context, work, stopping);
}

/** Calls `use` with an orchestrator and closes it whatever happens. */
export async function withOrchestrator<T>(context: CommandContext, request: OpenOptions, use: (opened: Opened) => Promise<T>): Promise<T> {
  const opened = await openOrchestrator(context, request);
  try {
    return await use(opened);
  } catch (error) {
    // One of those that cannot be had was asked for: its place in the file is part of what to do.
    throw error instanceof LeaseholdError && error.code === 'model_invalid' ? opened.config.atItsPlace(error) : error;
  } finally {
    await opened.orchestrator.close();
  }
}
