/** Gangs: one model over several cards is leased on all of them or on none, placed, evicted and grown as one. */
import t from 'tap';
import { defaultLimits } from '../../../protocol/index.js';
import { checkInvariants, restore, snapshot, step, type Effect } from '../../../broker/core/index.js';
import { all, context, GiB, MiB, only, plusTenth, Stage, stageOf, weights } from './harness.js';

const [a, b, c] = ['GPU-a', 'GPU-b', 'GPU-c'] as const;

const twoCards = (): Stage => stageOf([a, 24 * GiB], [b, 24 * GiB]);
const denials = (effects: readonly Effect[]): string[] => all(effects, 'deny').map(({ code }) => code);

t.test('R125: a gang is granted with the last of its requests, on all of its cards, in the order of their UUIDs', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const first = stage.ask(worker, 'wide', 10 * GiB, { device: b, gang: { gang: 'g', size: 2 } });
  test.same(all(first.effects, 'grant').length + all(first.effects, 'deny').length, 0, 'one request alone is not decided');
  test.equal(stage.cardView(b).holdBytes, 0, 'and holds nothing');
  const second = stage.ask(worker, 'wide', 5 * GiB, { device: a, gang: { gang: 'g', size: 2 } });
  const grants = all(second.effects, 'grant');
  test.same(grants.map(({ device, chargedBytes }) => [device, chargedBytes]), [[a, plusTenth(5 * GiB)], [b, plusTenth(10 * GiB)]]);
  test.same(grants.map(({ request }) => request), [second.request, first.request], 'each under its own id');
  const records = all(second.effects, 'explain').filter(({ record }) => record.verdict === 'granted');
  for (const { record } of records) test.match(record.text, /with its gang: 5\.5 GiB on GPU-a, 11\.0 GiB on GPU-b/, 'each record tells all cards');
  const [one, two] = stage.view().leases;
  test.ok(one?.gang !== null && one?.gang === two?.gang, 'the leases have a name in common');
});

t.test('what is asked for beside a gang of the same name that has not begun leaves all of it', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const gang = stage.askGang(worker, 'wide', { [a]: 4 * GiB, [b]: 4 * GiB });
  const leases = all(gang.effects, 'grant').map(({ lease }) => lease);
  stage.ask(worker, 'wide', 60 * GiB, { device: a });
  stage.ask(worker, 'wide', GiB, { device: a });
  stage.ask(worker, 'wide', GiB, { device: a, gang: { gang: 'half', size: 2 }, deadlineMs: 1_000 });
  stage.pass(2_000);
  test.match(leases.map((lease) => stage.lease(lease)), [{ state: 'granted' }, { state: 'granted' }]);
});

t.test('R125: while one card has no room, nothing is granted on the other, and singles pass there until the gang may insist', async (test) => {
  const stage = twoCards();
  const holder = stage.session('holder');
  const blocker = stage.resident(holder, 'blocker', 20 * GiB, { device: b, policy: { pinned: true } });
  const worker = stage.wideWorker([a, b]);
  const { effects } = stage.askGang(worker, 'wide', { [a]: 20 * GiB, [b]: 10 * GiB });
  test.equal(all(effects, 'grant').length, 0);
  test.same(all(effects, 'wait').map(({ reason }) => reason.split(':')[0]), ['there is room here; another of its cards is awaited', 'blocker is pinned (leasehold pin --off MODEL)']);
  const single = stage.granted(holder, 'small', 10 * GiB, { device: a });
  test.equal(stage.cardView(a).holdBytes, 0, 'nothing is kept for it where it cannot go yet');
  stage.release(holder, single, 'unused');
  const after = stage.release(holder, blocker);
  stage.take(holder, -20 * GiB, b);
  test.equal(all([...after, ...stage.sample(b)], 'grant').length, 2, 'granted together when the last card has room');
});

