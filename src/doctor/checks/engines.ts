/** Each engine: a worker of it is started and attaches, and llama.cpp makes one token on whatever it could be asked to use. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { RunOutcome } from '../../../broker/devices/bounded-run.js';
import { nodeCommand } from '../../../broker/supervisor/index.js';
import { LeaseholdError, durationText } from '../../../protocol/index.js';
import { engineCommands } from '../../orchestrator/engines.js';
import { tinyModels } from '../../orchestrator/shipped-models.js';
import { formatBytes, formatMs } from '../../cli/terminal/size-format.js';
import { explainTrial, installLlama } from '../advice/llama.js';
import type { Check } from '../check.js';
import { assess, notApplicable, ok, problem, warning, type Found } from '../finding.js';
import type { BrokerSeen } from '../running-broker.js';
import type { Scene } from '../scene.js';
import { bestReading, type CardSeen } from '../survey.js';
import { attachWorker } from '../throwaway.js';

const attachTimeoutMs = 30_000;
const trialTimeoutMs = 60_000;
/** What a process and a tiny model take of a card, and a little more. */
const trialBytes = 1024 * 1024 * 1024;

/** As the worker's program tells it (workers/llama/trial.ts). */
type Trial =
  | { readonly ran: true; readonly version: string; readonly release: string; readonly devices: readonly string[]; readonly openMs: number; readonly loadMs: number; readonly firstTokenMs: number }
  | { readonly ran: false; readonly missing: boolean; readonly reason: string };

const attachCheck: Check = {
  id: 'engines.attach',
  title: 'Workers',
  alone: true,
  startsEngine: true,
  deadlineMs: 10 * attachTimeoutMs,
  async run(scene, signal) {
    const seen = await scene.configuration();
    const found: Found[] = [];
    // One after another: each is to have the machine for itself.
    for (const engine of engineCommands(seen.kind === 'loaded' ? seen.config.options.engines ?? [] : [])) {
      const about = engine.name;
      found.push({ ...await tryAttach(() => attachWorker(engine, attachTimeoutMs, signal), engine.command), about, title: `A worker of ${engine.name}` });
    }
    return found;
  },
};

export async function tryAttach(attach: () => ReturnType<typeof attachWorker>, command: string): Promise<Found> {
  try {
    const { attachMs, versions } = await attach();
    return ok(`started and attached to a broker made for the moment in ${formatMs(attachMs)}${versionsText(versions)}`);
  } catch (error) {
    const { code, message, help } = LeaseholdError.from(error);
    if (code === 'engine_missing') return missingLlama(message);
    return problem(`it does not start: ${message}`, code === 'spawn_failed' ? `See that \`${command}\` is there, may be executed, and starts by hand.` : help);
  }
}

const cpuCheck: Check = {
  id: 'engines.llama.cpu',
  title: 'llama.cpp on the CPU',
  alone: true,
  startsEngine: true,
  deadlineMs: trialTimeoutMs + 5_000,
  async run(scene) {
    return judgeTrial(await runTrial(scene, 'cpu', null), 'cpu', 'none');
  },
};

/** Every card that llama.cpp could be started on; best backend first, the next one only where that fails, as its worker does. */
const cardsCheck: Check = {
  id: 'engines.llama.cards',
  title: 'llama.cpp on cards',
  alone: true,
  startsEngine: true,
  deadlineMs: 5 * trialTimeoutMs,
  async run(scene, signal) {
    const cards = (await scene.cards()).filter(({ description }) => description?.kind === 'gpu');
    if (cards.length === 0) return notApplicable('no card that can be read');
    const broker = await scene.broker();
    const driver = (await scene.rungs()).map((rung) => (rung.works ? rung.found.driver : null)).find((text) => text !== null) ?? 'unknown';
    const found: Found[] = [];
    for (const card of cards) {
      if (signal.aborted) break;
      const seen = ownedBy(broker, card.device) ?? await tryCard(scene, card, driver);
      found.push({ ...seen, about: card.device, title: `llama.cpp on ${card.name}` });
    }
    return found;
  },
};

/** A card that a running broker owns is left alone: what a trial takes there would be nobody's lease. Null: none owns it. */
export function ownedBy(broker: BrokerSeen, device: string): Found | null {
  if (broker.kind !== 'running' || !broker.ledger.cards.some((card) => card.device === device)) return null;
  const there = new Set(broker.ledger.processes.filter(({ devices }) => devices.includes(device)).map(({ generation }) => generation));
  const workers = broker.ledger.workers.filter(({ generation }) => there.has(generation)).map(({ engine, versions }) => `${engine}${versionsText(versions)}`);
  const runs = workers.length === 0 ? 'no worker of it is there now' : `there run ${[...new Set(workers)].join(', ')}`;
  return notApplicable(`not tried, since a running broker owns it and nobody has leased what a trial takes; ${runs}`);
}

function versionsText(versions: Readonly<Record<string, string>> | null | undefined): string {
  const said = Object.entries(versions ?? {}).map(([name, version]) => `${name} ${version}`).join(', ');
  return said === '' ? '' : ` (${said})`;
}

