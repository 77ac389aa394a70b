/** `leasehold demo`: three models take turns on a simulated card that is too small for all of them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tinyModelNames } from '../../orchestrator/shipped-models.js';
import type { OrchestratorOptions } from '../../orchestrator/options.js';
import type { Orchestrator } from '../../orchestrator/types.js';
import { logLevels } from '../../config/written.js';
import { openLog, stoppableOnceConfigured, type CommandContext } from '../context.js';
import { exitCodes } from '../exit-codes.js';
import { Conversation } from './converse.js';
import { JsonView } from './json-view.js';
import { measureCharges, roomyCard } from './measure.js';
import { PlainView } from './plain-view.js';
import { promises, toResult } from './result.js';
import { ScreenView } from './screen-view.js';
import { conversation } from './script.js';
import { chooseCardBytes } from './sizing.js';
import type { DemoView } from './view.js';

/** Shorter than people need: this conversation changes its model with every question and has no time to lose. */
const minimumResidencyMs = 250;

export async function demo(context: CommandContext): Promise<number> {
  return stoppableOnceConfigured(context, async (signal) => {
    const folder = await mkdtemp(join(tmpdir(), 'leasehold-demo-'));
    try {
      return await run(context, folder, signal);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
}

async function run(context: CommandContext, folder: string, signal: AbortSignal): Promise<number> {
  const beganMs = performance.now();
  const view = createView(context);
  try {
    view.measuring(tinyModelNames);
    const charges = await withCard(context, join(folder, 'measure'), roomyCard, (orchestrator) => measureCharges(orchestrator, tinyModelNames, signal));
    return await withCard(context, join(folder, 'demo'), `sim:${chooseCardBytes(charges)}`, async (orchestrator) => {
      const talk = new Conversation(orchestrator, view, conversation());
      const answers = await talk.hold(signal);
      const state = await orchestrator.ledger();
      view.ledger(state);
      const result = toResult(state, answers);
      const pledges = promises(result);
      view.finished({ models: talk.byModel(), result, pledges, tookMs: performance.now() - beganMs });
      return pledges.every(({ kept }) => kept) ? exitCodes.done : exitCodes.failed;
    });
  } finally {
    view.close();
  }
}

function createView({ io, json, palette }: CommandContext): DemoView {
  if (json) return new JsonView(io);
  return io.stdout.canRedraw ? new ScreenView(io.stdout, [io.stderr], palette) : new PlainView(io.stdout, palette);
}

/** A private broker with one simulated card, for as long as `use` runs. Nothing of the user's configuration takes part. */
async function withCard<T>(context: CommandContext, stateFolder: string, card: string, use: (orchestrator: Orchestrator) => Promise<T>): Promise<T> {
  const level = logLevels.find((known) => known === context.options.logLevel) ?? 'silent';
  const log = await openLog(context, { level, file: context.options.logFile ?? null });
  const models = Object.fromEntries(tinyModelNames.map((name) => [name, { source: name }]));
  const options: OrchestratorOptions = { broker: 'own', stateFolder, devices: [card], models, classPolicies: { interactive: { minimumResidencyMs } } };
  const orchestrator = await context.createOrchestrator(log === null ? options : { ...options, log });
  try {
    return await use(orchestrator);
  } finally {
    await orchestrator.close();
  }
}
