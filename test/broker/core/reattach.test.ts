/** A broker that starts where an earlier one died: cards closed to grants, leases taken in as they stand, orphans ended, holders never. */
import t from 'tap';
import { shareReading } from '../../../broker/core/index.js';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage, weights } from './harness.js';
import { announces, card1, comesBack, graceMs, held, holder, restarted, terms, worker } from './returning.js';

t.test('a card is closed to grants until every recorded process that could touch it has said what it holds', async (t) => {
  const stage = restarted({ recorded: ['worker', 'holder'] });
  stage.card(card1);
  stage.sample(card1);
  t.strictSame(stage.cardView().closed?.waitsFor, [worker, holder]);
  t.equal(stage.cardView(card1).closed, null, 'a card that none of them could touch is open');
  const other = stage.worker({ device: card1 });
  t.equal(all(stage.ask(other, 'sums', GiB, { device: card1 }).effects, 'grant').length, 1);

  const app = stage.session('holder');
  const asked = stage.ask(app, 'sums', GiB);
  t.equal(all(asked.effects, 'grant').length, 0);
  t.match(only(asked.effects, 'wait').reason, /closed to grants until old-w1, old-s4/, 'the requester is told why');
  t.match(asked.effects.find((effect) => effect.type === 'explain' && effect.record.verdict === 'waiting'), { record: { text: /closed to grants/ } });

  t.equal(all(stage.send({ type: 'process_resumed', generation: worker }), 'grant').length, 0, 'not when one has attached');
  const ready = comesBack(stage);
  t.equal(only(ready, 'list_models').generation, worker, 'it is asked for everything');
  t.equal(all(ready, 'grant').length, 0, 'not when it is ready');
  t.equal(all(announces(stage, []), 'grant').length, 0, 'not while another is away');
  t.strictSame(stage.cardView().closed?.waitsFor, [holder]);
  comesBack(stage, holder);
  t.equal(only(announces(stage, [], holder), 'grant').lease, `${app}-l2`, 'when the last has said everything');
  t.equal(stage.cardView().closed, null);
  t.strictSame([stage.counter('recorded'), stage.counter('reattached')], [2, 2]);
});

t.test('what has come back does not grow on a card that is still closed', async (t) => {
  const stage = restarted({ recorded: ['worker', 'holder'] });
  comesBack(stage);
  announces(stage, [held(4 * GiB, { inFlight: 1 })]);
  t.equal(only(stage.send({ type: 'resize_requested', generation: worker, request: 90, lease: 'old-w1-l7', parts: [context(GiB)] }), 'deny').code, 'resize_denied');
  comesBack(stage, holder);
  announces(stage, [], holder);
  stage.sample();
  t.equal(only(stage.send({ type: 'resize_requested', generation: worker, request: 91, lease: 'old-w1-l7', parts: [context(GiB)] }), 'grant').lease, 'old-w1-l7');
});

t.test('a request that waits for a closed card ends by its deadline, with that as the reason', async (t) => {
  const stage = restarted({ graceMs: 600_000 });
  const app = stage.session('holder');
  stage.ask(app, 'sums', GiB, { deadlineMs: 1_000 });
  const denied = only(stage.pass(1_500), 'deny');
  t.equal(denied.code, 'deadline_passed');
  t.match(denied.details['reason'], /closed to grants/);
});

t.test('a lease is taken in under its id, with its parts and its charge, and goes on', async (t) => {
  const stage = restarted({ heldBytes: 10 * GiB });
  comesBack(stage);
  announces(stage, [held(10 * GiB, { inFlight: 2, terms: terms(10 * GiB, { parts: [weights(9 * GiB), context(GiB)], class: 'interactive', policy: { ttlMs: 60_000, pinned: true, exclusive: false } }) })]);
  t.match(stage.lease('old-w1-l7'), { generation: worker, model: 'tales', state: 'resident', chargedBytes: plusTenth(10 * GiB), residentBytes: 10 * GiB, inFlight: 2, pinned: true, parts: [{ name: 'weights' }, { name: 'context:1' }] });
  stage.sample();
  t.equal(stage.chargedBytes(), plusTenth(10 * GiB), 'and nothing of it is charged twice');
  t.equal(stage.cardView().foreignBytes, 0);

  stage.use(worker, 'old-w1-l7', 0);
  const asked = stage.ask(worker, 'tales', GiB, { lease: 'old-w1-l7', parts: [context(GiB, 'context:2')] });
  t.equal(only(asked.effects, 'grant').lease, 'old-w1-l7', 'it is extended like any other');
  t.equal(only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'tales', target: 'none', deadlineMs: 1_000 }), 'fail').code, 'pinned', 'its pin is kept');
  t.equal(stage.granted(stage.session('holder'), 'sums', GiB), 'boot-s2-l1', 'new leases have names of the new broker');
});