t.test('R125: what was true of one of its cards in an earlier step is looked at again before a gang is granted', async (test) => {
  const stage = twoCards();
  const holder = stage.session('holder');
  const blocker = stage.resident(holder, 'blocker', 20 * GiB, { device: b, policy: { pinned: true } });
  stage.askGang(stage.wideWorker([a, b]), 'wide', { [a]: 20 * GiB, [b]: 10 * GiB }, { deadlineMs: 600_000 });
  stage.samples = false;
  stage.release(holder, blocker);
  stage.sample(a);
  stage.pass(defaultLimits.sampleMaxAgeMs - 250);
  // No tick since the reading has become too old.
  stage.nowUs += 400_000;
  stage.take(holder, -20 * GiB, b);
  test.equal(all(stage.sample(b), 'grant').length, 0, 'there was room on the other, by a reading that is too old now');
  test.equal(all(stage.sample(a), 'grant').length, 2);
});

t.test('R125: one member refused, cancelled, overdue or dead undoes all, and late ones hear why', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const never = stage.askGang(worker, 'wide', { [a]: GiB, [b]: 30 * GiB }, { name: 'never' });
  test.same(all(never.effects, 'deny').map(({ request, code, details }) => [request, code, details['device']]), [[never.requests[1], 'never_fits', b], [never.requests[0], 'never_fits', b]]);
  const late = stage.ask(worker, 'wide', GiB, { device: a, gang: { gang: 'never', size: 2 } });
  test.equal(only(late.effects, 'deny').code, 'never_fits', 'a name that is over stays over');

  const first = stage.ask(worker, 'wide', GiB, { device: a, gang: { gang: 'half', size: 2 }, deadlineMs: 1_000 });
  test.equal(denials(first.effects).length, 0);
  const overdue = all(stage.pass(1_500), 'deny');
  test.same(overdue.map(({ request, code }) => [request, code]), [[first.request, 'deadline_passed']], 'an incomplete gang does not wait for ever');

  const holder = stage.session('holder');
  stage.resident(holder, 'blocker', 20 * GiB, { device: b, policy: { pinned: true } });
  const waiting = stage.askGang(worker, 'wide', { [a]: GiB, [b]: 10 * GiB }, { name: 'cancelled' });
  const cancelled = stage.send({ type: 'request_cancelled', generation: worker, request: waiting.requests[1] ?? 0 });
  test.same(all(cancelled, 'deny').map(({ request, code }) => [request, code]), [[waiting.requests[0], 'gang_broken']]);

  stage.askGang(worker, 'wide', { [a]: GiB, [b]: 10 * GiB }, { name: 'dead' });
  test.same(all(stage.exit(worker), 'deny'), [], 'nobody is left to be told');
  test.equal(stage.view().waiting.length, 0);
  test.ok(stage.cardView(a).forming === null && stage.cardView(b).forming === null);
});

t.test('a gang that contradicts itself is refused as a whole', async (test) => {
  const stage = stageOf([a, 24 * GiB], [b, 24 * GiB], [c, 24 * GiB]);
  const worker = stage.wideWorker([a, b]);
  for (const [name, second] of [
    ['model', { model: 'another', device: b, size: 2 }], ['size', { model: 'wide', device: b, size: 3 }], ['card', { model: 'wide', device: a, size: 2 }],
  ] as const) {
    const first = stage.ask(worker, 'wide', GiB, { device: a, gang: { gang: name, size: 2 } });
    test.same(denials(first.effects), []);
    const { effects } = stage.ask(worker, second.model, GiB, { device: second.device, gang: { gang: name, size: second.size } });
    test.same(denials(effects), ['gang_broken', 'gang_broken'], `by ${name}`);
  }
  const unknown = stage.askGang(worker, 'wide', { [a]: GiB, 'GPU-zzz': GiB });
  test.same(denials(unknown.effects), ['device_unknown', 'device_unknown'], 'R277: an unknown card refuses it');
  test.equal(stage.view().waiting.length, 0);
});

