/** The simulator in short: seeds that failed once, some fresh ones, the same seed twice, and a few planted faults. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { coreFile, loadCore, replaceOnce } from './mutants/load.js';
import { mutants } from './mutants/list.js';
import { hunt } from './mutants/run.js';
import { simulate } from './command.js';
import { emptySummary, failureText, summaryText } from './report.js';
import { runSeed } from './run.js';
import { Prng } from '../../src/scenarios/world/prng.js';
import { Scheduler } from '../../src/scenarios/world/scheduler.js';

interface PastSeed {
  readonly seed: number;
  readonly steps: number;
  readonly reason: string;
}

const module = await loadCore();
const sources = join(import.meta.dirname, '..', '..', '..', 'test', 'sim');
const pastSeeds = JSON.parse(readFileSync(join(sources, 'seeds.json'), 'utf8')) as readonly PastSeed[];

t.test('the command says how it is used, and its report what each figure counts', async (t) => {
  const said = async (...args: string[]) => {
    let [out, err] = ['', ''];
    const code = await simulate(args, { log: (text) => { out += text; }, error: (text) => { err += text; } });
    return { code, out, err };
  };
  for (const option of ['--help', '-h']) t.match(await said(option), { code: 0, out: /^usage: npm run -s sim -- \[options\]\n[^]*--seeds N +worlds to play \(default: 100\)[^]*--help/, err: /^$/ });
  t.match(await said('--seed', '3'), { code: 2, out: /^$/, err: /Unknown option '--seed'[^]*usage: / });
  t.match(await said('--seeds', 'many'), { code: 2, err: /^--seeds must be a whole number, not many\.\n\nusage: / });
  t.match(await said('--mutants', '--only', 'no-headrom'), { code: 2, err: /^There is no mutant no-headrom/ });
  const report = summaryText({ ...emptySummary(), seeds: 12, grants: 41 }, 3.62);
  t.equal(report[0], 'Nothing was broken, and nothing was stuck.');
  t.ok(report.includes('       12  worlds were played, each from its seed') && report.includes('       41  times a model was let onto a card'));
  t.equal(report.filter((line) => /^ +\S+ {2}\S/.test(line)).length, Object.keys(emptySummary()).length, 'every figure');
  t.ok(report.every((line) => line.length <= 80));
  t.equal(summaryText({ ...emptySummary(), seeds: 12, violations: 1, stuck: 2 }, 1)[0], '3 of 12 worlds went wrong; their seeds are on standard error.');
});

t.test('seeds that once failed hold', async (t) => {
  for (const { seed, steps, reason } of pastSeeds) {
    const result = runSeed({ seed, steps, module });
    t.ok(result.violations.length === 0 && result.stuck === null, `seed ${seed}: ${reason}`, { failure: failureText(result) });
  }
});

t.test('fresh seeds hold: nothing is broken with faults, and all comes to rest without', async (t) => {
  for (let seed = 70_001; seed <= 70_010; seed++) {
    const result = runSeed({ seed, steps: 1_500, module });
    t.ok(result.violations.length === 0 && result.stuck === null, `seed ${seed}`, { failure: failureText(result) });
  }
});

t.test('the same seed gives the same log, and another seed another', async (t) => {
  const [first, second, other] = [7, 7, 8].map((seed) => runSeed({ seed, steps: 800, module, hashes: true }));
  t.equal(first?.hash, second?.hash);
  t.not(first?.hash, other?.hash);
});

t.test('planted faults are caught', async (t) => {
  for (const name of ['reservation-dropped', 'ack-trusted', 'headroom-1.0', 'old-answers-heard']) {
    const mutant = mutants.find((candidate) => candidate.name === name);
    t.ok(mutant !== undefined, `there is a mutant ${name}`);
    if (mutant === undefined) continue;
    const kill = await hunt(mutant, 30, 1_500, 1);
    t.ok(kill.by !== null, `${name} is caught by ${kill.by ?? 'nothing'}`);
  }
});

t.test('an anchor that is not there exactly once is an error', async (t) => {
  t.throws(() => replaceOnce('a b a', { file: 'x.js', from: 'a', to: 'c' }), /2 times/);
  t.throws(() => replaceOnce('a b a', { file: 'x.js', from: 'd', to: 'c' }), /0 times/);
  t.equal(replaceOnce('a $& b', { file: 'x.js', from: 'b', to: '$&' }), 'a $& $&');
  t.equal(new Set(mutants.map((mutant) => mutant.name)).size, mutants.length, 'names are unique');
  for (const mutant of mutants) t.doesNotThrow(() => replaceOnce(coreFile(mutant.file), mutant), `${mutant.name} has its anchor`);
  t.ok(mutants.length >= 200, `${mutants.length} mutants`);
});

t.test('the clock runs in order, and equal moments in the order of asking', async (t) => {
  const scheduler = new Scheduler();
  const random = new Prng(1);
  const seen: number[] = [];
  for (let index = 0; index < 500; index++) scheduler.at(random.int(0, 50), () => seen.push(scheduler.nowUs * 1_000 + index));
  while (scheduler.runNext());
  t.equal(seen.length, 500);
  t.ok(seen.every((value, index) => index === 0 || value > seen[index - 1]!), 'ordered by moment, then by asking');
});
