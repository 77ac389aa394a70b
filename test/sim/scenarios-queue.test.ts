/** Who waits for whom, and never for ever: the queue, the doors and single loads, end to end. Times are virtual. */
import t from 'tap';
import { device, module, settle, stageOf } from './scene.js';
import { card24, model, type Asked, type Stage } from './stage.js';
import { runSeed } from './run.js';
import { gib } from '../../src/scenarios/world/knobs.js';
import { Prng } from '../../src/scenarios/world/prng.js';

const allEnded = (calls: readonly Asked[]): boolean => calls.every((call) => call.outcome !== null);

t.test('B26: fifty requests of 6 GiB against 8 GiB are granted one at a time, however late the probes answer', async (t) => {
  const models = Array.from({ length: 50 }, (_, index) => model(`m${index}`, Math.floor((6 * gib * 10) / 11), { callMs: 50, loadMs: 100 }));
  const stage = stageOf({ cards: [{ ...card24, totalBytes: 8 * gib }], models, faults: { probeLateMsMax: 300 }, limits: { queuedRequestsPerCardMax: 1_000 } });
  let most = 0;
  const holder = stage.holder();
  for (const spec of models) {
    const nowUs = stage.world.scheduler.coreUs;
    holder.use(spec, { model: spec, class: 'normal', arrivedAtUs: nowUs, deadlineUs: nowUs + 110_000_000, durationMs: 50, contextBytes: null, onBegun: null, onEnd: null });
  }
  stage.until(() => {
    most = Math.max(most, stage.auditor.book.leases.size);
    return stage.effects('grant').length + stage.effects('deny').length === 50;
  }, 200_000);
  t.equal(most, 1, 'never two at once');
  t.ok(stage.effects('grant').length >= 5, `${stage.effects('grant').length} had their turn`);
  t.ok(stage.effects('deny').every((denial) => denial.code === 'deadline_passed'), 'the others were told at their deadline');
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B59: a victim’s own callers cannot reopen its door; the waiter is served, and they after it', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { callMs: 50 }), model('b', 12 * gib)] });
  settle(stage, 'a');
  const startMs = stage.nowMs;
  const b = stage.ask('b', { deadlineMs: 60_000 });
  const calls: Asked[] = [];
  for (let ms = 50; ms <= 30_000; ms += 200) stage.at(startMs + ms, () => calls.push(stage.ask('a', { deadlineMs: 60_000 })));
  stage.to(startMs + 30_001);
  stage.until(() => b.outcome !== null && allEnded(calls));
  t.equal(b.outcome, 'answered');
  t.ok(b.begunAtMs! - b.askedAtMs < 10_000, `B began after ${b.begunAtMs! - b.askedAtMs} ms`);
  t.ok(calls.every((call) => call.outcome === 'answered'), 'every call on A is answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B61: a larger context for a busy model waits for its stream, is not starved by smaller calls, and locks nobody out', async (t) => {
  const parts = [
    { name: 'weights', kind: 'weights' as const, bytes: 12 * gib, upFront: true },
    { name: 'context:1', kind: 'context' as const, bytes: 2 * gib, upFront: true },
  ];
  const stage = stageOf({ models: [model('m', 14 * gib, { parts, trueParts: parts, truePeakBytes: 14 * gib })] });
  const stream = stage.ask('m', { callMs: 6_000 });
  stage.until(() => stream.begunAtMs !== null);
  const large = stage.ask('m', { contextBytes: 8 * gib, deadlineMs: 30_000 });
  stage.to(stage.nowMs + 50);
  const small = Array.from({ length: 3 }, () => stage.ask('m'));
  stage.until(() => allEnded([stream, large, ...small]));
  t.ok([stream, large, ...small].every((call) => call.outcome === 'answered'));
  t.ok(stream.endedAtMs! - stream.begunAtMs! >= 6_000, 'the stream ran to its end');
  t.ok(large.begunAtMs! - stream.endedAtMs! < 1_000, 'the switch came right after it');
  t.ok(small.every((call) => call.begunAtMs! >= large.begunAtMs!), 'later calls did not pass the switch');
  t.equal(stage.effects('move').length, 0, 'the model was never a victim of itself');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B62: callers of a loaded model do not stand behind another model’s slow eviction', async (t) => {
  const stage = stageOf({ models: [model('a', 6 * gib), model('c', 12 * gib, { moveMs: 40_000 }), model('b', 12 * gib)], limits: { moveTimeoutMs: 60_000, releaseConfirmMs: 60_000 } });
  settle(stage, 'c');
  settle(stage, 'a');
  const keepsBusy = stage.ask('a', { callMs: 45_000 });
  stage.to(stage.nowMs + 100);
  const b = stage.ask('b', { deadlineMs: 100_000 });
  stage.until(() => stage.effects('move').length > 0);
  t.equal(stage.effects('move')[0]?.model, 'c');
  const calls = Array.from({ length: 3 }, () => stage.ask('a'));
  stage.until(() => allEnded(calls), 2_000);
  for (let round = 0; round < 17; round++) {
    const call = stage.ask('a');
    calls.push(call);
    stage.until(() => call.outcome !== null, 2_000);
  }
  t.ok(calls.every((call) => call.begunAtMs! - call.askedAtMs < 50), 'each of twenty begins within 50 ms');
  stage.until(() => b.outcome !== null && keepsBusy.outcome !== null);
  t.equal(b.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B64: what was cancelled in the queue is not loaded, and what comes behind it is', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib), model('b', 16 * gib), model('c', 16 * gib)] });
  settle(stage, 'a');
  const a = stage.ask('a', { callMs: 5_000 });
  stage.to(stage.nowMs + 200);
  const firstB = stage.ask('b');
  stage.to(stage.nowMs + 200);
  const c = stage.ask('c');
  const secondB = stage.ask('b');
  stage.to(stage.nowMs + 800);
  stage.cancel(firstB);
  stage.cancel(secondB);
  stage.until(() => a.outcome !== null && c.outcome !== null);
  stage.to(stage.nowMs + 5_000);
  t.equal(c.outcome, 'answered');
  t.strictSame([firstB.outcome, secondB.outcome], ['cancelled', 'cancelled']);
  const loaded = stage.effects('grant').map((grant) => stage.auditor.book.leases.get(grant.lease)?.model ?? stage.auditor.book.closedLeases.get(grant.lease)?.model);
  t.notOk(loaded.includes('b'), 'B was never loaded');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B64: when the only waiter of a load leaves, the lease ends in a model or in nothing, never in between', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib, { loadMs: 10_000 })] });
  const a = stage.ask('a');
  stage.until(() => stage.lease('a')?.state === 'loading');
  stage.to(stage.nowMs + 3_000);
  stage.cancel(a);
  stage.to(stage.nowMs + 20_000);
  const lease = stage.lease('a');
  t.ok(lease === null || (lease.state === 'resident' && lease.inFlight === 0), `the lease is ${lease?.state ?? 'gone'}`);
  t.equal(stage.world.card(device).usedBytes(), lease?.residentBytes ?? 0, 'the card agrees');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B65: a load belongs to the model: who comes back while it runs joins it', async (t) => {
  const stage = stageOf({ models: [model('a', 16 * gib, { loadMs: 40_000 })] });
  const startMs = stage.nowMs;
  const first = stage.ask('a', { deadlineMs: 30_000 });
  stage.at(startMs + 30_000, () => stage.cancel(first));
  stage.to(startMs + 31_000);
  const second = stage.ask('a', { deadlineMs: 30_000 });
  stage.until(() => second.outcome !== null);
  t.equal(first.outcome, 'cancelled');
  t.equal(second.outcome, 'answered');
  t.ok(second.begunAtMs! - startMs < 42_000, `served ${second.begunAtMs! - startMs} ms after the first attempt`);
  t.equal(stage.world.counters.loads, 1, 'one load');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B67: two models that exclude each other are never both resident, and nobody’s call is cut', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib), model('b', 14 * gib)] });
  const calls: Asked[] = [];
  const startMs = stage.nowMs;
  for (let index = 0; index < 20; index++) stage.at(startMs + 10 * index, () => calls.push(stage.ask(index % 2 === 0 ? 'a' : 'b', { callMs: 2_000 })));
  let both = 0;
  stage.to(startMs + 300);
  stage.until(() => {
    if (stage.view().leases.filter((lease) => lease.residentBytes > 0 && lease.state !== 'releasing').length > 1) both++;
    return allEnded(calls);
  });
  t.equal(both, 0);
  t.ok(calls.every((call) => call.outcome === 'answered'));
  t.ok(stage.world.counters.loads <= 4, `${stage.world.counters.loads} loads`);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B68: A B A A C A B C, all at once, takes few loads and starves nobody', async (t) => {
  const slow = { loadMs: 20_000, callMs: 1_000 };
  const stage = stageOf({ models: [model('a', 16 * gib, slow), model('b', 16 * gib, slow), model('c', 16 * gib, slow)] });
  const startMs = stage.nowMs;
  const calls = ['a', 'b', 'a', 'a', 'c', 'a', 'b', 'c'].map((key) => stage.ask(key, { deadlineMs: 110_000 }));
  stage.until(() => allEnded(calls), 200_000);
  t.ok(calls.every((call) => call.outcome === 'answered'));
  t.ok(stage.world.counters.loads <= 4, `${stage.world.counters.loads} loads`);
  t.ok(stage.nowMs - startMs < 100_000, `all done after ${stage.nowMs - startMs} ms`);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B73: a model that loads and a model that streams are no victims; the other waits, or is refused at its deadline', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { loadMs: 20_000 }), model('b', 14 * gib)] });
  const a = stage.ask('a', { callMs: 40_000 });
  stage.to(stage.nowMs + 5_000);
  const early = stage.ask('b', { deadlineMs: 10_000 });
  stage.until(() => early.outcome !== null);
  t.equal(early.outcome, 'denied');
  t.equal(stage.effects('deny').at(-1)?.code, 'deadline_passed');
  t.equal(stage.effects('move').length, 0, 'nothing was done to the loading model');
  stage.until(() => a.begunAtMs !== null);
  const late = stage.ask('b', { deadlineMs: 90_000 });
  stage.until(() => late.outcome !== null);
  t.equal(a.outcome, 'answered', 'the stream ran to its end');
  t.ok(a.endedAtMs! - a.begunAtMs! >= 40_000);
  t.equal(late.outcome, 'answered');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B74: a model just loaded is not taken from the request it was loaded for', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { loadMs: 9_000, callMs: 500 }), model('b', 14 * gib)] });
  const a = stage.ask('a');
  stage.until(() => stage.lease('a')?.state === 'resident');
  const b = stage.ask('b');
  stage.until(() => a.outcome !== null && b.outcome !== null);
  t.strictSame([a.outcome, b.outcome], ['answered', 'answered']);
  t.equal(stage.world.counters.loads, 2, 'A was loaded once');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B74: requests that come just after an eviction began wait for the reload; none goes to the leaving model', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { moveMs: 1_000 }), model('b', 14 * gib)] });
  settle(stage, 'a');
  const b = stage.ask('b');
  stage.until(() => stage.effects('move').length === 1);
  const movedAtMs = stage.nowMs;
  const calls: Asked[] = [];
  stage.at(movedAtMs + 30, () => calls.push(stage.ask('a')));
  stage.at(movedAtMs + 50, () => calls.push(stage.ask('a')));
  stage.to(movedAtMs + 60);
  stage.until(() => allEnded([b, ...calls]));
  t.ok([b, ...calls].every((call) => call.outcome === 'answered'));
  t.ok(calls.every((call) => call.begunAtMs! > b.endedAtMs!), 'they ran after the reload');
  t.equal(stage.world.counters.loads, 3);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B77: ten simultaneous requests for a cold model make one load, and settings that load nothing make no second model', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib)] });
  const calls = Array.from({ length: 10 }, (_, index) => stage.ask('a', { callMs: 100 + index }));
  stage.until(() => allEnded(calls));
  t.ok(calls.every((call) => call.outcome === 'answered'));
  t.equal(stage.effects('spawn').length, 1);
  t.equal(stage.effects('grant').length, 1);
  t.equal(stage.world.counters.loads, 1);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B79: a load that always fails is tried at most eight times in ten minutes, and its neighbour makes room once and not again', async (t) => {
  const stage = stageOf({ models: [model('bad', 14 * gib, { loadMs: 20_000, loadFails: 1 }), model('good', 14 * gib)] });
  settle(stage, 'good');
  const startMs = stage.nowMs;
  const calls: Asked[] = [];
  for (let second = 0; second < 600; second++) stage.at(startMs + second * 1_000, () => calls.push(stage.ask('bad', { deadlineMs: 30_000 })));
  for (let second = 0; second < 600; second += 20) stage.at(startMs + second * 1_000 + 500, () => stage.ask('good', { callMs: 50 }));
  stage.to(startMs + 660_000);
  t.ok(allEnded(calls));
  t.ok(stage.world.counters.loads - loadsOf(stage, 'good') <= 8, `${stage.world.counters.loads - loadsOf(stage, 'good')} attempts`);
  const refusals = stage.effects('deny').filter((denial) => denial.code === 'backing_off');
  t.ok(refusals.length > 300, `${refusals.length} were refused at once`);
  t.ok(refusals.every((denial) => (denial.retryAfterMs ?? 0) > 0), 'each with the time of the next attempt');
  t.equal(movesOf(stage, 'good'), 1, 'the healthy neighbour made room for the first try alone');
  t.match(refusals.at(-1)?.details['reason'], /good has been used since and will not be evicted for it in the next \d+ min( \d+ s)? \(leasehold evict/);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B79: a model in use is spared for a model that failed to load until the failure is forgotten; then that has its next chance', async (t) => {
  const stage = stageOf({ models: [model('bad', 14 * gib, { loadMs: 1_000, loadFails: 1 }), model('good', 14 * gib)], limits: { failedLoadSparesMs: 400_000 } });
  const outcomeOf = (key: string): Asked => {
    const call = stage.ask(key);
    stage.until(() => call.outcome !== null, 120_000);
    return call;
  };
  settle(stage, 'good');
  t.equal(outcomeOf('bad').outcome, 'load_failed');
  t.equal(movesOf(stage, 'good'), 1, 'its first try was given room');
  const failedAtMs = stage.nowMs;
  Object.assign(stage.modelOf('bad'), { loadFails: 0 });
  for (let atMs = failedAtMs + 20_000; atMs < failedAtMs + 400_000; atMs += 20_000) {
    stage.to(atMs);
    t.equal(outcomeOf('good').outcome, 'answered');
    const refused = outcomeOf('bad');
    t.match(refused, { outcome: 'denied', code: 'backing_off' });
    t.ok(refused.endedAtMs! - refused.askedAtMs < 500, 'at once, not at its deadline');
  }
  t.equal(movesOf(stage, 'good'), 1);
  stage.to(failedAtMs + 402_000);
  t.equal(outcomeOf('bad').outcome, 'answered', 'no failure is held against it for ever');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B79: a model that failed to load may still have the room of one that nobody has used since', async (t) => {
  const stage = stageOf({ models: [model('bad', 8 * gib, { loadMs: 1_000, loadFails: 1 }), model('still', 8 * gib), model('late', 12 * gib)] });
  settle(stage, 'still');
  const failing = stage.ask('bad');
  stage.until(() => failing.outcome !== null);
  Object.assign(stage.modelOf('bad'), { loadFails: 0 });
  settle(stage, 'late');
  stage.to(stage.nowMs + 20_000);
  const again = stage.ask('bad');
  stage.until(() => again.outcome !== null, 120_000);
  t.equal(again.outcome, 'answered');
  t.strictSame([movesOf(stage, 'still'), movesOf(stage, 'late')], [1, 0]);
  t.strictSame(stage.auditor.violations, []);
});

function movesOf(stage: Stage, key: string): number {
  return stage.effects('move').filter((move) => move.model === key).length;
}

function loadsOf(stage: Stage, key: string): number {
  return stage.effects('grant').filter((grant) => {
    const { book } = stage.auditor;
    return (book.leases.get(grant.lease) ?? book.closedLeases.get(grant.lease))?.model === key;
  }).length;
}

t.test('B80: calls in flight are counted down to nothing however they end', async (t) => {
  const stage = stageOf({ models: [model('a', 10 * gib, { callMs: 300 }), model('b', 20 * gib)] });
  const batches: Readonly<Record<string, (calls: readonly Asked[]) => void>> = {
    'aborted before anything came': (calls) => calls.forEach((call) => stage.cancel(call)),
    'aborted in the middle': (calls) => {
      stage.to(stage.nowMs + 150);
      calls.forEach((call) => stage.cancel(call));
    },
    'the worker crashed': (calls) => {
      stage.until(() => calls.some((call) => call.begunAtMs !== null));
      [...stage.world.workers.values()].filter((worker) => worker.alive).forEach((worker) => worker.end('exit code 139'));
    },
    'ran to the end': () => undefined,
  };
  for (const [name, act] of Object.entries(batches)) {
    settle(stage, 'a');
    const calls = Array.from({ length: 100 }, () => stage.ask('a', { deadlineMs: 40_000 }));
    stage.to(stage.nowMs + 20);
    act(calls);
    stage.until(() => allEnded(calls));
    stage.to(stage.nowMs + 3_000);
    t.ok(stage.view().leases.every((lease) => lease.inFlight === 0), `${name}: nothing is counted inside`);
  }
  const b = stage.ask('b');
  stage.until(() => b.outcome !== null);
  t.equal(b.outcome, 'answered', 'and the model can still be evicted');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B82: whatever happens to requests, loads and evictions, the head of a queue is granted when room is free', async (t) => {
  for (const seed of [8_201, 8_202, 8_203]) {
    const result = runSeed({ seed, steps: 4_000, module });
    t.strictSame(result.violations, [], `seed ${seed}`);
    t.equal(result.stuck, null, `seed ${seed} comes to rest`);
  }
});

t.test('B76: a worker killed at half of a load: each of twenty waiters has its error within a second, the lease is closed, and the next request reloads', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { loadMs: 8_000 })] });
  const calls = Array.from({ length: 20 }, () => stage.ask('a', { deadlineMs: 60_000 }));
  stage.until(() => stage.lease('a')?.state === 'loading');
  const first = stage.lease('a')!.lease;
  stage.to(stage.nowMs + 4_000);
  t.strictSame([stage.lease('a')?.state, calls.filter(({ outcome }) => outcome !== null).length], ['loading', 0], 'half loaded, and all wait');
  stage.world.workers.get(stage.effects('spawn')[0]!.generation)!.end('SIGKILL');
  const killedAtMs = stage.nowMs;
  stage.until(() => allEnded(calls) && stage.lease('a') === null, 1_000);
  t.strictSame(new Set(calls.map(({ outcome }) => outcome)), new Set(['worker_lost']));
  t.ok(calls.every(({ endedAtMs }) => endedAtMs! - killedAtMs < 1_000));
  t.equal(stage.view().cards[0]!.leasedBytes, 0);
  const [backing] = stage.effects('publish').filter(({ name }) => name === 'backing_off');
  t.equal(backing?.data['failures'], 1, 'one failure, however many waited');
  stage.to(stage.nowMs + Number(backing?.data['retryAfterMs']));
  const next = stage.ask('a');
  stage.until(() => next.outcome !== null);
  t.strictSame([next.outcome, next.code], ['answered', null]);
  t.not(stage.lease('a')?.lease, first);
  t.equal(stage.effects('spawn').length, 2);
  t.strictSame(stage.auditor.violations, []);
});

