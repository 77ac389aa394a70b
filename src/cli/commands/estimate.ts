/** `leasehold estimate`: the bytes that a model will need, before any card is touched. */
import { readdirSync, statSync } from 'node:fs';
import { LeaseholdError, defaultLimits, parseBytes } from '../../../protocol/index.js';
import { askEstimate, type Question } from '../../models/estimate/ask.js';
import type { Backend } from '../../models/estimate/options.js';
import { simulatedEstimate, type SimulatedEstimate } from '../../models/estimate/simulated.js';
import { errorsOf } from '../../models/learned/learned-size.js';
import { learnedFolder, listLearned } from '../../models/learned/learned-store.js';
import { defaultStatePath } from '../../orchestrator/state.js';
import { contextTokens, wholeNumber } from '../arguments.js';
import { stoppableOnceConfigured, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson, writeLine } from '../report.js';
import { tableColumns } from '../terminal/table.js';
import { renderErrors, renderEstimate, renderSimulated } from '../views/estimate-view.js';
import { subjectOf } from './estimate-subject.js';
import { sourceNames } from './source-names.js';

interface EstimateCommandOptions {
  readonly context?: string;
  readonly parallel?: string;
  readonly batch?: string;
  readonly ranks?: string;
  readonly engine?: Backend;
  readonly kvType?: string;
  readonly dtype?: string;
  readonly imageSide?: string;
  /** False with --no-projector. */
  readonly projector?: string | false;
  readonly draft?: string;
  readonly declared?: string;
  readonly onCpu?: boolean;
  /** False with --no-ask. */
  readonly ask?: boolean;
  /** How wrong past ones were. */
  readonly errors?: boolean;
}

export async function estimateCommand(context: CommandContext, args: readonly unknown[], options: EstimateCommandOptions): Promise<number> {
  const [model] = args as [string | undefined];
  if (options.errors === true) return errors(context, model);
  if (model === undefined) throw new LeaseholdError('input_invalid', { field: 'model', reason: 'a model is missing' }, { help: 'For example: leasehold estimate tiny-facts, leasehold estimate ./model.gguf --context 8192, or leasehold estimate Qwen/Qwen3-0.6B. More with --help.' });
  const question = questionOf(model, options);
  const { io, json, palette } = context;
  return stoppableOnceConfigured(context, async (signal) => {
    const { options: config } = await context.config();
    const meant = await subjectOf(model, options.engine, config, io);
    if (meant.script !== undefined) {
      tellSimulated(context, meant.model, simulatedEstimate(meant.model, meant.script, question.contextTokens ?? meant.configured.contextTokens ?? 0, question.parallel ?? meant.configured.parallel ?? 1));
      return exitCodes.done;
    }
    const draft = options.draft === undefined ? null : (await subjectOf(options.draft, options.engine, config, io)).model;
    const surroundings = { env: io.env, cwd: io.cwd, limits: { ...defaultLimits, ...config.limits }, learnedFolder: learnedFolder(config.stateFolder ?? defaultStatePath()), signal };
    const answer = await askEstimate({ ...meant.configured, ...question, contextTokens: question.contextTokens ?? meant.configured.contextTokens ?? null, declaredBytes: question.declaredBytes ?? meant.configured.declaredBytes ?? null, model: meant.model, draft }, surroundings).catch((error: unknown) => { throw asTyped(error); });
    if (json) writeJson(io, { ...answer });
    else for (const line of [...renderEstimate(answer, { columns: tableColumns(io.stdout), palette }), ...chosenNote(meant.model, answer.estimate.options.backend, options.engine)]) writeLine(io, line);
    return exitCodes.done;
  });
}

function tellSimulated({ io, json, palette }: CommandContext, model: string, estimate: SimulatedEstimate): void {
  if (json) writeJson(io, { model, engine: 'simulated', ...estimate });
  else for (const line of renderSimulated(model, estimate, { columns: tableColumns(io.stdout), palette })) writeLine(io, line);
}

/** Of a folder with both formats: which was taken, and why. */
function chosenNote(path: string, backend: Backend, engine: Backend | undefined): readonly string[] {
  if (engine !== undefined || backend !== 'llama' || statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) return [];
  if (!readdirSync(path).some((name) => name.endsWith('.safetensors'))) return [];
  return ['Of its two formats the GGUF file, which llama.cpp loads here; --engine transformers reckons the safetensors.'];
}

/** What loads have shown beside what had been estimated for them; with a model, of those that have its name, or whose source does. */
async function errors(context: CommandContext, about: string | undefined): Promise<number> {
  const { io, json, palette } = context;
  const { options: { stateFolder, models = {} } } = await context.config();
  const sizes = await listLearned(learnedFolder(stateFolder ?? defaultStatePath()));
  const names = sourceNames(sizes.map(({ source }) => source), models);
  const meant = about === undefined ? null : Object.keys(models).find((own) => models[own]?.aliases?.includes(about) === true) ?? about;
  const all = sizes.flatMap((size) => errorsOf(size).map((error) => ({ ...error, name: names.get(size.source) ?? size.source })));
  const found = all.filter(({ name, source }) => meant === null || name === meant || source.includes(meant));
  if (json) for (const error of found) writeJson(io, { ...error });
  else for (const line of renderErrors(found, { columns: tableColumns(io.stdout), palette })) writeLine(io, line);
  return exitCodes.done;
}

function questionOf(model: string, options: EstimateCommandOptions): Question {
  const count = (text: string | undefined, field: string, maximum: number): number | undefined => wholeNumber(text, `--${field}`, 1, maximum);
  const { declared } = options;
  return {
    model,
    contextTokens: contextTokens(options.context, '--context') ?? null,
    projector: options.projector === false ? 'none' : options.projector === undefined ? 'fitting' : { path: options.projector },
    draft: options.draft ?? null,
    declaredBytes: declared === undefined ? null : parseBytes(declared, '--declared'),
    askEngine: options.ask !== false,
    ...given({
      backend: options.engine, kvDtype: options.kvType, castTo: options.dtype, onCard: options.onCpu === true ? false : undefined,
      parallel: count(options.parallel, 'parallel', 4_096), batchTokens: count(options.batch, 'batch', 1_048_576), ranks: count(options.ranks, 'ranks', 64), imageSide: count(options.imageSide, 'image-side', 65_536),
    }),
  };
}

const optionOf: Readonly<Record<string, string>> = {
  backend: '--engine', context: '--context', contextTokens: '--context', parallel: '--parallel', kvDtype: '--kv-type', batchTokens: '--batch', ranks: '--ranks', imageSide: '--image-side', castTo: '--dtype', declaredBytes: '--declared',
};

/** What an estimate found wrong with a field, told of the option that was typed. */
function asTyped(error: unknown): unknown {
  if (!(error instanceof LeaseholdError) || error.code !== 'input_invalid') return error;
  const option = optionOf[error.details['field'] ?? ''];
  return option === undefined ? error : new LeaseholdError('input_invalid', { ...error.details, field: option }, { cause: error });
}

function given<T extends object>(values: T): { [Key in keyof T]?: Exclude<T[Key], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as { [Key in keyof T]?: Exclude<T[Key], undefined> };
}