t.test('two gangs over the same cards, asked in opposite order, never wait for each other', async (test) => {
  const stage = stageOf([a, 24 * GiB], [b, 24 * GiB]);
  const one = stage.wideWorker([a, b]);
  const two = stage.wideWorker([a, b], { model: 'other' });
  const holder = stage.session('holder');
  const blocker = stage.resident(holder, 'blocker', 20 * GiB, { device: a, policy: { pinned: true } });
  stage.askGang(one, 'first', { [a]: 15 * GiB, [b]: 15 * GiB });
  stage.pass(3_000);
  stage.askGang(two, 'second', { [b]: 15 * GiB, [a]: 15 * GiB });
  stage.pass(3_000);
  test.ok(stage.cardView(a).forming !== null && stage.cardView(a).forming === stage.cardView(b).forming, 'one forming gang a card');
  stage.release(holder, blocker);
  stage.take(holder, -20 * GiB, a);
  const granted = all([...stage.sample(a), ...stage.pass(1_000)], 'grant');
  test.same(granted.map(({ generation }) => generation), [one, one], 'the elder has both');
  test.equal(stage.view().waiting.length, 2, 'the younger waits, and holds nothing');
  test.ok(stage.cardView(a).holdBytes + stage.cardView(b).holdBytes <= 2 * 24 * GiB - stage.chargedBytes(a) - stage.chargedBytes(b));
  for (const { lease } of granted) stage.release(one, lease, 'unused');
  test.equal(stage.view().leases.filter(({ model }) => model === 'second').length, 2);
});

t.test('a gang of higher class goes before one that has not begun to make room', async (test) => {
  const stage = twoCards();
  const slow = stage.wideWorker([a, b]);
  const quick = stage.wideWorker([a, b], { model: 'other' });
  const holder = stage.session('holder');
  const blocker = stage.resident(holder, 'blocker', 20 * GiB, { device: b, policy: { pinned: true } });
  stage.askGang(slow, 'slow', { [a]: 15 * GiB, [b]: 15 * GiB }, { class: 'background' });
  stage.askGang(quick, 'quick', { [b]: 15 * GiB, [a]: 15 * GiB }, { class: 'interactive' });
  stage.release(holder, blocker);
  stage.take(holder, -20 * GiB, b);
  test.same(all(stage.sample(b), 'grant').map(({ generation }) => generation), [quick, quick]);
});

t.test('R123: nothing is evicted on one card unless enough can be on every card', async (test) => {
  const stage = twoCards();
  const holder = stage.session('holder');
  stage.resident(holder, 'idle-a', 20 * GiB, { device: a, class: 'background' });
  stage.resident(holder, 'pinned-b', 20 * GiB, { device: b, policy: { pinned: true } });
  stage.pass(5_000);
  const worker = stage.wideWorker([a, b]);
  const { effects, requests } = stage.askGang(worker, 'wide', { [a]: 15 * GiB, [b]: 15 * GiB });
  test.same([...all(effects, 'move'), ...all(stage.pass(5_000), 'move')], [], 'the idle model stays, for nothing would come of it');
  stage.send({ type: 'request_cancelled', generation: worker, request: requests[0] ?? 0 });

  const both = twoCards();
  const other = both.session('holder');
  both.resident(other, 'idle-a', 20 * GiB, { device: a });
  both.resident(other, 'idle-b', 20 * GiB, { device: b });
  both.pass(5_000);
  const wide = both.wideWorker([a, b]);
  const asked = both.askGang(wide, 'wide', { [b]: 15 * GiB, [a]: 15 * GiB });
  const moves = all(asked.effects, 'move');
  test.same(moves.map(({ model }) => model).sort(), ['idle-a', 'idle-b'], 'where it can be, room is made on all cards at once');
  const [first, second] = moves;
  if (first === undefined || second === undefined) throw new Error('two moves were expected');
  const half = [...both.obey(first), ...both.pass(500)];
  test.equal(all(half, 'grant').length, 0);
  const device = first.model === 'idle-a' ? a : b;
  test.equal(both.cardView(device).holdBytes, plusTenth(15 * GiB), 'what has come free is kept for it');
  test.equal(all([...both.obey(second), ...both.pass(500)], 'grant').length, 2);
});

