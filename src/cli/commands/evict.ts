/** `leasehold evict`: puts a model away and says how many bytes came back. */
import { duration } from '../arguments.js';
import { stoppableOnceConfigured, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes } from '../terminal/size-format.js';
import { copiesOf, tellCopies } from './copies.js';
import { findModel } from './model-reference.js';
import { withModel } from './with-model.js';

/** An eviction that takes longer is waiting for something. */
const waitShownMs = 250;

interface EvictOptions {
  readonly park?: boolean;
  readonly deadline?: string;
}

export async function evict(context: CommandContext, args: readonly unknown[], options: EvictOptions): Promise<number> {
  const [written] = args as [string];
  const reference = await findModel(written, context.io);
  const deadlineMs = duration(options.deadline, '--deadline');
  const { io, json } = context;
  return stoppableOnceConfigured(context, async (signal) => withModel(context, reference, async (orchestrator, model) => {
    const status = json ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
    // What is refused, or done at once, has waited for nothing.
    const waits = setTimeout(() => { status.show(`waiting for the calls of ${model} to end and its bytes to be free`, null); }, waitShownMs);
    try {
      const evicting = orchestrator.evict(model, { target: options.park === true ? 'host' : 'none', ...(deadlineMs === undefined ? {} : { deadlineMs }) });
      const freedBytes = await unlessAborted(evicting, signal);
      clearTimeout(waits);
      status.clear();
      const alsoLoaded = freedBytes === 0 ? (await copiesOf(orchestrator, model)).alsoLoaded : [];
      if (json) writeJson(io, { model, freedBytes, alsoLoaded });
      else {
        writeLine(io, freedBytes === 0 ? `${model} held nothing on a card.` : `${model} put away: ${formatBytes(freedBytes)} confirmed free.`);
        tellCopies(io, alsoLoaded, 'evict it');
      }
    } finally {
      clearTimeout(waits);
      status.clear();
    }
    return exitCodes.done;
  }));
}

/** Leaving early does not undo an eviction: the broker carries it through. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => { reject(signal.reason as Error); };
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => { signal.removeEventListener('abort', leave); });
  });
}
