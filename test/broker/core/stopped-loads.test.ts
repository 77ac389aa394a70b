/** A load that nobody aborts: an operator's `evict` stops it in bounded time, and who waits because of it is told which it is. */
import t from 'tap';
import { explainRecords, type Effect } from '../../../broker/core/index.js';
import { all, card0, GiB, only, plusTenth, Stage, weights } from './harness.js';

const evict = (stage: Stage, model: string, request = 900): Effect[] =>
  stage.send({ type: 'evict_requested', generation: stage.session(), request, model, target: 'host', deadlineMs: 600_000 });

/** A worker whose load of `hung` has begun and goes no further, and one that waits for the room. */
function hung(stage: Stage, profiles = false): { readonly worker: string; readonly lease: string; readonly waiting: string } {
  stage.card();
  const worker = stage.worker();
  const waiting = stage.worker();
  const lease = stage.granted(worker, 'hung', 16 * GiB, { profiles, parkable: true });
  stage.begin(worker, lease);
  stage.take(worker, 2 * GiB);
  stage.use(worker, lease, 0, 3);
  stage.ask(waiting, 'next', 16 * GiB, { deadlineMs: 600_000 });
  return { worker, lease, waiting };
}

t.test('evict stops a load, be it the one that measures free memory; its bytes are free when they are seen gone', (test) => {
  const stage = new Stage();
  const { worker, lease, waiting } = hung(stage, true);
  const move = only(evict(stage, 'hung'), 'move');
  test.match(move, { generation: worker, lease, target: 'none', when: 'drained', waiterSinceUs: stage.nowUs, bytes: null }, 'unless older calls wait for it');
  stage.answer(move, { kind: 'draining', inFlight: 0 });
  stage.samples = false;
  stage.answer(move, { kind: 'done', target: 'none', freedBytes: 2 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(stage.chargedBytes(), plusTenth(16 * GiB), 'an answer frees nothing');
  stage.take(worker, -2 * GiB);
  stage.samples = true;
  const effects = stage.sample();
  test.match(only(effects, 'report_evicted'), { request: 900 });
  test.equal(only(effects, 'grant').generation, waiting);
  test.equal(all(stage.pass(5_000), 'terminate').length, 0, 'its worker is a good one');
  test.end();
});

t.test('a worker that does not answer, goes on, or is busy with its load is ended in bounded time', (test) => {
  for (const how of ['silent', 'draining', 'busy', 'refusing'] as const) {
    const stage = new Stage();
    const { worker, waiting } = hung(stage);
    const answered = (effects: Effect[]): Effect[] => {
      const moves = how === 'silent' ? [] : all(effects, 'move').filter((move) => move.generation === worker);
      return moves.flatMap((move) => {
        if (how === 'draining') return stage.answer(move, { kind: 'draining', inFlight: 0 });
        if (how === 'busy') return stage.answer(move, { kind: 'busy', inFlight: 0 });
        return stage.answer(move, { kind: 'failed', code: 'move_failed', message: 'cannot', residentBytes: 2 * GiB });
      });
    };
    const seen = answered(evict(stage, 'hung'));
    for (let waitedMs = 0; waitedMs < 80_000 && all(seen, 'terminate').length === 0; waitedMs += 250) {
      const effects = stage.pass(250);
      seen.push(...effects, ...answered(effects));
    }
    test.match(all(seen, 'terminate'), [{ generation: worker, cause: 'command_failed' }], `${how}: its process is ended`);
    const after = [...stage.exit(worker), ...stage.pass(1_000)];
    test.match(only(after, 'report_evicted'), { request: 900 }, `${how}: who asked is answered`);
    test.equal(only(after, 'grant').generation, waiting);
  }
  test.end();
});

t.test('older calls may have the load that they wait for, if it ends soon; else it is stopped, whoever waits', (test) => {
  for (const how of ['draining', 'busy'] as const) {
    const stage = new Stage();
    const { worker, lease } = hung(stage);
    const answer = how === 'draining' ? ({ kind: 'draining', inFlight: 3 } as const) : ({ kind: 'busy', inFlight: 3 } as const);
    const first = only(evict(stage, 'hung'), 'move');
    stage.answer(first, answer);
    test.equal(all(stage.pass(29_000), 'move').length, 0, `${how}: left to it`);
    const seen = stage.pass(1_500);
    test.equal(all(seen, 'cancel_command').length, how === 'draining' ? 1 : 0, 'what it has not answered is taken back');
    const stop = only(seen, 'move');
    test.match(stop, { lease, target: 'none', when: 'drained', waiterSinceUs: 0 }, 'no call is so old that it would keep the load going');
    stage.take(worker, -2 * GiB);
    test.equal(all(stage.answer(stop, { kind: 'done', target: 'none', freedBytes: 2 * GiB, residentBytes: 0, hostBytes: 0 }), 'report_evicted').length, 1);
  }
  test.end();
});

t.test('a worker that was busy with a load is asked again when it is done; one with calls is not ended for that', (test) => {
  const stage = new Stage();
  const { worker, lease } = hung(stage);
  stage.answer(only(evict(stage, 'hung'), 'move'), { kind: 'busy', inFlight: 0 });
  stage.take(worker, 14 * GiB);
  const again = only(stage.report(worker, lease, 'resident', 16 * GiB, { parts: [weights(16 * GiB)] }), 'move');
  stage.use(worker, lease, 1);
  stage.answer(again, { kind: 'draining', inFlight: 1 });
  test.equal(all(stage.pass(45_000), 'cancel_command').length, 0, 'calls inside have drainTimeoutMs');
  stage.use(worker, lease, 0);
  test.equal(all([...stage.obey(again), ...stage.pass(1_000)], 'report_evicted').length, 1);
  test.end();
});

t.test('a load that is being stopped when its time is up is given the time to stop', (test) => {
  const stage = new Stage({ limits: { loadTimeoutMs: 60_000 } });
  const { worker } = hung(stage);
  stage.pass(59_000);
  const move = only(evict(stage, 'hung'), 'move');
  stage.answer(move, { kind: 'draining', inFlight: 0 });
  test.equal(all(stage.pass(5_000), 'terminate').length, 0);
  stage.take(worker, -2 * GiB);
  const done = stage.answer(move, { kind: 'done', target: 'none', freedBytes: 2 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(all(done, 'report_evicted').length, 1);
  test.end();
});

t.test('a load that is done before it could be stopped leaves as a model does', (test) => {
  const stage = new Stage();
  const { worker, lease } = hung(stage);
  const move = only(evict(stage, 'hung'), 'move');
  stage.answer(move, { kind: 'draining', inFlight: 0 });
  stage.take(worker, 14 * GiB);
  stage.report(worker, lease, 'resident', 16 * GiB, { parts: [weights(16 * GiB)] });
  test.equal(all(stage.pass(10_000), 'move').length, 0, 'the command stands');
  test.equal(all([...stage.obey(move), ...stage.pass(1_000)], 'report_evicted').length, 1);
  test.end();
});

t.test('a holder may load for as long as it likes; a grant not yet begun is asked about and then stopped', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.granted(holder, 'mine', 4 * GiB);
  test.equal(all(evict(stage, 'mine'), 'move').length, 0, 'whether it has begun is not known yet');
  let move = only(stage.begin(holder, lease), 'move');
  for (let round = 0; round < 4; round++) {
    stage.answer(move, { kind: 'busy', inFlight: 0 });
    move = only(stage.pass(6_000), 'move');
  }
  test.equal(stage.lease(lease)?.state, 'loading');
  test.equal(all(stage.release(holder, lease, 'cancelled'), 'report_evicted').length, 1);
  test.end();
});

t.test('a growth without news does not keep an evict waiting', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 4 * GiB);
  stage.granted(worker, 'a', GiB, { lease, parts: [{ name: 'context:1', kind: 'context', bytes: GiB, upFront: true }] });
  stage.begin(worker, lease);
  const move = only(evict(stage, 'a'), 'move');
  test.equal(all([...stage.obey(move), ...stage.pass(1_000)], 'report_evicted').length, 1);
  test.end();
});

t.test('who waits because of a load without progress is told which it is, and how to stop it', (test) => {
  for (const profiles of [true, false]) {
    const stage = new Stage();
    const { worker, waiting } = hung(stage, profiles);
    const told = (effects: readonly Effect[]): string[] => all(effects, 'wait').filter((wait) => wait.generation === waiting).map((wait) => wait.reason);
    test.equal(told(stage.pass(59_000)).length, 0, 'not before loadStallMs');
    stage.take(worker, GiB);
    stage.sample();
    test.equal(told(stage.pass(59_000)).length, 0, 'a figure that moves is progress');
    const [reason] = told(stage.pass(2_000));
    test.match(reason, new RegExp(`hung has been loading in ${worker} for 1[12]\\d s and has shown no progress for 60 s`));
    test.match(reason, /evicting hung stops it/);
    test.equal(explainRecords(stage.core, { device: card0 }).find((record) => record.generation === waiting)?.text, reason, 'and its record says so');
    test.equal(told(stage.pass(30_000)).length, 6, 'with how long by now, every waitRetoldMs');
    test.equal(all(stage.pass(60_000), 'terminate').length, 0, 'nothing is ended for being slow');
  }
  test.end();
});

t.test('a load that is stopped after its command had been given up is over; one that is said to go on is not', (test) => {
  for (const residentBytes of [0, 2 * GiB]) {
    const stage = new Stage();
    const { worker, lease, waiting } = hung(stage);
    const move = only(evict(stage, 'hung'), 'move');
    test.equal(all(stage.pass(5_500), 'cancel_command').length, 1);
    if (residentBytes === 0) stage.take(worker, -2 * GiB);
    const effects = [...stage.answer(move, { kind: 'done', target: 'none', freedBytes: 2 * GiB - residentBytes, residentBytes, hostBytes: 0 }), ...stage.sample()];
    test.equal(stage.counter('answersLate'), 1);
    test.strictSame(all(effects, 'grant').map(({ generation }) => generation), residentBytes === 0 ? [waiting] : []);
    test.equal(stage.lease(lease)?.state, residentBytes === 0 ? undefined : 'loading');
  }
  test.end();
});

t.test('a return that has begun and is put away again before anything of it was there: nothing stays promised, and it is granted anew', (test) => {
  for (const confirms of ['process', 'total'] as const) {
    const stage = new Stage();
    stage.card(card0, { confirms });
    const worker = stage.worker();
    const lease = stage.resident(worker, 'tales', 6 * GiB, { parkable: true });
    stage.take(worker, -6 * GiB);
    stage.report(worker, lease, 'parked', 0, { hostBytes: 6 * GiB });
    stage.pass(1_000);
    test.equal(stage.chargedBytes(), 0);
    stage.granted(worker, 'tales', 6 * GiB, { lease, parkable: true });
    stage.begin(worker, lease);
    test.equal(stage.chargedBytes(), plusTenth(6 * GiB));
    stage.report(worker, lease, 'parking', 0, { hostBytes: 6 * GiB });
    stage.report(worker, lease, 'parked', 0, { hostBytes: 6 * GiB });
    stage.pass(1_000);
    test.match(stage.lease(lease), { state: 'parked', chargedBytes: 0 }, confirms);
    test.equal(stage.granted(worker, 'tales', 6 * GiB, { lease, parkable: true }), lease);
  }
  test.end();
});
