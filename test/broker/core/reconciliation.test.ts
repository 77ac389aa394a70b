/** What the ledger takes in against its own belief: announcements, stale and lost processes, quarantine, growth, residue. */
import t from 'tap';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage, weights } from './harness.js';
import { withIdle } from './with-idle.js';

t.test('R271: what a failed call leaves loaded without a lease is charged and can be evicted', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  stage.take(worker, 5 * GiB);
  const effects = stage.send({
    type: 'models_announced', generation: worker, seq: 1,
    models: [{ model: 'stray', lease: null, device: card0, state: 'resident', residentBytes: 5 * GiB, hostBytes: 0, inFlight: 0, parkable: false }],
  });
  const move = only(effects, 'move');
  test.match(move, { model: 'stray', target: 'none' });
  test.equal(stage.lease(move.lease)?.chargedBytes, 5 * GiB);
  test.equal(stage.counter('strays') > 0, true);
  stage.obey(move);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('R52, R272: what came and went inside one call leaves no lease; what was moved back leaves one without card bytes', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  stage.send({
    type: 'models_announced', generation: worker, seq: 1,
    models: [{ model: 'transient', lease: null, device: null, state: 'absent', residentBytes: 0, hostBytes: 0, inFlight: 0, parkable: false }],
  });
  test.equal(stage.view().leases.length, 0);
  const lease = stage.resident(worker, 'moved back', 2 * GiB, { parkable: true });
  stage.take(worker, -2 * GiB);
  stage.report(worker, lease, 'parked', 0, { hostBytes: 2 * GiB });
  stage.sample();
  test.match(stage.lease(lease), { state: 'parked', chargedBytes: 0, residentBytes: 0, hostBytes: 2 * GiB });
  test.end();
});

t.test('R48, R273: an announcement reconciles: what it lacks is released and not freed, what landed again is charged again', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.resident(worker, 'a', 4 * GiB);
  stage.samples = false;
  stage.send({ type: 'models_announced', generation: worker, seq: 2, models: [] });
  test.match(stage.lease(lease), { state: 'releasing', chargedBytes: plusTenth(4 * GiB) });
  stage.report(worker, lease, 'resident', 4 * GiB, { parts: [weights(4 * GiB)] });
  test.match(stage.lease(lease), { state: 'resident', chargedBytes: plusTenth(4 * GiB) });
  test.end();
});

t.test('an end of file, a silence and a hung engine are three ends, and each is counted as its own', (test) => {
  const stage = new Stage();
  stage.card();
  const [lost, silent, hung] = [stage.worker({ model: 'a' }), stage.worker({ model: 'b' }), stage.worker({ model: 'c' })];
  const lease = stage.resident(hung, 'c', 4 * GiB);
  test.match(only(stage.send({ type: 'session_closed', generation: lost, reason: 'reset' }), 'terminate'), { generation: lost, cause: 'session_lost' });
  stage.silence(lost);
  stage.silence(silent);
  test.match(only(stage.pass(11_000), 'terminate'), { generation: silent, cause: 'silent' });
  // The end of file of one that ends itself comes before the word of its exit.
  stage.send({ type: 'session_closed', generation: hung, reason: 'end of file' });
  const effects = stage.send({ type: 'process_exited', generation: hung, how: 'exit code 71', engineHung: true });
  test.match(all(effects, 'explain').map(({ record }) => record.text).join('; '), /its engine hung/);
  test.equal(stage.lease(lease), undefined);
  stage.exit(lost);
  stage.exit(silent);
  test.match(stage.view().counters, { 'terminations.session_lost': 2, 'terminations.silent': 1, 'exits.engine_hung': 1 });
  test.end();
});

