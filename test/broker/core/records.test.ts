/** What the records and refusals say: for whom, by what cause, who keeps the room, and with numbers that agree. */
import t from 'tap';
import { explainRecords, type Effect, type ExplainRecord } from '../../../broker/core/index.js';
import { GiB, Stage, all, card0, context, only } from './harness.js';

const newest = (stage: Stage, model: string, count = 1): ExplainRecord[] => explainRecords(stage.core, { model, count });

/** Two workers with a model of 10 GiB each on a card of 24. */
function full(): { readonly stage: Stage; readonly workers: readonly [string, string]; readonly leases: readonly [string, string]; readonly client: string } {
  const stage = new Stage();
  stage.card();
  const workers = [stage.worker(), stage.worker()] as const;
  const leases = [stage.resident(workers[0], 'one', 10 * GiB), stage.resident(workers[1], 'two', 10 * GiB)] as const;
  return { stage, workers, leases, client: stage.session() };
}

t.test('who was evicted is told for whom: the plan is found under its name, and what came free says it', (test) => {
  const { stage } = full();
  stage.pass(5_000);
  const move = only(stage.ask(stage.session('holder'), 'three', 4 * GiB).effects, 'move');
  const effects = stage.obey(move);
  const [evicted, plan] = newest(stage, move.model, 2);
  test.match(evicted, { verdict: 'evicted', text: `${move.model}: 10.0 GiB seen gone by the figure of its process (room for three)` });
  test.match(plan, { verdict: 'evicting', model: 'three', text: /^three needs/, victims: [{ model: move.model, passedOver: null }] });
  const other = move.model === 'one' ? 'two' : 'one';
  test.equal(newest(stage, other, 10).some(({ verdict }) => verdict === 'evicting'), false, 'who was only considered has no part in it');
  test.match(all(effects, 'publish').find(({ name }) => name === 'evicted')?.data, { cause: 'plan', reason: 'room for three' });
  test.end();
});

t.test('an eviction that serves no other request has a record of its own, with its cause', (test) => {
  const stage = new Stage();
  stage.card();
  const worker = stage.worker({ park: false });
  stage.resident(worker, 'brief', GiB, { policy: { ttlMs: 5_000 } });
  stage.obey(only(stage.pass(6_000), 'move'));
  test.match(newest(stage, 'brief', 2), [
    { verdict: 'evicted', text: 'brief: 1.0 GiB seen gone by the figure of its process (unused for its ttl of 5 s)' },
    { verdict: 'evicting', text: 'brief is to be unloaded: unused for its ttl of 5 s' },
  ]);
  stage.resident(worker, 'wanted away', GiB);
  stage.obey(only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'wanted away', target: 'none', deadlineMs: 9_000 }), 'move'));
  test.match(newest(stage, 'wanted away', 2), [{ text: /\(asked for\)$/ }, { text: 'wanted away is to be unloaded: asked for' }]);
  stage.resident(worker, 'wanted parked', GiB);
  stage.obey(only(stage.send({ type: 'evict_requested', generation: stage.session(), request: 1, model: 'wanted parked', target: 'host', deadlineMs: 9_000 }), 'move'));
  test.match(newest(stage, 'wanted parked', 2)[1], { text: 'wanted parked is to be unloaded, as it cannot be parked: asked for' });
  test.end();
});

t.test('who is in use and stays is told with for whom it was asked, and by how many calls, where they are counted', (test) => {
  for (const [inFlight, told] of [[0, 'is in use and'], [2, 'is in use (2 inside) and']] as const) {
    const { stage } = full();
    stage.pass(5_000);
    const move = only(stage.ask(stage.session('holder'), 'three', 4 * GiB).effects, 'move');
    stage.answer(move, { kind: 'busy', inFlight });
    test.ok(newest(stage, move.model, 5).some(({ text }) => text === `${move.model} ${told} was not evicted (room for three)`), told);
  }
  test.end();
});

t.test('a process that ends is told with how, under each model that went with it', (test) => {
  const { stage, workers } = full();
  stage.exit(workers[0]);
  test.match(newest(stage, 'one'), [{ verdict: 'ended', text: `${workers[0]} has ended (exit code 139), and 10.0 GiB of one with it` }]);
  test.match(explainRecords(stage.core, { count: 3 }).map(({ verdict, text }) => `${verdict} ${text}`), [/^ended .* are returning$/, /^ended .* of one with it$/]);
  test.end();
});

