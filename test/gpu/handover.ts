/**
 * On a real card, not in CI: more models than the card holds take turns in
 * llama workers, while a bystander reads the card and holds every reading
 * against the ledger. Prints one JSON; exits non-zero when a promise broke.
 *
 *   node dist/test/gpu/handover.js MODEL.gguf COPIES REQUESTS
 *
 * A MODEL.gguf that is not there is written first: random weights, 14.5 GB. It
 * is hard-linked under COPIES names: as many models, one set of pages.
 */
import { existsSync, linkSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createLog, createOrchestrator, type LedgerState, type ModelOptions } from '../../src/orchestrator/index.js';
import { writeGguf } from '../../workers/llama/gguf-writer.js';
import { largeModel } from '../../workers/llama/large-model.js';
import { spread, watchCards, type Watched } from './card-watch.js';

interface HandOver {
  readonly model: string;
  readonly totalMs: number;
  readonly queuedMs: number;
  readonly loadMs: number;
  readonly firstTokenMs: number;
  readonly tokens: number;
}

async function main(): Promise<void> {
  const [file = '', copies = '8', requests = '24'] = process.argv.slice(2);
  if (!existsSync(file)) await writeGguf(file, largeModel());
  const folder = mkdtempSync(join(dirname(file), 'links-'));
  const models: Record<string, ModelOptions> = {};
  for (let index = 0; index < Number(copies); index++) {
    const source = join(folder, `model-${String(index)}.gguf`);
    linkSync(file, source);
    models[`model-${String(index)}`] = { source, contextTokens: 4_096 };
  }
  const log = createLog(process.env['LEASEHOLD_LOG'] === undefined ? 'warn' : 'debug');
  const leasehold = await createOrchestrator({ models, broker: 'own', stateFolder: join(folder, 'state'), log });
  const watch = await watchCards(() => leasehold.ledger());
  const handOvers: HandOver[] = [];
  const failures: string[] = [];
  const names = Object.keys(models);
  for (let turn = 0; turn < Number(requests); turn++) {
    // A stride that visits every model before any again: the worst case for a cache.
    const model = names[turn % names.length] ?? '';
    await takeTurn(model, (name) => leasehold.generate(name, { prompt: 'Once upon a time' }, { maxTokens: 16, deadlineMs: 300_000 }), handOvers, failures);
  }
  const [seen] = await watch.stop();
  if (seen === undefined) throw new Error('there is no card here');
  const ledger = await leasehold.ledger();
  await leasehold.close();
  rmSync(folder, { recursive: true, force: true });
  report(ledger, handOvers, seen, failures);
}

async function takeTurn(
  model: string,
  generate: (model: string) => ReturnType<Awaited<ReturnType<typeof createOrchestrator>>['generate']>,
  handOvers: HandOver[],
  failures: string[],
): Promise<void> {
  const start = performance.now();
  let firstTokenMs = 0;
  let tokens = 0;
  try {
    const generation = generate(model);
    for await (const token of generation) {
      if (tokens === 0) firstTokenMs = Math.round(performance.now() - start);
      tokens += token.ids.length;
    }
    const { timings } = await generation.result();
    handOvers.push({ model, totalMs: Math.round(performance.now() - start), queuedMs: timings.queuedMs, loadMs: timings.loadMs, firstTokenMs, tokens });
    process.stderr.write(`${model} first token after ${String(firstTokenMs)} ms, load ${String(timings.loadMs)} ms\n`);
  } catch (error) {
    failures.push(`${model}: ${String(error)}`);
    process.stderr.write(`${model}: ${String(error)}\n`);
  }
}

function report(ledger: LedgerState, handOvers: readonly HandOver[], seen: Watched, failures: readonly string[]): void {
  const [card] = ledger.cards;
  const loads = handOvers.filter(({ loadMs }) => loadMs > 0);
  const summary = {
    card: card?.name, totalBytes: card?.totalBytes, truth: card?.truth, requests: handOvers.length + failures.length, answered: handOvers.length,
    failures, evictions: ledger.counters['evictions'] ?? 0, grants: ledger.counters['grants'] ?? 0, oomRetries: ledger.counters['oomRetries'] ?? 0,
    maxOverReserveBytes: ledger.counters['maxOverReserveBytes'] ?? null, ...seen,
    firstTokenMs: spread(handOvers.map(({ firstTokenMs }) => firstTokenMs)), queuedMs: spread(handOvers.map(({ queuedMs }) => queuedMs)), loadMs: spread(loads.map(({ loadMs }) => loadMs)),
    leases: ledger.leases.map(({ model, chargedBytes, residentBytes, parts }) => ({ model, chargedBytes, residentBytes, parts })).slice(0, 2),
    floors: ledger.processes.map(({ generation, floorBytes }) => ({ generation, floorBytes })).slice(0, 3),
  };
  process.stdout.write(`${JSON.stringify(summary)}\n`);
  if (failures.length > 0 || Object.keys(seen.over).length > 0 || seen.brokerHeldContext || seen.overcommittedReadings > 0 || seen.unchargedReadings > 0) process.exitCode = 1;
}

await main();