t.test('B28: reports of a generation that is gone are stale: nobody else is touched, and the sender is told', (test) => {
  const stage = new Stage();
  stage.card();
  const old = stage.worker();
  const first = stage.resident(old, 'm', 4 * GiB);
  stage.exit(old);
  const young = stage.worker();
  const second = stage.resident(young, 'm', 4 * GiB);
  test.not(second, first, 'a lease id is never used again');
  for (const lease of [first, second]) {
    const told = stage.release(old, lease);
    test.match(only(told, 'fail'), { generation: old, code: 'generation_stale' });
    test.equal(only(stage.report(old, lease, 'absent', 0), 'fail').code, 'generation_stale');
  }
  stage.release(young, first);
  test.match(stage.lease(second), { state: 'resident', chargedBytes: plusTenth(4 * GiB) });
  test.ok(stage.counter('staleEvents') >= 4);
  test.end();
});

t.test('D7: a holder at its end of file keeps its leases; they end in quarantine, never in a kill, and with its exit', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'a', 10 * GiB);
  stage.silence(holder);
  const closed = stage.send({ type: 'session_closed', generation: holder, reason: 'end of file' });
  test.equal(stage.lease(lease)?.state, 'resident');
  const later = stage.pass(31_000);
  test.equal(all([...closed, ...later], 'terminate').length, 0);
  test.equal(stage.lease(lease)?.state, 'quarantined');
  test.equal(stage.chargedBytes(), plusTenth(10 * GiB));
  stage.exit(holder);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('D7: a holder that will not give back is quarantined; its unleased bytes are its floor, a stranger’s are foreign', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'a', 14 * GiB);
  const other = stage.session('holder');
  stage.pass(5_000);
  stage.sample();
  const asked = stage.ask(other, 'b', 12 * GiB, { deadlineMs: 300_000 });
  const moves = [...all(asked.effects, 'move')];
  const effects = stage.pass(20_000);
  moves.push(...all(effects, 'move'));
  test.ok(moves.length >= 2);
  test.equal(all(effects, 'terminate').length, 0);
  test.equal(stage.lease(lease)?.state, 'quarantined');

  const app = new Stage();
  app.card();
  const host = app.session('holder');
  app.granted(host, 'm', 1 * GiB);
  app.release(host, app.view().leases[0]!.lease, 'unused');
  app.take(host, 3 * GiB);
  app.truth().foreignBytes = 2 * GiB;
  app.sample();
  test.match(app.cardView(), { floorBytes: 3 * GiB, foreignBytes: 2 * GiB });
  app.take(host, -2 * GiB);
  app.sample();
  test.equal(app.cardView().floorBytes, 1 * GiB);
  test.end();
});

t.test('a kill that cannot be confirmed quarantines the bytes; the exit that follows after all returns them', (test) => {
  const { stage, worker, lease, holder } = withIdle();
  stage.silence(worker);
  const silent = stage.pass(11_000);
  test.match(only(silent, 'terminate'), { generation: worker, cause: 'silent' });
  const effects = stage.send({ type: 'kill_unconfirmed', generation: worker, reason: 'still there' });
  test.equal(stage.lease(lease)?.state, 'quarantined');
  test.equal(all(stage.ask(holder, 'b', 12 * GiB).effects, 'grant').length, 0);
  test.equal(all(effects, 'terminate').length, 0);
  test.equal(all(stage.exit(worker), 'grant').length, 1);
  test.end();
});

