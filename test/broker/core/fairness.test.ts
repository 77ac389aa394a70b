/** Who goes first and who waits for whom: doors, batching, classes, placements. */
import t from 'tap';
import { explainRecords, type Effect } from '../../../broker/core/index.js';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage, weights } from './harness.js';

t.test('B59: a victim that gets a request every 200 ms cannot undo its eviction: its door is shut, the waiter is granted', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.resident(worker, 'a', 14 * GiB);
  const holder = stage.session('holder');
  stage.pass(5_000);
  stage.use(worker, a, 1);
  const b = stage.ask(holder, 'b', 12 * GiB, { class: 'interactive', deadlineMs: 30_000 });
  test.equal(all(b.effects, 'move').length, 0, 'busy: no call is cut');
  let granted: Effect | undefined;
  let drain: Extract<Effect, { type: 'move' }> | undefined;
  for (let round = 0; round < 20 && granted === undefined; round++) {
    const effects = [...stage.pass(250), ...stage.use(worker, a, 1, round)];
    drain ??= all(effects, 'move')[0];
    if (drain !== undefined && round === 6) {
      test.equal(drain.when, 'drained');
      stage.answer(drain, { kind: 'draining', inFlight: 1 });
      stage.use(worker, a, 0, 5);
      granted = all(stage.obey(drain), 'grant')[0];
    }
  }
  test.match(granted, { request: b.request });
  test.end();
});

t.test('B61: a bigger context of a model that streams takes the place of the smaller one in its lease, and its model is no victim of it', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const m = stage.granted(worker, 'm', 0, { parts: [weights(16 * GiB), context(2 * GiB, 'context:8k', true)] });
  stage.load(worker, m, 18 * GiB, { parts: [weights(16 * GiB), context(2 * GiB, 'context:8k', true)] });
  stage.sample();
  stage.use(worker, m, 1);
  const bigger = stage.ask(worker, 'm', 0, { lease: m, parts: [context(0, 'context:8k', true), context(5 * GiB, 'context:32k', true)], deadlineMs: 30_000 });
  test.equal(only(bigger.effects, 'grant').lease, m);
  test.equal(all(bigger.effects, 'move').length, 0);
  const held = stage.lease(m);
  test.equal(held?.chargedBytes, plusTenth(21 * GiB));
  test.end();
});

t.test('B62: what is resident does not queue behind somebody else’s load', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ model: 'a' });
  const a = stage.resident(worker, 'a', 8 * GiB);
  const other = stage.worker();
  stage.resident(other, 'c', 8 * GiB);
  stage.use(worker, a, 1);
  stage.pass(5_000);
  stage.sample();
  stage.ask(stage.session('holder'), 'b', 12 * GiB);
  const client = stage.session();
  for (let index = 0; index < 20; index++) {
    test.equal(only(stage.place(client, 'a').effects, 'placed').worker, worker, 'in its own step');
    test.equal(only(stage.ask(worker, 'a', 8 * GiB, { lease: a }).effects, 'grant').lease, a);
  }
  test.end();
});

t.test('B64: cancelled requests are never loaded for; what was freed for them is free', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const a = stage.resident(holder, 'a', 16 * GiB, { policy: { pinned: true } });
  const bs = [stage.session('holder'), stage.session('holder')];
  const first = stage.ask(bs[0]!, 'b', 10 * GiB);
  const c = stage.ask(stage.session('holder'), 'c', 10 * GiB);
  const second = stage.ask(bs[1]!, 'b', 10 * GiB);
  stage.send({ type: 'request_cancelled', generation: bs[0]!, request: first.request });
  stage.send({ type: 'request_cancelled', generation: bs[1]!, request: second.request });
  stage.take(holder, -16 * GiB);
  const grant = only(stage.release(holder, a), 'grant');
  test.equal(grant.request, c.request);
  stage.send({ type: 'request_cancelled', generation: bs[0]!, request: first.request });
  test.equal(stage.view().waiting.length, 0);
  test.equal(stage.cardView().holdBytes, 0);
  test.end();
});

