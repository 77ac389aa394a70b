/** `leasehold ps`: the ledger of a running broker, once or again and again. */
import type { LedgerState, Orchestrator } from '../../orchestrator/types.js';
import { duration } from '../arguments.js';
import { stoppableOnceConfigured, withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { LiveArea } from '../terminal/live-area.js';
import { tableColumns } from '../terminal/table.js';
import { renderLedger } from '../views/ledger-view.js';
import { createNames, type Names } from '../views/names.js';

interface PsOptions {
  readonly watch?: boolean;
  readonly interval?: string;
}

const defaultIntervalMs = 1_000;

export async function ps(context: CommandContext, _args: readonly unknown[], options: PsOptions): Promise<number> {
  const intervalMs = duration(options.interval, '--interval', 100) ?? defaultIntervalMs;
  return stoppableOnceConfigured(context, async (signal) => withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    if (options.watch === true) await watch(context, orchestrator, intervalMs, signal);
    else show(context, await orchestrator.ledger(), orchestrator);
    return exitCodes.done;
  }));
}

function show(context: CommandContext, state: LedgerState, { models }: Orchestrator): void {
  const names = createNames(models);
  if (context.json) writeJson(context.io, { ...state });
  else for (const line of render(context, state, names)) writeLine(context.io, line);
}

function render(context: CommandContext, state: LedgerState, names: Names): string[] {
  return renderLedger(state, { names, columns: context.io.stdout.columns, tableColumns: tableColumns(context.io.stdout), palette: context.palette });
}

/** Where it can be drawn over one picture that changes; elsewhere a block, or with --json a line, each time. */
async function watch(context: CommandContext, orchestrator: Orchestrator, intervalMs: number, signal: AbortSignal): Promise<void> {
  const { io, json } = context;
  const names = createNames(orchestrator.models);
  const area = io.stdout.canRedraw && !json ? new LiveArea(io.stdout, [io.stderr]) : null;
  try {
    while (!signal.aborted) {
      const state = await orchestrator.ledger();
      if (json) writeJson(io, { ...state });
      else if (area === null) io.stdout.write(`${render(context, state, names).join('\n')}\n\n`);
      else area.draw(render(context, state, names));
      await io.stdout.drained();
      await pause(intervalMs, signal);
    }
  } finally {
    area?.end();
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal.addEventListener('abort', finish, { once: true });
    if (signal.aborted) finish();
  });
}