t.test('a placement waits for a worker that may have the model, and finds it there', async (t) => {
  const stage = restarted({ heldBytes: 4 * GiB });
  stage.card(card1);
  stage.sample(card1);
  const client = stage.session();
  t.equal(all(stage.place(client, 'tales').effects, 'spawn').length, 0, 'no second copy is loaded on the card that is open');
  comesBack(stage);
  t.equal(only(announces(stage, [held(4 * GiB)]), 'placed').worker, worker);
  t.equal(all(stage.effects, 'spawn').length, 0);
  t.equal(stage.counter('loads'), 0);
});

t.test('each state of a model comes back as what it is', async (t) => {
  await t.test('loading: all that was granted stays charged, and the load is bounded', async (t) => {
    const stage = restarted({ heldBytes: GiB });
    comesBack(stage);
    announces(stage, [held(GiB, { state: 'loading', terms: terms(8 * GiB) })]);
    t.match(stage.lease('old-w1-l7'), { state: 'loading', chargedBytes: plusTenth(8 * GiB), residentBytes: GiB });
    stage.sample();
    t.equal(all(stage.ask(stage.session('holder'), 'sums', 20 * GiB, { deadlineMs: 1_000 }).effects, 'grant').length, 0, 'nobody gets what it may still take');
    stage.take(worker, 7 * GiB);
    stage.report(worker, 'old-w1-l7', 'resident', 8 * GiB, { parts: [weights(8 * GiB)], loadMs: 900 });
    t.match(stage.lease('old-w1-l7'), { state: 'resident', chargedBytes: plusTenth(8 * GiB) });
  });
  await t.test('parked: its lease is kept, though nothing of it is on the card', async (t) => {
    const stage = restarted();
    comesBack(stage);
    announces(stage, [held(0, { state: 'parked', hostBytes: 4 * GiB, parkable: true, terms: terms(4 * GiB) })]);
    t.match(stage.lease('old-w1-l7'), { state: 'parked', chargedBytes: 0, hostBytes: 4 * GiB });
    stage.sample();
    t.equal(only(stage.ask(worker, 'tales', 4 * GiB, { lease: 'old-w1-l7' }).effects, 'grant').lease, 'old-w1-l7', 'and it comes back under it');
  });
  await t.test('unloading: its bytes are leaving, and free when they are seen gone', async (t) => {
    const stage = restarted({ heldBytes: 4 * GiB });
    comesBack(stage);
    announces(stage, [held(4 * GiB, { state: 'unloading' })]);
    t.match(stage.lease('old-w1-l7'), { state: 'releasing', chargedBytes: 4 * GiB });
    stage.take(worker, -4 * GiB);
    stage.release(worker, 'old-w1-l7');
    stage.sample();
    t.equal(stage.lease('old-w1-l7'), undefined);
    t.equal(stage.chargedBytes(), 0);
  });
  await t.test('what it holds without a lease is charged, and put away', async (t) => {
    const stage = restarted({ heldBytes: 4 * GiB });
    comesBack(stage);
    const effects = announces(stage, [held(4 * GiB, { lease: null })]);
    t.equal(stage.chargedBytes(), 4 * GiB);
    t.equal(only(effects, 'move').target, 'none');
  });
});

