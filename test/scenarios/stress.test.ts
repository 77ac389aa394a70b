/** Stress scenarios: every one that ships holds on the virtual clock, the same seed is the same run, and a wrong file is told where it is wrong. */
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { LeaseholdError } from '../../protocol/index.js';
import { runProgram } from '../../src/cli/program.js';
import { missedExpectations } from '../../src/scenarios/expectations.js';
import { playOnClock } from '../../src/scenarios/on-clock.js';
import { playOnProcesses } from '../../src/scenarios/on-processes.js';
import { readScenario, shippedScenarios } from '../../src/scenarios/read.js';
import { textReport } from '../../src/scenarios/text-report.js';
import { requireWritable, writeOutput } from '../../src/cli/commands/writable.js';
import { fakeIo } from '../cli/fake-io.js';
import { timelineSvg } from '../../src/scenarios/timeline-svg.js';

const folder = mkdtempSync(join(tmpdir(), 'lh-stress-test-'));

function fileOf(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const small = `
about: one model
for: 10s
devices: [{ size: 8GiB }]
models: { a: { bytes: 4GiB, load: 1s, call: 100ms } }
arrivals: [{ callers: 2 }]
`;

t.test('every scenario that ships holds on the clock', async (t) => {
  t.ok(shippedScenarios().length >= 10, 'there are ten at least');
  for (const name of shippedScenarios()) {
    const scenario = await readScenario(name);
    const { recorder, refusals, tookMs } = await playOnClock(scenario);
    const figures = recorder.figures(refusals, tookMs);
    t.strictSame(missedExpectations(scenario.expect, figures), [], `${name}: ${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
    t.ok((figures['requests'] ?? 0) > 100, `${name} asks for something`);
    t.ok(Object.keys(scenario.expect).length >= 3, `${name} expects something`);
    t.equal(figures['overcommittedBytes'], 0, `${name} grants no byte that is not there`);
  }
});

t.test('a card that thrashes is told as one, and damping serves everybody in half the time with fewer loads', async (t) => {
  const pair = await readScenario('thrash-pair');
  const figuresWith = async (limits: typeof pair.limits) => {
    const { recorder, refusals, tookMs } = await playOnClock({ ...pair, limits: { ...pair.limits, ...limits } });
    return recorder.figures(refusals, tookMs);
  };
  const damped = await figuresWith({});
  const undamped = await figuresWith({ thrashDampedPercent: 100 });
  t.ok((damped['thrashes'] ?? 0) >= 1 && (undamped['thrashes'] ?? 0) >= 1);
  t.ok((damped['reloadMs'] ?? 0) < 0.8 * (undamped['reloadMs'] ?? 0), `${damped['reloadMs'] ?? 0} ms of loading again, ${undamped['reloadMs'] ?? 0} without`);
  for (const wait of ['waitMs.p50', 'waitMs.p95']) t.ok((damped[wait] ?? 0) < 0.5 * (undamped[wait] ?? 0), `${wait} ${damped[wait] ?? 0}, ${undamped[wait] ?? 0} without`);
  t.match(textReport(pair, damped, [], { on: 'clock', speed: 1 }).join('\n'), /again \(108 s\)[^]*thrashed +once/);
  const calm = await readScenario('gang');
  const { recorder, refusals, tookMs } = await playOnClock({ ...calm, limits: { ...calm.limits, thrashBeginsPercent: 100 } });
  t.equal(recorder.figures(refusals, tookMs)['thrashes'], 0, 'above a share that cannot be none is');
});

t.test('the same seed gives the same figures, another one others', async (t) => {
  const scenario = await readScenario('kill-storm');
  const play = async (seed: number) => {
    const { recorder, refusals, tookMs } = await playOnClock({ ...scenario, seed });
    return recorder.figures(refusals, tookMs);
  };
  const figures = await play(11);
  t.strictSame(figures, await play(11));
  t.equal(figures['failed.denied'], undefined, 'a call that fails is told by the error that it got');
  t.equal(figures['failed'], figures['failed.backing_off']);
  const report = textReport(scenario, figures, [], { on: 'processes', speed: 4 }).join('\n');
  t.match(report, /played {2,}.*seed 11; on real processes with simulated workers, 4 times as fast \(--speed\): the times below are the scenario's own/);
  t.match(report, /calls {2,}511: 439 answered, 0 cancelled, 72 failed \(72 backing_off\)\n/);
  t.match(report, /requests for room {2,}\d+ granted, 86 denied by the broker \(86 backing_off\); the callers go on asking while they may\n/);
  t.match(report, /all 4 hold\n {4}holds {2,}answeredShare is 0\.8\d+; wanted at least 0\.8\n/, 'by the names of the file');
  t.not((await play(11))['waitMs.p95'], (await play(12))['waitMs.p95']);
});

t.test('an expectation that does not hold is named with its value', async (t) => {
  const scenario = await readScenario(fileOf('strict.yaml', `${small}expect: { answered: { most: 3 }, lods: { is: 1 }, denied.never_fits: { is: 0 } }\n`));
  const { recorder, refusals, tookMs } = await playOnClock(scenario);
  const figures = recorder.figures(refusals, tookMs);
  const missed = missedExpectations(scenario.expect, figures);
  t.match(missed, [{ figure: 'answered', value: figures['answered'], wanted: 'at most 3' }, { figure: 'lods', value: null, wanted: /exactly 1; there is no such figure, did you mean loads\?/ }]);
  t.match(textReport(scenario, figures, missed, { on: 'clock', speed: 1 }).join('\n'), /expectations {2,}1 of 3 hold\n {4}holds {2,}denied\.never_fits is 0; wanted exactly 0\n {4}MISSED {2,}answered is \d+; wanted at most 3/);
});

t.test('what was charged when is drawn, and names cannot break out of the drawing', async (t) => {
  const scenario = await readScenario('kill-storm');
  const { recorder, tookMs } = await playOnClock(scenario);
  const svg = timelineSvg('</svg><script>"&', recorder.cards(), recorder.struckAt(), tookMs);
  t.notMatch(svg, /<script|<\/svg></);
  t.match(svg, /^<svg xmlns[^]*<\/svg>\n$/);
  for (const name of Object.keys(scenario.models)) t.ok(svg.includes(`>${name}</text>`), `${name} has a colour`);
  t.ok((svg.match(/kill worker at/g) ?? []).length >= 25, 'each kill is marked');
});

t.test('a name that is none is told with the near one, and where those that ship are listed', async (t) => {
  await t.rejects(readScenario('kil-storm'), { code: 'config_unreadable', message: /did you mean kill-storm\?/, help: '`leasehold stress --list` shows those that ship; a file is named by its path.' });
});

t.test('a wrong file is refused with the place and what is allowed there', async (t) => {
  const wrong = async (text: string): Promise<LeaseholdError> => {
    try {
      await readScenario(fileOf('wrong.yaml', text));
    } catch (error) {
      if (error instanceof LeaseholdError) return error;
      throw error;
    }
    throw new Error('it was taken');
  };
  const cases: readonly (readonly [string, RegExp])[] = [
    [small.replace('models: {', 'models: { b: { bytes: 1GiB, lod: 1s },'), /unknown key "lod"; did you mean load\?/],
    [small.replace('callers: 2', 'callers: 2, every: 1s'), /one of every, callers and atOnce must be there, not every and callers/],
    [small.replace('callers: 2', 'class: normal'), /one of every, callers and atOnce must be there/],
    [small.replace('callers: 2', 'callers: 2, models: [b]'), /no model "b" here/],
    [small.replace('8GiB', '8 gigabytes'), /must be a size/],
    [`${small}faults: [{ kill: worker }]\n`, /one of at and every must say when/],
    [`${small}faults: [{ kill: worker, squat: 1GiB, at: 1s }]\n`, /one fault an entry/],
    [`${small}faults: [{ squat: 1GiB, at: 1s, device: 3 }]\n`, /there is no card 3; the last is 0/],
    [`${small}faults: [{ lose: card, squat: 1GiB, at: 1s }]\n`, /one fault an entry/],
    [small.replace('call: 100ms', 'call: 100ms, cards: 2'), /2 cards are wanted and 1 is there/],
    [small.replace('call: 100ms', 'call: 100ms, cards: 1, split: [1, 2]'), /it has 2 shares for 1 card/],
    [small.replace('call: 100ms', 'call: 100ms, split: [1, 0]'), /must be a number above 0/],
    [`${small}limits: { tickIntervalsMs: 5 }\n`, /unknown key "tickIntervalsMs"; did you mean tickIntervalMs\?/],
    [small.replace('for: 10s', 'for: soon'), /must be a duration/],
    ['about: nothing\n', /devices is missing|for is missing/],
  ];
  for (const [text, message] of cases) {
    const error = await wrong(text);
    t.equal(error.code, 'config_invalid');
    t.match(`${error.message} ${error.details['more'] ?? ''}`, message);
    t.match(error.message, /line \d+, column \d+/);
  }
  await t.rejects(readScenario('trash-pair'), { code: 'config_unreadable', message: /did you mean thrash-pair\?/ });
});

t.test('a picture that cannot be written is refused before anything is played', async (t) => {
  const stress = async (...args: string[]) => {
    const io = fakeIo({ cwd: folder });
    const code = await runProgram(['stress', fileOf('picture.yaml', small), ...args], { io, createOrchestrator: () => Promise.reject(new Error('no orchestrator is needed')) });
    return { code, out: io.stdout.text, err: io.stderr.text };
  };
  t.match(await stress('--svg', 'none/a.svg'), { code: 2, out: '', err: /--svg: .*none\/a\.svg cannot be written: its folder is not there \(ENOENT\)/ });
  t.match(await stress('--svg', '.'), { code: 2, out: '', err: /--svg: .* cannot be written: it is a folder \(EISDIR\)/ });
  t.match(await stress('--svg', 'picture.yaml/a.svg'), { code: 2, out: '', err: /a part of its path is no folder \(ENOTDIR\)/ });
  t.match(await stress('--svg', 'a.svg', '--speed', '2'), { code: 2 });
  t.notOk(existsSync(join(folder, 'a.svg')), 'what was only looked at is not left behind');
  t.match(await stress('--svg', 'a.svg'), { code: 0, out: /one model|answered/ });
  t.match(readFileSync(join(folder, 'a.svg'), 'utf8'), /^<svg/);
  await t.rejects(requireWritable(join(folder, 'a.svg'), '--svg').then(() => writeOutput(folder, '--svg', '')), { code: 'input_invalid', message: /--svg: .*it is a folder/ }, 'a later failure is told the same way');
  t.match(readFileSync(join(folder, 'a.svg'), 'utf8'), /^<svg/, 'and what lies there is not emptied');
});

t.test('what only the clock can play is refused before a process is started', async (t) => {
  const signal = new AbortController().signal;
  await t.rejects(playOnProcesses(await readScenario('blackout'), { speed: 10, engines: false, signal }), { code: 'input_invalid', message: /suspend can be played on the clock alone/ });
  const lying = await readScenario(fileOf('lying.yaml', `${small.replace('load:', 'source: tiny-facts, load:')}\nfaults:\n  - { lies: { freesNothing: 1 } }\n`));
  await t.rejects(playOnProcesses(lying, { speed: 10, engines: true, signal }), { code: 'input_invalid', message: /an engine does not lie on demand/ });
  await t.rejects(playOnProcesses(await readScenario('stampede'), { speed: 10, engines: true, signal }), { code: 'input_invalid', message: /source is missing/ });
});

t.test('the schema names every figure of a file that ships', (t) => {
  const schema = JSON.parse(readFileSync('src/scenarios/schema.json', 'utf8')) as { properties: object };
  t.strictSame(Object.keys(schema.properties), ['about', 'seed', 'for', 'devices', 'engines', 'models', 'arrivals', 'faults', 'limits', 'expect']);
  t.end();
});

t.test('a play on the clock gives the loop its turn, and ends when it is told to', async (t) => {
  const month = fileOf('month.yaml', small.replace('for: 10s', 'for: 30d'));
  const scenario = await readScenario(month);
  const stop = new AbortController();
  const why = new LeaseholdError('request_cancelled', { what: 'The command' });
  setImmediate(() => { stop.abort(why); });
  await t.rejects(playOnClock(scenario, stop.signal), why);

  const io = fakeIo({ cwd: folder });
  const ended = runProgram(['stress', month], { io, createOrchestrator: async () => { throw new Error('nobody needs one'); } });
  while (!io.listensForStop) await new Promise((resolve) => { setImmediate(resolve); });
  io.stop('SIGINT');
  t.equal(await ended, 130);
  t.match(io.stderr.text, /^Stopped: .* was not played to its end/);
  t.equal(io.stdout.text, '', 'and nothing is judged');
});
