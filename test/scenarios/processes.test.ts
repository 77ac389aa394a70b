/** Scenarios that ship, on real processes: a broker with simulated cards, workers, sockets and signals in earnest. */
import t from 'tap';
import { missedExpectations } from '../../src/scenarios/expectations.js';
import { playOnProcesses } from '../../src/scenarios/on-processes.js';
import { readScenario } from '../../src/scenarios/read.js';

for (const name of ['thrash-pair', 'stampede', 'slow-release']) {
  t.test(`${name} holds on real processes`, async (t) => {
    const whole = await readScenario(name);
    const durationMs = whole.durationMs / 2;
    const scenario = { ...whole, durationMs, arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })) };
    const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 10, engines: false, signal: new AbortController().signal });
    const figures = recorder.figures(refusals, tookMs);
    // How long anybody waits here is the machine's own load, ten times over.
    const expect = Object.fromEntries(Object.entries(scenario.expect).filter(([figure]) => !figure.startsWith('waitMs')));
    t.strictSame(missedExpectations(expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
    t.ok((figures['loads'] ?? 0) > 2 && (figures['evictions'] ?? 0) > 1, `${figures['loads'] ?? 0} loads, ${figures['evictions'] ?? 0} evictions`);
  });
}

t.test('gang holds on real processes, without the cards that only the clock can lose', async (t) => {
  const whole = await readScenario('gang');
  const durationMs = 120_000;
  const scenario = {
    ...whole, durationMs, faults: whole.faults.filter(({ when }) => when === null || when.kind === 'every'),
    arrivals: whole.arrivals.map((arrivals) => ({ ...arrivals, untilMs: durationMs })),
  };
  const { recorder, refusals, tookMs } = await playOnProcesses(scenario, { speed: 10, engines: false, signal: new AbortController().signal });
  const figures = recorder.figures(refusals, tookMs);
  const expect = Object.fromEntries(Object.entries(scenario.expect).filter(([figure]) => figure !== 'struck.lose'));
  t.strictSame(missedExpectations(expect, figures), [], `${figures['answered'] ?? 0} of ${figures['requests'] ?? 0} answered`);
  t.ok((figures['reloads'] ?? 0) > 2 && (figures['struck.kill'] ?? 0) >= 2);
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
