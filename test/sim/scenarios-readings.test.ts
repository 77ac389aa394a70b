/** What is believed of a card, and what a lease must cover: readings that fail, peaks, floors, overshoots, engines that measure for themselves. */
import t from 'tap';
import { device, settle, stageOf } from './scene.js';
import { card24, manyModelsEngine, model, oneModelEngine } from './stage.js';
import { gib, mib } from '../../src/scenarios/world/knobs.js';
import type { ProbeEnd } from '../../src/scenarios/world/probes.js';
import { secondsToUs } from '../../src/scenarios/world/scheduler.js';

const profiler = { ...oneModelEngine, name: 'vllm', profilesFreeMemory: true };

t.test('B13: two engines that profile free memory load one after the other, though there is room for both', async (t) => {
  const spec = { engine: 'vllm', loadMs: 20_000 };
  const stage = stageOf({ engines: [profiler], models: [model('a', 9 * gib, spec), model('b', 9 * gib, spec)] });
  const calls = [stage.ask('a'), stage.ask('b')];
  let most = 0;
  stage.until(() => {
    most = Math.max(most, stage.view().leases.filter((lease) => lease.state === 'loading').length);
    return calls.every((call) => call.outcome !== null);
  });
  t.equal(most, 1, 'never two loads at once');
  t.ok(calls.every((call) => call.outcome === 'answered'));
  const [first, second] = stage.effects('grant');
  t.ok(second!.atMs - first!.atMs >= 20_000, 'the second began when the first was ready');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B14: an idle model reaches its time to live while another engine measures: it is put away afterwards', async (t) => {
  const stage = stageOf({ engines: [profiler, manyModelsEngine], models: [model('b', 6 * gib, { engine: 'python', ttlMs: 8_000 }), model('a', 9 * gib, { engine: 'vllm', loadMs: 20_000 })] });
  const b = stage.ask('b');
  stage.until(() => b.outcome !== null);
  const a = stage.ask('a');
  stage.until(() => stage.lease('a')?.state === 'loading');
  const beganAtMs = stage.nowMs;
  stage.until(() => stage.effects('move').length > 0);
  t.ok(stage.effects('move')[0]!.atMs - beganAtMs >= 19_500, 'only after the load');
  stage.until(() => a.outcome !== null && stage.lease('b') === null);
  t.equal(a.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B17: each process is charged its floor, so twelve small models do not fit where eleven do', async (t) => {
  const models = Array.from({ length: 12 }, (_, index) => model(`m${index}`, 200 * mib, { callMs: 60_000 }));
  const stage = stageOf({ cards: [{ ...card24, totalBytes: 8 * gib, floorBytes: 500 * mib }], engines: [{ ...oneModelEngine, floorBytes: 500 * mib }], models });
  const calls = models.map((spec) => stage.ask(spec.key, { deadlineMs: 20_000 }));
  stage.to(19_000);
  const begun = calls.filter((call) => call.begunAtMs !== null).length;
  // The floors of all twelve are reserved by their placements; what is left holds nine leases.
  t.equal(begun, Math.floor((8 * gib - 12 * 500 * mib) / (220 * mib)), `${begun} run, and eleven at most could`);
  t.ok(stage.world.card(device).usedBytes() <= 8 * gib);
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B23: the peak of a load is admitted first, and its surplus returned when the model is ready', async (t) => {
  const stage = stageOf({ models: [model('n', 9 * gib), model('a', 10 * gib, { peakBytes: 16 * gib, truePeakBytes: 16 * gib, loadMs: 4_000 })] });
  settle(stage, 'n');
  const a = stage.ask('a');
  stage.until(() => stage.lease('a')?.state === 'loading');
  t.equal(stage.lease('a')?.chargedBytes, Math.ceil(17.6 * gib));
  t.equal(stage.lease('n'), null, 'the neighbour had to go: 17.6 and 9.9 are more than 24');
  stage.until(() => a.outcome !== null);
  t.equal(stage.lease('a')?.chargedBytes, 11 * gib, 'steady: 11/10 of ten');
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B25: weights of nearly twice their estimate are charged at their first measurement', async (t) => {
  const stage = stageOf({ models: [model('a', Math.floor(6.9 * gib))] });
  stage.behave({ takesFactor: 12.8 / 6.9 });
  const a = stage.ask('a');
  stage.until(() => a.outcome !== null);
  stage.to(stage.nowMs + 1_000);
  const lease = stage.lease('a');
  t.ok(lease !== null && lease.chargedBytes >= lease.residentBytes, 'never less than what is there');
  t.ok(stage.steps.some(({ effects }) => effects.some((effect) => effect.type === 'publish' && effect.name === 'overshoot')), 'and it is said');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B29: unknown, failed and unsupported readings grant nothing, a full card is full, and a good reading lets work go on', async (t) => {
  const ends: readonly ProbeEnd[] = [
    { reading: 'unknown', reason: 'null', afterMs: 1 }, { reading: 'failed', reason: 'exit code 9', afterMs: 1 }, { reading: 'failed', reason: 'empty output', afterMs: 1 },
    { reading: 'unsupported', reason: '[N/A]', afterMs: 1 }, 'full', { reading: 'timed_out', reason: 'no answer', afterMs: 3_000 },
  ];
  for (const end of ends) {
    const stage = stageOf({ models: [model('a', 6 * gib)] });
    stage.to(1_000);
    stage.world.prober.script = () => end;
    stage.to(4_000);
    const a = stage.ask('a');
    stage.to(9_000);
    const name = typeof end === 'string' ? end : end.reason;
    t.equal(stage.effects('grant').length, 0, `${name}: nothing is granted`);
    const [card] = stage.view().cards;
    if (end === 'full') t.equal(card?.availableBytes, 0, 'full: nothing is available');
    else if (end !== 'ok') t.equal(card?.missing?.reading, end.reading, `${name}: shown as what it is`);
    stage.world.prober.script = () => 'ok';
    stage.until(() => a.outcome !== null);
    t.equal(a.outcome, 'answered', `${name}: and then it goes on`);
    t.strictSame(stage.auditor.violations, []);
  }
});

t.test('B34: a crash closes its leases at once and its bytes return when they are seen gone; missed readings close nothing', async (t) => {
  const stage = stageOf({ models: [model('a', 8 * gib), model('b', 8 * gib)] });
  settle(stage, 'a');
  settle(stage, 'b');
  stage.world.lag = () => ({ fromUs: secondsToUs(2), toUs: secondsToUs(2), steps: 1 });
  const generation = stage.lease('a')!.generation;
  stage.world.workers.get(generation)!.end('exit code 139');
  stage.until(() => stage.steps.at(-1)!.event.type === 'process_exited');
  t.equal(stage.lease('a'), null, 'closed with the exit');
  t.ok(stage.view().cards[0]!.returningBytes >= 8 * gib, 'its bytes are returning');
  stage.to(stage.nowMs + 1_500);
  t.ok(stage.view().cards[0]!.returningBytes >= 8 * gib, 'as long as the card shows them');
  stage.to(stage.nowMs + 1_500);
  t.equal(stage.view().cards[0]!.returningBytes, 0, 'and no longer');
  stage.world.prober.script = () => ({ reading: 'failed', reason: 'exit code 9', afterMs: 1 });
  stage.to(stage.nowMs + 1_600);
  t.equal(stage.lease('b')?.residentBytes, 8 * gib, 'a healthy worker keeps its charge through missed readings');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B37: after an eviction an old reading is not used; the probe is asked until it answers', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib), model('b', 14 * gib)] });
  settle(stage, 'a');
  const b = stage.ask('b');
  stage.until(() => stage.effects('move').length === 1);
  stage.world.prober.script = () => ({ reading: 'failed', reason: 'exit code 9', afterMs: 1 });
  const failsUntilMs = stage.nowMs + 4_000;
  stage.at(failsUntilMs, () => (stage.world.prober.script = null));
  stage.until(() => b.outcome !== null);
  const granted = stage.effects('grant').at(-1)!;
  t.ok(granted.atMs >= failsUntilMs, 'not before the probe answered');
  t.ok(granted.atMs <= failsUntilMs + 1_000, 'and soon after');
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B22: an OOM inside a lease is tried once more after a new measurement, and no oftener; then the caller is told', async (t) => {
  const stage = stageOf({ models: [model('a', 12 * gib)] });
  const card = stage.world.card(device);
  const { counters } = stage.world;
  const audited = stage.world.onOom.tell;
  // A stranger takes everything whenever a load begins, and is gone before anybody can see it.
  stage.world.onOom.tell = (oom) => {
    audited?.(oom);
    card.foreignBytes = 0;
  };
  const a = stage.ask('a', { deadlineMs: 30_000, tries: 5 });
  let begun = 0;
  stage.until(() => {
    if (counters.loads > begun) card.foreignBytes = card.freeBytes();
    begun = counters.loads;
    return a.outcome !== null;
  });
  t.strictSame([counters.loads, counters.ooms, stage.view().counters['oomRetries']], [2, 2, 1], 'though its caller would have asked five times more');
  t.equal(a.code, 'backing_off', 'who comes again at once is told when to come');
  t.equal(stage.lease('a'), null, 'its lease is released');
  stage.to(stage.nowMs + 5_000);
  const later = stage.ask('a');
  stage.until(() => later.outcome !== null);
  t.equal(later.outcome, 'answered', 'and the model is not poisoned');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B110: a stranger takes 15 GiB, and who asks for 12 waits until it gives them back: its bytes are named, nobody ends it', async (t) => {
  const stage = stageOf({ models: [model('a', 12 * gib)] });
  stage.to(10_000);
  stage.world.card(device).foreignBytes = 15 * gib;
  stage.to(12_000);
  t.equal(stage.view().cards[0]?.availableBytes, 9 * gib, 'what is left by the card, though nothing is leased');
  const a = stage.ask('a', { deadlineMs: 20_000 });
  stage.to(25_000);
  t.equal(a.begunAtMs, null);
  t.equal(stage.effects('grant').length, 0);
  t.match(stage.view().cards[0], { foreignBytes: 15 * gib, leasedBytes: 0 });
  const why = stage.effects('explain').map(({ record }) => record.text).filter((text) => text.includes('used by processes we do not own'));
  t.match(why[0], /15\.0 GiB used by processes we do not own/);
  stage.until(() => a.outcome !== null);
  t.equal(a.outcome, 'denied', 'at its deadline');
  const again = stage.ask('a');
  stage.to(stage.nowMs + 1_000);
  stage.world.card(device).foreignBytes = 5 * gib;
  stage.until(() => again.outcome !== null);
  t.equal(again.outcome, 'answered', 'with the room that the stranger has left');
  t.equal(stage.effects('terminate').length, 0, 'and nobody was ended for it');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B115: a stranger takes 6 of 14 GiB between grant and load: the load fails, its lease comes back, the request waits once more', async (t) => {
  const stage = stageOf({ cards: [{ ...card24, totalBytes: 14 * gib }], models: [model('a', 12 * gib, { loadMs: 2_000 })] });
  stage.behave({ beginsLateMs: 4_000 });
  const a = stage.ask('a', { deadlineMs: 60_000, tries: 1 });
  stage.until(() => stage.effects('grant').length === 1);
  stage.to(stage.nowMs + 2_000);
  stage.world.card(device).foreignBytes = 6 * gib;
  stage.until(() => stage.world.counters.ooms === 1);
  stage.to(stage.nowMs + 5_000);
  t.equal(stage.lease('a'), null, 'its lease is returned');
  t.match(stage.view(), { counters: { lostRaces: 1, oomRetries: 1 }, cards: [{ foreignBytes: 6 * gib, leasedBytes: 0 }] });
  t.ok(stage.effects('explain').some(({ record }) => record.text.includes('lost race to a foreign process')), 'and named');
  t.equal(stage.world.counters.loads, 1, 'not tried again while the stranger is there');
  t.equal(a.outcome, null, 'it waits in the queue');
  stage.world.card(device).foreignBytes = 0;
  stage.until(() => a.outcome !== null);
  t.strictSame([a.outcome, stage.world.counters.loads], ['answered', 2]);
  t.strictSame(stage.auditor.violations, []);
});
