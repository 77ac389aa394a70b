/** Nothing waits for ever, and many waiting cost only what changes. */
import t from 'tap';
import { headroom, leasableBytesMax } from '../../../broker/core/ledger/headroom.js';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage, weights, type Happening } from './harness.js';
import type { Effect } from '../../../broker/core/index.js';

t.test('a load that never ends is ended after loadTimeoutMs, however lively its process; the card and the load token are free again', (test) => {
  const stage = new Stage({ limits: { loadTimeoutMs: 30_000 } });
  stage.card();
  const worker = stage.worker();
  const other = stage.worker();
  const hung = stage.granted(worker, 'hung', 9 * GiB, { profiles: true });
  stage.begin(worker, hung);
  stage.take(worker, 2 * GiB);
  stage.report(worker, hung, 'loading', 2 * GiB);
  stage.use(worker, hung, 1);
  const waiting = stage.ask(other, 'b', 4 * GiB);
  test.equal(all(waiting.effects, 'wait').length, 1, 'the token holds everybody else up');
  test.equal(all(stage.pass(29_000), 'terminate').length, 0);
  stage.report(worker, hung, 'loading', 3 * GiB);
  const effects = stage.pass(2_000);
  test.match(only(effects, 'terminate'), { generation: worker, cause: 'load_timeout' }, 'reports and heartbeats do not extend it, nor do calls that wait for it');
  test.ok(all(effects, 'explain').some(({ record }) => record.text.includes('loading hung has not ended within 30 s')), 'and it is said why');
  test.equal(only([...stage.exit(worker), ...stage.pass(1_000)], 'grant').generation, other, 'who waited is granted');
  const again = only(stage.ask(stage.worker(), 'hung', 9 * GiB).effects, 'deny');
  test.equal(again.code, 'backing_off', 'the model is not tried again at once');
  test.end();
});

t.test('a load that ends in time, a resume and a growth each have their own time', (test) => {
  const stage = new Stage({ limits: { loadTimeoutMs: 30_000 } });
  stage.card();
  const worker = stage.worker();
  const lease = stage.granted(worker, 'a', 9 * GiB);
  stage.begin(worker, lease);
  stage.pass(25_000);
  stage.load(worker, lease, 9 * GiB);
  test.equal(all(stage.pass(60_000), 'terminate').length, 0, 'a model at rest is not a load');
  stage.granted(worker, 'a', GiB, { lease, parts: [{ name: 'context:1', kind: 'context', bytes: GiB, upFront: true }] });
  stage.begin(worker, lease);
  stage.pass(31_000);
  test.equal(stage.lease(lease)?.state, 'resident');
  test.equal(stage.cardView().loadToken, null);
  stage.sample();
  test.equal(all(stage.pass(5_000), 'terminate').length, 0, 'a growth without news is taken as settled, its bytes stay charged');
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(10 * GiB));
  test.end();
});

t.test('a holder whose load never ends is not killed: its bytes are quarantined', (test) => {
  const stage = new Stage({ limits: { loadTimeoutMs: 30_000 } });
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.granted(holder, 'a', 9 * GiB);
  stage.begin(holder, lease);
  stage.take(holder, GiB);
  const effects = stage.pass(31_000);
  test.equal(all(effects, 'terminate').length, 0);
  test.equal(stage.lease(lease)?.state, 'quarantined');
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(9 * GiB));
  test.end();
});

t.test('wishes to evict go out when what kept them is over: the load token, a pause, the wish before', (test) => {
  const stage = new Stage();
  stage.card();
  const client = stage.session();
  const worker = stage.worker();
  const kept = stage.resident(worker, 'kept', 4 * GiB);
  const measuring = stage.worker();
  const loads = stage.granted(measuring, 'loads', 4 * GiB, { profiles: true });
  const evict = (request: number): Effect[] => stage.send({ type: 'evict_requested', generation: client, request, model: 'kept', target: 'none', deadlineMs: 60_000 });
  test.equal(all([...evict(901), ...evict(902)], 'move').length, 0, 'an engine is measuring free memory');
  const first = only(stage.load(measuring, loads, 4 * GiB), 'move');
  test.equal(first.lease, kept);
  const busy = stage.answer(first, { kind: 'busy', inFlight: 0 });
  test.equal(all(busy, 'move').length, 0, 'its door cannot be shut now: not asked again at the speed of the wire');
  const second = only(stage.pass(6_000), 'move');
  stage.send({ type: 'request_cancelled', generation: client, request: 901 });
  const done = stage.obey(second);
  test.match(only([...done, ...stage.pass(1_000)], 'report_evicted'), { request: 902 }, 'the one that was not cancelled is answered');
  test.equal(stage.lease(kept), undefined);
  test.end();
});

