/** `leasehold evict`: puts a model away and says how many bytes came back. */
import { duration } from '../arguments.js';
import { stoppable, withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes } from '../terminal/size-format.js';

interface EvictOptions {
  readonly park?: boolean;
  readonly deadline?: string;
}

export async function evict(context: CommandContext, args: readonly unknown[], options: EvictOptions): Promise<number> {
  const [model] = args as [string];
  const deadlineMs = duration(options.deadline, '--deadline');
  const { io, json } = context;
  return stoppable(context, async (signal) => withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    const status = json ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
    status.show(`waiting for the calls of ${model} to end and its bytes to be free`, null);
    try {
      const evicting = orchestrator.evict(model, { target: options.park === true ? 'host' : 'none', ...(deadlineMs === undefined ? {} : { deadlineMs }) });
      const freedBytes = await unlessAborted(evicting, signal);
      status.clear();
      if (json) writeJson(io, { model, freedBytes });
      else writeLine(io, freedBytes === 0 ? `${model} held nothing on a card.` : `${model} put away: ${formatBytes(freedBytes)} confirmed free.`);
    } finally {
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