t.test('D21: a drain that nobody waits for any more is taken back; the worker’s answer ends it either way', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.resident(worker, 'a', 14 * GiB);
  stage.pass(5_000);
  stage.use(worker, a, 1);
  stage.sample();
  const holder = stage.session('holder');
  const asked = stage.ask(holder, 'b', 12 * GiB, { class: 'interactive' });
  const drain = only(stage.pass(1_000), 'move');
  stage.answer(drain, { kind: 'draining', inFlight: 1 });
  const cancelled = stage.send({ type: 'request_cancelled', generation: holder, request: asked.request });
  test.equal(only(cancelled, 'cancel_command').command, drain.command);
  stage.answer(drain, { kind: 'failed', code: 'request_cancelled', message: 'not begun', residentBytes: 14 * GiB });
  test.match(stage.lease(a), { state: 'resident', chargedBytes: plusTenth(14 * GiB) });
  test.end();
});

t.test('B65, B77: one load belongs to the model: ten requests and a retry join it, one worker is spawned, one lease is charged', (test) => {
  const stage = new Stage();
  stage.card();
  const clients = Array.from({ length: 10 }, () => stage.session());
  const effects = clients.flatMap((client) => stage.place(client, 'cold').effects);
  const spawned = only(effects, 'spawn');
  test.equal(all(stage.ready(spawned.generation), 'placed').length, 10);
  const first = stage.ask(spawned.generation, 'cold', 8 * GiB);
  const lease = only(first.effects, 'grant').lease;
  stage.begin(spawned.generation, lease);
  stage.pass(31_000);
  test.equal(only(stage.place(clients[0]!, 'cold').effects, 'placed').worker, spawned.generation, 'the second try joins');
  const waiting = new Stage();
  waiting.card();
  waiting.truth().foreignBytes = 20 * GiB;
  waiting.sample();
  const holder = waiting.session('holder');
  const one = waiting.ask(holder, 'm', 8 * GiB, { class: 'background', deadlineMs: 5_000 });
  waiting.ask(holder, 'm', 8 * GiB, { class: 'interactive', deadlineMs: 60_000, request: one.request });
  test.match(waiting.view().waiting, [{ request: one.request, class: 'interactive' }], 'the same id only raises class and deadline');
  test.equal(all(waiting.pass(6_000), 'deny').length, 0, 'the later deadline counts');
  waiting.truth().foreignBytes = 0;
  test.equal(all(waiting.pass(1_000), 'grant').length, 1);
  test.equal(waiting.ask(holder, 'm', 8 * GiB, { request: one.request }).effects.length, 0, 'sent again after its answer it is not answered twice');
  test.end();
});

t.test('B67: two models that exclude each other take turns: never both, none cut, few swaps', (test) => {
  const stage = new Stage();
  stage.card();
  const workers = { a: stage.worker({ model: 'a' }), b: stage.worker({ model: 'b' }) };
  const leases: Record<string, string> = {};
  let swaps = 0;
  const evictions = stage.effects.length;
  for (const model of ['a', 'b', 'a', 'b'] as const) {
    const worker = workers[model];
    if (stage.lease(leases[model] ?? '')?.state !== 'resident') {
      const asked = stage.ask(worker, model, 14 * GiB, { class: 'interactive' });
      let effects = [...asked.effects, ...(all(asked.effects, 'grant').length > 0 ? [] : stage.pass(5_000))];
      for (const move of all(effects, 'move')) effects = [...effects, ...stage.obey(move)];
      const grant = only(effects, 'grant');
      leases[model] = grant.lease;
      stage.load(worker, grant.lease, 14 * GiB);
      stage.sample();
      swaps++;
    }
    test.equal(stage.view().leases.filter((lease) => lease.state === 'resident').length, 1);
    stage.use(worker, leases[model] ?? '', 1);
    const during = stage.pass(2_000);
    test.equal(all(during, 'move').length, 0);
    stage.use(worker, leases[model] ?? '', 0);
  }
  test.ok(swaps <= 4);
  test.equal(stage.effects.slice(evictions).filter((effect) => effect.type === 'terminate').length, 0);
  test.end();
});

