/** A clock that is set back: the core's own time stands still for that moment, and goes on. */
import t from 'tap';
import { restore, snapshot } from '../../../broker/core/index.js';
import { all, card0, GiB, only, plusTenth, Stage } from './harness.js';

const steps = [1_000, 2_000_000, 3_600_000_000];

t.test('deadlines, silence and readings are judged as if nothing had been', (test) => {
  for (const backUs of steps) {
    const stage = new Stage();
    stage.card();
    const worker = stage.worker();
    stage.resident(worker, 'a', 20 * GiB, { policy: { pinned: true } });
    const asked = stage.ask(stage.session('holder'), 'b', 10 * GiB, { deadlineMs: 5_000 });
    stage.pass(2_000);
    stage.samples = false;
    stage.nowUs -= backUs;
    test.equal(all(stage.pass(2_750), 'deny').length, 0, `set back by ${String(backUs)} us`);
    test.ok((stage.cardView().sampleAgeMs ?? 0) >= 2_500 && (stage.cardView().sampleAgeMs ?? 0) < 5_500, 'a reading goes on ageing');
    const denied = only(stage.pass(500), 'deny');
    test.match(denied, { request: asked.request, code: 'deadline_passed' });
    const record = stage.effects.find((effect) => effect.type === 'explain' && effect.record.id === denied.explain);
    test.equal(record?.type === 'explain' ? record.record.atUs : null, stage.nowUs, 'records are dated by the clock');
    stage.silence(worker);
    test.match(only(stage.pass(12_000, { beats: false }), 'terminate'), { generation: worker, cause: 'silent' });
  }
  test.end();
});

t.test('a reading is asked for by the clock, and one of after the step counts', (test) => {
  for (const backUs of steps) {
    const stage = new Stage();
    stage.card();
    const holder = stage.session('holder');
    const lease = stage.resident(holder, 'a', 6 * GiB);
    stage.pass(1_000);
    stage.samples = false;
    stage.nowUs -= backUs;
    stage.send({ type: 'ticked' });
    stage.pass(stage.core.options.limits.probeTimeoutMs + 250);
    const [wanted] = all(stage.release(holder, lease), 'sample');
    test.equal(wanted?.notBeforeUs, stage.nowUs, `set back by ${String(backUs)} us`);
    stage.take(holder, -6 * GiB);
    stage.sample();
    test.equal(stage.chargedBytes(), 0);
  }
  test.end();
});

t.test('a reading of before the step is dated by nobody: it neither confirms what happened since nor makes a reading young', (test) => {
  for (const backUs of steps) {
    const stage = new Stage();
    stage.card();
    const holder = stage.session('holder');
    const lease = stage.resident(holder, 'a', 6 * GiB);
    stage.pass(3_000);
    stage.samples = false;
    // What is read here, before it was released, arrives only after the step.
    const takenAtUs = stage.nowUs - 500;
    stage.take(holder, -6 * GiB);
    stage.release(holder, lease);
    stage.take(holder, 6 * GiB);
    const truth = stage.truth();
    stage.nowUs -= backUs;
    truth.byProcess.set(holder, 0);
    // And what is read while the broker is busy elsewhere, after all that it has heard, seems to come from the future.
    for (const [index, readAtUs] of [takenAtUs, takenAtUs + backUs + 400_000].entries()) {
      stage.sample(card0, readAtUs);
      test.match(stage.lease(lease), { state: 'releasing', chargedBytes: plusTenth(6 * GiB) }, `set back by ${String(backUs)} us`);
      test.equal(stage.counter('samplesStale'), index + 1);
    }
    stage.pass(stage.core.options.limits.probeTimeoutMs + 250);
    stage.sample();
    test.equal(stage.lease(lease), undefined, 'the next one tells');
  }
  test.end();
});

t.test('how old a call is that a door waits for is told by the clock, and a snapshot goes on where it was', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  stage.resident(worker, 'a', 20 * GiB);
  stage.pass(5_000);
  stage.nowUs -= 2_000_000;
  stage.send({ type: 'ticked' });
  const again = restore(JSON.parse(JSON.stringify(snapshot(stage.core))));
  test.strictSame([again.clockUs, again.nowUs, again.setBack], [stage.core.clockUs, stage.core.nowUs, stage.core.setBack]);
  test.ok(stage.core.nowUs > stage.core.clockUs);
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'a', target: 'none', deadlineMs: 60_000 }), 'move');
  test.equal(move.waiterSinceUs, stage.nowUs);
  test.end();
});
