/** What fails, is measured, recalled, too large or too late: load tokens, corrections, overshoots, silence. */
import t from 'tap';
import { explainRecords, type Effect } from '../../../broker/core/index.js';
import { defaultLimits, type LeasePart } from '../../../protocol/index.js';
import { all, card0, context, GiB, MiB, only, plusTenth, Stage, weights } from './harness.js';

t.test('B13: engines that measure free memory load one after another on a card', (test) => {
  const stage = new Stage();
  stage.card();
  const one = stage.session('holder');
  const two = stage.session('holder');
  const lease = stage.granted(one, 'a', 9 * GiB, { profiles: true });
  const second = stage.ask(two, 'b', 9 * GiB, { profiles: true });
  test.equal(all(second.effects, 'grant').length, 0);
  test.match(only(second.effects, 'wait').reason, /measuring free memory/);
  test.equal(stage.cardView().loadToken, lease);
  const third = stage.ask(stage.session('holder'), 'c', GiB);
  test.equal(all(third.effects, 'grant').length, 0, 'nothing else loads into the measurement');
  test.equal(all(stage.pass(15_000), 'grant').length, 0);
  const ready = stage.load(one, lease, 9 * GiB);
  test.equal(all(ready, 'grant')[0]?.request, second.request, 'the second starts when the first is ready');
  test.equal(all(ready, 'grant').length, 1);
  test.end();
});

t.test('B13: an engine that measures waits until other loads and releases have come to rest', (test) => {
  const stage = new Stage();
  stage.card();
  const plain = stage.session('holder');
  const lease = stage.granted(plain, 'a', 4 * GiB);
  const asked = stage.ask(stage.session('holder'), 'b', 4 * GiB, { profiles: true });
  test.equal(all(asked.effects, 'grant').length, 0);
  test.equal(all(stage.load(plain, lease, 4 * GiB), 'grant').length, 1);
  test.end();
});

t.test('B14: while an engine measures nothing is unloaded or parked there; an idle model’s time comes after it', (test) => {
  const stage = new Stage();
  stage.card();
  const idler = stage.worker();
  const idle = stage.resident(idler, 'b', 4 * GiB, { policy: { ttlMs: 8_000 } });
  const loader = stage.session('holder');
  const lease = stage.granted(loader, 'a', 9 * GiB, { profiles: true });
  stage.begin(loader, lease);
  const during = stage.pass(20_000);
  test.equal(all(during, 'move').length, 0);
  const wish = stage.send({ type: 'evict_requested', generation: stage.session(), request: 9, model: 'b', target: 'none', deadlineMs: 60_000 });
  test.equal(all(wish, 'move').length, 0, 'not even when asked for');
  stage.take(loader, 9 * GiB);
  const ready = stage.report(loader, lease, 'resident', 9 * GiB, { parts: [weights(9 * GiB)] });
  test.equal(all([...ready, ...stage.pass(500)], 'move')[0]?.lease, idle);
  test.end();
});

t.test('the idle time-to-live counts from the end of the last use, and a pinned model has none', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.resident(worker, 'a', GiB, { policy: { ttlMs: 5_000 } });
  stage.resident(worker, 'pinned', GiB, { policy: { ttlMs: 5_000, pinned: true } });
  stage.pass(3_000);
  stage.use(worker, lease, 1);
  test.equal(all(stage.pass(10_000), 'move').length, 0, 'in use');
  stage.use(worker, lease, 0);
  test.equal(all(stage.pass(4_500), 'move').length, 0);
  const move = only(stage.pass(750), 'move');
  test.match(move, { lease, when: 'now', reason: 'unused for its ttl of 5 s' });
  stage.answer(move, { kind: 'busy', inFlight: 1 });
  test.equal(stage.lease(lease)?.state, 'resident', 'the worker is the truth');
  test.end();
});