t.test('an evicted gang leaves all of its cards, and its cost is that of the whole model', async (test) => {
  const stage = stageOf([a, 24 * GiB], [b, 24 * GiB]);
  const worker = stage.wideWorker([a, b]);
  const leases = stage.residentGang(worker, 'wide', { [a]: 15 * GiB, [b]: 10 * GiB });
  stage.pass(3_000);
  const holder = stage.session('holder');
  const { effects } = stage.ask(holder, 'single', 15 * GiB, { device: b });
  const moves = all(effects, 'move');
  test.same(moves.map(({ lease }) => lease).sort(), Object.values(leases).sort(), 'a command for each of its leases');
  const plan = all(effects, 'explain').find(({ record }) => record.verdict === 'evicting')?.record;
  test.same(plan?.victims.map(({ lease, freesBytes, passedOver }) => [lease, freesBytes, passedOver]), [[leases[b], plusTenth(10 * GiB), null], [leases[a], plusTenth(15 * GiB), null]], 'the record names what else goes');
  const done = moves.flatMap((move) => stage.obey(move));
  test.equal(only([...done, ...stage.pass(500)], 'grant').device, b);
  test.equal(stage.view().leases.filter(({ model }) => model === 'wide').every(({ state, chargedBytes }) => state === 'parked' || chargedBytes === 0), true);
});

t.test('a gang is no victim where only one of its cards allows it', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const leases = stage.residentGang(worker, 'wide', { [a]: 15 * GiB, [b]: 10 * GiB });
  stage.pass(3_000);
  stage.use(worker, leases[a] ?? '', 1);
  const holder = stage.session('holder');
  const busy = stage.ask(holder, 'single', 15 * GiB, { device: b });
  test.same(all(busy.effects, 'move'), [], 'in use on one card is in use');
  stage.send({ type: 'request_cancelled', generation: holder, request: busy.request });
  stage.use(worker, leases[a] ?? '', 0);
  stage.sample(a);
  const profiler = stage.session('holder');
  const token = stage.granted(profiler, 'profiler', GiB, { device: a, profiles: true });
  stage.begin(profiler, token);
  const { effects } = stage.ask(holder, 'single', 15 * GiB, { device: b });
  test.same(all(effects, 'move'), [], 'B14: on its other card an engine measures free memory');
  stage.take(profiler, GiB, a);
  const loaded = stage.report(profiler, token, 'resident', GiB, { parts: [weights(GiB)], loadMs: 10 });
  test.equal(all([...loaded, ...stage.pass(500)], 'move').length, 2, 'afterwards it goes');
});

t.test('what is left of a gang that lost a member is asked back', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const leases = stage.residentGang(worker, 'wide', { [a]: 5 * GiB, [b]: 5 * GiB });
  stage.release(worker, leases[a] ?? '');
  stage.take(worker, -5 * GiB, a);
  stage.sample(a);
  test.same(all(stage.pass(3_000), 'move'), [], 'its owner has a moment to give back the rest by itself');
  const asked = only(stage.pass(4_000), 'move');
  test.match(asked, { lease: leases[b], target: 'none', when: 'drained' });
  stage.obey(asked);
  test.equal(stage.view().leases.length, 0);
  test.equal(stage.core.stranded.size, 0);
});