t.test('who waits because everything is pinned is told so: in the wait, in the deadline and in both records, with who was considered', (test) => {
  const { stage, client } = full();
  for (const [request, model] of ['one', 'two'].entries()) stage.send({ type: 'pin_requested', generation: client, request: 1 + request, model, pinned: true });
  const asked = stage.ask(stage.session('holder'), 'three', 4 * GiB, { deadlineMs: 3_000 });
  const pinned = 'one, two are pinned (leasehold pin --off MODEL)';
  const wait = only(asked.effects, 'wait');
  test.match(wait.reason, `${pinned}: 4.4 GiB needed, 2.0 GiB available (22.0 GiB charged, 0 B held for others)`);
  test.match(newest(stage, 'three'), [{ verdict: 'waiting', victims: [{ model: 'one', passedOver: 'pinned' }, { model: 'two', passedOver: 'pinned' }] }]);
  const denied = only(stage.pass(4_000), 'deny');
  test.match(denied, { code: 'deadline_passed', details: { reason: new RegExp(`^${pinned.replace(/[()]/g, '.')}: 4.4 GiB needed`) } });
  test.match(newest(stage, 'three'), [{ verdict: 'expired', text: /^three waited 3 s: one, two are pinned/, victims: [{ passedOver: 'pinned' }, { passedOver: 'pinned' }] }]);
  test.end();
});

t.test('what keeps the room is told by name and reason, and again when a pin has changed', (test) => {
  const { stage, workers, leases, client } = full();
  stage.pass(5_000);
  stage.sample();
  stage.use(workers[0], leases[0], 1);
  stage.send({ type: 'pin_requested', generation: client, request: 1, model: 'two', pinned: true });
  const waits = (effects: readonly Effect[]): string[] => all(effects, 'wait').map(({ reason }) => reason.replace(/: .*/, ''));
  test.strictSame(waits(stage.ask(stage.session('holder'), 'three', 8 * GiB, { class: 'background' }).effects), ['two is pinned (leasehold pin --off MODEL), one is in use']);
  test.strictSame(waits(stage.pass(1_000)), [], 'the same is not told twice');
  stage.send({ type: 'pin_requested', generation: client, request: 2, model: 'one', pinned: true });
  test.strictSame(waits(stage.pass(1_000)), ['one, two are pinned (leasehold pin --off MODEL)']);
  test.match(stage.view().waiting, [{ reason: /^one, two are pinned/ }]);

  const small = new Stage();
  small.card();
  small.truth().foreignBytes = 20 * GiB;
  small.sample();
  test.match(only(small.ask(small.session('holder'), 'three', 8 * GiB).effects, 'wait').reason, /^nothing is there that could be put away: .*, 20\.0 GiB used by processes we do not own; the card reads 20\.0 GiB used\)$/);
  small.resident(small.worker(), 'four', GiB);
  small.pass(5_000);
  test.match(newest(small, 'three'), [{ victims: [] }]);
  test.end();
});

t.test('who was asked to leave and does not answer is named after a while: in the wait, the view, the denial, its record, and once for the log', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'reranker', 14 * GiB);
  stage.pass(5_000);
  const asked = stage.ask(stage.session('holder'), 'model', 12 * GiB, { deadlineMs: 9_500 });
  stage.answer(only(asked.effects, 'move'), { kind: 'draining', inFlight: 0 });
  test.match(all(asked.effects, 'wait').at(-1)?.reason, /^room is being made: 13\.2 GiB needed/);
  test.strictSame(all(stage.pass(2_750), 'wait'), [], 'not at once: most answer in no time');
  const who = `reranker (${holder}) was asked to leave 3 s ago and has not answered`;
  const slow = stage.pass(250);
  test.equal(only(slow, 'wait').reason.startsWith(`room is being made; ${who}: 13.2 GiB needed`), true, only(slow, 'wait').reason);
  test.match(all(slow, 'publish').filter(({ name }) => name === 'leaving_slowly').map(({ data }) => data), [{ lease, model: 'reranker', generation: holder, sinceMs: 3_000, answered: false, why: who }]);
  const later = stage.pass(6_000);
  test.strictSame(all(later, 'wait').map(({ reason }) => reason.replace(/:.*/, '')), [`room is being made; reranker (${holder}) was asked to leave 8 s ago and has not answered`], 'every few seconds anew');
  test.strictSame(all(later, 'publish').filter(({ name }) => name === 'leaving_slowly' || name === 'waiting'), [], 'the log hears it once');
  test.match(stage.view().waiting, [{ reason: /was asked to leave 9 s ago and has not answered: 13\.2 GiB needed/ }], 'of the moment');
  test.match(stage.lease(lease), { leavingMs: /^900\d$/ });
  const denied = only(stage.pass(1_000), 'deny');
  test.match(denied.details['reason'], /^reranker \(\S+\) was asked to leave 9 s ago and has not answered: 13\.2 GiB needed/);
  test.match(newest(stage, 'model'), [{ verdict: 'expired', text: /waited .*: reranker \(\S+\) was asked to leave 9 s ago/ }]);
  test.end();
});