t.test('B68: A B A A C A B C with one model at a time takes at most four loads, and nobody starves', (test) => {
  const stage = new Stage();
  stage.card();
  const order = ['a', 'b', 'a', 'a', 'c', 'a', 'b', 'c'];
  const calls = new Map<string, number>();
  for (const model of order) calls.set(model, (calls.get(model) ?? 0) + 1);
  const workers = new Map(['a', 'b', 'c'].map((model) => [model, stage.worker({ model })]));
  const startUs = stage.nowUs;
  const asked = new Map(['a', 'b', 'c'].map((model) => [model, stage.ask(workers.get(model)!, model, 14 * GiB, { deadlineMs: 200_000 })]));
  let effects = [...asked.values()].flatMap((request) => request.effects);
  let loads = 0;
  for (let round = 0; round < 6 && calls.size > 0; round++) {
    for (const move of all(effects, 'move')) effects = [...effects, ...stage.obey(move)];
    const grant = all(effects, 'grant')[0];
    if (grant === undefined) {
      effects = stage.pass(1_000);
      continue;
    }
    const model = [...workers].find(([, worker]) => worker === grant.generation)![0];
    stage.begin(grant.generation, grant.lease);
    stage.pass(20_000);
    stage.take(grant.generation, 14 * GiB);
    stage.report(grant.generation, grant.lease, 'resident', 14 * GiB, { parts: [weights(14 * GiB)] });
    loads++;
    const runs = calls.get(model) ?? 0;
    stage.use(grant.generation, grant.lease, 1, runs - 1);
    effects = stage.pass(runs * 1_000);
    // Calls older than the waiter finish behind a shut door: all of them came at the same time.
    for (const drain of all(effects, 'move')) stage.answer(drain, { kind: 'draining', inFlight: 1 });
    effects = [...effects, ...stage.use(grant.generation, grant.lease, 0)];
    calls.delete(model);
    effects = [...effects, ...stage.pass(2_500)];
  }
  test.equal(calls.size, 0);
  test.ok(loads <= 4, `${String(loads)} loads`);
  test.ok(stage.nowUs - startUs < 100_000_000);
  test.end();
});

t.test('B73: a loading or streaming model is never a victim; the requester waits, or is denied at its deadline', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.granted(worker, 'a', 14 * GiB);
  stage.begin(worker, a);
  const holder = stage.session('holder');
  const first = stage.ask(holder, 'b', 12 * GiB, { deadlineMs: 10_000 });
  const whileLoading = [...first.effects, ...stage.pass(11_000)];
  test.equal(all(whileLoading, 'move').length, 0);
  test.equal(only(whileLoading, 'deny').code, 'deadline_passed');
  stage.take(worker, 14 * GiB);
  stage.report(worker, a, 'resident', 14 * GiB, { parts: [weights(14 * GiB)] });
  stage.use(worker, a, 1);
  stage.sample();
  const second = stage.ask(holder, 'b', 12 * GiB, { deadlineMs: 60_000, class: 'normal' });
  const streaming = [...second.effects, ...stage.pass(30_000)];
  test.ok(all(streaming, 'move').every((move) => move.when === 'drained'), 'at most its door is shut');
  test.equal(all(streaming, 'terminate').length, 0);
  const victims = explainRecords(stage.core, { count: 500 }).flatMap((record) => record.victims);
  test.ok(victims.every((victim) => victim.passedOver !== null || victim.action === 'wait_drain'));
  test.end();
});

t.test('B74: (a) a model just loaded is not evicted before its request has attached; (b) after the command it is evicting and nothing else', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.resident(worker, 'a', 14 * GiB);
  const early = stage.ask(stage.session('holder'), 'b', 12 * GiB);
  test.equal(all(early.effects, 'move').length, 0, 'minimum residency');
  stage.use(worker, a, 1);
  stage.use(worker, a, 0);
  const move = only(stage.pass(3_000), 'move');
  test.equal(move.lease, a);
  const place = stage.place(stage.session(), 'a');
  test.equal(all(place.effects, 'placed').length + all(place.effects, 'wait').length, 1, 'queued, not refused');
  const late = stage.use(worker, a, 0, 2);
  test.equal(all(late, 'cancel_command').length, 0, 'no request undoes it');
  test.end();
});