t.test('B193: a victim that became busy just before the command says so at once, and the command is not carried out late', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib), model('b', 14 * gib)] });
  settle(stage, 'a');
  const worker = [...stage.world.workers.values()][0]!;
  const b = stage.ask('b', { deadlineMs: 2_000 });
  stage.until(() => stage.effects('move').length === 1);
  const spec = stage.modelOf('a');
  const nowUs = stage.world.scheduler.coreUs;
  worker.takeCall({ model: spec, class: 'normal', arrivedAtUs: nowUs, deadlineUs: nowUs + 60_000_000, durationMs: 40_000, contextBytes: null, onBegun: null, onEnd: null });
  const sentAtMs = stage.nowMs;
  stage.until(() => stage.steps.some(({ event }) => event.type === 'command_answered' && event.answer.kind === 'busy'));
  t.ok(stage.nowMs - sentAtMs < 50, 'answered at once');
  stage.until(() => b.outcome !== null);
  t.equal(b.outcome, 'denied');
  t.ok(b.endedAtMs! - b.askedAtMs < 3_500, 'its caller was told at its deadline');
  stage.to(stage.nowMs + 60_000);
  t.equal(stage.lease('a')?.state, 'resident', 'nobody waits any more: the model stays');
  t.strictSame(stage.auditor.violations, []);
});