t.test('by the total alone: confirmed only in a quiet moment, one eviction at a time, nobody blamed (D16)', (test) => {
  const stage = new Stage();
  stage.card(card0, { confirms: 'total' });
  const one = stage.worker();
  const two = stage.worker();
  const a = stage.resident(one, 'a', 6 * GiB);
  const b = stage.resident(two, 'b', 6 * GiB);
  stage.pass(5_000);
  stage.sample();
  const loader = stage.session('holder');
  const loading = stage.granted(loader, 'loads', 2 * GiB);
  stage.begin(loader, loading);
  const asked = stage.ask(stage.session('holder'), 'c', 18 * GiB, { deadlineMs: 200_000 });
  const first = only(asked.effects, 'move');
  const done = stage.obey(first);
  test.equal(all(done, 'move').length, 0, 'no second eviction before the first has been seen');
  test.equal(stage.lease(first.lease)?.state, 'releasing', 'something loads: the drop proves nothing');
  stage.pass(4_000);
  const blocked = stage.ask(stage.session('holder'), 'tiny', MiB);
  test.equal(all(blocked.effects, 'grant').length, 0, 'nothing new loads until a quiet moment has passed');
  stage.take(loader, 2 * GiB);
  stage.report(loader, loading, 'resident', 2 * GiB, { parts: [weights(2 * GiB)] });
  const quiet = stage.sample();
  test.equal(stage.lease(first.lease), undefined, 'seen in the quiet moment');
  test.equal(all(quiet, 'move').length, 1, 'now the second');
  test.equal(all(stage.pass(60_000), 'terminate').filter((end) => end.cause === 'residue').length, 0);
  test.ok(a !== b);
  test.end();
});

t.test('a resize never waits: granted or denied with numbers; a dropped part frees when it is seen gone (D17)', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.granted(worker, 'm', 0, { parts: [weights(10 * GiB), context(1 * GiB, 'context:1', true)] });
  stage.load(worker, lease, 11 * GiB, { parts: [weights(10 * GiB), context(1 * GiB, 'context:1', true)] });
  stage.sample();
  const grown = stage.send({ type: 'resize_requested', generation: worker, request: 500, lease, parts: [context(2 * GiB, 'context:1', true)] });
  test.match(only(grown, 'grant'), { lease, request: 500, chargedBytes: plusTenth(12 * GiB) });
  const denied = stage.send({ type: 'resize_requested', generation: worker, request: 501, lease, parts: [context(15 * GiB, 'context:2', true)] });
  test.match(only(denied, 'deny'), { code: 'resize_denied', request: 501 });
  test.equal(all(denied, 'move').length, 0);
  stage.take(worker, 1 * GiB);
  stage.report(worker, lease, 'resident', 12 * GiB, { parts: [weights(10 * GiB), context(2 * GiB, 'context:1', true)] });
  stage.sample();
  stage.samples = false;
  stage.send({ type: 'resize_requested', generation: worker, request: 502, lease, parts: [context(0, 'context:1', true)] });
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(12 * GiB));
  stage.take(worker, -2 * GiB);
  stage.sample();
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(10 * GiB));
  test.end();
});

t.test('what a worker keeps after its lease is residue, never its floor: the next worker is not charged for it', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ floorBytes: 256 * MiB });
  const lease = stage.granted(worker, 'a', 4 * GiB);
  stage.release(worker, lease, 'unused');
  stage.take(worker, 8 * GiB);
  stage.sample();
  test.match(stage.cardView(), { floorBytes: 256 * MiB, residueBytes: 8 * GiB });
  stage.take(worker, -8 * GiB);
  stage.sample();
  test.equal(stage.cardView().residueBytes, 0);
  stage.place(stage.session(), 'another');
  test.ok(stage.cardView().floorBytes <= 512 * MiB);
  test.end();
});

t.test('an overshoot is no room: more parts are not granted into it, though the charge would cover them', (test) => {
  const stage = new Stage();
  stage.card();
  stage.truth().foreignBytes = 1 * GiB;
  stage.sample();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.granted(worker, 'm', 0, { parts: [weights(20 * GiB)] });
  stage.begin(worker, lease);
  stage.take(worker, 22 * GiB);
  stage.report(worker, lease, 'resident', 22 * GiB, { parts: [weights(20 * GiB)] });
  stage.sample();
  test.ok((stage.cardView().availableBytes ?? 0) < 0);
  const more = [weights(20 * GiB), context(GiB, 'context:1', true)];
  test.equal(all(stage.ask(worker, 'm', 0, { lease, parts: more, deadlineMs: 1_000 }).effects, 'grant').length, 0);
  test.equal(all(stage.send({ type: 'resize_requested', generation: worker, request: 700, lease, parts: [context(GiB, 'context:2', true)] }), 'grant').length, 0);
  test.equal(all(stage.pass(1_500), 'deny').length, 1);
  test.equal(only(stage.ask(worker, 'm', 0, { lease, parts: [weights(20 * GiB)] }).effects, 'grant').lease, lease, 'what it has it may claim again');
  test.end();
});