t.test('a worker that is not back in time is ended as an orphan; its bytes return by measurement', async (t) => {
  const stage = restarted({ heldBytes: 6 * GiB });
  t.equal(stage.chargedBytes(), 6 * GiB, 'what the driver shows of it is charged meanwhile');
  t.equal(stage.counter('overshoots'), 0, 'and is nobody’s fault');
  const app = stage.session('holder');
  stage.ask(app, 'sums', 20 * GiB, { deadlineMs: 100_000 });
  t.strictSame(all(stage.pass(graceMs - 1_000), 'terminate'), []);
  t.match(only(stage.pass(2_000), 'terminate'), { generation: worker, cause: 'orphaned' });
  t.ok(stage.cardView().closed, 'the card stays closed until its end is confirmed');
  t.equal(all(stage.exit(worker, { keepsBytes: true }), 'grant').length, 0);
  t.equal(stage.cardView().returningBytes, 6 * GiB);
  t.equal(stage.cardView().closed, null);
  stage.take(worker, -6 * GiB);
  t.equal(all([...stage.sample(), ...stage.pass(1_000)], 'grant').length, 1);
});

t.test('with a grace of 0 nothing is waited for', async (t) => {
  const stage = restarted({ graceMs: 0 });
  t.match(only(stage.pass(250), 'terminate'), { generation: worker, cause: 'orphaned' });
});

t.test('a worker that is back and does not say what it holds is ended, too', async (t) => {
  const stage = restarted();
  comesBack(stage);
  const beats = stage.pass(29_000, { beats: false }).filter((effect) => effect.type === 'terminate');
  t.match(beats[0], { cause: 'silent' }, 'silent, it ends by its heartbeats');
  const other = restarted();
  comesBack(other);
  for (let passed = 0; passed < 32_000; passed += 1_000) {
    other.send({ type: 'heartbeat', generation: worker, reserved: [] });
    other.pass(1_000);
  }
  t.match(only(other.effects, 'terminate'), { generation: worker, cause: 'orphaned' });
});

t.test('D7: a holder is never ended: what the driver shows of it becomes its floor, and the card opens', async (t) => {
  const stage = restarted({ recorded: ['holder'], heldBytes: 5 * GiB });
  const app = stage.session('holder');
  stage.ask(app, 'sums', 10 * GiB, { deadlineMs: 100_000 });
  const passed = stage.pass(graceMs + 1_000);
  t.strictSame(all(passed, 'terminate'), []);
  t.equal(all(passed, 'grant').length, 1);
  t.match(stage.cardView(), { closed: null, floorBytes: 5 * GiB, residueBytes: 0 });
  stage.take(holder, GiB);
  stage.sample();
  t.equal(stage.cardView().floorBytes, 6 * GiB, 'and follows it');

  comesBack(stage, holder);
  announces(stage, [held(6 * GiB, { lease: 'old-s4-l7' })], holder);
  t.match(stage.lease('old-s4-l7'), { generation: holder, chargedBytes: plusTenth(6 * GiB) }, 'late as it is, it comes back to its lease');
  stage.sample();
  t.equal(stage.cardView().floorBytes, 0, 'and its floor is what its leases do not explain');
});

t.test('a card is closed for the grace and no longer, whatever connections of a silent holder end meanwhile', async (t) => {
  for (const isBack of [false, true]) {
    const stage = new Stage({ limits: { reattachGraceMs: 8_000, releaseConfirmMs: 60_000 } });
    stage.card();
    stage.take(holder, 4 * GiB);
    stage.send({ type: 'process_recorded', generation: holder, role: 'holder', name: 'app', engine: null, devices: [card0], floors: [] });
    stage.sample();
    stage.pass(4_000);
    if (isBack) comesBack(stage, holder);
    stage.send({ type: 'session_closed', generation: holder, reason: 'end of file' });
    t.equal(stage.counter('strayEvents'), isBack ? 0 : 1, 'a connection to an earlier broker is none of ours');
    stage.pass(4_500);
    t.equal(stage.cardView().closed === null, !isBack, isBack ? 'its grace begins anew with the loss' : 'what it was given has passed');
    stage.pass(4_000);
    t.match(stage.cardView(), { closed: null, floorBytes: 4 * GiB });
  }
});

