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
import { createNvmlRung } from '../../broker/devices/index.js';
import { writeGguf } from '../../workers/llama/gguf-writer.js';
import { largeModel } from '../../workers/llama/large-model.js';

interface Reading {
  readonly atMs: number;
  readonly usedBytes: number;
  readonly totalBytes: number;
  readonly brokerHoldsContext: boolean;
  readonly chargedBytes: number;
  readonly capacityBytes: number;
  /** Processes of ours whose figure is above what they are charged for. */
  readonly over: readonly string[];
}

interface HandOver {
  readonly model: string;
  readonly totalMs: number;
  readonly queuedMs: number;
  readonly loadMs: number;
  readonly firstTokenMs: number;
  readonly tokens: number;
}

const readEveryMs = 50;
/** The driver's own granule of accounting between a process's figure and the card's (measured: 9,240,576). */
const granuleBytes = 32 * 1024 * 1024;

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
  const rung = createNvmlRung({});
  await rung.discover();
  const readings: Reading[] = [];
  const watching = new AbortController();
  const watch = watchCard(leasehold.ledger.bind(leasehold), rung, readings, watching.signal);
  const handOvers: HandOver[] = [];
  const failures: string[] = [];
  try {
    const names = Object.keys(models);
    for (let turn = 0; turn < Number(requests); turn++) {
      // A stride that visits every model before any again: the worst case for a cache.
      const model = names[turn % names.length] ?? '';
      await takeTurn(model, (name) => leasehold.generate(name, { prompt: 'Once upon a time' }, { maxTokens: 16, deadlineMs: 300_000 }), handOvers, failures);
    }
  } finally {
    watching.abort();
    await watch;
  }
  const ledger = await leasehold.ledger();
  await leasehold.close();
  await rung.close();
  rmSync(folder, { recursive: true, force: true });
  report(ledger, handOvers, readings, failures);
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

async function watchCard(ledgerNow: () => Promise<LedgerState>, rung: ReturnType<typeof createNvmlRung>, readings: Reading[], signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const ledger = await ledgerNow();
    const [card] = ledger.cards;
    if (card !== undefined) {
      const reading = await rung.read(card.device);
      if (reading.kind === 'read') readings.push(judge(ledger, card, reading));
    }
    await new Promise((resolve) => setTimeout(resolve, readEveryMs));
  }
}

function judge(ledger: LedgerState, card: LedgerState['cards'][number], reading: { readonly usedBytes: number; readonly totalBytes: number; readonly processes: readonly { readonly pid: number; readonly usedBytes: number }[] | null }): Reading {
  const byPid = new Map((reading.processes ?? []).map(({ pid, usedBytes }) => [pid, usedBytes]));
  const over = ledger.workers.flatMap(({ generation, pid }) => {
    const usedBytes = byPid.get(pid ?? -1) ?? 0;
    const floorBytes = ledger.processes.find((process) => process.generation === generation)?.floorBytes ?? 0;
    const leased = ledger.leases.filter((lease) => lease.generation === generation).reduce((sum, lease) => sum + lease.chargedBytes, 0);
    return usedBytes > leased + floorBytes + granuleBytes ? [`${generation}: ${String(usedBytes)} of ${String(leased + floorBytes)}`] : [];
  });
  return {
    atMs: Math.round(performance.now()),
    usedBytes: reading.usedBytes,
    totalBytes: reading.totalBytes,
    brokerHoldsContext: byPid.has(process.pid),
    chargedBytes: card.leasedBytes + card.floorBytes + card.residueBytes + card.returningBytes,
    capacityBytes: card.totalBytes - card.reserveBytes,
    over,
  };
}

function report(ledger: LedgerState, handOvers: readonly HandOver[], readings: readonly Reading[], failures: readonly string[]): void {
  const [card] = ledger.cards;
  const loads = handOvers.filter(({ loadMs }) => loadMs > 0);
  const over = [...new Set(readings.flatMap((reading) => reading.over))];
  const summary = {
    card: card?.name, totalBytes: card?.totalBytes, truth: card?.truth, requests: handOvers.length + failures.length, answered: handOvers.length,
    failures, evictions: ledger.counters['evictions'] ?? 0, grants: ledger.counters['grants'] ?? 0, oomRetries: ledger.counters['oomRetries'] ?? 0,
    maxOverReserveBytes: ledger.counters['maxOverReserveBytes'] ?? null, readings: readings.length,
    brokerHeldContext: readings.some(({ brokerHoldsContext }) => brokerHoldsContext),
    processesOverTheirLeases: over,
    peakUsedBytes: Math.max(...readings.map(({ usedBytes }) => usedBytes)),
    peakChargedBytes: Math.max(...readings.map(({ chargedBytes }) => chargedBytes)),
    firstTokenMs: spread(handOvers.map(({ firstTokenMs }) => firstTokenMs)), queuedMs: spread(handOvers.map(({ queuedMs }) => queuedMs)), loadMs: spread(loads.map(({ loadMs }) => loadMs)),
    leases: ledger.leases.map(({ model, chargedBytes, residentBytes, parts }) => ({ model, chargedBytes, residentBytes, parts })).slice(0, 2),
    floors: ledger.processes.map(({ generation, floorBytes }) => ({ generation, floorBytes })).slice(0, 3),
  };
  process.stdout.write(`${JSON.stringify(summary)}\n`);
  if (failures.length > 0 || over.length > 0 || summary.brokerHeldContext) process.exitCode = 1;
}

function spread(values: readonly number[]): { readonly p50: number; readonly p95: number } | null {
  const sorted = [...values].sort((left, right) => left - right);
  if (sorted.length === 0) return null;
  const at = (fraction: number): number => sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? NaN;
  return { p50: at(0.5), p95: at(0.95) };
}

await main();
