/** Cards that vanish, come back, and processes that have bytes where they should have none. */
import t from 'tap';
import { all, GiB, MiB, only, plusTenth, stageOf, type Stage } from './harness.js';

const [a, b] = ['GPU-a', 'GPU-b'] as const;

const twoCards = (): Stage => stageOf([a, 24 * GiB], [b, 24 * GiB]);

t.test('B106: a card that vanishes grants nothing, frees nothing, and its workers end after a grace; the others go on', async (test) => {
  const stage = twoCards();
  const on = stage.worker({ device: a });
  const lease = stage.resident(on, 'here', 5 * GiB, { device: a });
  const elsewhere = stage.worker({ device: b });
  stage.resident(elsewhere, 'there', 5 * GiB, { device: b });
  const holder = stage.session('holder');
  const held = stage.resident(holder, 'held', 2 * GiB, { device: a });
  const waiting = stage.ask(holder, 'waits', 20 * GiB, { device: a, policy: { pinned: true } });
  const chargedBytes = stage.chargedBytes(a);

  const lost = stage.send({ type: 'card_lost', device: a, reason: 'Xid 79' });
  test.match(all(lost, 'publish').find(({ name }) => name === 'card_lost')?.data, { device: a, reason: 'Xid 79' }, 'everyone is told');
  test.match(only(lost, 'deny'), { request: waiting.request, code: 'device_lost', details: { device: a } });
  test.equal(stage.chargedBytes(a), chargedBytes, 'nothing is freed by assumption');
  test.same(stage.cardView(a).lost?.reason, 'Xid 79');
  test.equal(only(stage.ask(holder, 'new', 1, { device: a }).effects, 'deny').code, 'device_lost');
  test.equal(only(stage.place(stage.session(), 'pinned', { device: a }).effects, 'deny').code, 'device_lost');
  test.equal(only(stage.send({ type: 'resize_requested', generation: on, request: 99, lease, parts: [{ name: 'context:9', kind: 'context', bytes: GiB, upFront: true }] }), 'deny').code, 'resize_denied');
  test.same(all(stage.pass(9_000), 'terminate'), []);
  const ended = all(stage.pass(2_000), 'terminate');
  test.same(ended.map(({ generation, cause }) => [generation, cause]), [[on, 'card_lost']], 'as good as crashed; a holder is never ended');
  stage.exit(on);
  test.ok(stage.cardView(a).returningBytes > 0, 'bytes of the dead stay charged until a reading shows them gone');
  test.ok(stage.lease(held) !== undefined, 'the holder’s lease stands as long as it lives');
  test.equal(all(stage.ask(holder, 'other', GiB, { device: b }).effects, 'grant').length, 1);
});

t.test('B106: a card that is back within the grace goes on with all that it had', async (test) => {
  const stage = twoCards();
  const worker = stage.worker({ device: a });
  const lease = stage.resident(worker, 'here', 5 * GiB, { device: a });
  stage.send({ type: 'card_lost', device: a, reason: 'a reset' });
  stage.pass(5_000);
  const back = stage.send({ type: 'card_added', device: a, name: 'a card', kind: 'gpu', totalBytes: 24 * GiB, reserveBytes: 0, confirms: 'process', floorBytes: 0 });
  test.match(all(back, 'publish').find(({ name }) => name === 'card_regained')?.data, { device: a });
  test.equal(all(back, 'sample').length, 1, 'and is read at once');
  test.same(all(stage.pass(10_000), 'terminate'), []);
  test.equal(stage.lease(lease)?.state, 'resident');
  test.equal(all(stage.ask(worker, 'here', 6 * GiB, { device: a, lease }).effects, 'grant').length, 1);
});

t.test('B106: a gang with a card that is lost ends with its worker, and its other card comes back', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  stage.residentGang(worker, 'wide', { [a]: 5 * GiB, [b]: 5 * GiB });
  stage.send({ type: 'card_lost', device: a, reason: 'Xid 79' });
  test.equal(only(stage.pass(11_000), 'terminate').cause, 'card_lost');
  stage.exit(worker);
  stage.sample(b);
  test.equal(stage.chargedBytes(b), 0);
  test.equal(stage.chargedBytes(a), plusTenth(5 * GiB));
  const back = stage.send({ type: 'card_added', device: a, name: 'a card', kind: 'gpu', totalBytes: 24 * GiB, reserveBytes: 0, confirms: 'process', floorBytes: 0 });
  test.ok(back.length > 0);
  stage.sample(a);
  test.equal(stage.chargedBytes(a), 0, 'once it is back and has been read');
});