t.test('D7: where the driver shows no process, the card of a holder that does not come back stays closed until it ends', async (t) => {
  const stage = restarted({ recorded: ['holder'], heldBytes: 5 * GiB, card: { confirms: 'total' } });
  const app = stage.session('holder');
  stage.ask(app, 'sums', GiB, { deadlineMs: 200_000 });
  t.strictSame(all(stage.pass(graceMs * 3), 'grant'), []);
  t.strictSame(stage.cardView().closed?.waitsFor, [holder]);
  t.match(stage.view().processes.find(({ generation }) => generation === holder), { state: 'quarantined' });
  const effects = [...stage.exit(holder), ...stage.sample(), ...stage.pass(1_000)];
  t.equal(all(effects, 'grant').length, 1);
});

t.test('a recorded process that is gone opens its cards at once', async (t) => {
  const stage = restarted();
  const app = stage.session('holder');
  stage.ask(app, 'sums', GiB);
  t.equal(all([...stage.exit(worker), ...stage.sample()], 'grant').length, 1);
  t.equal(all(stage.send({ type: 'process_resumed', generation: worker }), 'list_models').length, 0, 'and does not come back from the dead');
});

t.test('a connection that is lost and found again costs a worker nothing', async (t) => {
  const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
  stage.card();
  const own = stage.worker();
  const lease = stage.resident(own, 'tales', 4 * GiB);
  const app = stage.session('holder');
  stage.pass(3_000);
  const order = only([...stage.ask(app, 'sums', 20 * GiB).effects, ...stage.pass(1_000)], 'move');
  const lost = stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
  t.strictSame(all(lost, 'terminate'), []);
  t.strictSame(all(stage.pass(12_000), 'terminate'), [], 'nobody is blamed for an answer that cannot come');
  t.match(stage.lease(lease), { state: 'resident', chargedBytes: plusTenth(4 * GiB) });
  stage.send({ type: 'process_resumed', generation: own });
  stage.ready(own);
  const back = announces(stage, [held(4 * GiB, { lease })], own);
  t.match(stage.view().processes.find(({ generation }) => generation === own), { state: 'ready' });
  const again = only([...back, ...stage.pass(1_000)], 'move');
  t.not(again.command, order.command, 'what was asked of it is asked anew');
  stage.answer(order, { kind: 'done', target: 'none', freedBytes: 4 * GiB, residentBytes: 0, hostBytes: 0 });
  t.match(stage.lease(lease), { state: 'resident' }, 'an answer to the old one is an answer to nothing');
  const freed = stage.obey(again);
  t.equal(all([...freed, ...stage.sample()], 'grant').length, 1);
});

t.test('what a worker was told to put away and has still is asked for again when its connection is back, not before', async (t) => {
  const stage = new Stage({ limits: { releaseConfirmMs: 4_000, reattachGraceMs: 60_000, sampleMaxAgeMs: 10_000 } });
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'tales', 4 * GiB);
  const evict = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'tales', target: 'none', deadlineMs: 60_000 }), 'move');
  stage.answer(evict, { kind: 'done', target: 'none', freedBytes: 4 * GiB, residentBytes: 0, hostBytes: 0 });
  stage.sample();
  stage.send({ type: 'session_closed', generation: worker, reason: 'cut' });
  const away = stage.pass(6_000);
  t.strictSame([all(away, 'move').length, all(away, 'terminate').length, stage.counter('escalations')], [0, 0, 0], 'nobody hears it');
  t.equal(stage.lease(lease)?.state, 'releasing');
  comesBack(stage, worker);
  announces(stage, [], worker);
  stage.sample();
  stage.pass(6_000);
  t.equal(stage.counter('escalations'), 1, 'its bytes are still there');
});

t.test('a connection that is not found again ends the worker', async (t) => {
  const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
  stage.card();
  const own = stage.worker();
  stage.resident(own, 'tales', 4 * GiB);
  stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
  t.match(only(stage.pass(graceMs + 500), 'terminate'), { generation: own, cause: 'session_lost' });
});