t.test('a step costs the same however many wishes are open', (test) => {
  const stage = new Stage({ modelsPerWorker: 1_000 });
  stage.card();
  const client = stage.session();
  const worker = stage.worker();
  const asked: Happening[] = [];
  for (let n = 0; n < 500; n++) {
    stage.resident(worker, `m${String(n)}`, MiB);
    asked.push({ type: 'evict_requested', generation: client, request: 10_000 + n, model: `m${String(n)}`, target: 'none', deadlineMs: 60_000 });
  }
  const moves = asked.map((happening) => only(stage.send(happening), 'move'));
  const looked = { count: 0 };
  const { core } = stage;
  const values = core.evictRequests.values.bind(core.evictRequests);
  core.evictRequests.values = () => {
    looked.count++;
    return values();
  };
  for (const move of moves.slice(0, 50)) only([...stage.obey(move), ...stage.sample()], 'report_evicted');
  test.equal(looked.count, 0, 'nobody walks over all of them');
  test.equal(core.evictRequests.size, 450);
  stage.exit(worker);
  test.equal(core.evictRequests.size, 0, 'the end of the process answers them all');
  test.end();
});

t.test('a call that comes while its model is being parked waits until its old bytes are seen gone, and resumes', (test) => {
  const stage = new Stage();
  stage.card();
  const a = stage.worker();
  const parked = stage.resident(a, 'a', 16 * GiB, { parkable: true });
  const b = stage.worker();
  stage.pass(3_000);
  const move = only(stage.ask(b, 'b', 16 * GiB).effects, 'move');
  stage.samples = false;
  stage.report(a, parked, 'parking', 16 * GiB);
  const early = stage.ask(a, 'a', 16 * GiB, { lease: parked, parkable: true });
  test.equal(all(early.effects, 'wait').length, 1, 'nor while it is still moving');
  stage.send({ type: 'request_cancelled', generation: a, request: early.request });
  test.equal(only(stage.ask(a, 'a', GiB, { lease: parked, parts: [context(GiB)] }).effects, 'deny').code, 'lease_unknown', 'a context alone would be one of nothing');
  stage.obey(move);
  const resume = stage.ask(a, 'a', 16 * GiB, { lease: parked, parkable: true });
  test.equal(all(resume.effects, 'deny').length, 0, 'it is no stranger to its own lease');
  test.equal(all(resume.effects, 'wait').length, 1);
  stage.samples = true;
  const granted = only(stage.sample(), 'grant');
  test.equal(granted.generation, b, 'who came first goes first');
  stage.load(b, granted.lease, 16 * GiB);
  const back = only(stage.pass(3_000), 'move');
  test.equal(back.lease, granted.lease);
  const resumed = only([...stage.obey(back), ...stage.pass(1_000)], 'grant');
  test.match(resumed, { generation: a, lease: parked, chargedBytes: plusTenth(16 * GiB) });
  test.end();
});

t.test('a worker that hangs in a move and from then on is busy without a call is ended; one with calls is not', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 16 * GiB, { parkable: true });
  const other = stage.worker();
  stage.pass(3_000);
  const park = only(stage.ask(other, 'b', 16 * GiB, { deadlineMs: 600_000 }).effects, 'move');
  stage.report(worker, lease, 'parking', 16 * GiB);
  const unload = only(stage.pass(31_000), 'move');
  test.match([park.target, unload.target], ['host', 'none']);
  test.match(only(stage.answer(unload, { kind: 'busy', inFlight: 0 }), 'terminate'), { generation: worker, cause: 'command_failed' });
  test.equal(only([...stage.exit(worker), ...stage.pass(1_000)], 'grant').generation, other);
  const calm = new Stage();
  calm.card();
  const inUse = calm.worker();
  calm.resident(inUse, 'a', 16 * GiB);
  const second = calm.worker();
  calm.pass(3_000);
  let move = only(calm.ask(second, 'b', 16 * GiB, { deadlineMs: 600_000 }).effects, 'move');
  for (let round = 0; round < 4; round++) {
    test.equal(all(calm.answer(move, { kind: 'busy', inFlight: 2 }), 'terminate').length, 0);
    const asked: (typeof move)[] = [];
    for (let waitedMs = 0; asked.length === 0 && waitedMs < 20_000; waitedMs += 250) asked.push(...all(calm.pass(250), 'move'));
    test.equal(asked.length, 1, 'it is asked again, later');
    move = asked[0] ?? move;
  }
  test.end();
});

