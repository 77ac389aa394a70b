/** `leasehold explain`: why the broker decided as it did. */
import { wholeNumber } from '../arguments.js';
import { withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { renderExplain } from '../views/explain-view.js';
import { createNames } from '../views/names.js';

interface ExplainOptions {
  readonly count?: string;
}

export async function explain(context: CommandContext, args: readonly unknown[], options: ExplainOptions): Promise<number> {
  const [about] = args as [string | undefined];
  const count = wholeNumber(options.count, '--count', 1, 1_000) ?? 1;
  const { io, json, palette } = context;
  return withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    const records = await orchestrator.explain(about, count);
    const names = createNames(orchestrator.models);
    // CLOCK_MONOTONIC is one clock for the whole machine, so the broker's moments can be told from here.
    const nowUs = Number(process.hrtime.bigint() / 1000n);
    for (const [index, record] of records.entries()) {
      if (json) {
        writeJson(io, { ...record });
        continue;
      }
      if (index > 0) writeLine(io);
      for (const line of renderExplain(record, { names, columns: io.stdout.columns, palette, nowUs })) writeLine(io, line);
    }
    if (records.length === 0 && !json) writeLine(io, about === undefined ? 'Nothing has been decided yet.' : `There is no record about ${about}.`);
    return exitCodes.done;
  });
}