t.test('a sample taken in a load that has ended when it arrives shows that load, and no stranger', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  stage.samples = false;
  const lease = stage.granted(worker, 'a', 6 * GiB);
  stage.begin(worker, lease);
  stage.take(worker, 6 * GiB);
  const inTheLoadAtUs = stage.nowUs;
  stage.report(worker, lease, 'resident', 6 * GiB, { parts: [weights(6 * GiB)] });
  // It grows at once: a second load, begun before any sample was taken after the first.
  only(stage.send({ type: 'resize_requested', generation: worker, request: 900, lease, parts: [context(GiB)] }), 'grant');
  stage.sample(card0, inTheLoadAtUs);
  test.match(stage.cardView(), { foreignBytes: 0, availableBytes: 24 * GiB - plusTenth(7 * GiB) });
  stage.take(worker, GiB);
  stage.report(worker, lease, 'resident', 7 * GiB, { parts: [weights(6 * GiB), context(GiB)] });
  stage.sample();
  test.match(stage.cardView(), { foreignBytes: 0, availableBytes: 24 * GiB - plusTenth(7 * GiB) });
  test.end();
});

t.test('a sample taken at the peak of a load that has ended when it arrives blames nobody for the surplus', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 12 * GiB });
  const worker = stage.worker();
  stage.samples = false;
  const lease = stage.granted(worker, 'a', 5 * GiB, { peakBytes: 10 * GiB });
  stage.begin(worker, lease);
  stage.take(worker, 10 * GiB);
  const atThePeakAtUs = stage.nowUs;
  const effects = stage.report(worker, lease, 'resident', 5 * GiB, { parts: [weights(5 * GiB)] });
  effects.push(...stage.sample(card0, atThePeakAtUs));
  test.match(stage.cardView(), { residueBytes: 0, foreignBytes: 0, leasedBytes: plusTenth(5 * GiB) });
  test.equal(all(effects, 'move').length, 0, 'nor is the model put away for it');
  stage.sample();
  test.equal(stage.cardView().residueBytes, 10 * GiB - plusTenth(5 * GiB), 'what a sample taken after the load still shows is charged');
  test.end();
});

t.test('a sample taken before a load that has ended when it arrives corrects no floor and confirms no release', (test) => {
  const stage = new Stage();
  stage.card(card0, { floorBytes: null });
  const worker = stage.worker({ engine: 'python', floorBytes: null });
  const leaving = stage.resident(worker, 'leaving', 3 * GiB);
  stage.samples = false;
  stage.take(worker, 100 * MiB);
  stage.send({ type: 'floor_measured', generation: worker, device: card0, bytes: 100 * MiB });
  const coming = stage.granted(worker, 'coming', 4 * GiB);
  stage.release(worker, leaving);
  const beforeTheLoadAtUs = stage.nowUs;
  stage.begin(worker, coming);
  stage.report(worker, coming, 'resident', 4 * GiB, { parts: [weights(4 * GiB)] });
  stage.sample(card0, beforeTheLoadAtUs);
  test.equal(stage.lease(leaving)?.state, 'releasing', 'its bytes are in that figure, and the other model is not');
  test.equal(stage.counter('floorsDoubted'), 0);
  stage.take(worker, 4 * GiB - 3 * GiB);
  stage.sample();
  test.equal(stage.lease(leaving), undefined);
  stage.sample();
  test.match(stage.cardView(), { leasedBytes: plusTenth(4 * GiB), floorBytes: 100 * MiB, residueBytes: 0 });
  stage.exit(worker);
  stage.sample();
  only(stage.place(stage.session(), 'next', { engine: 'python' }).effects, 'spawn');
  test.equal(stage.cardView().floorBytes, 100 * MiB, 'the next of that engine is charged what the first has said');
  test.end();
});

