/** Freeing: plans, commands, answers, confirmation by measurement, and the ladder when it does not come. */
import t from 'tap';
import { explainRecords, type Effect } from '../../../broker/core/index.js';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage } from './harness.js';
import { withIdle } from './with-idle.js';

t.test('an eviction is planned, commanded, confirmed by measurement, and only then granted on', (test) => {
  const { stage, lease, holder } = withIdle();
  const asked = stage.ask(holder, 'b', 12 * GiB);
  const move = only(asked.effects, 'move');
  test.match(move, { lease, target: 'none', when: 'now', bytes: null });
  const plan = explainRecords(stage.core).find((record) => record.verdict === 'evicting');
  test.match(plan, { request: asked.request, model: 'b', victims: [{ lease, passedOver: null, action: 'unload' }] });
  stage.samples = false;
  const done = stage.answer(move, { kind: 'done', target: 'none', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(all(done, 'grant').length, 0, 'an acknowledgement frees nothing');
  test.equal(stage.lease(lease)?.state, 'releasing');
  test.equal(stage.chargedBytes(), plusTenth(14 * GiB));
  stage.take(move.generation, -14 * GiB);
  const grant = only(stage.sample(), 'grant');
  test.equal(grant.request, asked.request);
  test.equal(stage.lease(lease), undefined);
  test.end();
});

t.test('B35: bytes that return slowly are granted when enough is measured, never on the old number', (test) => {
  const { stage, worker, holder } = withIdle();
  stage.exit(worker, { keepsBytes: true });
  const asked = stage.ask(holder, 'b', 18 * GiB);
  test.equal(all(asked.effects, 'grant').length, 0);
  let grantedAtMs: number | null = null;
  for (let ms = 500; ms <= 7_500; ms += 500) {
    const left = ms <= 2_000 ? 14 * GiB : Math.max(0, Math.round((14 * GiB * (7_000 - ms)) / 5_000));
    stage.truth().byProcess.set(worker, left);
    const effects = [...stage.pass(500), ...stage.sample()];
    if (all(effects, 'grant').length > 0) grantedAtMs ??= ms;
    if (grantedAtMs === null) test.ok(24 * GiB - left < plusTenth(18 * GiB), `${String(ms)} ms: not yet enough`);
  }
  test.ok(grantedAtMs !== null && grantedAtMs >= 5_500 && grantedAtMs <= 6_000, `granted at ${String(grantedAtMs)} ms, when enough was back`);
  test.equal(stage.cardView().returningBytes, 0);
  test.end();
});

t.test('B35: bytes that never return end in a clear denial at the deadline, and nobody is granted on them', (test) => {
  const { stage, worker, holder } = withIdle();
  stage.exit(worker, { keepsBytes: true });
  stage.ask(holder, 'b', 18 * GiB, { deadlineMs: 20_000 });
  const deny = only(stage.pass(21_000), 'deny');
  test.equal(deny.code, 'deadline_passed');
  test.match(deny.details['reason'], /GiB needed/);
  test.equal(stage.cardView().returningBytes > 0, true);
  test.end();
});

t.test('B34: a crash closes the lease on the exit; its bytes are returning until a sample shows them gone; missed samples touch nobody', (test) => {
  const stage = new Stage();
  stage.card();
  const crashed = stage.worker();
  const healthy = stage.worker();
  const gone = stage.resident(crashed, 'a', 8 * GiB);
  const kept = stage.resident(healthy, 'b', 4 * GiB);
  stage.truth().failing = 'failed';
  for (let miss = 0; miss < 3; miss++) stage.sample();
  test.equal(stage.lease(kept)?.chargedBytes, plusTenth(4 * GiB));
  stage.exit(crashed, { keepsBytes: true });
  test.equal(stage.lease(gone), undefined);
  test.equal(stage.cardView().returningBytes, plusTenth(8 * GiB));
  stage.truth().failing = null;
  stage.truth().byProcess.set(crashed, 3 * GiB);
  stage.sample();
  test.equal(stage.cardView().returningBytes, 3 * GiB, 'to the byte');
  stage.truth().byProcess.delete(crashed);
  stage.sample();
  test.equal(stage.cardView().returningBytes, 0);
  test.end();
});

t.test('on a card that nothing measures the exit itself frees, and so does the word of its owner', (test) => {
  const stage = new Stage({ allowLedgerOnly: true });
  stage.samples = false;
  stage.card(card0, { confirms: 'none' });
  stage.send({ type: 'sample_failed', device: card0, reading: 'unsupported', reason: 'no probe' });
  const worker = stage.worker();
  const a = stage.granted(worker, 'a', 8 * GiB);
  stage.load(worker, a, 8 * GiB);
  stage.release(worker, a);
  test.equal(stage.lease(a), undefined);
  const b = stage.granted(worker, 'b', 8 * GiB);
  stage.load(worker, b, 8 * GiB);
  stage.exit(worker);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('B41, B46: park is acknowledged and 16 of 18 GiB stay: charged, escalated to unload, to the end of the process, granted to nobody', (test) => {
  const stage = new Stage();
  stage.card(card0, { floorBytes: 2 * GiB });
  const worker = stage.worker({ floorBytes: 2 * GiB });
  const lease = stage.resident(worker, 'a', 16 * GiB, { parkable: true });
  const holder = stage.session('holder');
  stage.pass(5_000);
  stage.sample();
  const asked = stage.ask(holder, 'b', 10 * GiB, { deadlineMs: 300_000 });
  const park = only(asked.effects, 'move');
  test.equal(park.target, 'host');
  stage.take(worker, -2 * GiB);
  const acked = stage.answer(park, { kind: 'done', target: 'host', freedBytes: 16 * GiB, residentBytes: 0, hostBytes: 16 * GiB });
  test.equal(all(acked, 'grant').length, 0);
  test.equal(stage.lease(lease)?.chargedBytes, 14 * GiB, 'what is measured to be there is charged');
  const unload = only(stage.pass(31_000), 'move');
  test.match(unload, { lease, target: 'none' });
  stage.answer(unload, { kind: 'done', target: 'none', freedBytes: 0, residentBytes: 0, hostBytes: 0 });
  const ended = only(stage.pass(31_000), 'terminate');
  test.match(ended, { generation: worker, cause: 'residue' });
  test.equal(stage.cardView().residueBytes, 14 * GiB);
  test.ok(stage.counter('escalations') >= 2);
  const after = stage.exit(worker);
  test.equal(all(after, 'grant').length, 1, 'granted by the exit, seen by the sample');
  test.end();
});

t.test('B43: the floor is charged while its process lives; without models it ends after its idle time and the floor goes', (test) => {
  const stage = new Stage({ limits: { workerIdleMs: 10_000 } });
  stage.card();
  const worker = stage.worker({ floorBytes: 600 * MiB, model: 'a' });
  const lease = stage.resident(worker, 'a', 3 * GiB);
  stage.take(worker, -3 * GiB);
  stage.release(worker, lease);
  test.equal(stage.chargedBytes(), 600 * MiB);
  const ended = only(stage.pass(11_000), 'terminate');
  test.match(ended, { generation: worker, cause: 'idle' });
  stage.exit(worker);
  test.equal(stage.chargedBytes(), 0);
  const again = stage.place(stage.session(), 'b');
  test.equal(stage.cardView().floorBytes, 600 * MiB, 'the next process of that engine is charged what was learned');
  test.ok(only(again.effects, 'spawn'));
  test.end();
});

t.test('B44: a load that fails and leaves bytes behind: charged, nothing else granted to that process, and the process ended', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python', floorBytes: 512 * MiB });
  const lease = stage.granted(worker, 'a', 12 * GiB);
  stage.begin(worker, lease);
  stage.take(worker, 9 * GiB);
  stage.release(worker, lease, 'load_failed', { code: 'load_failed', message: 'at 70 %' });
  test.equal(stage.lease(lease)?.chargedBytes, 9 * GiB);
  const next = stage.ask(worker, 'b', GiB);
  test.equal(all(next.effects, 'grant').length, 0, 'nothing is granted to it before it has been measured clean');
  const effects = stage.pass(31_000);
  test.match(only(effects, 'terminate'), { generation: worker, cause: 'residue' });
  test.equal(only(effects, 'deny').code, 'shutting_down');
  test.equal(stage.cardView().residueBytes, 9 * GiB);
  stage.exit(worker);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('B44: a load that fails and leaves nothing behind costs one measurement', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python', floorBytes: 512 * MiB });
  const lease = stage.granted(worker, 'a', 12 * GiB);
  stage.begin(worker, lease);
  stage.release(worker, lease, 'load_failed', { code: 'load_failed', message: 'no such file' });
  test.equal(stage.lease(lease), undefined);
  test.equal(all(stage.ask(worker, 'b', GiB).effects, 'grant').length, 1);
  test.end();
});

t.test('B46: host and none are different targets: parked keeps its lease and its host copy, unloaded keeps neither', (test) => {
  const { stage, worker, lease, holder } = withIdle({ park: true, parkable: true });
  const park = only(stage.ask(holder, 'b', 12 * GiB).effects, 'move');
  test.equal(park.target, 'host');
  stage.obey(park);
  test.match(stage.lease(lease), { state: 'parked', chargedBytes: 0, hostBytes: 14 * GiB });
  const client = stage.session();
  const wish = stage.send({ type: 'evict_requested', generation: client, request: 77, model: 'a', target: 'none', deadlineMs: 10_000 });
  const unload = only(wish, 'move');
  test.match(unload, { lease, target: 'none' });
  const done = stage.answer(unload, { kind: 'done', target: 'none', freedBytes: 0, residentBytes: 0, hostBytes: 0 });
  test.match(only(done, 'report_evicted'), { request: 77, freedBytes: 0 });
  test.equal(stage.lease(lease), undefined);
  test.ok(worker);
  test.end();
});

t.test('a parked model asks again, gets the same lease and is charged anew', (test) => {
  const { stage, worker, lease, holder } = withIdle({ park: true, parkable: true });
  stage.obey(only(stage.ask(holder, 'b', 12 * GiB).effects, 'move'));
  stage.sample();
  const back = only(stage.ask(worker, 'a', 5 * GiB, { lease, parkable: true }).effects, 'grant');
  test.match(back, { lease, chargedBytes: plusTenth(5 * GiB) });
  stage.load(worker, lease, 5 * GiB);
  test.equal(stage.lease(lease)?.state, 'resident');
  test.end();
});

t.test('B47: a model that cannot be parked is unloaded: (a) the worker says so, (b) it says ok and nothing moves', (test) => {
  const refused = withIdle({ park: true, parkable: true });
  const park = only(refused.stage.ask(refused.holder, 'b', 12 * GiB).effects, 'move');
  const instead = only(refused.stage.answer(park, { kind: 'unsupported', message: '8 bit' }), 'move');
  test.match(instead, { lease: refused.lease, target: 'none' });
  test.equal(all(refused.stage.obey(instead), 'grant').length, 1);

  const lied = withIdle({ park: true, parkable: true });
  const ok = only(lied.stage.ask(lied.holder, 'b', 12 * GiB).effects, 'move');
  lied.stage.answer(ok, { kind: 'done', target: 'host', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 14 * GiB });
  test.equal(lied.stage.lease(lied.lease)?.chargedBytes, 14 * GiB);
  test.match(only(lied.stage.pass(31_000), 'move'), { lease: lied.lease, target: 'none' });
  test.end();
});

t.test('what may be the bytes of a load in the same process is charged, and blamed on no release while the load gets on', (test) => {
  const stage = new Stage({ modelsPerWorker: 8 });
  stage.card();
  const worker = stage.worker();
  stage.resident(worker, 'a', 4 * GiB);
  stage.pass(5_000);
  const loading = stage.granted(worker, 'b', 6 * GiB);
  stage.begin(worker, loading);
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 900, model: 'a', target: 'none', deadlineMs: 300_000 }), 'move');
  stage.take(worker, -3 * GiB);
  stage.answer(move, { kind: 'done', target: 'none', freedBytes: 4 * GiB, residentBytes: 0, hostBytes: 0 });
  const residues = (effects: readonly Effect[]): number => all(effects, 'publish').filter(({ name }) => name === 'residue').length;
  for (let seconds = 0; seconds < 90; seconds += 30) {
    test.equal(residues(stage.pass(30_000)), 0, 'it may be what the load has taken by now');
    stage.take(worker, 100 * MiB);
    stage.sample();
  }
  test.equal(stage.counter('escalations'), 0);
  test.equal(stage.lease(move.lease)?.chargedBytes, 1 * GiB, 'and nobody else is granted it');
  const stalled = stage.pass(95_000);
  test.equal(residues(stalled), 1, 'a load that does not get on explains nothing for ever');
  test.end();
});

t.test('B47: a model that says it cannot be parked is never asked to', (test) => {
  const { stage, holder } = withIdle({ park: true, parkable: false });
  test.equal(only(stage.ask(holder, 'b', 12 * GiB).effects, 'move').target, 'none');
  test.end();
});

t.test('B49: what stays above the floor after a park is reported with its size', (test) => {
  const { stage, worker, lease, holder } = withIdle({ park: true, parkable: true });
  const park = only(stage.ask(holder, 'b', 12 * GiB).effects, 'move');
  stage.take(worker, -13 * GiB);
  stage.answer(park, { kind: 'done', target: 'host', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 14 * GiB });
  test.equal(stage.lease(lease)?.chargedBytes, 1 * GiB);
  const residue = all(stage.pass(31_000), 'publish').find((event) => event.name === 'residue');
  test.match(residue?.data, { lease, bytes: 1 * GiB });
  test.end();
});

t.test('B193: busy 5 ms before the command arrives: answered at once, nothing waits; unloaded all the same later, that is taken in once and grants nothing twice', (test) => {
  const { stage, worker, lease, holder } = withIdle();
  const move = only(stage.ask(holder, 'b', 12 * GiB, { deadlineMs: 2_000 }).effects, 'move');
  test.ok(move.expiresMs <= 5_000, 'a command carries its expiry');
  stage.use(worker, lease, 1);
  stage.answer(move, { kind: 'busy', inFlight: 1 });
  test.equal(stage.lease(lease)?.state, 'resident');
  const deny = only(stage.pass(2_500), 'deny');
  test.equal(deny.code, 'deadline_passed');
  const late = stage.answer(move, { kind: 'done', target: 'none', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(all(late, 'grant').length, 0, 'an answered command answers nothing again');
  test.ok(stage.counter('answersIgnored') > 0);
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(14 * GiB), 'and frees nothing');
  stage.use(worker, lease, 0);
  stage.take(worker, -14 * GiB);
  test.equal(all(stage.report(worker, lease, 'absent', 0), 'grant').length, 0, 'the worker says what is so: a change of state, for nobody who has given up');
  test.equal(stage.lease(lease), undefined);
  test.equal(stage.chargedBytes(), 0);
  const next = [stage.ask(holder, 'c', 12 * GiB), stage.ask(holder, 'd', 12 * GiB)];
  test.strictSame(next.map(({ effects }) => all(effects, 'grant').length), [1, 0], 'its bytes are given away once');
  test.end();
});

t.test('B193: a command that was given up and was executed late all the same is a change of state: the ledger is right', (test) => {
  const { stage, worker, lease, holder } = withIdle();
  const move = only(stage.ask(holder, 'b', 12 * GiB, { deadlineMs: 120_000 }).effects, 'move');
  const overdue = stage.pass(5_250);
  test.equal(only(overdue, 'cancel_command').command, move.command);
  test.equal(stage.lease(lease)?.state, 'resident', 'still there as far as anybody knows');
  stage.take(worker, -14 * GiB);
  const late = stage.answer(move, { kind: 'done', target: 'none', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(all(late, 'grant').length, 1, 'measured, and granted once');
  test.equal(stage.lease(lease), undefined);
  test.end();
});

t.test('B182: duplicate answers, answers to nothing and answers of others change nothing and are counted', (test) => {
  const { stage, lease, holder } = withIdle();
  const move = only(stage.ask(holder, 'b', 12 * GiB).effects, 'move');
  const done = { kind: 'done', target: 'none', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 0 } as const;
  stage.answer({ generation: holder, command: move.command }, done);
  stage.answer({ generation: move.generation, command: 4_711 }, done);
  test.equal(stage.lease(lease)?.state, 'resident', 'a stolen id and an unknown one');
  test.equal(stage.counter('answersIgnored'), 2);
  stage.obey(move);
  stage.answer(move, done);
  test.equal(stage.counter('answersIgnored'), 3);
  test.end();
});

t.test('more freed than was ever held is not believed', (test) => {
  const { stage, worker, holder } = withIdle();
  const move = only(stage.ask(holder, 'b', 12 * GiB).effects, 'move');
  stage.take(worker, -1 * GiB);
  const done = stage.answer(move, { kind: 'done', target: 'none', freedBytes: 99 * GiB, residentBytes: 0, hostBytes: 0 });
  test.equal(all(done, 'grant').length, 0);
  test.equal(stage.counter('moreFreedThanHeld'), 1);
  test.equal(stage.chargedBytes(), 13 * GiB);
  test.end();
});

t.test('R43, R44, R268: a short return is a signal: all of the victim next, then the next victim; freed is what the card shows', (test) => {
  const stage = new Stage();
  stage.card();
  const python = stage.worker({ engine: 'python', partial: true });
  const a = stage.resident(python, 'a', 10 * GiB, { parkable: true });
  const other = stage.worker({ engine: 'python-b', partial: true });
  const b = stage.resident(other, 'b', 8 * GiB, { parkable: true });
  const holder = stage.session('holder');
  stage.pass(5_000);
  stage.sample();
  const asked = stage.ask(holder, 'c', 6 * GiB);
  const part = only(asked.effects, 'move');
  test.ok(part.bytes !== null && part.bytes < 8 * GiB, 'a part suffices');
  const victim = part.lease === a ? a : b;
  const next = victim === a ? b : a;
  stage.take(part.generation, -MiB * 64);
  const short = stage.answer(part, { kind: 'done', target: 'host', freedBytes: 64 * MiB, residentBytes: (stage.lease(victim)?.residentBytes ?? 0) - 64 * MiB, hostBytes: 64 * MiB });
  test.equal(all(short, 'grant').length, 0);
  const full = all([...short, ...stage.pass(1_000)], 'move').find((move) => move.lease === victim);
  test.equal(full?.bytes, null, 'all of it now');
  const failed = stage.answer(full!, { kind: 'failed', code: 'move_failed', message: 'stuck', residentBytes: null });
  const unload = only(failed, 'move');
  test.match(unload, { lease: victim, target: 'none' });
  const ended = stage.answer(unload, { kind: 'failed', code: 'move_failed', message: 'stuck', residentBytes: null });
  test.match(only(ended, 'terminate'), { generation: part.generation, cause: 'command_failed' });
  test.equal(all(stage.exit(part.generation), 'grant').length, 1);
  test.ok(Math.abs(24 * GiB - stage.usedBytes() - (24 * GiB - (stage.lease(next)?.residentBytes ?? 0))) <= 16 * MiB, 'freed equals what the card shows, within a granule');
  test.end();
});

t.test('R47, R269: a victim that is killed mid-command frees only when its exit is confirmed and measured', (test) => {
  const { stage, worker, holder } = withIdle();
  stage.ask(holder, 'b', 12 * GiB);
  const closed = stage.send({ type: 'session_closed', generation: worker, reason: 'reset' });
  test.match(only(closed, 'terminate'), { generation: worker });
  test.equal(all(closed, 'grant').length, 0);
  test.equal(stage.chargedBytes(), plusTenth(14 * GiB));
  test.equal(all(stage.exit(worker), 'grant').length, 1);
  const again = stage.place(stage.session(), 'a');
  test.not(only(again.effects, 'spawn').generation, worker, 'no generation is used twice');
  test.end();
});

t.test('R47, R270: a victim that is alive and does not answer has freed nothing: the next is tried, and the ledger still shows it', (test) => {
  const stage = new Stage();
  stage.card();
  const deaf = stage.worker();
  const a = stage.resident(deaf, 'a', 10 * GiB);
  const good = stage.worker();
  const b = stage.resident(good, 'b', 10 * GiB);
  stage.use(good, b, 1);
  stage.use(good, b, 0);
  const holder = stage.session('holder');
  stage.pass(5_000);
  stage.sample();
  const first = only(stage.ask(holder, 'c', 9 * GiB, { deadlineMs: 100_000 }).effects, 'move');
  const effects = stage.pass(5_500);
  test.equal(only(effects, 'cancel_command').command, first.command);
  const second = only(effects, 'move');
  test.not(second.lease, first.lease);
  test.equal(stage.lease(first.lease)?.state, 'resident');
  test.equal(stage.lease(first.lease)?.chargedBytes, plusTenth(10 * GiB));
  test.equal(all(stage.obey(second), 'grant').length, 1);
  test.ok(a);
  test.end();
});

t.test('R36, R37: victims go one by one where only the total is known, and no more of them once it is enough; never the requester', (test) => {
  const stage = new Stage();
  stage.card(card0, { confirms: 'total' });
  const python = stage.worker({ engine: 'python' });
  const own = stage.resident(python, 'own', 3 * GiB);
  const [a, b] = [stage.resident(stage.worker(), 'a', 6 * GiB), stage.resident(stage.worker(), 'b', 6 * GiB)];
  const host = stage.session('holder');
  const kept = stage.resident(host, 'kept', 5 * GiB, { policy: { pinned: true } });
  stage.pass(5_000);
  stage.sample();
  const asked = stage.ask(python, 'own', 0, { lease: own, parts: [context(9 * GiB)], deadlineMs: 90_000 });
  const first = only(asked.effects, 'move');
  test.ok([a, b].includes(first.lease), 'one of the two that it takes');
  const plan = explainRecords(stage.core).find((record) => record.verdict === 'evicting');
  test.equal(plan?.victims.find((victim) => victim.lease === own)?.passedOver, 'requester');
  test.equal(plan?.victims.filter((victim) => victim.passedOver === null).length, 2);
  stage.take(host, -5 * GiB);
  stage.release(host, kept);
  const effects = [...stage.obey(first), ...stage.pass(5_000)];
  test.equal(only(effects, 'grant').request, asked.request, 'what a third one gave back meanwhile is enough');
  test.equal(all(effects, 'move').length, 0, 'so the second victim stays');
  test.equal(stage.lease(first.lease === a ? b : a)?.state, 'resident');
  test.end();
});

t.test('R40, R46: a model without bytes on the card is no victim; it frees nothing', (test) => {
  const { stage, lease, holder } = withIdle({ park: true, parkable: true });
  stage.obey(only(stage.ask(holder, 'b', 12 * GiB).effects, 'move'));
  stage.sample();
  test.match(stage.lease(lease), { state: 'parked', residentBytes: 0 });
  const bystander = stage.resident(stage.worker(), 'c', 8 * GiB);
  stage.pass(5_000);
  stage.sample();
  const effects = [...stage.ask(stage.session('holder'), 'd', 9 * GiB).effects, ...stage.pass(1_000)];
  test.equal(only(effects, 'move').lease, bystander);
  const named = explainRecords(stage.core, { count: 100 }).filter((record) => record.model === 'd').flatMap((record) => record.victims.map((victim) => victim.lease));
  test.notOk(named.includes(lease), 'nor is it looked at');
  test.end();
});

t.test('R95: to evict what is in no process starts none, and is answered at once', (test) => {
  const { stage, worker } = withIdle();
  stage.exit(worker);
  const effects = stage.send({ type: 'evict_requested', generation: stage.session(), request: 9, model: 'a', target: 'none', deadlineMs: 10_000 });
  test.match(only(effects, 'report_evicted'), { request: 9, freedBytes: 0 });
  test.equal(all(effects, 'spawn').length + all(effects, 'move').length, 0);
  test.end();
});

t.test('R123: an eviction never crosses cards, though the other one has the room', (test) => {
  const stage = new Stage();
  stage.card();
  stage.card('GPU-1');
  const here = stage.resident(stage.worker(), 'here', 10 * GiB);
  stage.resident(stage.session('holder'), 'pinned', 6 * GiB, { policy: { pinned: true } });
  const there = stage.resident(stage.worker({ device: 'GPU-1' }), 'there', 20 * GiB, { device: 'GPU-1' });
  stage.pass(5_000);
  stage.sample();
  stage.sample('GPU-1');
  const holder = stage.session('holder');
  test.equal(only(stage.ask(holder, 'fits by one', 12 * GiB).effects, 'move').lease, here);
  const second = stage.ask(stage.session('holder'), 'fits by none', 18 * GiB, { deadlineMs: 5_000 });
  const effects = [...second.effects, ...stage.pass(6_000)];
  test.equal(all(effects, 'move').filter((move) => move.lease === there).length, 0);
  test.match(all(effects, 'deny').find((deny) => deny.request === second.request), { code: 'deadline_passed' });
  test.equal(stage.lease(there)?.state, 'resident');
  test.end();
});

t.test('a worker that leaves two commands unanswered is ended, but never with a call inside (D19)', (test) => {
  const { stage, worker, lease, holder } = withIdle();
  stage.ask(holder, 'b', 12 * GiB, { deadlineMs: 200_000 });
  const effects = stage.pass(16_000);
  test.equal(all(effects, 'move').length, 1, 'asked a second time');
  test.match(only(effects, 'terminate'), { generation: worker, cause: 'command_failed' });
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(14 * GiB), 'charged until it is gone');

  const busy = new Stage();
  busy.card();
  const python = busy.worker({ engine: 'python' });
  const streaming = busy.resident(python, 'streams', 2 * GiB);
  const idle = busy.resident(python, 'idle', 14 * GiB);
  busy.use(python, streaming, 1);
  busy.pass(5_000);
  busy.sample();
  busy.ask(busy.session('holder'), 'b', 12 * GiB, { deadlineMs: 200_000 });
  test.equal(all(busy.pass(16_000), 'terminate').length, 0);
  test.equal(all(busy.use(python, streaming, 0), 'terminate').length, 1, 'as soon as its last call has ended');
  test.ok(idle);
  test.end();
});