t.test('B22, B38: an OOM inside the lease gives one corrective retry after a new measurement; the model is not poisoned; nothing runs on the CPU', (test) => {
  const stage = new Stage();
  stage.card();
  stage.card('CPU-0', { kind: 'cpu', totalBytes: 0, confirms: 'none', floorBytes: null });
  const worker = stage.worker();
  const lease = stage.granted(worker, 'a', 9 * GiB);
  stage.begin(worker, lease);
  const failed = stage.release(worker, lease, 'load_failed', { code: 'out_of_memory', message: 'wanted 9,220 MiB' });
  test.equal(stage.lease(lease), undefined, 'the lease is released');
  test.equal(all(failed, 'sample').length, 1, 'a measurement follows');
  test.equal(stage.counter('oomRetries'), 1);
  const again = stage.granted(worker, 'a', 9 * GiB);
  stage.begin(worker, again);
  stage.release(worker, again, 'load_failed', { code: 'out_of_memory', message: 'again' });
  const third = only(stage.ask(worker, 'a', 9 * GiB).effects, 'deny');
  test.match(third, { code: 'backing_off', details: { failures: '1' } });
  test.equal(stage.counter('oomRetries'), 1, 'once');
  stage.pass(2_000);
  stage.sample();
  const later = stage.granted(worker, 'a', 9 * GiB);
  stage.load(worker, later, 9 * GiB);
  test.equal(stage.lease(later)?.state, 'resident');
  test.same(all(stage.effects, 'grant').filter((grant) => grant.device === 'CPU-0'), []);
  test.end();
});

t.test('B115: an OOM after a stranger took memory inside the window is a lost race, counted apart', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  stage.sample();
  const lease = stage.granted(worker, 'a', 12 * GiB);
  stage.truth().foreignBytes = 12 * GiB;
  test.equal(all(stage.begin(worker, lease), 'sample').length, 1, 'measured anew at the start of the load');
  stage.release(worker, lease, 'load_failed', { code: 'out_of_memory', message: 'refused' });
  test.equal(stage.counter('lostRaces'), 1);
  test.equal(stage.counter('oomRetries'), 1);
  test.end();
});

t.test('B113: growth in host memory is told of who holds a lease, each step from what was told last; where there is room, nobody is unloaded', (test) => {
  const stage = new Stage();
  stage.card(card0, { confirms: 'total' });
  const worker = stage.worker();
  const idle = stage.worker();
  const lease = stage.resident(worker, 'a', 9 * GiB);
  stage.samples = false;
  const read = (usedBytes: number, spilled: { generation: string; spilledBytes: number }[] | null): Effect[] => {
    stage.nowUs += 1_000;
    return stage.send({ type: 'sampled', device: card0, takenAtUs: stage.nowUs, usedBytes, totalBytes: 24 * GiB, truth: 'nvml', processes: null, ...(spilled === null ? {} : { spilled }) });
  };
  const told = (effects: readonly Effect[]): unknown[] => all(effects, 'publish').filter(({ name }) => name === 'overshoot').map(({ data }) => [data['generation'], data['bytes'], data['where']]);
  const tolerance = stage.core.options.limits.measureToleranceBytes;
  test.same(told(read(9 * GiB, [{ generation: worker, spilledBytes: tolerance }, { generation: idle, spilledBytes: GiB }])), [], 'too little, and without a lease');
  test.same(told(read(9 * GiB, [{ generation: worker, spilledBytes: 2 * tolerance }])), [[worker, 2 * tolerance, 'host']], 'small steps add up');
  test.same(told(read(9 * GiB, null)), [], 'a driver that says nothing says nothing');
  test.same(told(read(9 * GiB, [{ generation: worker, spilledBytes: 2 * tolerance }, { generation: worker, spilledBytes: Number.NaN }])), [], 'nor is nonsense growth');
  stage.pass(1_000);
  test.equal(stage.lease(lease)?.state, 'resident');
  test.equal(all(stage.effects, 'move').length, 0, 'there is room');
  read(9 * GiB, []);
  const moved = read(24 * GiB, [{ generation: worker, spilledBytes: GiB }]);
  test.same(told(moved), [[worker, GiB, 'host']], 'it was back, and is spilled again');
  test.match(only(moved, 'move'), { lease, target: 'none' }, 'the card is full');
  stage.obey(only(moved, 'move'));
  test.equal(stage.lease(lease)?.state, 'releasing');
  test.same(told(read(24 * GiB, [{ generation: worker, spilledBytes: 3 * GiB }])), [], 'nor is what has left');
  test.equal(stage.counter('spills'), 2);
  test.end();
});