t.test('B80: use is an absolute count: lost, repeated and reordered reports leave it right, and a crash ends it', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.resident(worker, 'a', GiB);
  for (let round = 0; round < 100; round++) {
    stage.use(worker, a, 3);
    stage.send({ type: 'use_reported', generation: worker, lease: a, seq: 1, inFlight: 9, queued: 9 });
    stage.use(worker, a, 0);
  }
  test.equal(stage.lease(a)?.inFlight, 0);
  stage.use(worker, a, 5);
  stage.exit(worker);
  test.equal(stage.view().leases.length, 0);
  test.end();
});

t.test('D22: until the head has a plan or is old, smaller requests pass it; then everything up to its need is kept for it', (test) => {
  const stage = new Stage();
  stage.card();
  stage.resident(stage.session('holder'), 'pinned', 10 * GiB, { policy: { pinned: true } });
  const head = stage.ask(stage.session('holder'), 'head', 18 * GiB);
  test.equal(all(stage.ask(stage.session('holder'), 'small', 1 * GiB).effects, 'grant').length, 1, 'passes');
  test.equal(stage.cardView().holdBytes, 0);
  stage.pass(2_250);
  test.equal(stage.cardView().holdBytes > 0, true);
  const later = stage.ask(stage.session('holder'), 'small too', 1 * GiB);
  test.equal(all(later.effects, 'grant').length, 0, 'passes no more');
  stage.send({ type: 'request_cancelled', generation: stage.view().waiting[0]!.generation, request: head.request });
  test.equal(all(stage.effects.slice(-20), 'grant').some((grant) => grant.request === later.request), true, 'its hold ends with it');
  test.end();
});

t.test('bytes freed for a request are kept from everybody behind it until it is granted', (test) => {
  const stage = new Stage();
  stage.card();
  const one = stage.worker();
  const two = stage.worker();
  stage.resident(one, 'a', 10 * GiB);
  stage.resident(two, 'b', 10 * GiB);
  stage.pass(5_000);
  stage.sample();
  const head = stage.ask(stage.session('holder'), 'head', 20 * GiB);
  const [first, second] = all(head.effects, 'move');
  stage.obey(first!);
  const thief = stage.ask(stage.session('holder'), 'thief', 4 * GiB);
  test.equal(all(thief.effects, 'grant').length, 0);
  test.ok(stage.cardView().holdBytes >= 10 * GiB);
  test.equal(only(stage.obey(second!), 'grant').request, head.request);
  test.end();
});

t.test('classes, ageing and the longest wait: the higher class first, the aged before it, the longest before all younger', (test) => {
  const stage = new Stage();
  stage.card();
  const pinned = stage.session('holder');
  const block = stage.resident(pinned, 'pinned', 20 * GiB, { policy: { pinned: true } });
  const asks = (cls: 'interactive' | 'normal' | 'background', ageMs = 0): number => stage.ask(stage.session('holder'), `${cls}-${String(ageMs)}`, 6 * GiB, { class: cls, ageMs, deadlineMs: 100_000 }).request;
  const background = asks('background');
  const normal = asks('normal');
  const interactive = asks('interactive');
  const agedNormal = asks('normal', 25_000);
  const overdue = asks('background', 121_000);
  const places = new Map(stage.view().waiting.map((waiter) => [waiter.request, waiter.position]));
  test.same([overdue, agedNormal, interactive, normal, background].map((request) => places.get(request)), [0, 1, 2, 3, 4]);
  stage.take(pinned, -20 * GiB);
  const effects = stage.release(pinned, block);
  test.same(all(effects, 'grant').map((grant) => grant.request), [overdue, agedNormal, interactive]);
  test.end();
});