t.test('who says that it has left, and is seen not to have, is named with what it said', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  stage.resident(holder, 'reranker', 14 * GiB);
  stage.pass(5_000);
  const asked = stage.ask(stage.session('holder'), 'model', 12 * GiB, { deadlineMs: 12_000 });
  stage.answer(only(asked.effects, 'move'), { kind: 'done', target: 'none', freedBytes: 14 * GiB, residentBytes: 0, hostBytes: 0 });
  stage.sample();
  const slow = stage.pass(3_000);
  const who = `reranker (${holder}) said 3 s ago that 14.0 GiB were freed; the card still shows them`;
  test.match(all(slow, 'publish').filter(({ name }) => name === 'leaving_slowly').map(({ data }) => data), [{ answered: true, why: who }]);
  test.equal(all(slow, 'wait').at(-1)?.reason.startsWith(`room is being made; ${who}: 13.2 GiB needed`), true, String(all(slow, 'wait').at(-1)?.reason));
  test.match(stage.view().leases, [{ state: 'releasing', leavingMs: 3_000 }]);
  test.match(only(stage.pass(10_000), 'deny').details['reason'], /^reranker \(\S+\) said 12 s ago that 14\.0 GiB were freed; the card still shows them: /);
  test.end();
});

t.test('a wait whose figures have changed is told again, after a while', (test) => {
  const { stage, client } = full();
  for (const [request, model] of ['one', 'two'].entries()) stage.send({ type: 'pin_requested', generation: client, request: 1 + request, model, pinned: true });
  const asked = stage.ask(stage.session('holder'), 'three', 8 * GiB);
  test.match(all(asked.effects, 'wait').at(-1)?.reason, /^one, two are pinned \(leasehold pin --off MODEL\): 8\.8 GiB needed, 2\.0 GiB available/);
  stage.truth().foreignBytes = GiB;
  const told = [...stage.sample(), ...stage.pass(5_250)];
  test.strictSame(all(told, 'wait').map(({ reason }) => reason.replace(/.*: (.*) \(.*/, '$1')), ['8.8 GiB needed, 1.0 GiB available']);
  test.strictSame(all(stage.pass(20_000), 'wait'), [], 'and not while they are the same');
  test.end();
});

t.test('the numbers of a record agree with its sentence: what is held for a request is available to it, and held for nobody else', (test) => {
  const { stage, workers, leases } = full();
  stage.pass(5_000);
  stage.use(workers[0], leases[0], 1);
  const holder = stage.session('holder');
  const move = only(stage.ask(holder, 'three', 11 * GiB, { deadlineMs: 4_000 }).effects, 'move');
  const waiting = stage.view().waiting[0]!;
  test.equal(waiting.holdBytes, 2 * GiB, 'what is free is its own by now');
  test.match(waiting.reason, '12.1 GiB needed, 2.0 GiB available (22.0 GiB charged, 0 B held for others)');
  const denied = only(stage.pass(5_000), 'deny');
  test.match(denied.numbers, { holdBytes: 0, availableBytes: 2 * GiB, chargedBytes: 22 * GiB, needBytes: 11 * GiB + Math.ceil(11 * GiB / 10) });
  test.match(denied.details['reason'], /12\.1 GiB needed, 2\.0 GiB available \(22\.0 GiB charged, 0 B held for others\)/);
  test.equal(move.model, 'two', 'the one that is not in use');
  test.end();
});

t.test('a holder that fails to give back keeps its lease for another try; the second failure in a row quarantines it, and it is told', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'reranker', 14 * GiB);
  stage.pass(5_000);
  const asked = stage.ask(stage.session('holder'), 'model', 12 * GiB, { deadlineMs: 300_000 });
  const failed = (residentBytes: number) => ({ kind: 'failed', code: 'move_failed', message: 'the driver said no', residentBytes }) as const;
  const first = stage.answer(only(asked.effects, 'move'), failed(14 * GiB));
  test.strictSame([stage.lease(lease)?.state, all(first, 'lease_quarantined').length, all(first, 'terminate').length], ['resident', 0, 0]);
  test.match(newest(stage, 'reranker'), [{ verdict: 'escalated', text: 'reranker was not given back (the driver said no); nothing was freed, it stays charged' }]);
  test.match(stage.view().waiting, [{ reason: /^reranker does not give way when asked: / }]);
  const again = stage.answer(only(stage.pass(6_000), 'move'), failed(14 * GiB));
  test.match(only(again, 'lease_quarantined'), { generation: holder, lease, bytes: 14 * GiB + Math.ceil(14 * GiB / 10), reason: /the driver said no/ });
  test.equal(stage.lease(lease)?.state, 'quarantined');
  test.end();
});