t.test('an answer to a command of an earlier stay on the card says nothing of the next', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.resident(worker, 'a', 4 * GiB, { parkable: true });
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'a', target: 'host', deadlineMs: 60_000 }), 'move');
  stage.take(worker, -4 * GiB);
  stage.report(worker, lease, 'parked', 0, { hostBytes: 4 * GiB });
  stage.sample();
  test.equal(stage.lease(lease)?.state, 'parked');
  only(stage.ask(worker, 'a', 4 * GiB, { lease, parkable: true }).effects, 'grant');
  stage.load(worker, lease, 4 * GiB);
  stage.answer(move, { kind: 'done', target: 'host', freedBytes: 4 * GiB, residentBytes: 0, hostBytes: 4 * GiB });
  test.match(stage.lease(lease), { state: 'resident', chargedBytes: plusTenth(4 * GiB) });
  test.equal(stage.counter('answersIgnored'), 1);
  test.end();
});

t.test('a holder thought lost that says its grant had never come keeps no bytes charged', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.granted(holder, 'a', 4 * GiB);
  const recall = only(stage.pass(11_000), 'recall');
  stage.pass(60_000);
  test.match(stage.lease(lease), { state: 'quarantined', chargedBytes: plusTenth(4 * GiB) }, 'it does not answer');
  stage.send({ type: 'recall_answered', generation: holder, command: recall.command, lease, begun: false });
  test.equal(stage.lease(lease), undefined);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('a process that is no longer listed and has left the wire confirms nothing by a figure of 0: its exit does', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'a', 6 * GiB);
  stage.samples = false;
  stage.release(holder, lease);
  stage.send({ type: 'session_closed', generation: holder, reason: 'end of file' });
  // It has died; the driver has not given its bytes back yet, and lists it no more.
  stage.take(holder, -6 * GiB);
  stage.truth().foreignBytes = 6 * GiB;
  stage.sample();
  test.match(stage.lease(lease), { state: 'releasing', chargedBytes: plusTenth(6 * GiB) });
  stage.exit(holder);
  test.equal(stage.cardView().returningBytes, plusTenth(6 * GiB));
  stage.truth().foreignBytes = 0;
  stage.sample();
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('what a process had taken of a load, or of its start, is not a stranger’s when it vanishes from the list before its end is known', (test) => {
  for (const dies of ['loading', 'starting', 'loading, read by another rung in between'] as const) {
    const stage = new Stage();
    stage.card(card0, { floorBytes: 3 * GiB });
    stage.samples = false;
    const generation = dies === 'starting' ? only(stage.place(stage.session(), 'a', { device: card0 }).effects, 'spawn').generation : stage.session('holder');
    stage.sample();
    if (dies !== 'starting') stage.begin(generation, stage.granted(generation, 'a', 6 * GiB));
    stage.take(generation, 2 * GiB);
    stage.sample();
    // It has died; the driver has not given its bytes back yet, and lists it no more.
    stage.take(generation, -2 * GiB);
    stage.truth().foreignBytes = 2 * GiB;
    if (dies === 'loading, read by another rung in between') {
      stage.truth().confirms = 'total';
      stage.sample();
      stage.truth().confirms = 'process';
    }
    stage.sample();
    stage.exit(generation);
    stage.sample();
    test.equal(stage.cardView().returningBytes, 2 * GiB, dies);
    test.equal(stage.cardView().foreignBytes, 0, 'nobody else’s');
    stage.truth().foreignBytes = 0;
    stage.sample();
    test.equal(stage.chargedBytes(), 0);
  }
  test.end();
});

t.test('a reading taken before the ledger alone took a release for done, and come after it, is held against nobody', (test) => {
  const stage = new Stage({ allowLedgerOnly: true });
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.resident(worker, 'a', 6 * GiB);
  stage.samples = false;
  stage.truth().failing = 'timed_out';
  stage.pass(stage.core.options.limits.sampleMaxAgeMs + 500);
  stage.sample();
  const readAtUs = stage.nowUs;
  stage.release(worker, lease);
  test.equal(stage.lease(lease), undefined, 'by the ledger alone');
  stage.truth().failing = null;
  stage.sample(card0, readAtUs);
  test.equal(stage.cardView().residueBytes, 0, 'its bytes were there when the card was read, and nobody knows whether they still are');
  test.equal(stage.cardView().availableBytes, 18 * GiB, 'nor are they given to anybody');
  stage.sample();
  test.equal(stage.cardView().residueBytes, 6 * GiB, 'a reading taken since shows that they are');
  stage.take(worker, -6 * GiB);
  stage.sample();
  test.equal(stage.cardView().residueBytes, 0);
  test.end();
});

t.test('what a worker takes that is ended while it starts is charged until its exit', (test) => {
  const stage = new Stage({ limits: { workersMax: 1 } });
  stage.card();
  const flood = stage.session();
  const { generation } = only(stage.place(flood, 'a').effects, 'spawn');
  test.equal(only(stage.send({ type: 'session_closed', generation: flood, reason: 'end of file' }), 'terminate').generation, generation);
  test.equal(all(stage.place(stage.session(), 'b').effects, 'spawn').length, 0, 'it has its place until it is gone');
  stage.ready(generation, { floorBytes: 500 * MiB });
  test.equal(stage.cardView().floorBytes, 500 * MiB);
  test.equal(all(stage.effects, 'placed').length, 0, 'it is not wanted any more');
  test.equal(all(stage.exit(generation), 'spawn').length, 1);
  stage.sample();
  test.equal(stage.cardView().returningBytes, 0);
  test.end();
});

/** A model of 6 GiB whose worker says that it is parked, before anybody has seen it gone. */
function parkedUnseen(): { readonly stage: Stage; readonly worker: string; readonly lease: string } {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 6 * GiB, { parkable: true });
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 901, model: 'a', target: 'host', deadlineMs: 60_000 }), 'move');
  stage.samples = false;
  stage.answer(move, { kind: 'done', target: 'host', freedBytes: 6 * GiB, residentBytes: 0, hostBytes: 6 * GiB });
  return { stage, worker, lease };
}

