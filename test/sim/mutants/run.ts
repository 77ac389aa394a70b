/** Plants one fault at a time and looks for the seed that catches it. */
import { runSeed, type RunResult } from '../run.js';
import { failsTest, loadMutant } from './load.js';
import { mutants } from './list.js';
import type { Mutant } from './mutant.js';

export interface MutantOptions {
  readonly seeds: number;
  readonly steps: number;
  readonly from: number;
  readonly json: boolean;
  readonly only: string | null;
}

export interface Kill {
  readonly name: string;
  /** The rules that caught it and the seed, or the test; null: it survived. */
  readonly by: string | null;
}

/** Runs the test that pins it, or else seeds until one catches it. A crash that is no assertion of the core is not a kill: the mutant is badly made. */
export async function hunt(mutant: Mutant, seeds: number, steps: number, from: number): Promise<Kill> {
  const { name, pinnedBy } = mutant;
  if (pinnedBy !== undefined) return { name, by: await failsTest(mutant, pinnedBy) ? `${pinnedBy}.test.ts` : null };
  const module = await loadMutant(mutant);
  for (let seed = from; seed < from + seeds; seed++) {
    const result = runSeed({ seed, steps, module });
    const by = caughtBy(result);
    if (by === 'crash') throw new Error(`mutant ${name} crashes instead of misbehaving: ${result.violations[0]?.text ?? ''}`);
    if (by !== null) return { name, by: `${by} at seed ${seed}` };
  }
  return { name, by: null };
}

function caughtBy(result: RunResult): string | null {
  return result.violations[0]?.rule ?? (result.stuck === null ? null : 'stuck');
}

export async function runMutants({ seeds, steps, from, json, only }: MutantOptions): Promise<number> {
  const chosen = mutants.filter((mutant) => only === null || mutant.name === only);
  const kills: Kill[] = [];
  for (const mutant of chosen) {
    const kill = await hunt(mutant, seeds, steps, from);
    kills.push(kill);
    if (!json) console.log(`${kill.by === null ? 'SURVIVED' : 'killed'} ${mutant.name.padEnd(32)} ${kill.by === null ? mutant.about : `by ${kill.by}`}`);
  }
  const survivors = kills.filter((kill) => kill.by === null).map((kill) => kill.name);
  const line = { killed: kills.length - survivors.length, total: kills.length, survivors };
  console.log(json ? JSON.stringify({ ...line, kills }) : `${line.killed} of ${line.total} killed`);
  return survivors.length === 0 ? 0 : 1;
}