t.test('a holder that says it cannot is left alone for a while, however often; who asks for it by name is told', (test) => {
  const stage = new Stage();
  stage.card();
  const lease = stage.resident(stage.session('holder'), 'fixed', 14 * GiB);
  const client = stage.session();
  for (let request = 1; request <= 3; request++) {
    const move = only(stage.send({ type: 'evict_requested', generation: client, request, model: 'fixed', target: 'none', deadlineMs: 60_000 }), 'move');
    test.match(only(stage.answer(move, { kind: 'unsupported', message: 'not while it is mapped' }), 'fail'), { request, code: 'unsupported', details: { model: 'fixed', reason: 'not while it is mapped' } });
    stage.pass(6_000);
  }
  test.equal(stage.lease(lease)?.state, 'resident');
  test.end();
});

t.test('what is left without a copy elsewhere is not parked: the lease is smaller, or nothing was done', (test) => {
  const stage = new Stage();
  stage.card();
  const holder = stage.session('holder');
  const lease = stage.resident(holder, 'reranker', 14 * GiB);
  const evict = (request: number) => only(stage.send({ type: 'evict_requested', generation: stage.session(), request, model: 'reranker', target: 'none', deadlineMs: 60_000 }), 'move');
  const nothing = stage.answer(evict(1), { kind: 'done', target: 'host', freedBytes: 0, residentBytes: 14 * GiB, hostBytes: 0 });
  test.match(only(nothing, 'fail'), { code: 'move_failed', details: { reason: 'all of its 14.0 GiB are still there' } });
  test.equal(all(nothing, 'publish').some(({ name }) => name === 'evicted'), false);
  stage.pass(6_000);
  stage.take(holder, -4 * GiB);
  const some = stage.answer(evict(2), { kind: 'done', target: 'host', freedBytes: 4 * GiB, residentBytes: 10 * GiB, hostBytes: 0 });
  test.match(stage.lease(lease), { state: 'resident', residentBytes: 10 * GiB, chargedBytes: 11 * GiB });
  test.match(only(some, 'report_evicted'), { freedBytes: 4 * GiB });
  test.end();
});

t.test('a pin is remembered before its model is loaded and after it has gone, and so is its undoing; so many and no more', (test) => {
  const stage = new Stage({ limits: { pinnedModelsMax: 2 } });
  stage.card();
  const client = stage.session();
  let request = 0;
  const pin = (model: string, pinned: boolean): Effect[] => stage.send({ type: 'pin_requested', generation: client, request: ++request, model, pinned });
  test.equal(only(pin('a', true), 'acknowledge').request, 1);
  test.equal(only(pin('b', false), 'acknowledge').request, 2);
  const worker = stage.worker({ engine: 'python' });
  const a = stage.resident(worker, 'a', GiB);
  const b = stage.resident(worker, 'b', GiB, { policy: { pinned: true } });
  test.match([stage.lease(a), stage.lease(b)], [{ pinned: true }, { pinned: false }], 'the word of an operator before that of a policy');
  stage.release(worker, a);
  stage.take(worker, -GiB);
  stage.sample();
  test.equal(stage.lease(stage.resident(worker, 'a', GiB))?.pinned, true);
  test.match(only(pin('c', true), 'fail'), { code: 'too_many_pins', details: { limit: '2' } });
  test.equal(only(pin('a', false), 'acknowledge').request, 4, 'what is remembered already may be changed');
  test.end();
});

