/** `leasehold pin`: a model that is never a victim, or no longer. */
import type { CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { findModel } from './model-reference.js';
import { withModel } from './with-model.js';

interface PinOptions {
  readonly off?: boolean;
}

export async function pin(context: CommandContext, args: readonly unknown[], options: PinOptions): Promise<number> {
  const [written] = args as [string];
  const reference = await findModel(written, context.io);
  const pinned = options.off !== true;
  return withModel(context, reference, async (orchestrator, model) => {
    await orchestrator.pin(model, pinned);
    if (context.json) writeJson(context.io, { model, pinned });
    else writeLine(context.io, pinned ? `${model} is pinned: it is evicted for nobody.` : `${model} is no longer pinned.`);
    return exitCodes.done;
  });
}