t.test('D5: a grant that was lost on one card is taken back on all', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const grants = all(stage.askGang(worker, 'wide', { [a]: 5 * GiB, [b]: 5 * GiB }).effects, 'grant');
  const recalls = all(stage.pass(11_000), 'recall');
  test.equal(recalls.length, 2);
  const [first, second] = recalls;
  if (first === undefined || second === undefined) throw new Error('two recalls were expected');
  stage.send({ type: 'recall_answered', generation: worker, command: first.command, lease: first.lease, begun: false });
  stage.send({ type: 'recall_answered', generation: worker, command: second.command, lease: second.lease, begun: false });
  test.equal(stage.view().leases.length, 0);
  test.equal(grants.length, 2);
  test.equal(stage.chargedBytes(a) + stage.chargedBytes(b), 0);
});

t.test('a gang grows on each of its cards or on none', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const leases = stage.residentGang(worker, 'wide', { [a]: 5 * GiB, [b]: 15 * GiB });
  const alone = stage.ask(worker, 'wide', 0, { device: a, lease: leases[a] ?? '', parts: [context(GiB, 'context:2')] });
  test.equal(only(alone.effects, 'deny').code, 'gang_broken', 'one lease of it does not grow alone');
  const tooMuch = stage.askGang(worker, 'wide', { [a]: GiB, [b]: 20 * GiB }, { leases, parts: [context(30 * GiB, 'context:2')] });
  test.same(denials(tooMuch.effects), ['never_fits', 'never_fits']);
  const grown = stage.askGang(worker, 'wide', { [a]: 0, [b]: 0 }, { leases, parts: [context(GiB, 'context:2')] });
  test.same(all(grown.effects, 'grant').map(({ lease, chargedBytes }) => [lease, chargedBytes]), [[leases[a], plusTenth(6 * GiB)], [leases[b], plusTenth(16 * GiB)]]);
});

t.test('R125: an engine that measures free memory loads on all of its cards alone', async (test) => {
  const stage = twoCards();
  const holder = stage.session('holder');
  const loading = stage.granted(holder, 'loading', GiB, { device: b });
  stage.begin(holder, loading);
  const worker = stage.wideWorker([a, b]);
  const { effects } = stage.askGang(worker, 'wide', { [a]: GiB, [b]: GiB }, { profiles: true });
  test.equal(all(effects, 'grant').length, 0, 'something loads on one of its cards');
  stage.take(holder, GiB, b);
  const settled = stage.report(holder, loading, 'resident', GiB, { parts: [weights(GiB)], loadMs: 5 });
  test.equal(all([...settled, ...stage.pass(500)], 'grant').length, 2);
  test.ok(stage.cardView(a).loadToken !== null && stage.cardView(b).loadToken !== null, 'the token of each');
  const other = stage.ask(holder, 'next', GiB, { device: a });
  test.equal(all(other.effects, 'grant').length, 0);
});

t.test('B79: a gang whose load failed on one card backs off on all', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const grants = all(stage.askGang(worker, 'wide', { [a]: GiB, [b]: GiB }).effects, 'grant');
  for (const { lease } of grants) stage.begin(worker, lease);
  for (const { lease } of grants) stage.release(worker, lease, 'load_failed', { code: 'load_failed', message: 'a broken file' });
  stage.sample(a);
  stage.sample(b);
  test.same(denials(stage.askGang(worker, 'wide', { [a]: GiB, [b]: GiB }).effects), ['backing_off', 'backing_off']);
});

t.test('a snapshot taken while a gang waits goes on exactly as it would have', async (test) => {
  const stage = twoCards();
  const holder = stage.session('holder');
  stage.resident(holder, 'blocker', 20 * GiB, { device: b, policy: { pinned: true } });
  const worker = stage.wideWorker([a, b]);
  stage.askGang(worker, 'wide', { [a]: 5 * GiB, [b]: 10 * GiB });
  const copy = restore(JSON.parse(JSON.stringify(snapshot(stage.core))));
  checkInvariants(copy);
  const atUs = stage.nowUs + 61_000_000;
  test.same(step(copy, { atUs, type: 'ticked' }), step(stage.core, { atUs, type: 'ticked' }));
});