t.test('a lease that would outgrow its card with what it asks for is refused at once: its own bytes make room for nothing', (test) => {
  const { stage, workers, leases } = full();
  const denied = only(stage.ask(workers[0], 'one', 0, { lease: leases[0], parts: [context(12 * GiB)] }).effects, 'deny');
  test.match(denied, { code: 'never_fits', details: { needBytes: String(Math.ceil((22 * GiB * 11) / 10)), mostBytes: String(24 * GiB) } });
  test.match(newest(stage, 'one'), [{ text: /^one can never fit on GPU-0: 24\.2 GiB needed; at most 24\.0 GiB could be had there$/ }]);
  test.equal(only(stage.ask(workers[0], 'one', 0, { lease: leases[0], parts: [context(11 * GiB)] }).effects, 'wait').position, 0, 'this it could have, were the other away');
  test.end();
});

t.test('a request that its requester takes back is told with its wait: at the end of its deadline, or before', (test) => {
  const { stage, client } = full();
  for (const [request, model] of ['one', 'two'].entries()) stage.send({ type: 'pin_requested', generation: client, request: 1 + request, model, pinned: true });
  const holder = stage.session('holder');
  const late = stage.ask(holder, 'late', 4 * GiB, { deadlineMs: 300 });
  stage.pass(270);
  stage.send({ type: 'request_cancelled', generation: holder, request: late.request });
  test.match(newest(stage, 'late'), [{ verdict: 'expired', waitedMs: 270, text: /^late waited 270 ms, until its deadline \(300 ms were left of it when it asked\): one, two are pinned .*: 4\.4 GiB needed, 2\.0 GiB available/ }]);
  const early = stage.ask(holder, 'early', 4 * GiB, { deadlineMs: 60_000 });
  stage.pass(1_000);
  stage.send({ type: 'request_cancelled', generation: holder, request: early.request });
  test.match(newest(stage, 'early'), [{ verdict: 'cancelled', text: /^early waited 1 s and was taken back by its requester, 59 s before its deadline: one, two are pinned / }]);
  test.end();
});

t.test('an eviction that is not done in time says what keeps the model there: calls, else bytes that nobody has confirmed', (test) => {
  for (const [inFlight, told] of [[1, `1 call still inside on ${card0}; it goes when that has ended`], [2, `2 calls still inside on ${card0}; it goes when they have ended`], [0, `its bytes on ${card0} are not confirmed free yet`]] as const) {
    const { stage, workers, leases, client } = full();
    stage.use(workers[0], leases[0], inFlight);
    stage.send({ type: 'evict_requested', generation: client, request: 90, model: 'one', target: 'none', deadlineMs: 1_000 });
    test.match(only(stage.pass(1_001), 'fail'), { request: 90, code: 'deadline_passed', details: { what: 'evicting one', deadlineMs: '1000', reason: told } });
  }
  test.end();
});

t.test('a model that is too large for its card is refused with the cards that could hold it, and with none where there is none', (test) => {
  const stage = new Stage();
  stage.card(card0, { totalBytes: 8 * GiB });
  stage.card('GPU-1', { totalBytes: 24 * GiB });
  const asked = (bytes: number) => stage.ask(stage.session('holder'), 'coder', bytes).effects;
  const first = asked(12 * GiB);
  test.match(only(first, 'deny'), { code: 'never_fits', details: { device: card0, elsewhere: 'GPU-1' } });
  test.match(all(first, 'publish').find(({ name }) => name === 'denied')?.data, { elsewhere: 'GPU-1', why: /at most 8\.0 GiB could be had there; GPU-1 could hold it$/ });
  test.match(only(asked(40 * GiB), 'deny'), { code: 'never_fits', details: { elsewhere: '' } });
  test.match(newest(stage, 'coder'), [{ verdict: 'denied', text: /could be had there$/ }]);
  test.end();
});
