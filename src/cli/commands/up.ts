/** `leasehold up`: owns the cards and serves until a signal ends it. */
import { LeaseholdError, defaultLimits } from '../../../protocol/index.js';
import type { LoadedConfig } from '../../config/index.js';
import { FrugalLog } from '../../orchestrator/frugal-log.js';
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import type { LedgerState, Orchestrator } from '../../orchestrator/types.js';
import { openOrchestrator, stoppableOnceConfigured, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { reportError, writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes, formatCount, formatMs } from '../terminal/size-format.js';
import { version } from '../../version.js';
import { writeAbove } from '../terminal/standing.js';
import { createNames } from '../views/names.js';
import { storyLine, storyTextBegins } from '../views/story.js';
import { describeStage } from './stage-text.js';

export async function up(context: CommandContext): Promise<number> {
  const code = await stoppableOnceConfigured(context, async (signal, hurry) => {
    hurry.addEventListener('abort', () => { tellHurrying(context); }, { once: true });
    const { orchestrator, config, unusable } = await openOrchestrator(context, { broker: 'own', logs: true, adjust: asDaemon });
    try {
      tell(context, await orchestrator.ledger(), orchestrator, config.path);
      for (const [model, why] of unusable) tellUnusable(context, model, why);
      const preloads = preloadsOf(config.options).filter((name) => !unusable.has(name));
      const serving = async () => {
        // It serves from here on; what is to be loaded is told as it ends.
        if (!signal.aborted) tellReady(context, preloads.length);
        await preload(context, orchestrator, config, preloads, signal);
        await aborted(signal);
      };
      // Both from the start, so that no event and no end of the broker is missed.
      await Promise.race([follow(context, orchestrator, config), serving()]);
      if (!signal.aborted) throw new LeaseholdError('broker_lost', { reason: 'it ended by itself; the log says why' });
      tellStopping(context, config.options);
    } finally {
      await orchestrator.close({ hurry });
    }
    if (!context.json) writeLine(context.io, 'Stopped; every worker has ended.');
    return exitCodes.done;
  }, { secondHurries: true });
  // Being asked to stop and stopping is success.
  const told = code === exitCodes.interrupted || code === exitCodes.terminated ? exitCodes.done : code;
  leaveReader(context, told);
  return told;
}

/** How long the reader of a daemon that has ended may take for the rest. */
const lastWordsMs = 2_000;

/** What is still to be read would keep the process: under Ctrl-S for ever. */
function leaveReader({ io }: CommandContext, code: number): void {
  if (io.stdout.unreadBytes + io.stderr.unreadBytes > 0) setTimeout(() => { io.exitNow(code); }, lastWordsMs).unref();
}

/** A daemon is started again when it dies, and its workers wait for it so long. */
export const reattachGraceMs = 30_000;
/** Calls in flight have so long to end when it is stopped. */
const shutdownDrainMs = 10_000;

/** `up` loads what is to be loaded at start itself, one after another, after it says that it is ready, and says how far it is. */
function asDaemon(options: OrchestratorOptions): OrchestratorOptions {
  const models = Object.entries(options.models ?? {}).map(([name, model]) => [name, { ...model, preload: false }]);
  return { ...options, limits: { reattachGraceMs, shutdownDrainMs, ...options.limits }, models: Object.fromEntries(models) as NonNullable<OrchestratorOptions['models']> };
}

function preloadsOf({ models }: OrchestratorOptions): readonly string[] {
  return Object.entries(models ?? {}).filter(([, { preload: wanted }]) => wanted === true).map(([name]) => name);
}

function tell(context: CommandContext, ledger: LedgerState, { socketPath }: Orchestrator, configPath: string | null): void {
  const { io, palette, json } = context;
  if (json) {
    const cards = ledger.cards.map(({ device, name, kind, totalBytes, reserveBytes }) => ({ device, name, kind, totalBytes, reserveBytes }));
    const host = ledger.host === null ? null : { device: ledger.host.device, totalBytes: ledger.host.totalBytes, reserveBytes: ledger.host.reserveBytes };
    writeJson(io, { event: 'up', version: version(), pid: process.pid, socket: socketPath, config: configPath, cards, host });
    return;
  }
  writeLine(io, `${palette.bold('Leasehold')} ${version()}  ${palette.dim(`pid ${process.pid}, ${configPath ?? 'no configuration file'}`)}`);
  for (const { device, name, kind, totalBytes, reserveBytes } of ledger.cards) {
    const about = kind === 'cpu' ? 'CPU, nothing is leased there' : `${kind === 'simulated' ? 'simulated card' : name}, ${formatBytes(totalBytes)}, ${formatBytes(reserveBytes)} kept free`;
    writeLine(io, `  owns ${device}  ${palette.dim(about)}`);
  }
  if (ledger.host !== null) writeLine(io, `  leases memory  ${palette.dim(`${formatBytes(ledger.host.totalBytes)}, ${formatBytes(ledger.host.reserveBytes)} kept free`)}`);
  writeLine(io, `  listens at ${socketPath}`);
}

/** The others are served; it is looked for again when somebody asks for it. */
function tellUnusable({ io, json, errorPalette }: CommandContext, model: string, why: LeaseholdError): void {
  if (json) writeJson(io, { event: 'unusable', model, error: { code: why.code, message: why.message, help: why.help } });
  else reportError(io, errorPalette, why, false);
}

/** Loads what the configuration wants loaded. One that fails is told, and the others and the daemon go on. What is loaded is told here where `follow` does not. */
async function preload(context: CommandContext, orchestrator: Orchestrator, config: LoadedConfig, wanted: readonly string[], signal: AbortSignal): Promise<void> {
  const { io, json, palette } = context;
  const status = json ? noStatusLine : createStatusLine(io.stderr, context.errorPalette, io.stdout.isTerminal ? [io.stdout] : []);
  const names = createNames(orchestrator.models);
  for (const model of wanted) {
    const beganMs = performance.now();
    try {
      await orchestrator.load(model, { signal, onStage: (stage) => { status.show(describeStage(model, stage, names), stage.progress); } });
      status.clear();
      const loadMs = Math.round(performance.now() - beganMs);
      if (json) writeJson(io, { event: 'preloaded', model, loadMs });
      else if (!tellsStory(config)) writeLine(io, `  loaded ${model}  ${palette.dim(formatMs(loadMs))}`);
    } catch (error) {
      status.clear();
      if (signal.aborted) return;
      const failure = LeaseholdError.from(error, 'load_failed', { model });
      if (json) writeJson(io, { event: 'preload_failed', model, error: { code: failure.code, message: failure.message, help: failure.help } });
      else reportError(io, context.errorPalette, failure, false);
    }
  }
}

/**
 * With --json every event of the broker is a line; else those that a person should know of are told in words. Resolves
 * when the events end: on close, or when the broker is gone.
 */
async function follow({ io, json, palette }: CommandContext, orchestrator: Orchestrator, config: LoadedConfig): Promise<void> {
  const names = createNames(orchestrator.models);
  const tells = tellsStory(config);
  const write = (_: unknown, line: string): void => { writeAbove(io.stdout, line, storyTextBegins); };
  // What this is written to may be a file.
  const story = new FrugalLog({ debug: write, info: write, warn: write, error: write }, config.options.limits?.logLinesPerKindMax ?? defaultLimits.logLinesPerKindMax);
  for await (const event of orchestrator.events()) {
    const { name, atUs, data, dropped } = event;
    if (json) {
      writeJson(io, { event: name, atUs, dropped, data });
      continue;
    }
    const line = tells ? storyLine(event, names, palette, new Date()) : null;
    if (line !== null) story.info({ code: name }, line);
  }
  story.flush();
}

/** Not where nothing is to be said, nor where a log that tells of every event stands on the same terminal. */
function tellsStory({ log }: LoadedConfig): boolean {
  return log.level !== 'silent' && !(log.file === null && (log.level === 'info' || log.level === 'debug'));
}

function tellReady({ io, json, palette }: CommandContext, preloads: number): void {
  if (json) writeJson(io, { event: 'ready' });
  else writeLine(io, `${palette.green('Ready.')} Ctrl-C stops it.${preloads === 0 ? '' : ` Loading ${formatCount(preloads, 'model')} meanwhile:`}`);
}

function tellStopping({ io, json }: CommandContext, { limits }: OrchestratorOptions): void {
  const drainMs = limits?.shutdownDrainMs ?? shutdownDrainMs;
  const graceMs = limits?.terminateGraceMs ?? defaultLimits.terminateGraceMs;
  if (json) writeJson(io, { event: 'stopping' });
  else writeLine(io, `Stopping: ${drainMs > 0 ? `calls have ${formatMs(drainMs)} to end, then workers` : 'workers have'} ${formatMs(graceMs)}${drainMs > 0 ? '' : ' to end'}. Ctrl-C again ends them at once.`);
}

function tellHurrying({ io, json }: CommandContext): void {
  if (json) writeJson(io, { event: 'hurrying' });
  else writeLine(io, 'Ending the workers at once; calls are cut. Once more, and this process ends without them: they live on for their grace.');
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => { resolve(); }, { once: true });
  });
}