t.test('B23: the peak of a load is admitted first; the surplus goes back when it is ready, the headroom stays', (test) => {
  const stage = new Stage();
  stage.card();
  const neighbour = stage.worker();
  stage.resident(neighbour, 'n', 9 * GiB);
  stage.pass(5_000);
  stage.sample();
  const holder = stage.session('holder');
  const asked = stage.ask(holder, 'm', 10 * GiB, { peakBytes: 16 * GiB });
  test.equal(all(asked.effects, 'grant').length, 0, '17.6 and 9.9 do not fit in 24');
  const grant = only(stage.obey(only(asked.effects, 'move')), 'grant');
  test.equal(grant.chargedBytes, plusTenth(16 * GiB));
  stage.begin(holder, grant.lease);
  stage.take(holder, 16 * GiB);
  stage.sample();
  stage.take(holder, -6 * GiB);
  stage.report(holder, grant.lease, 'resident', 10 * GiB, { parts: [weights(10 * GiB)] });
  test.equal(stage.lease(grant.lease)?.chargedBytes, plusTenth(10 * GiB));
  test.end();
});

t.test('D11: a part taken up front becomes its measured size, every other the larger of declared and measured', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.granted(worker, 'm', 0, { parts: [weights(8 * GiB), context(2 * GiB)] });
  stage.load(worker, lease, 7 * GiB, { parts: [weights(6 * GiB), context(1 * GiB)] });
  test.equal(stage.lease(lease)?.chargedBytes, plusTenth(8 * GiB));
  test.end();
});

t.test('B11: what the first image takes is inside the lease; what grows beyond is an overshoot and charged', (test) => {
  const part = (name: string, bytes: number): LeasePart => ({ name, kind: 'compute', bytes, upFront: false });
  const [text, projector, firstUse] = [5 * GiB, Math.floor(0.9 * GiB), GiB];
  const grow = (stage: Stage, parts: readonly LeasePart[], grownBytes: number): string => {
    const worker = stage.worker();
    const lease = stage.granted(worker, 'sees', 0, { parts });
    stage.load(worker, lease, Math.floor(5.1 * GiB), { parts: [weights(Math.floor(5.1 * GiB)), ...parts.slice(1).map(({ name }) => part(name, 0))] });
    stage.take(worker, grownBytes - Math.floor(5.1 * GiB));
    stage.report(worker, lease, 'resident', grownBytes, { parts: [weights(Math.floor(5.1 * GiB)), part('first image', grownBytes - Math.floor(5.1 * GiB))] });
    stage.sample();
    return lease;
  };
  const seen = new Stage();
  seen.card();
  const inside = grow(seen, [weights(text), part('projector', projector), part('first image', firstUse)], Math.floor(6.4 * GiB));
  test.equal(seen.counter('overshoots'), 0, 'it was foreseen');
  test.ok((seen.lease(inside)?.chargedBytes ?? 0) >= Math.floor(6.4 * GiB));
  const unseen = new Stage();
  unseen.card();
  const beyond = grow(unseen, [weights(text)], Math.floor(6.4 * GiB));
  test.equal(unseen.counter('overshoots'), 1);
  test.ok((unseen.lease(beyond)?.chargedBytes ?? 0) >= Math.floor(6.4 * GiB), 'charged all the same');
  test.ok(explainRecords(unseen.core).some(({ verdict }) => verdict === 'overshoot'), 'and said');
  test.end();
});

t.test('B25: 12.8 GiB measured against an estimate of 6.9: the lease is raised if there is room, else the model is unloaded and it is said why', (test) => {
  const measured = Math.floor(12.8 * GiB);
  const roomy = new Stage();
  roomy.card();
  const worker = roomy.worker();
  const lease = roomy.granted(worker, 'm', Math.floor(6.9 * GiB));
  roomy.load(worker, lease, measured);
  test.equal(roomy.lease(lease)?.chargedBytes, plusTenth(measured));
  test.equal(roomy.counter('overshoots'), 1);

  const tight = new Stage();
  tight.card();
  tight.resident(tight.worker(), 'n', 10 * GiB, { policy: { pinned: true } });
  const other = tight.worker();
  const over = tight.granted(other, 'm', Math.floor(6.9 * GiB));
  const effects = tight.load(other, over, measured);
  test.ok((tight.cardView().availableBytes ?? 0) < 0, 'charged at once whatever is free');
  test.match(only(effects, 'move'), { lease: over, target: 'none', when: 'drained' });
  test.match(explainRecords(tight.core).find((record) => record.verdict === 'overshoot')?.text, /no room/);
  test.end();
});