t.test('D17: a resize of a gang grows each of its cards or none, and tells all of them', async (test) => {
  const stage = twoCards();
  const worker = stage.wideWorker([a, b]);
  const leases = stage.residentGang(worker, 'wide', { [a]: 5 * GiB, [b]: 15 * GiB });
  const resize = (first: number, also: number | null): Effect[] => stage.send({
    type: 'resize_requested', generation: worker, request: 500, lease: leases[a] ?? '', parts: [context(first)],
    ...(also === null ? {} : { also: [{ lease: leases[b] ?? '', parts: [context(also)] }] }),
  });
  test.equal(only(resize(GiB, null), 'deny').code, 'gang_broken', 'alone it does not grow');
  test.equal(only(resize(GiB, 8 * GiB), 'deny').code, 'resize_denied', 'nor where one card has no room');
  test.same(stage.view().leases.map(({ chargedBytes }) => chargedBytes), [plusTenth(5 * GiB), plusTenth(15 * GiB)], 'and then nothing has changed');
  test.match(only(resize(GiB, 2 * GiB), 'grant'), { lease: leases[a], chargedBytes: plusTenth(6 * GiB), also: [{ lease: leases[b], chargedBytes: plusTenth(17 * GiB) }] });
  const holder = stage.session('holder');
  const other = stage.granted(holder, 'theirs', GiB, { device: a });
  test.equal(only(stage.send({ type: 'resize_requested', generation: worker, request: 501, lease: leases[a] ?? '', parts: [], also: [{ lease: other, parts: [] }] }), 'fail').code, 'lease_not_yours', 'a stranger’s lease cannot be named with it');
  for (const twice of [[leases[a]], [leases[b], leases[b]]]) {
    const also = twice.map((lease) => ({ lease: lease ?? '', parts: [] }));
    const { code, details } = only(stage.send({ type: 'resize_requested', generation: worker, request: 502, lease: leases[a] ?? '', parts: [], also }), 'fail');
    test.match({ code, details }, { code: 'message_invalid', details: { field: 'also', expected: /is named twice/ } }, 'nor one twice, itself among them');
  }
});

t.test('B101: a placement over several cards takes those of least eviction cost, together', async (test) => {
  const stage = stageOf([a, 24 * GiB], [b, 24 * GiB], [c, 24 * GiB]);
  const holder = stage.session('holder');
  stage.resident(holder, 'idle', 20 * GiB, { device: a });
  stage.pass(3_000);
  const client = stage.session();
  const first = only(stage.place(client, 'wide', { cards: 2, estimateBytes: 30 * GiB }).effects, 'spawn');
  test.same(first.devices, [b, c], 'the cards that need no eviction, in the order of their UUIDs');
  const pinned = only(stage.place(client, 'here', { cards: 2, devices: [c, a], estimateBytes: GiB }).effects, 'spawn');
  test.same(pinned.devices, [a, c], 'or those that it may use');
  test.match(only(stage.place(client, 'too-wide', { cards: 4 }).effects, 'deny'), { code: 'gang_unsupported', details: { model: 'too-wide', size: '4', reason: 'there are 3 cards' } });
  test.match(only(stage.place(client, 'strange', { cards: 2, devices: [a, 'GPU-zzz'] }).effects, 'deny'), { code: 'device_unknown', details: { device: 'GPU-zzz' } });
  test.equal(only(stage.place(client, 'huge', { cards: 2, estimateBytes: 60 * GiB }).effects, 'deny').code, 'never_fits');
});

