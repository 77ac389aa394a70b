/** The simulator's command line. */
import { parseArgs } from 'node:util';
import { didYouMean, nearest } from '../../protocol/index.js';
import { loadCore } from './mutants/load.js';
import { mutants } from './mutants/list.js';
import { runMutants } from './mutants/run.js';
import { addResult, emptySummary, failureLine, failureText, stepText, summaryText } from './report.js';
import { runSeed } from './run.js';
import type { Step } from '../../src/scenarios/world/context.js';

const usage = `usage: npm run -s sim -- [options]

Plays the broker's own core in made-up worlds, one for each seed: cards of any size,
workers that crash, hang and lie, callers who leave, brokers that are killed. An
independent auditor counts every byte anew after each step; then the faults stop, and
everything that is open must come to its end. The same seed is the same world.

  --seeds N    worlds to play (default: 100)
  --steps N    events in each while faults strike (default: 3000)
  --from SEED  the first seed (default: 1)
  --trace      every step on standard error; best with --seeds 1
  --mutants    instead: plants one fault after another into the core, and demands that each is caught
  --only NAME  of the mutants, this one
  --json       one line for programs, in place of the report
  -h, --help   this text

Status: 0 nothing was broken and nothing stuck (or every mutant was caught), 1 otherwise,
2 for options that make no sense.`;

/** Where it speaks to: what was asked for, and what is wrong. */
export interface Told {
  readonly log: (text: string) => void;
  readonly error: (text: string) => void;
}

/** Resolves to the exit code: 0 when nothing was broken and nothing stuck, or when every mutant was caught; 2 for wrong options. */
export async function simulate(args: readonly string[], told: Told = console): Promise<number> {
  let wanted: ReturnType<typeof wantedBy>;
  try {
    wanted = wantedBy(args);
  } catch (error) {
    told.error(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    return 2;
  }
  if (wanted.help) {
    told.log(usage);
    return 0;
  }
  return wanted.mutants ? runMutants(wanted) : runSeeds(wanted);
}

/** Throws for an option that there is not, or a value that is none. */
function wantedBy(args: readonly string[]): SeedOptions & { readonly mutants: boolean; readonly only: string | null; readonly help: boolean } {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seeds: { type: 'string', default: '100' }, steps: { type: 'string', default: '3000' }, from: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false }, trace: { type: 'boolean', default: false }, mutants: { type: 'boolean', default: false },
      only: { type: 'string' }, help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.only !== undefined && !mutants.some(({ name }) => name === values.only)) throw new RangeError(`There is no mutant ${values.only}${didYouMean(nearest(values.only, mutants.map(({ name }) => name)))}`);
  return { ...values, seeds: whole('seeds', values.seeds), steps: whole('steps', values.steps), from: whole('from', values.from), only: values.only ?? null };
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
  else for (const line of summaryText(summary, seconds)) console.log(line);
  return summary.violations + summary.stuck === 0 ? 0 : 1;
}

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`--${name} must be a whole number, not ${text}.`);
  return value;
}
