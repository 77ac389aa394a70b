/** The simulator's command line. */
import { parseArgs } from 'node:util';
import { loadCore } from './mutants/load.js';
import { runMutants } from './mutants/run.js';
import { addResult, emptySummary, failureLine, failureText, stepText } from './report.js';
import { runSeed } from './run.js';
import type { Step } from '../../src/scenarios/world/context.js';

const usage = `usage: sim [--seeds N] [--steps N] [--from SEED] [--json] [--trace]
       sim --mutants [--only NAME] [--seeds N] [--steps N] [--from SEED] [--json]`;

/** Resolves to the exit code: 0 when nothing was broken and nothing stuck, or when every mutant was caught. */
export async function simulate(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seeds: { type: 'string', default: '100' }, steps: { type: 'string', default: '3000' }, from: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false }, trace: { type: 'boolean', default: false }, mutants: { type: 'boolean', default: false },
      only: { type: 'string' }, help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(usage);
    return 0;
  }
  const seeds = whole('seeds', values.seeds);
  const steps = whole('steps', values.steps);
  const from = whole('from', values.from);
  if (values.mutants) return runMutants({ seeds, steps, from, json: values.json, only: values.only ?? null });
  return runSeeds({ seeds, steps, from, json: values.json, trace: values.trace });
}

interface SeedOptions {
  readonly seeds: number;
  readonly steps: number;
  readonly from: number;
  readonly json: boolean;
  readonly trace: boolean;
}

/** Failing seeds told in full; of the others one line is enough to run them again. */
const toldInFullMax = 3;

async function runSeeds({ seeds, steps, from, json, trace }: SeedOptions): Promise<number> {
  const module = await loadCore();
  const summary = emptySummary();
  const startedAt = process.hrtime.bigint();
  let failed = 0;
  for (let seed = from; seed < from + seeds; seed++) {
    const result = runSeed({ seed, steps, module, ...(trace ? { trace: (step: Step) => console.error(stepText(step)) } : {}) });
    addResult(summary, result);
    if (result.violations.length === 0 && result.stuck === null) continue;
    console.error(failed < toldInFullMax ? failureText(result) : failureLine(result));
    failed++;
  }
  const seconds = Number(process.hrtime.bigint() - startedAt) / 1e9;
  if (json) console.log(JSON.stringify({ ...summary, from, seconds: Math.round(seconds * 10) / 10 }));
  else printSummary(summary, seconds);
  return summary.violations + summary.stuck === 0 ? 0 : 1;
}

function printSummary(summary: ReturnType<typeof emptySummary>, seconds: number): void {
  for (const [name, value] of Object.entries(summary)) console.log(`${name.padEnd(16)}${String(value).padStart(12)}`);
  console.log(`${'seconds'.padEnd(16)}${seconds.toFixed(1).padStart(12)}`);
}

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`--${name} must be a whole number, not ${text}\n${usage}`);
  return value;
}