t.test('a park said to be done too soon, then said to have more, and then to be done is seen anew, and frees what it had', (test) => {
  const { stage, worker, lease } = parkedUnseen();
  stage.report(worker, lease, 'parking', 6.5 * GiB);
  const beforeItWasDoneAtUs = stage.nowUs;
  stage.report(worker, lease, 'parked', 0, { hostBytes: 6 * GiB });
  stage.sample(card0, beforeItWasDoneAtUs);
  test.equal(stage.lease(lease)?.state, 'releasing', 'a sample taken before says nothing of it');
  stage.take(worker, -6 * GiB);
  const effects = stage.sample();
  test.match(only(effects, 'report_evicted'), { freedBytes: 6 * GiB });
  test.match(stage.lease(lease), { state: 'parked', chargedBytes: 0 });
  test.end();
});

t.test('a parked model that is charged for what it said in between gives that back before it returns', (test) => {
  const { stage, worker, lease } = parkedUnseen();
  stage.report(worker, lease, 'parking', 6 * GiB);
  stage.sample();
  test.match(stage.lease(lease), { state: 'parked', chargedBytes: 6 * GiB }, 'by its own word');
  stage.report(worker, lease, 'parked', 0, { hostBytes: 6 * GiB });
  const back = stage.ask(worker, 'a', 6 * GiB, { lease, parkable: true });
  test.match(only(back.effects, 'wait').reason, /bytes that this model gives back are being measured/);
  stage.take(worker, -6 * GiB);
  test.match(only(stage.sample(), 'grant'), { request: back.request, chargedBytes: plusTenth(6 * GiB) });
  test.end();
});
