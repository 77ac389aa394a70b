/** `leasehold pin`: a model that is never a victim, or no longer. */
import type { CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { copiesOf, tellCopies } from './copies.js';
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
    const { own, alsoLoaded } = await copiesOf(orchestrator, model);
    await orchestrator.pin(model, pinned);
    if (context.json) writeJson(context.io, { model, pinned, loaded: own.length > 0, alsoLoaded });
    else {
      writeLine(context.io, `${model} ${pinned ? pinnedText(own.length > 0) : unpinnedText(own)}`);
      tellCopies(context.io, alsoLoaded, pinned ? 'pin it' : 'unpin it');
    }
    return exitCodes.done;
  });
}

function pinnedText(isLoaded: boolean): string {
  return isLoaded ? 'is pinned: it is evicted for nobody.' : 'is pinned (not loaded yet): once it is, it is evicted for nobody.';
}

/** What is not loaded shows nobody whether it was pinned. */
function unpinnedText(own: readonly { readonly pinned: boolean }[]): string {
  if (own.length === 0) return 'is not pinned (not loaded).';
  return own.some((lease) => lease.pinned) ? 'is no longer pinned.' : 'was not pinned.';
}
