/** `leasehold evict`: puts a model away, or with `--all` every one, and says how many bytes came back. */
import { LeaseholdError } from '../../../protocol/index.js';
import { duration } from '../arguments.js';
import { stoppableOnceConfigured, withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatBytes } from '../terminal/size-format.js';
import { copiesOf, tellCopies, type Copies } from './copies.js';
import { findModel } from './model-reference.js';
import { withModel } from './with-model.js';

/** An eviction that takes longer is waiting for something. */
const waitShownMs = 250;

interface EvictOptions {
  readonly all?: boolean;
  readonly park?: boolean;
  readonly deadline?: string;
}

export async function evict(context: CommandContext, args: readonly unknown[], options: EvictOptions): Promise<number> {
  const [written] = args as [string | undefined];
  if ((written === undefined) !== (options.all === true)) throw new LeaseholdError('input_invalid', { field: 'evict', reason: 'give a model, or --all' }, { help: '`leasehold evict --help` shows how it is used.' });
  if (written === undefined) return evictAll(context, options);
  const reference = await findModel(written, context.io);
  const deadlineMs = duration(options.deadline, '--deadline');
  const { io, json } = context;
  return stoppableOnceConfigured(context, async (signal) => withModel(context, reference, async (orchestrator, model) => {
    const status = json ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
    // What is refused, or done at once, has waited for nothing.
    const waits = setTimeout(() => { status.show(`waiting for the calls of ${model} to end and its bytes to be free`, null); }, waitShownMs);
    try {
      const { own } = await copiesOf(orchestrator, model);
      const evicting = orchestrator.evict(model, { target: options.park === true ? 'host' : 'none', ...(deadlineMs === undefined ? {} : { deadlineMs }) });
      const freedBytes = await unlessAborted(evicting, signal);
      clearTimeout(waits);
      status.clear();
      const after = await copiesOf(orchestrator, model);
      const alsoLoaded = freedBytes === 0 ? after.alsoLoaded : [];
      if (json) writeJson(io, { model, freedBytes, parked: isParked(after), alsoLoaded });
      else {
        writeLine(io, freedBytes === 0 ? nothingFreed(model, own) : freed(model, freedBytes, options, after));
        tellCopies(io, alsoLoaded, 'evict it');
      }
    } finally {
      clearTimeout(waits);
      status.clear();
    }
    return exitCodes.done;
  }));
}

/** Every model that holds anything, whoever holds it; who stays is named with why. */
async function evictAll(context: CommandContext, options: EvictOptions): Promise<number> {
  const { io, json } = context;
  const deadlineMs = duration(options.deadline, '--deadline');
  return stoppableOnceConfigured(context, async (signal) => withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    const evicting = orchestrator.evictAll({ target: options.park === true ? 'host' : 'none', ...(deadlineMs === undefined ? {} : { deadlineMs }) });
    const models = await unlessAborted(evicting, signal);
    const copies = new Map(await Promise.all(models.map(async ({ model }) => [model, await copiesOf(orchestrator, model)] as const)));
    const after = (model: string): Pick<Copies, 'own'> => copies.get(model) ?? { own: [] };
    if (json) writeJson(io, { models: models.map(({ model, freedBytes, stayed }) => ({ model, freedBytes, parked: stayed === null && isParked(after(model)), stayed: stayed === null ? null : { code: stayed.code, message: stayed.message } })) });
    else if (models.length === 0) writeLine(io, 'No model holds anything.');
    else for (const { model, freedBytes, stayed } of models) writeLine(io, stayed === null ? freed(model, freedBytes, options, after(model)) : `${model} stays: ${stayed.message}`);
    return models.every(({ stayed }) => stayed === null) ? exitCodes.done : exitCodes.failed;
  }));
}

/** What was done, which may be less than was asked for; the broker's record says why. */
function freed(model: string, freedBytes: number, { park = false }: EvictOptions, after: Pick<Copies, 'own'>): string {
  const bytes = `${formatBytes(freedBytes)} confirmed free`;
  if (!park) return `${model} put away: ${bytes}.`;
  if (isParked(after)) return `${model} parked: ${bytes}; it comes back from the machine's memory.`;
  return `${model} unloaded: ${bytes}. It could not be parked: its engine cannot, or memory for its copy is short (leasehold explain ${model}).`;
}

function isParked({ own }: Pick<Copies, 'own'>): boolean {
  return own.length > 0 && own.every(({ state }) => state === 'parked');
}

/** It was not loaded, or was in the machine's memory alone. */
function nothingFreed(model: string, own: Copies['own']): string {
  const hostBytes = own.reduce((sum, { hostChargedBytes }) => sum + (hostChargedBytes ?? 0), 0);
  return hostBytes === 0 ? `${model} held nothing on a card.` : `${model} put away: it held nothing on a card, and ${formatBytes(hostBytes)} of the machine's memory.`;
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
