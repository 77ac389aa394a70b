/** `leasehold pin`: a model that is never a victim, or no longer. */
import { withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';

interface PinOptions {
  readonly off?: boolean;
}

export async function pin(context: CommandContext, args: readonly unknown[], options: PinOptions): Promise<number> {
  const [model] = args as [string];
  const pinned = options.off !== true;
  return withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    await orchestrator.pin(model, pinned);
    if (context.json) writeJson(context.io, { model, pinned });
    else writeLine(context.io, pinned ? `${model} is pinned: it is evicted for nobody.` : `${model} is no longer pinned.`);
    return exitCodes.done;
  });
}