t.test('B193: a command carried out far too late is taken in as what it is, and the bytes are given away once', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { moveMs: 100 }), model('b', 14 * gib)] });
  stage.behave({ answersLateMs: 40_000 });
  settle(stage, 'a');
  stage.behave({});
  const first = stage.ask('b', { deadlineMs: 2_000 });
  stage.until(() => first.outcome !== null);
  const second = stage.ask('b', { deadlineMs: 80_000 });
  stage.until(() => second.outcome !== null);
  stage.to(stage.nowMs + 60_000);
  t.equal(second.outcome, 'answered');
  t.ok(stage.world.card(device).usedBytes() <= 24 * gib);
  t.equal(stage.world.counters.ooms, 0, 'nothing was granted twice');
  t.strictSame(stage.auditor.violations, []);
});

t.test('R266: of two that ask at the same moment with room for one, exactly one is granted and the other waits its turn', async (t) => {
  const stage = stageOf({ models: [model('a', 14 * gib, { loadMs: 2_000 }), model('b', 14 * gib, { loadMs: 2_000 })] });
  const [a, b] = [stage.ask('a', { callMs: 3_000, deadlineMs: 4_000 }), stage.ask('b', { callMs: 3_000, deadlineMs: 4_000 })];
  let most = 0;
  stage.until(() => {
    const [card] = stage.view().cards;
    most = Math.max(most, card!.leasedBytes + card!.holdBytes);
    return allEnded([a, b]);
  });
  t.ok(most <= 24 * gib, 'reservations never exceed the card');
  t.strictSame([a.outcome, b.outcome].sort(), ['answered', 'denied']);
  const denial = stage.effects('deny').at(-1)!;
  t.equal(denial.code, 'deadline_passed');
  t.ok(denial.numbers !== null && denial.numbers.needBytes > denial.numbers.availableBytes, 'denied with the numbers');
  t.strictSame(stage.auditor.violations, []);
});

