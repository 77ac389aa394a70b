/**
 * On real cards, not in CI: four llama workers, models of 2 to 30 GB with more
 * than twice a card's bytes among them, four callers, a worker killed every
 * thirty seconds, a stranger that takes 20 GiB and leaves again; a bystander
 * holds every reading of each card against the ledger. Prints one JSON; exits
 * non-zero when a promise broke.
 *
 *   node dist/test/gpu/siege.js FOLDER [REQUESTS] [SECONDS_AT_MOST]
 *
 * Model files that are not in FOLDER are written first (55 GB), and linked
 * under many names: as many models, one set of pages each.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, linkSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LeaseholdError } from '../../protocol/index.js';
import { createLog, createOrchestrator, type ModelOptions, type Orchestrator } from '../../src/orchestrator/index.js';
import { Prng } from '../../src/scenarios/world/prng.js';
import { eightBillion, largeModel } from '../../workers/llama/large-model.js';
import { writeGguf } from '../../workers/llama/gguf-writer.js';
import { spread, watchCards } from './card-watch.js';

/** Layers of one shape, and how many models of it there are: 2.1, 7.9, 14.5 and 29.4 GB. */
const sizes = [{ layers: 4, models: 8 }, { layers: 17, models: 8 }, { layers: 32, models: 8 }, { layers: 66, models: 4 }] as const;
const squatBytes = 20 * 1024 ** 3;
const killEveryMs = 30_000;
const squatEveryMs = 60_000;
const callers = 4;

interface Turn {
  readonly queuedMs: number;
  readonly loadMs: number;
  readonly firstTokenMs: number;
}

class Siege {
  readonly turns: Turn[] = [];
  /** Answers cut off by a kill after their first token: they cannot be repeated in secret, and the caller asks again. */
  cutOff = 0;
  /** Refusals of a model whose worker had been killed in its load; asked again when the broker said to. */
  askedAgain = 0;
  readonly failures: string[] = [];
  kills = 0;
  squats = 0;
  private readonly random = new Prng(Number(process.env['SEED'] ?? 1), 'siege');

  constructor(private readonly leasehold: Orchestrator, private readonly names: readonly string[], private readonly cards: number) {}

  async run(requests: number, secondsMax: number): Promise<void> {
    const endsAtMs = performance.now() + secondsMax * 1_000;
    const timers = [setInterval(() => void this.killOne(), killEveryMs), setInterval(() => void this.squat(), squatEveryMs)];
    let left = requests;
    const caller = async (): Promise<void> => {
      while (left-- > 0 && performance.now() < endsAtMs) await this.ask(this.names[this.random.zipf(this.names.length, 0.7)] ?? '');
    };
    await Promise.all(Array.from({ length: callers }, caller));
    for (const timer of timers) clearInterval(timer);
  }

  private async ask(model: string): Promise<void> {
    for (let attempt = 0; attempt < 4; attempt++) {
      const start = performance.now();
      let firstTokenMs: number | null = null;
      try {
        const generation = this.leasehold.generate(model, { prompt: 'Once upon a time' }, { maxTokens: 24, deadlineMs: 240_000 });
        for await (const token of generation) if (token.ids.length > 0) firstTokenMs ??= performance.now() - start;
        const { timings } = await generation.result();
        this.turns.push({ queuedMs: timings.queuedMs, loadMs: timings.loadMs, firstTokenMs: Math.round(firstTokenMs ?? 0) });
        return;
      } catch (error) {
        const retryAfterMs = error instanceof LeaseholdError ? Number(error.details['retryAfterMs'] ?? Number.NaN) : Number.NaN;
        if (firstTokenMs === null && attempt < 3 && Number.isFinite(retryAfterMs)) {
          this.askedAgain++;
          await new Promise((resolve) => setTimeout(resolve, retryAfterMs));
          continue;
        }
        if (firstTokenMs === null || attempt === 3) {
          this.failures.push(`${model}: ${error instanceof LeaseholdError ? `${error.code}: ` : ''}${String(error)}`);
          process.stderr.write(`${this.failures.at(-1) ?? ''}\n`);
          return;
        }
        this.cutOff++;
      }
    }
  }

