/** Scenarios that ship, on real processes: a broker with simulated cards, workers, sockets and signals in earnest. */
import t from 'tap';
import { missedExpectations } from '../../src/scenarios/expectations.js';
import { playOnProcesses } from '../../src/scenarios/on-processes.js';
import { readScenario } from '../../src/scenarios/read.js';

// They wait for the most part: beside each other they take little longer than the longest, which comes first.
t.jobs = 4;

t.test('liar: workers that answer early, late, twice, wrongly or not at all cost themselves, on real processes', async (t) => {
  const whole = await readScenario('liar');
  const durationMs = 90_000;
  const scenario = { ...whole, durationMs, arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })) };
  const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 6, engines: false, signal: new AbortController().signal });
  const figures = recorder.figures(refusals, tookMs);
  // How many are answered before their deadline is the machine's own load, six times over.
  const { answeredShare, ...expect } = scenario.expect;
  t.ok(answeredShare !== undefined && (figures['answered'] ?? 0) > 0, `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
  t.strictSame(missedExpectations(expect, figures), []);
});

for (const name of ['thrash-pair', 'stampede', 'slow-release', 'wddm-blind']) {
  t.test(`${name} holds on real processes`, async (t) => {
    const whole = await readScenario(name);
    const durationMs = whole.durationMs / 2;
    const scenario = { ...whole, durationMs, arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })) };
    const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 10, engines: false, signal: new AbortController().signal });
    const figures = recorder.figures(refusals, tookMs);
    // How long anybody waits here is the machine's own load, ten times over; and who waits long has others put away before their queue is served.
    const expect = Object.fromEntries(Object.entries(scenario.expect).filter(([figure]) => !figure.startsWith('waitMs') && figure !== 'loads'));
    t.strictSame(missedExpectations(expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
    t.ok((figures['loads'] ?? 0) > 2 && (figures['evictions'] ?? 0) > 1, `${figures['loads'] ?? 0} loads, ${figures['evictions'] ?? 0} evictions`);
    t.ok((figures['loads'] ?? 0) * 4 < (figures['answered'] ?? 0), 'a load is shared by those who wait for it');
  });
}

t.test('gang holds on real processes, a card that falls off the bus among them', async (t) => {
  const whole = await readScenario('gang');
  const durationMs = 120_000;
  const scenario = {
    ...whole, durationMs,
    // The first card that is lost is lost early; the second, at seven minutes, is left out.
    faults: whole.faults.filter(({ when }) => when === null || when.ms < 300_000).map((fault) => (fault.when === null || fault.when.kind === 'every' ? fault : { ...fault, when: { ...fault.when, ms: fault.when.ms / 4 } })),
    arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })),
  };
  const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 10, engines: false, signal: new AbortController().signal });
  const figures = recorder.figures(refusals, tookMs);
  // A lost card is looked for as often as ever, while its callers come and are told ten times as fast.
  const { answeredShare, 'struck.lose': lost, ...expect } = scenario.expect;
  t.strictSame(missedExpectations(expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
  t.ok(answeredShare !== undefined && lost !== undefined && (figures['answeredShare'] ?? 0) > 0.5);
  t.ok((figures['reloads'] ?? 0) > 2 && (figures['struck.kill'] ?? 0) >= 2 && figures['struck.lose'] === 1);
});

t.test('tiny-turns is one file for the clock, for processes and for engines', async (t) => {
  const scenario = await readScenario('tiny-turns');
  const short = { ...scenario, durationMs: 20_000, arrivals: scenario.arrivals.map((arrivals) => ({ ...arrivals, untilMs: 20_000 })) };
  const { recorder, refusals, tookMs } = await playOnProcesses(short, { speed: 1, engines: true, signal: new AbortController().signal });
  const figures = recorder.figures(refusals, tookMs);
  t.strictSame(missedExpectations(scenario.expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
  t.ok((figures['struck.kill'] ?? 0) >= 1 && (figures['loads'] ?? 0) > 3, 'real models, loaded in turn, and one of their processes was killed');
});

t.test('yield holds on real processes: a stranger that takes the card in steps finds room that idle models had', async (t) => {
  const whole = await readScenario('yield');
  const durationMs = 240_000;
  const scenario = { ...whole, durationMs, arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })) };
  const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 10, engines: false, signal: new AbortController().signal });
  const figures = recorder.figures(refusals, tookMs);
  // Readings come as often as ever while the stranger takes its steps ten times as fast: its last one may come too early.
  const expect = Object.fromEntries(Object.entries(scenario.expect).filter(([figure]) => figure !== 'strangerRefusedBytes' && figure !== 'yields'));
  t.strictSame(missedExpectations(expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
  t.ok((figures['yields'] ?? 0) >= 1, `${figures['yields'] ?? 0} times`);
  t.ok((figures['strangerRefusedBytes'] ?? Infinity) < 10 * 1024 ** 3, 'without, 10.5 GiB of its 24 are not there');
});