t.test('a gang that would leave two cards for one placement costs once', async (test) => {
  const stage = stageOf([a, 24 * GiB], [b, 24 * GiB], [c, 24 * GiB], ['GPU-d', 24 * GiB]);
  const worker = stage.wideWorker([a, b], { floorBytes: 0 });
  stage.residentGang(worker, 'wide', { [a]: 20 * GiB, [b]: 20 * GiB });
  const holder = stage.session('holder');
  stage.resident(holder, 'one', 20 * GiB, { device: c });
  stage.resident(holder, 'two', 20 * GiB, { device: 'GPU-d' });
  stage.pass(3_000);
  for (const model of ['one', 'two', 'wide']) stage.core.models.get(model)!.loadMs = 1_000;
  const client = stage.session();
  const { devices } = only(stage.place(client, 'next', { cards: 2, estimateBytes: 20 * GiB }).effects, 'spawn');
  test.same(devices, [a, b], 'one reload of 1 s, rather than two');
});

t.test('D4: a placement over several cards waits for the floor on all of them, and is answered once', async (test) => {
  const stage = new Stage();
  for (const device of [a, b]) stage.card(device, { totalBytes: 24 * GiB, floorBytes: GiB });
  for (const device of [a, b]) stage.sample(device);
  const holder = stage.session('holder');
  const full = stage.resident(holder, 'full', 20 * GiB + 512 * MiB, { device: b, policy: { pinned: true } });
  const client = stage.session();
  const { request, effects } = stage.place(client, 'wide', { cards: 2 });
  test.equal(all(effects, 'spawn').length, 0);
  test.ok(all(effects, 'wait').every((wait) => wait.request === request), 'told under its one id');
  test.equal(all(effects, 'wait').length, 1);
  const single = stage.place(client, 'single', { device: a });
  test.equal(all(single.effects, 'spawn').length, 1, 'nobody waits behind it on a card that it cannot have yet');
  const spawn = only(stage.release(holder, full), 'spawn');
  test.same(spawn.devices, [a, b], 'the headroom of what leaves is room enough');
  test.same([stage.cardView(a).floorBytes, stage.cardView(b).floorBytes], [2 * GiB, 2 * GiB], 'a floor on each of its cards, beside another’s');
  stage.take(holder, -(20 * GiB + 512 * MiB), b);
  stage.sample(b);
  const ready = stage.ready(spawn.generation, { floorBytes: null });
  test.match(only(ready, 'placed'), { request, worker: spawn.generation, devices: [a, b] });
  const again = only(stage.place(client, 'wide', { cards: 2 }).effects, 'placed');
  test.equal(again.worker, spawn.generation, 'its host is found again');
  const narrow = stage.place(client, 'narrow', { device: a });
  test.equal(all(narrow.effects, 'placed').length, 0, 'a worker over two cards is no place for a model on one');
});

t.test('a placement over several cards ends with its deadline, its cancellation or its card, and leaves nothing', async (test) => {
  const stage = new Stage();
  for (const device of [a, b]) stage.card(device, { totalBytes: 24 * GiB, floorBytes: GiB });
  for (const device of [a, b]) stage.sample(device);
  const holder = stage.session('holder');
  stage.resident(holder, 'full', 20 * GiB + 512 * MiB, { device: b, policy: { pinned: true } });
  const client = stage.session();
  const overdue = stage.place(client, 'wide', { cards: 2, deadlineMs: 1_000 });
  test.match(only(stage.pass(1_500), 'deny'), { request: overdue.request, code: 'deadline_passed' });
  const cancelled = stage.place(client, 'wide', { cards: 2 });
  test.same(all(stage.send({ type: 'request_cancelled', generation: client, request: cancelled.request }), 'deny'), []);
  const lost = stage.place(client, 'wide', { cards: 2 });
  test.match(only(stage.send({ type: 'card_lost', device: b, reason: 'fallen off the bus' }), 'deny'), { request: lost.request, code: 'device_lost', details: { device: b } });
  test.same(stage.view().waiting, []);
  test.equal(stage.core.gangs.size, 0);
  test.equal(only(stage.place(client, 'wide', { cards: 2 }).effects, 'deny').code, 'device_lost');
  test.equal(all(stage.place(client, 'wide', { cards: 1 }).effects, 'spawn').length, 1, 'the other card goes on');
});