t.test('B98: bytes of a worker on a card that it was not given are charged there, told, and its lease is flagged', async (test) => {
  const stage = twoCards();
  const worker = stage.worker({ device: a });
  const lease = stage.granted(worker, 'm', 5 * GiB, { device: a });
  stage.begin(worker, lease);
  stage.take(worker, 5 * GiB, b);
  stage.report(worker, lease, 'resident', 5 * GiB, { parts: [{ name: 'weights', kind: 'weights', bytes: 5 * GiB, upFront: true }], loadMs: 1 });
  stage.sample(a);
  const seen = stage.sample(b);
  test.equal(stage.cardView(b).residueBytes, 5 * GiB, 'charged at once where they are');
  test.match(all(seen, 'publish').find(({ name }) => name === 'misplaced')?.data, { generation: worker, device: b, bytes: 5 * GiB, lease, model: 'm', leasedOn: a });
  test.ok(all(seen, 'explain').some(({ record }) => record.text.includes(`is leased on ${a} and not there`)));
  test.equal(stage.lease(lease)?.misplacedOn, b);
  test.equal(stage.counter('misplaced'), 1);
  stage.sample(b);
  test.equal(stage.counter('misplaced'), 1, 'told once');
  test.equal([...stage.core.learnedFloors.values()].every((bytes) => bytes === 0), true, 'and nobody learns a floor from it');
  stage.take(worker, -5 * GiB, b);
  stage.take(worker, 5 * GiB, a);
  stage.sample(a);
  stage.sample(b);
  test.equal(stage.cardView(b).residueBytes, 0);
  test.equal(stage.lease(lease)?.misplacedOn, null, 'no longer, once they are where they belong');
});

t.test('B98: misplaced bytes of a worker that is ended are charged until its exit, though the driver lists it no more', async (test) => {
  const stage = twoCards();
  const worker = stage.worker({ device: a });
  stage.take(worker, 5 * GiB, b);
  stage.sample(b);
  test.equal(stage.cardView(b).residueBytes, 5 * GiB);
  stage.samples = false;
  stage.send({ type: 'session_closed', generation: worker, reason: 'end of file' });
  // It has died; the driver has not given its bytes back yet.
  stage.take(worker, -5 * GiB, b);
  stage.truth(b).foreignBytes = 5 * GiB;
  stage.sample(b);
  test.equal(stage.cardView(b).residueBytes, 5 * GiB, 'a figure of 0 frees nothing');
  stage.exit(worker);
  test.equal(stage.cardView(b).returningBytes, 5 * GiB);
  stage.sample(b);
  test.equal(stage.cardView(b).returningBytes, 5 * GiB, 'what is still there stays charged');
  stage.truth(b).foreignBytes = 0;
  stage.sample(b);
  test.equal(stage.chargedBytes(b), 0);
});

t.test('B98: where misplaced bytes leave no room, their worker ends; a holder is only flagged', async (test) => {
  const stage = twoCards();
  const full = stage.session('holder');
  stage.resident(full, 'full', 21 * GiB, { device: b, policy: { pinned: true } });
  const worker = stage.worker({ device: a });
  stage.take(worker, GiB, b);
  test.match(only(stage.sample(b), 'terminate'), { generation: worker, cause: 'misbehaved' });

  const other = twoCards();
  const holder = other.session('holder');
  const lease = other.granted(holder, 'm', 5 * GiB, { device: a });
  other.begin(holder, lease);
  other.take(holder, 5 * GiB, b);
  other.report(holder, lease, 'resident', 5 * GiB, { parts: [{ name: 'weights', kind: 'weights', bytes: 5 * GiB, upFront: true }], loadMs: 1 });
  other.sample(a);
  const seen = other.sample(b);
  test.equal(other.lease(lease)?.misplacedOn, b);
  test.ok(all(seen, 'publish').some(({ name }) => name === 'misplaced'));
  test.equal(other.cardView(b).floorBytes, 5 * GiB, 'D7: charged as the floor of its process');
  other.take(holder, 8 * MiB, a);
  test.same(all(other.sample(a), 'terminate'), []);
});