t.test('a request that is asked again with its age gets its old place back (D3)', (test) => {
  const stage = new Stage();
  stage.card();
  stage.resident(stage.session('holder'), 'pinned', 20 * GiB, { policy: { pinned: true } });
  const young = stage.ask(stage.session('holder'), 'young', 6 * GiB);
  const again = stage.ask(stage.session('holder'), 'again', 6 * GiB, { ageMs: 5_000 });
  const places = new Map(stage.view().waiting.map((waiter) => [waiter.request, waiter.position]));
  test.ok((places.get(again.request) ?? 9) < (places.get(young.request) ?? 0));
  test.end();
});

t.test('B101: a placement takes the card where it fits without evicting, else the one of least eviction cost', (test) => {
  const stage = new Stage();
  stage.card('GPU-0');
  stage.card('GPU-1');
  stage.resident(stage.session('holder'), 'a', 16 * GiB, { device: 'GPU-0' });
  stage.resident(stage.session('holder'), 'b', 3 * GiB, { device: 'GPU-1' });
  const spawned = only(stage.place(stage.session(), 'm', { estimateBytes: 15 * GiB }).effects, 'spawn');
  test.same(spawned.devices, ['GPU-1']);
  test.equal(all(stage.effects, 'move').length, 0);
  const deny = only(stage.place(stage.session(), 'huge', { estimateBytes: 30 * GiB }).effects, 'deny');
  test.equal(deny.code, 'never_fits');
  test.end();
});

t.test('B101: 6 and 20 GiB free of 24 each: 15 GiB go to the second without evicting; where both are full, the card whose models are back sooner gives way', (test) => {
  const stage = new Stage();
  for (const device of ['GPU-0', 'GPU-1']) stage.card(device, { totalBytes: 24 * GiB });
  const holder = stage.session('holder');
  stage.resident(holder, 'slow', Math.floor(18 * GiB / 1.1), { device: 'GPU-0' });
  stage.resident(holder, 'quick', Math.floor(4 * GiB / 1.1), { device: 'GPU-1' });
  const first = only(stage.place(stage.session(), 'm', { estimateBytes: 15 * GiB }).effects, 'spawn');
  test.same(first.devices, ['GPU-1']);
  test.equal(all(stage.effects, 'move').length, 0, 'nobody is evicted');

  for (const [slower, cheaper] of [['a', 'GPU-1'], ['b', 'GPU-0']] as const) {
    const full = new Stage();
    for (const device of ['GPU-0', 'GPU-1']) full.card(device, { totalBytes: 24 * GiB });
    const owner = full.session('holder');
    full.resident(owner, 'a', 18 * GiB, { device: 'GPU-0' });
    full.resident(owner, 'b', 18 * GiB, { device: 'GPU-1' });
    full.pass(61_000);
    for (const model of ['a', 'b']) full.core.models.get(model)!.loadMs = model === slower ? 60_000 : 1_000;
    test.same(only(full.place(full.session(), 'm', { estimateBytes: 15 * GiB }).effects, 'spawn').devices, [cheaper], `where ${slower} takes a minute to come back`);
  }
  test.end();
});

t.test('D4: a placement queues and evicts for the floor like any request; a worker without models is the cheapest victim', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 4 * GiB, floorBytes: GiB });
  const idle = stage.worker({ floorBytes: GiB, model: 'old' });
  const lease = stage.resident(idle, 'old', MiB);
  stage.take(idle, -MiB);
  stage.release(idle, lease);
  const busy = stage.session('holder');
  stage.granted(busy, 'm', Math.floor(1.5 * GiB));
  stage.pass(61_000);
  stage.sample();
  const client = stage.session();
  const placed = stage.place(client, 'new', { engine: 'python' });
  test.equal(all(placed.effects, 'spawn').length, 0, 'its floor does not fit');
  test.equal(all(stage.effects, 'terminate').filter((end) => end.generation === idle).length, 1);
  const spawned = all(stage.exit(idle), 'spawn');
  test.equal(spawned.length, 1, 'the floor of the idle worker made room');
  test.end();
});