t.test('R267: a thousand rounds of A evicting B while B asks against A: no deadlock, no wait above its bound', async (t) => {
  const models = [model('a', 14 * gib, { loadMs: 300, moveMs: 30 }), model('b', 12 * gib, { loadMs: 300, moveMs: 30 }), model('c', 6 * gib, { loadMs: 100, moveMs: 10 })];
  const stage = stageOf({ models });
  const random = new Prng(267, 'rounds');
  const calls: Asked[] = [];
  for (let round = 0; round < 1_000; round++) {
    calls.push(stage.ask(random.pick(['a', 'b', 'a', 'b', 'c']), { callMs: random.int(10, 400), deadlineMs: 30_000, class: random.pick(['interactive', 'normal', 'background']) }));
    stage.to(stage.nowMs + random.int(1, 700));
  }
  stage.until(() => allEnded(calls));
  t.ok(calls.every((call) => call.outcome === 'answered'), 'every call was answered');
  const longest = Math.max(...calls.map((call) => call.begunAtMs! - call.askedAtMs));
  t.ok(longest <= 30_000, `the longest wait was ${longest} ms`);
  t.ok(stage.effects('move').length > 50, `${stage.effects('move').length} evictions`);
  t.equal(stage.world.counters.ooms, 0);
  t.strictSame(stage.auditor.violations, []);
});