t.test('what was finished, or lost, on the way back is told and taken in', async (t) => {
  const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
  stage.card();
  const own = stage.worker();
  const granted = stage.granted(own, 'tales', 4 * GiB);
  stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
  t.strictSame(all(stage.pass(25_000), 'recall'), [], 'nobody is asked who cannot answer');
  stage.send({ type: 'process_resumed', generation: own });
  stage.ready(own);
  announces(stage, [], own);
  const recalled = only(stage.pass(11_000), 'recall');
  stage.send({ type: 'recall_answered', generation: own, command: recalled.command, lease: granted, begun: false });
  t.equal(stage.chargedBytes(), 0, 'a grant that was lost with the connection is void');

  const lease = stage.resident(own, 'sums', 4 * GiB);
  stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
  stage.take(own, -4 * GiB);
  stage.send({ type: 'process_resumed', generation: own });
  stage.ready(own);
  announces(stage, [], own);
  stage.sample();
  t.equal(stage.lease(lease), undefined, 'a model that left meanwhile is gone when it is seen gone');
});

t.test('the return of a parked model that was granted over a connection that is lost is asked after when its owner has said parked', async (t) => {
  const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
  stage.card();
  const own = stage.worker({ engine: 'python' });
  const lease = stage.resident(own, 'tales', 4 * GiB, { parkable: true });
  stage.obey(only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 901, model: 'tales', target: 'host', deadlineMs: 60_000 }), 'move'));
  stage.report(own, lease, 'parked', 0, { hostBytes: 4 * GiB });
  only(stage.ask(own, 'tales', 4 * GiB, { lease, parkable: true }).effects, 'grant');
  stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
  stage.send({ type: 'process_resumed', generation: own });
  stage.ready(own);
  t.strictSame(all(announces(stage, [held(0, { lease, state: 'parked', hostBytes: 4 * GiB, parkable: true })], own), 'recall'), [], 'it speaks of the lease: the grant may have reached it');
  t.equal(stage.chargedBytes(), plusTenth(4 * GiB));
  const recall = only(stage.pass(11_000), 'recall');
  t.equal(recall.lease, lease);
  stage.send({ type: 'recall_answered', generation: own, command: recall.command, lease, begun: false });
  t.equal(stage.chargedBytes(), 0, 'nothing stays promised to nobody');
});

t.test('what was not answered over a connection that is lost is held against nobody on the next', async (t) => {
  for (const asked of ['recall', 'move'] as const) {
    const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
    stage.card();
    const own = stage.worker({ engine: 'python' });
    const lease = asked === 'recall' ? stage.granted(own, 'tales', 4 * GiB) : stage.resident(own, 'tales', 4 * GiB);
    if (asked === 'move') stage.send({ type: 'evict_requested', generation: stage.session(), request: 901, model: 'tales', target: 'none', deadlineMs: 600_000 });
    const ends = (ms: number): number => all(stage.pass(ms), 'terminate').length;
    const untilAskedTwice = asked === 'recall' ? 20_500 : stage.core.options.limits.commandAnswerMs + 250;
    t.equal(ends(untilAskedTwice), 0, `${asked}: one strike`);
    stage.send({ type: 'session_closed', generation: own, reason: 'connection reset' });
    stage.send({ type: 'process_resumed', generation: own });
    stage.ready(own);
    announces(stage, asked === 'recall' ? [] : [held(4 * GiB, { lease })], own);
    t.equal(ends(asked === 'recall' ? 10_500 : stage.core.options.limits.commandAnswerMs + 250), 0, 'it may be the answer that was lost');
    t.equal(ends(30_000), 1, 'twice on one connection is what it is ended for');
  }
});

