/** `leasehold run`: one question, its answer on stdout as it comes, what is going on on stderr. */
import { LeaseholdError, suggest, type ChatMessage, type RequestClass } from '../../../protocol/index.js';
import type { BrokerChange, BrokerLoss, OrchestratorOptions } from '../../orchestrator/options.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';
import type { GenerateInput, GenerateOptions, Orchestrator } from '../../orchestrator/types.js';
import { contextTokens as tokensOf, decimal, duration, seed, wholeNumber } from '../arguments.js';
import { stoppableOnceConfigured, withOrchestrator, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { writeJson } from '../report.js';
import { createStatusLine, noStatusLine } from '../terminal/progress.js';
import { formatMs } from '../terminal/size-format.js';
import { writeAbove } from '../terminal/standing.js';
import { createNames } from '../views/names.js';
import { JsonAnswer, TextAnswer, summary } from './answer.js';
import { readPrompt } from './prompt.js';
import { asPath, findModel, withReference, type ModelReference } from './model-reference.js';
import { describeStage } from './stage-text.js';
import { runBeyondTraining } from './training.js';

interface RunOptions {
  readonly system?: string;
  readonly maxTokens?: string;
  readonly temperature?: string;
  readonly seed?: string;
  readonly raw?: boolean;
  readonly think?: boolean;
  readonly showThought?: boolean;
  readonly class?: RequestClass;
  readonly deadline?: string;
  readonly context?: string;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
}

export async function run(context: CommandContext, args: readonly unknown[], options: RunOptions): Promise<number> {
  const [reference, words] = args as [string, readonly string[]];
  const sampling = samplingOf(options);
  const contextTokens = tokensOf(options.context, '--context');
  return stoppableOnceConfigured(context, async (signal) => {
    const model = await findModel(reference, context.io);
    const prompt = await readPrompt(context, words, signal);
    const input = inputOf(prompt, options);
    if (contextTokens !== undefined && options.quiet !== true) await tellTraining(context, reference, contextTokens, signal);
    let name = reference;
    const adjust = (given: OrchestratorOptions) => {
      const called = forCall(given, model, contextTokens);
      name = called.name;
      return {
        ...called.options,
        // A broker of our own ends with the call: it must leave what it did not start to one that stays.
        limits: { ...called.options.limits, reattachGraceMs: 0 },
        onBrokerLost: (loss: BrokerLoss) => { if (options.quiet !== true) tellAside(context, lossText(loss)); },
        onBrokerChange: (change: BrokerChange) => { if (options.quiet !== true) tellChange(context, change); },
        // What was typed is told with the other options that have no effect.
        onIgnored: ({ message }: LeaseholdError) => { if (options.quiet !== true && context.options.device === undefined) tellAside(context, message); },
      };
    };
    return withOrchestrator(context, { broker: 'auto', adjust }, async ({ orchestrator }) => {
      if (!orchestrator.ownsBroker && options.quiet !== true) tellIgnored(context, context.options, orchestrator.socketPath);
      await answer(context, orchestrator, name, input, options, { ...sampling, signal }).catch((error: unknown) => { throw asPath(error, model); });
      return exitCodes.done;
    });
  });
}

function samplingOf(options: RunOptions): GenerateOptions {
  const given = {
    maxTokens: wholeNumber(options.maxTokens, '--max-tokens', 1, 16_777_216),
    temperature: decimal(options.temperature, '--temperature', 0, 100),
    seed: seed(options.seed, '--seed'),
    thinking: options.think,
    class: options.class,
    deadlineMs: duration(options.deadline, '--deadline'),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function inputOf(prompt: string, { raw, system }: RunOptions): GenerateInput {
  if (raw === true) {
    if (system !== undefined) throw new LeaseholdError('input_invalid', { field: '--system', reason: 'a raw prompt has no system message; leave out one of the two' });
    return { prompt };
  }
  const messages: ChatMessage[] = system === undefined ? [] : [{ role: 'system', content: system }];
  return { messages: [...messages, { role: 'user', content: prompt }] };
}

async function tellTraining(context: CommandContext, reference: string, contextTokens: number, signal: AbortSignal): Promise<void> {
  const { options } = await context.config();
  const told = await runBeyondTraining(reference, contextTokens, options, context.io, signal);
  if (told !== null) tellAside(context, told);
}

/** The options for one call: nothing is preloaded, a file is served, and the context is what was asked for. */
function forCall(given: OrchestratorOptions, reference: ModelReference, contextTokens: number | undefined): ReturnType<typeof withReference> {
  const { name, options } = withReference(given, reference);
  if (contextTokens === undefined) return { name, options };
  const models = options.models ?? {};
  const key = Object.keys(models).find((own) => own === name || models[own]?.aliases?.includes(name)) ?? name;
  const base = models[key] ?? { source: name };
  if (models[key] === undefined && !Object.hasOwn(tinyModels, name)) {
    const known = [...Object.entries(models).flatMap(([own, { aliases }]) => [own, ...(aliases ?? [])]), ...Object.keys(tinyModels)];
    if (reference.doubt !== null) throw asPath(new LeaseholdError('model_unknown', { model: name, known: known.join(', ') }), reference);
    const near = suggest(name, known);
    const reason = `the configuration here has no model ${name}; ${near === null ? 'a daemon\'s model has the context that the daemon gives it' : `did you mean ${near}?`}`;
    throw new LeaseholdError('input_invalid', { field: '--context', reason });
  }
  return { name, options: { ...options, models: { ...models, [key]: { ...base, contextTokens } } } };
}

function lossText({ pid, graceMs, stopped }: BrokerLoss): string {
  const broker = `The broker${pid === null ? '' : ` (pid ${pid})`}`;
  return stopped ? `${broker} has been stopped; waiting up to ${formatMs(graceMs)} for the next.` : `${broker} is gone; waiting up to ${formatMs(graceMs)} for it to come back.`;
}

/** The answer comes from elsewhere than was thought: from other cards, perhaps, and after a load. */
function tellChange(context: CommandContext, { lostPid, ownsBroker, devices }: BrokerChange): void {
  const lost = `The broker${lostPid === null ? '' : ` (pid ${lostPid})`} is gone`;
  const now = ownsBroker ? 'this process owns one now, for this call' : 'another one has taken its place';
  tellAside(context, `${lost}; ${now}, on ${devices.join(', ')}.`);
}

function tellAside({ io, errorPalette }: CommandContext, text: string): void {
  writeAbove(io.stderr, errorPalette.yellow(text));
}

/** Options that only who owns the cards can follow. */
function tellIgnored(context: CommandContext, options: CommandContext['options'], socketPath: string): void {
  const owners = { '--device': options.device, '--reserve': options.reserve, '--yield': options.yield, '--allow-ledger-only': options.allowLedgerOnly, '--host-memory': options.hostMemory, '--host-reserve': options.hostReserve };
  const given = Object.entries(owners).flatMap(([name, value]) => (value === undefined || value === false ? [] : [name]));
  if (given.length === 0) return;
  tellAside(context, `${given.join(', ')} ignored: a broker runs already at ${socketPath}, and its cards are as it was started.`);
}

async function answer(
  context: CommandContext, orchestrator: Orchestrator, model: string, input: GenerateInput, options: RunOptions, generate: GenerateOptions,
): Promise<void> {
  const { io, json } = context;
  const status = json || options.quiet === true ? noStatusLine : createStatusLine(io.stderr, context.errorPalette);
  const writer = json ? new JsonAnswer(context) : new TextAnswer(context, status, options.showThought === true);
  const names = createNames(orchestrator.models);
  const generation = orchestrator.generate(model, input, {
    ...generate,
    onStage(stage) {
      if (json) writeJson(io, { event: 'stage', ...stage });
      // Words on the screen say better than a status line that it is generating.
      else if (stage.stage === 'generating') status.clear();
      else status.show(describeStage(model, stage, names), stage.progress);
    },
  });
  try {
    for await (const token of generation) {
      writer.token(token);
      await io.stdout.drained();
    }
  } finally {
    status.clear();
    writer.close();
  }
  const result = await generation.result();
  if (json) writeJson(io, { event: 'end', ...result });
  // A broker of our own ends with us, and its records with it: nobody could be asked about them.
  else if (options.verbose === true) writeAbove(io.stderr, context.errorPalette.dim(summary(orchestrator.ownsBroker ? { ...result, explain: null } : result)));
}