t.test('B25, R55: bytes that a worker does not report are found by the first sample and charged', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.granted(worker, 'm', 6 * GiB);
  stage.begin(worker, lease);
  stage.take(worker, 12 * GiB);
  stage.report(worker, lease, 'resident', 6 * GiB, { parts: [weights(6 * GiB)] });
  stage.sample();
  test.equal(stage.chargedBytes(), 12 * GiB);
  test.equal(stage.counter('overshoots'), 1);
  const full = new Stage();
  full.card();
  full.resident(full.worker(), 'n', 14 * GiB, { policy: { pinned: true } });
  const liar = full.worker();
  const lie = full.granted(liar, 'm', 6 * GiB);
  full.begin(liar, lie);
  full.take(liar, 9 * GiB + 512 * MiB);
  full.report(liar, lie, 'resident', 6 * GiB, { parts: [weights(6 * GiB)] });
  test.match(only(full.sample(), 'move'), { lease: lie, target: 'none' });
  test.end();
});

t.test('B31: a grant is confirmed within its time or recalled; only an answer closes it', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lost = stage.granted(worker, 'a', 9 * GiB);
  const recall = only(stage.pass(10_250), 'recall');
  test.equal(recall.lease, lost);
  test.equal(stage.chargedBytes(), plusTenth(9 * GiB), 'a recall frees nothing');
  stage.send({ type: 'recall_answered', generation: worker, command: recall.command, lease: lost, begun: false });
  test.equal(stage.chargedBytes(), 0);
  stage.sample();
  const late = stage.granted(worker, 'a', 9 * GiB);
  const second = only(stage.pass(10_250), 'recall');
  stage.send({ type: 'recall_answered', generation: worker, command: second.command, lease: late, begun: true });
  test.equal(stage.lease(late)?.state, 'loading');
  test.equal(all(stage.pass(30_000), 'recall').length, 0);
  test.end();
});

t.test('B31: time is counted from the sending, whenever an answer comes: of a grant until it is recalled, of a command until it is taken back', (test) => {
  const { grantConfirmMs, commandAnswerMs } = defaultLimits;
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lost = stage.granted(worker, 'a', 9 * GiB);
  stage.pass(grantConfirmMs - 2_000);
  // It is heard, and its card is read: nothing begins anew.
  stage.sample();
  stage.send({ type: 'floor_measured', generation: worker, device: card0, bytes: 0 });
  stage.send({ type: 'heartbeat', generation: worker, reserved: [] });
  test.equal(all(stage.pass(1_750), 'recall').length, 0, 'not a moment before');
  test.equal(only(stage.pass(500), 'recall').lease, lost, 'ten seconds after it was sent, not eighteen');

  const other = new Stage();
  other.card();
  const owner = other.worker();
  const lease = other.resident(owner, 'b', 14 * GiB);
  other.pass(20_000);
  const move = only(other.ask(other.session('holder'), 'c', 12 * GiB, { deadlineMs: 120_000 }).effects, 'move');
  test.ok(move.expiresMs <= commandAnswerMs, 'it is good for no longer than is waited for it');
  other.pass(commandAnswerMs - 1_000);
  other.use(owner, lease, 0);
  other.send({ type: 'heartbeat', generation: owner, reserved: [] });
  test.equal(all(other.pass(750), 'cancel_command').length, 0);
  test.equal(only(other.pass(500), 'cancel_command').command, move.command, 'what it says of itself meanwhile gives it no more time');
  test.end();
});

t.test('a second request of one name voids nothing: two leases, or a refusal that leaves the first as it is', (test) => {
  for (const role of ['holder', 'worker'] as const) {
    const stage = new Stage();
    stage.card();
    const owner = role === 'holder' ? stage.session('holder') : stage.worker();
    const first = stage.granted(owner, 'a', 8 * GiB);
    const second = stage.granted(owner, 'a', 9 * GiB);
    test.not(first, second);
    test.equal(stage.chargedBytes(), plusTenth(8 * GiB) + plusTenth(9 * GiB), `${role}: both are charged`);
    for (const [bytes, deadlineMs, code] of [[30 * GiB, 60_000, 'never_fits'], [9 * GiB, 1_000, 'deadline_passed']] as const) {
      const asked = stage.ask(owner, 'a', bytes, { deadlineMs });
      test.match(only([...asked.effects, ...stage.pass(1_500)], 'deny'), { request: asked.request, code });
    }
    test.match([stage.lease(first), stage.lease(second)], [{ state: 'granted' }, { state: 'granted' }], `${role}: a denied request voids nothing`);
    stage.load(owner, first, 8 * GiB);
    stage.load(owner, second, 9 * GiB);
    test.match([stage.lease(first), stage.lease(second)], [{ state: 'resident', residentBytes: 8 * GiB }, { state: 'resident', residentBytes: 9 * GiB }]);
    const third = stage.ask(owner, 'a', GiB, {});
    test.not(only(third.effects, 'grant').lease, first, `${role}: what names no lease extends none`);
  }
  test.end();
});