async function tryCard(scene: Scene, card: CardSeen, driver: string): Promise<Found> {
  const reading = bestReading(card);
  if (reading === null) return notApplicable('not tried: it cannot be read');
  const freeBytes = reading.totalBytes - reading.usedBytes;
  if (freeBytes < trialBytes) return warning(`not tried: ${formatBytes(freeBytes)} are free, and a trial takes up to ${formatBytes(trialBytes)}`, 'End what holds the card (see the cards above) and run it again.');
  const failed: Found[] = [];
  for (const backend of backendsFor(card, scene.machine.platform.name)) {
    const found = judgeTrial(await runTrial(scene, backend, card), backend, driver);
    if (found.verdict === 'ok') return afterFailures(found, failed);
    // Without the engine no backend is any better.
    if (found.verdict === 'warning') return found;
    failed.push(found);
  }
  return { verdict: 'problem', found: failed.map((each) => each.found).join('; '), advice: `${failed[0]?.advice ?? ''} Until then nothing of llama.cpp runs on this card.` };
}

/** It works, but not as well as it could. */
function afterFailures(found: Found, [first]: readonly Found[]): Found {
  return first === undefined ? found : assess(found.found, [{ verdict: 'warning', says: first.found, advice: first.advice ?? '' }]);
}

/** As the worker chooses them. */
function backendsFor(card: CardSeen, platform: string): readonly string[] {
  if (platform === 'darwin') return ['metal'];
  return /\b(amd|radeon|instinct|intel|arc)\b/i.test(card.name) ? ['vulkan'] : ['cuda', 'vulkan'];
}

async function runTrial(scene: Scene, backend: string, card: CardSeen | null): Promise<RunOutcome> {
  const threads = String(Math.max(1, availableParallelism() - 1));
  const { command, args, env } = nodeCommand(join(scene.builtRoot, 'workers', 'llama', 'trial.js'), [backend, tinyModels['tiny-facts'].ggufPath, threads, card?.name ?? '']);
  // An assertion of llama.cpp would call a debugger for its last words.
  return scene.machine.run(command, args, { env: { ...env, ...card?.description?.visibility, GGML_NO_BACKTRACE: '1' }, timeoutMs: trialTimeoutMs });
}

export function judgeTrial(outcome: RunOutcome, backend: string, driver: string): Found {
  const trial = trialIn(outcome);
  if (trial?.ran === true) {
    const { version, release, devices, openMs, loadMs, firstTokenMs } = trial;
    const on = devices.length === 0 ? '' : ` on ${devices.join(', ')}`;
    return ok(`${backend}${on}: first token ${formatMs(firstTokenMs)} after the prompt (opened in ${formatMs(openMs)}, a tiny model loaded in ${formatMs(loadMs)}); node-llama-cpp ${version}, llama.cpp ${release}`);
  }
  if (trial?.missing === true) return missingLlama(trial.reason);
  const reason = [trial?.reason ?? deathOf(outcome), ...lastWords(outcome)].join(': ').slice(0, reasonLengthMax);
  const { meaning, advice } = explainTrial(reason, backend, driver);
  return problem(`${backend}: ${meaning ?? reason}${meaning === null ? '' : ` (${reason})`}`, advice);
}

const reasonLengthMax = 500;

/** An optional part that is not there is no problem; one that is there and does not load is. */
function missingLlama(reason: string): Found {
  if (/NoBinaryFound/.test(reason)) return problem('node-llama-cpp is there without its build for this platform', explainTrial(reason, 'cpu', '').advice);
  const isThere = !/Cannot find (package|module) '?node-llama-cpp/.test(reason);
  return isThere ? problem(`node-llama-cpp does not load: ${reason}`, `Its installation is not whole. ${installLlama}`) : warning('node-llama-cpp is not installed', installLlama);
}

const trialBegin = '{"ran":';

/** The line of JSON among whatever else was printed; null: it did not come to that. */
function trialIn(outcome: RunOutcome): Trial | null {
  const line = outcome.kind === 'ended' ? outcome.stdout.split('\n').filter((each) => each.startsWith(trialBegin)).at(-1) : undefined;
  return line === undefined ? null : JSON.parse(line) as Trial;
}

function deathOf(outcome: RunOutcome): string {
  switch (outcome.kind) {
    case 'timed_out':
      return `no token within ${durationText(trialTimeoutMs)}`;
    case 'too_much_output':
      return 'it wrote without end';
    case 'not_started':
      return `it could not be started: ${outcome.reason}`;
    case 'ended':
      return outcome.signal === null ? `it ended with code ${String(outcome.exitCode)}` : `it was ended by ${outcome.signal}`;
  }
}

/** The lines that say why: an assertion, an error. */
function lastWords(outcome: RunOutcome): readonly string[] {
  if (outcome.kind !== 'ended') return [];
  const lines = `${outcome.stdout}\n${outcome.stderr}`.split('\n').map((line) => line.trim()).filter((line) => !line.startsWith(trialBegin));
  const telling = lines.filter((line) => /assert|abort|error|unsupported|terminate|what\(\)|fail|cannot|insufficient/i.test(line) && !/\[0x[0-9a-f]+\]$/.test(line));
  // Where llama.cpp was built is nobody's business here.
  return telling.slice(-3).map((line) => line.replace(/\/\S*\/llama\.cpp\//g, ''));
}

export const engineChecks: readonly Check[] = [attachCheck, cpuCheck, cardsCheck];
