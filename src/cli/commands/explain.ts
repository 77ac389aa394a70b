/** `leasehold explain`: why the broker decided as it did. */
import { LeaseholdError, explainId } from '../../../protocol/index.js';
import type { NamedRecord, Orchestrator } from '../../orchestrator/types.js';
import { wholeNumber } from '../arguments.js';
import { withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { renderExplain } from '../views/explain-view.js';
import { createNames } from '../views/names.js';
import { formatMs } from '../terminal/size-format.js';
import { tableColumns } from '../terminal/table.js';
import { wrap } from '../terminal/width.js';
import { copiesOf, tellCopies } from './copies.js';
import { findModel } from './model-reference.js';
import { withModel } from './with-model.js';

interface ExplainOptions {
  readonly count?: string;
}

export async function explain(context: CommandContext, args: readonly unknown[], options: ExplainOptions): Promise<number> {
  const [about] = args as [string | undefined];
  const count = wholeNumber(options.count, '--count', 1, 1_000) ?? null;
  const read = async (orchestrator: Orchestrator, wanted: string | undefined) =>
    count === null ? lastStory(await orchestrator.explain(wanted, lookedBackMax)) : orchestrator.explain(wanted, count);
  if (about !== undefined && explainId().check(about, '') !== null) {
    return withModel(context, await findModel(about, context.io), async (orchestrator, model) => {
      await show(context, orchestrator, await read(orchestrator, model), async () => `There is no record about ${model}. ${await sinceWhen(orchestrator)}`);
      if (!context.json) tellCopies(context.io, (await copiesOf(orchestrator, model)).alsoLoaded, 'have it explained');
      return exitCodes.done;
    });
  }
  return withOrchestrator(context, { broker: 'attach' }, async ({ orchestrator }) => {
    const records = await read(orchestrator, about);
    if (records.length === 0 && about !== undefined) {
      const help = '`leasehold explain --count 20` shows the latest; a broker keeps so many (limits.explainRecordsMax), and they end with it.';
      throw new LeaseholdError('input_invalid', { field: 'explain', reason: `this broker has no record ${about}` }, { help });
    }
    await show(context, orchestrator, records, async () => `Nothing has been decided yet. ${await sinceWhen(orchestrator)}`);
    return exitCodes.done;
  });
}

/** Records among which the last story is looked for. */
const lookedBackMax = 1_000;

/**
 * The newest record, and those before it that lead to it: of the same request, back to the plan that made room for it;
 * or, of a model that left, back to what it was told to leave for.
 */
export function lastStory(records: readonly NamedRecord[]): readonly NamedRecord[] {
  const [newest] = records;
  if (newest === undefined) return [];
  const story = storyOf(newest, records);
  if (!placed.includes(newest.verdict)) return story;
  // That a resident model was found once more explains nothing: what brought it there, or took it away, does.
  const decision = records.findIndex((record) => !story.includes(record) && !undecided.includes(record.verdict));
  return decision === -1 ? story : [...story, ...lastStory(records.slice(decision))];
}

const placed: readonly string[] = ['placed', 'reattached'];
const undecided: readonly string[] = [...placed, 'waiting', 'cancelled'];

function storyOf(newest: NamedRecord, records: readonly NamedRecord[]): readonly NamedRecord[] {
  const told: NamedRecord[] = [];
  for (const record of records) {
    const isOfRequest = newest.request !== null && record.generation === newest.generation && record.request === newest.request;
    const isOfLeaving = newest.request === null && (leaving.includes(record.verdict) && (record.model === newest.model || chose(record, newest.model)));
    if (!isOfRequest && !isOfLeaving) {
      if (newest.request === null) break;
      continue;
    }
    told.push(record);
    if (record.victims.length > 0) break;
  }
  return told;
}

/** What is said of a model on its way out. */
const leaving: readonly string[] = ['evicting', 'evicted', 'escalated', 'ended', 'quarantined'];

function chose({ victims }: NamedRecord, model: string | null): boolean {
  return victims.some((victim) => victim.model === model && victim.passedOver === null);
}

/** Whom earlier records of the same request chose: what is leaving for it already is among the evictable no more. */
export function chosenBefore(record: NamedRecord, earlier: readonly NamedRecord[]): readonly string[] {
  if (record.verdict !== 'waiting') return [];
  const same = earlier.filter(({ request, generation }) => request !== null && request === record.request && generation === record.generation);
  return [...new Set(same.flatMap(({ victims }) => victims.filter(({ passedOver }) => passedOver === null).map(({ model }) => model)))].filter((model) => model !== null);
}

/** A record ends with its broker. */
async function sinceWhen(orchestrator: Orchestrator): Promise<string> {
  const { broker: { startedMsAgo } } = await orchestrator.ledger();
  return `Records do not outlive their broker, and this one has run for ${formatMs(startedMsAgo)}.`;
}

async function show({ io, json, palette }: CommandContext, { models }: Orchestrator, records: readonly NamedRecord[], otherwise: () => Promise<string>): Promise<void> {
  const names = createNames(models);
  // CLOCK_MONOTONIC is one clock for the whole machine, so the broker's moments can be told from here.
  const nowUs = Number(process.hrtime.bigint() / 1000n);
  for (const [index, record] of records.entries()) {
    if (json) {
      writeJson(io, { ...record });
      continue;
    }
    if (index > 0) writeLine(io);
    for (const line of renderExplain(record, { names, columns: io.stdout.columns, tableColumns: tableColumns(io.stdout), palette, nowUs, chosenBefore: chosenBefore(record, records.slice(index + 1)) })) writeLine(io, line);
  }
  if (records.length === 0 && !json) for (const line of wrap(await otherwise(), io.stdout.columns)) writeLine(io, line);
}