t.test('a holder may wait for two things of one name at once; a worker has a model once (D2)', (test) => {
  const stage = new Stage();
  stage.card();
  stage.truth().foreignBytes = 20 * GiB;
  stage.sample();
  const holder = stage.session('holder');
  const asked = [stage.ask(holder, 'a', 8 * GiB), stage.ask(holder, 'a', 8 * GiB)];
  const worker = stage.worker();
  stage.ask(worker, 'a', 8 * GiB);
  test.equal(only(stage.ask(worker, 'a', 8 * GiB).effects, 'deny').code, 'model_loading_elsewhere');
  stage.truth().foreignBytes = 0;
  const grants = all(stage.pass(1_000), 'grant');
  test.same(grants.map(({ generation, request }) => [generation, request]), asked.map(({ request }) => [holder, request]));
  test.equal(new Set(grants.map(({ lease }) => lease)).size, 2);
  test.end();
});

t.test('a grant lost with its connection is asked after when its owner is back, and is charged until it answers', (test) => {
  const stage = new Stage({ limits: { reattachGraceMs: 30_000 } });
  stage.card();
  const worker = stage.worker();
  const lost = stage.granted(worker, 'a', 14 * GiB);
  stage.send({ type: 'session_closed', generation: worker, reason: 'reset' });
  stage.send({ type: 'process_resumed', generation: worker });
  stage.ready(worker);
  const recall = only(stage.send({ type: 'models_announced', generation: worker, seq: 1, models: [] }), 'recall');
  test.equal(recall.lease, lost);
  const again = stage.ask(worker, 'a', 14 * GiB);
  test.equal(all(again.effects, 'grant').length, 0, 'there is no room beside it');
  test.equal(stage.chargedBytes(), plusTenth(14 * GiB));
  const granted = only([...stage.send({ type: 'recall_answered', generation: worker, command: recall.command, lease: lost, begun: false }), ...stage.pass(500)], 'grant');
  test.equal(granted.request, again.request);
  test.not(granted.lease, lost);
  stage.release(worker, lost, 'cancelled');
  test.match(stage.lease(granted.lease), { state: 'granted', chargedBytes: plusTenth(14 * GiB) }, 'what is still said of the old one ends nothing');
  stage.load(worker, granted.lease, 14 * GiB);
  test.match(stage.lease(granted.lease), { state: 'resident' });
  test.end();
});

t.test('a return asked for while its own grant is being recalled waits for the answer; others pass it', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ engine: 'python' });
  const lease = stage.resident(worker, 'a', 4 * GiB, { parkable: true });
  const move = only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 901, model: 'a', target: 'host', deadlineMs: 60_000 }), 'move');
  stage.obey(move);
  stage.report(worker, lease, 'parked', 0, { hostBytes: 4 * GiB });
  only(stage.ask(worker, 'a', 4 * GiB, { lease, parkable: true }).effects, 'grant');
  const recall = only(stage.pass(10_250), 'recall');
  stage.sample();
  const back = stage.ask(worker, 'a', 4 * GiB, { lease, parkable: true });
  test.match(only(back.effects, 'wait').reason, /whether an earlier grant of this lease has arrived/);
  only(stage.ask(stage.worker(), 'b', 4 * GiB).effects, 'grant');
  const answered = stage.send({ type: 'recall_answered', generation: worker, command: recall.command, lease, begun: false });
  const granted = only([...answered, ...stage.pass(500)], 'grant');
  test.match(granted, { request: back.request, chargedBytes: plusTenth(4 * GiB) });
  test.not(granted.lease, lease, 'the old lease was given up with the answer');
  test.end();
});

t.test('a worker that never says whether a grant reached it is ended', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  stage.granted(worker, 'a', 9 * GiB);
  test.match(only(stage.pass(35_000), 'terminate'), { generation: worker, cause: 'command_failed' });
  test.end();
});