t.test('what comes back is a claim, and bounded like any', async (t) => {
  await t.test('a name twice, one that this broker will give, and one that none gives are not taken', async (t) => {
    const stage = restarted({ recorded: ['holder'], heldBytes: GiB });
    comesBack(stage, holder);
    const names = ['old-s4-l7', 'old-s4-l7', 'old-s4-boot-l9', 'boot-s4-l9', 'old-l7', 'nonsense', ''];
    announces(stage, names.map((lease, index) => held(MiB, { model: `model-${String(index)}`, lease })), holder);
    t.strictSame(stage.view().leases.map(({ lease, model }) => [lease, model]).sort(), names.map((_, index) => [index === 0 ? 'old-s4-l7' : `old-s4-boot-l${String(index)}`, `model-${String(index)}`]).sort());
    t.equal(stage.chargedBytes(), plusTenth(MiB) + 6 * MiB + (GiB - 7 * MiB), 'what is under no lease is charged as it is, and the rest of the figure as the floor');
  });
  await t.test('a charge beyond the card, or parts that are no sizes, count as what is there', async (t) => {
    const stage = restarted({ heldBytes: GiB });
    comesBack(stage);
    announces(stage, [
      held(GiB, { terms: terms(GiB, { chargedBytes: Number.MAX_SAFE_INTEGER }) }),
      held(0, { model: 'b', lease: 'old-w1-l8', state: 'loading', terms: terms(0, { chargedBytes: 0, parts: [weights(Number.MAX_SAFE_INTEGER), context(Number.MAX_SAFE_INTEGER)] }) }),
    ]);
    t.equal(stage.lease('old-w1-l7')?.chargedBytes, plusTenth(GiB));
    t.equal(stage.lease('old-w1-l8')?.chargedBytes, 0);
  });
  await t.test('a card that the worker cannot see gives it nothing', async (t) => {
    const stage = restarted();
    stage.card(card1);
    comesBack(stage);
    announces(stage, [held(GiB, { device: card1 })]);
    t.equal(stage.lease('old-w1-l7'), undefined);
  });
  await t.test('a record twice, or with a floor beyond the card, is taken once and without it', async (t) => {
    const stage = restarted();
    stage.send({ type: 'process_recorded', generation: worker, role: 'worker', name: 'twice', engine: 'llama', devices: [card0], floors: [] });
    t.equal(stage.counter('strayEvents'), 1);
    stage.send({ type: 'process_recorded', generation: 'old-w2', role: 'worker', name: 'w', engine: 'llama', devices: [card0, 'GPU-gone'], floors: [{ device: card0, bytes: 2 ** 52 }] });
    t.equal(stage.chargedBytes(), 0);
  });
  await t.test('a residency report before the whole is told is acknowledged, and decides nothing', async (t) => {
    const stage = restarted({ heldBytes: GiB });
    comesBack(stage);
    t.equal(all(stage.report(worker, 'old-w1-l7', 'resident', GiB), 'acknowledge').length, 1);
    t.equal(stage.lease('old-w1-l7'), undefined);
  });
  await t.test('a request that extends a lease not yet told of waits for it', async (t) => {
    const stage = restarted();
    comesBack(stage);
    const asked = stage.ask(worker, 'tales', 4 * GiB, { lease: 'old-w1-l7', parkable: true });
    t.equal(all(asked.effects, 'deny').length, 0);
    const back = announces(stage, [held(0, { state: 'parked', hostBytes: 4 * GiB, parkable: true, terms: terms(4 * GiB) })]);
    t.equal(only([...back, ...stage.sample()], 'grant').lease, 'old-w1-l7');
  });
});

t.test('what was read while it was not known whose bytes are whose decides nothing: a fresh reading is awaited', (t) => {
  const stage = restarted();
  stage.samples = false;
  const app = stage.session('holder');
  const asked = stage.ask(app, 'sums', GiB);
  t.equal(all(asked.effects, 'grant').length, 0);
  comesBack(stage);
  const opened = announces(stage, []);
  t.equal(stage.cardView().closed, null);
  t.equal(all(opened, 'grant').length, 0, 'the last reading is older than the word');
  t.equal(only(opened, 'sample').device, card0);
  t.equal(all(stage.sample(), 'grant').length, 1);
  t.end();
});

/** The figure of one process with several sessions, as its card shows it. */
function sampleShared(stage: Stage, sessions: readonly string[], bytes: number): void {
  const { byProcess } = stage.truth();
  for (const session of sessions) byProcess.delete(session);
  for (const { generation, usedBytes } of shareReading(stage.core, card0, sessions, bytes)) byProcess.set(generation, usedBytes);
  stage.sample();
}