t.test('a holder that goes while it holds nothing leaves nothing behind; one that holds bytes stays known', (test) => {
  const stage = new Stage();
  stage.card();
  const before = stage.view().processes.length;
  for (let n = 0; n < 100; n++) {
    const holder = stage.session('holder');
    const lease = stage.granted(holder, 'a', GiB);
    stage.release(holder, lease, 'unused');
    stage.take(holder, 200 * MiB);
    stage.sample();
    stage.send({ type: 'session_closed', generation: holder, reason: 'end of file' });
    stage.take(holder, -200 * MiB);
  }
  test.equal(stage.view().processes.length, before);
  stage.sample();
  test.equal(stage.chargedBytes(), 0);
  const holder = stage.session('holder');
  stage.resident(holder, 'a', GiB);
  stage.send({ type: 'session_closed', generation: holder, reason: 'end of file' });
  test.equal(stage.view().processes.length, before + 1);
  test.equal(stage.chargedBytes(), plusTenth(GiB));
  test.end();
});

t.test('a claim that nothing holds beside a release: growth waits for nobody and takes nothing that leaves', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ partial: true });
  const lease = stage.resident(worker, 'a', 12 * GiB, { parts: [weights(12 * GiB)] });
  const other = stage.worker();
  stage.pass(3_000);
  const move = only(stage.ask(other, 'b', 14 * GiB).effects, 'move');
  stage.report(worker, lease, 'unloading', 12 * GiB);
  const grow = stage.send({ type: 'resize_requested', generation: worker, request: 77, lease, parts: [context(GiB / 4)] });
  test.equal(only(grow, 'deny').code, 'resize_denied');
  test.equal(only([...stage.obey(move), ...stage.pass(1_000)], 'grant').generation, other);
  test.end();
});

t.test('a parked model that says more is left than it said before is charged for it at once', (test) => {
  const stage = new Stage();
  stage.card();
  const a = stage.worker();
  const lease = stage.resident(a, 'a', 16 * GiB, { parkable: true });
  const b = stage.worker();
  stage.pass(3_000);
  only(stage.ask(b, 'b', 16 * GiB).effects, 'move');
  stage.samples = false;
  stage.report(a, lease, 'parking', 16 * GiB);
  stage.report(a, lease, 'parked', 0, { hostBytes: 16 * GiB });
  stage.take(a, -15 * GiB);
  stage.report(a, lease, 'parked', GiB, { hostBytes: 16 * GiB });
  stage.sample();
  test.ok((stage.lease(lease)?.chargedBytes ?? 0) >= GiB, 'the last word counts, not the first');
  test.end();
});

t.test('a part that no ledger could hold is refused with the true maximum, and that maximum is none too much', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const deny = only(stage.ask(holder, 'm', Number.MAX_SAFE_INTEGER).effects, 'deny');
  test.match(deny, { code: 'bytes_invalid', details: { value: '9007199254740991', minimum: '0', maximum: String(leasableBytesMax) } });
  test.ok(BigInt(leasableBytesMax) * BigInt(headroom.numerator) <= BigInt(Number.MAX_SAFE_INTEGER) * BigInt(headroom.denominator));
  test.equal(only(stage.ask(holder, 'm', leasableBytesMax).effects, 'deny').code, 'never_fits', 'the most that may be asked for is a count like any other');
  test.equal(only(stage.ask(holder, 'm', 0, { parts: [weights(leasableBytesMax), { ...weights(1), name: 'one' }] }).effects, 'deny').details['maximum'], String(leasableBytesMax));
  test.equal(stage.chargedBytes(card0), 0);
  test.end();
});