  private async killOne(): Promise<void> {
    const { workers } = await this.leasehold.ledger();
    const pids = workers.flatMap(({ pid }) => (pid === null ? [] : [pid]));
    if (pids.length === 0) return;
    const pid = this.random.pick(pids);
    process.stderr.write(`kill -9 ${String(pid)} after ${String(this.turns.length)} answers\n`);
    this.kills++;
    process.kill(pid, 'SIGKILL');
  }

  /** Takes 20 GiB for fifteen seconds, if the card has them: it does not ask the broker. */
  private async squat(): Promise<void> {
    const card = this.squats % this.cards;
    const stranger = spawn(process.execPath, [fileURLToPath(new URL('./squatter.js', import.meta.url)), String(squatBytes), String(card)], { stdio: ['pipe', 'pipe', 'inherit'] });
    if (!(await says(stranger, 'taken'))) return;
    this.squats++;
    await new Promise((resolve) => setTimeout(resolve, 15_000));
    stranger.stdin.end();
  }
}

function says(child: ChildProcess, word: string): Promise<boolean> {
  return new Promise((resolve) => {
    child.stdout?.on('data', (text: Buffer) => { if (text.toString().includes(word)) resolve(true); });
    child.once('exit', () => { resolve(false); });
  });
}

async function modelFiles(folder: string, links: string): Promise<Record<string, ModelOptions>> {
  mkdirSync(folder, { recursive: true });
  const models: Record<string, ModelOptions> = {};
  for (const { layers, models: count } of sizes) {
    const file = join(folder, `layers-${String(layers)}.gguf`);
    if (!existsSync(file)) await writeGguf(file, largeModel({ ...eightBillion, layers }));
    for (let index = 0; index < count; index++) {
      const source = join(links, `l${String(layers)}-${String(index)}.gguf`);
      linkSync(file, source);
      models[`l${String(layers)}-${String(index)}`] = { source, contextTokens: 4_096 };
    }
  }
  return models;
}

async function main(): Promise<void> {
  const [folder = '/tmp/siege', requests = '300', seconds = '420'] = process.argv.slice(2);
  mkdirSync(folder, { recursive: true });
  const links = mkdtempSync(join(folder, 'links-'));
  const models = await modelFiles(folder, links);
  const log = createLog(process.env['LEASEHOLD_LOG'] === undefined ? 'error' : 'debug');
  const leasehold = await createOrchestrator({
    models, broker: 'own', stateFolder: join(links, 'state'), log, engines: [{ name: 'llama', modelsPerWorker: 8 }], limits: { workersMax: 4 },
  });
  const watch = await watchCards(() => leasehold.ledger());
  // Big and small in turn, so that rank says nothing of size.
  const names = Array.from({ length: 8 }, (_, index) => sizes.flatMap(({ layers, models: count }) => (index < count ? [`l${String(layers)}-${String(index)}`] : []))).flat();
  const siege = new Siege(leasehold, names, (await leasehold.ledger()).cards.length);
  const start = performance.now();
  await siege.run(Number(requests), Number(seconds));
  const tookS = Math.round((performance.now() - start) / 1_000);
  const seen = await watch.stop();
  const ledger = await leasehold.ledger();
  await leasehold.close();
  rmSync(links, { recursive: true, force: true });
  const { turns, failures, cutOff, askedAgain, kills, squats } = siege;
  const loads = turns.filter(({ loadMs }) => loadMs > 0);
  process.stdout.write(`${JSON.stringify({
    cards: ledger.cards.map(({ name, totalBytes, truth }, index) => ({ name, totalBytes, truth, ...seen[index] })), models: names.length, requests: Number(requests), answered: turns.length, cutOff, askedAgain, failures, kills, squats, tookS,
    counters: ledger.counters,
    handOverMs: { queued: spread(loads.map(({ queuedMs }) => queuedMs)), load: spread(loads.map(({ loadMs }) => loadMs)), firstToken: spread(loads.map(({ firstTokenMs }) => firstTokenMs)) },
    residentFirstTokenMs: spread(turns.filter(({ loadMs }) => loadMs === 0).map(({ firstTokenMs }) => firstTokenMs)),
  })}\n`);
  const broken = failures.length > 0 || seen.some(({ over, brokerHeldContext, overcommittedReadings }) => Object.keys(over).length > 0 || brokerHeldContext || overcommittedReadings > 0);
  process.exitCode = broken ? 1 : 0;
}

await main();