t.test('a process with two sessions is counted once: what one has told is no floor of the other', async (t) => {
  const stage = restarted({ recorded: ['holder'] });
  const other = stage.session('holder');
  const sessions = [other, holder];
  sampleShared(stage, sessions, 4 * GiB);
  t.equal(stage.chargedBytes(), 4 * GiB, 'the bytes are those of the session that has not said what it holds');
  // A reading from before it was known that both are one process.
  stage.truth().byProcess.set(other, 4 * GiB).set(holder, 0);
  stage.sample();
  comesBack(stage, holder);
  announces(stage, [held(4 * GiB, { lease: 'old-s4-l7' })], holder);
  sampleShared(stage, sessions, 4 * GiB);
  t.match(stage.cardView(), { leasedBytes: plusTenth(4 * GiB), floorBytes: 0, residueBytes: 0, foreignBytes: 0 }, 'once it is told it is nobody’s floor');

  sampleShared(stage, sessions, 5 * GiB);
  t.match(stage.cardView(), { leasedBytes: plusTenth(4 * GiB), floorBytes: GiB }, 'what no lease explains is the first’s floor');
  const lease = stage.granted(other, 'sums', 2 * GiB);
  stage.begin(other, lease);
  sampleShared(stage, sessions, 6 * GiB);
  t.match(stage.cardView(), { leasedBytes: plusTenth(4 * GiB) + plusTenth(2 * GiB), residueBytes: 0 }, 'what loads is explained by what it was granted');
  stage.report(other, lease, 'resident', 2 * GiB, { parts: [weights(2 * GiB)], loadMs: 1 });
  sampleShared(stage, sessions, 7 * GiB);
  t.match(shareReading(stage.core, card0, sessions, 7 * GiB), [{ generation: other, usedBytes: 3 * GiB }, { generation: holder, usedBytes: 4 * GiB }]);
  t.strictSame(shareReading(stage.core, card0, sessions, 3 * GiB).reduce((sum, { usedBytes }) => sum + usedBytes, 0), 3 * GiB, 'no byte twice, and none lost');
});

t.test('what a process has said of a card counts as its floor when the card is found later: the rest that is read there is stray', async (t) => {
  for (const isTold of [true, false]) {
    const stage = new Stage({ limits: { reattachGraceMs: graceMs } });
    stage.send({ type: 'process_recorded', generation: worker, role: 'worker', name: 'worker', engine: 'python', devices: [card0], floors: isTold ? [] : [{ device: card0, bytes: 512 * MiB }] });
    stage.send({ type: 'process_resumed', generation: worker });
    stage.send({ type: 'process_ready', generation: worker, capabilities: { park: true, partial: false, embed: false, profilesFreeMemory: false }, floors: isTold ? [{ device: card0, bytes: 512 * MiB }] : [] });
    announces(stage, []);
    stage.card(card0, { floorBytes: null });
    stage.take(worker, 4 * GiB);
    stage.sample();
    announces(stage, []);
    stage.sample();
    t.match(stage.cardView(), isTold ? { floorBytes: 512 * MiB, residueBytes: 4 * GiB - 512 * MiB } : { floorBytes: 4 * GiB, residueBytes: 0 });
  }
});

t.test('what was charged for a worker before any model stays charged when a reading shows less of it, until it says itself what it costs', (t) => {
  const stage = new Stage();
  stage.card();
  stage.send({ type: 'process_recorded', generation: worker, role: 'worker', name: 'worker', engine: 'llama', devices: [card0], floors: [{ device: card0, bytes: 900 * MiB }] });
  stage.send({ type: 'process_resumed', generation: worker });
  stage.send({ type: 'process_ready', generation: worker, capabilities: { park: true, partial: false, embed: false, profilesFreeMemory: false }, floors: [] });
  announces(stage, []);
  t.equal(stage.chargedBytes(), 900 * MiB, 'back before the card could be read');
  stage.take(worker, 300 * MiB);
  stage.sample();
  t.equal(stage.chargedBytes(), 900 * MiB, 'its first compute may take the rest: what is not taken yet is nobody else\'s room');
  stage.take(worker, 700 * MiB);
  stage.sample();
  t.equal(stage.chargedBytes(), 1_000 * MiB, 'more than that is charged at once');
  stage.send({ type: 'floor_measured', generation: worker, device: card0, bytes: 1_000 * MiB });
  t.equal(stage.chargedBytes(), 1_000 * MiB);
  t.end();
});
