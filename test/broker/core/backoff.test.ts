/** What failed is tried again later, and later still: loads and starts. */
import t from 'tap';
import { all, GiB, only, Stage } from './harness.js';

t.test('B79: a load that always fails after 20 s is tried at most eight times in ten minutes, denied fast in between, and evicts nobody for it', (test) => {
  const stage = new Stage();
  stage.card();
  const neighbour = stage.resident(stage.worker(), 'n', 4 * GiB);
  const worker = stage.session('holder');
  let attempts = 0;
  let denied = 0;
  const endUs = stage.nowUs + 600_000_000;
  while (stage.nowUs < endUs) {
    stage.sample();
    const { effects } = stage.ask(worker, 'bad', 8 * GiB);
    const grant = all(effects, 'grant')[0];
    if (grant !== undefined) {
      attempts++;
      stage.begin(worker, grant.lease);
      stage.pass(20_000);
      stage.release(worker, grant.lease, 'load_failed', { code: 'load_failed', message: 'always' });
      continue;
    }
    const deny = only(effects, 'deny');
    denied++;
    test.equal(deny.code, 'backing_off');
    test.ok((deny.retryAfterMs ?? 0) > 0);
    stage.pass(Math.max(1_000, (deny.retryAfterMs ?? 0) / 4));
  }
  test.ok(attempts >= 3 && attempts <= 8, `${String(attempts)} attempts`);
  test.ok(denied > 0);
  test.equal(stage.lease(neighbour)?.state, 'resident');
  test.end();
});

t.test('B79: a process that ends in the middle of a load is held against its model from the third in a row', (test) => {
  const stage = new Stage();
  stage.card();
  const neighbour = stage.worker();
  const moves: number[] = [];
  for (let attempt = 0; attempt < 4; attempt++) {
    stage.sample();
    stage.resident(neighbour, 'n', 16 * GiB);
    stage.pass(400_000);
    const worker = stage.worker();
    stage.sample();
    const { effects } = stage.ask(worker, 'm', 12 * GiB);
    moves.push(all(effects, 'move').length);
    for (const move of all(effects, 'move')) stage.obey(move);
    stage.sample();
    const grant = all(stage.effects, 'grant').at(-1);
    if (attempt === 3) break;
    test.ok(grant !== undefined && grant.generation === worker, 'it got the room of its neighbour');
    stage.begin(worker, grant!.lease);
    stage.exit(worker);
    stage.sample();
  }
  test.strictSame(moves, [1, 1, 1, 0]);
  test.end();
});

t.test('B79: spawns that fail back off too, and a success forgets', (test) => {
  const stage = new Stage();
  stage.card();
  const client = stage.session();
  const spawned = only(stage.place(client, 'm').effects, 'spawn');
  const failed = stage.send({ type: 'spawn_failed', generation: spawned.generation, code: 'spawn_failed', reason: 'no such file' });
  test.match(only(failed, 'deny'), { code: 'spawn_failed', details: { reason: 'no such file' } });
  test.equal(stage.chargedBytes(), 0);
  const soon = only(stage.place(client, 'm').effects, 'deny');
  test.equal(soon.code, 'backing_off');
  stage.pass(1_250);
  stage.sample();
  const again = only(stage.place(client, 'm').effects, 'spawn');
  stage.ready(again.generation);
  const lease = stage.granted(again.generation, 'm', GiB);
  stage.load(again.generation, lease, GiB);
  test.equal(all(stage.effects, 'deny').filter((deny) => deny.code === 'backing_off').length, 1);
  test.end();
});

t.test('B79: a spawn that failed backs off on the card where it would have run, whoever had queued for another', (test) => {
  const stage = new Stage();
  stage.card('card-a');
  stage.truth('card-a').failing = 'timed_out';
  stage.pass(60_000);
  only(stage.place(stage.session(), 'm', { estimateBytes: GiB }).effects, 'wait');
  stage.card('card-b');
  stage.sample('card-b');
  const starter = stage.session();
  const started = stage.place(starter, 'm', { estimateBytes: GiB });
  const spawned = only(started.effects, 'spawn');
  test.strictSame(spawned.devices, ['card-b']);
  stage.truth('card-a').failing = null;
  stage.sample('card-a');
  stage.send({ type: 'request_cancelled', generation: starter, request: started.request });
  const effects = stage.send({ type: 'spawn_failed', generation: spawned.generation, code: 'spawn_failed', reason: 'no such file' });
  test.equal(all(effects, 'deny').length, 1, 'who had queued for the other card had joined');
  test.match(all(effects, 'publish').filter((each) => each.name === 'backing_off').map((each) => each.data), [{ device: 'card-b' }]);
  test.end();
});

t.test('a spawn that is not ready in time is ended, and those who waited for it are told', (test) => {
  const stage = new Stage({ limits: { spawnTimeoutMs: 5_000 } });
  stage.card();
  const client = stage.session();
  const spawned = only(stage.place(client, 'm').effects, 'spawn');
  stage.place(stage.session(), 'm');
  const effects = stage.pass(6_000);
  test.match(only(effects, 'terminate'), { generation: spawned.generation, cause: 'spawn_timeout' });
  test.equal(all(effects, 'deny').filter((deny) => deny.code === 'spawn_failed').length, 2);
  test.end();
});

t.test('a worker that says that it ends is none to place anything in, and gets the grace of every end', (test) => {
  const stage = new Stage();
  stage.card();
  const leaving = stage.worker();
  const lease = stage.resident(leaving, 'm', 4 * GiB);
  const client = stage.session();
  test.equal(only(stage.place(client, 'm').effects, 'placed').worker, leaving);
  const effects = stage.send({ type: 'process_ending', generation: leaving, reason: 'SIGTERM' });
  test.match(only(effects, 'terminate'), { generation: leaving, cause: 'leaving', graceMs: stage.core.options.limits.terminateGraceMs });
  const elsewhere = stage.place(client, 'm').effects;
  test.strictSame(all(elsewhere, 'placed'), [], 'not there, though the model is loaded there');
  test.not(only(elsewhere, 'spawn').generation, leaving);
  test.strictSame(all(stage.send({ type: 'process_ending', generation: leaving, reason: 'SIGTERM' }), 'terminate'), [], 'once');
  test.ok((stage.lease(lease)?.chargedBytes ?? 0) > 0, 'saying so frees nothing: its exit does');
  test.end();
});