t.test('B32: a suspend of eight hours, a host blocked for twelve seconds and a step backwards judge nobody', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 20 * GiB, { policy: { pinned: true } });
  const holder = stage.session('holder');
  stage.sample();
  const asked = stage.ask(holder, 'b', 10 * GiB, { deadlineMs: 20_000 });
  for (const jumpUs of [8 * 3_600_000_000, 12_000_000]) {
    stage.nowUs += jumpUs;
    const effects = stage.send({ type: 'ticked' });
    test.equal(all(effects, 'terminate').length + all(effects, 'deny').length, 0, `a jump of ${String(jumpUs / 1_000_000)} s`);
  }
  const before = stage.nowUs;
  stage.nowUs -= 3_600_000_000;
  test.equal(all(stage.send({ type: 'ticked' }), 'deny').length, 0);
  stage.nowUs = before;
  test.equal(stage.lease(lease)?.state, 'resident');
  test.equal(only(stage.pass(20_000), 'deny').request, asked.request, 'attended time still counts');
  test.end();
});

t.test('D6: silence in attended time ends a worker, and only its exit closes its leases', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.resident(worker, 'a', 4 * GiB);
  stage.silence(worker);
  const effects = stage.pass(10_500);
  test.match(only(effects, 'terminate'), { generation: worker, cause: 'silent' });
  test.equal(all(effects, 'publish').filter((event) => event.name === 'process_suspect').length, 1);
  test.equal(stage.chargedBytes(), plusTenth(4 * GiB));
  test.equal(all(stage.pass(30_000), 'terminate').length, 0, 'once');
  stage.exit(worker);
  test.equal(stage.lease(lease), undefined);
  test.equal(stage.chargedBytes(), 0);
  test.end();
});

t.test('a load begins with the last grant before it: one that was lost with its connection was the start of nothing', (test) => {
  const stage = new Stage({ limits: { reattachGraceMs: 30_000 } });
  stage.card();
  const worker = stage.worker();
  const loadsAfter = (lease: string, firstMs: number): unknown[] => {
    stage.pass(firstMs);
    test.equal(only(stage.ask(worker, 'a', 4 * GiB, { lease, parkable: true, policy: { ttlMs: 5_000 } }).effects, 'grant').lease, lease);
    stage.pass(1_000);
    stage.begin(worker, lease);
    stage.take(worker, 4 * GiB);
    stage.report(worker, lease, 'resident', 4 * GiB, { parts: [weights(4 * GiB)] });
    stage.sample();
    const { loadMs, resumeMs } = stage.core.models.get('a') ?? {};
    return [loadMs, resumeMs, stage.core.leases.get(lease)?.loadTookMs].map((ms) => (typeof ms === 'number' ? Math.floor(ms) : ms));
  };
  const lease = stage.granted(worker, 'a', 4 * GiB, { parkable: true });
  test.strictSame(loadsAfter(lease, 3_000), [1_000, null, 1_000], 'asked for twice');
  stage.obey(only(stage.pass(5_500), 'move'));
  test.equal(stage.lease(lease)?.state, 'parked');
  stage.ask(worker, 'a', 4 * GiB, { lease });
  stage.send({ type: 'session_closed', generation: worker, reason: 'reset' });
  stage.pass(2_000, { beats: false });
  stage.send({ type: 'process_resumed', generation: worker });
  stage.ready(worker);
  stage.send({ type: 'models_announced', generation: worker, seq: 1, models: [{ model: 'a', lease, device: card0, state: 'parked', residentBytes: 0, hostBytes: 4 * GiB, inFlight: 0, parkable: true }] });
  test.strictSame(loadsAfter(lease, 1_000), [1_000, 1_000, 1_000], 'asked for again under its new connection');
  test.end();
});

t.test('what was loading in a process that cannot be ended counts once: what is read of it is that, and nobody else’s', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker();
  const lease = stage.granted(worker, 'a', 8 * GiB);
  stage.begin(worker, lease);
  stage.take(worker, 8 * GiB);
  stage.send({ type: 'kill_unconfirmed', generation: worker, reason: 'in the kernel' });
  stage.sample();
  test.match(stage.lease(lease), { state: 'quarantined', chargedBytes: plusTenth(8 * GiB) });
  test.equal(stage.cardView().foreignBytes, 0);
  // 24 GiB without those 8.8.
  test.match(only(stage.ask(stage.session('holder'), 'b', 13 * GiB).effects, 'grant'), { chargedBytes: plusTenth(13 * GiB) });
  test.end();
});
