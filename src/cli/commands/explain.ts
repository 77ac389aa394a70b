/** `leasehold explain`: why the broker decided as it did. */
import { LeaseholdError, explainId } from '../../../protocol/index.js';
import type { ExplainRecord } from '../../orchestrator/index.js';
import type { Orchestrator } from '../../orchestrator/types.js';
import { wholeNumber } from '../arguments.js';
import { withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { renderExplain } from '../views/explain-view.js';
import { createNames } from '../views/names.js';
import { modelReference } from './model-reference.js';
import { withModel } from './with-model.js';

interface ExplainOptions {
  readonly count?: string;
}

export async function explain(context: CommandContext, args: readonly unknown[], options: ExplainOptions): Promise<number> {
  const [about] = args as [string | undefined];
  const count = wholeNumber(options.count, '--count', 1, 1_000) ?? 1;
  if (about !== undefined && explainId().check(about, '') !== null) {
    return withModel(context, modelReference(about, context.io.cwd), async (orchestrator, model) => {
      show(context, orchestrator, await orchestrator.explain(model, count), `There is no record about ${model}.`);
      return exitCodes.done;
    });
  }
  return withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    const records = await orchestrator.explain(about, count);
    if (records.length === 0 && about !== undefined) {
      const help = '`leasehold explain --count 20` shows the latest; a broker keeps so many (limits.explainRecordsMax), and they end with it.';
      throw new LeaseholdError('input_invalid', { field: 'explain', reason: `this broker has no record ${about}` }, { help });
    }
    show(context, orchestrator, records, 'Nothing has been decided yet.');
    return exitCodes.done;
  });
}

function show({ io, json, palette }: CommandContext, { models }: Orchestrator, records: readonly ExplainRecord[], otherwise: string): void {
  const names = createNames(models);
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
  if (records.length === 0 && !json) writeLine(io, otherwise);
}