t.test('a placement joins a worker that has room, up to the models that its engine may host', (test) => {
  const stage = new Stage({ modelsPerWorker: 2 });
  stage.card();
  const client = stage.session();
  const first = only(stage.place(client, 'a').effects, 'spawn');
  stage.ready(first.generation);
  test.equal(only(stage.place(client, 'b').effects, 'placed').worker, first.generation);
  test.equal(all(stage.place(client, 'c').effects, 'spawn').length, 1);
  test.end();
});

t.test('a client that is gone leaves nothing behind: its requests end, and a start for it; a worker that is up ends when it has been idle', (test) => {
  const stage = new Stage({ limits: { workerIdleMs: 5_000, ticketTtlMs: 5_000 } });
  stage.card();
  const client = stage.session();
  const starting = only(stage.place(client, 'm').effects, 'spawn').generation;
  test.match(only(stage.send({ type: 'session_closed', generation: client, reason: 'end of file' }), 'terminate'), { generation: starting, cause: 'unawaited' });
  test.equal(stage.view().waiting.length, 0);
  test.equal(all(stage.ready(starting), 'placed').length, 0);
  stage.exit(starting);

  const later = stage.session();
  const up = only(stage.place(later, 'm').effects, 'spawn').generation;
  stage.ready(up);
  test.equal(all(stage.send({ type: 'session_closed', generation: later, reason: 'end of file' }), 'terminate').length, 0);
  test.match(only(stage.pass(12_000), 'terminate'), { generation: up, cause: 'idle' });
  test.end();
});

t.test('evict and pin by name: confirmed with the bytes freed, refused with the reason, bounded by their deadline', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const a = stage.resident(worker, 'a', 6 * GiB);
  const client = stage.session();
  const evict = (request: number, model: string, deadlineMs = 10_000): Effect[] => stage.send({ type: 'evict_requested', generation: client, request, model, target: 'none', deadlineMs });
  test.match(only(evict(1, 'never loaded'), 'report_evicted'), { request: 1, freedBytes: 0 }, 'which models there are is known to who serves them');
  stage.send({ type: 'pin_requested', generation: client, request: 2, model: 'a', pinned: true });
  test.equal(only(evict(3, 'a'), 'fail').code, 'pinned');
  test.equal(stage.lease(a)?.pinned, true);
  test.equal(only(stage.send({ type: 'pin_requested', generation: client, request: 4, model: 'a', pinned: false }), 'acknowledge').request, 4);
  stage.use(worker, a, 1);
  const move = only(evict(5, 'a'), 'move');
  test.equal(move.when, 'drained');
  stage.answer(move, { kind: 'draining', inFlight: 1 });
  test.equal(only(stage.pass(11_000), 'fail').code, 'deadline_passed');
  stage.use(worker, a, 0);
  test.equal(all(evict(6, 'a'), 'move').length, 0, 'the command under way serves it too');
  test.match(only(stage.obey(move), 'report_evicted'), { request: 6, freedBytes: 6 * GiB });
  test.match(only(evict(7, 'a'), 'report_evicted'), { request: 7, freedBytes: 0 });
  test.end();
});

t.test('a jump between two rungs of the truth ladder evicts nobody on the jump alone (R29)', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  stage.resident(worker, 'a', 8 * GiB);
  stage.pass(5_000);
  stage.sample();
  stage.samples = false;
  const read = (usedBytes: number): Effect[] => stage.send({ type: 'sampled', device: card0, takenAtUs: stage.nowUs, usedBytes, totalBytes: 24 * GiB, truth: 'nvidia-smi', processes: [{ generation: worker, usedBytes: 8 * GiB }] });
  read(20 * GiB);
  const asked = stage.ask(stage.session('holder'), 'b', 6 * GiB);
  test.equal(all(asked.effects, 'move').length, 0);
  test.equal(all(read(20 * GiB), 'move').length, 1, 'a second reading that says the same is believed');
  test.end();
});
